"""Removing what no retained version needs, safely against attempts that still run.

No clock is trusted for safety. First a version is committed that moves the *fence*: attempts based on
earlier versions can't commit any more, however long they slept. Then what they left can't become live,
and is removed. Clocks only decide how far the fence moves: not past attempts younger than the grace period.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from compactor.errors import TableNotFoundError
from compactor.names import (
    CHECKPOINT_PREFIX,
    DATA_PREFIX,
    LOG_PREFIX,
    base_version,
    parse_checkpoint,
    parse_version,
)
from compactor.stores.base import ObjectInfo, UnfinishedUpload
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation

LOG_GRACE_SECONDS: Final = 3600
"""Log files are small, and removing one under a running commit makes its outcome unknown: an hour at
least."""


@dataclass(slots=True)
class VacuumReport:
    """What was removed, or would be by a dry run."""

    version: int
    oldest_version: int
    """The first one that can be read from now on."""
    fragments: int = 0
    fragment_bytes: int = 0
    log_files: int = 0
    checkpoints: int = 0
    unfinished_uploads: int = 0
    waiting_fragments: int = 0
    """Not live in any version, but younger than the grace period: perhaps about to be committed."""
    dry_run: bool = False

    @property
    def is_empty(self) -> bool:
        removed = self.fragments + self.log_files + self.checkpoints + self.unfinished_uploads
        return removed == 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class VacuumSettings:
    grace_seconds: float = 86_400.0
    """Attempts that began longer ago are taken for dead."""
    retain_seconds: float = 86_400.0
    """Versions that were current within that time stay readable."""
    dry_run: bool = False
    deleters: int = 16
    """Requests at a time; 1 starts no threads."""


def vacuum(log: CommitLog, settings: VacuumSettings) -> VacuumReport:
    """Removes unreferenced fragments, log files, checkpoints and unfinished uploads.

    Running it twice at once is harmless. Raises `TableNotFoundError` where no log is, having removed nothing;
    `StoreError` where the store refuses; what is left is for the next run.
    """
    return _Vacuum(log, settings).run()


class _Vacuum:
    def __init__(self, log: CommitLog, settings: VacuumSettings) -> None:
        self._log = log
        self._store = log.store
        self._settings = settings
        self._now_ms = log.clock.now_unix_ms()

    def run(self) -> VacuumReport:
        settings = self._settings
        snapshot = self._log.refresh()
        if snapshot.version == 0:
            raise TableNotFoundError(self._without_table())
        boundaries = self._boundaries(snapshot)
        report = VacuumReport(snapshot.version, boundaries.oldest, dry_run=settings.dry_run)
        self._survey(snapshot, boundaries, report)
        if settings.dry_run or (report.is_empty and not report.waiting_fragments):
            return report
        snapshot = self._log.commit(self._move_boundaries)
        boundaries = replace(boundaries, fence=snapshot.fence, oldest=snapshot.oldest)
        report = VacuumReport(snapshot.version, snapshot.oldest)
        # Surveyed again after the commit: from here on nothing before the fence can become live.
        self._survey(snapshot, boundaries, report)
        self._remove_fragments(snapshot, boundaries)
        self._remove_log(boundaries)
        self._for_each(self._store.discard_unfinished, self._abandoned())
        return report

    def _without_table(self) -> str:
        """Nothing is removed where no log is: there is no fence in it, so a first write that sleeps could
        still commit what was removed."""
        url = self._store.url
        objects = sum(base_version(info.key) is not None for info in self._store.list(DATA_PREFIX))
        uploads = sum(1 for _ in self._store.list_unfinished())
        if not objects and not uploads:
            return f"{url}: no table here; `compactor ingest` creates one"
        return (
            f"{url}: no table here, but {objects:,} objects under {DATA_PREFIX} and {uploads:,} unfinished "
            "uploads of a first write that runs or died; nothing was removed: write the table, whose vacuum "
            "removes them, or, if there is to be none and nobody writes, remove them by hand: see "
            "docs/operations.md"
        )

    def _move_boundaries(self, snapshot: Snapshot) -> Changes:
        boundaries = self._boundaries(snapshot)
        return Changes(Operation.VACUUM, fence=boundaries.fence, oldest=boundaries.oldest)

    def _boundaries(self, snapshot: Snapshot) -> _Boundaries:
        def version_ago(seconds: float) -> int:
            return self._log.history.newest_not_after(
                self._now_ms - round(seconds * 1000), snapshot
            )

        grace, retain = self._settings.grace_seconds, self._settings.retain_seconds
        oldest = max(snapshot.oldest, version_ago(retain))
        # An attempt based on a version before this one began before it was committed. Without grace
        # that is the vacuum's own: whatever runs now is taken for dead.
        fence = version_ago(grace) if grace else snapshot.version + 1
        return _Boundaries(
            fence=max(snapshot.fence, fence),
            oldest=oldest,
            log=min(oldest, version_ago(max(grace, retain, LOG_GRACE_SECONDS))),
        )

    def _survey(self, snapshot: Snapshot, boundaries: _Boundaries, report: VacuumReport) -> None:
        needed = self._needed(snapshot, boundaries)
        for info, base in self._unneeded(needed):
            if base < boundaries.fence:
                report.fragments += 1
                report.fragment_bytes += info.size_bytes
            else:
                report.waiting_fragments += 1
        report.log_files = sum(1 for _ in self._old_log_files(boundaries))
        report.checkpoints = sum(1 for _ in self._old_checkpoints(boundaries))
        report.unfinished_uploads = sum(1 for _ in self._abandoned())

    def _needed(self, snapshot: Snapshot, boundaries: _Boundaries) -> set[str]:
        """Keys of all fragments, their deletions and skip indexes, that were live in a retained version."""
        history = self._log.history
        oldest = history.at(boundaries.oldest, snapshot)
        entries = [*oldest.fragments.all(), *snapshot.fragments.all()]
        for version in history.versions_after(oldest, snapshot.version):
            entries += version.changes.adds
        needed = {entry.key for entry in entries}
        needed.update(entry.deletion.key for entry in entries if entry.deletion)
        needed.update(entry.skip_index.key for entry in entries if entry.skip_index)
        return needed

    def _unneeded(self, needed: set[str]) -> Iterator[tuple[ObjectInfo, int]]:
        """With the version that the attempt was based on. Objects with other names are not ours."""
        for info in self._store.list(DATA_PREFIX):
            base = base_version(info.key)
            if base is not None and info.key not in needed:
                yield info, base

    def _remove_fragments(self, snapshot: Snapshot, boundaries: _Boundaries) -> None:
        needed = self._needed(snapshot, boundaries)
        self._for_each(
            self._store.delete,
            (info.key for info, base in self._unneeded(needed) if base < boundaries.fence),
        )

    def _remove_log(self, boundaries: _Boundaries) -> None:
        """Log files before the newest checkpoint that is old enough; then older checkpoints.

        Ascending, one after the other: a commit on a version that has gone finds its predecessor missing.
        """
        for key in list(self._old_log_files(boundaries)):
            self._store.delete(key)
        self._for_each(self._store.delete, self._old_checkpoints(boundaries))

    def _old_log_files(self, boundaries: _Boundaries) -> Iterator[str]:
        checkpoint = self._kept_checkpoint(boundaries)
        for info in self._store.list(LOG_PREFIX):
            version = parse_version(info.key)
            if version is not None:
                if version >= checkpoint:
                    return
                yield info.key

    def _old_checkpoints(self, boundaries: _Boundaries) -> Iterator[str]:
        checkpoint = self._kept_checkpoint(boundaries)
        for info in self._store.list(CHECKPOINT_PREFIX):
            version = parse_checkpoint(info.key)
            if version is not None and version < checkpoint:
                yield info.key

    def _kept_checkpoint(self, boundaries: _Boundaries) -> int:
        return self._log.history.checkpoint_not_after(boundaries.log) or 0

    def _abandoned(self) -> Iterator[UnfinishedUpload]:
        begun_before = self._now_ms / 1000 - self._settings.grace_seconds
        for upload in self._store.list_unfinished():
            if upload.started_unix_seconds <= begun_before:
                yield upload

    def _for_each(self, delete: Callable[[Any], None], items: Iterable[Any]) -> None:
        if self._settings.deleters == 1:
            for item in items:
                delete(item)
            return
        with ThreadPoolExecutor(self._settings.deleters) as deleters:
            for _ in deleters.map(delete, items):
                pass


@dataclass(frozen=True, slots=True)
class _Boundaries:
    fence: int
    oldest: int
    log: int
    """Log files up to the newest checkpoint at or before this version may go."""
