"""Options that choose where compactions run: in this process or on Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from compactor.cli.spark_options import IN_PROCESS
from compactor.compaction.driver import IN_PROCESS_LEASE_SECONDS, LEASE_SECONDS
from compactor.compaction.engine import Engine, InProcessEngine
from compactor.spark.masters import is_submitted
from compactor.spark.session import open_session, task_slots

_Command = TypeVar("_Command", bound=Callable[..., Any])


def engine_options(command: _Command) -> _Command:
    """Adds --master and --max-tasks, which choose where compactions run."""
    command = click.option(
        "--max-tasks",
        type=click.IntRange(min=1),
        help="Maximum concurrent compactions.  [default: all cores]",
    )(command)
    return click.option(
        "--master",
        help=f"Spark master such as local[2], or {IN_PROCESS}.  [default: local[*], or that of "
        "spark-submit]",
    )(command)


def open_engine(master: str | None, max_tasks: int | None) -> Engine:
    """Opens the engine. Raises `UsageError` if Spark does not start."""
    if master == IN_PROCESS:
        return InProcessEngine()
    from compactor.spark.engine import SparkEngine

    session = open_session("local[*]" if master is None and not is_submitted() else master)
    return SparkEngine(session, max_tasks or task_slots(session))


def lease_seconds(master: str | None) -> float:
    return IN_PROCESS_LEASE_SECONDS if master == IN_PROCESS else LEASE_SECONDS
