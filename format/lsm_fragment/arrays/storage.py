"""Converts logical arrays to the plain arrays that are stored, and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import compute as pc
from lsm_fragment import native
from lsm_fragment.arrays.buffers import binary_parts, dictionary_codes, pack_bits, valid_mask
from lsm_fragment.arrays.dictionaries import coded, without_null_values
from lsm_fragment.arrays.moves import list_parts, take
from lsm_fragment.arrays.nested import (
    build_fixed_lists,
    build_list,
    build_struct,
    fixed_items,
    null_mask,
)
from lsm_fragment.arrays.templated import text
from lsm_fragment.arrays.types import is_binary_like, may_be_coded, storage_type
from lsm_fragment.errors import SchemaError


def to_storage(array: pa.Array) -> pa.Array:
    """Converts `array` to its storage form.

    Top-level dictionaries stay dictionary-coded, over non-null storage values, if the format has dictionaries
    of their type.
    """
    dtype = array.type
    if pt.is_dictionary(dtype) and may_be_coded(storage_type(dtype)):
        indices = array.indices
        if indices.type != pa.int32():
            indices = indices.cast(pa.int32())
        values = _decoded_storage(array.dictionary)
        return without_null_values(pa.DictionaryArray.from_arrays(indices, values))
    return _decoded_storage(array)


def _decoded_storage(array: pa.Array) -> pa.Array:
    dtype = array.type
    if dtype == storage_type(dtype):
        return array
    if isinstance(dtype, pa.BaseExtensionType):
        return _decoded_storage(array.storage)
    if pt.is_dictionary(dtype):
        values = _decoded_storage(array.dictionary)  # Arrow cannot take values of views
        return decoded(pa.DictionaryArray.from_arrays(array.indices, values, safe=False))
    if pt.is_string_view(dtype) or pt.is_binary_view(dtype):
        return array.cast(storage_type(dtype))
    if pt.is_struct(dtype):
        children = [_decoded_storage(child) for child in array.flatten()]
        return build_struct(storage_type(dtype), len(array), children, null_mask(array))
    if pt.is_fixed_size_list(dtype):
        items = _decoded_storage(fixed_items(array))
        return build_fixed_lists(storage_type(dtype), len(array), items, null_mask(array))
    counts, items = list_parts(array, _decoded_storage)
    return build_list(storage_type(dtype), counts, items, null_mask(array))


def to_logical(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Presents a storage array as `dtype`; the inverse of `to_storage`.

    Raises `SchemaError` if a dictionary has more values than its index type can count.
    """
    if array.type == dtype:
        return array
    if pt.is_dictionary(array.type) and not pt.is_dictionary(dtype):
        return to_logical(decoded(array), dtype)
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, to_logical(array, dtype.storage_type))
    if pt.is_dictionary(dtype):
        return _to_dictionary(array, dtype)
    if pt.is_string_view(dtype) or pt.is_binary_view(dtype):
        return array.cast(dtype)
    if pt.is_struct(dtype):
        children = [
            to_logical(child, field.type)
            for child, field in zip(array.flatten(), dtype.fields, strict=True)
        ]
        return build_struct(dtype, len(array), children, null_mask(array))
    if pt.is_fixed_size_list(dtype):
        items = to_logical(fixed_items(array), dtype.value_type)
        return build_fixed_lists(dtype, len(array), items, null_mask(array))
    counts, items = list_parts(array)
    if pt.is_map(dtype):
        items = to_logical(items, pa.struct([dtype.key_field, dtype.item_field]))
    else:
        items = to_logical(items, dtype.value_type)
    return build_list(dtype, counts, items, null_mask(array))


def _to_dictionary(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    encoded = array if pt.is_dictionary(array.type) else coded(array)
    if len(encoded.dictionary) > len(array):
        encoded = coded(decoded(encoded))  # a slice may need fewer values
    values = to_logical(encoded.dictionary, dtype.value_type)
    try:
        indices = encoded.indices.cast(dtype.index_type)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"{len(values)} distinct values do not fit dictionary indices of type "
            f"{dtype.index_type}: use a wider index type"
        ) from error
    return pa.DictionaryArray.from_arrays(indices, values, ordered=dtype.ordered)


def decoded(array: pa.Array) -> pa.Array:
    """Returns the values of a dictionary-coded array, one for each row."""
    values, indices = array.dictionary, array.indices
    if not len(values):
        return pa.nulls(len(indices), values.type)
    if is_binary_like(values.type):
        return _decoded_strings(without_null_values(array))
    if pt.is_nested(values.type):
        valid, codes = valid_mask(indices), dictionary_codes(array).astype(np.int64, copy=False)
        return take(values, codes if valid is None else np.where(valid, codes, -1))
    return pc.take(values, indices, boundscheck=False)


def _decoded_strings(array: pa.Array) -> pa.Array:
    """Allocates exactly the bytes of the values. Arrow would reserve the average value size for every row,
    even if long values are rarely used."""
    valid = valid_mask(array.indices)
    codes = dictionary_codes(array).astype(np.int32, copy=False)
    offsets, data = binary_parts(array.dictionary)
    placed = np.empty(len(codes) + 1, dtype=offsets.dtype)
    size = native.arrays.strings.offsets_by_code(codes, native.as_flags(valid), offsets, placed)
    if size < 0:
        raise pa.ArrowInvalid("a code has no value in its dictionary")
    if size > np.iinfo(offsets.dtype).max:
        raise pa.ArrowInvalid(f"{size} bytes of strings exceed 32-bit offsets")
    out = pa.allocate_buffer(size)
    native.arrays.strings.strings_by_code(
        codes, offsets, native.as_bytes(data), placed, np.frombuffer(out, dtype=np.uint8)
    )
    bitmap = None if valid is None else pa.py_buffer(pack_bits(valid))
    buffers = [bitmap, pa.py_buffer(placed), out]
    return pa.Array.from_buffers(array.dictionary.type, len(codes), buffers, array.null_count)


def plain(array: pa.Array) -> pa.Array:
    """Returns the values of a plain, dictionary-coded or templated array."""
    return decoded(array) if pt.is_dictionary(array.type) else text(array)
