"""Functions of lists, maps and structs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.predicate.expressions.comparing import compare
from compactor.predicate.tree import Op
from lsm_fragment import compute as pc
from lsm_fragment.arrays.buffers import integer_array, valid_mask
from lsm_fragment.arrays.joining import with_nulls_of
from lsm_fragment.arrays.moves import list_parts, take
from lsm_fragment.arrays.nested import fixed_items

I64 = npt.NDArray[np.int64]
_BEYOND: Final = 1 << 32
"""A number of an element that no list has."""


def field(value: Any, name: str) -> Any:
    """Returns a field of structs. Raises `pa.ArrowInvalid` if there is none."""
    if not pt.is_struct(value.type):
        raise pa.ArrowInvalid(f"{value.type} has no fields")
    if value.type.get_field_index(name) < 0:
        names = ", ".join(part.name for part in value.type)
        raise pa.ArrowInvalid(f"no field {name!r}; fields are: {names}")
    return pc.struct_field(value, name)


def element(lists: Any, number: Any) -> Any:
    """Returns element `number` of each list, from 1, or from the end if it is negative; null without it."""
    if isinstance(lists, pa.Scalar):
        lists = _repeated(lists, len(number))
    counts, items = _parts(lists)
    wanted = np.asarray(pc.fill_null(number, 0)) if isinstance(number, pa.Array) else number.as_py()
    if wanted is None:
        wanted = 0
    elif isinstance(wanted, np.ndarray) and wanted.dtype == np.uint64:
        wanted = np.minimum(wanted, np.uint64(_BEYOND)).astype(np.int64)
    places = np.where(np.greater(wanted, 0), np.subtract(wanted, 1), counts + wanted)
    is_there = np.not_equal(wanted, 0) & (places >= 0) & (places < counts)
    starts = np.cumsum(counts) - counts
    return take(items, np.where(is_there, starts + places, -1))


def length(lists: pa.Array) -> pa.Array:
    counts, _ = _parts(lists)
    return integer_array(counts, valid_mask(lists))


def value_of(maps: pa.Array, key: Any) -> pa.Array:
    """Returns the value of a key in each map; null without it."""
    rows, places = _found(maps, key, is_map=True)
    rows, firsts = np.unique(rows, return_index=True)
    wanted = np.full(len(maps), -1)
    wanted[rows] = places[firsts]
    _, entries = _parts(maps)
    return take(entries.flatten()[1], wanted)


def list_contains(lists: Any, value: Any) -> pa.Array:
    if isinstance(lists, pa.Scalar):
        lists = _repeated(lists, len(value))
    rows, _ = _found(lists, value, is_map=False)
    return contains_of(lists, rows, value)


def contains_of(lists: pa.Array, rows: I64, value: Any) -> pa.Array:
    """Returns true for these rows and false for others, null where the list or the value is null."""
    holds = np.zeros(len(lists), np.bool_)
    holds[rows] = True
    found = with_nulls_of(lists, pa.array(holds))
    if isinstance(value, pa.Scalar):
        return found if value.is_valid else pa.nulls(len(lists), pa.bool_())
    return with_nulls_of(value, found)


def _found(lists: pa.Array, value: Any, *, is_map: bool) -> tuple[I64, I64]:
    """Returns the row and the place of each element, or key, that equals the value of its row."""
    counts, items = _parts(lists)
    rows = np.repeat(np.arange(len(lists)), counts)
    keys = items.flatten()[0] if is_map else items
    wanted = take(value, rows) if isinstance(value, pa.Array) else value
    if pt.is_null(keys.type):
        keys = pa.nulls(len(keys), value.type)
    is_equal = np.asarray(pc.fill_null(compare(Op.EQ, keys, wanted), False))
    places = np.flatnonzero(is_equal)
    return rows[places], places


def _repeated(lists: pa.Scalar, count: int) -> pa.Array:
    """Returns a list for each row; Arrow repeats no list 0 times."""
    return take(pa.repeat(lists, 1), np.zeros(count, np.int64))


def _parts(lists: pa.Array) -> tuple[I64, pa.Array]:
    """Returns element counts, 0 for null, and all elements, end to end."""
    if not pt.is_fixed_size_list(lists.type):
        return list_parts(lists)
    size, items = lists.type.list_size, fixed_items(lists)
    is_valid = valid_mask(lists)
    counts = np.full(len(lists), size, np.int64)
    if is_valid is None:
        return counts, items
    return np.where(is_valid, counts, 0), take(items, np.flatnonzero(np.repeat(is_valid, size)))
