"""The aggregate functions that the database computes: what it reads of the arguments, its SQL, and the value
that comes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import DataError
from compactor.pipelines.aggregate_calls import Call
from compactor.pipelines.carried import carried, restored
from compactor.pipelines.exact_sums import (
    DIGIT_BITS,
    as_floats,
    digits_of,
    from_digits,
    sum_type,
    with_carries,
)
from lsm_fragment import compute as pc
from lsm_fragment.arrays.decimals import decimal_floats
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.arrays.types import storage_type

ROW_NUMBER: Final = "row"
"""The column of the rows' numbers, which a query may read."""


class Measure(ABC):
    """An aggregate function of arguments."""

    type: pa.DataType
    width = 1
    """Number of aggregates."""
    reads_row_numbers = False
    """Whether its SQL names `ROW_NUMBER`."""

    def read(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """Returns the columns that the query reads for the arguments' values."""
        return [carried(values) for values in arguments]

    @abstractmethod
    def sql(self, names: Sequence[str]) -> list[str]:
        """Returns the aggregates of a query. names: of the columns that it reads."""

    def result(self, found: Sequence[pa.Array]) -> pa.Array:
        """Returns the values of the function. found: those of the aggregates. Raises `DataError`."""
        return restored(found[0], self.type)


class Count(Measure):
    """`count`, or with `only_true` `count_if`."""

    type = pa.int64()

    def __init__(self, *, only_true: bool = False) -> None:
        self._only_true = only_true

    def read(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        [values] = arguments
        return [to_flags(values).fill_null(False) if self._only_true else values.is_valid()]

    def sql(self, names: Sequence[str]) -> list[str]:
        return [f"count(*) FILTER ({names[0]})"]


class Extreme(Measure):
    """`min`, `max`, `min_by` and `max_by`: NaN counts only if there is no other value."""

    def __init__(self, dtype: pa.DataType, aggregate: str, ordered: pa.DataType) -> None:
        """aggregate: of the database. ordered: the type of the last argument, which is compared."""
        self.type = dtype
        self._aggregate = aggregate
        self._skips_nan = "max" in aggregate and pt.is_floating(storage_type(ordered))

    def sql(self, names: Sequence[str]) -> list[str]:
        call = f"{self._aggregate}({', '.join(names)})"
        if self._skips_nan:
            return [f"coalesce({call} FILTER (NOT isnan({names[-1]})), {call})"]
        return [call]


class InOrder(Measure):
    """`first` and `last`, of the rows for which the second argument is true, if there is one."""

    reads_row_numbers = True

    def __init__(self, dtype: pa.DataType, aggregate: str) -> None:
        self.type = dtype
        self._aggregate = aggregate

    def sql(self, names: Sequence[str]) -> list[str]:
        value, *condition = names
        only = f" FILTER ({condition[0]})" if condition else ""
        return [f"{self._aggregate}({value}, {ROW_NUMBER}){only}"]


class Flag(Measure):
    """`bool_and` and `bool_or`."""

    type = pa.bool_()

    def __init__(self, aggregate: str) -> None:
        self._aggregate = aggregate

    def read(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        return [to_flags(arguments[0])]

    def sql(self, names: Sequence[str]) -> list[str]:
        return [f"{self._aggregate}({names[0]})"]


class Spread(Flag):
    """`stddev`, `variance` and those of a population, of numbers as floats."""

    type = pa.float64()

    def read(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        return [to_floats(arguments[0])]


class Sum(Measure):
    """`sum` and `mean` of numbers. Those of integers and decimals are exact."""

    def __init__(self, dtype: pa.DataType, what: str, *, is_mean: bool) -> None:
        """what: the call, for errors."""
        self._what = what
        self._is_mean = is_mean
        self._is_float = pt.is_floating(dtype)
        self._is_decimal = pt.is_decimal(dtype)
        self._sum_type = pa.float64() if self._is_float else sum_type(dtype)
        self.width = 1 + (self._sum_type.bit_width // DIGIT_BITS if self._is_decimal else 1)
        self.type = pa.float64() if is_mean else self._sum_type

    def read(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        values = to_storage(arguments[0])
        if self._is_decimal:
            is_null = np.asarray(values.is_null())
            return [pa.array(digits, mask=is_null) for digits in digits_of(values).T]
        if pt.is_boolean(values.type):
            return [values.cast(pa.uint8())]
        return [carried(values)]

    def sql(self, names: Sequence[str]) -> list[str]:
        return [*(f"sum({name})" for name in names), f"count({names[0]})"]

    def result(self, found: Sequence[pa.Array]) -> pa.Array:
        *totals, counts = found
        if self._is_mean:
            counts = pc.if_else(pc.equal(counts, 0), None, counts)
            return pc.divide(self._as_floats(totals), counts.cast(pa.float64()))
        if self._is_float:
            return totals[0]
        try:
            return self._exact(totals)
        except pa.ArrowInvalid:
            raise DataError(f"{self._what}: the sum does not fit into {self._sum_type}") from None

    def _exact(self, totals: Sequence[pa.Array]) -> pa.Array:
        if not self._is_decimal:
            return totals[0].cast(self._sum_type)
        is_null = np.asarray(totals[0].is_null())
        return from_digits(self._carried(totals), is_null, self._sum_type)

    def _as_floats(self, totals: Sequence[pa.Array]) -> pa.Array:
        if self._is_decimal:
            return pa.array(as_floats(self._carried(totals), self._sum_type))
        return totals[0].cast(pa.float64(), safe=False)

    def _carried(self, totals: Sequence[pa.Array]) -> Any:
        columns = [t.fill_null(0).cast(pa.int64()).to_numpy() for t in totals]
        return with_carries(np.stack(columns, axis=1))


def to_flags(values: pa.Array) -> pa.Array:
    return plain(to_storage(values)).cast(pa.bool_())


def to_floats(values: pa.Array) -> pa.Array:
    numbers = plain(to_storage(values))
    if pt.is_decimal(numbers.type):
        return decimal_floats(numbers, pa.float64())
    return numbers.cast(pa.float64(), safe=False)


def is_number(dtype: pa.DataType) -> bool:
    return bool(pt.is_integer(dtype) or pt.is_floating(dtype) or pt.is_decimal(dtype))


def measure(call: Call) -> Measure:
    """Returns the measure of a call. Raises `ConfigError` if the function is not defined for its arguments.

    Functions that the database does not compute are of the known values of their argument, which it counts.
    """
    make = _MEASURES.get(call.function)
    return Count() if make is None else make(call)


def _count_if(call: Call) -> Measure:
    check_type(call, pt.is_boolean, "is of conditions")
    return Count(only_true=True)


def _flag(call: Call) -> Measure:
    check_type(call, pt.is_boolean, "is of conditions")
    return Flag(call.function)


def _spread(call: Call) -> Measure:
    check_type(call, is_number, "is of numbers: cast it in the call or in a transform")
    return Spread(_SPREADS[call.function])


def summed_type(call: Call) -> pa.DataType:
    """Returns the storage type of what a call sums up. Raises `ConfigError` if that is no numbers."""
    check_type(call, lambda dtype: is_number(dtype) or pt.is_boolean(dtype),
           "is of numbers: cast it in the call or in a transform")  # fmt: skip
    storage = storage_type(call.arguments[0].type)
    return pa.int64() if pt.is_null(storage) else storage


def _sum(call: Call) -> Measure:
    return Sum(summed_type(call), call.what, is_mean=call.function == "avg")


def _extreme(call: Call) -> Measure:
    check_type(call, is_flat, "takes values that have an order", argument=-1)
    check_type(call, is_flat, "takes plain values: choose one of them")
    ordered = call.arguments[-1].type
    return Extreme(call.arguments[0].type, _EXTREMES[call.function], ordered)


def _in_order(call: Call) -> Measure:
    check_type(call, is_flat, "takes plain values: choose one of them")
    aggregate = "arg_min_null" if call.function == "first" else "arg_max_null"
    return InOrder(call.arguments[0].type, aggregate)


_SPREADS: Final = {
    "stddev": "stddev_samp", "stddev_pop": "stddev_pop", "variance": "var_samp", "var_pop": "var_pop",
}  # fmt: skip
_EXTREMES: Final = {"min": "min", "max": "max", "min_by": "arg_min", "max_by": "arg_max"}
_MEASURES: Final[dict[str, Callable[[Call], Measure]]] = {
    "count_if": _count_if,
    **dict.fromkeys(("sum", "avg"), _sum),
    **dict.fromkeys(_EXTREMES, _extreme),
    **dict.fromkeys(_SPREADS, _spread),
    **dict.fromkeys(("bool_and", "bool_or"), _flag),
    **dict.fromkeys(("first", "last"), _in_order),
}


def is_flat(dtype: pa.DataType) -> bool:
    return not (pt.is_nested(dtype) or pt.is_interval(dtype))


def check_type(
    call: Call, fits: Callable[[pa.DataType], bool], problem: str, *, argument: int = 0
) -> None:
    """Raises `ConfigError` unless the type of an argument fits. Nulls fit everywhere."""
    given = call.arguments[argument]
    storage = storage_type(given.type)
    if not pt.is_null(storage) and not fits(storage):
        raise call.error(f"{given.text!r} is {given.type}, and {call.function} {problem}")
