"""Builds and unifies dictionaries of values of any storage type; values are distinguished by their bits.

Arrow's own functions change half floats when they unify dictionaries, and support neither small decimals nor
nested values. Here every type is mapped to one that Arrow distinguishes exactly: numbers to integers of their
bits, structs and lists to the numbers of their contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import compute as pc
from lsm_fragment.arrays.buffers import (
    dictionary_codes,
    fixed_width_bytes,
    fixed_width_view,
    integer_array,
    valid_mask,
)
from lsm_fragment.arrays.moves import concat, keep, list_parts, take
from lsm_fragment.arrays.nested import fixed_items

I32 = npt.NDArray[np.int32]
_NULL: Final = -1


def coded(array: pa.Array) -> pa.Array:
    """Dictionary-codes a storage array over its distinct values, in the order of their first use."""
    codes = _value_numbers(array)
    firsts = _first_uses(codes)
    indices = integer_array(codes, codes >= 0 if array.null_count else None)
    return pa.DictionaryArray.from_arrays(indices, _taken(array, firsts), safe=False)


def unified(arrays: Sequence[pa.Array]) -> pa.Array:
    """Joins dictionary-coded storage arrays over one dictionary.

    A dictionary that all share is kept; otherwise it has each value once, in the order of the dictionaries.
    """
    dictionaries = _different([array.dictionary for array in arrays])
    if len(dictionaries.values) == 1:
        indices = pa.concat_arrays([array.indices for array in arrays])
        return pa.DictionaryArray.from_arrays(indices, dictionaries.values[0], safe=False)
    values = concat(dictionaries.values)
    starts = np.cumsum([0, *(len(some) for some in dictionaries.values[:-1])])
    return _over_distinct(values, zip(arrays, starts[dictionaries.places], strict=True))


def with_distinct_values(array: pa.Array) -> pa.Array:
    """Removes duplicates from the dictionary of a dictionary-coded storage array."""
    return _over_distinct(array.dictionary, [(array, 0)])


def _over_distinct(values: pa.Array, arrays: Iterable[tuple[pa.Array, int]]) -> pa.Array:
    """Joins dictionary-coded arrays over the distinct ones of `values`, at which each array's dictionary
    starts at the given position."""
    numbers = _value_numbers(values)
    indices = pa.concat_arrays([_moved(array, numbers[start:]) for array, start in arrays])
    distinct = _taken(values, _first_uses(numbers))
    return pa.DictionaryArray.from_arrays(indices, distinct, safe=False)


def _moved(array: pa.Array, numbers: I32) -> pa.Array:
    """Maps the indices of an array to the numbers of its values."""
    codes, valid = dictionary_codes(array), valid_mask(array)
    if valid is None:
        return integer_array(numbers[codes])
    if not valid.any():
        return pa.nulls(len(array), pa.int32())
    return integer_array(numbers[np.where(valid, codes, 0)], valid)


class _Different(NamedTuple):
    values: list[pa.Array]
    places: list[int]
    """For each given dictionary, its place in `values`."""


def _different(dictionaries: Sequence[pa.Array]) -> _Different:
    """Removes dictionaries that share memory with another, or equal the one before. An empty one equals
    any."""
    found = _Different([], [])
    known: dict[object, int] = {}
    for one in dictionaries:
        memory = (len(one), one.offset, *(_places(one)))
        place = None if pt.is_nested(one.type) else known.get(memory)
        if place is None:
            if not found.values or not len(found.values[-1]):
                found.values[-1:] = [one]
            elif len(one) and not _is_same(one, found.values[-1]):
                found.values.append(one)
            place = known[memory] = len(found.values) - 1
        found.places.append(place)
    return found


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    """Returns whether two storage arrays hold the same values by their bits: Arrow's 0.0 equals -0.0."""
    if len(one) != len(other):
        return False
    if is_same_memory(one, other):
        return True
    if not (pt.is_floating(one.type) or pt.is_nested(one.type)):
        return bool(one.equals(other))
    ours, theirs = np.split(_value_numbers(concat([one, other])), 2)
    return bool(np.array_equal(ours, theirs))


def is_same_memory(one: pa.Array, other: pa.Array) -> bool:
    """Returns whether two arrays of one type are the same bytes of the same buffers, and so have the same
    values.

    Always False for nested arrays, whose children may be slices.
    """
    if len(one) != len(other) or one.offset != other.offset or pt.is_nested(one.type):
        return False
    return _places(one) == _places(other)


def _places(array: pa.Array) -> list[tuple[int, int] | None]:
    return [None if buffer is None else (buffer.address, buffer.size) for buffer in array.buffers()]


def without_null_values(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Removes nulls from a storage array's dictionary; indices to them become null."""
    values = array.dictionary
    if not values.null_count or array.null_count == len(array):
        return array
    place = np.cumsum(values.is_valid().to_numpy(zero_copy_only=False)) - 1
    places = pa.array(place, pa.int32(), mask=np.asarray(values.is_null()))
    kept = keep(values, np.asarray(values.is_valid()))
    return pa.DictionaryArray.from_arrays(places.take(array.indices), kept, safe=False)


def first_of_each(
    owner: npt.NDArray[np.int64], codes: npt.NDArray[np.integer[Any]]
) -> npt.NDArray[np.int64]:
    """Returns the positions of each owner's distinct codes, first occurrences, ascending."""
    if not len(codes):
        return np.zeros(0, np.int64)
    pairs = owner * (int(codes.max()) + 1) + codes
    return np.sort(np.unique(pairs, return_index=True)[1])


def _taken(array: pa.Array, places: npt.NDArray[np.int64]) -> pa.Array:
    if len(places) == len(array):  # all values are distinct
        return array
    return take(array, places)


def _first_uses(numbers: I32) -> npt.NDArray[np.int64]:
    """Returns the first position of each number from 0 on. -1 stands for null."""
    firsts = np.zeros(int(numbers.max(initial=_NULL)) + 1, dtype=np.int64)
    present = np.flatnonzero(numbers >= 0)[::-1]
    firsts[numbers[present]] = present  # the last write wins
    return firsts


def _value_numbers(array: pa.Array) -> I32:
    """Numbers values by first use: equal bits, equal numbers. Null is -1."""
    dtype, length = array.type, len(array)
    if array.null_count == length:
        return np.full(length, _NULL, dtype=np.int32)
    if pt.is_struct(dtype):
        children = [_value_numbers(child) for child in array.flatten()]
        return _numbered(_rows_of_bytes(length, children), array)
    if pt.is_fixed_size_list(dtype):
        items = _value_numbers(fixed_items(array)).reshape(length, dtype.list_size)
        return _numbered(_rows_of_bytes(length, list(items.T)), array)
    if pt.is_nested(dtype):
        buffers = [None, *map(pa.py_buffer, list_bytes(array))]
        return _numbered(pa.Array.from_buffers(pa.large_binary(), length, buffers), array)
    width = fixed_width_bytes(dtype)
    if width is None:  # Arrow distinguishes strings, binaries and booleans exactly
        return _numbered(array, None)
    if width in (1, 2, 4, 8):
        return _numbered(pa.array(fixed_width_view(array, f"u{width}")), array)
    bits = pa.Array.from_buffers(
        pa.binary(width), length, [None, array.buffers()[1]], 0, array.offset
    )
    return _numbered(bits, array)


def list_bytes(array: pa.Array) -> tuple[npt.NDArray[np.int64], I32]:
    """Returns the byte offsets of lists or maps, and the numbers of their elements that these refer to.
    Elements are distinguished by their bits."""
    counts, items = list_parts(array)
    numbers = _value_numbers(items)
    offsets = np.zeros(len(array) + 1, dtype=np.int64)
    np.cumsum(counts * numbers.itemsize, out=offsets[1:])
    return offsets, numbers


def _rows_of_bytes(length: int, columns: Sequence[I32]) -> pa.Array:
    """Joins the numbers of each row into one value."""
    width = 4 * len(columns)
    table = np.empty((length, len(columns)), dtype=np.int32)
    for place, column in enumerate(columns):
        table[:, place] = column
    return pa.Array.from_buffers(pa.binary(width), length, [None, pa.py_buffer(table)])


def _numbered(exact: pa.Array, array: pa.Array | None) -> I32:
    """Numbers values by first use.

    exact: values that Arrow distinguishes by their bytes. array: the array with the nulls, if not `exact`.
    """
    valid = valid_mask(exact if array is None else array)
    if array is not None and valid is not None:
        mask = pa.array(valid)
        exact = pc.if_else(mask, exact, pa.scalar(None, exact.type))
    indices = exact.dictionary_encode().indices
    numbers = indices.fill_null(_NULL) if indices.null_count else indices
    return np.asarray(numbers, dtype=np.int32)
