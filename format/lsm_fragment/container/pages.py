"""Writes and reads statistics pages, the part of a footer about columns (SPEC section 7).

A page holds the records of one or more columns. Records can be skipped undecoded, so the statistics of a
column cost only their own bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa
from msgspec import Struct

from lsm_fragment.arrays.type_json import field_from_json
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.blocks.layout import BLOCK_HEADER_BYTES
from lsm_fragment.container.footer import ChunkStats
from lsm_fragment.container.header import StoredField
from lsm_fragment.container.tables import (
    MAX_COUNT,
    TableReader,
    ValueKind,
    pack_values,
    padded,
    unpack_values,
    value_kind,
)
from lsm_fragment.encodings.registry import NAMES, NUMBERS
from lsm_fragment.errors import SchemaError, cause_of
from lsm_fragment.short_texts import remembered

PAGE_BYTES: Final = 64 << 10
"""Begin another page before a record that would make the page larger than this."""
_HEAD: Final = struct.Struct("<QIIIIQQ")
_COUNTS: Final = 5
"""The number of leading fields of `ChunkStats` that are arrays of 64-bit numbers."""


class ColumnRecord(Struct, frozen=True, kw_only=True):
    """A footer's record of one column; its chunks are decoded on demand."""

    name: str
    start: int
    """Offset of the column's 'C' block, or of the key section for a sort column."""
    end: int
    """Offset of the end of the column, or of the key section."""
    count: int
    """Number of chunks: one per row group, or 0 for an all-null column."""
    size: int
    """Bytes of the record."""
    _table: bytes
    _field_at: int
    _field_bytes: int
    _end_at: int

    def field(self) -> pa.Field:
        """Returns the column's field. Raises `ValueError`."""
        return self._parsed()[0]

    def chunks(self) -> list[ChunkStats]:
        """Returns the statistics of the column's chunks. Raises `ValueError`."""
        at = self._field_at + self._field_bytes + -self._field_bytes % 8
        table = TableReader(self._table, at, self._end_at)
        if not self.count:
            table.finish()
            return []
        counts, end = table.counts(_COUNTS * self.count), _COUNTS * self.count
        columns = [counts[start : start + self.count] for start in range(0, end, self.count)]
        try:
            encodings = [NAMES[code] for code in table.raw(self.count)]
        except KeyError as error:
            raise ValueError(f"a chunk of encoding {error}") from None
        kind = self._parsed()[1]
        low, high = (unpack_values(table, self.count, kind) for _ in range(2))
        table.finish()
        values = zip(*columns, encodings, low, high, strict=True)
        return [ChunkStats(*chunk) for chunk in values]

    def _parsed(self) -> tuple[pa.Field, ValueKind]:
        text = self._table[self._field_at : self._field_at + self._field_bytes]
        return _parse_field(text, self.name)

    def check_places(self, chunks: Sequence[ChunkStats]) -> None:
        """Raises `ValueError` unless the chunks of a column outside the sort schema exactly fill its
        place."""
        at = self.start + BLOCK_HEADER_BYTES + len(self.name.encode())
        if chunks and check_back_to_back(chunks, at) != self.end:
            raise ValueError(f"the chunks of column {self.name!r} do not fill its place")


def check_back_to_back(chunks: Sequence[ChunkStats], at: int) -> int:
    """Returns the end offset of chunks that begin at `at`. Raises `ValueError` for gaps between them."""
    for chunk in chunks:
        if chunk.offset != at or chunk.stored_bytes < BLOCK_HEADER_BYTES:
            raise ValueError("chunks are not back to back")
        at += chunk.stored_bytes
    return at


def pack_record(field: StoredField, chunks: Sequence[ChunkStats], start: int, end: int) -> bytes:
    """Serialises a column's record. start, end: the column's place in the fragment; 0 if it has none."""
    parts = [field.data]
    if chunks:
        *counts, encodings, low, high = zip(*chunks, strict=True)
        parts.append(struct.pack(f"<{_COUNTS * len(chunks)}Q", *chain.from_iterable(counts)))
        parts.append(padded(bytes(map(NUMBERS.__getitem__, encodings))))
        parts += [pack_values(low, field.kind), pack_values(high, field.kind)]
    size = _HEAD.size + sum(map(len, parts))
    head = _HEAD.pack(size, field.name_bytes, field.text_bytes, len(chunks), 0, start, end)
    return b"".join((head, *parts))


class Page(NamedTuple):
    """A page to be written."""

    start: int
    """Offset at which its columns begin."""
    end: int
    """Offset at which they end."""
    name: str
    """Name of its first column."""
    payload: bytes


def paged(records: Iterable[bytes], start: int) -> Iterator[Page]:
    """Divides records in file order into pages. start: offset of their columns."""
    held: list[bytes] = []
    size, end, name = 0, start, ""
    for record in records:
        if held and size + len(record) > PAGE_BYTES:
            yield Page(start, end, name, b"".join(held))
            held, size, start = [], 0, end
        column = unpack_record(record)
        name = name if held else column.name
        held.append(record)
        size += len(record)
        end = max(end, column.end)
    if held:
        yield Page(start, end, name, b"".join(held))


def check_records(records: Sequence[ColumnRecord], start: int) -> int:
    """Returns the end offset of a page's columns. Raises `ValueError` unless they ascend by name and follow
    each other without gaps from `start` on."""
    name: bytes | None = None
    for record in records:
        encoded = record.name.encode()
        if name is not None and encoded <= name:
            raise ValueError(f"column {record.name!r} is not in its place")
        if record.count:
            if record.start != start:
                raise ValueError(f"column {record.name!r} does not start where it must")
            start = record.end
        name = encoded
    return start


def unpack_page(page: bytes) -> Iterator[ColumnRecord]:
    """Yields the records of a page, at least one. Raises `ValueError` for malformed bytes."""
    if not page:
        raise ValueError("a page without records")
    at = 0
    while at < len(page):
        record = unpack_record(page, at)
        yield record
        at += record.size


def unpack_record(table: bytes, at: int = 0) -> ColumnRecord:
    """Reads the record at an offset of a table. Raises `ValueError` for malformed bytes."""
    if at + _HEAD.size > len(table):
        raise ValueError("a record ends early")
    size, name_bytes, field_bytes, count, reserved, start, end = _HEAD.unpack_from(table, at)
    name_at = at + _HEAD.size
    field_at = name_at + name_bytes + -name_bytes % 8
    if field_at + field_bytes > at + size or at + size > len(table) or size % 8 or reserved:
        raise ValueError("a record has lengths that do not fit it")
    if not start <= end < MAX_COUNT or (not count and end):
        raise ValueError("a column ends before it begins")
    name = table[name_at : name_at + name_bytes].decode()
    return ColumnRecord(
        name=name,
        start=start,
        end=end,
        count=count,
        size=size,
        _table=table,
        _field_at=field_at,
        _field_bytes=field_bytes,
        _end_at=at + size,
    )


@remembered(max_results=4096, max_bytes=4096)
def _parse_field(text: bytes, name: str) -> tuple[pa.Field, ValueKind]:
    """Parses a column's field and the kind of its VALUEs, which are the same in all fragments of a table."""
    try:
        document = json.loads(text)
        field = field_from_json({**document, "name": name})
        return field, value_kind(storage_type(field.type))
    except (SchemaError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the type of column {name!r}: {cause_of(error)}") from error
