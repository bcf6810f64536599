"""Normalises arrays from outside to the one form that all code here relies on.

Some of Arrow's functions crash the process or mix up values if an empty child has an offset, the entries of a
map are a slice, or a dictionary contains a null. All of that is valid Arrow; this module removes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.nested import build_struct, no_values, null_mask, with_values
from lsm_fragment.arrays.storage import to_logical, to_storage

_Change = Callable[[pa.Array], pa.Array]


def canonical(
    batch: pa.RecordBatch, validate: Callable[[pa.RecordBatch], object]
) -> pa.RecordBatch:
    """Returns the same rows without nulls in dictionaries (they become null indices) and without empty sliced
    children, at any depth. Flat columns are skipped, others are not copied.

    validate: called between the two steps, when arrays can be taken apart; raises for invalid values.
    Raises `ValueError` naming the column for a map with a key that is null in its dictionary.
    """
    places = [place for place, dtype in enumerate(batch.schema.types) if _has_parts(dtype)]
    batch = _changed(batch, places, _without_slices)
    validate(batch)
    return _changed(batch, places, _without_null_values)


def _changed(batch: pa.RecordBatch, places: list[int], change: _Change) -> pa.RecordBatch:
    for place in places:
        array, field = batch.column(place), batch.schema.field(place)
        try:
            other = change(array)
        except ValueError as error:
            raise ValueError(f"column {field.name!r}: {error}") from error
        if other is not array:
            batch = batch.set_column(place, field, other)
    return batch


@lru_cache(maxsize=1024)
def _has_parts(dtype: pa.DataType) -> bool:
    """Returns whether arrays of the type contain other arrays."""
    if isinstance(dtype, pa.BaseExtensionType):
        return _has_parts(dtype.storage_type)
    return bool(pt.is_nested(dtype) or pt.is_dictionary(dtype))


def _without_slices(array: pa.Array) -> pa.Array:
    """Removes empty slices. Reads only lengths and offsets, since values may still be invalid."""
    if not len(array):
        return no_values(array.type)
    if pt.is_map(array.type) and (entries := array.values).offset:
        # `keys` and `items` of a map ignore the offset of its entries.
        children = [entries.field(0), entries.field(1)]
        array = _over(array, build_struct(entries.type, len(entries), children, None))
    return _with_children(array, _without_slices)


def _without_null_values(array: pa.Array) -> pa.Array:
    if not pt.is_dictionary(array.type):
        return _with_children(array, _without_null_values)
    if not array.dictionary.null_count or array.null_count == len(array):
        return array
    return to_logical(to_storage(array), array.type)


def _with_children(array: pa.Array, change: _Change) -> pa.Array:
    """Changes the children of an array. Returns the array itself if no child changes."""
    dtype = array.type
    if isinstance(dtype, pa.BaseExtensionType):
        storage = array.storage
        changed = change(storage)
        return array if changed is storage else pa.ExtensionArray.from_storage(dtype, changed)
    if pt.is_dictionary(dtype):
        values = array.dictionary
        changed = change(values)
        if changed is values:
            return array
        return pa.DictionaryArray.from_arrays(
            array.indices, changed, ordered=dtype.ordered, safe=False
        )
    if pt.is_struct(dtype):
        children = [array.field(place) for place in range(dtype.num_fields)]
        others = [change(child) for child in children]
        if all(one is other for one, other in zip(children, others, strict=True)):
            return array
        return build_struct(dtype, len(array), others, null_mask(array))
    if not pt.is_nested(dtype):
        return array
    values = array.values
    changed = change(values)
    return array if changed is values else _over(array, changed)


def _over(array: pa.Array, values: pa.Array) -> pa.Array:
    """Returns a list of any kind, or a map, over other values at the same offsets.

    Raises `ValueError` for null keys of a map, which would crash the process.
    """
    if pt.is_map(array.type) and values.field(0).null_count:
        raise ValueError("a map has a key that is null")
    return with_values(array, values)
