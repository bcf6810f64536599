"""Computes the commutative row hash (SPEC section 7), a whole array and one column at a time.

The `column_contributions` of all columns add up to one number per row; `fold_rows` mixes and sums these.
Addition commutes, so columns and rows may come in any order. The hash of byte strings is multilinear
(Dietzfelbinger; Lemire & Kaser, "Strongly universal string hashing is fast"): since version 2 over five words
spread over the string, in version 1 over all its words. The row hash detects rows that are lost, doubled or
mixed up; the chunks' checksums detect changed bytes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from pyarrow import types as pt

from format import native
from format.layout import VERSION
from format.nested import fixed_items, list_parts
from format.nodes import (
    binary_parts,
    dictionary_codes,
    fixed_width_bytes,
    fixed_width_view,
    int_dtype,
    valid_mask,
)
from format.types import is_binary_like, is_list_like

U64 = npt.NDArray[np.uint64]

_MULTIPLIER: Final = np.uint64(0xD6E8FEB86659FD93)
_LENGTH_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_POSITION_FACTOR: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT: Final = np.uint64(32)
_CANONICAL_NAN: Final = np.uint64(0x7FF8000000000000)
_LONG_BYTES: Final = 1024
_BLOCK_ROWS: Final = 1 << 16
"""Values that are hashed at a time, so that temporary arrays stay small."""
_MASK: Final = (1 << 64) - 1


def mix(values: U64) -> U64:
    """Applies a bijective finaliser over u64. Returns a new array."""
    out = values ^ (values >> _SHIFT)
    out *= _MULTIPLIER
    out ^= out >> _SHIFT
    out *= _MULTIPLIER
    out ^= out >> _SHIFT
    return out


_WORD_KEYS: Final = mix(np.arange(1, _LONG_BYTES // 8 + 2, dtype=np.uint64)) | np.uint64(1)


def column_contributions(name: str, array: pa.Array, version: int = VERSION) -> U64:
    """Returns what column `name` adds to each row's number: u64 of shape (rows,). Nulls add 0.

    version: that of the format, which decides the rule.
    """
    return _contributions(name, array, version)


def value_hashes(array: pa.Array, *, is_whole: bool = False) -> U64:
    """Returns h(value) of each value; anything in null places.

    is_whole: uses a rule that takes every byte of a string, to distinguish values.
    """
    return _hash_values(array, 1 if is_whole else VERSION)


def contributions_by_code(name: str, hashes: U64) -> U64:
    """Returns what values with these hashes add to a row's number in column `name`."""
    return mix(hashes ^ _seed(name))


def fold_rows(row_numbers: U64) -> int:
    """Returns the hash of a set of rows from each row's sum of contributions."""
    return int(mix(row_numbers).sum(dtype=np.uint64))


def combine(*hashes: int) -> int:
    """Returns the hash of the union of disjoint sets of rows."""
    return sum(hashes) & _MASK


def hash_batch(columns: dict[str, pa.Array], rows: int) -> int:
    """Returns the row hash of `rows` rows, given as storage arrays by column name."""
    numbers = np.zeros(rows, dtype=np.uint64)
    for name, array in columns.items():
        numbers += column_contributions(name, array)
    return fold_rows(numbers)


def _seed(name: str) -> np.uint64:
    return np.uint64(xxhash.xxh3_64_intdigest(name.encode()))


def _contributions(name: str, array: pa.Array, version: int) -> U64:
    if array.null_count == len(array):
        return np.zeros(len(array), dtype=np.uint64)
    if pt.is_dictionary(array.type):
        return _dictionary_contributions(array, _seed(name), version)
    out = mix(_hash_values(array, version) ^ _seed(name))
    valid = valid_mask(array)
    if valid is not None:
        out[~valid] = 0
    return out


def _dictionary_contributions(array: pa.Array, seed: np.uint64, version: int) -> U64:
    codes = dictionary_codes(array)
    by_code = mix(_hash_values(array.dictionary, version) ^ seed)
    valid = valid_mask(array)
    if valid is None:
        present: U64 = by_code[codes]
        return present
    out: U64 = by_code[np.where(valid, codes, 0)]
    out[~valid] = 0
    return out


def _hash_values(array: pa.Array, version: int) -> U64:
    """Returns h(value) of each value by the rule of a version; anything in null places."""
    rows = _block_rows(array)
    if len(array) <= rows:
        return _hash_block(array, version)
    out = np.empty(len(array), dtype=np.uint64)
    for start in range(0, len(array), rows):
        out[start : start + rows] = _hash_block(array.slice(start, rows), version)
    return out


def _block_rows(array: pa.Array) -> int:
    """Returns how many rows have about `_BLOCK_ROWS` values, counting those in lists."""
    values, dtype = len(array), array.type
    if pt.is_fixed_size_list(dtype):
        values *= 1 + dtype.list_size
    elif is_list_like(dtype) or pt.is_map(dtype):
        values += int(list_parts(array)[0].sum())
    return max(1, _BLOCK_ROWS * len(array) // max(1, values))


def _hash_block(array: pa.Array, version: int) -> U64:
    dtype = array.type
    if pt.is_null(dtype):
        return np.zeros(len(array), dtype=np.uint64)
    if pt.is_boolean(dtype):
        bits = array.fill_null(False).to_numpy(zero_copy_only=False)
        return mix(bits.astype(np.uint64))
    if is_binary_like(dtype):
        return _hash_strings(*binary_parts(array), version)
    if pt.is_decimal(dtype):
        return _hash_decimals(array)
    if (integer := int_dtype(dtype)) is not None:
        return mix(fixed_width_view(array, integer).astype(np.uint64))
    if pt.is_floating(dtype):
        return _hash_floats(array)
    width = fixed_width_bytes(dtype)
    if width is not None:
        return _hash_fixed_bytes(array, width, version)
    return _hash_nested(array, version)


def _hash_floats(array: pa.Array) -> U64:
    source = {16: np.float16, 32: np.float32, 64: np.float64}[array.type.bit_width]
    doubles = fixed_width_view(array, source).astype(np.float64)
    bits: U64 = doubles.view(np.uint64)
    bits[np.isnan(doubles)] = _CANONICAL_NAN
    return mix(bits)


def _hash_decimals(array: pa.Array) -> U64:
    bits = array.type.bit_width
    if bits <= 64:
        source = np.int32 if bits == 32 else np.int64
        words = [fixed_width_view(array, source).astype(np.int64)]
    else:
        count = bits // 64
        table = fixed_width_view(array, np.dtype((np.int64, count))).reshape(-1, count)
        words = [table[:, word] for word in range(count)]
    words += [words[-1] >> 63] * (4 - len(words))
    out = np.zeros(len(array), dtype=np.uint64)
    for word in words:
        out = mix(out ^ word.astype(np.uint64))
    return out


def _hash_fixed_bytes(array: pa.Array, width: int, version: int) -> U64:
    offsets = (np.arange(len(array) + 1, dtype=np.int64) + array.offset) * width
    data = array.buffers()[1]
    return _hash_strings(offsets, memoryview(b"") if data is None else memoryview(data), version)


def _hash_strings(offsets: npt.NDArray[Any], data: memoryview, version: int) -> U64:
    return _hash_bytes(offsets, data) if version == 1 else _hash_spots(offsets, data)


def _hash_spots(offsets: npt.NDArray[Any], data: memoryview) -> U64:
    out = np.empty(len(offsets) - 1, dtype=np.uint64)
    native.hashing.hash_spots(offsets, native.as_bytes(data), _WORD_KEYS, out)
    return out


def _hash_bytes(offsets: npt.NDArray[Any], data: memoryview) -> U64:
    out = np.empty(len(offsets) - 1, dtype=np.uint64)
    native.hashing.hash_words(offsets, native.as_bytes(data), _WORD_KEYS, _LONG_BYTES, out)
    for row in np.flatnonzero(np.diff(offsets) > _LONG_BYTES):
        out[row] = xxhash.xxh3_64_intdigest(data[int(offsets[row]) : int(offsets[row + 1])])
    return out


def _hash_nested(array: pa.Array, version: int) -> U64:
    dtype = array.type
    if pt.is_struct(dtype):
        out = np.ones(len(array), dtype=np.uint64)
        for field, child in zip(dtype.fields, array.flatten(), strict=True):
            out += _contributions(field.name, child, version)
        return mix(out)
    if pt.is_fixed_size_list(dtype):
        counts = np.full(len(array), dtype.list_size, dtype=np.int64)
        return _hash_lists(counts, fixed_items(array), version)
    counts, items = list_parts(array)
    if pt.is_map(dtype):
        items = pa.StructArray.from_arrays(items.flatten(), names=["key", "value"])
    return _hash_lists(counts, items, version)


def _hash_lists(counts: npt.NDArray[np.int64], items: pa.Array, version: int) -> U64:
    stops = np.cumsum(counts)
    starts = stops - counts
    hashes = _hash_values(items, version) if len(items) else np.zeros(0, dtype=np.uint64)
    valid = valid_mask(items)
    if valid is not None:
        hashes[~valid] = 0
    positions = np.arange(len(items), dtype=np.int64) - np.repeat(starts, counts) + 1
    terms = mix(hashes + positions.astype(np.uint64) * _POSITION_FACTOR)
    sums = np.zeros(len(items) + 1, dtype=np.uint64)
    np.cumsum(terms, out=sums[1:])
    return mix(counts.astype(np.uint64) * _LENGTH_FACTOR + sums[stops] - sums[starts])
