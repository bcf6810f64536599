"""Views the values of fixed-width arrays as native code compares them; null places hold anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import fixed_width_bytes, fixed_width_view, int_dtype

Numbers = npt.NDArray[Any]


def numbers_of(array: pa.Array) -> Numbers:
    """Returns the numbers that values are, or stand for: booleans 0 and 1, half floats as floats."""
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
    if not width:  # numpy has no values of no bytes
        return np.empty((len(array), 0), dtype=np.uint8)
    return fixed_width_view(array, np.dtype((np.uint8, width))).reshape(len(array), width)
