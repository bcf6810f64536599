"""Follows a table's log from one batch of a stream to the next, and reads each version once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compactor.read.changes import first_of
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot, replay
from compactor.table.version import Version

_MAX_VERSIONS: Final = 1000
"""The most versions that are read ahead, which bounds the memory of a plan."""


class VersionsAhead:
    """The snapshot at a position of the log, and the versions after it that were read ahead."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._snapshot: Snapshot | None = None
        self._versions: list[Version] = []

    def reach(self, version: int, newest: int) -> int:
        """Returns up to which version `after` reads without reading more than it should at a time."""
        last = self._last
        return last if version < last <= newest else min(newest, version + _MAX_VERSIONS)

    def after(self, version: int, until: int) -> tuple[Snapshot, Sequence[Version]]:
        """Moves to a version; returns its snapshot and the versions after it, up to `until`.

        Raises `VersionNotFoundError` if a vacuum may have taken what their changes need, and what
        `History.versions_after` raises.
        """
        snapshot = self._moved(version)
        if self._last < until:
            self._versions = self._log.history.versions_after(snapshot, until)
        return snapshot, self._versions[: until - version]

    @property
    def _last(self) -> int:
        return 0 if self._snapshot is None else self._snapshot.version + len(self._versions)

    def _moved(self, version: int) -> Snapshot:
        at = self._snapshot
        if at is None or not at.version <= version <= self._last:
            self._snapshot, self._versions = first_of(self._log, version), []
        elif passed := version - at.version:
            self._snapshot = replay(at, self._versions[:passed])
            self._versions = self._versions[passed:]
        assert self._snapshot is not None, "it was set above"
        return self._snapshot
