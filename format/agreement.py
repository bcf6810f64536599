"""Checks a footer against its fragment: nothing in it is trusted that can be looked up.

Every fault is a `ValueError` with the cause; the caller knows the place and adds it.
"""

from __future__ import annotations

import base64
import decimal
import struct
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
import xxhash
from pyarrow import types as pt

from format.footer import ChunkStats, Footer
from format.keys import Value
from format.layout import BLOCK_HEADER_BYTES, BlockHeader
from format.nodes import Encoding, int_dtype
from format.schema import FragmentHeader, column_order, ordering
from format.types import is_binary_like, storage_type

_CHUNK: Final = struct.Struct("<BQQQQ")
_NULL_COUNT: Final = slice(16, 24)
_ENCODINGS: Final = {encoding.name: int(encoding) for encoding in Encoding}
_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")


def check_footer(footer: Footer, header: FragmentHeader, start: int, stop: int) -> None:
    """Raises `ValueError` unless the footer has the header's columns in the places of SPEC section 1.

    These lie between offsets `start` (after the header) and `stop` (the footer's own). So no chunk can be
    taken for one of another column or row group.
    """
    sort = [column.column for column in header.sort]
    present = set(footer.columns)
    others = [name for name in column_order(header.schema, header.sort) if name in present]
    if list(footer.columns) != [*sort, *others]:
        raise ValueError(
            "the footer's columns are not those of the header, in the order of the file"
        )
    if any(rows > header.max_rows for rows in footer.group_rows):
        raise ValueError(
            f"a row group of more rows than the {header.max_rows} that the header allows"
        )
    at = _after(
        [
            chunk
            for group in zip(*(footer.columns[name] for name in sort), strict=True)
            for chunk in group
        ],
        start,
    )
    for name in others:
        chunks = footer.columns[name]
        if chunks and chunks[0].offset < at + BLOCK_HEADER_BYTES:
            raise ValueError(f"chunks of column {name!r} begin where none can")
        at = _after(chunks, chunks[0].offset) if chunks else at
    if at != stop and (at > stop or footer.row_groups):
        raise ValueError("chunks do not reach up to the footer")
    _check_values(footer, header)


def _after(chunks: Sequence[ChunkStats], at: int) -> int:
    """Returns the offset at which chunks end that begin at `at`.

    Raises `ValueError` for gaps between them.
    """
    for chunk in chunks:
        if chunk.offset != at or chunk.stored_bytes < BLOCK_HEADER_BYTES:
            raise ValueError("chunks are not back to back")
        at += chunk.stored_bytes
    return at


def _check_values(footer: Footer, header: FragmentHeader) -> None:
    """Checks the types of all bounds, since bounds of another type than their column could not be
    compared."""
    for name, chunks in footer.columns.items():
        dtype = storage_type(header.schema.field(name).type)
        for values in ([chunk.min for chunk in chunks], [chunk.max for chunk in chunks]):
            check_values(values, dtype, name)
    columns = ordering(header.sort)
    for keys in ([g.first_key for g in footer.row_groups], [g.last_key for g in footer.row_groups]):
        if any(len(key) > len(columns) for key in keys):
            raise ValueError("a key bound of more values than sort columns")
        for place, column in enumerate(columns):
            dtype = storage_type(header.schema.field(column.column).type)
            check_values([key[place] for key in keys if place < len(key)], dtype, column.column)


def check_values(values: Iterable[Value], dtype: pa.DataType, name: str) -> None:
    """Raises `ValueError` unless each value is a VALUE of SPEC section 7 for a storage type."""
    found = [value for value in values if value is not None]
    if not set(map(type, found)) <= _python_types(dtype):
        raise ValueError(f"a bound of column {name!r} is no {dtype}")
    if pt.is_decimal(dtype):
        if not all(_is_decimal(value) for value in found):
            raise ValueError(f"a bound of column {name!r} is no {dtype}")
    elif pt.is_floating(dtype):
        if not all(value in _NOT_FINITE for value in found if type(value) is str):
            raise ValueError(f"a bound of column {name!r} is no {dtype}")
    elif pt.is_fixed_size_binary(dtype) or (is_binary_like(dtype) and not _is_text(dtype)):
        for value in found:
            base64.b64decode(value, validate=True)  # whose error is a ValueError


def _python_types(dtype: pa.DataType) -> set[type]:
    if pt.is_decimal(dtype) or is_binary_like(dtype) or pt.is_fixed_size_binary(dtype):
        return {str}
    if pt.is_floating(dtype):
        return {int, float, str}
    if pt.is_boolean(dtype):
        return {bool}
    return set() if int_dtype(dtype) is None else {int}


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pt.is_string(dtype) or pt.is_large_string(dtype))


def _is_decimal(text: str) -> bool:
    try:
        return decimal.Decimal(text).is_finite()
    except decimal.InvalidOperation:
        return False


class Sequel:
    """A checksum of the chunks that a forward reader saw, to compare with the footer that follows them."""

    def __init__(self) -> None:
        self._seen = xxhash.xxh3_64()

    def column(self, name: str) -> None:
        self._seen.update(name.encode())

    def chunk(self, offset: int, header: BlockHeader, meta: bytes) -> None:
        nulls = int.from_bytes(meta[_NULL_COUNT], "little")
        encoding = meta[0] if meta else 0
        self._seen.update(
            _CHUNK.pack(encoding, nulls, offset, header.block_bytes, header.raw_bytes)
        )

    def check(self, footer: Footer, sort: Sequence[str]) -> None:
        """Raises `ValueError` unless the footer lists the same chunks."""
        said = xxhash.xxh3_64()
        for group in zip(*(footer.columns.get(name, ()) for name in sort), strict=True):
            for chunk in group:
                said.update(_packed(chunk))
        for name, chunks in footer.columns.items():
            if name in sort:
                continue
            said.update(name.encode())
            for chunk in chunks:
                said.update(_packed(chunk))
        if said.digest() != self._seen.digest():
            raise ValueError("the footer's chunks are not those that came before it")


def _packed(chunk: ChunkStats) -> bytes:
    encoding = _ENCODINGS.get(chunk.encoding)
    if encoding is None:
        raise ValueError(f"the footer has an encoding {chunk.encoding!r}")
    return _CHUNK.pack(
        encoding, chunk.null_count, chunk.offset, chunk.stored_bytes, chunk.raw_bytes
    )
