"""Joins, reorders and masks arrays, plain and dictionary-coded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import compute as pc
from lsm_fragment import native
from lsm_fragment.arrays.buffers import dictionary_codes, integer_array, valid_mask
from lsm_fragment.arrays.dictionaries import unified
from lsm_fragment.arrays.moves import concat, take
from lsm_fragment.arrays.storage import plain, to_logical, to_storage
from lsm_fragment.arrays.templated import coded_templates, numbers_of, templated, texts_of
from lsm_fragment.arrays.types import is_templated, is_worded, storage_type
from lsm_fragment.arrays.worded import numbers_with_nulls, worded, words_in
from lsm_fragment.encodings.node import IntArray

I32 = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


def batch_of(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Makes a batch of columns. It has `rows` rows even if there is no column."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(
        pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    )


def with_nulls_of(other: pa.Array, values: pa.Array) -> pa.Array:
    """Returns values, null where another array of the same length is null."""
    return pc.if_else(other.is_valid(), values, None) if other.null_count else values


def concat_storage(arrays: Sequence[pa.Array]) -> pa.Array:
    """Joins storage arrays of one type; dictionary-coded ones get one dictionary.

    All-null arrays adapt to the others; if only some of the rest are dictionary-coded, the result is plain.
    Raises `pa.ArrowInvalid` if the result exceeds 32-bit offsets.
    """
    if len(arrays) == 1:
        return arrays[0]
    coded = [array for array in arrays if pt.is_dictionary(array.type)]
    if not coded:
        return concat(arrays)
    if any(not pt.is_dictionary(a.type) and a.null_count < len(a) for a in arrays):
        return concat([plain(array) for array in arrays])
    arrays = [a if pt.is_dictionary(a.type) else _coded_nulls(len(a), a.type) for a in arrays]
    return unified(arrays)


def concat_logical(arrays: Sequence[pa.Array]) -> pa.Array:
    """Joins arrays of one type, which may have dictionaries at any depth.

    Raises `pa.ArrowInvalid` if the result exceeds 32-bit offsets, `SchemaError` if a dictionary's indices
    cannot count all values together.
    """
    dtype = arrays[0].type
    if len(arrays) == 1:
        return arrays[0]
    if dtype == storage_type(dtype):
        return concat(arrays)
    return to_logical(concat_storage([to_storage(array) for array in arrays]), dtype)


def copied(array: pa.Array) -> pa.Array:
    """Copies a storage array to memory of its own, with its dictionary or templates; a worded one still has
    the words of the whole."""
    if is_templated(array.type):
        coded = copied(coded_templates(array))
        variables = (copied(part(array)) for part in (numbers_of, texts_of))
        return templated(coded.dictionary, coded.indices, *variables)
    if is_worded(array.type):
        return worded(copied(numbers_with_nulls(array)), words_in(array))
    if pt.is_dictionary(array.type):
        parts = copied(array.indices), copied(array.dictionary)
        return pa.DictionaryArray.from_arrays(*parts, safe=False)
    return concat([array])


def in_order_of_use(array: pa.Array) -> pa.Array:
    """Reduces a dictionary to the values in use, in the order of their first use, or the templates of a
    templated array.

    The result then does not depend on the order of the dictionary or on unused values, and keeps nothing of
    dropped rows.
    """
    if is_templated(array.type):
        coded = coded_templates(array)
        used = in_order_of_use(coded)
        if used is coded:
            return array
        return templated(used.dictionary, used.indices, numbers_of(array), texts_of(array))
    valid, codes = valid_mask(array), dictionary_codes(array)
    size = len(array.dictionary)
    if size == 0:
        return array
    new_codes, used = _renumbered(codes, valid, size)
    if len(used) == size and np.array_equal(used, np.arange(size)):
        return array
    return pa.DictionaryArray.from_arrays(
        integer_array(new_codes, valid),
        take(array.dictionary, used),
        safe=False,
    )


def _renumbered(codes: IntArray, valid: Flags | None, size: int) -> tuple[I32, I32]:
    """Renumbers codes by first use. Returns the new codes (0 where not valid), and the old ones in that
    order."""
    new_code = np.full(size, -1, dtype=np.int32)
    used = np.empty(size, dtype=np.int32)
    out = np.empty(len(codes), dtype=np.int32)
    codes = codes.astype(np.int32, copy=False)
    count = native.arrays.integers.renumber(codes, native.as_flags(valid), new_code, used, out)
    return out, used[:count]


def without_unused(array: pa.Array) -> pa.Array:
    """Returns a dictionary-coded array without unused values."""
    valid, codes = valid_mask(array), dictionary_codes(array)
    used, new_codes = np.unique(codes if valid is None else codes[valid], return_inverse=True)
    indices = np.zeros(len(array), dtype=np.int32)
    indices[slice(None) if valid is None else valid] = new_codes
    return pa.DictionaryArray.from_arrays(
        integer_array(indices, valid),
        take(array.dictionary, used),
        safe=False,
    )


def _coded_nulls(length: int, dtype: pa.DataType) -> pa.Array:
    empty = pa.array([], dtype)
    return pa.DictionaryArray.from_arrays(pa.nulls(length, pa.int32()), empty, safe=False)
