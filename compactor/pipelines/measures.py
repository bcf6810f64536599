"""The aggregate functions: what the database reads of a column, its SQL, and the value that comes of it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import ConfigError, DataError
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
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.names import names_text

_CALL: Final = re.compile(r"\s*(\w+)\s*(?:\(\s*(.+?)\s*\))?\s*")
_FUNCTIONS: Final = ("count", "sum", "min", "max", "mean")


class Measure(ABC):
    """An aggregate function on a column."""

    type: pa.DataType
    width = 1
    """Number of aggregates."""

    def read(self, _values: pa.Array | None) -> list[pa.Array]:
        """Returns the columns that the query reads for the argument's values."""
        return []

    @abstractmethod
    def sql(self, names: Sequence[str]) -> list[str]:
        """Returns the aggregates of a query. names: of the columns that it reads."""

    def result(self, found: Sequence[pa.Array]) -> pa.Array:
        """Returns the values of the function. found: those of the aggregates. Raises `DataError`."""
        return restored(found[0], self.type)


class CountRows(Measure):
    type = pa.int64()

    def sql(self, _names: Sequence[str]) -> list[str]:
        return ["count(*)"]


class Count(Measure):
    type = pa.int64()

    def read(self, values: pa.Array | None) -> list[pa.Array]:
        assert values is not None
        return [values.is_valid()]

    def sql(self, names: Sequence[str]) -> list[str]:
        return [f"count(*) FILTER ({names[0]})"]


class Extreme(Measure):
    """`min` and `max`: NaN only if there is no other value."""

    def __init__(self, dtype: pa.DataType, function: str) -> None:
        self.type = dtype
        self._function = function

    def read(self, values: pa.Array | None) -> list[pa.Array]:
        assert values is not None
        return [carried(values)]

    def sql(self, names: Sequence[str]) -> list[str]:
        [name] = names
        if self._function == "max" and pt.is_floating(storage_type(self.type)):
            return [f"coalesce(max({name}) FILTER (NOT isnan({name})), max({name}))"]
        return [f"{self._function}({name})"]


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

    def read(self, values: pa.Array | None) -> list[pa.Array]:
        assert values is not None
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
            raise DataError(f"{self._what} does not fit into {self._sum_type}") from None

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


class Call(NamedTuple):
    """A function, and the column that it takes; None counts rows."""

    function: str
    column: str | None


def parse_call(text: str, schema: pa.Schema, name: str) -> Call:
    """Parses a call. Raises `ConfigError`.

    name: the column of the result.
    """
    match = _CALL.fullmatch(text)
    function, column = match.groups() if match else ("", None)
    if function not in _FUNCTIONS or (column is None and function != "count"):
        raise ConfigError(
            f"column {name!r}: {text!r} is not one of count, "
            + ", ".join(f"{known}(x)" for known in _FUNCTIONS)
        )
    if column is not None and column not in schema.names:
        there = names_text(schema.names)
        raise ConfigError(f"column {name!r}: no column {column!r}; there are: {there}")
    return Call(function, column)


def measure(call: Call, schema: pa.Schema, name: str) -> Measure:
    """Binds a call to a schema. Raises `ConfigError` if the function is not defined for the column.

    name: the column of the result.
    """
    function, column = call
    if column is None:
        return CountRows()
    dtype = schema.field(column).type
    storage = storage_type(dtype)
    storage = pa.int64() if pt.is_null(storage) and function in ("sum", "mean") else storage
    what = f"{function}({column})"
    if function == "count":
        return Count()
    if function in ("min", "max"):
        if pt.is_nested(storage) or pt.is_interval(storage):
            raise ConfigError(f"column {name!r}: {what}: {column!r} is {dtype}, which has no order")
        return Extreme(dtype, function)
    is_number = pt.is_integer(storage) or pt.is_floating(storage) or pt.is_decimal(storage)
    if not is_number and not pt.is_boolean(storage):
        raise ConfigError(
            f"column {name!r}: {what}: {column!r} is {dtype}, and {function} is of numbers: cast it in a "
            "transform"
        )
    return Sum(storage, f"column {name!r}: a sum of {column!r}", is_mean=function == "mean")
