"""Maps a setting's key to its flag, Python argument, Spark option and YAML key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from compactor.errors import CompactorError

_FLAGS: Final = {
    "duration_seconds": "--duration",
    "grace_seconds": "--grace",
    "ingest_bytes_per_second": "--ingest",
    "keep_seconds": "--keep",
    "late_share": "--late",
    "memory_limit_bytes": "--memory-limit",
    "properties": "--set",
    "retain_seconds": "--retain",
    "retention_seconds": "--retention",
    "spool_after_seconds": "--spool-after",
    "spool_limit_bytes": "--spool-limit",
    "window_seconds": "--time-window",
}
IN_PYTHON: Final = {
    "aggregate": "options.rows.aggregates",
    "back_pressure": "options.back_pressure",
    "delete_marker": "options.rows.delete_marker",
    "keep_tombstones": "options.rows.keeps_tombstones",
    "level0_trigger_runs": "policy.level0_trigger_runs",
    "level1_target_bytes": "policy.level1_target_bytes",
    "memory_limit_bytes": "settings.memory_limit_bytes",
    "not_null": "options.not_null",
    "on_conflict": "options.on_conflict",
    "promote": "options.promotes",
    "properties": "options.properties",
    "row_policy": "options.rows.kind",
    "sequence": "options.rows.sequence",
    "skip_index": "options.skips",
    "slow_runs": "policy.slow_runs",
    "spool_directory": "settings.spool_directory",
    "stop_pending_bytes": "policy.stop_pending_bytes",
    "stop_runs": "policy.stop_runs",
    "target_fragment_bytes": "settings.target_fragment_bytes",
    "time_column": "options.windows",
    "time_window": "options.windows.window_seconds",
    "ttl": "options.ttl",
    "ttl_column": "options.ttl.column",
}
"""Fields of option objects that `Table`'s methods take, by key. Plain arguments are named by their key."""
_IN_PIPELINES: Final = {
    "memory_limit_bytes": "memory.limit",
    "skip_missing": "--skip-missing of `compactor export`",
    "spool_directory": "TMPDIR",
}


def as_flag(key: str) -> str:
    """Returns the option of the command line."""
    return _FLAGS.get(key) or f"--{key.replace('_', '-')}"


def in_python(key: str) -> str:
    """Returns the argument of the Python interface, or the field of an option object."""
    return IN_PYTHON.get(key, key)


def as_option(key: str) -> str:
    """Returns the option of the Spark data source."""
    return "memory_limit" if key == "memory_limit_bytes" else key


def in_pipeline(key: str) -> str:
    """Returns the setting in a pipeline's file, or the environment variable if a file cannot set it."""
    return _IN_PIPELINES.get(key, key)


@contextlib.contextmanager
def settings_named(name_of: Callable[[str], str]) -> Iterator[None]:
    """Makes errors raised in the block show one front's names of settings."""
    try:
        yield
    except CompactorError as error:
        error.reword(lambda message: str(message.named(name_of)))
        raise
