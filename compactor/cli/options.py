"""Options that several commands share, and the values they turn into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from compactor.common.clock import SystemClock
from compactor.compaction.driver import IN_PROCESS_LEASE_SECONDS, LEASE_SECONDS
from compactor.compaction.engine import Engine, InProcessEngine
from compactor.errors import UsageError
from compactor.predicate.skipping.spec import SkipKind
from compactor.settings import units
from compactor.settings.column_kinds import column_kinds
from compactor.settings.compaction import (
    CompactionSettings,
    Policy,
    Strategy,
    compaction_settings,
    policy,
)
from compactor.spark.engine import SparkEngine
from compactor.spark.session import check_master, is_submitted, open_session, task_slots
from compactor.stores.base import Store
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot

IN_PROCESS: Final = "in-process"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def duration_seconds(text: str) -> float:
    """Parses `90s`, `15m`, `6h`, `7d`, `2w` or `0` as a type of click's options."""
    try:
        return units.duration_seconds(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def size_bytes(text: str) -> int:
    """Parses `512MiB`, `2GiB`, `1.5GB` or a number of bytes as a type of click's options."""
    try:
        return units.size_bytes(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def moment_unix_ms(text: str) -> int:
    """Parses an ISO 8601 time (UTC without a zone) or a duration before now, as a type of click's options."""
    try:
        return units.moment_unix_ms(text, SystemClock())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def snapshot_options(command: _Command) -> _Command:
    """Adds --version and --as-of."""
    command = click.option(
        "--as-of",
        "as_of",
        type=moment_unix_ms,
        metavar="TIME",
        help="Read the table as it was at this time (15m: 15 minutes ago).",
    )(command)
    return click.option(
        "--version", "version", type=click.IntRange(min=1), help="Read the table at this version."
    )(command)


def shuffle_options(waiting: str) -> Callable[[_Command], _Command]:
    """Adds --staging and --shuffle-partitions. waiting: says what waits in the staging folder."""

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
    """Says whether a command runs on Spark instead of in this process. Raises `UsageError`."""
    check_engine(master)
    on_spark = master != IN_PROCESS and (master is not None or is_submitted())
    if not on_spark and (staging, shuffle_partitions) != (None, None):
        raise UsageError("--staging and --shuffle-partitions go with --master")
    return on_spark


def check_one_moment(version: int | None, as_of: int | None) -> None:
    """Raises `UsageError` if both a version and a time are given."""
    if version is not None and as_of is not None:
        raise UsageError("--version and --as-of: give one of the two")


def open_snapshot(table: str, version: int | None, as_of: int | None) -> tuple[Store, Snapshot]:
    """Opens a table at its newest version, or at the version or time given.

    Raises `UsageError` if both are given, `VersionNotFoundError` for a version that is not retained.
    """
    check_one_moment(version, as_of)
    store = open_store(table)
    return store, CommitLog(store).at(version, as_of)


def policy_options(command: _Command) -> _Command:
    """Adds the options that decide what is compacted when."""
    for option in reversed(
        (
            click.option(
                "--strategy",
                type=click.Choice([str(s) for s in Strategy]),
                help="leveled: lazy, size-tiered then leveled. tiered: level 0 only. overlapping: all that "
                "overlaps. full: one sorted run.  [default: leveled]",
            ),
            click.option("--level0-trigger-runs", type=int,
                         help="Runs of similar size that start a level-0 compaction.  [default: 4]"),
            click.option("--level1-target-bytes", type=int, help="Bytes of level 1.  [default: 16 GiB]"),
            click.option("--level-multiplier", type=int,
                         help="Size of each level relative to the one above.  [default: 4]"),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def compaction_options(command: _Command) -> _Command:
    """Adds the options that say how fragments are cut and what one task may use."""
    for option in reversed(
        (
            click.option("--target-fragment-bytes", type=int,
                         help="Bytes of an output fragment.  [default: 512 MiB]"),
            click.option("--target-row-group-bytes", type=int,
                         help="Raw bytes of a row group's largest column.  [default: a 64th of the "
                         "memory limit, 8 MiB at most]"),
            click.option("--max-rows-per-row-group", type=int,
                         help="Most rows of a row group.  [default: 65536]"),
            click.option("--compression-level", type=int,
                         help="zstd level of outputs, 0 for no compression.  [default: 1]"),
            click.option("--max-fan-in", type=int,
                         help="Most sorted runs that one task merges.  [default: 1000]"),
            click.option("--memory-limit", "memory_limit_bytes", type=size_bytes, metavar="SIZE",
                         help="Memory for one task's data. More goes to local disk; a compaction that "
                         "needs more in memory is refused. The process itself takes some 150 MiB more.  "
                         "[default: 512MiB]"),
            click.option("--batch-size", type=int, metavar="ROWS",
                         help="Most rows ordered at a time. Changes memory use, never the output.  "
                         "[default: 262144]"),
            click.option("--encode-thread/--no-encode-thread", default=None,
                         help="Encode in a thread of its own while the next rows are gathered. Changes the "
                         "time, never the output.  [default: where there is more than one core]"),
            click.option("--spool-directory", type=click.Path(exists=True, file_okay=False, writable=True),
                         help="Folder for data that memory does not hold.  [default: the system's folder "
                         "for temporary files]"),
            click.option("--spool-limit", "spool_limit_bytes", type=size_bytes, metavar="SIZE",
                         help="Keep inputs of up to this size on local disk, so that a second pass takes no "
                         "second GET. 0 keeps none.  [default: 64GiB]"),
            click.option("--spool-after", "spool_after_seconds", type=duration_seconds, metavar="DURATION",
                         help="Time that a paused connection waits before its data goes to local disk.  "
                         "[default: 10s]"),
        )
    ):  # fmt: skip
        command = option(command)
    return command


_POLICY_NAMES: Final = (
    "strategy",
    "level0_trigger_runs",
    "level1_target_bytes",
    "level_multiplier",
)


def chosen(options: dict[str, Any]) -> tuple[Policy, CompactionSettings]:
    """Makes the settings from the values of both groups of options. Raises `ConfigError`."""
    names = [name for name in _POLICY_NAMES if name in options]
    when = policy(**{name: options[name] for name in names})
    return when, compaction_settings(**{k: v for k, v in options.items() if k not in names})


def engine_options(command: _Command) -> _Command:
    """Adds --master and --max-tasks, which say where compactions run."""
    command = click.option(
        "--max-tasks",
        type=click.IntRange(min=1),
        help="Most compactions at a time.  [default: all cores]",
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
    session = open_session("local[*]" if master is None and not is_submitted() else master)
    return SparkEngine(session, max_tasks or task_slots(session))


def lease_seconds(master: str | None) -> float:
    return IN_PROCESS_LEASE_SECONDS if master == IN_PROCESS else LEASE_SECONDS


def skip_kinds(texts: Sequence[str]) -> dict[str, SkipKind | None]:
    """Parses the values of `--skip-index COLUMN:KIND`; the kind none becomes None. Raises `UsageError`."""
    try:
        return column_kinds(texts, {**{str(kind): kind for kind in SkipKind}, "none": None})
    except ValueError as error:
        raise UsageError(f"--skip-index: {error}") from None
