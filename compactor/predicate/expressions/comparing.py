"""Brings values of different types to one, for comparisons and for the branches of CASE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.predicate.expressions.conversion import cast_value
from compactor.predicate.expressions.kinds import kind_of
from compactor.predicate.tree import Op, comparable, compared
from lsm_fragment import compute as pc
from lsm_fragment.arrays.decimals import MOST_DIGITS, decimal_type
from lsm_fragment.arrays.times import DAY_SECONDS, UNITS, UNITS_PER_SECOND
from lsm_fragment.arrays.types import is_bytes, storage_type

_INSTANT: Final = pa.decimal128(38, 0)
"""Nanoseconds of all times of every unit."""
_NS_PER_SECOND: Final = UNITS_PER_SECOND["ns"]
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}


def compare(op: Op, left: Any, right: Any) -> Any:
    """Compares arrays or scalars of any two types that compare.

    Integers, decimals, and times of any units compare exactly. A number compared with a float is rounded to
    a double. Raises `pa.ArrowInvalid` for other types.
    """
    dtype = _comparison_type(left.type, right.type)
    if pt.is_null(dtype):
        return cast_value(pc.and_kleene(pc.is_valid(left), None), pa.bool_())
    return compared(op, comparable(_in_type(left, dtype)), comparable(_in_type(right, dtype)))


def common_type(types: Sequence[pa.DataType]) -> pa.DataType:
    """Returns the type of a choice between values. Raises `pa.ArrowInvalid` if there is none."""
    return reduce(_wider, types, pa.null())


def as_common(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Casts to a type of `common_type`. Raises `pa.ArrowInvalid` for a value that does not fit."""
    if array.type == dtype:
        return array
    if pt.is_null(array.type):
        return pa.nulls(len(array), dtype)
    return as_float(array) if pt.is_floating(dtype) else pc.cast(array, dtype)


def as_float(value: Any) -> Any:
    """Rounds numbers to the nearest double."""
    if pt.is_floating(value.type):
        return pc.cast(value, pa.float64())
    if pt.is_decimal(value.type):
        return cast_value(value, pa.float64())
    return pc.cast(value, pa.float64(), safe=False)


def is_beyond_integers(left: pa.DataType, right: pa.DataType) -> bool:
    """Says whether no type of integers has all values of these two: one is uint64, the other has a sign."""
    types = left, right
    return pa.uint64() in types and any(map(pt.is_signed_integer, types))


def as_unsigned(value: Any, beside: Iterable[pa.DataType]) -> Any:
    """Returns a constant that is no less than 0 as uint64 beside values of that type."""
    if not isinstance(value, pa.Scalar) or not pt.is_signed_integer(value.type):
        return value
    is_positive = value.is_valid and value.as_py() >= 0
    return value.cast(pa.uint64()) if is_positive and pa.uint64() in beside else value


def as_decimals(left: Any, right: Any) -> tuple[Any, Any]:
    """Returns integers as the decimals that have all values of both types."""
    dtype = _decimal_for(left.type, right.type)
    return cast_value(left, dtype), cast_value(right, dtype)


def _wider(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if left == right or pt.is_null(right):
        return left
    if pt.is_null(left):
        return right
    kinds = {kind_of(left), kind_of(right)}
    if kinds <= {"date", "timestamp"}:
        return _wider_moment(left, right)
    if "float" in kinds and kinds <= {"float", "integer", "decimal"}:
        return pa.float64()
    is_numeric = kinds <= {"integer", "decimal"}
    if is_numeric or kinds in ({"text"}, {"duration"}, {"time"}):
        if "decimal" in kinds or is_beyond_integers(left, right):
            return _decimal_for(left, right)
        return pc.coalesce(pa.nulls(0, left), pa.nulls(0, right)).type
    raise pa.ArrowInvalid(f"{left} and {right} have no type in common: CAST one of them")


def _wider_moment(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    stamps = [dtype for dtype in (left, right) if pt.is_timestamp(dtype)]
    if not stamps:
        return pa.date64()
    unit = max((dtype.unit for dtype in stamps), key=UNITS.index)
    is_zoned = any(dtype.tz is not None for dtype in stamps)
    return pa.timestamp(unit, "UTC" if is_zoned else None)


def _comparison_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    left, right = storage_type(left), storage_type(right)
    kinds = {kind_of(left), kind_of(right)}
    if "null" in kinds:
        return pa.null()
    if left == right and not pt.is_nested(left):
        return left
    if kinds <= {"integer", "decimal", "float"}:
        return _number_type(left, right, kinds)
    if kinds <= {"date", "timestamp"} or kinds == {"duration"}:
        return _instant_type(left, right)
    if kinds == {"time"}:
        return pa.time64("ns")
    if kinds == {"text"}:
        return pa.large_string()
    if is_bytes(left) and is_bytes(right):
        return pa.large_binary()
    cause = (
        "do not compare with each other: CAST one of them" if left != right else "do not compare"
    )
    raise pa.ArrowInvalid(
        f"values of {' and '.join(dict.fromkeys((str(left), str(right))))} {cause}"
    )


def _number_type(left: pa.DataType, right: pa.DataType, kinds: set[str]) -> pa.DataType:
    if "float" in kinds:
        return pa.float64()
    if "decimal" in kinds:
        return _decimal_for(left, right)
    if is_beyond_integers(left, right):
        return _decimal_for(left, right)
    if pt.is_signed_integer(left) == pt.is_signed_integer(right):
        return max((left, right), key=lambda dtype: int(dtype.bit_width))
    return pa.int64()


def _decimal_for(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Returns the decimals that have all values of two types of integers and decimals."""
    scales = [max(t.scale, 0) if pt.is_decimal(t) else 0 for t in (left, right)]
    whole = [
        t.precision - t.scale if pt.is_decimal(t) else _DIGITS[t.bit_width] for t in (left, right)
    ]
    digits = max(whole) + max(scales)
    if digits > MOST_DIGITS:
        raise pa.ArrowInvalid(
            f"{left} and {right} have no decimal type in common: CAST one of them"
        )
    return decimal_type(digits, max(scales))


def _instant_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if pt.is_timestamp(left) and pt.is_timestamp(right) and left.unit == right.unit:
        return pa.timestamp(left.unit)  # instants, whatever the zones
    return _INSTANT


def _in_type(value: Any, dtype: pa.DataType) -> Any:
    if value.type == dtype:
        return value
    if isinstance(value, pa.Scalar):
        return _in_type(pa.repeat(value, 1), dtype)[0]
    if dtype == _INSTANT and not pt.is_decimal(value.type) and not pt.is_integer(value.type):
        return _instants(value)
    if pt.is_timestamp(value.type):
        return value.view(dtype)
    if pt.is_decimal(dtype) and pt.is_integer(value.type):
        return cast_value(value, dtype)
    return as_float(value) if pt.is_floating(dtype) else pc.cast(value, dtype)


def _instants(array: pa.Array) -> pa.Array:
    dtype = array.type
    if pt.is_date32(dtype):
        numbers, unit = array.view(pa.int32()), DAY_SECONDS * _NS_PER_SECOND
    else:
        numbers = array.view(pa.int64())
        unit = _NS_PER_SECOND // UNITS_PER_SECOND["ms" if pt.is_date64(dtype) else dtype.unit]
    factor = pa.scalar(unit, pa.decimal128(14, 0))
    return pc.multiply(numbers.cast(pa.decimal128(19, 0)), factor).cast(_INSTANT)
