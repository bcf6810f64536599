"""Orders whole columns (SPEC section 6) by order-preserving integer codes, packed and sorted stably.

Every sort column becomes unsigned codes whose numeric order is the column's order, including direction and
null placement. Codes of several columns are packed into as few 64-bit words as they need, so that most sort
schemas need one integer comparison per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from format.nodes import dictionary_codes, fixed_width_view, int_dtype, valid_mask
from format.schema import Nulls, Order, SortColumn, SortSchema, ordering
from format.storage import decoded
from format.types import is_binary_like

U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Codes:
    """Codes in [0, limit], one for each row."""

    values: U64
    limit: int


def order_words(columns: Sequence[pa.Array], sort: SortSchema) -> list[U64]:
    """Returns each row as words that compare, in turn and as unsigned integers, as the rows do.

    columns: the sort columns as storage arrays of equal length, possibly dictionary-coded. Columns of order
    none are ignored. Codes are relative to this set of rows: words of two calls must not be compared.
    """
    codes = [
        code
        for column, spec in zip(columns, ordering(sort), strict=False)
        for code in _column_codes(column, spec)
        if code.limit > 0
    ]
    return _pack(codes) or [np.zeros(len(columns[0]), dtype=np.uint64)]


def stable_order(words: Sequence[U64]) -> npt.NDArray[np.intp]:
    """Returns the positions of the rows in sorted order; rows of equal words keep their order.

    A stable sort over concatenated sorted runs is a merge: timsort finds the runs.
    """
    if len(words) == 1:
        return np.argsort(words[0], kind="stable")
    return np.lexsort(tuple(reversed(words)))


def first_disorder(words: Sequence[U64]) -> int | None:
    """Returns the first row that is less than the one before it; None if the rows are sorted."""
    if len(words[0]) < 2:
        return None
    less = np.zeros(len(words[0]) - 1, dtype=bool)
    for word in reversed(words):
        less = (word[1:] < word[:-1]) | ((word[1:] == word[:-1]) & less)
    at = int(np.argmax(less))
    return at + 1 if less[at] else None


def same_as_previous(words: Sequence[U64]) -> npt.NDArray[np.bool_]:
    """Returns whether each row's key equals the previous row's; False for the first. Shape (rows,)."""
    same = np.zeros(len(words[0]), dtype=bool)
    same[1:] = True
    for word in words:
        same[1:] &= word[1:] == word[:-1]
    return same


def _pack(codes: Sequence[_Codes]) -> list[U64]:
    words: list[U64] = []
    free = 0
    for code in codes:
        bits = code.limit.bit_length()
        if bits > free:
            words.append(code.values)
            free = 64 - bits
        else:
            words[-1] = (words[-1] << np.uint64(bits)) | code.values
            free -= bits
    return words


def _column_codes(array: pa.Array, spec: SortColumn) -> list[_Codes]:
    length = len(array)
    if array.null_count == length:
        return []
    valid = valid_mask(array)
    values = _value_codes(array)
    if spec.order is Order.DESC:
        values = [_Codes(np.uint64(code.limit) - code.values, code.limit) for code in values]
    if valid is None:
        return values
    flags = valid if spec.nulls is Nulls.FIRST else ~valid
    for code in values:
        code.values[~valid] = 0
    return [_Codes(flags.astype(np.uint64), 1), *values]


def _value_codes(array: pa.Array) -> list[_Codes]:
    """Returns ascending codes; null places hold anything within the limit."""
    dtype = array.type
    if pt.is_dictionary(dtype):
        is_text = is_binary_like(dtype.value_type) or pt.is_fixed_size_binary(dtype.value_type)
        # Only texts are ranked: Arrow does not rank every type, and numbers are their own codes.
        return [_dictionary_codes(array)] if is_text else _value_codes(decoded(array))
    if pt.is_boolean(dtype):
        bits = array.fill_null(False).to_numpy(zero_copy_only=False)
        return [_Codes(bits.astype(np.uint64), 1)]
    if (integer := int_dtype(dtype)) is not None:
        return [_int_codes(fixed_width_view(array, integer), valid_mask(array))]
    if pt.is_floating(dtype):
        return [_float_codes(array)]
    if pt.is_decimal(dtype):
        return _decimal_codes(array)
    if pt.is_fixed_size_binary(dtype):
        array = array.cast(pa.binary())
    assert is_binary_like(array.type), dtype
    return [_dictionary_codes(array.dictionary_encode())]


def _int_codes(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None) -> _Codes:
    present = values if valid is None else values[valid]
    low, high = int(present.min()), int(present.max())
    codes = values.astype(np.uint64) - np.uint64(low & (2**64 - 1))
    if valid is not None:
        codes[~valid] = 0
    return _Codes(codes, high - low)


def _float_codes(array: pa.Array) -> _Codes:
    source = {16: np.float16, 32: np.float32, 64: np.float64}[array.type.bit_width]
    doubles = fixed_width_view(array, source).astype(np.float64) + 0.0  # -0.0 becomes 0.0
    bits = doubles.view(np.int64)
    codes = np.where(bits < 0, ~bits, bits ^ np.int64(-(2**63))).view(np.uint64)
    codes[np.isnan(doubles)] = np.uint64(2**64 - 1)
    return _int_codes(codes, valid_mask(array))


def _decimal_codes(array: pa.Array) -> list[_Codes]:
    count = array.type.bit_width // 64
    words = fixed_width_view(array, np.dtype((np.int64, count))).reshape(-1, count)
    valid = valid_mask(array)
    high = _int_codes(words[:, -1], valid)
    lower = [_int_codes(words[:, word].view(np.uint64), valid) for word in range(count - 2, -1, -1)]
    return [high, *lower]


def _dictionary_codes(array: pa.Array) -> _Codes:
    """Returns the ranks of the dictionary's values, looked up by code."""
    dictionary = array.dictionary
    if pt.is_fixed_size_binary(dictionary.type):
        dictionary = dictionary.cast(pa.binary())
    rank = pc.rank(dictionary, sort_keys="ascending", tiebreaker="dense").to_numpy()
    codes = dictionary_codes(array)
    valid = valid_mask(array)
    ranks = rank.astype(np.uint64)[codes if valid is None else np.where(valid, codes, 0)]
    return _Codes(ranks, len(dictionary) + 1)
