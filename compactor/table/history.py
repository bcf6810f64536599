"""Reads the log: the newest snapshot, earlier ones, and versions by time. Writes nothing.

Opening a table takes one listing, one GET for the newest checkpoint, and the log after it, however long the
history is.

The log begins at version 1, or at its *floor*: the checkpoint that a vacuum has proved before it removed the
log files before it. From there the log is contiguous, and whatever is not connected with it does not belong
to the table:

- A checkpoint counts only if the log file of its version is there with the same commit id, and the log has no
  gap from an older mark (a checkpoint, the floor, version 1) up to it.
- A log file beyond a gap means one of two things. If it names the table's id, the files in the gap have been
  lost, and nothing is read or written before a person has looked. Otherwise it is a stray and is ignored.
- An object in the place of a version, connected with the log before it, has to be that version of the table.
  Anything else may have replaced the version, and rows with it, so nothing is read or written either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compactor.common.heap import set_up_heap
from compactor.errors import (
    DataError,
    ObjectNotFoundError,
    OvertakenError,
    PermissionDeniedError,
    StoreError,
    StoreUnreachableError,
    TableError,
    VersionNotFoundError,
)
from compactor.stores.base import ObjectInfo, ReadOnlyStore
from compactor.table.checkpoint import read_checkpoint
from compactor.table.object_names import (
    ASIDE_PREFIX,
    CHECKPOINT_PREFIX,
    LAST_VERSION,
    LOG_PREFIX,
    checkpoint_key,
    parse_checkpoint,
    parse_floor,
    parse_given_up,
    parse_version,
    version_key,
)
from compactor.table.snapshot import Snapshot, replay
from compactor.table.version import SEE_REPAIR, Version
from lsm_fragment.names import names_text
from lsm_fragment.threads import ThreadPool

_MAX_TRIES: Final = 5
_VERSIONS_AT_A_TIME: Final = 64
"""Versions that are read ahead where they are looked at one after the other."""
_PROVED_VERSIONS: Final = 900
"""Number of connected log files that prove the checkpoint after them: mostly one page of a listing."""
MAX_LOST_VERSIONS: Final = 1 << 20
"""A log file further beyond a gap proves no loss: checkpoints in between would be there."""
_READ_AHEAD: Final = 1024
"""Versions that are read before the first of them is used: their sum bounds memory."""
_RECENT: Final = 2
_MAX_RECENT_BYTES: Final = 64 << 10
"""The largest log file whose text is kept."""


class LoadedSnapshot(Struct, frozen=True):
    """A snapshot, and what reading it took."""

    snapshot: Snapshot
    checkpoint: int | None = None
    """The checkpoint that it began with; None if it went on from a snapshot known before."""
    changed: int = 0
    """Fragments added and removed by the versions read after that."""
    etag: str = ""
    """Of the log file of the snapshot's version; empty if it was not listed."""


class Marks(Struct, frozen=True):
    """The versions that names under `_checkpoint/` name, newest first."""

    checkpoints: tuple[int, ...] = ()
    floors: tuple[int, ...] = ()

    @property
    def floor(self) -> int:
        """The first version of the log; 0 if no vacuum has removed any, so that it begins with version 1."""
        return next((floor for floor in self.floors if floor in self.checkpoints), 0)


class _LogFiles(Struct, frozen=True):
    """The log files from a version on, ascending."""

    first: int
    found: Sequence[tuple[int, str]]
    """Their numbers and ETags."""

    @property
    def end(self) -> int:
        """The last one that is connected with the first; first - 1 if the first is not there."""
        return self.first + self._connected() - 1

    @property
    def beyond(self) -> Sequence[tuple[int, str]]:
        """The log files after the first gap."""
        return self.found[self._connected() :]

    def _connected(self) -> int:
        numbers = enumerate((number for number, _ in self.found), self.first)
        gaps = (number - self.first for number, there in numbers if there != number)
        return next(gaps, len(self.found))


class _ForeignError(DataError):
    """An object in the place of a version is another version, or another table's."""


_NONE_LISTED: Final = _LogFiles(LAST_VERSION + 1, ())


class _GapError(Exception):
    """Versions are missing or replaced: by a vacuum, by a new table, or they are lost."""

    def __init__(self, lost: DataError | TableError | StoreError) -> None:
        """lost: is the error to raise if it stays like that."""
        super().__init__()
        self.lost = lost


class History:
    """The versions and checkpoints of one table."""

    def __init__(self, store: ReadOnlyStore, readers: int = 16) -> None:
        """readers: requests at a time; 1 starts no threads."""
        self._store = store
        self._readers = readers
        self._strays: set[tuple[int, str]] = set()
        """Numbers and ETags of log files beyond a gap that were read and belong to another table."""
        self._seen = (0, "")
        """The newest version that was read, and the ETag of its log file; another one is another table's."""
        self._recent: tuple[tuple[bytes, Version], ...] = ()
        """The log files last written or read, and what they say: a commit reads its own and one before."""

    def read(self, number: int, table_id: str | None = None) -> Version:
        """Returns one version. table_id: the table's; None if it is not known.

        Raises `ObjectNotFoundError`, and `DataError` for an object that is damaged or no such version.
        """
        [version] = self._read_own([number], table_id)
        return version

    def newest(self, known: Snapshot) -> LoadedSnapshot:
        """Returns the newest snapshot, by what follows a known one; version 0 if there is no table.

        Where the table was deleted and made anew, that is the new one's. Raises `DataError` if the log is
        damaged, or has lost versions that were known.
        """
        start = known
        for _ in range(_MAX_TRIES):
            try:
                loaded = self._follow(start) if start.version else self._open()
            except _GapError as gap:
                # A vacuum may have passed: a newer checkpoint covers what it removed.
                start, lost = Snapshot.empty(), gap.lost
                continue
            newest = loaded.snapshot
            is_behind = newest.table_id == known.table_id and newest.version < known.version
            if is_behind and self.given_up() < known.version:
                raise DataError(
                    f"{self._store.url}/{version_key(known.version)}: this version was read before, and "
                    "now the log ends before it: restore its file from a backup, or give it up by "
                    "`compactor repair --end-at`"
                )
            self._seen = newest.version, loaded.etag
            return loaded
        raise lost

    def at(self, number: int, newest: Snapshot) -> Snapshot:
        """Returns the snapshot at an earlier version.

        Raises `VersionNotFoundError`, `OvertakenError`, `DataError`.
        """
        self.check_kept(number, newest)
        for _ in range(_MAX_TRIES):
            snapshot = self._at(number)
            if snapshot is not None:
                return snapshot
        raise self._removed_meanwhile(0)

    def check_kept(self, number: int, newest: Snapshot) -> None:
        """Raises `VersionNotFoundError` for a version that is no longer kept, or never was."""
        if not newest.keeps(number):
            which = number if number <= LAST_VERSION else "with so large a number"
            older = sorted(number for number in newest.tagged if number < newest.oldest)
            tagged = f", and {numbers_text(older)}, which tags name" if older else ""
            gone = ", since a vacuum has removed it" if 0 < number < newest.oldest else ""
            raise VersionNotFoundError(
                f"{self._store.url}: there is no version {which} to read{gone}; versions "
                f"{newest.oldest} to {newest.version} are kept{tagged}"
            )

    def tagged(self, name: str, newest: Snapshot) -> int:
        """Returns the version that a tag names. Raises `VersionNotFoundError` if there is no such tag."""
        tag = newest.tag(name)
        if tag is None:
            known = names_text([tag.name for tag in newest.tags]) or "none"
            raise VersionNotFoundError(f"{self._store.url}: no tag {name!r}; tags are: {known}")
        return tag.version

    def versions_after(self, start: Snapshot, last: int) -> list[Version]:
        """Returns the versions that follow a snapshot, up to `last`.

        Raises `DataError` if log files are damaged or lost, `OvertakenError` if a vacuum has removed some.
        """
        versions = list(self.each_after(start, last))
        # Without a start, the first version takes its place: it would be the first to be removed.
        known = start if start.version or not versions else start.apply(versions[0])
        if versions and not self.still_has(known):
            raise self._removed_meanwhile(start.version)
        return versions

    def each_after(self, start: Snapshot, last: int) -> Iterator[Version]:
        """Yields the versions after a snapshot, up to `last`, one after the other.

        Callers that rely on them ask `still_has` afterwards. Raises what `versions_after` raises.
        """
        try:
            yield from self._read_after(start, last)
        except ObjectNotFoundError as error:
            if start.version and self.still_has(start):
                raise DataError(
                    f"{error}: the log file is lost; restore it from a backup"
                ) from error
            raise self._removed_meanwhile(start.version) from error

    def still_has(self, snapshot: Snapshot) -> bool:
        """Says whether the log file of the snapshot's version is still the one it was made of.

        Log files are removed oldest first. So if it is, none after it has ever been removed, and none of them
        has been created again by a process that slept: all that was read after it is true.
        """
        if snapshot.version == 0:
            return not self.marks().floor
        try:
            version = self.read(snapshot.version)
        except ObjectNotFoundError:
            return False
        return (version.commit_id, version.table_id) == (snapshot.commit_id, snapshot.table_id)

    def is_followed(self, before: Snapshot) -> bool:
        """Says whether a version just created after `before` is the first file of its number.

        The first version of a table is, if the table has no checkpoint and no floor: with one, the version
        may have existed before and been removed. A vacuum that runs meanwhile moves the floor, but always
        leaves a checkpoint.
        """
        if before.version:
            return self.still_has(before)
        marks = self.marks()
        return not marks.checkpoints and not marks.floors

    def newest_not_after(self, unix_ms: int, newest: Snapshot) -> int:
        """Returns the last version committed at that time or before; 0 if the oldest kept is younger.

        A version is as old as the earliest stamp at or after it, so a clock that was ahead makes none
        younger. Stamps ascend except where a clock was ahead, so bisecting reads few versions.
        """
        if unix_ms >= newest.committed_unix_ms:
            return newest.version
        low, high = newest.oldest - 1, newest.version
        if newest.ordered_from > newest.oldest:
            if self.read(newest.ordered_from, newest.table_id).committed_unix_ms > unix_ms:
                return self._last_not_after(unix_ms, newest)
            low = newest.ordered_from
        while high - low > 1:
            middle = (low + high) // 2
            if self.read(middle, newest.table_id).committed_unix_ms <= unix_ms:
                low = middle
            else:
                high = middle
        return low if low >= newest.oldest else 0

    def _last_not_after(self, unix_ms: int, newest: Snapshot) -> int:
        """Returns the last version before `ordered_from` with that time or before; 0 if there is none."""
        first = newest.oldest
        for end in range(newest.ordered_from - 1, first - 1, -_VERSIONS_AT_A_TIME):
            start = max(first, end - _VERSIONS_AT_A_TIME + 1)
            for version in self._read_own(range(end, start - 1, -1), newest.table_id):
                if version.committed_unix_ms <= unix_ms:
                    return version.number
        return 0

    def given_up(self) -> int:
        """Returns the last version that a repair has given up; 0 if there is none."""
        names = (info.key for info in self._store.list(ASIDE_PREFIX))
        return max((parse_given_up(name) or 0 for name in names), default=0)

    def marks(self) -> Marks:
        """Lists the checkpoints and floors."""
        checkpoints, floors = [], []
        for info in self._store.list(CHECKPOINT_PREFIX):
            if (version := parse_checkpoint(info.key)) is not None:
                checkpoints.append(version)
            elif (version := parse_floor(info.key)) is not None:
                floors.append(version)
        return Marks(tuple(checkpoints), tuple(floors))

    def log_files(self, first: int = 0) -> Iterator[tuple[int, ObjectInfo]]:
        """Lists the log files from a version on, ascending."""
        start_after = version_key(first - 1) if first > 0 else None
        for info in self._store.list(LOG_PREFIX, start_after=start_after):
            number = parse_version(info.key)
            if number is not None:
                yield number, info

    def checkpoint(self, version: int) -> Snapshot:
        """Reads a checkpoint.

        Raises `ObjectNotFoundError`, and `DataError` if it is damaged, of another version than its name, or
        withheld by the store: archived, or encrypted with another owner's key.
        """
        key = checkpoint_key(version)
        name = f"{self._store.url}/{key}"
        try:
            data = self._store.read(key)
        except (ObjectNotFoundError, PermissionDeniedError, StoreUnreachableError):
            raise
        except StoreError as error:
            raise DataError(str(error)) from error
        snapshot = read_checkpoint(data, name=name)
        if snapshot.version != version:
            raise DataError(f"{name}: the checkpoint is of version {snapshot.version}")
        return snapshot

    # --- opening ---

    def _open(self) -> LoadedSnapshot:
        marks = self.marks()
        bottom = max(1, marks.floor)
        checkpoints = [version for version in marks.checkpoints if version >= bottom]
        files, damaged = _NONE_LISTED, list[DataError]()
        for place, version in enumerate(checkpoints):
            files = self._files_from(
                _first_to_list(version, checkpoints[place + 1 :], bottom), files
            )
            if files.end >= version:
                loaded = self._from_checkpoint(version, files, damaged)
                if loaded is not None:
                    return loaded
            # This checkpoint does not count: an older one and more of the log say the same.
        files = self._files_from(bottom, files)
        if marks.floor or (files.end == 0 and (files.beyond or marks.checkpoints)):
            if files.end >= bottom:
                raise _GapError(self._unreadable(damaged))
            later = files.beyond[0][0] if files.beyond else None
            raise _GapError(self._lost(bottom - 1, later, damaged))
        return self._from_the_beginning(files, damaged)

    def _from_checkpoint(
        self, version: int, files: _LogFiles, damaged: list[DataError]
    ) -> LoadedSnapshot | None:
        """Returns None if the checkpoint does not count."""
        try:
            start = self.checkpoint(version)
        except ObjectNotFoundError:
            return None
        except DataError as error:
            damaged.append(error)
            return None
        loaded = self._followed(start, files, damaged)
        if loaded is None:
            key = checkpoint_key(version)
            damaged.append(
                DataError(f"{self._store.url}/{key}: the log has another version {version}")
            )
            return None
        return replace(loaded, checkpoint=version)

    def _from_the_beginning(self, files: _LogFiles, damaged: list[DataError]) -> LoadedSnapshot:
        loaded = self._followed(Snapshot.empty(), files, damaged)
        if loaded is None:
            raise _GapError(self._removed_meanwhile(0))
        return replace(loaded, checkpoint=0)

    def _follow(self, known: Snapshot) -> LoadedSnapshot:
        listed = self._files_from(known.version)
        if listed.end < known.version:  # removed, though the newest version never is
            raise _GapError(self._removed_meanwhile(known.version))
        etag = listed.found[0][1]
        if self._seen[0] == known.version and self._seen[1] not in ("", etag):
            raise _GapError(self._removed_meanwhile(known.version))
        files = _LogFiles(known.version + 1, listed.found[1:])
        if files.end == known.version and self._strays.issuperset(files.beyond):
            return LoadedSnapshot(known, etag=etag)
        loaded = self._followed(known, files, [])
        if loaded is None:
            raise _GapError(self._removed_meanwhile(known.version))
        return loaded

    def _files_from(self, first: int, later: _LogFiles = _NONE_LISTED) -> _LogFiles:
        """Lists the log files from a version on, except those that are listed already."""
        found = []
        for number, info in self.log_files(first):
            if number >= later.first:
                break
            found.append((number, info.etag))
        return _LogFiles(first, (*found, *later.found))

    def _followed(
        self, start: Snapshot, files: _LogFiles, damaged: list[DataError]
    ) -> LoadedSnapshot | None:
        """Returns the snapshot that the log files make after `start`; None if `start` is not the log's.

        Raises `_GapError` if versions are lost or replaced.
        """
        changed = 0

        def counted() -> Iterator[Version]:
            nonlocal changed
            for version in self._read_after(start, files.end):
                changed += len(version.changes.adds) + len(version.changes.removes)
                yield version

        try:
            snapshot = replay(start, counted())
            self._check_nothing_lost(snapshot, files.beyond, damaged)
        except ObjectNotFoundError as error:
            raise _GapError(self._removed_meanwhile(start.version)) from error
        except DataError as error:
            # After a start that is not the log's, whole versions are foreign or contradict one another.
            if not self.still_has(start):
                return None
            if isinstance(error, _ForeignError):
                raise _GapError(DataError(str(error))) from error
            raise
        if (start.version or files.end) and not self.still_has(start):
            return None
        self._strays.update(files.beyond)
        etag = dict(files.found).get(snapshot.version, "")
        return LoadedSnapshot(snapshot, changed=changed, etag=etag)

    def _check_nothing_lost(
        self, snapshot: Snapshot, beyond: Sequence[tuple[int, str]], damaged: list[DataError]
    ) -> None:
        end = snapshot.version
        for place, (number, etag) in enumerate(beyond):
            if place and number - end > MAX_LOST_VERSIONS:
                return
            if (number, etag) in self._strays:
                continue
            # A copy of an earlier version proves nothing, and one far beyond was never committed.
            if end < self.own(number, snapshot.table_id) <= end + MAX_LOST_VERSIONS:
                raise _GapError(self._lost(end, number, damaged))

    def own(self, number: int, table_id: str) -> int:
        """Returns which version of the table a log file holds by its own content: one that was moved holds
        another than its place says. 0 for a file of another table, or a damaged one."""
        try:
            version = self.read_any(number)
        except (DataError, ObjectNotFoundError):
            return 0
        return version.number if version.table_id == table_id else 0

    def _lost(self, end: int, later: int | None, damaged: list[DataError]) -> DataError:
        there = f", {version_key(later)} is there" if later else ""
        return DataError(
            f"{self._store.url}/{version_key(end + 1)}: the log file is missing{there}"
            + "".join(f"; {cause}" for cause in damaged)
            + f": restore the file from a backup{SEE_REPAIR}"
        )

    def _unreadable(self, damaged: list[DataError]) -> DataError | StoreError:
        refusals = [e.__cause__ for e in damaged if isinstance(e.__cause__, StoreError)]
        if refusals and len(refusals) == len(damaged):
            return refusals[0]  # they are refused, but not known to be damaged
        return DataError(
            f"{self._store.url}: the log before its checkpoints was vacuumed, and none of them can be read; "
            + "; ".join(map(str, damaged))
            + ": restore one from a backup"
        )

    # --- earlier versions ---

    def _at(self, number: int) -> Snapshot | None:
        """Returns the snapshot; None if a vacuum has removed log files meanwhile."""
        marks = self.marks()
        for version in marks.checkpoints:
            if not marks.floor <= version <= number:
                continue
            try:
                start = self.checkpoint(version)
            except (DataError, ObjectNotFoundError):
                continue  # an older one and more of the log say the same
            snapshot = self._replayed(start, number)
            if snapshot is not None:
                return snapshot
        return None if marks.floor else self._replayed(Snapshot.empty(), number)

    def _replayed(self, start: Snapshot, number: int) -> Snapshot | None:
        try:
            snapshot = replay(start, self._read_after(start, number))
        except ObjectNotFoundError:
            return None
        except DataError:
            if self.still_has(start):
                raise
            return None
        return snapshot if self.still_has(start) else None

    def _removed_meanwhile(self, version: int) -> OvertakenError:
        return OvertakenError(
            f"{self._store.url}: a vacuum removed log files after version {version} while they were read: "
            "try again"
        )

    def _read_after(self, start: Snapshot, last: int) -> Iterator[Version]:
        """Yields the versions after a snapshot, up to `last`. Raises what `_read_own` raises."""
        table_id = start.table_id if start.version else None
        return self._read_own(range(start.version + 1, last + 1), table_id)

    def _read_own(self, numbers: Sequence[int], table_id: str | None) -> Iterator[Version]:
        """Yields versions of the table. table_id: the table's; None if the first of them is to tell it.

        Raises `ObjectNotFoundError`, and `DataError` for an object that is damaged or no such version.
        """
        for number, version in zip(numbers, self._read_files(numbers), strict=True):
            table_id = version.table_id if table_id is None else table_id
            if version.number != number or version.table_id != table_id:
                of = "this" if version.table_id == table_id else "another"
                raise _ForeignError(
                    f"{self._store.url}/{version_key(number)}: version {number} of the table belongs here, "
                    f"but this is version {version.number} of {of} table: restore the object from a backup "
                    f"or the bucket's versions{SEE_REPAIR}"
                )
            yield version

    def read_any(self, number: int) -> Version:
        """Reads a log file, whatever version it holds. Raises what `read` raises."""
        key = version_key(number)
        data = self._store.read(key)
        known = next((version for known, version in self._recent if known == data), None)
        if known is not None:
            return known
        version = Version.from_bytes(data, name=f"{self._store.url}/{key}")
        self.remember(data, version)
        return version

    def remember(self, data: bytes, version: Version) -> None:
        """Keeps what a log file says, so that it is not parsed again when it is read again."""
        if len(data) <= _MAX_RECENT_BYTES:
            self._recent = ((data, version), *self._recent[: _RECENT - 1])

    def _read_files(self, numbers: Sequence[int]) -> Iterator[Version]:
        at_a_time = min(self._readers, len(numbers))
        if at_a_time <= 1:
            yield from map(self.read_any, numbers)
            return
        set_up_heap()
        with closing(ThreadPool(at_a_time)) as readers:
            for start in range(0, len(numbers), _READ_AHEAD):
                yield from readers.each(self.read_any, numbers[start : start + _READ_AHEAD])


def numbers_text(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _first_to_list(version: int, older: Sequence[int], bottom: int) -> int:
    """Returns the mark from which the log must have no gap for the checkpoint of a version to count.

    older: the marks before it, newest first. An attacker who forges a checkpoint may forge marks beside it,
    too, but cannot connect them by log files with the table's own in a few requests.
    """
    return next((mark for mark in older if version - mark >= _PROVED_VERSIONS), bottom)
