"""Applies the flags to one column of merged rows: drops rows, or folds those of a key into one. Vectorised.

Most functions choose a source row for each kept row, which works for any type and for dictionary codes. Sums
and unions compute new values.
"""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import DataError
from compactor.rows.flags import COUNTS, KEPT, Flags, RowRule
from compactor.rows.policy import RowFunction
from lsm_fragment import compute as pc
from lsm_fragment.arrays.decimals import with_scale
from lsm_fragment.arrays.dictionaries import first_of_each
from lsm_fragment.arrays.moves import keep, list_parts, take
from lsm_fragment.arrays.nested import build_list
from lsm_fragment.arrays.storage import plain
from lsm_fragment.keys.normalised import sort_keys, stable_order
from lsm_fragment.keys.sort_schema import Order, SortColumn

I64 = npt.NDArray[np.int64]
_WHOLE = pa.decimal256(76, 0)


class FoldError(DataError):
    """The column's type cannot hold the folded value."""

    def __init__(self, *parts: str, column: str = "", row: int = 0) -> None:
        """column: its stored name. row: the number of the row whose value does not fit."""
        super().__init__(*parts)
        self.column = column
        self.row = row
        self.input = -1
        """In a merge, the input of the row; `row` then counts the input's rows that are not deleted."""


def kept_rows(array: pa.Array, flags: Flags) -> pa.Array:
    """Filters the kept rows."""
    return keep(array, (flags & KEPT).astype(np.bool_))


def merged_rows(array: pa.Array, flags: Flags, name: str, rule: RowRule | None) -> pa.Array:
    """Returns the merged rows of column `name`. Raises `FoldError`."""
    function = None if rule is None else rule.function(name)
    return kept_rows(array, flags) if function is None else folded(array, flags, function, name)


def chooses(function: RowFunction) -> bool:
    """Returns whether the result is always one of the values, so that dictionary codes suffice."""
    return function not in (RowFunction.SUM, RowFunction.COUNT, RowFunction.LIST, RowFunction.SET)


def folded(array: pa.Array, flags: Flags, function: RowFunction, name: str) -> pa.Array:
    """Returns one value per kept row. name: the column's, for errors.

    Raises `FoldError` for a sum that overflows its type.
    """
    if (rows := chosen_rows(array, flags, function)) is not None:
        return take(array, rows)
    into = _Targets(array, flags)
    if function in (RowFunction.SUM, RowFunction.COUNT):
        return _summed(plain(array), into, name)
    return _united(plain(array), into, is_set=function is RowFunction.SET)


def chosen_rows(array: pa.Array, flags: Flags, function: RowFunction) -> I64 | None:
    """Returns the source row of each kept row; None for functions that compute values."""
    if not chooses(function):
        return None
    into = _Targets(array, flags)
    match function:
        case RowFunction.LAST:
            return into.last()
        case RowFunction.FIRST:
            return into.first()
        case RowFunction.MIN | RowFunction.BOOL_AND:
            return into.extreme(array, greatest=False)
        case _:
            return into.extreme(array, greatest=True)


class _Targets:
    """The assignment of values to kept rows."""

    def __init__(self, array: pa.Array, flags: Flags) -> None:
        is_kept = (flags & KEPT).astype(np.bool_)
        self.kept: I64 = np.flatnonzero(is_kept)
        """Positions of the kept rows; shape (rows kept,)."""
        number: I64 = np.cumsum(is_kept) - is_kept
        valid = np.asarray(array.is_valid())
        takes_part = (flags & COUNTS).astype(np.bool_) | is_kept
        self.rows: I64 = np.flatnonzero(takes_part & valid)
        """Positions of the folded values, ascending."""
        self.into: I64 = number[self.rows]
        """Number of the kept row that each value is folded into, ascending; same shape as `rows`."""

    def last(self) -> I64:
        """Returns the position of the newest value of each kept row, or its own if it has none."""
        chosen = self.kept.copy()
        chosen[self.into] = self.rows  # The last assignment wins.
        return chosen

    def first(self) -> I64:
        """Returns the position of the oldest value of each kept row, or its own if it has none."""
        chosen = self.kept.copy()
        chosen[self.into[::-1]] = self.rows[::-1]
        return chosen

    def extreme(self, array: pa.Array, *, greatest: bool) -> I64:
        """Returns the position of each kept row's minimum or maximum, the oldest of equal ones."""
        chosen = self.kept.copy()
        if len(self.rows):
            spec = SortColumn("value", Order.DESC if greatest else Order.ASC)
            values = take(array, self.rows)
            order = stable_order(sort_keys([values], (spec,)))[::-1]
            chosen[self.into[order]] = self.rows[order]  # The last assignment wins.
        return chosen

    def starts(self) -> I64:
        """Returns the positions in `rows` at which the values of the next kept row begin."""
        return np.flatnonzero(np.diff(self.into, prepend=-1))

    def check(self, is_too_large: npt.NDArray[np.bool_], name: str, dtype: pa.DataType) -> None:
        """Raises `FoldError` if a sum does not fit. is_too_large: one flag per kept row, as in `starts`."""
        for place in np.flatnonzero(is_too_large)[:1]:
            row = int(self.kept[self.into[self.starts()[place]]])
            what = f"the sum of the rows of one key does not fit into {dtype}"
            raise FoldError(f"column {name!r}: {what}", column=name, row=row)


def _summed(array: pa.Array, into: _Targets, name: str) -> pa.Array:
    starts = into.starts()
    own = take(array, into.kept)
    if len(starts) == len(into.rows) and not own.null_count:
        return own  # each kept row has one value
    values = take(array, into.rows)
    if pt.is_decimal(array.type):
        return _decimal_sums(values, into, len(own), name)
    numbers: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if not len(numbers):
        return own
    with np.errstate(invalid="ignore", over="ignore"):  # infinities add up to infinities and NaN
        sums = np.add.reduceat(numbers, starts)
    if pt.is_integer(array.type):
        about = np.add.reduceat(numbers.astype(np.float64), starts)
        limit = 2.0 ** (array.type.bit_width - 1)
        # Near the limit the float is too coarse, but a wrapped sum has the wrong sign there.
        wrapped = (np.abs(about) > limit / 2) & (np.sign(about) != np.sign(sums))
        into.check((np.abs(about) > 1.5 * limit) | wrapped, name, array.type)
    result = np.zeros(len(own), dtype=numbers.dtype)
    missing = np.ones(len(own), dtype=np.bool_)
    result[into.into[starts]] = sums
    missing[into.into[starts]] = False
    return pa.array(result, array.type, mask=missing)


def _decimal_sums(values: pa.Array, into: _Targets, rows: int, name: str) -> pa.Array:
    dtype = values.type
    # Arrow's decimal sums wrap silently, in 256 bits only beyond 76 digits. Sums ignore the scale, because
    # Arrow cannot format scales beyond the digits of its widths.
    whole = values.view(with_scale(dtype, 0)).cast(_WHOLE)
    table = pa.table({"into": into.into, "value": whole})
    sums = table.group_by("into", use_threads=False).aggregate([("value", "sum")])
    about = np.add.reduceat(whole.cast(pa.float64()).to_numpy(zero_copy_only=False), into.starts())
    added = sums.column("value_sum").combine_chunks()
    limit = decimal.Decimal("9" * dtype.precision)
    high, low = (pa.scalar(end, _WHOLE) for end in (limit, limit.copy_negate()))
    is_beyond = pc.or_(pc.greater(added, high), pc.less(added, low)).to_numpy(zero_copy_only=False)
    into.check(is_beyond | (np.abs(about) > 2.0 * 10.0**dtype.precision), name, dtype)
    at = np.full(rows, -1)
    at[sums.column("into").to_numpy()] = np.arange(len(sums))
    return added.cast(with_scale(dtype, 0)).view(dtype).take(pa.array(at, mask=at < 0))


def _united(array: pa.Array, into: _Targets, *, is_set: bool) -> pa.Array:
    counts, items = list_parts(take(array, into.rows))
    owner = np.repeat(into.into, counts)
    if is_set and len(items):
        codes = _comparable(items).dictionary_encode(null_encoding="encode").indices.to_numpy()
        first = first_of_each(owner, codes)
        items, owner = take(items, first), owner[first]
    sizes = np.bincount(owner, minlength=len(into.kept))
    missing = np.ones(len(into.kept), dtype=np.bool_)
    missing[into.into] = False
    return build_list(array.type, sizes, items, pa.array(missing) if missing.any() else None)


def _comparable(items: pa.Array) -> pa.Array:
    """Casts to a type that Arrow can dictionary-encode, which excludes decimals below 128 bits."""
    if pt.is_decimal(items.type) and items.type.bit_width < 128:
        return items.cast(pa.decimal128(items.type.precision, items.type.scale))
    return items
