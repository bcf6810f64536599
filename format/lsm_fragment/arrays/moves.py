"""Takes, filters and joins values of any type. Nested values move by positions or runs of their elements.

Arrow's kernels take wrong rows from nested lists of fixed size, and lack views and dictionaries. So they only
move flat values, and only here (decision 66).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import boolean_array, integer_array
from lsm_fragment.arrays.nested import (
    I64,
    Places,
    are_null,
    build_fixed_lists,
    build_list,
    build_struct,
    check_elements,
    fixed_items,
    is_view,
    no_values,
    spans,
    spans_at,
)
from lsm_fragment.arrays.runs import take_runs

_VIEW_BYTES: Final = 16


def take(array: pa.Array, places: Places) -> pa.Array:
    """Returns the values of any array at places. Elements of nested values are taken by their own places,
    down to flat values.

    Raises `IndexError` for a place beyond the end, `pa.ArrowInvalid` if the result exceeds 32-bit offsets.
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


def take_columns(columns: Iterable[tuple[str, pa.Array]], places: Places) -> dict[str, pa.Array]:
    """Returns the values of several arrays of one length at places, as `take` does."""
    indices = _indices(places)
    return {
        name: array.take(indices) if _is_flat(array.type) else take(array, places)
        for name, array in columns
    }


def keep(array: pa.Array, is_kept: npt.NDArray[np.bool_] | pa.BooleanArray) -> pa.Array:
    """Returns the values of any array where `is_kept` is true; it has no nulls."""
    if _is_flat(array.type):
        return array.filter(boolean_array(is_kept))
    return take(array, np.flatnonzero(is_kept))


def replaced(values: pa.Array, is_replaced: npt.NDArray[np.bool_], others: pa.Array) -> pa.Array:
    """Replaces the values where `is_replaced` is true by `others`, in order."""
    at = np.arange(len(values))
    at[is_replaced] = len(values) + np.arange(len(others))
    return take(concat([values, others]), at)


def concat(arrays: Sequence[pa.Array]) -> pa.Array:
    """Joins arrays of one type without dictionaries, into memory of its own.

    Raises `pa.ArrowInvalid` if the result exceeds 32-bit offsets.
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
    """Returns whether Arrow's own filter is correct for the type."""
    is_view = pt.is_string_view(dtype) or pt.is_binary_view(dtype)
    has_parts = isinstance(dtype, pa.BaseExtensionType) or pt.is_dictionary(dtype)
    return not (has_parts or is_view or pt.is_nested(dtype))


def _indices(places: Places) -> pa.Array:
    is_valid = places >= 0
    return integer_array(places, None if is_valid.all() else is_valid)


def _mask_at(array: pa.Array, places: Places) -> pa.Array | None:
    """Returns booleans, true where a place is negative or has a null; None if there are none."""
    is_null = places < 0
    if array.null_count:
        is_null[~is_null] = are_null(array, places[~is_null])
    return pa.array(is_null) if is_null.any() else None


def _item_places(places: Places, size: int) -> I64:
    """Returns the places of the elements of fixed-size lists."""
    items = places.astype(np.int64)[:, None] * size + np.arange(size)
    items[places < 0] = -1
    return items.reshape(-1)


def _take_lists(array: pa.Array, places: Places, mask: pa.Array | None) -> pa.Array:
    if mask is None:
        starts, counts = spans_at(array, places)
    else:
        is_there = ~np.asarray(mask)
        starts, counts = np.zeros((2, len(places)), dtype=np.int64)
        starts[is_there], counts[is_there] = spans_at(array, places[is_there])
    check_elements(array.type, int(counts.sum()))
    return build_list(array.type, counts, take_runs(array.values, starts, counts), mask)


def _take_views(array: pa.Array, places: Places) -> pa.Array:
    """Takes the 16-byte views of strings: Arrow has no kernel for their type."""
    validity, views, *data = array.buffers()
    words = pa.Array.from_buffers(
        pa.binary(_VIEW_BYTES), len(array), [validity, views], -1, array.offset
    )
    validity, views = take(words, places).buffers()
    return pa.Array.from_buffers(array.type, len(places), [validity, views, *data])


def list_parts(
    array: pa.Array, change: Callable[[pa.Array], pa.Array] = lambda items: items
) -> tuple[I64, pa.Array]:
    """Returns element counts (0 for null lists) and the elements of all non-null lists, end to end.

    Entries of maps are structs of key and value. change: applied to elements before they are reordered, which
    Arrow cannot do for all types.
    """
    starts, counts = spans(array)
    total = int(counts.sum())
    if not total:
        return counts, change(no_values(array.values.type))
    if not is_view(array.type) and starts[-1] + counts[-1] - starts[0] == total:
        return counts, change(array.values.slice(int(starts[0]), total))  # no gaps
    is_used = counts > 0
    ends = np.cumsum(counts)
    shifts = (starts - ends + counts)[is_used]
    """The distance that each list's elements move."""
    if (shifts == shifts[0]).all():
        return counts, change(array.values.slice(int(shifts[0]), total))
    low, high = int(starts[is_used].min()), int((starts + counts)[is_used].max())
    items = change(array.values.slice(low, high - low))
    return counts, take_runs(items, starts[is_used] - low, counts[is_used])


def present_items(array: pa.Array) -> pa.Array:
    """Returns `fixed_items`, with null for the hidden elements of null lists."""
    items = fixed_items(array)
    if not array.null_count or not len(items) or pt.is_null(items.type):
        return items
    is_hidden = np.repeat(np.asarray(array.is_null()), array.type.list_size)
    if not (is_hidden & np.asarray(items.is_valid())).any():
        return items
    return take(items, np.where(is_hidden, -1, np.arange(len(items))))
