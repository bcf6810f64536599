"""Decides by statistics whether any row of a chunk or fragment may satisfy a condition.

False is certain: no row does. True means that one may.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
from msgspec import Struct

from compactor.predicate.like import literal_prefix
from compactor.predicate.tree import (
    OPPOSITE,
    And,
    Compare,
    Computed,
    Constant,
    IsIn,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Predicate,
)
from lsm_fragment.keys.bounds import Value, plain_value, value_at


class Summary(Protocol):
    """A summary of the values of some rows. Answers may be false positives; False is certain."""

    def may_equal(self, value: pa.Scalar) -> bool: ...

    def may_be_in(self, values: pa.Array) -> bool: ...

    def may_be_like(self, pattern: str, *, ignores_case: bool) -> bool: ...


class Bounds(Struct, frozen=True):
    """Bounds of one column's values in some rows."""

    low: Value
    """Lower bound of the non-null values; None if unknown."""
    high: Value
    """Upper bound likewise."""
    may_be_null: bool = True
    may_have_value: bool = True
    summary: Summary | None = None
    """Summary from a skip index."""


UNKNOWN = Bounds(None, None)
ALL_NULL = Bounds(None, None, may_have_value=False)

BoundsOf = Callable[[str], Bounds]


def may_match(predicate: Predicate, bounds: BoundsOf) -> bool:
    """Returns whether the condition may be true for some row within the bounds."""
    match predicate:
        case And(parts):
            return all(may_match(part, bounds) for part in parts)
        case Or(parts):
            return any(may_match(part, bounds) for part in parts)
        case Not(part):
            return _may_fail(part, bounds)
        case Computed():
            return True
        case Constant(value):
            return bool(value)
        case IsNull(column):
            return bounds(column).may_be_null
        case Compare(column, op, value):
            known = bounds(column)
            if not _may_compare(known, op, value):
                return False
            return op is not Op.EQ or known.summary is None or known.summary.may_equal(value)
        case IsIn(column, values):
            known = bounds(column)
            if not _may_be_in(known, predicate.plain_values, values.type):
                return False
            return known.summary is None or known.summary.may_be_in(values)
        case Like(column, pattern, ignores_case):
            known = bounds(column)
            if not _may_be_like(known, pattern, ignores_case=ignores_case):
                return False
            return known.summary is None or known.summary.may_be_like(
                pattern, ignores_case=ignores_case
            )


def _may_fail(predicate: Predicate, bounds: BoundsOf) -> bool:
    """Returns whether the condition may be false for some row; unknown is neither true nor false."""
    match predicate:
        case And(parts):
            return any(_may_fail(part, bounds) for part in parts)
        case Or(parts):
            return all(_may_fail(part, bounds) for part in parts)
        case Not(part):
            return may_match(part, bounds)
        case Computed():
            return True
        case Constant(value):
            return value is False
        case IsNull(column):
            return bounds(column).may_have_value
        case Compare(column, op, value):
            # NaN fails both a comparison and its opposite, so it satisfies NOT of the comparison.
            return _may_be_nan(bounds(column), value) or _may_compare(
                bounds(column), OPPOSITE[op], value
            )
        case _:
            return bounds(predicate.column).may_have_value


def _may_compare(bounds: Bounds, op: Op, value: pa.Scalar) -> bool:
    if not bounds.may_have_value:
        return False
    wanted = _plain(value)
    low, high = (
        None if bound is None else plain_value(bound, value.type)
        for bound in (bounds.low, bounds.high)
    )
    match op:
        case Op.EQ:
            return (low is None or low <= wanted) and (high is None or high >= wanted)
        case Op.NE:
            return True
        case Op.LT:
            return low is None or bool(low < wanted)
        case Op.LE:
            return low is None or bool(low <= wanted)
        case Op.GT:
            return high is None or bool(high > wanted)
        case Op.GE:
            return high is None or bool(high >= wanted)


def _may_be_in(bounds: Bounds, values: list[Any], dtype: pa.DataType) -> bool:
    if not bounds.may_have_value:
        return False
    low = 0 if bounds.low is None else bisect.bisect_left(values, plain_value(bounds.low, dtype))
    if low == len(values):
        return False
    return bounds.high is None or bool(values[low] <= plain_value(bounds.high, dtype))


def _may_be_nan(bounds: Bounds, value: pa.Scalar) -> bool:
    is_float = pa.types.is_floating(value.type)
    if is_float and math.isnan(value.as_py()):
        return bounds.may_have_value
    return bounds.may_have_value and is_float and bounds.high in (None, "NaN")


def _may_be_like(bounds: Bounds, pattern: str, *, ignores_case: bool) -> bool:
    if not bounds.may_have_value:
        return False
    prefix = literal_prefix(pattern)
    if ignores_case or not prefix or not isinstance(bounds.low, str):
        return True
    # Texts with this prefix are not less than it, and equal it when cut to its length.
    after_low = bounds.low[: len(prefix)] <= prefix
    return after_low and (bounds.high is None or str(bounds.high) >= prefix)


def _plain(value: pa.Scalar) -> Any:
    return plain_value(value_at(pa.array([value], value.type), 0), value.type)
