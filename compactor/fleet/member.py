"""What a worker remembers of each table of a fleet.

A table at rest is a version and a few times: its snapshot is read again when its log has news.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct, field

from compactor.compaction.driver import Driver
from compactor.fleet.config import Entry
from compactor.fleet.finding import Place
from compactor.fleet.state import State, TableState


class Member(Struct, kw_only=True):
    """A table of the fleet. Times are Unix milliseconds."""

    place: Place
    url: str
    entry: Entry
    driver: Driver | None = None
    version: int = 0
    """The version that was looked at last; 0 without a table."""
    etag: str | None = None
    """Of that version's log file; None if it was not listed since."""
    is_read: bool = False
    has_left: bool = False
    """Whether it is no longer found, or no entry matches it any more."""
    has_new_rules: bool = False
    """Whether the entry has changed since the driver was opened."""
    is_to_look: bool = False
    """Whether the next rounds have to plan the table anew."""
    changed_ms: int = 0
    """When the log was last seen to change."""
    poll_ms: int = 0
    """When the log is asked for news."""
    look_ms: int | None = None
    """When to look although there is no news: for a retry, a lease, retention."""
    failures: int = 0
    """Requests for news that failed in a row."""
    retry_ms: int | None = None
    """When the worker tries again what failed."""
    since_ms: int | None = None
    """Since when merges wait to begin; None if none is due."""
    left_bytes: tuple[int, ...] = ()
    """Stored bytes of the merges that are due."""
    debt: float = 0.0
    published: int = -1
    """The version that a copy has; -1 if this process has not published."""
    due_ms: dict[str, int] = field(default_factory=dict)
    """When each chore is due."""

    @property
    def running(self) -> int:
        return 0 if self.driver is None else self.driver.running

    @property
    def can_close(self) -> bool:
        """Whether the driver can be opened anew without loss.

        What a table that has left or a driver of old rules waits to try again, it would wait for without end.
        """
        if self.driver is None:
            return False
        if self.has_left or self.has_new_rules:
            return not self.running
        return self.driver.is_at_rest and self.retry_ms is None

    def may_begin(self, quiet: Collection[str]) -> bool:
        """Says whether merges may begin. The driver of old rules is closed once it runs none.

        quiet: the entries in their quiet hours.
        """
        has_old_driver = self.has_new_rules and self.driver is not None
        return not self.has_left and not has_old_driver and self.entry.at not in quiet

    def waited_seconds(self, now_ms: int) -> float:
        return 0.0 if self.since_ms is None else max(0, now_ms - self.since_ms) / 1000

    def state(self, now_ms: int, *, is_quiet: bool) -> TableState:
        return TableState(
            table=self.url,
            entry=self.entry.at,
            state=self._state(is_quiet=is_quiet),
            version=self.version,
            running=self.running,
            due=len(self.left_bytes),
            next_bytes=next(iter(self.left_bytes), 0),
            waiting_seconds=round(self.waited_seconds(now_ms), 1),
            debt=round(self.debt, 3),
        )

    def _state(self, *, is_quiet: bool) -> State:
        if self.failures or self.retry_ms is not None:
            return State.FAILING
        if not self.is_read:
            return State.NEW
        if not self.version:
            return State.AWAITED
        if self.running:
            return State.MERGING
        if self.since_ms is None:
            return State.AT_REST
        return State.QUIET if is_quiet else State.WAITING
