"""Options of commands that run in this process or on Spark: where, and how rows move between tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from compactor.errors import UsageError
from compactor.spark.masters import check_master, is_submitted

IN_PROCESS: Final = "in-process"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def check_engine(master: str | None) -> None:
    """Checks --master as far as possible before Spark starts. Raises `UsageError`."""
    if master != IN_PROCESS:
        check_master(master)


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
