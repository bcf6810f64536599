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

from format import kernels
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
_SPOTS: Final = 5
"""Words of a string that count since version 2; up to 40 bytes that is the whole string."""
_LONG_BYTES: Final = 1024
_BLOCK_BYTES: Final = 4 << 20
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
_SPOT_SUM: Final = _WORD_KEYS[:_SPOTS].sum(dtype=np.uint64)
_TAIL_MASKS: Final = np.array([(1 << (8 * n)) - 1 for n in range(8)], dtype=np.uint64)


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
    if kernels.compiled is not None:
        out = np.empty(len(offsets) - 1, dtype=np.uint64)
        kernels.compiled.hash_spots(offsets, kernels.as_bytes(data), _WORD_KEYS, out)
        return out
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    if len(data) < 8:
        data = memoryview(bytes(data) + bytes(8))
    words = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
    hashes = lengths.astype(np.uint64) * _LENGTH_FACTOR
    spread = lengths - 8  # from the first word to the last
    short = np.flatnonzero(spread < 0)
    if len(short):
        # One word, loaded so that it ends within the data; bytes around the value are masked off.
        at = np.minimum(starts[short], len(words) - 1)
        excess = np.minimum((starts[short] - at) * 8, 56).astype(np.uint64)
        word = (words[at] >> excess) & _TAIL_MASKS[lengths[short]]
        hashes[short] += word * _SPOT_SUM
    if len(short) < len(starts):
        long = slice(None) if not len(short) else np.flatnonzero(spread >= 0)
        starts, spread = starts[long], spread[long]
        hashes[long] += _spot_sums(words, starts, spread)
    return mix(hashes)


def _spot_sums(words: U64, starts: npt.NDArray[np.int64], spread: npt.NDArray[np.int64]) -> U64:
    totals = words[starts]
    totals *= _WORD_KEYS[0]
    for spot in range(1, _SPOTS):
        at = spread * spot
        at >>= 2
        at += starts
        loaded = words[at]
        loaded *= _WORD_KEYS[spot]
        totals += loaded
    return totals


def _hash_bytes(offsets: npt.NDArray[Any], data: memoryview) -> U64:
    """Hashes byte strings a block of rows at a time, since a block is copied; hashes very long rows in
    place."""
    rows = len(offsets) - 1
    if kernels.compiled is not None:
        return _hash_compiled(offsets, data)
    if int(offsets[-1]) - int(offsets[0]) <= _BLOCK_BYTES:
        return _hash_words(offsets, data)
    out = np.empty(rows, dtype=np.uint64)
    start = 0
    while start < rows:
        limit = int(offsets[start]) + _BLOCK_BYTES
        stop = max(start + 1, int(np.searchsorted(offsets, limit, side="right")) - 1)
        low, high = int(offsets[start]), int(offsets[stop])
        if high - low > _BLOCK_BYTES:
            out[start] = xxhash.xxh3_64_intdigest(data[low:high])
        else:
            out[start:stop] = _hash_words(offsets[start : stop + 1], data)
        start = stop
    return out


def _hash_compiled(offsets: npt.NDArray[Any], data: memoryview) -> U64:
    assert kernels.compiled is not None
    out = np.empty(len(offsets) - 1, dtype=np.uint64)
    kernels.compiled.hash_words(offsets, kernels.as_bytes(data), _WORD_KEYS, _LONG_BYTES, out)
    for row in np.flatnonzero(np.diff(offsets) > _LONG_BYTES):
        out[row] = xxhash.xxh3_64_intdigest(data[int(offsets[row]) : int(offsets[row + 1])])
    return out


def _hash_words(offsets: npt.NDArray[Any], data: memoryview) -> U64:
    first, last = int(offsets[0]), int(offsets[-1])
    # Eight bytes of padding allow every word to be loaded whole; the excess is masked off.
    padded = np.empty(last - first + 8, dtype=np.uint8)
    padded[: last - first] = np.frombuffer(data, dtype=np.uint8, count=last - first, offset=first)
    padded[last - first :] = 0
    starts = offsets[:-1].astype(np.int64) - first
    lengths = np.diff(offsets).astype(np.int64)
    sums = lengths.astype(np.uint64) * _LENGTH_FACTOR
    long = np.flatnonzero(lengths > _LONG_BYTES)
    short = lengths if not len(long) else np.where(lengths > _LONG_BYTES, 0, lengths)
    _add_words(sums, padded, starts, short)
    out = mix(sums)
    view = padded.data
    for row in long:  # XXH3 of more than 1 KiB each, beside which the loop's own cost is small
        start = int(starts[row])
        out[row] = xxhash.xxh3_64_intdigest(view[start : start + int(lengths[row])])
    return out


def _add_words(
    sums: U64,
    padded: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
) -> None:
    """Adds the sum over j of word[i, j] * key[j] to sums[i], in one pass over the rows for each word
    index."""
    words = np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded.data, strides=(1,))
    whole = lengths >> 3
    # Rows are ordered by falling number of words, so that the first ones have a j-th word.
    order = np.argsort(whole.astype(np.uint8), kind="stable")[::-1]
    at, whole = starts[order], whole[order]
    with_more = len(whole) - np.cumsum(np.bincount(whole))
    totals = np.zeros(len(whole), dtype=np.uint64)
    for j, rows in enumerate(with_more[:-1]):
        loaded = words[at[:rows]]
        loaded *= _WORD_KEYS[j]
        totals[:rows] += loaded
        at[:rows] += 8
    tails = words[at]
    tails &= _TAIL_MASKS[lengths[order] & 7]
    tails *= _WORD_KEYS[whole]
    totals += tails
    sums[order] += totals


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
