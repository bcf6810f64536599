"""`+ - * / %` of numbers, dates, times and intervals. Overflow and division by zero are errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.predicate.expressions.comparing import (
    as_decimals,
    as_float,
    as_unsigned,
    is_beyond_integers,
)
from compactor.predicate.expressions.conversion import cast_value
from compactor.predicate.expressions.kinds import kind_of
from lsm_fragment import compute as pc
from lsm_fragment.arrays.buffers import integer_array
from lsm_fragment.arrays.times import DAY_SECONDS, UNITS_PER_SECOND

_MOMENTS: Final = ("date", "timestamp")
_NUMBERS: Final = ("integer", "decimal", "float")
_NAMES: Final = {
    "+": "add_checked", "-": "subtract_checked", "*": "multiply_checked", "/": "divide_checked",
    "%": "remainder_checked",
}  # fmt: skip


def arithmetic(op: str) -> Callable[[Any, Any], Any]:
    """Returns the function of an operator. It raises `pa.ArrowInvalid` for values beyond its domain, and for
    types that it does not take."""

    def calculated(left: Any, right: Any) -> Any:
        kinds = kind_of(left.type), kind_of(right.type)
        if all(kind in _NUMBERS for kind in kinds):
            return _numbers(op, left, right)
        if op in "+-" and kinds[0] in _MOMENTS and kinds[1] == "months":
            return _months_later(left, right, 1 if op == "+" else -1)
        if op == "+" and kinds[0] in ("months", "duration") and kinds[1] in _MOMENTS:
            return calculated(right, left)
        if not _is_of_times(op, *kinds):
            raise pa.ArrowInvalid(
                f"there is no {op} of {left.type} and {right.type}: CAST one of them"
            )
        function = getattr(pc, _NAMES[op])
        parts = _without_zone(left, right), _without_zone(right, left)
        try:
            return function(*parts)
        except pa.ArrowInvalid:
            if not any(part.null_count for part in parts if isinstance(part, pa.Array)):
                raise
        return _of_known(function, *parts)

    return calculated


def _of_known(function: Callable[[Any, Any], Any], *parts: Any) -> Any:
    """Calls a kernel of times, which looks at what arrays have below nulls, too."""
    found = function(*map(_filled, parts))
    is_known = pc.and_(*(pc.is_valid(part) for part in parts))
    return pc.if_else(is_known, found, pa.scalar(None, found.type))


def _filled(value: Any) -> Any:
    """Returns an array of numbers or times with zeros in place of nulls."""
    if isinstance(value, pa.Scalar):
        return value
    width = pa.int32() if value.type.bit_width == 32 else pa.int64()
    return pc.fill_null(value.view(width), 0).view(value.type)


def negated(value: Any) -> Any:
    if pt.is_unsigned_integer(value.type):
        is_long = value.type == pa.uint64()
        value = cast_value(value, pa.decimal128(20, 0) if is_long else pa.int64())
    return pc.negate_checked(value)


def _is_of_times(op: str, left: str, right: str) -> bool:
    if op == "-" and (left == right == "time" or {left, right} <= {*_MOMENTS}):
        return True
    if op in "+-":
        return right == "duration" and left in (*_MOMENTS, "duration")
    if op == "*":
        return {left, right} == {"duration", "integer"}
    return op == "/" and (left, right) == ("duration", "integer")


def _numbers(op: str, left: Any, right: Any) -> Any:
    function = getattr(pc, _NAMES[op])
    if pt.is_floating(left.type) or pt.is_floating(right.type):
        dtype = function(pa.nulls(0, left.type), pa.nulls(0, right.type)).type
        return _within_range(function, _rounded(left, dtype), _rounded(right, dtype))
    if op != "-":  # A difference may be less than 0.
        left, right = as_unsigned(left, [right.type]), as_unsigned(right, [left.type])
    if is_beyond_integers(left.type, right.type):
        return _beyond_integers(op, *as_decimals(left, right))
    if op == "%" and pt.is_signed_integer(right.type) and pt.is_integer(left.type):
        # Arrow calls the smallest integer % -1 an overflow. By 1 the remainder is 0, too.
        right = pc.if_else(pc.equal(right, -1), pc.cast(pa.scalar(1), right.type), right)
    try:
        return function(left, right)
    except pa.ArrowInvalid:
        if not any(pt.is_decimal128(part.type) for part in (left, right)):
            raise
    return function(_wide(left), _wide(right))


def _within_range(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Calculates with floats. Arrow checks divisions by zero, but not whether finite values give infinity."""
    found = function(left, right)
    is_infinite = pc.is_inf(found)
    if pc.any(is_infinite).as_py():
        was_infinite = pc.or_kleene(pc.is_inf(left), pc.is_inf(right))
        if pc.any(pc.and_not_kleene(is_infinite, was_infinite)).as_py():
            raise pa.ArrowInvalid("overflow")
    return found


def _beyond_integers(op: str, left: Any, right: Any) -> Any:
    """Calculates with whole decimals as with integers. `*` and `/` need more digits than 128 bits have."""
    if op in "+-%":
        return getattr(pc, _NAMES[op])(left, right)
    found = getattr(pc, _NAMES[op])(_wide(left), _wide(right))
    return found if op == "*" else pc.cast(pc.trunc(found), left.type)


def _rounded(value: Any, dtype: pa.DataType) -> Any:
    return value if value.type == dtype else pc.cast(as_float(value), dtype)


def _wide(value: Any) -> Any:
    if not pt.is_decimal(value.type):
        return value
    return pc.cast(value, pa.decimal256(value.type.precision, value.type.scale))


def _without_zone(value: Any, other: Any) -> Any:
    """Takes the zone from a timestamp if the other one has none: both count from 1970 in UTC."""
    is_zoned = pt.is_timestamp(value.type) and value.type.tz is not None
    if not is_zoned or not (pt.is_timestamp(other.type) or pt.is_date(other.type)):
        return value
    if other.type == value.type:
        return value
    return pc.cast(value, pa.timestamp(value.type.unit))


def _months_later(moments: Any, interval: pa.Scalar, sign: int) -> Any:
    """Adds months. A day that the month does not have becomes its last day."""
    if isinstance(moments, pa.Scalar):
        return _months_later(pa.repeat(moments, 1), interval, sign)[0]
    dtype = pa.timestamp("s") if pt.is_date(moments.type) else moments.type
    given = pc.cast(moments, dtype)
    per_day = UNITS_PER_SECOND[dtype.unit] * DAY_SECONDS
    numbers = pc.fill_null(given.view(pa.int64()), 0).to_numpy()
    days, within = np.divmod(numbers, per_day)
    months = days.astype("M8[D]").astype("M8[M]")
    day = days - months.astype("M8[D]").astype(np.int64)
    later = months + sign * interval.as_py().months
    first = later.astype("M8[D]").astype(np.int64)
    length = (later + 1).astype("M8[D]").astype(np.int64) - first
    moved = first + np.minimum(day, length - 1)
    limit = np.iinfo(np.int64).max // per_day
    is_known = np.asarray(given.is_valid())
    if (np.abs(moved[is_known]) >= limit).any():
        raise pa.ArrowInvalid(f"a time is beyond the years of {dtype}")
    return integer_array(moved * per_day + within, is_known).view(dtype)
