"""Reads row groups of several fragments ahead of a merge."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct, field

from compactor.errors import CompactorError
from compactor.read.limits import AHEAD_BYTES
from compactor.read.lookahead import Lookahead
from compactor.read.row_group_reader import RowGroup, RowGroupReader, WantedRows
from compactor.read.stretches import Part
from lsm_fragment.errors import FormatError
from lsm_fragment.keys.comparator import ComparableKey, KeyComparator
from lsm_fragment.threads import ALONE, ThreadPool, Work


class _Source(Struct):
    """The row groups of one part."""

    reader: RowGroupReader
    groups: Lookahead[RowGroup]
    """Row groups not yet begun."""
    ends_at: ComparableKey = b""
    """Upper key bound of the last row group begun."""
    begun: deque[tuple[Work[WantedRows | None], int]] = field(default_factory=deque)
    """Row groups begun and not taken, with their sizes in bytes."""


class RowGroupsAhead:
    """The row groups of several parts, each part's in order.

    A merge needs the next row group of a part once the previous one is used up. So the part whose last begun
    row group ends at the lowest key is read next; key bounds are inexact, and a wrong guess only costs time.
    Read-ahead is limited to one row group more than threads, to the number taken before, to `AHEAD_BYTES`,
    and to the first row group of each part once the reader's limit of rows is taken.
    """

    def __init__(
        self,
        readers: Sequence[RowGroupReader],
        parts: Sequence[Part],
        names: Sequence[str],
        compare: KeyComparator,
        pool: ThreadPool,
        limit: int | None,
    ) -> None:
        """names: the columns to read. compare: of the table's keys. limit: number of rows after which the
        reader stops; None if that is unknown."""
        self._names = names
        self._pool = pool
        has_keys = all(reader.has_key_types() for reader in readers)
        self._compare = compare if has_keys else None
        self._sources = [
            _Source(
                readers[part.fragment],
                Lookahead(readers[part.fragment].wanted_groups(part.start, part.stop)),
            )
            for part in parts
        ]
        self._unread = list(self._sources) if pool.threads > 1 else []
        """Sources that may have row groups to read ahead."""
        self._count = self._held = 0
        """Number of row groups begun and not taken, and their bytes."""
        self._taken = 0
        """Number of row groups taken."""
        self._left = limit
        """Rows of the limit that are not taken yet."""

    def next(self, place: int) -> WantedRows | None:
        """Returns a part's next row group with wanted rows; None after the last.

        Raises `FormatError`, `DataError`, `StoreError` of this part's row groups only.
        """
        source = self._sources[place]
        while True:
            if source.begun:
                work, size = source.begun.popleft()
                found = self._pool.wait(work)
                self._count -= 1
                self._held -= size
            elif (group := source.groups.look()) is not None:
                self._advance(source, group)
                found = source.reader.read(group, self._names, self._pool)
            elif source.groups.error is not None:
                raise source.groups.error
            else:
                return None
            self._taken += 1
            if self._left is not None and found is not None:
                self._left -= found.rows
            self._top_up()
            if found is not None:
                return found

    def _top_up(self) -> None:
        """Begins row groups within the limits."""
        max_ahead = min(self._pool.threads + 1, self._taken)
        while self._unread and self._count < max_ahead:
            source = min(self._unread, key=lambda source: source.ends_at)
            if source.ends_at and self._left is not None and self._left <= 0:
                return
            group = source.groups.look()
            size = None if group is None else self._size(source, group)
            if group is None or size is None:
                self._unread.remove(source)
                continue
            if self._held + size > AHEAD_BYTES:
                return
            self._advance(source, group)
            self._begin(source, group, size)

    def _size(self, source: _Source, group: RowGroup) -> int | None:
        """Estimates the bytes of a row group; None if the footer is damaged, which reading it will report."""
        try:
            return source.reader.held_bytes(group, self._names)
        except (CompactorError, FormatError):
            return None

    def _begin(self, source: _Source, group: RowGroup, size: int) -> None:
        work = self._pool.begin(lambda: source.reader.read(group, self._names, ALONE))
        source.begun.append((work, size))
        self._count += 1
        self._held += size

    def _advance(self, source: _Source, group: RowGroup) -> None:
        source.groups.take()
        if self._compare is not None:
            last_key = source.reader.row_groups[group.number].last_key
            source.ends_at = self._compare.upper(last_key)
