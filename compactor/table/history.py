"""Reading the log: the newest snapshot, any earlier one, versions by time. Writes nothing.

Opening a table takes one listing and one GET for the newest checkpoint, and the log after it: however
long the history is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from compactor.errors import DataError, ObjectNotFoundError, VersionNotFoundError
from compactor.names import (
    CHECKPOINT_PREFIX,
    LAST_VERSION,
    LOG_PREFIX,
    checkpoint_key,
    parse_checkpoint,
    parse_version,
    version_key,
)
from compactor.stores.base import Store
from compactor.table.checkpoint import read_checkpoint
from compactor.table.snapshot import Snapshot, replay
from compactor.table.version import Version

_MAX_TRIES: Final = 5
_VERSIONS_AT_A_TIME: Final = 64
"""Read ahead where one after the other is looked at."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A snapshot and what reading it took."""

    snapshot: Snapshot
    checkpoint: int | None = None
    """The checkpoint it began with; None if it went on from a snapshot known before."""
    changed: int = 0
    """Fragments added and removed by the versions read after that."""
    is_patched: bool = False
    """Whether checkpoints were there that could not be read."""


class _GapError(Exception):
    """Log files that should follow are not there: a vacuum removed them, or somebody else did."""


class History:
    """Versions and checkpoints of one table."""

    def __init__(self, store: Store, readers: int = 16) -> None:
        """readers: requests at a time; 1 starts no threads."""
        self._store = store
        self._readers = readers

    def read(self, number: int) -> Version:
        """One version. Raises `ObjectNotFoundError`, `DataError`."""
        key = version_key(number)
        version = Version.from_bytes(self._store.read(key), name=f"{self._store.url}/{key}")
        if version.number != number:
            raise DataError(f"{self._store.url}/{key}: the log file is of version {version.number}")
        return version

    def newest(self, known: Snapshot) -> Loaded:
        """The newest snapshot, by what follows a known one; version 0 if there is no table.

        Raises `DataError` if the log is damaged.
        """
        for _ in range(_MAX_TRIES):
            start = Loaded(known) if known.version else self._from_checkpoint(None)
            try:
                return self._follow(start)
            except _GapError:
                # A vacuum has passed: what was removed, the newest checkpoint knows.
                known = Snapshot.empty()
        raise self._gap()

    def at(self, number: int, newest: Snapshot) -> Snapshot:
        """The snapshot at an earlier version. Raises `VersionNotFoundError`, `DataError`."""
        if not newest.oldest <= number <= newest.version:
            which = number if number <= LAST_VERSION else "of so many digits"
            raise VersionNotFoundError(
                f"{self._store.url}: there is no version {which} to read; versions "
                f"{newest.oldest} to {newest.version} are kept"
            )
        for _ in range(_MAX_TRIES):
            start = self._from_checkpoint(number)
            versions = self.versions_after(start.snapshot, number)
            # From the beginning: who removed version 1 since needed a checkpoint, and left one.
            if start.snapshot.version or start.is_patched or not self._has_checkpoint_at(number):
                return replay(start.snapshot, versions)
        raise self._removed_meanwhile(0)

    def versions_after(self, start: Snapshot, last: int) -> list[Version]:
        """Those that follow a snapshot, up to `last`.

        Raises `DataError` if log files are damaged, or a vacuum has removed some.
        """
        try:
            versions = list(self._read_all(range(start.version + 1, last + 1)))
        except ObjectNotFoundError as error:
            raise DataError(f"{error}: the log file has gone") from error
        # Who begins with the first version finds it again: it would be the first to go.
        known = start if start.version or not versions else start.apply(versions[0])
        if versions and not self.still_has(known):
            raise self._removed_meanwhile(start.version)
        return versions

    def still_has(self, snapshot: Snapshot) -> bool:
        """Whether the log file of the snapshot's version is still the one it was made of.

        Log files go oldest first. So if it is, none after it has ever been removed, and none of them
        has been created anew by somebody who slept: all that was read after it is true.
        """
        if snapshot.version == 0:
            return not self.has_checkpoint()
        try:
            return self.read(snapshot.version).commit_id == snapshot.commit_id
        except ObjectNotFoundError:
            return False

    def newest_not_after(self, unix_ms: int, newest: Snapshot) -> int:
        """The last version committed at that time or before; 0 if the oldest kept is younger.

        A version is as old as the earliest stamp at or after it: no clock that was ahead makes it younger.
        Stamps ascend but where a clock was ahead, so bisecting reads few versions.
        """
        if unix_ms >= newest.committed_unix_ms:
            return newest.version
        low, high = newest.oldest - 1, newest.version
        if newest.ordered_from > newest.oldest:
            if self.read(newest.ordered_from).committed_unix_ms > unix_ms:
                return self._last_not_after(unix_ms, newest.oldest, newest.ordered_from - 1)
            low = newest.ordered_from
        while high - low > 1:
            middle = (low + high) // 2
            if self.read(middle).committed_unix_ms <= unix_ms:
                low = middle
            else:
                high = middle
        return low if low >= newest.oldest else 0

    def _last_not_after(self, unix_ms: int, first: int, last: int) -> int:
        """The last version of those whose stamp is that time or before; 0 if there is none."""
        for end in range(last, first - 1, -_VERSIONS_AT_A_TIME):
            start = max(first, end - _VERSIONS_AT_A_TIME + 1)
            for version in self._read_all(range(end, start - 1, -1)):
                if version.committed_unix_ms <= unix_ms:
                    return version.number
        return 0

    def has_checkpoint(self) -> bool:
        return next(self._checkpoints(None), None) is not None

    def checkpoint_not_after(self, number: int) -> int | None:
        """The version of the newest checkpoint at `number` or before."""
        return next(self._checkpoints(number), None)

    def _checkpoints(self, number: int | None) -> Iterator[int]:
        """Versions of the checkpoints, newest first, from `number` downwards."""
        start_after = None if number is None else checkpoint_key(number + 1)
        for info in self._store.list(CHECKPOINT_PREFIX, start_after=start_after):
            version = parse_checkpoint(info.key)
            if version is not None:
                yield version

    def _from_checkpoint(self, number: int | None) -> Loaded:
        """The newest checkpoint that can be read, else the beginning of the table."""
        is_patched = False
        for version in self._checkpoints(number):
            key = checkpoint_key(version)
            try:
                data = self._store.read(key)
                snapshot = read_checkpoint(data, name=f"{self._store.url}/{key}")
            except (DataError, ObjectNotFoundError):
                is_patched = True
                continue  # an older one and more of the log say the same
            return Loaded(snapshot, version)
        return Loaded(Snapshot.empty(), 0, is_patched=is_patched)

    def _follow(self, start: Loaded) -> Loaded:
        after = start.snapshot.version
        numbers: list[int] = []
        for info in self._store.list(LOG_PREFIX, start_after=version_key(after) if after else None):
            number = parse_version(info.key)
            if number is None:
                continue
            if number != after + len(numbers) + 1:
                raise _GapError
            numbers.append(number)
        changed = 0

        def counted() -> Iterator[Version]:
            nonlocal changed
            for version in self._read_all(numbers):
                changed += len(version.changes.adds) + len(version.changes.removes)
                yield version

        try:
            snapshot = replay(start.snapshot, counted())
        except ObjectNotFoundError as error:
            raise _GapError from error
        if numbers and not start.is_patched and not self.still_has(start.snapshot):
            raise _GapError
        return Loaded(snapshot, start.checkpoint, changed)

    def _has_checkpoint_at(self, number: int) -> bool:
        return self.checkpoint_not_after(number) is not None

    def _removed_meanwhile(self, version: int) -> DataError:
        return DataError(
            f"{self._store.url}: log files after version {version} were removed while they were read: "
            "try again"
        )

    def _gap(self) -> DataError:
        damaged = []
        for version in self._checkpoints(None):
            key = checkpoint_key(version)
            try:
                read_checkpoint(self._store.read(key), name=f"{self._store.url}/{key}")
            except DataError as error:
                damaged.append(str(error))
        missing = self._from_checkpoint(None).snapshot.version + 1
        listed = self._store.list(LOG_PREFIX, start_after=version_key(missing - 1))
        there = {parse_version(info.key) for info in listed}
        while missing in there:
            missing += 1
        return DataError(
            f"{self._store.url}/{version_key(missing)}: the log file is missing, later ones are there"
            + "".join(f"; {cause}" for cause in damaged)
            + ": restore the file from a backup"
        )

    def _read_all(self, numbers: Sequence[int]) -> Iterator[Version]:
        at_a_time = min(self._readers, len(numbers))
        if at_a_time <= 1:
            yield from map(self.read, numbers)
            return
        with ThreadPoolExecutor(at_a_time) as readers:
            yield from readers.map(self.read, numbers)
