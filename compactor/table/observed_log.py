"""A commit log that reports how each commit ended, for metrics and traces."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from msgspec import Struct

from compactor.errors import CommitConflictError, CompactorError, UnknownOutcomeError
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog, Prepare
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes


class CommitEnd(StrEnum):
    COMMITTED = "committed"
    CONFLICT = "conflict"
    """Other writers kept winning the race."""
    UNKNOWN = "unknown"
    """The commit may stand or not."""
    FAILED = "failed"
    NOTHING = "nothing"
    """On a newer snapshot nothing was left to commit."""


class CommitReport(Struct, frozen=True, kw_only=True):
    table_url: str
    end: CommitEnd
    changes: Changes | None
    """The changes of the last try; None if it did not come to that."""
    version: int
    """The committed version, or else the newest known."""
    lost_races: int
    """Versions that other writers took first; each led to a further try."""
    started_unix_ms: int
    seconds: float


class ObservedCommitLog(CommitLog):
    """A `CommitLog` that calls `on_commit` after each commit, however it ended."""

    def __init__(
        self, store: Store, on_commit: Callable[[CommitReport], None], **options: Any
    ) -> None:
        """options: those of `CommitLog`."""
        super().__init__(store, **options)
        self._on_commit = on_commit

    def commit(self, prepare: Prepare) -> Snapshot:
        tries = _Tries(prepare)
        started = self._clock.now_unix_ms()
        end = CommitEnd.NOTHING  # `prepare` says so by raising any other exception
        try:
            snapshot = super().commit(tries)
            end = CommitEnd.COMMITTED
        except UnknownOutcomeError:
            end = CommitEnd.UNKNOWN
            raise
        except CommitConflictError:
            end = CommitEnd.CONFLICT
            raise
        except CompactorError:
            end = CommitEnd.FAILED
            raise
        finally:
            self._on_commit(
                CommitReport(
                    table_url=self.store.url,
                    end=end,
                    changes=tries.changes,
                    version=self.latest.version,
                    lost_races=tries.count
                    if end is CommitEnd.CONFLICT
                    else max(0, tries.count - 1),
                    started_unix_ms=started,
                    seconds=(self._clock.now_unix_ms() - started) / 1000,
                )
            )
        return snapshot


class _Tries:
    """A wrapper of `prepare` that counts its calls: one for each try."""

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare
        self.count = 0
        self.changes: Changes | None = None

    def __call__(self, snapshot: Snapshot) -> Changes:
        self.count += 1
        self.changes = None
        self.changes = self._prepare(snapshot)
        return self.changes
