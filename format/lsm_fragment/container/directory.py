"""Writes and reads the directory at a fragment's end: row groups, sort columns, and the places of the
statistics pages of the other columns (SPEC section 7)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from msgspec import Struct

from lsm_fragment.arrays.hashing import ROW_HASH_XXH3, combine
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.container.footer import ChunkStats, RowGroupStats
from lsm_fragment.container.header import FragmentHeader, check_features, features_of
from lsm_fragment.container.pages import ColumnRecord, check_back_to_back, unpack_record
from lsm_fragment.container.tables import (
    LEFT_OUT,
    TableReader,
    ValueKind,
    pack_values,
    packed,
    padded,
    unpack_values,
    value_kind,
)
from lsm_fragment.errors import cause_of
from lsm_fragment.keys.bounds import Bound, Value
from lsm_fragment.keys.sort_schema import SortColumn, SortSchema, ordering
from lsm_fragment.short_texts import remembered

_HEAD: Final = struct.Struct("<QQIIIIQQ")


class PageTable:
    """Offsets and first columns of the pages, collected while writing or reading forward."""

    def __init__(self) -> None:
        self.count = 0
        self._offsets: list[int] = []
        self._starts: list[int] = []
        self._name_ends: list[int] = []
        self._names = bytearray()

    def add(self, offset: int, start: int, name: str) -> None:
        """Adds a page.

        offset: of the page's block. start: the lowest offset at which its columns may lie. name: of its first
        column.
        """
        self.count += 1
        self._names += name.encode()
        self._offsets.append(offset)
        self._starts.append(start)
        self._name_ends.append(len(self._names))

    def to_bytes(self) -> bytes:
        arrays = packed("Q", self._offsets), packed("Q", self._starts), packed("I", self._name_ends)
        return b"".join((*arrays, padded(bytes(self._names))))


class PagePlace(Struct, frozen=True):
    """The place of a page, and of the columns that it describes."""

    offset: int
    end: int
    start: int
    stop: int


class DirectoryHead(NamedTuple):
    """The fixed fields of a directory."""

    rows: int
    row_hash: int
    columns: int
    """Number of columns in the schema."""
    pages: int
    columns_end: int
    """Offset of the end of the column section."""
    sort: SortSchema
    max_rows: int
    group_rows: tuple[int, ...]
    """Rows of each row group."""
    group_hashes: tuple[int, ...]
    """The row hash of each row group."""

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str) -> tuple[DirectoryHead, TableReader]:
        """Returns the head, and a reader of the rest. See `Directory.from_bytes`."""
        if len(data) < _HEAD.size:
            raise ValueError("the directory ends early")
        rows, row_hash, count, columns, pages, function, json_bytes, columns_end = (
            _HEAD.unpack_from(data)
        )
        table = TableReader(data, _HEAD.size)
        sort, max_rows, features = _parsed(table.raw(json_bytes))
        check_features(features, name=name)
        if function != ROW_HASH_XXH3:
            raise ValueError(f"the row hash is of an unknown function, number {function}")
        group_rows, hashes = table.array("I", count), table.array("Q", count)
        if sum(group_rows) != rows or combine(*hashes) != row_hash or not all(group_rows):
            raise ValueError("the directory contradicts itself")
        if any(size > max_rows for size in group_rows):
            raise ValueError(f"a row group of more rows than the {max_rows} that are allowed")
        head = cls(
            rows=rows,
            row_hash=row_hash,
            columns=columns,
            pages=pages,
            columns_end=columns_end,
            sort=sort,
            max_rows=max_rows,
            group_rows=group_rows,
            group_hashes=hashes,
        )
        return head, table

    def check_header(self, header: FragmentHeader) -> None:
        """Raises `ValueError` unless the directory belongs to a fragment with this header."""
        stated = header.sort, header.max_rows, len(header.schema)
        if stated != (self.sort, self.max_rows, self.columns):
            raise ValueError("header and directory differ in sort schema, columns or row groups")


class Directory(Struct, frozen=True):
    """A directory as read. Its page table is decoded on demand."""

    head: DirectoryHead
    row_groups: list[RowGroupStats]
    keys: dict[str, tuple[pa.Field, list[ChunkStats]]]
    """The sort columns, with the statistics of their chunks."""
    key_end: int
    """Offset of the end of the key section; 0 without row groups."""
    page_table: bytes

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str) -> Directory:
        """Parses a directory. name: of the fragment, for errors. Raises `ValueError` for malformed or
        inconsistent bytes, and `UnsupportedVersionError`."""
        head, table = DirectoryHead.from_bytes(data, name=name)
        count = len(head.group_rows)
        fields, records = _key_records(data, table, head.sort, count)
        kinds = [value_kind(storage_type(field.type)) for field in fields]
        bounds = _unpack_bounds(table, count, kinds[: len(ordering(head.sort))])
        page_table = _page_table(data, table, head.pages)
        table.finish()
        keys = {
            record.name: (field, record.chunks())
            for record, field in zip(records, fields, strict=True)
        }
        end = records[0].end
        _check_keys(records, [chunks for _, chunks in keys.values()])
        groups = zip(head.group_rows, head.group_hashes, *bounds, strict=True)
        return cls(head, [RowGroupStats(*group) for group in groups], keys, end, page_table)

    def find(self, name: bytes) -> int | None:
        """Returns the only page that can have the column; None if none can."""
        low, high = 0, self.head.pages
        while low < high:
            middle = (low + high) // 2
            if self._name(middle) <= name:
                low = middle + 1
            else:
                high = middle
        return low - 1 if low else None

    def place(self, page: int, offset: int) -> PagePlace:
        """Returns the place of a page. offset: of the directory.

        Raises `ValueError` for an impossible place.
        """
        last = page + 1 == self.head.pages
        end = offset if last else self._u64(page + 1)
        stop = self.head.columns_end if last else self._u64(self.head.pages + page + 1)
        place = PagePlace(self._u64(page), end, self._u64(self.head.pages + page), stop)
        is_first = page > 0 or place.start == self.key_end
        if (
            not is_first
            or not place.start <= stop <= self.head.columns_end <= place.offset < end <= offset
        ):
            raise ValueError(f"page {page} of the statistics has an impossible place")
        return place

    def check_names(self, page: int, records: Sequence[ColumnRecord]) -> None:
        """Raises `ValueError` unless a page's columns match the page table."""
        is_right = (
            len(records) > 0
            and records[0].name.encode() == self._name(page)
            and (page + 1 == self.head.pages or records[-1].name.encode() < self._name(page + 1))
            and not any(record.name in self.keys for record in records)
        )
        if not is_right:
            raise ValueError(
                f"page {page} of the statistics has other columns than the page table states"
            )

    def _name(self, page: int) -> bytes:
        ends_at = 16 * self.head.pages
        start = self._u32(ends_at + 4 * (page - 1)) if page else 0
        names_at = ends_at + 4 * self.head.pages + -4 * self.head.pages % 8
        return self.page_table[names_at + start : names_at + self._u32(ends_at + 4 * page)]

    def _u64(self, place: int) -> int:
        return int.from_bytes(self.page_table[8 * place : 8 * place + 8], "little")

    def _u32(self, at: int) -> int:
        return int.from_bytes(self.page_table[at : at + 4], "little")


def pack_directory(
    header: FragmentHeader,
    groups: Sequence[RowGroupStats],
    keys: Sequence[bytes],
    pages: PageTable,
    columns_end: int,
) -> bytes:
    """Returns the directory's payload.

    keys: the records of the sort columns, in sort-schema order. columns_end: offset of the end of the column
    section.
    """
    text = header.directory_text
    head = _HEAD.pack(
        sum(group.rows for group in groups),
        combine(*(group.row_hash for group in groups)),
        len(groups),
        len(header.schema),
        pages.count,
        ROW_HASH_XXH3,
        len(text),
        columns_end,
    )
    kinds = [header.stored_field(column.column).kind for column in ordering(header.sort)]
    return b"".join(
        (
            head,
            padded(text),
            packed("I", [group.rows for group in groups]),
            packed("Q", [group.row_hash for group in groups]),
            *keys,
            *_pack_bounds([group.first_key for group in groups], kinds),
            *_pack_bounds([group.last_key for group in groups], kinds),
            pages.to_bytes(),
        )
    )


@remembered(max_results=64, max_bytes=64 << 10)
def _parsed(text: bytes) -> tuple[SortSchema, int, tuple[str, ...]]:
    """Parses the JSON, which is the same in all fragments of a table."""
    try:
        document = json.loads(text)
        features = features_of(document)
        sort = tuple(SortColumn.from_json(column) for column in document["sort"])
        max_rows = document["max_rows"]
        names = {column.column.encode() for column in sort}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a directory: {cause_of(error)}") from error
    if type(max_rows) is not int or len(names) != len(sort) or not ordering(sort):
        raise ValueError("the directory has an invalid sort schema or number of rows")
    return sort, max_rows, features


def _key_records(
    data: bytes, table: TableReader, sort: SortSchema, count: int
) -> tuple[list[pa.Field], list[ColumnRecord]]:
    """Reads the records of the sort columns."""
    records = []
    for column in sort:
        record = unpack_record(data, table.at)
        if record.name != column.column or record.count != count:
            raise ValueError(f"the sort columns do not have {column.column!r} in its place")
        records.append(record)
        table.raw(record.size)
    return [record.field() for record in records], records


def _check_keys(records: Sequence[ColumnRecord], columns: Sequence[Sequence[ChunkStats]]) -> None:
    """Raises `ValueError` unless the sort columns' chunks exactly fill the key section."""
    start, end = records[0].start, records[0].end
    if any((record.start, record.end) != (start, end) for record in records):
        raise ValueError("the sort columns differ in their place")
    chunks = [chunk for group in zip(*columns, strict=True) for chunk in group]
    if check_back_to_back(chunks, start) != end:
        raise ValueError("the chunks of the sort columns do not fill the key section")


def _pack_bounds(bounds: Sequence[Bound], kinds: Sequence[ValueKind]) -> Iterator[bytes]:
    for place, kind in enumerate(kinds):
        values = [bound[place] if place < len(bound) else LEFT_OUT for bound in bounds]
        yield pack_values(values, kind)


def _unpack_bounds(
    table: TableReader, count: int, kinds: Sequence[ValueKind]
) -> tuple[list[Bound], list[Bound]]:
    """Reads the lower and the upper bounds of the row groups' keys."""
    first, last = (
        [_bound(values) for values in zip(*columns, strict=True)]
        for columns in (
            [unpack_values(table, count, kind) for kind in kinds],
            [unpack_values(table, count, kind) for kind in kinds],
        )
    )
    return first, last


def _bound(values: tuple[Value, ...]) -> Bound:
    for place, value in enumerate(values):
        if value is LEFT_OUT:
            if any(other is not LEFT_OUT for other in values[place:]):
                raise ValueError("a bound has a value behind one that is left out")
            return values[:place]
    return values


def _page_table(data: bytes, table: TableReader, pages: int) -> bytes:
    """Returns the bytes of the page table, after checking its lengths."""
    start = table.at
    table.raw(8 * pages)
    table.raw(8 * pages)
    ends_at = table.at
    table.raw(4 * pages)
    if pages:
        last = ends_at + 4 * (pages - 1)
        table.raw(int.from_bytes(data[last : last + 4], "little"))
    return data[start : table.at]
