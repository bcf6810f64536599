"""Nested Arrow arrays in parts, and out of parts again.

Arrow's own ways divide by zero for lists of size 0, take structs without fields for empty, and end the
process where an empty child has an offset. So arrays are taken apart and put together here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt


def null_mask(array: pa.Array) -> pa.Array | None:
    """Booleans, true where `array` is null; None when nothing is."""
    return array.is_null() if array.null_count else None


def no_values(dtype: pa.DataType) -> pa.Array:
    """An empty array, without offsets at any depth."""
    return pa.nulls(0, dtype)


def list_parts(array: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Element counts (0 for null lists) and the elements of all non-null lists, end to end.

    Maps give their entries as structs of key and value.
    """
    if array.null_count == len(array):
        # Arrow can't flatten nulls alone of extensions, nor no lists at all that begin somewhere.
        return np.zeros(len(array), dtype=np.int64), no_values(_item_type(array.type))
    if pt.is_list_view(array.type) or pt.is_large_list_view(array.type):
        return _view_parts(array)
    if pt.is_map(array.type):
        array = _map_as_list(array)
    counts = pc.list_value_length(array)
    if array.null_count:
        counts = counts.fill_null(0)
    items = array.flatten()
    if not len(items):
        items = no_values(items.type)
    return counts.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), items


def with_values(array: pa.Array, dtype: pa.DataType, values: pa.Array) -> pa.Array:
    """A list of any kind, or a map, of another type over other values in the same places."""
    buffers = array.buffers()[: dtype.num_buffers]
    return pa.Array.from_buffers(dtype, len(array), buffers, -1, array.offset, children=[values])


def _view_parts(array: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Of list views, whose elements Arrow's own way builds anew, and not of every type."""
    rows = slice(array.offset, array.offset + len(array))
    starts, sizes = (
        np.frombuffer(buffer, _width(array.type))[rows] for buffer in array.buffers()[1:3]
    )
    counts = sizes.astype(np.int64)
    if array.null_count:
        counts[np.asarray(array.is_null())] = 0
    ends = np.cumsum(counts)
    shifts = starts.astype(np.int64) - (ends - counts)
    used = shifts[counts > 0]
    if not len(used):
        return counts, no_values(array.type.value_type)
    if (used == used[0]).all():
        return counts, array.values.slice(int(used[0]), int(ends[-1]))
    places = np.arange(ends[-1]) + np.repeat(shifts, counts)
    return counts, array.values.take(pa.array(places))


def _width(dtype: pa.DataType) -> type[np.int32 | np.int64]:
    return np.int64 if pt.is_large_list(dtype) or pt.is_large_list_view(dtype) else np.int32


def _item_type(dtype: pa.DataType) -> pa.DataType:
    is_map = pt.is_map(dtype)
    return pa.struct([dtype.key_field, dtype.item_field]) if is_map else dtype.value_type


def _map_as_list(array: pa.Array) -> pa.Array:
    dtype = pa.list_(pa.field("entries", _item_type(array.type), nullable=False))
    validity, offsets = array.buffers()[:2]
    entries = build_struct(dtype.value_type, len(array.keys), [array.keys, array.items], None)
    return pa.Array.from_buffers(
        dtype, len(array), [validity, offsets], -1, array.offset, children=[entries]
    )


def build_list(
    dtype: pa.DataType, counts: npt.NDArray[np.int64], items: pa.Array, mask: pa.Array | None
) -> pa.Array:
    """A list, large list, list view or map array from element counts and elements."""
    is_view = pt.is_list_view(dtype) or pt.is_large_list_view(dtype)
    width = _width(dtype)
    offsets = np.zeros(len(counts) + 1, dtype=width)
    np.cumsum(counts, out=offsets[1:])
    buffers = [_validity(mask), pa.py_buffer(offsets[:-1] if is_view else offsets)]
    if is_view:
        buffers.append(pa.py_buffer(counts.astype(width)))
    items = items if len(items) else no_values(items.type)
    return pa.Array.from_buffers(dtype, len(counts), buffers, -1, children=[items])


def fixed_items(array: pa.Array) -> pa.Array:
    """The elements of lists of fixed size, null ones included, end to end."""
    size = array.type.list_size
    if not size * len(array):
        return no_values(array.type.value_type)
    return array.values.slice(array.offset * size, len(array) * size)


def build_fixed_lists(
    dtype: pa.DataType, length: int, items: pa.Array, mask: pa.Array | None
) -> pa.Array:
    """So many lists of fixed size, which may be 0, from their elements, those of null lists included."""
    return pa.Array.from_buffers(dtype, length, [_validity(mask)], -1, children=[items])


def build_struct(
    dtype: pa.DataType, length: int, children: Sequence[pa.Array], mask: pa.Array | None
) -> pa.Array:
    """So many structs, which may have no fields."""
    children = children if length else [no_values(child.type) for child in children]
    return pa.Array.from_buffers(dtype, length, [_validity(mask)], -1, children=list(children))


def _validity(mask: pa.Array | None) -> Any:
    return None if mask is None else pc.invert(mask).buffers()[1]
