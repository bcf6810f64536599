"""Options that say what is compacted when, and what one task may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from compactor.cli.options import duration_seconds, size_bytes
from compactor.settings.compaction import (
    CompactionSettings,
    Policy,
    Strategy,
    compaction_settings,
    policy,
)

_Command = TypeVar("_Command", bound=Callable[..., Any])


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
