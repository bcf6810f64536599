"""Values in the form in which DuckDB carries them: of a type that it compares, sorts and returns bit for bit.

DuckDB has no type for 256-bit decimals, halves, durations and several units of time, and knows other names of
time zones. Times are carried as their integers, and decimals as whole numbers. 256-bit decimals are carried
as bytes that compare as the numbers do.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import fixed_width_view
from lsm_fragment.arrays.storage import plain, to_logical, to_storage
from lsm_fragment.arrays.types import storage_type

_WHOLE: Final = pa.decimal128(38, 0)
_LONG_BYTES: Final = 32


def carried_type(dtype: pa.DataType) -> pa.DataType:
    """Returns the type in which values of a flat type are carried."""
    dtype = storage_type(dtype)
    if pt.is_null(dtype):
        return pa.int8()
    if pt.is_float16(dtype):
        return pa.float32()
    if pt.is_temporal(dtype):
        return pa.int32() if dtype.bit_width == 32 else pa.int64()
    if pt.is_decimal(dtype):
        return pa.binary() if dtype.bit_width == 256 else _WHOLE
    return pa.binary() if pt.is_fixed_size_binary(dtype) else dtype


def carried(array: pa.Array) -> pa.Array:
    """Returns flat values as they are carried."""
    array = plain(to_storage(array))
    dtype = array.type
    to = carried_type(dtype)
    if dtype == to:
        return array
    if pt.is_null(dtype):
        return pa.nulls(len(array), to)
    if pt.is_decimal(dtype):
        return _sortable(array) if dtype.bit_width == 256 else _whole(array)
    return array.cast(to) if pt.is_float16(dtype) or to == pa.binary() else array.view(to)


def restored(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Returns carried values in their own type."""
    return to_logical(_restored(array, storage_type(dtype)), dtype)


def _restored(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    if array.type == dtype:
        return array
    if pt.is_null(dtype):
        return pa.nulls(len(array))
    if pt.is_decimal(dtype):
        return _unsorted(array, dtype) if dtype.bit_width == 256 else _scaled(array, dtype)
    return array.view(dtype) if pt.is_temporal(dtype) else array.cast(dtype)


def _whole(array: pa.Array) -> pa.Array:
    """Returns decimals times a power of ten, as whole numbers."""
    if array.type.bit_width < 128:
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    return seen_as(array, _WHOLE)


def _scaled(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    found = seen_as(array, pa.decimal128(dtype.precision, dtype.scale))
    return found if found.type == dtype else found.cast(dtype)


def seen_as(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Returns decimals as others of the same width, with the same digits."""
    return pa.Array.from_buffers(
        dtype, len(array), array.buffers(), array.null_count, offset=array.offset
    )


def _sortable(array: pa.Array) -> pa.Array:
    """Returns numbers as bytes with the highest first, and the sign such that negative ones are less."""
    digits = _digits(array)[:, ::-1].copy()
    digits[:, 0] ^= 0x80
    return _fixed(digits, array.is_valid(), pa.binary(_LONG_BYTES)).cast(pa.binary())


def _unsorted(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    fixed = array.fill_null(bytes(_LONG_BYTES)).cast(pa.binary(_LONG_BYTES))
    digits = _digits(fixed).copy()
    digits[:, 0] ^= 0x80
    return _fixed(np.ascontiguousarray(digits[:, ::-1]), array.is_valid(), dtype)


def _digits(array: pa.Array) -> npt.NDArray[np.uint8]:
    """Returns values of 32 bytes each; shape (rows, 32)."""
    digits: npt.NDArray[np.uint8] = fixed_width_view(array, np.dtype((np.uint8, _LONG_BYTES)))
    return digits.reshape(-1, _LONG_BYTES)


def _fixed(digits: Any, is_valid: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Returns values of 32 bytes each; digits: shape (rows, 32)."""
    return pa.Array.from_buffers(
        dtype, len(digits), [is_valid.buffers()[1], pa.py_buffer(digits)], offset=0
    )
