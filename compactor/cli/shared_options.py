"""Types of options, and the options that choose a version of the table to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from pydantic import Field

from compactor.cli.setting_options import setting_option
from compactor.common.clock import SystemClock
from compactor.errors import UsageError
from compactor.settings import units
from compactor.settings.fields import Threads
from compactor.settings.model import Settings
from lsm_fragment.names import parse_name

_Command = TypeVar("_Command", bound=Callable[..., Any])


class ReadSettings(Settings):
    """Settings of scans, exports, searches and verifications."""

    skip_quarantined: bool = Field(
        default=False,
        description="Leave out the fragments in quarantine, and say how many rows they have. Without it a "
        "fragment that is damaged or gone is an error.",
    )
    threads: Threads | None = Field(
        default=None,
        description="Threads that read and decode. Changes the time, never the rows. By default one per core "
        "of this process.",
    )


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


def column_name(text: str) -> str:
    """Parses the name of a column, optionally quoted, as a type of click's options."""
    try:
        return parse_name(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


threads_option = setting_option(ReadSettings, "threads")
skip_quarantined_option = setting_option(ReadSettings, "skip_quarantined")


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


def check_one_moment(version: int | None, as_of: int | None) -> None:
    """Raises `UsageError` if both a version and a time are given."""
    if version is not None and as_of is not None:
        raise UsageError("--version and --as-of: give one of the two")
