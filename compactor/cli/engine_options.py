"""Options that choose where work runs: in this process or on Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from compactor.compaction.driver import IN_PROCESS_LEASE_SECONDS, LEASE_SECONDS
from compactor.compaction.engine import Engine, InProcessEngine
from compactor.errors import UsageError
from compactor.spark.session import check_master, is_submitted, open_session, task_slots

IN_PROCESS: Final = "in-process"

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


def check_engine(master: str | None) -> None:
    """Checks --master as far as possible before Spark starts. Raises `UsageError`."""
    if master != IN_PROCESS:
        check_master(master)


def open_engine(master: str | None, max_tasks: int | None) -> Engine:
    """Opens the engine. Raises `UsageError` if Spark does not start."""
    if master == IN_PROCESS:
        return InProcessEngine()
    from compactor.spark.engine import SparkEngine

    session = open_session("local[*]" if master is None and not is_submitted() else master)
    return SparkEngine(session, max_tasks or task_slots(session))


def lease_seconds(master: str | None) -> float:
    return IN_PROCESS_LEASE_SECONDS if master == IN_PROCESS else LEASE_SECONDS


def shuffle_options(waiting: str) -> Callable[[_Command], _Command]:
    """Adds --staging and --shuffle-partitions. waiting: describes what waits in the staging folder."""

    def add(command: _Command) -> _Command:
        command = click.option(
            "--shuffle-partitions",
            type=click.IntRange(1, 10_000),
            help="Spark tasks after a shuffle.  [default: by the size of the shuffled data]",
        )(command)
        return click.option(
            "--staging",
            metavar="URL",
            help="On a cluster: s3://bucket/prefix, or a folder that all tasks share, where "
            f"{waiting}.  [default for local masters: a temporary folder]",
        )(command)

    return add


def is_on_spark(master: str | None, staging: str | None, shuffle_partitions: int | None) -> bool:
    """Returns whether a command runs on Spark instead of in this process. Raises `UsageError`."""
    check_engine(master)
    on_spark = master != IN_PROCESS and (master is not None or is_submitted())
    if not on_spark and (staging, shuffle_partitions) != (None, None):
        raise UsageError("--staging and --shuffle-partitions go with --master")
    return on_spark
