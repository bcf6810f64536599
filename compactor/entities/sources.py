"""Tells whether a file or table has changed since it was read, without reading its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import xxhash

from compactor.entities.datasets import Located
from compactor.files.names import FileFormat, kind_of
from compactor.files.parquet_groups import StoredGroup, stored_groups
from compactor.files.places import addresses_of, place_of
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.json_text import to_json_text
from compactor.table.snapshot import Snapshot

_UNSURE_NS: Final = 10_000_000_000
"""Trust the times of a local file only if it was last changed this long before the run: file systems round
times, by up to two seconds, and clocks of file servers differ."""


class Part(NamedTuple):
    """A file or table of a dataset, as a run read it."""

    place: str
    version: str
    """Text that changes whenever the contents do; empty if nothing tells."""
    rows: int
    groups: tuple[StoredGroup, ...]
    """The row groups of a Parquet file, if they can be told from each other; else empty."""

    @classmethod
    def of_json(cls, part: Sequence[Any]) -> Self:
        place, version, rows, groups = part
        return cls(place, version, rows, tuple(StoredGroup(*group) for group in groups))


class Source:
    """A file or table that is read."""

    def __init__(self, part: Located) -> None:
        self._part = part
        self.snapshot: Snapshot | None = None
        """The version of a table to read, so that its text and rows belong together."""
        if not part.is_file:
            self.snapshot = CommitLog(open_store(part.place)).current()
        self._before = self._stated()
        self.groups: tuple[StoredGroup, ...] = ()
        """The row groups of a local Parquet file, once they were looked at."""

    def look_at_groups(self) -> None:
        """Notes the row groups. Call it before rows are read. Raises `InputError`."""
        self.groups = self._stored_groups()

    def read(self, started_ns: int, rows: int) -> Part:
        """Returns the part that was read, once that has ended: of `rows` rows."""
        version = self.version(started_ns)
        if self.groups and not version and self._stored_groups() != self.groups:
            self.groups = ()  # it has changed meanwhile
        return Part(self._part.place, version, rows, self.groups)

    def version(self, started_ns: int) -> str:
        """Returns the text of `Part.version`. Call it after reading: it is empty if the file has changed
        meanwhile, or so shortly before the run that a change may not show in its times.

        started_ns: when the run started, in Unix time.
        """
        text, changed_ns = self._before
        is_sure = changed_ns < started_ns - _UNSURE_NS
        return text if is_sure and self._stated() == self._before else ""

    def _stored_groups(self) -> tuple[StoredGroup, ...]:
        place = self._part.place
        if self.snapshot is not None or addresses_of(place) is not None:
            return ()
        kind = kind_of(place)
        is_parquet = kind is not None and kind.format is FileFormat.PARQUET
        return stored_groups(place) if is_parquet else ()

    def _stated(self) -> tuple[str, int]:
        """Returns the text, and when a local file was last changed."""
        if self.snapshot is not None:
            return _text_of(self.snapshot), 0
        if addresses_of(self._part.place) is not None:
            return place_of(self._part.place).version, 0
        found = Path(self._part.place).stat()
        numbers = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        return "-".join(map(str, numbers)), max(found.st_mtime_ns, found.st_ctime_ns)


def _text_of(snapshot: Snapshot) -> str:
    """Returns a text of the rows of a snapshot: leases and the like leave it as it is."""
    entries = [
        (entry.key, None if entry.deletion is None else entry.deletion.key)
        for entry in snapshot.by_age()
    ]
    said = [snapshot.table_id, entries, snapshot.table.to_json()]
    return xxhash.xxh3_128_hexdigest(to_json_text(said).encode())
