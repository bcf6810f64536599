"""Proves the log before anything is removed by it: replays all its files, and compares the results.

The proof covers: from the floor to the newest version no log file is missing, and each follows the one
before; their sum is the snapshot that readers open; a checkpoint equals the log before it. Each log file is
read once, by one GET. In memory are a thousand versions at a time, besides the snapshots compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import DataError, ObjectNotFoundError, OvertakenError
from compactor.stores.base import ObjectInfo, ReadOnlyStore
from compactor.table.checkpoint import checkpoint_bytes
from compactor.table.history import History, Marks
from compactor.table.object_names import checkpoint_key, version_key
from compactor.table.snapshot import Snapshot, replay
from compactor.table.version import SEE_REPAIR, Version


class Listing(Struct, frozen=True):
    """The objects of a log, by name."""

    marks: Marks
    files: dict[int, ObjectInfo]
    """Log files by number, ascending."""

    @property
    def first(self) -> int:
        """The version that the log begins with."""
        return max(1, self.marks.floor)

    def beyond(self, end: int) -> list[int]:
        """Returns the log files after a version; those listed before that version was read are strays."""
        return [number for number in self.files if number > end]


def list_log(history: History) -> Listing:
    """Lists checkpoints, floors and log files."""
    return Listing(history.marks(), dict(history.log_files()))


class Proof:
    """The proof of one table's log, up to a snapshot that was read."""

    def __init__(
        self, store: ReadOnlyStore, history: History, listing: Listing, newest: Snapshot
    ) -> None:
        """listing: is from before the newest snapshot was read."""
        self._store = store
        self._history = history
        self._newest = newest
        self.listing = listing

    def check_whole(self) -> None:
        """Checks that no log file is missing from the floor on. Raises `DataError`, `OvertakenError`."""
        files = self.listing.files
        last = max((number for number in files if number <= self._newest.version), default=0)
        for number in range(self.listing.first, last + 1):
            if number not in files and not self._is_there(number):
                self._check_not_overtaken()
                raise DataError(
                    f"{self._store.url}/{version_key(number)}: the log file is missing; restore it from a "
                    f"backup{SEE_REPAIR}"
                )

    def _is_there(self, number: int) -> bool:
        """Says whether a log file exists that the listing lacks.

        A folder that is listed while files are created may show a later file and not an earlier one.
        """
        try:
            self._history.read_any(number)
        except ObjectNotFoundError:
            return False
        except DataError:
            pass  # the read of the whole log reports it
        return True

    def start(self) -> Snapshot:
        """Returns the snapshot that the log begins with. Raises `DataError`, `OvertakenError`."""
        floor = self.listing.marks.floor
        if floor == 0:
            return Snapshot.empty()
        try:
            return self._history.checkpoint(floor)
        except ObjectNotFoundError as error:
            raise self._overtaken() from error
        except DataError as error:
            raise DataError(
                f"{error}; the log begins with it, so nothing of the log can be proved: `compactor repair` "
                "shows whether it can begin with a newer one"
            ) from error

    def _overtaken(self) -> OvertakenError:
        return OvertakenError(f"{self._store.url}: a vacuum removed log files while they were read")

    def newest_checkpoint(self, last: int) -> Snapshot | None:
        """Returns the newest valid checkpoint after the floor and up to `last`; None if there is none.

        It is valid if it can be read and the log has the version that it names.
        """
        for version in self.listing.marks.checkpoints:
            if self.listing.first < version <= last:
                try:
                    return self.checkpoint(version)
                except (DataError, ObjectNotFoundError):
                    continue
        return None

    def checkpoint(self, version: int) -> Snapshot:
        """Reads a checkpoint. Raises `ObjectNotFoundError`; `DataError` if damaged or not the log's."""
        snapshot = self._history.checkpoint(version)
        if version > self._newest.version or not self._history.still_has(snapshot):
            raise DataError(
                f"{self._store.url}/{checkpoint_key(version)}: the log has no such version {version}"
            )
        return snapshot

    def rebuilt(
        self,
        stops: Sequence[int],
        on_version: Callable[[Version], None] = lambda _: None,
        start: Snapshot | None = None,
    ) -> Iterator[Snapshot]:
        """Replays the log, and yields the snapshots at these versions, ascending, and at the newest.

        start: replaces the log's own beginning.
        Raises `DataError` if the log is damaged, `OvertakenError` if a vacuum removes log files meanwhile.
        """
        snapshot = self.start() if start is None else start
        try:
            for stop in sorted({*stops, self._newest.version}):
                if stop > snapshot.version:
                    snapshot = replay(snapshot, self._told(snapshot, stop, on_version))
                yield snapshot
            self._check_not_overtaken()
        except DataError:
            # A process that slept may have created again what a vacuum has removed.
            self._check_not_overtaken()
            raise

    def _check_not_overtaken(self) -> None:
        """Raises `OvertakenError` if the floor has moved: a vacuum moves it before it removes log files."""
        if self._history.marks().floor != self.listing.marks.floor:
            raise self._overtaken()

    def _told(
        self, after: Snapshot, last: int, on_version: Callable[[Version], None]
    ) -> Iterator[Version]:
        for version in self._history.each_after(after, last):
            on_version(version)
            yield version

    def check_newest(self, rebuilt: Snapshot) -> None:
        """Raises `DataError` unless readers open what the log says."""
        if rebuilt.version == self._newest.version and not is_same(rebuilt, self._newest):
            raise DataError(
                f"{self._store.url}: a checkpoint differs from the log at version {rebuilt.version}: "
                "`compactor repair` puts it aside"
            )

    def check_checkpoint(self, said: Snapshot, rebuilt: Snapshot) -> None:
        """Raises `DataError` unless a checkpoint equals the log before it."""
        if not is_same(said, rebuilt):
            raise DataError(
                f"{self._store.url}/{checkpoint_key(said.version)}: the checkpoint differs from "
                "the log before it: `compactor repair` puts it aside"
            )


def is_same(one: Snapshot, other: Snapshot) -> bool:
    """Says whether two snapshots are equal in all that decisions depend on; then they have equal bytes.

    What compactions measured is left out: older and newer programs keep different fields of it.
    """
    return _decisive_bytes(one) == _decisive_bytes(other)


def _decisive_bytes(snapshot: Snapshot) -> bytes:
    return checkpoint_bytes(replace(snapshot, measured=()))
