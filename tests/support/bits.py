"""Values of Arrow arrays by their bits, read from the buffers: an oracle without any of Arrow's kernels."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

Values = list[Hashable]


def bits_of(array: pa.Array | pa.ChunkedArray) -> Values:
    """A value that can be compared for each of the array: numbers as integers of their bits, nested ones as
    tuples, dictionaries and extensions by their values."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in bits_of(chunk)]
    dtype = array.type
    if isinstance(dtype, pa.BaseExtensionType):
        return bits_of(array.storage)
    if pt.is_null(dtype) or not len(array):
        return [None] * len(array)
    if pt.is_dictionary(dtype):
        values = bits_of(array.dictionary)
        return [None if code is None else values[code] for code in array.indices.to_pylist()]
    found = _nested(array) if pt.is_nested(dtype) else _flat(array)
    return [value if ok else None for value, ok in zip(found, _valid(array), strict=True)]


def rows_of(table: pa.Table, key: str) -> list[tuple[Hashable, ...]]:
    """The rows in the order of a column that tells them apart, or that equal rows share."""
    names = sorted(table.column_names)
    rows = list(zip(*(bits_of(table.column(name)) for name in names), strict=True))
    return sorted(rows, key=lambda row: (row[names.index(key)], repr(row)))


def _valid(array: pa.Array) -> Sequence[bool]:
    bitmap = array.buffers()[0]
    if bitmap is None:
        return [True] * len(array)
    flags = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return [bool(flag) for flag in flags[array.offset : array.offset + len(array)]]


def _numbers(array: pa.Array, buffer: int, dtype: Any, more: int = 0) -> Any:
    count = array.offset + len(array) + more
    return np.frombuffer(array.buffers()[buffer], dtype, count=count)[array.offset :]


def _flat(array: pa.Array) -> Sequence[Hashable]:
    dtype = array.type
    if pt.is_boolean(dtype) or _is_text(dtype):
        return [value.as_py() for value in array]
    width = 16 if pt.is_interval(dtype) else dtype.bit_width // 8
    if width in (1, 2, 4, 8) and not pt.is_fixed_size_binary(dtype):
        return list(map(int, _numbers(array, 1, f"u{width}")))
    data = bytes(array.buffers()[1] or b"")
    starts = range(array.offset, array.offset + len(array))
    return [data[at * width : at * width + width] for at in starts]


def _is_text(dtype: pa.DataType) -> bool:
    kinds = [pt.is_string, pt.is_large_string, pt.is_string_view]
    kinds += [pt.is_binary, pt.is_large_binary, pt.is_binary_view]
    return any(is_kind(dtype) for is_kind in kinds)


def _nested(array: pa.Array) -> Sequence[Hashable]:
    dtype, rows = array.type, range(len(array))
    if pt.is_struct(dtype):
        children = [bits_of(array.field(place)) for place in range(dtype.num_fields)]
        return [tuple(child[row] for child in children) for row in rows]
    items = bits_of(array.values)
    if pt.is_fixed_size_list(dtype):
        size = dtype.list_size
        return [
            tuple(items[(array.offset + row) * size : (array.offset + row + 1) * size])
            for row in rows
        ]
    is_large = pt.is_large_list(dtype) or pt.is_large_list_view(dtype)
    width = np.int64 if is_large else np.int32
    if pt.is_list_view(dtype) or pt.is_large_list_view(dtype):
        starts, sizes = _numbers(array, 1, width), _numbers(array, 2, width)
        stops = starts + sizes
    else:
        offsets = _numbers(array, 1, width, more=1)
        starts, stops = offsets[:-1], offsets[1:]
    return [tuple(items[starts[row] : stops[row]]) for row in rows]
