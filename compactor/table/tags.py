"""Tags: names of versions, which the log keeps for longer than others. Pure.

A tag counts from the commit that sets it to the commit that ends it. Its time to expire only tells a vacuum
when to end it, so readers, restores and vacuums never disagree about it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Struct

from compactor.common.clock import Clock
from compactor.errors import UsageError
from compactor.settings.units import moment_unix_ms, unix_ms
from compactor.table.numbers import Natural, UnixMs

TAG_PATTERN: Final = r"^(?![0-9]+\Z)[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z"
"""Digits alone are the number of a version."""
TagName = Annotated[str, msgspec.Meta(pattern=TAG_PATTERN)]


class Tag(Struct, frozen=True):
    """A name for a version."""

    name: TagName
    version: Natural
    tagged_unix_ms: UnixMs
    expires_unix_ms: UnixMs | None = None
    """A vacuum ends the tag after this time; None keeps it until somebody does."""
    keeps_later: bool = False
    """Whether vacuums keep all versions after it, too: for a reader that has yet to read their changes."""

    def is_expired(self, now_unix_ms: int) -> bool:
        return self.expires_unix_ms is not None and self.expires_unix_ms <= now_unix_ms


class Moment(NamedTuple):
    """The version to read, named in one of three ways; by default the newest."""

    version: int | None = None
    as_of_unix_ms: int | None = None
    tag: str | None = None

    @property
    def is_newest(self) -> bool:
        return self == NEWEST

    @property
    def is_ambiguous(self) -> bool:
        """Whether it is named in more than one way."""
        return sum(part is not None for part in self) > 1


def unix_ms_of(moment: datetime) -> int:
    """Raises `UsageError` for a time before the year 1."""
    try:
        return unix_ms(moment)
    except ValueError as error:
        raise UsageError(str(error)) from error


def named_in(text: str, tags: Collection[str], clock: Clock) -> int | str | datetime:
    """Returns the version, the tag or the time that a text names. tags: the names of all tags.

    Raises ValueError with examples of each.
    """
    if text.isdecimal() and len(text) < 20:
        return int(text)
    if text in tags:
        return text
    try:
        return datetime.fromtimestamp(moment_unix_ms(text, clock) / 1000, UTC)
    except ValueError:
        raise ValueError(
            f"{text!r} is no version, tag or time, such as 41, 15m or 2026-11-21T08:00"
        ) from None


NEWEST: Final = Moment()
