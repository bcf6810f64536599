"""Removes what no retained version needs, safely beside attempts that still run.

Safety trusts no clock. First a version is committed that moves the *minimum base version*: attempts based on
earlier versions can't commit any more, however long they slept. Then what they left can't become live, and is
removed. Times only decide how far the minimum base version moves: not past attempts younger than the grace
period. They are the times at which the store received log files and fragments, not what writers said.

No single object can cause a removal. The log is first replayed from all its files, and compared with what
readers open and with the checkpoint that is to be its new beginning (`proof`). A table that has lost most of
its rows is left alone until the user says that this was meant.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from compactor.common.counts import counted
from compactor.common.plain_values import plain_dict
from compactor.common.setting_keys import ALLOW_SHRINKING
from compactor.errors import (
    CommitConflictError,
    DataError,
    ObjectNotFoundError,
    OvertakenError,
    TableError,
    TableNotFoundError,
)
from compactor.settings.properties import tuned
from compactor.settings.vacuum import VacuumSettings
from compactor.stores.base import ObjectInfo, UnfinishedUpload, create_own
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.lost_versions import check_no_version_lost
from compactor.table.object_names import (
    DATA_PREFIX,
    base_version,
    checkpoint_key,
    floor_key,
    is_written_in_parts,
    version_key,
)
from compactor.table.proof import Listing, Proof, is_same, list_log
from compactor.table.snapshot import Snapshot
from compactor.table.tags import Tag
from compactor.table.version import Changes, Operation, Version
from lsm_fragment.threads import ThreadPool

MAX_SHRINK_FRACTION: Final = 0.5
"""Share of a table's rows: if more than that were lost since, older versions stay until the user agrees."""
MAX_MERGED_SHRINK_FRACTION: Final = 0.95
"""The same share where compactions merge rows of one key, which removes most rows honestly."""
MIN_SHRINK_ROWS: Final = 1000
"""Tables with fewer rows may shrink freely."""
_MAX_TRIES: Final = 5
LOG_GRACE_SECONDS: Final = 3600
"""Keep log files younger than this, in seconds.

Log files are small, and removing one under a running commit makes its outcome unknown.
"""


class _ChangedError(Exception):
    """A version was tagged, or the table was told to keep others, after the log had been read."""


class VacuumReport(Struct, kw_only=True):
    """Counts of what was removed, or would be by a dry run."""

    version: int
    oldest_version: int
    """The first version from which on all can be read from now on."""
    tagged_versions: dict[str, int] = field(default_factory=dict)
    """Earlier versions that can be read by their tags."""
    fragments: int = 0
    fragment_bytes: int = 0
    log_files: int = 0
    checkpoints: int = 0
    unfinished_uploads: int = 0
    waiting_fragments: int = 0
    """Fragments that no version needs, younger than the grace period: their attempts may yet commit."""
    strays: int = 0
    """Log files that do not belong to the table; never removed."""
    damaged_checkpoints: int = 0
    """Checkpoints that can't be read or contradict the log, so that an older one was used."""
    dry_run: bool = False

    @property
    def is_empty(self) -> bool:
        removed = self.fragments + self.log_files + self.checkpoints + self.unfinished_uploads
        return removed == 0

    def to_json(self) -> dict[str, Any]:
        return plain_dict(self)


def vacuum(log: CommitLog, settings: VacuumSettings) -> VacuumReport:
    """Removes unreferenced fragments, log files, checkpoints and unfinished uploads.

    settings: what is not set explicitly is as the table's properties say. Two vacuums at once do no harm.
    Before it removes anything, raises `TableNotFoundError` without a log, `DataError` if the log is damaged
    or a checkpoint contradicts it, and `TableError` if most rows of the table would be gone for good. Raises
    `StoreError` where the store refuses; the next run removes the rest.
    """
    return _Vacuum(log, settings).run()


def _tagged_before(version: int, tags: Iterable[Tag]) -> dict[str, int]:
    """Returns the tags of versions before one, by name."""
    return {tag.name: tag.version for tag in tags if tag.version < version}


class _Vacuum:
    def __init__(self, log: CommitLog, settings: VacuumSettings) -> None:
        self._log = log
        self._store = log.store
        self._told = self._settings = settings
        self._now_ms = log.clock.now_unix_ms()

    def run(self) -> VacuumReport:
        for _ in range(_MAX_TRIES):
            with contextlib.suppress(_ChangedError):
                return self._run()
        raise CommitConflictError(
            f"{self._store.url}: tags or properties were set {_MAX_TRIES} times while the log was read; "
            "nothing was removed: run the vacuum again"
        )

    def _run(self) -> VacuumReport:
        settings = self._settings
        snapshot, proved = self._proved()
        report = self._survey(snapshot, proved)
        has_nothing_to_do = report.is_empty and not (report.waiting_fragments or proved.expired)
        if has_nothing_to_do and proved.beginning is None:
            # Without a commit the table keeps all versions that it has.
            report.oldest_version = snapshot.oldest
            report.tagged_versions = _tagged_before(report.oldest_version, snapshot.tags)
            return report
        if settings.dry_run:
            return report
        snapshot = self._log.commit(lambda latest: self._move_boundaries(latest, proved))
        # This is the store's own time: objects received within the grace period before it are young.
        created = self._store.head(version_key(snapshot.version)).modified_unix_seconds
        self._now_ms = min(self._now_ms, round(created * 1000))
        # From here on nothing before the minimum base version can become live; what became live before is
        # also needed.
        proved.boundaries = replace(
            proved.boundaries, min_base_version=snapshot.min_base_version, oldest=snapshot.oldest
        )
        proved.needed |= self._needed_since(proved, snapshot)
        if proved.beginning is not None and self._is_written(proved.beginning):
            proved.floor = proved.beginning.version
        # This survey, after the commit, is of what goes.
        report = self._survey(snapshot, proved)
        self._remove_fragments(proved)
        self._remove_log(proved)
        self._for_each(self._store.discard_unfinished, self._abandoned())
        return report

    def _without_table(self) -> str:
        """Returns why nothing is removed without a log.

        Without a log there is no minimum base version, so a first write that sleeps could still commit what
        was removed.
        """
        url = self._store.url
        objects = sum(base_version(info.key) is not None for info in self._store.list(DATA_PREFIX))
        uploads = sum(1 for _ in self._unfinished())
        if not objects and not uploads:
            return f"{url}: no table here; `compactor ingest` creates one"
        return (
            f"{url}: no table here, but {counted(objects, 'object')} under {DATA_PREFIX} and "
            f"{counted(uploads, 'unfinished upload')} of a first write that runs or died; nothing "
            "was removed: write the table, whose vacuum "
            "removes them, or, if there is to be none and nobody writes, remove them by hand: see "
            "docs/how-to/operations.md"
        )

    # --- what may go ---

    def _proved(self) -> tuple[Snapshot, _Proved]:
        for tries in range(_MAX_TRIES, 0, -1):
            listing = list_log(self._log.history)
            snapshot = self._log.refresh()
            if snapshot.version == 0:
                raise TableNotFoundError(self._without_table())
            self._settings = tuned(self._told, snapshot.properties)
            try:
                return snapshot, self._prove(snapshot, listing)
            except OvertakenError:
                if tries == 1:
                    raise
        raise AssertionError("tries")

    def _prove(self, snapshot: Snapshot, listing: Listing) -> _Proved:
        """Replays the log from all its files: one GET for each. Raises `DataError`, `TableError`."""
        proof = Proof(self._store, self._log.history, listing, snapshot)
        proof.check_whole()
        # The objects of a lost version are garbage to the log that is left.
        check_no_version_lost(self._store, self._log.history, snapshot)
        expired = self._expired_tags(snapshot)
        standing = {tag.version for tag in snapshot.tags if tag not in expired}
        read_on = [t.version for t in snapshot.tags if t.keeps_later and t not in expired]
        boundaries = self._boundaries(snapshot, listing, standing, read_on)
        said = proof.newest_checkpoint(boundaries.log)
        floor = listing.marks.floor if said is None else said.version
        rows = _RowCount({info.key for info in self._store.list(DATA_PREFIX)})
        start = proof.start()
        rows.add(start.fragments.all())
        peak = rows.total if start.version < boundaries.kept else 0
        needed: set[str] = set()

        def on_version(version: Version) -> None:
            nonlocal peak
            rows.remove(version.changes.removes)
            rows.add(version.changes.adds)
            if version.number < boundaries.kept:
                peak = max(peak, rows.total)
            elif version.number > boundaries.kept:
                needed.update(_objects_of(version.changes.adds), _memo_of(version.changes))

        is_allowed = self._settings.allow_shrinking
        beginning: Snapshot | None = None
        stops = [floor, max(floor, boundaries.log), boundaries.kept, *standing]
        for rebuilt in proof.rebuilt(stops, on_version, start):
            if said is not None and rebuilt.version == said.version:
                proof.check_checkpoint(said, rebuilt)
            proof.check_newest(rebuilt)
            if rebuilt.version == boundaries.kept or rebuilt.version in standing:
                needed |= _objects_of(rebuilt.fragments.all()) | _memo_of(rebuilt)
            if is_allowed and rebuilt.version == boundaries.log > floor:
                beginning = rebuilt
        merges = snapshot.table.rows.merges
        share = MAX_MERGED_SHRINK_FRACTION if merges else MAX_SHRINK_FRACTION
        has_shrunk = peak >= MIN_SHRINK_ROWS and rows.total < peak * (1 - share)
        if has_shrunk and not is_allowed:
            raise TableError(
                f"{self._store.url}: of {counted(peak, 'row')} of the versions that would go, "
                f"{counted(rows.total, 'is', 'are')} in the table now; nothing was removed. Look "
                "at it (`compactor inspect --version "
                f"{snapshot.oldest}`), and if this was meant, vacuum with ",
                ALLOW_SHRINKING,
            )
        needed |= _objects_of(snapshot.fragments.all()) | _memo_of(snapshot)
        return _Proved(
            snapshot=snapshot,
            listing=listing,
            boundaries=boundaries,
            floor=floor,
            needed=needed,
            expired=expired,
            beginning=beginning if has_shrunk else None,
        )

    def _expired_tags(self, snapshot: Snapshot) -> tuple[Tag, ...]:
        """Returns the tags to end.

        Raises `ClockError` if there are any by a clock that may be wrong.
        """
        now = self._log.lease_unix_ms()
        expired = tuple(tag for tag in snapshot.tags if tag.is_expired(now))
        if expired:
            self._log.check_expiry(snapshot)
        return expired

    def _is_written(self, snapshot: Snapshot) -> bool:
        """Writes the checkpoint of a proved snapshot. Returns whether it can now be read back intact."""
        try:
            return self._log.write_checkpoint(snapshot) and is_same(
                self._log.history.checkpoint(snapshot.version), snapshot
            )
        except (DataError, ObjectNotFoundError):
            return False  # another process has put a new one there: keep the log

    def _needed_since(self, proved: _Proved, snapshot: Snapshot) -> set[str]:
        """Returns what became live between the proof and the vacuum's own commit."""
        versions = self._log.history.versions_after(proved.snapshot, snapshot.version)
        memos = (_memo_of(version.changes) for version in versions)
        return _objects_of(e for version in versions for e in version.changes.adds).union(*memos)

    def _move_boundaries(self, snapshot: Snapshot, proved: _Proved) -> Changes:
        """Raises `_ChangedError` if what is to be kept changed since the proof: it was not looked up."""
        kept = proved.boundaries.kept
        if any(t.version < kept for t in snapshot.tags if t not in proved.snapshot.tags):
            raise _ChangedError
        if tuned(self._told, snapshot.properties) != self._settings:
            raise _ChangedError
        min_base_version, oldest = proved.boundaries.min_base_version, proved.boundaries.oldest
        if not self._settings.grace_seconds:
            min_base_version = snapshot.version + 1
        return Changes(
            operation=Operation.VACUUM,
            min_base_version=max(snapshot.min_base_version, min_base_version),
            oldest=max(snapshot.oldest, oldest),
            ended_tags=tuple(tag.name for tag in proved.expired if tag in snapshot.tags),
        )

    def _boundaries(
        self,
        snapshot: Snapshot,
        listing: Listing,
        tagged: Collection[int],
        read_on: Collection[int],
    ) -> _Boundaries:
        """tagged: versions that tags name. read_on: those from which on all versions are kept."""

        def version_ago(seconds: float) -> int:
            """Returns the last version that the store received that long ago; 0 if all are younger."""
            found = 0
            for number in range(listing.first, snapshot.version + 1):
                file = listing.files.get(number)
                if file is None or not self._is_older(file.modified_unix_seconds, seconds):
                    break
                found = number
            return found

        grace, retain = self._settings.grace_seconds, self._settings.retain_seconds
        kept = min(max(listing.first, version_ago(retain)), *read_on, snapshot.version)
        # An attempt based on a version before this one began before this one was committed. Without grace
        # that is the vacuum's own version: whatever runs now counts as dead.
        min_base_version = version_ago(grace) if grace else snapshot.version + 1
        return _Boundaries(
            min_base_version=max(snapshot.min_base_version, min_base_version),
            oldest=max(snapshot.oldest, kept),
            kept=kept,
            log=min(kept, version_ago(max(grace, retain, LOG_GRACE_SECONDS)), *tagged),
        )

    def _survey(self, snapshot: Snapshot, proved: _Proved) -> VacuumReport:
        report = VacuumReport(
            version=snapshot.version,
            oldest_version=proved.boundaries.oldest,
            tagged_versions=_tagged_before(
                proved.boundaries.oldest, [t for t in snapshot.tags if t not in proved.expired]
            ),
            dry_run=self._settings.dry_run,
        )
        for info, may_go in self._unneeded(proved):
            if may_go:
                report.fragments += 1
                report.fragment_bytes += info.size_bytes
            else:
                report.waiting_fragments += 1
        report.log_files = len(proved.old_log_files)
        report.checkpoints = len(proved.old_checkpoints)
        report.unfinished_uploads = sum(1 for _ in self._abandoned())
        report.strays = len(proved.listing.beyond(proved.snapshot.version))
        report.damaged_checkpoints = proved.damaged_checkpoints
        return report

    def _unneeded(self, proved: _Proved) -> Iterator[tuple[ObjectInfo, bool]]:
        """Yields the objects that no retained version needs, and whether each may go.

        It may if its attempt began before the minimum base version, and the store did not receive it just
        now. Objects with other names do not belong to the table.
        """
        grace = self._settings.grace_seconds
        for info in self._store.list(DATA_PREFIX):
            base = base_version(info.key)
            if base is not None and info.key not in proved.needed:
                is_old = not grace or self._is_older(info.modified_unix_seconds, grace)
                yield info, is_old and base < proved.boundaries.min_base_version

    # --- removing ---

    def _remove_fragments(self, proved: _Proved) -> None:
        self._for_each(
            self._store.delete, (info.key for info, may_go in self._unneeded(proved) if may_go)
        )

    def _remove_log(self, proved: _Proved) -> None:
        """Marks where the log begins now; then removes older checkpoints, log files, and older marks.

        Log files go in ascending order, one after the other: a commit on a version that has gone finds its
        predecessor missing.
        """
        if proved.floor > proved.listing.marks.floor:
            create_own(self._store, floor_key(proved.floor), b"")
        self._for_each(self._store.delete, map(checkpoint_key, proved.old_checkpoints))
        for number in proved.old_log_files:
            self._store.delete(version_key(number))
        old_floors = (floor for floor in proved.listing.marks.floors if floor < proved.floor)
        self._for_each(self._store.delete, map(floor_key, old_floors))

    def _abandoned(self) -> Iterator[UnfinishedUpload]:
        grace = self._settings.grace_seconds
        for upload in self._unfinished():
            if not grace or self._is_older(upload.started_unix_seconds, grace):
                yield upload

    def _is_older(self, unix_seconds: float, seconds: float) -> bool:
        return int(unix_seconds * 1000) <= self._now_ms - round(seconds * 1000)

    def _unfinished(self) -> Iterator[UnfinishedUpload]:
        """Yields uploads of this table: other programs, and tables further below, may also write there."""
        for upload in self._store.list_unfinished():
            if upload.key is None or is_written_in_parts(upload.key):
                yield upload

    def _for_each(self, delete: Callable[[Any], None], items: Iterable[Any]) -> None:
        if self._settings.deleters == 1:
            for item in items:
                delete(item)
            return
        with closing(ThreadPool(self._settings.deleters)) as deleters:
            deleters.each(delete, items)


def _objects_of(entries: Iterable[FragmentEntry]) -> set[str]:
    return {key for entry in entries for key in entry.objects}


def _memo_of(state: Snapshot | Changes) -> set[str]:
    return set() if state.memo is None else {state.memo}


class _RowCount:
    """A count of a version's live rows along the log, in fragments that have not been removed yet."""

    def __init__(self, there: set[str]) -> None:
        """there: keys of the objects that exist."""
        self._there = there
        self._rows: dict[str, int] = {}
        self.total = 0

    def add(self, entries: Iterable[FragmentEntry]) -> None:
        for entry in entries:
            if entry.key in self._there:
                self._rows[entry.key] = entry.live_rows
                self.total += entry.live_rows

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.total -= self._rows.pop(key, 0)


class _Boundaries(Struct, frozen=True):
    min_base_version: int
    oldest: int
    kept: int
    """The first version whose fragments stay.

    It depends on times alone, since any commit may say that versions are no longer kept.
    """
    log: int
    """Log files up to the newest checkpoint at or before this version may go; tags hold it back."""


class _Proved(Struct, kw_only=True):
    """The content of the log up to a snapshot, replayed from all its files."""

    snapshot: Snapshot
    listing: Listing
    boundaries: _Boundaries
    floor: int
    """The version whose checkpoint is the beginning of the log from now on; 0 stands for version 1."""
    needed: set[str]
    """Keys of all objects that were live in a retained version, or in one that a tag names."""
    expired: tuple[Tag, ...]
    """Tags that the vacuum's commit ends."""
    beginning: Snapshot | None = None
    """The new beginning of the log if the user agreed to the loss of most rows, so as not to ask again."""

    @property
    def old_log_files(self) -> list[int]:
        first = self.listing.first
        left_over = (number for number in self.listing.files if number < min(first, self.floor))
        # All of these exist, whatever the listing shows; one left out would vouch for those after it.
        return [*left_over, *range(first, self.floor)]

    @property
    def old_checkpoints(self) -> list[int]:
        return [version for version in self.listing.marks.checkpoints if version < self.floor]

    @property
    def damaged_checkpoints(self) -> int:
        """The number of checkpoints that were skipped."""
        log = self.boundaries.log
        return sum(self.floor < version <= log for version in self.listing.marks.checkpoints)
