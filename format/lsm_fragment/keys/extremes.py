"""Finds the least and the greatest value of a chunk, for the footer (SPEC section 7)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import binary_parts, fixed_width_bytes, fixed_width_view, int_dtype
from lsm_fragment.arrays.decimals import text_of
from lsm_fragment.arrays.joining import in_order_of_use
from lsm_fragment.arrays.templated import survey_texts
from lsm_fragment.arrays.types import is_binary_like, is_string, is_templated
from lsm_fragment.keys.bounds import MAX_VALUE_BYTES, Value, shorten, value_at, value_to_json
from lsm_fragment.native import as_bytes, validity
from lsm_fragment.native.keys import extremes

_CUT_BYTES: Final = MAX_VALUE_BYTES + 4
"""Read this much of a long value: more than a bound holds, even if the cut splits a character."""


def min_max(array: pa.Array) -> tuple[Value, Value]:
    """Returns `min` and `max` of a storage array: bounds, or (None, None) for types without an order."""
    dtype = array.type
    if is_templated(dtype):
        return min_max(survey_texts(array).extremes)
    if pt.is_dictionary(dtype):
        # Only values in use count: the dictionary may be shared with more rows.
        return min_max(in_order_of_use(array).dictionary)
    if array.null_count == len(array) or pt.is_nested(dtype) or pt.is_interval(dtype):
        return None, None
    low, high = _strings(array) if is_binary_like(dtype) else _fixed_width(array)
    return shorten(low, dtype, down=True)[0], shorten(high, dtype, down=False)[0]


def _strings(array: pa.Array) -> tuple[Value, Value]:
    """Returns the extremes of strings or binaries, long ones cut behind the length of a bound."""
    is_text = is_string(array.type)
    offsets, data = binary_parts(array)

    def value(row: int) -> Value:
        start, stop = int(offsets[row]), int(offsets[row + 1])
        cut = bytes(data[start : min(stop, start + _CUT_BYTES)])
        return cut.decode(errors="ignore") if is_text else value_to_json(cut)

    low, high = extremes.extreme_strings(offsets, as_bytes(data), *validity(array))
    return value(low), value(high)


def _fixed_width(array: pa.Array) -> tuple[Value, Value]:
    dtype, nulls = array.type, validity(array)
    if pt.is_fixed_size_binary(dtype):
        low, high = extremes.extreme_bytes(bytes_of_values(array), *nulls)
        return value_at(array, low), value_at(array, high)
    if pt.is_decimal(dtype) and dtype.bit_width > 64:
        low, high = extremes.extreme_wide(words_of(array), *nulls)
        return value_at(array, low), value_at(array, high)
    found = extremes.extreme_numbers(numbers_of(array), *nulls)
    assert found is not None, "an array of nulls has no extremes"
    return _value(found[0], dtype), _value(found[1], dtype)


def _value(number: Any, dtype: pa.DataType) -> Value:
    """Converts a number to a VALUE."""
    if pt.is_boolean(dtype):
        return bool(number)
    if pt.is_decimal(dtype):
        return text_of(int(number), dtype.scale)
    if pt.is_floating(dtype):
        return value_to_json(number + 0.0)  # -0.0 becomes 0.0
    return number


Numbers = npt.NDArray[Any]


def numbers_of(array: pa.Array) -> Numbers:
    """Returns values as numbers: booleans as 0 and 1, half floats as floats."""
    dtype = array.type
    if pt.is_boolean(dtype):
        bits = np.frombuffer(array.buffers()[1], dtype=np.uint8)
        return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)]
    if pt.is_float16(dtype):
        return fixed_width_view(array, np.float16).astype(np.float32)
    if pt.is_floating(dtype):
        return fixed_width_view(array, np.float32 if pt.is_float32(dtype) else np.float64)
    integer = int_dtype(dtype)
    assert integer is not None, f"not numbers: {dtype}"
    return fixed_width_view(array, integer)


def words_of(array: pa.Array) -> npt.NDArray[np.uint64]:
    """Returns decimals of 128 or 256 bits as words, the least significant first. Shape (rows, words)."""
    count = array.type.bit_width // 64
    return fixed_width_view(array, np.dtype((np.uint64, count))).reshape(-1, count)


def bytes_of_values(array: pa.Array) -> npt.NDArray[np.uint8]:
    """Returns the bytes of fixed-width values. Shape (rows, bytes of a value)."""
    width = fixed_width_bytes(array.type)
    assert width is not None, f"not of fixed width: {array.type}"
    if not width:  # numpy cannot view values of zero bytes
        return np.empty((len(array), 0), dtype=np.uint8)
    return fixed_width_view(array, np.dtype((np.uint8, width))).reshape(len(array), width)
