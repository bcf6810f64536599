"""Computes the commutative row hash (SPEC section 7), one column of an array at a time.

Every column adds to one number per row (`add_column`); `fold_rows` mixes and sums these. Addition commutes,
so columns and rows may come in any order. Every byte of a value counts.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from pyarrow import types as pt

from lsm_fragment import native
from lsm_fragment.arrays.buffers import fixed_width_bytes, int_dtype
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.nested import fixed_items
from lsm_fragment.arrays.templated import TextSurvey, survey_texts
from lsm_fragment.arrays.types import is_binary_like, is_list_like, is_templated

U64 = npt.NDArray[np.uint64]

ROW_HASH_XXH3: Final = 1
"""The id of the hash function in footers."""

_BLOCK_VALUES: Final = 1 << 16
"""Hash this many values of lists and structs at a time, to keep temporary arrays small."""
_MASK: Final = (1 << 64) - 1


def add_column(name: str, array: pa.Array, numbers: U64) -> None:
    """Adds the contribution of column `name` to each row's number; nulls contribute nothing.

    array: a storage array, or a dictionary-coded or templated one. numbers: changed in place, of shape
    (rows,).
    """
    _hash(array, _seed(name), numbers)


def column_contributions(name: str, array: pa.Array) -> U64:
    """Returns the contribution of column `name` to each row's number. Shape (rows,)."""
    numbers = np.zeros(len(array), dtype=np.uint64)
    add_column(name, array, numbers)
    return numbers


def surveyed(name: str, array: pa.Array) -> TextSurvey:
    """Surveys a templated array of column `name` in one pass, for the row hash and for its chunk."""
    return survey_texts(array, _seed(name))


def value_hashes(array: pa.Array) -> U64:
    """Returns h(value) of each value, 0 for nulls. Shape (rows,).

    Hashes of numbers are their bits: `mix` them where every bit must depend on all others.
    """
    out = np.empty(len(array), dtype=np.uint64)
    _hash(array, None, out)
    return out


def mix(values: U64) -> U64:
    """Applies a bijective finaliser over u64. Returns a new array."""
    out = np.empty(len(values), dtype=np.uint64)
    native.arrays.hashing.mix(values, out)
    return out


def distinct_numbers(numbers: U64) -> U64:
    """Returns the distinct numbers, ascending.

    Sorts them, which is far faster than the hash table of `np.unique`.
    """
    ordered = np.sort(numbers)
    is_new = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered[is_new]


def fold_rows(row_numbers: U64) -> int:
    """Returns the hash of a set of rows from each row's sum of contributions."""
    return native.arrays.hashing.fold(row_numbers)


def combine(*hashes: int) -> int:
    """Returns the hash of the union of disjoint sets of rows."""
    return sum(hashes) & _MASK


def _seed(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode())


def _hash(array: pa.Array, seed: int | None, out: U64) -> None:
    """Hashes an array into `out`, or adds to it with a seed; see `lsm_fragment.native.arrays.hashing`."""
    dtype, start = array.type, array.offset
    if array.null_count == len(array):
        if seed is None:
            out[:] = 0
        return
    if is_templated(dtype):
        assert seed is not None
        out += survey_texts(array, seed).contributions
        return
    if pt.is_nested(dtype):
        _hash_nested(array, seed, out)
        return
    if pt.is_dictionary(dtype):
        assert seed is not None
        by_code = np.zeros(len(array.dictionary), dtype=np.uint64)
        _hash(array.dictionary, seed, by_code)
        codes = array.indices
        data = codes.buffers()[1]
        width = codes.type.bit_width // 8
        native.arrays.hashing.add_by_code(data, width, by_code, _bitmap(codes), codes.offset, out)
        return
    validity, buffers = _bitmap(array), array.buffers()[1:]
    data = buffers[-1]
    if is_binary_like(dtype):
        is_large = pt.is_large_string(dtype) or pt.is_large_binary(dtype)
        native.arrays.hashing.hash_strings(buffers[0], data, is_large, validity, start, seed, out)
    elif pt.is_boolean(dtype):
        native.arrays.hashing.hash_booleans(data, validity, start, seed, out)
    elif pt.is_decimal(dtype):
        native.arrays.hashing.hash_decimals(data, dtype.bit_width // 8, validity, start, seed, out)
    elif int_dtype(dtype) is not None:
        width, is_signed = dtype.bit_width // 8, not pt.is_unsigned_integer(dtype)
        native.arrays.hashing.hash_integers(data, width, is_signed, validity, start, seed, out)
    elif pt.is_floating(dtype):
        native.arrays.hashing.hash_floats(data, dtype.bit_width // 8, validity, start, seed, out)
    else:
        width_bytes = fixed_width_bytes(dtype)
        assert width_bytes is not None, f"not a storage type: {dtype}"
        native.arrays.hashing.hash_bytes(data, width_bytes, validity, start, seed, out)


def _bitmap(array: pa.Array) -> pa.Buffer | None:
    """Returns the validity bitmap; None if no row is null, although Parquet's reader makes one: hashing is
    faster without."""
    return array.buffers()[0] if array.null_count else None


def _hash_nested(array: pa.Array, seed: int | None, out: U64) -> None:
    rows = _block_rows(array)
    for start in range(0, len(array), rows):
        _hash_block(array.slice(start, rows), seed, out[start : start + rows])


def _block_rows(array: pa.Array) -> int:
    """Returns how many rows have about `_BLOCK_VALUES` values, counting those in lists."""
    values, dtype = len(array), array.type
    if pt.is_fixed_size_list(dtype):
        values *= 1 + dtype.list_size
    elif is_list_like(dtype) or pt.is_map(dtype):
        values += int(list_parts(array)[0].sum())
    return max(1, _BLOCK_VALUES * len(array) // max(1, values))


def _hash_block(array: pa.Array, seed: int | None, out: U64) -> None:
    dtype, validity = array.type, _bitmap(array)
    if pt.is_struct(dtype):
        sums = np.ones(len(array), dtype=np.uint64)
        for field, child in zip(dtype.fields, array.flatten(), strict=True):
            add_column(field.name, child, sums)
        native.arrays.hashing.put_hashes(sums, validity, array.offset, seed, out)
        return
    if pt.is_fixed_size_list(dtype):
        counts = np.full(len(array), dtype.list_size, dtype=np.int64)
        items = fixed_items(array)
    else:
        counts, items = list_parts(array)
    if pt.is_map(dtype):
        items = pa.StructArray.from_arrays(items.flatten(), names=["key", "value"])
    are_valid = _bitmap(items)
    if items.null_count == len(items):  # those of type null have no bitmap
        are_valid = pa.py_buffer(bytes((items.offset + len(items) + 7) // 8))
    native.arrays.hashing.hash_lists(
        counts,
        value_hashes(items),
        are_valid,
        items.offset,
        validity,
        array.offset,
        seed,
        out,
    )
