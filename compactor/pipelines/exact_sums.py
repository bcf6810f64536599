"""Sums integers and decimals without overflow, as vectors of 32-bit digits."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import compute as pc
from lsm_fragment.arrays.buffers import fixed_width_view, pack_bits

I64 = npt.NDArray[np.int64]
DIGIT_BITS: Final = 32
_MASK = np.int64(2**32 - 1)


def sum_type(dtype: pa.DataType) -> pa.DataType:
    """Returns the sum type of an integer or decimal column."""
    if pt.is_decimal(dtype):
        return (
            pa.decimal128(38, dtype.scale)
            if dtype.bit_width <= 128
            else pa.decimal256(76, dtype.scale)
        )
    return pa.uint64() if pt.is_unsigned_integer(dtype) or pt.is_boolean(dtype) else pa.int64()


def digits_of(values: pa.Array) -> I64:
    """Returns little-endian digits, shape (rows, digits). The top digit is signed; null is 0."""
    wide = values.cast(sum_type(values.type))
    if pt.is_decimal(wide.type):
        count = wide.type.bit_width // 32
        words = fixed_width_view(wide, np.dtype((np.uint32, count))).reshape(-1, count)
        digits = words.astype(np.int64)
        digits[:, -1] = words[:, -1].view(np.int32) if len(words) else 0
        # Arrow's functions of several values widen decimals of a negative scale.
        digits[np.asarray(wide.is_null())] = 0
        return digits
    numbers = pc.fill_null(wide, 0).to_numpy()
    high = (numbers >> numbers.dtype.type(32)).astype(np.int64)
    return np.stack([(numbers & numbers.dtype.type(_MASK)).astype(np.int64), high], axis=1)


def with_carries(digits: I64) -> I64:
    """Propagates carries, so that all digits but the top one are below 2**32."""
    result = digits.copy()
    for place in range(digits.shape[1] - 1):
        result[:, place + 1] += result[:, place] >> np.int64(DIGIT_BITS)
        result[:, place] &= _MASK
    return result


def from_digits(digits: I64, is_null: npt.NDArray[np.bool_], dtype: pa.DataType) -> pa.Array:
    """Converts carried digits to values of the sum type. Raises `pa.ArrowInvalid` on overflow."""
    low, high = (0, 2**32) if pt.is_unsigned_integer(dtype) else (-(2**31), 2**31)
    top = digits[:, -1]
    if bool(np.any((top < low) | (top >= high))):
        raise pa.ArrowInvalid(f"does not fit into {dtype}")
    if not pt.is_decimal(dtype):
        number: Any = np.uint64 if pt.is_unsigned_integer(dtype) else np.int64
        values = (top.astype(number) << number(32)) | digits[:, 0].astype(number)
        return pa.array(values, dtype, mask=is_null)
    words = np.ascontiguousarray((digits & _MASK).astype(np.uint32))
    bitmap = pa.py_buffer(pack_bits(~is_null))
    found = pa.Array.from_buffers(dtype, len(words), [bitmap, pa.py_buffer(words)])
    found.validate(full=True)
    return found


def as_floats(digits: I64, dtype: pa.DataType) -> npt.NDArray[np.float64]:
    """Converts carried digits of sums of type `dtype` to floats, shape (rows,)."""
    total = np.zeros(len(digits))
    for place in range(digits.shape[1] - 1, -1, -1):
        total = total * 2.0**32 + digits[:, place]
    return total / 10.0**dtype.scale if pt.is_decimal(dtype) else total
