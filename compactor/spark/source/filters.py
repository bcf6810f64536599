"""Translates the filters that Spark pushes down into conditions on stored columns. Pure.

Only filters with an exact equivalent are translated, so that Spark need not evaluate them again; Spark keeps
the others. In Spark NaN equals itself and exceeds every number, so `>` becomes `NOT <=`, which NaN satisfies
too.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt
from pyspark.sql import datasource as ds

from compactor.predicate.like import escaped
from compactor.predicate.tree import And, Compare, IsIn, IsNull, Like, Not, Op, Or, Predicate
from compactor.table.metadata import TableMetadata
from lsm_fragment.arrays.times import UNITS_PER_SECOND
from lsm_fragment.arrays.types import is_string, storage_type

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_EXACT_SINCE: Final = datetime.datetime(1582, 10, 17)
"""Spark converts values through Java's old calendar, which lacks 5 to 14 October 1582: these days arrive as
the 15th, in some time zones. So earlier values may differ from those in the query."""


def condition_of(spark_filter: ds.Filter, table: TableMetadata) -> Predicate | None:
    """Returns the equivalent condition on stored columns; None without an exact one."""
    match spark_filter:
        case ds.Not(child):
            inner = condition_of(child, table)
            return None if inner is None else Not(inner)
        case ds.IsNull(attribute):
            field = _column(attribute, table)
            return None if field is None else IsNull(field.name)
        case ds.IsNotNull(attribute):
            field = _column(attribute, table)
            return None if field is None else Not(IsNull(field.name))
        case ds.In(attribute, values):
            field = _column(attribute, table)
            return None if field is None else _in(field, values)
        case ds.StringStartsWith(attribute, text):
            field = _column(attribute, table)
            if field is None or not is_string(storage_type(field.type)):
                return None
            return Like(field.name, escaped(text) + "%")
    make = _COMPARISONS.get(type(spark_filter))
    field = None if make is None else _column(spark_filter.attribute, table)  # type: ignore[attr-defined]
    if make is None or field is None:
        return None
    value = _value(spark_filter.value, storage_type(field.type))  # type: ignore[attr-defined]
    return None if value is None else make(field.name, value)


def _column(attribute: tuple[str, ...], table: TableMetadata) -> pa.Field | None:
    """Returns the stored column, case-insensitively; None if unknown, ambiguous or nested."""
    if len(attribute) != 1:
        return None
    wanted = attribute[0].casefold()
    names = [name for name in table.shown_schema.names if name.casefold() == wanted]
    return table.schema.field(table.stored_name(names[0])) if len(names) == 1 else None


def _null_safe(column: str, value: pa.Scalar) -> Predicate:
    return And((Not(IsNull(column)), Compare(column, Op.EQ, value)))


_COMPARISONS: Final[dict[type, Callable[[str, pa.Scalar], Predicate]]] = {
    ds.EqualTo: lambda column, value: Compare(column, Op.EQ, value),
    ds.EqualNullSafe: _null_safe,
    ds.LessThan: lambda column, value: Compare(column, Op.LT, value),
    ds.LessThanOrEqual: lambda column, value: Compare(column, Op.LE, value),
    ds.GreaterThan: lambda column, value: Not(Compare(column, Op.LE, value)),
    ds.GreaterThanOrEqual: lambda column, value: Not(Compare(column, Op.LT, value)),
}


def _in(field: pa.Field, values: Iterable[Any]) -> Predicate | None:
    dtype = storage_type(field.type)
    values = list(values)
    scalars = [
        scalar for scalar in (_value(value, dtype) for value in values) if scalar is not None
    ]
    if not scalars or len(scalars) < len(values):
        return None
    if pt.is_floating(dtype) or pt.is_decimal(
        dtype
    ):  # a set look-up distinguishes -0.0 from 0.0, which are equal
        return Or([Compare(field.name, Op.EQ, scalar) for scalar in scalars])
    return IsIn(field.name, pa.array([s.as_py() for s in scalars], dtype))


def _value(value: Any, dtype: pa.DataType) -> pa.Scalar | None:
    """Returns the exact value in a storage type; None if the type lacks it or orders it differently."""
    try:
        return _exactly(value, dtype)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return None


def _exactly(value: Any, dtype: pa.DataType) -> pa.Scalar | None:
    kind = type(value)
    if pt.is_boolean(dtype):
        return pa.scalar(value) if kind is bool else None
    if pt.is_integer(dtype):
        if kind is decimal.Decimal and value == value.to_integral_value():
            value, kind = int(value), int
        return pa.scalar(value, dtype) if kind is int else None
    if pt.is_floating(dtype):
        if kind is not float or math.isnan(value):
            return None
        scalar = pa.scalar(value, pa.float64()).cast(dtype)
        return scalar if scalar.cast(pa.float64()).as_py() == value else None
    if pt.is_decimal(dtype):
        return pa.scalar(value, dtype) if kind is decimal.Decimal and value.is_finite() else None
    if is_string(dtype):
        return pa.scalar(value, dtype) if kind is str else None
    if pt.is_date32(dtype):
        is_exact = kind is datetime.date and value >= _EXACT_SINCE.date()
        return pa.scalar(value, dtype) if is_exact else None
    if pt.is_timestamp(dtype) and kind is datetime.datetime:
        return _moment(value, dtype)
    return None


def _moment(value: datetime.datetime, dtype: pa.TimestampType) -> pa.Scalar | None:
    if (value.tzinfo is None) != (dtype.tz is None):
        return None
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    if value < _EXACT_SINCE:
        return None
    passed = value - _EPOCH
    micros = (passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds
    ticks, rest = divmod(micros * UNITS_PER_SECOND[dtype.unit], 10**6)
    return None if rest else pa.scalar(ticks, pa.int64()).cast(dtype)


def with_filters(where: Predicate | None, more: Iterable[Predicate]) -> Predicate | None:
    """Returns the conjunction of all conditions; None without any."""
    parts = [*([] if where is None else [where]), *more]
    return And(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None
