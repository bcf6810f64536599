"""Takes nested Arrow arrays apart, and puts them together again.

Arrow's own functions divide by zero for lists of size 0, treat structs without fields as empty, and crash the
process if an empty child has an offset. So this module takes their place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

I64 = npt.NDArray[np.int64]


def null_mask(array: pa.Array) -> pa.Array | None:
    """Returns booleans, true where `array` is null; None if nothing is null."""
    return array.is_null() if array.null_count else None


def no_values(dtype: pa.DataType) -> pa.Array:
    """Returns an empty array without offsets at any depth."""
    return pa.nulls(0, dtype)


def list_parts(
    array: pa.Array, change: Callable[[pa.Array], pa.Array] = lambda items: items
) -> tuple[I64, pa.Array]:
    """Returns element counts (0 for null lists) and the elements of all non-null lists, end to end.

    Maps give their entries as structs of key and value. change: applied to elements before they are put in
    order, which Arrow cannot do for all types.
    """
    starts, counts = _spans(array)
    total = int(counts.sum())
    if not total:
        return counts, change(no_values(array.values.type))
    if not _is_view(array.type) and starts[-1] + counts[-1] - starts[0] == total:
        return counts, change(array.values.slice(int(starts[0]), total))  # no gaps
    is_used = counts > 0
    ends = np.cumsum(counts)
    shifts = (starts - ends + counts)[is_used]
    """How far each list's elements move."""
    if (shifts == shifts[0]).all():
        return counts, change(array.values.slice(int(shifts[0]), total))
    low, high = int(starts[is_used].min()), int((starts + counts)[is_used].max())
    items = change(array.values.slice(low, high - low))
    places = np.arange(total) + np.repeat(shifts - low, counts[is_used])
    return counts, items.take(pa.array(places))


def _spans(array: pa.Array) -> tuple[I64, I64]:
    """Returns where the elements of each list begin, and how many they are."""
    dtype, rows = array.type, slice(array.offset, array.offset + len(array))
    if not len(array):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    if pt.is_fixed_size_list(dtype):
        starts = np.arange(rows.start, rows.stop, dtype=np.int64) * dtype.list_size
        counts = np.full(len(array), dtype.list_size, dtype=np.int64)
    elif _is_view(dtype):
        buffers = array.buffers()[1:3]
        starts, counts = (np.frombuffer(b, _width(dtype))[rows].astype(np.int64) for b in buffers)
    else:
        offsets = np.frombuffer(array.buffers()[1], _width(dtype))[rows.start : rows.stop + 1]
        starts = offsets[:-1].astype(np.int64)
        counts = offsets[1:] - starts
    if array.null_count:
        counts[np.asarray(array.is_null())] = 0
    return starts, counts


def _is_view(dtype: pa.DataType) -> bool:
    return bool(pt.is_list_view(dtype) or pt.is_large_list_view(dtype))


def _width(dtype: pa.DataType) -> type[np.int32 | np.int64]:
    return np.int64 if pt.is_large_list(dtype) or pt.is_large_list_view(dtype) else np.int32


def with_values(array: pa.Array, values: pa.Array) -> pa.Array:
    """Returns a list of any kind, or a map, over other values of its type in the same places."""
    buffers = array.buffers()[: array.type.num_buffers]
    return pa.Array.from_buffers(
        array.type, len(array), buffers, -1, array.offset, children=[values]
    )


def build_list(dtype: pa.DataType, counts: I64, items: pa.Array, mask: pa.Array | None) -> pa.Array:
    """Builds a list, large list, list view or map array from element counts and elements."""
    is_view = _is_view(dtype)
    width = _width(dtype)
    offsets = np.zeros(len(counts) + 1, dtype=width)
    np.cumsum(counts, out=offsets[1:])
    buffers = [_validity(mask), pa.py_buffer(offsets[:-1] if is_view else offsets)]
    if is_view:
        buffers.append(pa.py_buffer(counts.astype(width)))
    items = items if len(items) else no_values(items.type)
    return pa.Array.from_buffers(dtype, len(counts), buffers, -1, children=[items])


def fixed_items(array: pa.Array) -> pa.Array:
    """Returns the elements of lists of fixed size, those of null lists included, end to end."""
    size = array.type.list_size
    if not size * len(array):
        return no_values(array.type.value_type)
    return array.values.slice(array.offset * size, len(array) * size)


def present_items(array: pa.Array) -> pa.Array:
    """Returns what `fixed_items` does, but null where a null list hides elements."""
    items = fixed_items(array)
    if not array.null_count or not len(items) or pt.is_null(items.type):
        return items
    is_hidden = np.repeat(np.asarray(array.is_null()), array.type.list_size)
    if not (is_hidden & np.asarray(items.is_valid())).any():
        return items
    return items.take(pa.array(np.arange(len(items)), mask=is_hidden))


def build_fixed_lists(
    dtype: pa.DataType, length: int, items: pa.Array, mask: pa.Array | None
) -> pa.Array:
    """Builds `length` lists of a fixed size, which may be 0, from all their elements, null lists included."""
    return pa.Array.from_buffers(dtype, length, [_validity(mask)], -1, children=[items])


def build_struct(
    dtype: pa.DataType, length: int, children: Sequence[pa.Array], mask: pa.Array | None
) -> pa.Array:
    """Builds `length` structs, which may have no fields."""
    children = children if length else [no_values(child.type) for child in children]
    return pa.Array.from_buffers(dtype, length, [_validity(mask)], -1, children=list(children))


def _validity(mask: pa.Array | None) -> Any:
    return None if mask is None else pc.invert(mask).buffers()[1]
