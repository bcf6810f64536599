"""Casts values of one type to another, exactly or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import compute as pc
from lsm_fragment.arrays.decimals import decimal_texts
from lsm_fragment.arrays.json_texts import json_texts
from lsm_fragment.arrays.moves import list_parts, take
from lsm_fragment.arrays.nested import (
    build_fixed_lists,
    build_list,
    build_struct,
    fixed_items,
    null_mask,
)
from lsm_fragment.arrays.storage import decoded, to_logical, to_storage
from lsm_fragment.arrays.times import UNITS_PER_SECOND, time_texts
from lsm_fragment.arrays.types import (
    MAX_OFFSET_32,
    is_large_offsets,
    is_string,
    storage_type,
    value_type,
)
from lsm_fragment.arrays.widening import becomes_json

CastLeaf = Callable[[pa.Array, pa.DataType], pa.Array]
"""Casts a flat array. Raises `pa.ArrowException` for a value that does not fit."""


def exact_range(source: pa.DataType, target: pa.DataType) -> tuple[int, int] | None:
    """Returns the range of stored numbers of `source` that `target` can hold; None if it can hold all. A
    column of `source` must be readable as `target`."""
    if not (pt.is_timestamp(source) and pt.is_timestamp(target)):
        return None
    factor = UNITS_PER_SECOND[target.unit] // UNITS_PER_SECOND[source.unit]
    return None if factor <= 1 else (-((2**63 - 1) // factor), (2**63 - 1) // factor)


def as_text(array: pa.Array) -> pa.Array:
    """Converts numbers, booleans, dates and times to large strings; nulls stay null."""
    if pt.is_timestamp(array.type) or pt.is_date(array.type):
        return time_texts(array)
    return decimal_texts(array) if pt.is_decimal(array.type) else array.cast(pa.large_string())


def iso_text(array: pa.Array) -> pa.Array:
    """Converts as `as_text`, with a T between date and time, as in ISO 8601."""
    text = as_text(array)
    if pt.is_timestamp(array.type):
        return pc.replace_substring(text, " ", "T", max_replacements=1)
    return text


def cast_exactly(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Casts a flat array; times become text in ISO 8601. Raises `pa.ArrowInvalid` for a value that would
    change."""
    if array.type == dtype:
        return array
    bounds = exact_range(array.type, dtype)
    if bounds is not None:
        ends = pc.min_max(array.view(pa.int64()))
        for end in (ends["min"].as_py(), ends["max"].as_py()):
            if end is not None and not bounds[0] <= end <= bounds[1]:
                found = pa.array([end], pa.int64()).view(array.type)
                shown = iso_text(found)[0] if pt.is_timestamp(array.type) else end
                raise pa.ArrowInvalid(f"{shown} of type {array.type} has no place in {dtype}")
    if is_string(dtype):
        return iso_text(array).cast(dtype)
    return array.cast(dtype)


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yields the flat arrays within a storage array, without the values under nulls."""
    dtype = array.type
    if pt.is_dictionary(dtype):
        yield from leaves(decoded(array) if pt.is_nested(dtype.value_type) else array.dictionary)
    elif pt.is_struct(dtype):
        for child in array.flatten():
            yield from leaves(child)
    elif pt.is_nested(dtype):
        yield from leaves(list_parts(array)[1])
    else:
        yield array


def cast_storage(
    array: pa.Array, dtype: pa.DataType, cast_leaf: CastLeaf = cast_exactly
) -> pa.Array:
    """Casts a storage array to another storage type of the same shape.

    Lists may have offsets of either width. Struct fields match by name; missing ones become null. Arrow's own
    cast returns wrong lists for a slice of lists of nulls, and lacks casts for some child types.
    Raises what `cast_leaf` raises.
    """
    if pt.is_null(array.type):
        return pa.nulls(len(array), dtype)
    if pt.is_dictionary(array.type):
        try:
            values = cast_storage(array.dictionary, dtype, cast_leaf)
        except pa.ArrowInvalid:  # possibly for a value that no row uses
            return cast_storage(decoded(array), dtype, cast_leaf)
        return pa.DictionaryArray.from_arrays(array.indices, values, safe=False)
    if not pt.is_nested(dtype):
        return cast_leaf(array, dtype)
    mask = null_mask(array)
    if pt.is_struct(dtype):
        return _cast_struct(array, dtype, mask, cast_leaf)
    if pt.is_fixed_size_list(dtype):
        items = cast_storage(_items_of_size(array, dtype, mask), dtype.value_type, cast_leaf)
        return build_fixed_lists(dtype, len(array), items, mask)
    counts, items = list_parts(array)
    if not is_large_offsets(dtype) and len(items) > MAX_OFFSET_32:
        raise pa.ArrowInvalid(f"{len(items)} elements of lists have no place in {dtype}")
    if pt.is_map(dtype):  # the names of keys and values do not matter
        items = _cast_struct(items, dtype.field(0).type, None, cast_leaf, by_place=True)
    else:
        items = cast_storage(items, dtype.value_type, cast_leaf)
    return build_list(dtype, counts, items, mask)


def _items_of_size(
    array: pa.Array, dtype: pa.FixedSizeListType, mask: pa.BooleanArray | None
) -> pa.Array:
    """Returns the elements of lists of any kind, `dtype.list_size` for each; nulls for a null list, whose own
    elements are undefined. Raises `pa.ArrowInvalid` for a list of another length."""
    size = dtype.list_size
    is_null = np.zeros(len(array), np.bool_)
    if mask is not None:
        is_null = mask.to_numpy(zero_copy_only=False)
    if pt.is_fixed_size_list(array.type):
        items, places = fixed_items(array), np.arange(len(array) * size)
    else:
        counts, items = list_parts(array)
        others = counts[~is_null & (counts != size)]
        if len(others):
            raise pa.ArrowInvalid(f"a list of {others[0]} elements has no place in {dtype}")
        places = np.cumsum(np.repeat(~is_null, size)) - 1
    if mask is None:
        return items
    return take(items, np.where(np.repeat(is_null, size), -1, places))


def _cast_struct(
    array: pa.StructArray,
    dtype: pa.StructType,
    mask: pa.Array | None,
    cast_leaf: CastLeaf,
    *,
    by_place: bool = False,
) -> pa.Array:
    found = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    if by_place or len(found) < array.type.num_fields:  # a name occurs twice
        pairs = zip(array.flatten(), dtype.fields, strict=True)
        children = [cast_storage(child, field.type, cast_leaf) for child, field in pairs]
    else:
        children = [
            cast_storage(found[field.name], field.type, cast_leaf)
            if field.name in found
            else pa.nulls(len(array), field.type)
            for field in dtype.fields
        ]
    return build_struct(dtype, len(array), children, mask)


def as_type(array: pa.Array, dtype: pa.DataType, cast_leaf: CastLeaf = cast_exactly) -> pa.Array:
    """Casts an array to another type of the same shape. Raises what `cast_leaf` and `to_logical` raise."""
    if array.type.equals(dtype, check_metadata=True):
        return array
    return to_logical(cast_storage(to_storage(array), storage_type(dtype), cast_leaf), dtype)


def as_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Casts the columns, in their order, to those of another schema. Raises what `as_type` raises."""
    pairs = zip(batch.columns, schema, strict=True)
    columns = [as_type(column, field.type) for column, field in pairs]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def read_as(array: pa.Array, stored: pa.DataType, wanted: pa.DataType) -> pa.Array:
    """Converts a storage array of a column of type `stored` to the storage type of `wanted`, which it widens,
    converts or becomes JSON to.

    Raises `pa.ArrowInvalid` for a value that does not fit.
    """
    return widened(
        json_texts(array) if becomes_json(stored, wanted) else array, storage_type(wanted)
    )


def widened(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Casts a storage array, possibly dictionary-coded, to `dtype`, to which its type widens or converts.

    Raises `pa.ArrowInvalid` for a value that does not fit.
    """
    return array if value_type(array.type) == dtype else cast_storage(array, dtype)
