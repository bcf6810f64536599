"""Takes nested Arrow arrays apart, and rebuilds them; `lsm_fragment.arrays.moves` moves their elements.

Arrow's own functions divide by zero for lists of size 0, treat structs without fields as empty, and crash the
process if an empty child has an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import compute as pc
from lsm_fragment.arrays.types import MAX_OFFSET_32

I64 = npt.NDArray[np.int64]
Places = npt.NDArray[np.integer[Any]]
"""Row numbers of an array; a negative one stands for a null."""


def null_mask(array: pa.Array) -> pa.Array | None:
    """Returns booleans, true where `array` is null; None if nothing is null."""
    return array.is_null() if array.null_count else None


def no_values(dtype: pa.DataType) -> pa.Array:
    """Returns an empty array without offsets at any depth."""
    return pa.nulls(0, dtype)


def spans(array: pa.Array) -> tuple[I64, I64]:
    """Returns the start of each list's elements, and their count."""
    return spans_at(array, slice(0, len(array)))


def spans_at(array: pa.Array, places: slice | Places) -> tuple[I64, I64]:
    """`spans` for some lists of a non-empty array, without reading the others."""
    dtype, rows = array.type, slice(array.offset, array.offset + len(array))
    if not len(array):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    if pt.is_fixed_size_list(dtype):
        starts = np.arange(rows.start, rows.stop, dtype=np.int64)[places] * dtype.list_size
        counts = np.full(len(starts), dtype.list_size, dtype=np.int64)
    elif is_view(dtype):
        buffers = array.buffers()[1:3]
        starts, counts = (
            np.frombuffer(b, _width(dtype))[rows][places].astype(np.int64) for b in buffers
        )
    else:
        offsets = np.frombuffer(array.buffers()[1], _width(dtype))[rows.start : rows.stop + 1]
        starts = offsets[:-1][places].astype(np.int64)
        counts = offsets[1:][places] - starts
    if array.null_count:
        counts[are_null(array, places)] = 0
    return starts, counts


def are_null(array: pa.Array, places: slice | Places) -> npt.NDArray[np.bool_]:
    """Returns whether values are null. The array must have a bitmap."""
    if isinstance(places, slice):
        return np.asarray(array.is_null())[places]
    return ~bits_at(array.buffers()[0], places + array.offset)


def bits_at(bitmap: pa.Buffer, places: Places) -> npt.NDArray[np.bool_]:
    """Returns the bits of a bitmap at places."""
    found = np.frombuffer(bitmap, dtype=np.uint8)[places >> 3] >> (places & 7).astype(np.uint8)
    bits: npt.NDArray[np.bool_] = (found & 1).astype(np.bool_)
    return bits


def is_view(dtype: pa.DataType) -> bool:
    return bool(pt.is_list_view(dtype) or pt.is_large_list_view(dtype))


def _width(dtype: pa.DataType) -> type[np.int32 | np.int64]:
    return np.int64 if pt.is_large_list(dtype) or pt.is_large_list_view(dtype) else np.int32


def with_values(array: pa.Array, values: pa.Array) -> pa.Array:
    """Returns a list of any kind, or a map, over other values of its type at the same offsets."""
    buffers = array.buffers()[: array.type.num_buffers]
    return pa.Array.from_buffers(
        array.type, len(array), buffers, -1, array.offset, children=[values]
    )


def build_list(dtype: pa.DataType, counts: I64, items: pa.Array, mask: pa.Array | None) -> pa.Array:
    """Builds a list, large list, list view or map array from element counts and elements.

    Raises `pa.ArrowInvalid` if the elements exceed 32-bit offsets.
    """
    has_sizes = is_view(dtype)
    width = _width(dtype)
    check_elements(dtype, len(items))
    offsets = np.zeros(len(counts) + 1, dtype=width)
    np.cumsum(counts, out=offsets[1:])
    buffers = [_validity(mask), pa.py_buffer(offsets[:-1] if has_sizes else offsets)]
    if has_sizes:
        buffers.append(pa.py_buffer(counts.astype(width)))
    items = items if len(items) else no_values(items.type)
    return pa.Array.from_buffers(dtype, len(counts), buffers, -1, children=[items])


def check_elements(dtype: pa.DataType, count: int) -> None:
    if _width(dtype) is np.int32 and count > MAX_OFFSET_32:
        raise pa.ArrowInvalid(f"{count} elements of lists exceed 32-bit offsets")


def fixed_items(array: pa.Array) -> pa.Array:
    """Returns the elements of fixed-size lists, including those of null lists, end to end."""
    size = array.type.list_size
    if not size * len(array):
        return no_values(array.type.value_type)
    return array.values.slice(array.offset * size, len(array) * size)


def build_fixed_lists(
    dtype: pa.DataType, length: int, items: pa.Array, mask: pa.Array | None
) -> pa.Array:
    """Builds `length` lists of a fixed size, which may be 0, from all elements, including those of null
    lists."""
    return pa.Array.from_buffers(dtype, length, [_validity(mask)], -1, children=[items])


def build_struct(
    dtype: pa.DataType, length: int, children: Sequence[pa.Array], mask: pa.Array | None
) -> pa.Array:
    """Builds `length` structs, which may have no fields."""
    children = children if length else [no_values(child.type) for child in children]
    return pa.Array.from_buffers(dtype, length, [_validity(mask)], -1, children=list(children))


def _validity(mask: pa.Array | None) -> Any:
    return None if mask is None else pc.invert(mask).buffers()[1]
