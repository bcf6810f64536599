"""Reads the needed parts of a footer: the directory tells which page has the statistics of a column."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Final, NamedTuple

import pyarrow as pa

from lsm_fragment.blocks.layout import BlockKind
from lsm_fragment.container.block import Block
from lsm_fragment.container.block_reader import BlockReader
from lsm_fragment.container.directory import Directory, PagePlace
from lsm_fragment.container.footer import ChunkStats, FragmentSummary, RowGroupStats
from lsm_fragment.container.header import FragmentHeader
from lsm_fragment.container.pages import ColumnRecord, check_records, unpack_page
from lsm_fragment.errors import CorruptFragmentError
from lsm_fragment.keys.sort_schema import SortSchema

_GAP_BYTES: Final = 64 << 10
"""Read pages by one request if the gaps between them are at most this."""
_READ_BYTES: Final = 8 << 20
"""Read at most this much of pages by one request, unless one page is larger."""
_KEPT_CHUNKS: Final = 1 << 16
"""Cache the statistics of at most this many chunks beside those of the last call; each takes some 300
bytes."""


class _Column(NamedTuple):
    field: pa.Field
    chunks: list[ChunkStats]


class FooterReader:
    """Reads one fragment's footer, and caches the columns of the last calls.

    Thread-safe. Every method raises `CorruptFragmentError` for a page that is damaged or out of place.
    """

    def __init__(
        self, directory: Directory, offset: int, read: Callable[[int, int], bytes], name: str
    ) -> None:
        """offset: of the directory. read: returns the bytes between two offsets of the fragment."""
        self._directory = directory
        self._offset = offset
        self._read = read
        self._name = name
        self._keys = {name: _Column(*column) for name, column in directory.keys.items()}
        self._kept = _Kept()
        self._last: tuple[int, Block, list[ColumnRecord]] | None = None
        """The last page read: the columns of an ordinary fragment share one."""
        self.columns: Mapping[str, Sequence[ChunkStats]] = _Columns(self)
        """The statistics of each column's chunks, by name, without all-null columns."""

    @property
    def sort(self) -> SortSchema:
        return self._directory.head.sort

    @property
    def row_groups(self) -> Sequence[RowGroupStats]:
        return self._directory.row_groups

    @property
    def rows(self) -> int:
        return self._directory.head.rows

    @property
    def row_hash(self) -> int:
        return self._directory.head.row_hash

    @property
    def key_names(self) -> Collection[str]:
        """The names of the sort columns."""
        return self._directory.keys.keys()

    @property
    def key_fields(self) -> list[pa.Field]:
        """The fields of the sort columns."""
        return [field for field, _ in self._directory.keys.values()]

    def field(self, name: str) -> pa.Field | None:
        """Returns the field of a column; None if the fragment's schema lacks it."""
        column = self._get(name)
        return None if column is None else column.field

    def chunks(self, name: str) -> Sequence[ChunkStats]:
        """Returns the statistics of a column's chunks; empty for missing and all-null columns."""
        column = self._get(name)
        return () if column is None else column.chunks

    def fetch(self, names: Iterable[str]) -> None:
        """Reads the statistics of several columns by as few requests as possible.

        They stay cached at least until the next call.
        """
        asked = [name for name in names if name not in self._keys]
        missing = {name for name in asked if name not in self._kept.columns}
        if missing:
            self._kept.add(self._read_columns(missing), asked)

    def _get(self, name: str) -> _Column | None:
        if name in self._keys:
            return self._keys[name]
        try:
            return self._kept.columns[name]
        except KeyError:
            found = self._read_columns({name})
            self._kept.add(found, (name,))
            return found[name]

    def _read_columns(self, names: Collection[str]) -> dict[str, _Column | None]:
        """Reads the statistics of columns; None for those that the fragment's schema lacks."""
        pages = {self._directory.find(name.encode()) for name in names} - {None}
        found: dict[str, _Column | None] = dict.fromkeys(names)
        for block, records in self._pages(sorted(page for page in pages if page is not None)):
            for record in records:
                if record.name in names:
                    found[record.name] = self._column(block, record)
        return found

    def check_header(self, header: FragmentHeader) -> None:
        """Raises `ValueError` unless the directory agrees with a fragment's header."""
        self._directory.head.check_header(header)

    def names(self) -> Iterator[str]:
        """Yields the names of all columns with chunks, in file order."""
        yield from self.key_names
        for block, records in self._pages(range(self._directory.head.pages)):
            for record in records:
                if record.name not in self._kept.columns:
                    self._kept.add({record.name: self._column(block, record)}, (record.name,))
                if record.count:
                    yield record.name

    def summary(self) -> FragmentSummary:
        """Returns the fragment's summary without its first and last key: a footer has only bounds of them."""
        rows = self._directory.head.group_rows
        summary = FragmentSummary(rows=self.rows, row_hash=self.row_hash, row_groups=len(rows))
        for name, chunks in self.columns.items():
            summary.add_column(name, chunks, rows)
        return summary

    def _column(self, block: Block, record: ColumnRecord) -> _Column:
        try:
            field = record.field()
            chunks = record.chunks()
            record.check_places(chunks)
            if len(chunks) not in (0, len(self.row_groups)):
                raise ValueError(f"column {record.name!r} has not a chunk for each row group")
        except ValueError as error:
            raise block.fault(str(error)) from error
        return _Column(field, chunks)

    def _pages(self, pages: Sequence[int]) -> Iterator[tuple[Block, list[ColumnRecord]]]:
        """Yields the records of pages, whose order and places are verified. pages: ascending."""
        last = self._last  # another thread may replace it
        if len(pages) == 1 and last is not None and last[0] == pages[0]:
            yield last[1:]
            return
        run: list[tuple[int, PagePlace]] = []
        for page in pages:
            try:
                place = self._directory.place(page, self._offset)
            except ValueError as error:
                raise CorruptFragmentError(
                    str(error), name=self._name, offset=self._offset
                ) from error
            if run and (
                place.offset - run[-1][1].end > _GAP_BYTES
                or place.end - run[0][1].offset > _READ_BYTES
            ):
                yield from self._read_run(run)
                run = []
            run.append((page, place))
        if run:
            yield from self._read_run(run)

    def _read_run(
        self, run: Sequence[tuple[int, PagePlace]]
    ) -> Iterator[tuple[Block, list[ColumnRecord]]]:
        start = run[0][1].offset
        data = memoryview(self._read(start, run[-1][1].end))
        for page, place in run:
            source = io.BytesIO(data[place.offset - start : place.end - start])
            block = BlockReader(source, self._name, offset=place.offset).read_block()
            if block.header.kind is not BlockKind.STATISTICS:
                raise block.fault("the directory does not point at a page of statistics")
            if place.offset + block.header.block_bytes != place.end:
                raise block.fault("a page of statistics does not end where the next one begins")
            try:
                records = list(unpack_page(block.raw()))
                if check_records(records, place.start) != place.stop:
                    raise ValueError("columns do not end where those of the next page begin")
                self._directory.check_names(page, records)
            except ValueError as error:
                raise block.fault(str(error)) from error
            self._last = page, block, records
            yield block, records


class _Kept:
    """A cache of columns that evicts the oldest first."""

    def __init__(self) -> None:
        self.columns: dict[str, _Column | None] = {}
        self._chunks = 0
        self._lock = Lock()

    def add(self, found: Mapping[str, _Column | None], asked: Collection[str]) -> None:
        """Adds columns. If the cache is too large, evicts half of it, except for the columns asked for
        now."""
        with self._lock:
            for name, column in found.items():
                self._drop(name)
                self.columns[name] = column
                self._chunks += _weight(column)
            if self._chunks > _KEPT_CHUNKS:
                needed = set(asked)
                for name in [name for name in self.columns if name not in needed]:
                    if self._chunks > _KEPT_CHUNKS // 2:
                        self._drop(name)

    def _drop(self, name: str) -> None:
        if name in self.columns:
            self._chunks -= _weight(self.columns.pop(name))


def _weight(column: _Column | None) -> int:
    """Returns the weight of a column in chunks; one without chunks takes some memory, too."""
    return 1 if column is None else 1 + len(column.chunks)


class _Columns(Mapping[str, Sequence[ChunkStats]]):
    """Columns by name, for `FooterReader.columns`."""

    def __init__(self, footer: FooterReader) -> None:
        self._footer = footer

    def __getitem__(self, name: str) -> Sequence[ChunkStats]:
        chunks = self._footer.chunks(name)
        if not chunks and name not in self._footer.key_names:
            raise KeyError(name)
        return chunks

    def __iter__(self) -> Iterator[str]:
        return self._footer.names()

    def __len__(self) -> int:
        return sum(1 for _ in self)
