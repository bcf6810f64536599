"""Views the buffers of Arrow arrays as numbers, bits and bytes, without copying."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

_INT_DTYPES: Final[dict[int, tuple[type[Any], type[Any]]]] = {
    1: (np.int8, np.uint8),
    2: (np.int16, np.uint16),
    4: (np.int32, np.uint32),
    8: (np.int64, np.uint64),
}


_FIXED_SIZE_BINARY: Final = pa.binary(1).id
_WIDTHS: Final = {
    dtype.id: dtype.bit_width // 8
    for dtype in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(),
        pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.float16(), pa.float32(), pa.float64(),
        pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1),
        pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us"),
        pa.duration("us"), pa.month_day_nano_interval(),
    )
}  # fmt: skip
"""Bytes per value by type id, for types of one fixed width."""


def float_words(dtype: pa.DataType) -> type[Any] | None:
    """Returns numpy's unsigned type for the bit patterns of a float type; None for other types."""
    return _INT_DTYPES[dtype.bit_width // 8][1] if pt.is_floating(dtype) else None


def int_dtype(dtype: pa.DataType) -> type[Any] | None:
    """Returns numpy's type for the 64-bit pattern of an integer-like Arrow type; None for other types.

    decimal128 is not integer-like, since only some of its chunks fit.
    """
    if pt.is_unsigned_integer(dtype):
        return _INT_DTYPES[dtype.bit_width // 8][1]
    small_decimal = pt.is_decimal(dtype) and dtype.bit_width <= 64
    if pt.is_signed_integer(dtype) or (pt.is_temporal(dtype) and not pt.is_interval(dtype)) or small_decimal:  # fmt: skip  # noqa: E501
        return _INT_DTYPES[dtype.bit_width // 8][0]
    return None


def integer_bytes(dtype: pa.DataType) -> int | None:
    """Returns the bytes of a type whose values may be stored as integers; None for other types."""
    if pt.is_floating(dtype) or pt.is_decimal128(dtype) or int_dtype(dtype) is not None:
        return int(dtype.bit_width) // 8
    return None


def fixed_width_bytes(dtype: pa.DataType) -> int | None:
    """Returns the bytes per value of a fixed-width type other than bool; None for other types."""
    if dtype.id == _FIXED_SIZE_BINARY:
        return int(dtype.byte_width)
    return _WIDTHS.get(dtype.id)


def fixed_width_view(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Returns the values of a fixed-width array as `dtype`, without copying; null places hold anything."""
    item = np.dtype(dtype)
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype=item)
    return np.frombuffer(buffer, dtype=item, count=len(array), offset=array.offset * item.itemsize)


def integer_array(
    numbers: npt.NDArray[np.integer[Any]], valid: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Returns integers as an Arrow array, without copying; null where `valid` is false.

    Arrow's own `pa.array` imports numpy.ma: 15 ms of a process's first merge.
    """
    validity = None if valid is None else pa.py_buffer(pack_bits(valid))
    numbers = np.ascontiguousarray(numbers)
    buffers = [validity, pa.py_buffer(numbers)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), buffers)


def address_of(buffer: pa.Buffer | None) -> int:
    """Returns the address of a buffer, for native code; 0 if there is none."""
    return 0 if buffer is None else int(buffer.address)


def address_of_values(values: npt.NDArray[Any]) -> int:
    """Returns the address of an array's values, for native code that outlives no reference to the array."""
    address: int = values.__array_interface__["data"][0]
    return address


def dictionary_codes(array: pa.Array) -> npt.NDArray[Any]:
    """Returns the codes of a dictionary-coded array, without copying; null places hold anything."""
    dtype = int_dtype(array.indices.type)
    assert dtype is not None
    return fixed_width_view(array.indices, dtype)


def valid_mask(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Returns True where `array` has a value; None if it has no nulls."""
    if array.null_count == 0:
        return None
    return bits_of(array.buffers()[0], array.offset, len(array))


def bits_of(bitmap: pa.Buffer | None, offset: int, rows: int) -> npt.NDArray[np.bool_]:
    """Returns `rows` bits of a bitmap; all unset without a bitmap, as of type null."""
    if bitmap is None:
        return np.zeros(rows, dtype=np.bool_)
    first, start = divmod(offset, 8)
    bits = np.frombuffer(bitmap, dtype=np.uint8, offset=first)
    return np.unpackbits(bits, count=start + rows, bitorder="little")[start:].view(np.bool_)


def pack_bits(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Packs a mask into a bitmap, least significant bit first; unused bits are 0."""
    return np.packbits(mask, bitorder="little")


def validity_buffer(is_valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """Returns the validity bitmap of an array; None if all of its values are valid."""
    return None if is_valid.all() else pa.py_buffer(pack_bits(is_valid))


def boolean_array(mask: npt.NDArray[np.bool_] | pa.BooleanArray) -> pa.BooleanArray:
    """Returns a mask as an Arrow array without nulls. `pa.array` would import NumPy's masked arrays."""
    if isinstance(mask, pa.BooleanArray):
        return mask
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(pack_bits(mask))])


def binary_parts(array: pa.Array) -> tuple[npt.NDArray[Any], memoryview]:
    """Returns the offsets (length + 1) and the data of a string or binary array, without copying."""
    large = pt.is_large_string(array.type) or pt.is_large_binary(array.type)
    dtype = np.dtype(np.int64 if large else np.int32)
    _, offsets_buffer, data = array.buffers()
    if offsets_buffer is None or offsets_buffer.size == 0:
        return np.zeros(1, dtype=dtype), memoryview(b"")
    offsets = np.frombuffer(
        offsets_buffer, dtype=dtype, count=len(array) + 1, offset=array.offset * dtype.itemsize
    )
    return offsets, memoryview(b"") if data is None else memoryview(data)


def validity_bitmap(array: pa.Array) -> pa.Buffer | None:
    """Returns the validity bitmap of an array, shifted to begin with its first row."""
    if not array.null_count:
        return None
    if array.offset % 8 == 0:
        return array.buffers()[0].slice(array.offset // 8)
    bits = array.is_valid()
    return bits.buffers()[1]
