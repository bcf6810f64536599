"""Types of options, and the options that choose a version of the table to read."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

import click
from pydantic import Field

from compactor.cli.setting_options import setting_option
from compactor.common.clock import SystemClock
from compactor.errors import UsageError
from compactor.settings import units
from compactor.settings.fields import Threads
from compactor.settings.model import Settings
from compactor.table.tags import Moment
from lsm_fragment.names import parse_name

_Given = ParamSpec("_Given")
_Parsed = TypeVar("_Parsed")
_MAX_DIGITS: Final = 20
"""Numbers with as many digits are no version, and may be a time."""


class ReadSettings(Settings):
    """Settings of scans, exports, searches and verifications."""

    skip_missing: bool = Field(
        default=False,
        description="Leave out the fragments that are gone or in quarantine, and say how many rows they "
        "have. Without it a fragment that is damaged or gone is an error.",
    )
    threads: Threads | None = Field(
        default=None,
        description="Threads that read and decode. Changes the time, never the rows. By default one per core "
        "of this process.",
    )


def option_type(parse: Callable[_Given, _Parsed]) -> Callable[_Given, _Parsed]:
    """Makes a type of click's options of a parser that raises ValueError."""

    @wraps(parse)
    def parsed(*args: _Given.args, **kwargs: _Given.kwargs) -> _Parsed:
        try:
            return parse(*args, **kwargs)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return parsed


duration_seconds = option_type(units.duration_seconds)
size_bytes = option_type(units.size_bytes)
column_name = option_type(parse_name)


@option_type
def moment_unix_ms(text: str) -> int:
    """Parses an ISO 8601 time (UTC without a zone) or a duration before now."""
    return units.moment_unix_ms(text, SystemClock())


def version_or_time(text: str) -> Moment:
    """Parses the number of a version, or a time as `moment_unix_ms` does, as a type of click's options."""
    return Moment(int(text)) if text.isdecimal() else Moment(None, moment_unix_ms(text))


def version_or_tag(text: str) -> int | str:
    """Parses the number of a version, or takes the name of a tag, which has more than digits."""
    return int(text) if text.isdecimal() and len(text) < _MAX_DIGITS else text


def check_condition(where: str, advice: str) -> None:
    """Raises `UsageError` with the advice if the condition of --where is empty."""
    if not where.strip():
        raise UsageError(f"--where: the condition is empty; {advice}")


threads_option = setting_option(ReadSettings, "threads")
skip_missing_option = setting_option(ReadSettings, "skip_missing")


def snapshot_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --version, --as-of and --tag, which the command takes as one `Moment`."""

    @wraps(command)
    def with_moment(
        *args: Any, version: int | None, as_of: int | None, tag: str | None, **options: Any
    ) -> Any:
        moment = Moment(version, as_of, tag)
        if moment.is_ambiguous:
            raise UsageError("--version, --as-of and --tag: give one of them")
        return command(*args, moment=moment, **options)

    with_moment = click.option(
        "--tag", "tag", metavar="NAME", help="Read the table at the version that this tag names."
    )(with_moment)
    with_moment = click.option(
        "--as-of",
        "as_of",
        type=moment_unix_ms,
        metavar="TIME",
        help="Read the table as it was at this time (15m: 15 minutes ago).",
    )(with_moment)
    return click.option(
        "--version", "version", type=click.IntRange(min=1), help="Read the table at this version."
    )(with_moment)
