"""Types of options, and the options that say which version of a table is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from compactor.common.clock import SystemClock
from compactor.errors import UsageError
from compactor.settings import units
from compactor.stores.base import Store
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot

_Command = TypeVar("_Command", bound=Callable[..., Any])


def duration_seconds(text: str) -> float:
    """`90s`, `15m`, `6h`, `7d`, `2w` or `0`. A type of click's options."""
    try:
        return units.duration_seconds(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def size_bytes(text: str) -> int:
    """`512MiB`, `2GiB`, `1.5GB` or a number of bytes. A type of click's options."""
    try:
        return units.size_bytes(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def moment_unix_ms(text: str) -> int:
    """A time (ISO 8601, UTC if it names no zone), or a duration before now. A type of click's options."""
    try:
        return units.moment_unix_ms(text, SystemClock())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def snapshot_options(command: _Command) -> _Command:
    """--version and --as-of."""
    command = click.option(
        "--as-of",
        "as_of",
        type=moment_unix_ms,
        metavar="TIME",
        help="The table as it was then (15m: a quarter of an hour ago).",
    )(command)
    return click.option(
        "--version", "version", type=click.IntRange(min=1), help="The table at this version."
    )(command)


def check_one_moment(version: int | None, as_of: int | None) -> None:
    """Raises `UsageError` if a snapshot is asked for twice."""
    if version is not None and as_of is not None:
        raise UsageError("--version and --as-of: give one of the two")


def open_snapshot(table: str, version: int | None, as_of: int | None) -> tuple[Store, Snapshot]:
    """A table's newest snapshot, or the one asked for.

    Raises `UsageError` if asked twice, `VersionNotFoundError` for what is not kept.
    """
    check_one_moment(version, as_of)
    store = open_store(table)
    return store, CommitLog(store).at(version, as_of)
