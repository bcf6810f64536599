"""Chooses the table whose merge begins next. Pure.

Small merges go first, since they soon free a slot and shorten reads at once. By itself that would starve
large ones, and a high priority all others. So tables that have waited longer than their `longest_wait`, or
whose writers are held back, go before all others, in the order in which they began to wait. And between the
entries of a file, the one that has had the least work for its share goes first. Then nothing waits for ever:
an entry's turn comes when the others have had their share, and within it, whatever came later is behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

_LEAST_BYTES: Final = 16 << 20
"""Charge each merge this much at least: for small ones, leases and commits cost more than bytes."""


class Waiting(Struct, frozen=True, kw_only=True):
    """A table with merges that are due and have not begun."""

    table: str
    entry: str
    """The entry of the file that matches the table."""
    priority: int
    share: float
    since_unix_ms: int
    """When the first of these merges became due, or the last one before it began."""
    longest_wait_seconds: float
    next_bytes: int
    """Stored bytes of the merge that would begin."""
    holds_up_writers: bool = False
    """Whether its debt slows writers down."""

    def is_overdue(self, now_unix_ms: int) -> bool:
        waited = now_unix_ms - self.since_unix_ms
        return self.holds_up_writers or waited >= self.longest_wait_seconds * 1000


class Shares:
    """How much work each entry has had for its share, so that the next merge is fairly chosen."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        """Bytes charged to each entry, divided by its share."""
        self._waiting: frozenset[str] = frozenset()
        """The entries that waited at the last choice."""

    def choose(self, waiting: Sequence[Waiting], now_unix_ms: int) -> Waiting | None:
        """Returns the table whose merge begins now, and charges it to its entry; None if none waits."""
        self._welcome(waiting)
        if not waiting:
            return None
        overdue = [each for each in waiting if each.is_overdue(now_unix_ms)]
        if not overdue:
            highest = max(each.priority for each in waiting)
            eligible = [each for each in waiting if each.priority == highest]
        entry = min({each.entry for each in overdue or eligible}, key=self._order)
        if overdue:
            mine = [each for each in overdue if each.entry == entry]
            chosen = min(mine, key=lambda each: (each.since_unix_ms, each.next_bytes, each.table))
        else:
            mine = [each for each in eligible if each.entry == entry]
            chosen = min(mine, key=lambda each: (each.next_bytes, each.since_unix_ms, each.table))
        self._used[entry] += _charge(chosen)
        return chosen

    def take_back(self, chosen: Waiting) -> None:
        """Gives an entry back what it was charged for a merge that did not begin."""
        self._used[chosen.entry] -= _charge(chosen)

    def _welcome(self, waiting: Sequence[Waiting]) -> None:
        """Lets entries that had nothing to do begin where the others are: rest saves up no work."""
        now = frozenset(each.entry for each in waiting)
        stayed = [self._used[entry] for entry in now & self._waiting]
        least = min(stayed, default=max(self._used.values(), default=0.0))
        for entry in now - self._waiting:
            self._used[entry] = max(self._used.get(entry, 0.0), least)
        self._waiting = now

    def _order(self, entry: str) -> tuple[float, str]:
        return self._used[entry], entry


def _charge(chosen: Waiting) -> float:
    return max(chosen.next_bytes, _LEAST_BYTES) / chosen.share
