"""Tags: names of versions, which the log keeps for longer than others. Pure.

A tag counts from the commit that sets it to the commit that ends it. Its time to expire only tells a vacuum
when to end it, so readers, restores and vacuums never disagree about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

import msgspec

from compactor.table.numbers import Natural, UnixMs

TAG_PATTERN: Final = r"^(?![0-9]+\Z)[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z"
"""Digits alone are the number of a version."""
TagName = Annotated[str, msgspec.Meta(pattern=TAG_PATTERN)]


@dataclass(frozen=True, slots=True)
class Tag:
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


NEWEST: Final = Moment()
