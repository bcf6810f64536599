"""Copies runs of values of any type end to end, such as the elements of lists.

A native loop copies the bytes of each run, without Arrow's kernels.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import native
from lsm_fragment.arrays.buffers import binary_parts, fixed_width_bytes, fixed_width_view, pack_bits
from lsm_fragment.arrays.nested import (
    I64,
    are_null,
    bits_at,
    build_fixed_lists,
    build_list,
    build_struct,
    fixed_items,
    no_values,
    spans_at,
)
from lsm_fragment.arrays.types import MAX_OFFSET_32, is_binary_like

_VIEW_BYTES: Final = 16


def take_runs(array: pa.Array, starts: I64, counts: I64) -> pa.Array:
    """Returns the values of all runs end to end. A run has `counts` values from `starts` on.

    Raises `pa.ArrowInvalid` if the result exceeds 32-bit offsets, `ValueError` for a run beyond the end.
    """
    dtype, total = array.type, int(counts.sum())
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, take_runs(array.storage, starts, counts))
    if pt.is_dictionary(dtype):
        codes = take_runs(array.indices, starts, counts)
        return pa.DictionaryArray.from_arrays(
            codes, array.dictionary, ordered=dtype.ordered, safe=False
        )
    if not total or pt.is_null(dtype):
        return pa.nulls(total, dtype) if pt.is_null(dtype) else no_values(dtype)
    if not pt.is_nested(dtype):
        return _flat(array, starts, counts)
    places = _places(starts, counts)
    mask = pa.array(are_null(array, places)) if array.null_count else None
    if pt.is_struct(dtype):
        fields = range(dtype.num_fields)
        children = [take_runs(array.field(place), starts, counts) for place in fields]
        return build_struct(dtype, total, children, mask)
    if pt.is_fixed_size_list(dtype):
        size = dtype.list_size
        items = take_runs(fixed_items(array), starts * size, counts * size)
        return build_fixed_lists(dtype, total, items, mask)
    first, lengths = spans_at(array, places)
    return build_list(dtype, lengths, take_runs(array.values, first, lengths), mask)


def _places(starts: I64, counts: I64) -> I64:
    """Returns the positions of the values of all runs."""
    ends = np.cumsum(counts)
    places: I64 = np.arange(int(counts.sum())) + np.repeat(starts - ends + counts, counts)
    return places


def _flat(array: pa.Array, starts: I64, counts: I64) -> pa.Array:
    dtype, total = array.type, int(counts.sum())
    validity = None
    if array.null_count:
        validity = pa.py_buffer(pack_bits(~are_null(array, _places(starts, counts))))
    if pt.is_boolean(dtype):
        bits = bits_at(array.buffers()[1], _places(starts, counts) + array.offset)
        buffers = [pa.py_buffer(pack_bits(bits))]
    elif is_binary_like(dtype):
        buffers = _strings(array, starts, counts)
    else:
        is_view = pt.is_string_view(dtype) or pt.is_binary_view(dtype)
        width = _VIEW_BYTES if is_view else fixed_width_bytes(dtype)
        assert width is not None, f"no type of arrays: {dtype}"
        values = (
            fixed_width_view(array, np.dtype((np.uint8, width))) if width else np.empty(0, np.uint8)
        )
        copied = _bytes(values.reshape(-1), starts * width, counts * width)
        buffers = [pa.py_buffer(copied), *array.buffers()[2:]]
    return pa.Array.from_buffers(dtype, total, [validity, *buffers])


def _strings(array: pa.Array, starts: I64, counts: I64) -> list[pa.Buffer]:
    offsets, data = binary_parts(array)
    first = offsets[starts].astype(np.int64)
    sizes = offsets[starts + counts] - first
    ends, width = np.cumsum(sizes), offsets.itemsize
    if width == 4 and ends[-1] > MAX_OFFSET_32:
        raise pa.ArrowInvalid(f"{ends[-1]} bytes of strings exceed 32-bit offsets")
    stops = _bytes(offsets[1:].view(np.uint8), starts * width, counts * width).view(offsets.dtype)
    placed = np.zeros(len(stops) + 1, dtype=offsets.dtype)
    np.add(stops, np.repeat(ends - sizes - first, counts), out=placed[1:], casting="unsafe")
    return [pa.py_buffer(placed), pa.py_buffer(_bytes(native.as_bytes(data), first, sizes))]


def _bytes(data: npt.NDArray[np.uint8], starts: I64, sizes: I64) -> npt.NDArray[np.uint8]:
    ends = np.cumsum(sizes)
    out: npt.NDArray[Any] = np.empty(int(ends[-1]), dtype=np.uint8)
    native.arrays.strings.copy_runs(data, starts, sizes, out, ends - sizes)
    return out
