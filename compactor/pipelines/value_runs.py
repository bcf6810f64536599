"""The aggregate functions of sorted values, which are read group by group, a bounded number at a time.

DuckDB holds all values of all groups for these functions and puts none of them aside, so they are ours: the
rows are sorted by group, and by value where that matters, and the number of values of each group is known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import DataError
from compactor.pipelines.aggregate_calls import Call
from compactor.pipelines.exact_sums import (
    DIGIT_BITS,
    as_floats,
    digits_of,
    from_digits,
    sum_type,
    with_carries,
)
from compactor.pipelines.measures import check_type, is_flat, is_number, summed_type, to_floats
from lsm_fragment import compute as pc
from lsm_fragment.arrays.moves import concat, keep, take
from lsm_fragment.arrays.storage import plain, to_logical, to_storage
from lsm_fragment.arrays.types import is_string, storage_type
from lsm_fragment.keys.normalised import same_as_previous, sort_keys
from lsm_fragment.keys.sort_schema import SortColumn

I64 = npt.NDArray[np.int64]


class ValueRuns(ABC):
    """A function of the known values of each group, of some consecutive groups at a time."""

    type: pa.DataType
    is_by_value = True
    """Whether the values of a group come sorted; else in the order of the rows."""
    holds_values = False
    """Whether it holds all values of these groups."""

    def begin(self, counts: I64) -> None:
        """Begins these groups. counts: the number of values of each."""
        self.counts = counts
        self.ends = np.cumsum(counts)

    @abstractmethod
    def add(self, values: pa.Array, first: int) -> None:
        """Takes the next values. first: place of the first of them among the values of these groups."""

    @abstractmethod
    def end(self) -> pa.Array:
        """Returns the value of the function for each group. Raises `DataError`."""

    def groups_of(self, values: pa.Array, first: int) -> I64:
        """Returns the group of each value. Shape (values,)."""
        places = np.arange(first, first + len(values))
        return np.searchsorted(self.ends, places, "right")


class CountDistinct(ValueRuns):
    """`count(distinct x)`."""

    type = pa.int64()

    def begin(self, counts: I64) -> None:
        super().begin(counts)
        self._found = np.zeros(len(counts), dtype=np.int64)
        self._last: pa.Array | None = None
        self._last_group = -1

    def add(self, values: pa.Array, first: int) -> None:
        values = plain(to_storage(values))
        groups = self.groups_of(values, first)
        before = [] if self._last is None else [self._last]
        keys = sort_keys([concat([*before, values])], (SortColumn("value"),))
        is_new = ~same_as_previous(keys)[len(before) :]
        is_new |= np.diff(groups, prepend=self._last_group) != 0
        self.add_new(keep(values, is_new), groups[is_new])
        self._last, self._last_group = values.slice(len(values) - 1), int(groups[-1])

    def add_new(self, _values: pa.Array, groups: I64) -> None:
        """Takes values that come for the first time, with their groups."""
        self._found += np.bincount(groups, minlength=len(self._found))

    def end(self) -> pa.Array:
        return pa.array(self._found)


class SumDistinct(CountDistinct):
    """`sum(distinct x)` and `avg(distinct x)`. Sums of integers and decimals are exact."""

    def __init__(self, dtype: pa.DataType, what: str, *, is_mean: bool) -> None:
        """what: the call, for errors."""
        self._what = what
        self._is_mean = is_mean
        self._is_float = pt.is_floating(dtype)
        self._sum_type = pa.float64() if self._is_float else sum_type(dtype)
        self.type = pa.float64() if is_mean else self._sum_type

    def begin(self, counts: I64) -> None:
        super().begin(counts)
        self._floats = np.zeros(len(counts))
        places = self._sum_type.bit_width // DIGIT_BITS
        self._digits = np.zeros((len(counts), places), dtype=np.int64)

    def add_new(self, values: pa.Array, groups: I64) -> None:
        super().add_new(values, groups)
        if self._is_float:
            floats = to_floats(values).to_numpy()
            with np.errstate(invalid="ignore", over="ignore"):
                np.add.at(self._floats, groups, floats)  # in one order, however values are divided
            return
        digits = digits_of(values.cast(pa.uint8()) if pt.is_boolean(values.type) else values)
        np.add.at(self._digits, groups, digits)
        self._digits = with_carries(self._digits)

    def end(self) -> pa.Array:
        is_null = self._found == 0
        if not self._is_mean and not self._is_float:
            return self._exact(is_null)
        totals = self._floats if self._is_float else as_floats(self._digits, self._sum_type)
        if self._is_mean:
            totals = totals / np.maximum(self._found, 1)
        return pa.array(totals, mask=is_null)

    def _exact(self, is_null: npt.NDArray[np.bool_]) -> pa.Array:
        try:
            return from_digits(self._digits, is_null, self.type)
        except pa.ArrowInvalid:
            raise DataError(f"{self._what}: the sum does not fit into {self.type}") from None


class Quantile(ValueRuns):
    """The value at a fraction of the sorted values, between two of them in proportion."""

    def __init__(self, dtype: pa.DataType, fraction: float) -> None:
        self._of = dtype
        self.type = dtype if pt.is_temporal(dtype) else pa.float64()
        self._fraction = fraction

    def begin(self, counts: I64) -> None:
        super().begin(counts)
        known = np.flatnonzero(counts)
        places = (counts[known] - 1) * self._fraction
        starts = self.ends[known] - counts[known]
        low = np.floor(places)
        self._share = places - low
        self._low = starts + low.astype(np.int64)
        self._high = starts + np.ceil(places).astype(np.int64)
        self._lows: list[pa.Array] = [pa.nulls(0, self._of)]
        self._highs: list[pa.Array] = [pa.nulls(0, self._of)]

    def add(self, values: pa.Array, first: int) -> None:
        for places, found in ((self._low, self._lows), (self._high, self._highs)):
            start, stop = np.searchsorted(places, [first, first + len(values)])
            if start < stop:
                found.append(take(values, places[start:stop] - first))

    def end(self) -> pa.Array:
        lows, highs = (concat([*map(self._numbers, a)]) for a in (self._lows, self._highs))
        between = self._between(lows.to_numpy(), highs.to_numpy())
        places = np.cumsum(self.counts > 0) - 1
        found = take(pa.array(between), np.where(self.counts > 0, places, -1))
        return found.cast(self._carrier).view(self.type) if self._is_time else found

    @property
    def _is_time(self) -> bool:
        return bool(pt.is_temporal(self._of))

    @property
    def _carrier(self) -> pa.DataType:
        return pa.int32() if self._of.bit_width == 32 else pa.int64()

    def _numbers(self, values: pa.Array) -> pa.Array:
        if self._is_time:
            return values.view(self._carrier).cast(pa.int64())
        return to_floats(values)

    def _between(self, lows: npt.NDArray[np.number], highs: npt.NDArray[np.number]) -> object:
        with np.errstate(invalid="ignore", over="ignore"):
            more = (highs - lows) * self._share
            if self._is_time:
                return lows + np.rint(more).astype(np.int64)
            return np.where((self._share == 0) | (lows == highs), lows, lows + more)


class TextsJoined(ValueRuns):
    """`string_agg`: the texts of a group one after the other."""

    is_by_value = False
    holds_values = True

    def __init__(self, dtype: pa.DataType, separator: str, what: str) -> None:
        """what: the call, for errors."""
        self._what = what
        self.type = pa.string() if pt.is_null(dtype) else dtype
        self._separator = separator

    def begin(self, counts: I64) -> None:
        super().begin(counts)
        self._texts: list[pa.Array] = [pa.nulls(0, self.type)]

    def add(self, values: pa.Array, _first: int) -> None:
        self._texts.append(values)

    def end(self) -> pa.Array:
        texts = concat([plain(to_storage(part)).cast(pa.large_string()) for part in self._texts])
        self._texts = []
        offsets = pa.array(np.concatenate([[0], self.ends]), pa.int64())
        lists = pa.LargeListArray.from_arrays(offsets, texts)
        joined = pc.binary_join(lists, pa.scalar(self._separator, pa.large_string()))
        found = pc.if_else(pa.array(self.counts > 0), joined, pa.scalar(None, pa.large_string()))
        try:
            return to_logical(found.cast(storage_type(self.type)), self.type)
        except pa.ArrowInvalid:
            raise DataError(f"{self._what}: a group has more than 2 GiB of text") from None


def value_runs(call: Call) -> ValueRuns | None:
    """Returns the function of a call; None if the database computes it. Raises `ConfigError`."""
    make = _RUNS.get(call.function)
    return None if make is None else make(call)


def _count_distinct(call: Call) -> ValueRuns:
    check_type(call, is_flat, "takes plain values")
    return CountDistinct()


def _sum_distinct(call: Call) -> ValueRuns:
    return SumDistinct(summed_type(call), call.what, is_mean=call.function == "avg distinct")


def _quantile(call: Call) -> ValueRuns:
    check_type(call, lambda t: is_number(t) or (pt.is_temporal(t) and not pt.is_interval(t)),
               "is of numbers and times: cast it in the call or in a transform")  # fmt: skip
    return Quantile(call.arguments[0].type, 0.5 if call.constant is None else call.constant)


def _texts_joined(call: Call) -> ValueRuns:
    check_type(call, is_string, "is of texts: string_agg(CAST(x AS TEXT), ', ')")
    return TextsJoined(call.arguments[0].type, call.constant, call.what)


_RUNS: Final[dict[str, Callable[[Call], ValueRuns]]] = {
    "count distinct": _count_distinct,
    "sum distinct": _sum_distinct,
    "avg distinct": _sum_distinct,
    "median": _quantile,
    "quantile": _quantile,
    "string_agg": _texts_joined,
}
