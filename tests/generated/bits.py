"""Values of Arrow arrays as plain Python, bit by bit, without Arrow's code or the product's.

None            null
bool, int       booleans, integers, durations in their unit
Decimal         decimals, whatever their scale
bytes           texts as UTF-8, and binaries
str             floats: `float.hex()`, which tells -0.0 from 0.0; "nan:32:7fc00000" has width and bits
int             dates, times and timestamps in nanoseconds
tuple           lists: the elements; structs: pairs of name and value; maps: pairs of key and value;
                intervals: months, days, nanoseconds

The presentation (large, view, dictionary, list view, extension) makes no difference, since values of one
column may be presented in another way by another writer.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

Value = Any
EXACT: Final = decimal.Context(prec=100)
NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY: Final = 86_400 * 10**9
_NUMPY: Final = {8: "i1", 16: "<i2", 32: "<i4", 64: "<i8"}
_FLOATS: Final = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}


def values_of(array: pa.Array | pa.ChunkedArray) -> list[Value]:
    """Returns the values of an array, in order."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in values_of(chunk)]
    if not len(array):
        return []
    dtype = array.type
    if isinstance(dtype, pa.BaseExtensionType):
        return values_of(array.storage)
    if pt.is_null(dtype):
        return [None] * len(array)
    if pt.is_dictionary(dtype):
        return _of_dictionary(array)
    values = _present(array)
    validity = array.buffers()[0]
    if validity is None:
        return values
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
    valid = bits[array.offset : array.offset + len(array)].tolist()
    return [value if ok else None for value, ok in zip(values, valid, strict=True)]


def float_of_bits(bits: int, width: int) -> str:
    """Returns the value of a float that has these bits."""
    wide, whole = _FLOATS[width]
    number = struct.unpack(wide, struct.pack(whole, bits))[0]
    return number.hex() if number == number else f"nan:{width}:{bits:x}"


def bits_of_float(value: str, width: int) -> int:
    """Returns the inverse of `float_of_bits`."""
    if value.startswith("nan:"):
        return int(value.rpartition(":")[2], 16)
    wide, whole = _FLOATS[width]
    bits: int = struct.unpack(whole, struct.pack(wide, float.fromhex(value)))[0]
    return bits


def fitted(value: Value, dtype: pa.DataType) -> Value:
    """Returns a value that was written under one type as one of the type of its column, which may have
    widened since: integers become floats, a NaN's bits are those of another width."""
    if value is None or pt.is_null(dtype):
        return value
    if isinstance(dtype, pa.BaseExtensionType):
        return fitted(value, dtype.storage_type)
    if pt.is_dictionary(dtype):
        return fitted(value, dtype.value_type)
    if pt.is_floating(dtype):
        if isinstance(value, int):
            return float(value).hex()
        if value.startswith("nan:") and not value.startswith(f"nan:{dtype.bit_width}:"):
            return "nan"
        return value
    if not pt.is_nested(dtype):
        return value
    if pt.is_struct(dtype):
        known = dict(value)
        return tuple((field.name, fitted(known.get(field.name), field.type)) for field in dtype)
    if pt.is_map(dtype):
        return tuple((fitted(k, dtype.key_type), fitted(v, dtype.item_type)) for k, v in value)
    return tuple(fitted(item, dtype.value_type) for item in value)


def alike(expected: Value, found: Value) -> bool:
    """Returns whether two values are the same, where "nan" stands for a NaN that was widened."""
    if expected == found:
        return True
    if expected == "nan":
        return isinstance(found, str) and found.startswith("nan:")
    if isinstance(expected, tuple) and isinstance(found, tuple) and len(expected) == len(found):
        return all(map(alike, expected, found))
    return False


def breaks_not_null(value: Value, dtype: pa.DataType) -> bool:
    """Returns whether there is a null within a value where the type has none."""
    if value is None or not pt.is_nested(dtype):
        return False
    if pt.is_dictionary(dtype):
        return breaks_not_null(value, dtype.value_type)
    if pt.is_struct(dtype):
        pairs = [(item, field) for (_, item), field in zip(value, dtype, strict=True)]
    elif pt.is_map(dtype):
        pairs = [(item, dtype.item_field) for _, item in value]
    else:
        pairs = [(item, dtype.value_field) for item in value]
    return any(
        (item is None and not field.nullable) or breaks_not_null(item, field.type)
        for item, field in pairs
    )


def _of_dictionary(array: pa.DictionaryArray) -> list[Value]:
    indices, values = values_of(array.indices), values_of(array.dictionary)
    return [None if index is None else values[index] for index in indices]


def _present(array: pa.Array) -> list[Value]:
    """Returns the values of an array as if none were null; anything stands where one is."""
    dtype = array.type
    if pt.is_boolean(dtype):
        bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
        return [bool(bit) for bit in bits[array.offset : array.offset + len(array)]]
    for is_kind, read in _READERS:
        if is_kind(dtype):
            return read(array)
    raise TypeError(f"no reader of {dtype}")


def _words(array: pa.Array, kind: str) -> list[int]:
    buffer = array.buffers()[1]
    words = np.frombuffer(buffer, kind, count=array.offset + len(array))
    return list(words[array.offset :].tolist())


def _integers(array: pa.Array) -> list[Value]:
    kind = _NUMPY[array.type.bit_width]
    return _words(array, kind.replace("i", "u") if pt.is_unsigned_integer(array.type) else kind)


def _floats(array: pa.Array) -> list[Value]:
    width = array.type.bit_width
    return [float_of_bits(bits, width) for bits in _words(array, _NUMPY[width].replace("i", "u"))]


def _decimals(array: pa.Array) -> list[Value]:
    scale = array.type.scale
    return [
        decimal.Decimal(int.from_bytes(piece, "little", signed=True)).scaleb(-scale, EXACT)
        for piece in _pieces(array, array.type.bit_width // 8)
    ]


def _times(array: pa.Array) -> list[Value]:
    dtype = array.type
    factor = (
        10**6 if pt.is_date64(dtype) else DAY if pt.is_date32(dtype) else NANOSECONDS[dtype.unit]
    )
    return [word * factor for word in _words(array, _NUMPY[dtype.bit_width])]


def _intervals(array: pa.Array) -> list[Value]:
    return [struct.unpack("<iiq", piece) for piece in _pieces(array, 16)]


def _pieces(array: pa.Array, width: int) -> list[bytes]:
    if not width:
        return [b""] * len(array)
    data = array.buffers()[1].to_pybytes()
    first = array.offset * width
    return [data[at : at + width] for at in range(first, first + len(array) * width, width)]


def _texts(array: pa.Array) -> list[Value]:
    dtype = array.type
    is_large = pt.is_large_string(dtype) or pt.is_large_binary(dtype)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, "<i8" if is_large else "<i4", count=array.offset + len(array) + 1)
    ends = ends[array.offset :].tolist()
    content = b"" if data is None else data.to_pybytes()
    return [content[start:end] for start, end in pairwise(ends)]


def _views(array: pa.Array) -> list[Value]:
    _, views, *data = array.buffers()
    found = []
    for at in range(array.offset * 16, (array.offset + len(array)) * 16, 16):
        view = views[at : at + 16].to_pybytes()
        length, _, place, start = struct.unpack("<iiii", view)
        if 0 <= length <= 12:
            found.append(view[4 : 4 + length])
        elif 0 <= place < len(data) and length > 0:
            found.append(data[place][start : start + length].to_pybytes())
        else:
            found.append(b"garbage under a null")
    return found


def _lists(array: pa.Array) -> list[Value]:
    ends = values_of(array.offsets)
    items = values_of(array.values.slice(ends[0], ends[-1] - ends[0]))
    return [tuple(items[start - ends[0] : end - ends[0]]) for start, end in pairwise(ends)]


def _list_views(array: pa.Array) -> list[Value]:
    items = values_of(array.values)
    starts, sizes = values_of(array.offsets), values_of(array.sizes)
    return [tuple(items[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


def _fixed_lists(array: pa.Array) -> list[Value]:
    size = array.type.list_size
    if not size:
        return [()] * len(array)
    items = values_of(array.values.slice(array.offset * size, len(array) * size))
    return [tuple(items[at : at + size]) for at in range(0, len(items), size)]


def _structs(array: pa.Array) -> list[Value]:
    names = [field.name for field in array.type]
    if not names:
        return [()] * len(array)
    columns = [values_of(array.field(index)) for index in range(len(names))]
    return [tuple(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _maps(array: pa.Array) -> list[Value]:
    ends = values_of(array.offsets)
    start, length = ends[0], ends[-1] - ends[0]
    keys = values_of(array.keys.slice(start, length))
    items = values_of(array.items.slice(start, length))
    pairs = list(zip(keys, items, strict=True))
    return [tuple(pairs[first - start : end - start]) for first, end in pairwise(ends)]


_READERS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], list[Value]]], ...]] = (
    (lambda t: pt.is_integer(t) or pt.is_duration(t), _integers),
    (pt.is_floating, _floats),
    (pt.is_decimal, _decimals),
    (pt.is_interval, _intervals),
    (pt.is_temporal, _times),
    (pt.is_fixed_size_binary, lambda array: _pieces(array, array.type.byte_width)),
    (lambda t: pt.is_string_view(t) or pt.is_binary_view(t), _views),
    (lambda t: pt.is_string(t) or pt.is_binary(t), _texts),
    (lambda t: pt.is_large_string(t) or pt.is_large_binary(t), _texts),
    (pt.is_map, _maps),
    (lambda t: pt.is_list_view(t) or pt.is_large_list_view(t), _list_views),
    (lambda t: pt.is_list(t) or pt.is_large_list(t), _lists),
    (pt.is_fixed_size_list, _fixed_lists),
    (pt.is_struct, _structs),
)
