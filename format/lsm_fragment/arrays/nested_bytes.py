"""Packs each value of a nested array into one byte string, and unpacks it.

Native code then compares, numbers and gathers values of dictionaries as strings. A byte string has the parts
of all nodes of the value end to end, in pre-order: a validity byte for each of the node's values, and then
their contents or lengths. Equal values have equal bytes, whatever is hidden under nulls, and different values
different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import compute as pc
from lsm_fragment import native
from lsm_fragment.arrays.buffers import (
    binary_parts,
    fixed_width_bytes,
    fixed_width_view,
    pack_bits,
    valid_mask,
)
from lsm_fragment.arrays.moves import list_parts, present_items
from lsm_fragment.arrays.sizes import hidden_bytes, running_totals
from lsm_fragment.arrays.types import MAX_OFFSET_32, is_binary_like, is_large_offsets

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]


def packed(values: pa.Array, may_take: Callable[[int], bool] | None = None) -> pa.Array | None:
    """Packs the values of a nested storage array; null ones have any bytes.

    may_take: asked for permission to allocate a size; if denied, the result is None.
    """
    rows = np.arange(len(values) + 1, dtype=np.int64)
    parts = list(_content(values, rows[:-1], rows[1:]))
    sizes = sum((part.stops - part.starts for part in parts), start=np.zeros(len(values), np.int64))
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if may_take is not None and not may_take(offsets.nbytes + int(offsets[-1])):
        return None
    out, places = np.empty(int(offsets[-1]), dtype=np.uint8), offsets[:-1].copy()
    for data, starts, stops in parts:
        native.arrays.strings.copy_runs(data, starts, stops - starts, out, places)
        places += stops - starts
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers, 0)


def unpacked(strings: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Unpacks the values that `packed` made large binaries of, none of them null.

    Raises `pa.ArrowInvalid` if the result exceeds 32-bit offsets.
    """
    return _Reader(strings).content(dtype, np.ones(len(strings), dtype=np.int64), None, 0)


class _Part(NamedTuple):
    """One part of each value: its bytes from `starts` to `stops`."""

    data: U8
    starts: I64
    stops: I64


def _content(array: pa.Array, starts: I64, stops: I64) -> Iterator[_Part]:
    """Yields the parts of nodes, without their validity. starts, stops: the elements of each packed value."""
    dtype = array.type
    width = fixed_width_bytes(dtype)
    if pt.is_boolean(dtype):
        yield _Part(np.asarray(array.fill_null(False)).view(np.uint8), starts, stops)
    elif width is not None:
        yield _Part(_fixed(array, width), starts * width, stops * width)
    elif is_binary_like(dtype):
        if hidden_bytes(array):
            array = pc.fill_null(array, pa.scalar(b"", pa.binary()).cast(dtype))
        offsets, data = binary_parts(array)
        yield _lengths(offsets, starts, stops)
        yield _Part(native.as_bytes(data), _at(offsets, starts), _at(offsets, stops))
    elif pt.is_struct(dtype):
        for field in array.flatten():
            yield from _values(field, starts, stops)
    elif pt.is_fixed_size_list(dtype):
        size = dtype.list_size
        yield from _values(present_items(array), starts * size, stops * size)
    elif pt.is_nested(dtype):
        counts, items = list_parts(array)
        offsets = running_totals(counts)
        yield _lengths(offsets.astype(offset_type(dtype)), starts, stops)
        yield from _values(items, offsets[starts], offsets[stops])


def _values(array: pa.Array, starts: I64, stops: I64) -> Iterator[_Part]:
    """Yields the parts of values of a node below the root."""
    if pt.is_null(array.type):
        return
    valid = valid_mask(array)
    flags = np.ones(len(array), dtype=np.uint8) if valid is None else valid.view(np.uint8)
    yield _Part(flags, starts, stops)
    yield from _content(array, starts, stops)


def _fixed(array: pa.Array, width: int) -> U8:
    """Returns the bytes of values, zeros for nulls."""
    values = (
        fixed_width_view(array, np.dtype((np.uint8, width))) if width else np.zeros(0, np.uint8)
    )
    valid = valid_mask(array)
    if valid is not None and width:
        values = np.where(valid[:, None], values.reshape(len(array), width), np.uint8(0))
    return values.reshape(-1)


def _lengths(offsets: npt.NDArray[Any], starts: I64, stops: I64) -> _Part:
    lengths = np.diff(offsets)
    return _Part(lengths.view(np.uint8), starts * lengths.itemsize, stops * lengths.itemsize)


def _at(offsets: npt.NDArray[Any], places: I64) -> I64:
    return offsets[places].astype(np.int64)


def offset_type(dtype: pa.DataType) -> np.dtype[Any]:
    """Returns the type of the offsets of strings or lists."""
    return np.dtype(np.int64 if is_large_offsets(dtype) else np.int32)


class _Reader:
    """The bytes of packed values, from which parts are taken, one part of all values at a time."""

    def __init__(self, strings: pa.Array) -> None:
        offsets, data = binary_parts(strings)
        self._data = native.as_bytes(data)
        self._places = offsets[:-1].astype(np.int64)

    def content(
        self, dtype: pa.DataType, counts: I64, validity: pa.Buffer | None, null_count: int
    ) -> pa.Array:
        """Returns the values of a node. counts: the number of them in each packed value."""
        total = int(counts.sum())
        buffers, children = [validity], []
        width = fixed_width_bytes(dtype)
        if pt.is_boolean(dtype):
            buffers.append(pa.py_buffer(pack_bits(self._take(counts).view(np.bool_))))
        elif width is not None:
            buffers.append(pa.py_buffer(self._take(counts * width)))
        elif is_binary_like(dtype):
            offsets, sizes = self._offsets(dtype, counts)
            buffers += [offsets, pa.py_buffer(self._take(sizes))]
        elif pt.is_struct(dtype):
            children = [self._values(field.type, counts) for field in dtype.fields]
        elif pt.is_fixed_size_list(dtype):
            children = [self._values(dtype.value_type, counts * dtype.list_size)]
        else:
            offsets, sizes = self._offsets(dtype, counts)
            buffers.append(offsets)
            children = [self._values(_item_type(dtype), sizes)]
        return pa.Array.from_buffers(dtype, total, buffers, null_count, children=children)

    def _values(self, dtype: pa.DataType, counts: I64) -> pa.Array:
        if pt.is_null(dtype):
            return pa.nulls(int(counts.sum()))
        valid = self._take(counts)
        null_count = len(valid) - int(np.count_nonzero(valid))
        validity = pa.py_buffer(pack_bits(valid.view(np.bool_))) if null_count else None
        return self.content(dtype, counts, validity, null_count)

    def _offsets(self, dtype: pa.DataType, counts: I64) -> tuple[pa.Buffer, I64]:
        """Returns the running sums of lengths as offsets, and the sum of the lengths of each packed value."""
        width = offset_type(dtype)
        lengths = self._take(counts * width.itemsize).view(width)
        totals = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=totals[1:])
        if width.itemsize == 4 and totals[-1] > MAX_OFFSET_32:
            raise pa.ArrowInvalid(f"{totals[-1]} bytes or elements exceed 32-bit offsets")
        stops = np.cumsum(counts)
        sizes = totals[stops] - totals[stops - counts]
        return pa.py_buffer(totals.astype(width, copy=False)), sizes

    def _take(self, sizes: I64) -> U8:
        """Takes the next bytes of each packed value."""
        stops = np.cumsum(sizes)
        out = np.empty(int(stops[-1]) if len(stops) else 0, dtype=np.uint8)
        native.arrays.strings.copy_runs(self._data, self._places, sizes, out, stops - sizes)
        self._places += sizes
        return out


def _item_type(dtype: pa.DataType) -> pa.DataType:
    return pa.struct([dtype.key_field, dtype.item_field]) if pt.is_map(dtype) else dtype.value_type
