"""Options that choose where compactions run: in this process or on Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import click

from compactor.cli.output import tell
from compactor.cli.spark_options import IN_PROCESS
from compactor.cli.spark_start import start_spark
from compactor.compaction.attempt import run_compaction
from compactor.compaction.driver import IN_PROCESS_LEASE_SECONDS, LEASE_SECONDS
from compactor.compaction.engine import Engine, InProcessEngine
from compactor.planner.estimate import Estimate
from compactor.planner.place import place_of
from compactor.resources.cores import usable_cores
from compactor.spark.masters import is_submitted, lacking
from compactor.spark.session import task_slots

_Command = TypeVar("_Command", bound=Callable[..., Any])
_THIS_MACHINE: Final = "local[*]"


def engine_options(default: str) -> Callable[[_Command], _Command]:
    """Adds --master and --max-tasks, which choose where compactions run. default: what --master is without
    spark-submit."""

    def add(command: _Command) -> _Command:
        command = click.option(
            "--max-tasks",
            type=click.IntRange(min=1),
            help="Maximum concurrent compactions.  [default: all cores]",
        )(command)
        return click.option(
            "--master",
            help=f"Spark master such as local[2], or {IN_PROCESS}.  [default: {default}, or that of "
            "spark-submit]",
        )(command)

    return add


def master_for(
    master: str | None, max_tasks: int | None, predicted: Sequence[Estimate]
) -> str | None:
    """Returns the master that runs these compactions: as asked, else where they end first. Says which."""
    if master is not None or is_submitted():
        return master
    if not predicted:
        return IN_PROCESS
    cores = usable_cores()
    place = place_of(predicted, slots=min(cores, max_tasks or cores), lacks=lacking())
    tell(place.why)
    return _THIS_MACHINE if place.is_on_spark else IN_PROCESS


def master_of_worker(master: str | None) -> str | None:
    """Returns the master of a process that compacts until it is stopped, and so earns back a start of Spark:
    as asked, else Spark on this machine; in this process where Spark can't start, which a line says."""
    if master is not None or is_submitted():
        return master
    if (lacks := lacking()) is None:
        return _THIS_MACHINE
    tell(f"in this process, since {lacks}")
    return IN_PROCESS


def open_engine(
    master: str | None,
    max_tasks: int | None,
    on_read: Callable[[int], None] = lambda _bytes_read: None,
) -> Engine:
    """Opens the engine. Raises `UsageError` if Spark does not start.

    on_read: called with the bytes that the running compaction has read, if it runs in this process.
    """
    if master == IN_PROCESS:
        return InProcessEngine(partial(run_compaction, on_read=on_read))
    from compactor.spark.engine import SparkEngine

    session = start_spark(master)
    return SparkEngine(session, max_tasks or task_slots(session))


def lease_seconds(master: str | None) -> float:
    return IN_PROCESS_LEASE_SECONDS if master == IN_PROCESS else LEASE_SECONDS
