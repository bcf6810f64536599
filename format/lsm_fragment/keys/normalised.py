"""Orders rows by normalised keys: bytes of their sort columns that compare as the rows do (SPEC section 6).

`lsm_fragment.native.keys.normalised` defines the bytes. Keys of the same sort columns are comparable across
arrays and fragments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import address_of, fixed_width_bytes, int_dtype
from lsm_fragment.arrays.types import is_binary_like, is_large_offsets, value_type
from lsm_fragment.keys.sort_schema import Nulls, Order, SortColumn, SortSchema, ordering
from lsm_fragment.native.keys import normalised as native

I64 = npt.NDArray[np.int64]
_NOTHING, _SIGNED, _UNSIGNED, _FLOAT, _BOOL, _BYTES, _STRING = range(7)
_KEY_WIDTHS: Final = {_NOTHING: 0, _BOOL: 1, _FLOAT: 8}
_NO_OFFSETS: Final = np.empty(0, dtype=np.int64)
_MAX_BYTES: Final = 1 << 62
_SLACK_BYTES: Final = 16
"""Bytes behind the last key that native code may overwrite."""


class SortKeys(Struct, frozen=True):
    """The normalised keys of consecutive rows."""

    rows: int
    data: npt.NDArray[np.uint8]
    offsets: I64
    """Offset of each key, shape (rows + 1,); empty if all keys have the same width."""
    width: int

    def key(self, row: int) -> bytes:
        """Returns the key of one row."""
        if len(self.offsets):
            return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()
        return self.data[row * self.width : (row + 1) * self.width].tobytes()


class KeyLayout:
    """The layout of the sort columns in a key."""

    def __init__(self, types: Sequence[pa.DataType], sort: SortSchema) -> None:
        """types: storage types of the columns of `sort`. Those of order none are ignored."""
        pairs = list(zip(map(value_type, types), ordering(sort), strict=False))
        self.columns = [(dtype, _fields(dtype, column)) for dtype, column in pairs]
        """The type of each column, and the first fields of its `Column` (`native.keys.normalised`)."""
        self.widths = np.array(
            [-1 if (width := key_width(dtype)) is None else width for dtype, _ in pairs],
            dtype=np.int64,
        )
        """Bytes of the values of each column; -1 for strings."""
        self.flips = np.array([255 * (c.order is Order.DESC) for _, c in pairs], dtype=np.uint8)
        """255 for descending columns, otherwise 0: inverts the bytes of values."""
        self.width = 0 if (self.widths < 0).any() else int((1 + self.widths).sum())
        """Bytes of each key; 0 if they vary."""

    def prefix_of(self, key: bytes) -> bytes:
        """Returns the part of a key that these columns contribute. key: of these columns and more."""
        return key[: native.prefix_length(key, self.widths, self.flips)]


class KeyColumns:
    """Sort columns, to build normalised keys from."""

    def __init__(self, columns: Sequence[pa.Array], layout: KeyLayout) -> None:
        """columns: storage arrays of equal length and of the layout's types, possibly dictionary-coded."""
        self._layout = layout
        self.rows = len(columns[0])
        self._held: list[pa.Array] = []
        self.has_copies = False
        """Whether any column was converted, which takes memory."""
        self._table = np.array(
            [
                self._column(dtype, fields, array)
                for (dtype, fields), array in zip(layout.columns, columns, strict=False)
            ],
            dtype=np.int64,
        )

    def keys(
        self, start: int = 0, max_rows: int | None = None, max_bytes: int = _MAX_BYTES
    ) -> SortKeys:
        """Returns the keys of rows from `start` on, as many as the limits allow, but at least one if there
        are rows."""
        rows = self.rows - start
        if max_rows is not None:
            rows = min(rows, max_rows)
        if not rows:
            return SortKeys(0, np.empty(0, dtype=np.uint8), _NO_OFFSETS, 0)
        parts = native.Parts(self._table, rows)
        width = self._layout.width
        if width:
            rows = min(rows, max(1, max_bytes // width))
            offsets, size = _NO_OFFSETS, rows * width
        else:
            offsets = np.empty(rows + 1, dtype=np.int64)
            rows = parts.lengths(start, max_bytes, offsets)
            offsets = offsets[: rows + 1]
            size = int(offsets[-1])
        data = np.empty(size + _SLACK_BYTES, dtype=np.uint8)
        parts.write(start, offsets, rows, data)
        return SortKeys(rows, data[:size], offsets, width)

    def key(self, row: int) -> bytes:
        """Returns the key of one row."""
        return self.keys(row, 1).key(0)

    def first_disorder(self) -> int | None:
        """Returns the first row that comes before its predecessor; None if the rows are sorted."""
        row = native.Parts(self._table, 0).first_disorder(self.rows)
        return None if row < 0 else row

    def _column(
        self, dtype: pa.DataType, fields: tuple[int, ...], array: pa.Array
    ) -> tuple[int, ...]:
        """Returns the fields of a `Column` (`native.keys.normalised`), and keeps their memory alive."""
        places, codes, size = array, 0, 0
        if isinstance(array, pa.DictionaryArray):
            places, array = array.indices, array.dictionary
            if not pt.is_int32(places.type):
                places, self.has_copies = places.cast(pa.int32()), True
            size = len(array)
            codes = address_of(places.buffers()[1]) + 4 * places.offset
        if array.type != dtype:
            raise TypeError(f"values are of {array.type}, and keys of {dtype}")
        if pt.is_float16(dtype):
            array, self.has_copies = array.cast(pa.float32()), True
        self._held += (places, array)
        buffers = array.buffers()
        _, width, *_, offset_width = fields
        return (
            *fields,
            address_of(places.buffers()[0]) if places.null_count else 0,
            places.offset,
            address_of(buffers[-1]) + width * array.offset,
            array.offset,
            address_of(buffers[1]) + offset_width * array.offset if offset_width else 0,
            codes,
            size,
        )


def key_columns(columns: Sequence[pa.Array], sort: SortSchema) -> KeyColumns:
    """Prepares sort columns of any types for building keys.

    columns: storage arrays of equal length, possibly dictionary-coded, one for each column of `sort`; those
    of order none are ignored.
    """
    return KeyColumns(columns, KeyLayout([column.type for column in columns], sort))


def sort_keys(columns: Sequence[pa.Array], sort: SortSchema) -> SortKeys:
    """Returns the keys of all rows. columns: see `key_columns`."""
    return key_columns(columns, sort).keys()


def key_width(dtype: pa.DataType) -> int | None:
    """Returns the bytes of a value of a storage type in a normalised key; None for strings."""
    kind = _kind(dtype)
    if kind == _STRING:
        return None
    if kind in _KEY_WIDTHS:
        return _KEY_WIDTHS[kind]
    return fixed_width_bytes(dtype)


def stable_order(keys: SortKeys) -> I64:
    """Returns the rows in sorted order; equal keys keep their order."""
    order = np.arange(keys.rows)
    if keys.rows > 1:
        native.sort(keys.data, keys.offsets, keys.width, order)
    return order


def same_as_previous(keys: SortKeys, order: I64 | None = None) -> npt.NDArray[np.bool_]:
    """Returns whether each row's key equals the previous row's; False for the first. Shape (rows,).

    order: the order of the rows; None for their own.
    """
    same = np.zeros(keys.rows, dtype=np.bool_)
    if keys.rows:
        order = np.arange(keys.rows) if order is None else order
        native.repeats(keys.data, keys.offsets, keys.width, order, same.view(np.uint8))
    return same


def _fields(dtype: pa.DataType, column: SortColumn) -> tuple[int, ...]:
    kind = _kind(dtype)
    is_fixed = kind in (_SIGNED, _UNSIGNED, _FLOAT, _BYTES)
    width = 4 if pt.is_float16(dtype) else fixed_width_bytes(dtype) or 0
    return (
        kind,
        width if is_fixed else 0,
        key_width(dtype) or 0,
        int(column.order is Order.DESC),
        0 if column.nulls is Nulls.FIRST else 2,
        (8 if is_large_offsets(dtype) else 4) if kind == _STRING else 0,
    )


def _kind(dtype: pa.DataType) -> int:
    """Returns the kind of a storage type, which decides how its values become bytes."""
    if pt.is_null(dtype):
        return _NOTHING
    if pt.is_boolean(dtype):
        return _BOOL
    if pt.is_floating(dtype):
        return _FLOAT
    if pt.is_unsigned_integer(dtype):
        return _UNSIGNED
    if int_dtype(dtype) is not None or pt.is_decimal(dtype):
        return _SIGNED
    if pt.is_fixed_size_binary(dtype):
        return _BYTES
    assert is_binary_like(dtype), dtype
    return _STRING
