"""Takes nested Arrow arrays apart, moves what is in them, and puts them together again.

Arrow's own functions divide by zero for lists of size 0, treat structs without fields as empty, crash the
process if an empty child has an offset, and take other rows than they are asked for from lists of fixed size
within such lists. So Arrow only ever moves flat values, and only here (decision 66).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

I64 = npt.NDArray[np.int64]
Places = npt.NDArray[np.integer[Any]]
"""Rows of an array; a negative one stands for a null."""
_MAX_OFFSET_32: Final = 2**31 - 1
_VIEW_BYTES: Final = 16


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
    return counts, take(items, places)


def _spans(array: pa.Array) -> tuple[I64, I64]:
    """Returns where the elements of each list begin, and how many they are."""
    return _spans_at(array, slice(0, len(array)))


def _spans_at(array: pa.Array, places: slice | Places) -> tuple[I64, I64]:
    """Returns the same of some lists of an array that is not empty, without a look at others."""
    dtype, rows = array.type, slice(array.offset, array.offset + len(array))
    if not len(array):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    if pt.is_fixed_size_list(dtype):
        starts = np.arange(rows.start, rows.stop, dtype=np.int64)[places] * dtype.list_size
        counts = np.full(len(starts), dtype.list_size, dtype=np.int64)
    elif _is_view(dtype):
        buffers = array.buffers()[1:3]
        starts, counts = (
            np.frombuffer(b, _width(dtype))[rows][places].astype(np.int64) for b in buffers
        )
    else:
        offsets = np.frombuffer(array.buffers()[1], _width(dtype))[rows.start : rows.stop + 1]
        starts = offsets[:-1][places].astype(np.int64)
        counts = offsets[1:][places] - starts
    if array.null_count:
        counts[_are_null(array, places)] = 0
    return starts, counts


def _are_null(array: pa.Array, places: slice | Places) -> npt.NDArray[np.bool_]:
    """Returns whether values are null. The array must have a bitmap."""
    if isinstance(places, slice):
        return np.asarray(array.is_null())[places]
    bits = places + array.offset
    bitmap = np.frombuffer(array.buffers()[0], dtype=np.uint8)
    is_null: npt.NDArray[np.bool_] = (bitmap[bits >> 3] >> (bits & 7).astype(np.uint8)) & 1 == 0
    return is_null


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
    """Builds a list, large list, list view or map array from element counts and elements.

    Raises `pa.ArrowInvalid` where 32-bit offsets do not reach.
    """
    is_view = _is_view(dtype)
    width = _width(dtype)
    _check_elements(dtype, len(items))
    offsets = np.zeros(len(counts) + 1, dtype=width)
    np.cumsum(counts, out=offsets[1:])
    buffers = [_validity(mask), pa.py_buffer(offsets[:-1] if is_view else offsets)]
    if is_view:
        buffers.append(pa.py_buffer(counts.astype(width)))
    items = items if len(items) else no_values(items.type)
    return pa.Array.from_buffers(dtype, len(counts), buffers, -1, children=[items])


def _check_elements(dtype: pa.DataType, count: int) -> None:
    if _width(dtype) is np.int32 and count > _MAX_OFFSET_32:
        raise pa.ArrowInvalid(f"{count} elements of lists exceed 32-bit offsets")


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
    return take(items, np.where(is_hidden, -1, np.arange(len(items))))


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


def take(array: pa.Array, places: Places) -> pa.Array:
    """Returns the values of any array at places, in their order. What nested values have within is taken by
    its own places, down to flat values.

    Raises `IndexError` for a place beyond the end, `pa.ArrowInvalid` where 32-bit offsets do not reach.
    """
    dtype = array.type
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, take(array.storage, places))
    if pt.is_dictionary(dtype):
        codes = take(array.indices, places)
        return pa.DictionaryArray.from_arrays(
            codes, array.dictionary, ordered=dtype.ordered, safe=False
        )
    if pt.is_string_view(dtype) or pt.is_binary_view(dtype):
        return _take_views(array, places)
    if not pt.is_nested(dtype):
        return array.take(_indices(places))
    if len(places) and places.max() >= len(array):
        raise IndexError(f"no place {places.max()} in {len(array)} values")
    mask = _mask_at(array, places)
    if pt.is_struct(dtype):
        children = [take(array.field(place), places) for place in range(dtype.num_fields)]
        return build_struct(dtype, len(places), children, mask)
    if pt.is_fixed_size_list(dtype):
        items = take(fixed_items(array), _item_places(places, dtype.list_size))
        return build_fixed_lists(dtype, len(places), items, mask)
    return _take_lists(array, places, mask)


def keep(array: pa.Array, is_kept: npt.NDArray[np.bool_]) -> pa.Array:
    """Returns the values of any array that are to be kept."""
    if _is_flat(array.type):
        return array.filter(pa.array(is_kept))
    return take(array, np.flatnonzero(is_kept))


def concat(arrays: Sequence[pa.Array]) -> pa.Array:
    """Joins arrays of one type without dictionaries, in memory of its own.

    Raises `pa.ArrowInvalid` where 32-bit offsets do not reach.
    """
    dtype = arrays[0].type
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, concat([array.storage for array in arrays]))
    if not pt.is_nested(dtype):
        return pa.concat_arrays(arrays)
    length, mask = sum(map(len, arrays)), None
    if any(array.null_count for array in arrays):
        mask = pa.concat_arrays([array.is_null() for array in arrays])
    if pt.is_struct(dtype):
        columns = range(dtype.num_fields)
        children = [concat([array.field(place) for array in arrays]) for place in columns]
        return build_struct(dtype, length, children, mask)
    if pt.is_fixed_size_list(dtype):
        return build_fixed_lists(dtype, length, concat([fixed_items(a) for a in arrays]), mask)
    counts, items = zip(*map(list_parts, arrays), strict=True)
    return build_list(dtype, np.concatenate(counts), concat(items), mask)


def _is_flat(dtype: pa.DataType) -> bool:
    """Returns whether Arrow itself may choose among values of the type."""
    is_view = pt.is_string_view(dtype) or pt.is_binary_view(dtype)
    has_parts = isinstance(dtype, pa.BaseExtensionType) or pt.is_dictionary(dtype)
    return not (has_parts or is_view or pt.is_nested(dtype))


def _indices(places: Places) -> pa.Array:
    is_null = places < 0
    return pa.array(places, mask=is_null if is_null.any() else None)


def _mask_at(array: pa.Array, places: Places) -> pa.Array | None:
    """Returns booleans, true where a place is negative or has a null; None if there is no such place."""
    is_null = places < 0
    if array.null_count:
        is_null[~is_null] = _are_null(array, places[~is_null])
    return pa.array(is_null) if is_null.any() else None


def _item_places(places: Places, size: int) -> I64:
    """Returns the places of the elements of lists of one size."""
    items = places.astype(np.int64)[:, None] * size + np.arange(size)
    items[places < 0] = -1
    return items.reshape(-1)


def _take_lists(array: pa.Array, places: Places, mask: pa.Array | None) -> pa.Array:
    if mask is None:
        starts, counts = _spans_at(array, places)
    else:
        is_there = ~np.asarray(mask)
        starts, counts = np.zeros((2, len(places)), dtype=np.int64)
        starts[is_there], counts[is_there] = _spans_at(array, places[is_there])
    ends = np.cumsum(counts)
    items = no_values(array.values.type)
    if len(ends) and ends[-1]:
        _check_elements(array.type, int(ends[-1]))
        items = take(array.values, np.arange(ends[-1]) + np.repeat(starts - ends + counts, counts))
    return build_list(array.type, counts, items, mask)


def _take_views(array: pa.Array, places: Places) -> pa.Array:
    """Takes strings of 16 bytes that say where the text is: Arrow has no kernel for their type."""
    validity, views, *data = array.buffers()
    words = pa.Array.from_buffers(
        pa.binary(_VIEW_BYTES), len(array), [validity, views], -1, array.offset
    )
    validity, views = take(words, places).buffers()
    return pa.Array.from_buffers(array.type, len(places), [validity, views, *data])
