"""The window functions, each evaluated over a block of rows at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from compactor.errors import DataError
from compactor.pipelines.exact_sums import as_floats, digits_of, from_digits, sum_type, with_carries
from compactor.pipelines.segments import Frames
from lsm_fragment import compute as pc
from lsm_fragment.arrays.joining import concat_logical
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.keys.normalised import same_as_previous, sort_keys, stable_order
from lsm_fragment.keys.sort_schema import SortColumn

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class WindowRows(Struct, frozen=True):
    """Rows in window order. Values are computed for `start` to `stop`; the other rows are context."""

    numbers: I64
    """Row numbers within the partition, from 1. Shape (rows held,)."""
    start: int
    stop: int
    frames: Frames


class WindowFunction(ABC):
    """A window function, called block by block. It keeps the state that the next block needs."""

    type: pa.DataType
    rows_before = 0
    """Number of preceding rows that the function reads."""
    rows_after = 0

    @abstractmethod
    def __call__(self, rows: WindowRows, values: pa.Array | None) -> pa.Array:
        """Returns the values of rows `start` to `stop`. values: the argument, for all rows held."""


class RowNumber(WindowFunction):
    """`row_number()`: the row's number within the partition, from 1."""

    type = pa.int64()

    def __call__(self, rows: WindowRows, _values: pa.Array | None) -> pa.Array:
        return pa.array(rows.numbers[rows.start : rows.stop])


class Shift(WindowFunction):
    """`lag(x, n)` and `lead(x, n)`: the value `n` rows before or after; null outside the partition."""

    def __init__(self, dtype: pa.DataType, offset: int) -> None:
        """offset: row distance, negative for `lag`."""
        self.type = dtype
        self.rows_before, self.rows_after = max(0, -offset), max(0, offset)
        self._offset = offset

    def __call__(self, rows: WindowRows, values: pa.Array | None) -> pa.Array:
        assert values is not None
        places = np.arange(rows.start, rows.stop) + self._offset
        inside = (places >= 0) & (places < len(rows.numbers))
        places[~inside] = 0
        wanted = rows.numbers[rows.start : rows.stop] + self._offset
        # Row numbers restart in each partition, so a wrong number means another partition.
        inside &= rows.numbers[places] == wanted
        return take(values, np.where(inside, places, -1))


class First(WindowFunction):
    """`first(x)`: the value of the first row of the frame."""

    def __init__(self, dtype: pa.DataType) -> None:
        self.type = dtype
        self._before = pa.nulls(1, dtype)

    def __call__(self, rows: WindowRows, values: pa.Array | None) -> pa.Array:
        assert values is not None
        given = _given(rows.frames, self._before, values)
        found = take(given, rows.frames.low)
        self._before = _last(found)
        return found


class Last(WindowFunction):
    """`last(x)`: the value of the last row of the frame, which is the row itself."""

    def __init__(self, dtype: pa.DataType) -> None:
        self.type = dtype

    def __call__(self, rows: WindowRows, values: pa.Array | None) -> pa.Array:
        assert values is not None
        return values.slice(rows.start, rows.stop - rows.start)


class Count(WindowFunction):
    """`count(*)` of rows, and `count(x)` of non-null values."""

    type = pa.int64()

    def __init__(self) -> None:
        self._before: I64 = np.zeros(1, dtype=np.int64)

    def __call__(self, rows: WindowRows, values: pa.Array | None) -> pa.Array:
        return pa.array(self.counts(rows, values))

    def counts(self, rows: WindowRows, values: pa.Array | None) -> I64:
        ones = (
            np.ones(len(rows.numbers), dtype=np.int64)
            if values is None
            else np.asarray(values.is_valid()).astype(np.int64)
        )
        ones = ones[rows.frames.rows]
        if rows.frames.is_running:
            ones = np.concatenate([self._before, ones])
        found = rows.frames.sums(ones)
        self._before = found[-1:]
        return found


class Sum(WindowFunction):
    """`sum(x)` and `avg(x)` of integers and decimals, computed exactly."""

    def __init__(self, dtype: pa.DataType, what: str, *, is_mean: bool) -> None:
        """what: the function's name in errors."""
        self._of, self._what, self._is_mean = dtype, what, is_mean
        self._sum_type = sum_type(dtype)
        self.type = pa.float64() if is_mean else self._sum_type
        self._counts = Count()
        self._before = digits_of(pa.nulls(1, dtype))

    def __call__(self, rows: WindowRows, values: pa.Array | None) -> pa.Array:
        """Raises `DataError` if a sum overflows."""
        assert values is not None
        counts = self._counts.counts(rows, values)
        digits = digits_of(values[rows.frames.rows])
        if rows.frames.is_running:
            digits = np.concatenate([self._before, digits])
        totals = with_carries(rows.frames.sums(digits))
        self._before = totals[-1:]
        if self._is_mean:
            return _mean(as_floats(totals, self._sum_type), counts)
        try:
            return from_digits(totals, counts == 0, self._sum_type)
        except pa.ArrowInvalid:
            raise DataError(f"{self._what} does not fit into {self._sum_type}") from None


class FloatSum(WindowFunction):
    """`sum(x)` and `avg(x)` of floats, added in row order."""

    type = pa.float64()

    def __init__(self, *, is_mean: bool) -> None:
        self._is_mean = is_mean
        self._counts = Count()
        self._before: npt.NDArray[np.float64] = np.zeros(1)

    def __call__(self, rows: WindowRows, values: pa.Array | None) -> pa.Array:
        assert values is not None
        counts = self._counts.counts(rows, values)
        # -0.0 is the neutral element: adding it changes no value, not even -0.0.
        known = pc.fill_null(values[rows.frames.rows].cast(pa.float64()), -0.0).to_numpy()
        if rows.frames.is_running:
            known = np.concatenate([self._before, known])
        totals = rows.frames.over(np.add, known)
        self._before = totals[-1:]
        if self._is_mean:
            return _mean(totals, counts)
        return pa.array(totals, mask=counts == 0)


class Extreme(WindowFunction):
    """`min(x)` and `max(x)` of any ordered type. The result is NaN only if no other value is known."""

    def __init__(self, dtype: pa.DataType, *, is_max: bool) -> None:
        self.type = dtype
        self._is_max = is_max
        self._before = pa.nulls(1, dtype)

    def __call__(self, rows: WindowRows, values: pa.Array | None) -> pa.Array:
        assert values is not None
        given = _given(rows.frames, self._before, values)
        if pt.is_floating(self.type):
            given = pc.add(given, pa.scalar(0.0).cast(self.type))
        ranks, places = _ranks(given, is_reversed=self._is_max)
        best = rows.frames.over(np.minimum, ranks)
        found = take(given, np.append(places, -1)[best])
        self._before = _last(found)
        return found


def _ranks(values: pa.Array, *, is_reversed: bool) -> tuple[I64, I64]:
    """Ranks values, NaN last and null after NaN.

    Returns the ranks, and the index of a value for each rank.
    """
    keys = sort_keys([to_storage(values)], (SortColumn("value"),))
    order = stable_order(keys)
    is_new = ~same_as_previous(keys, order)
    ranks: Any = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(is_new) - 1
    places = order[is_new].astype(np.int64)
    # All nulls share the last rank.
    if values.null_count:
        places = places[:-1]
    count = len(places)
    if is_reversed and count:
        known = count
        if pt.is_floating(values.type) and pc.is_nan(values[int(places[-1])]).as_py():
            known -= 1
        ranks = np.where(ranks < known, known - 1 - ranks, ranks)
        places = np.concatenate([places[:known][::-1], places[known:]])
    return ranks, places


def _given(frames: Frames, before: pa.Array, values: pa.Array) -> pa.Array:
    mine = values[frames.rows]
    return concat_logical([before, mine]) if frames.is_running else mine


def _last(values: pa.Array) -> pa.Array:
    """Copies the last row, so that the others can be freed."""
    return take(values, np.array([len(values) - 1]))


def _mean(totals: npt.NDArray[np.float64], counts: I64) -> pa.Array:
    return pa.array(totals / np.maximum(counts, 1), mask=counts == 0)
