"""Brings join keys of different types to one type in which equal values are equal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.pipelines.carried import seen_as
from lsm_fragment import compute as pc
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.arrays.types import is_bytes, is_string

_UNIT_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_INT_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}
_TICKS: Final = pa.decimal128(19, 0)
"""Holds every time as a whole number of its unit."""


def common_key_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Returns a type that holds the values of two storage types; None if they are not comparable.

    Times of different units are decimals of seconds, because nanoseconds end in the year 2262.
    """
    if one == other:
        return one
    if pt.is_floating(one) and pt.is_floating(other):
        return pa.float64()
    for is_kind, common in ((is_string, pa.large_string()), (is_bytes, pa.large_binary())):
        if is_kind(one) and is_kind(other):
            return common
    if pt.is_integer(one) and pt.is_integer(other) and (common := _integers(one, other)):
        return common
    if _is_number(one) and _is_number(other):
        return _decimal(one, other)
    return _times(one, other)


def common_order_type(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Returns a type that holds the values of some storage types; None if they are not comparable."""
    found: list[pa.DataType] = []
    for one, other in combinations(types, 2):
        if (common := common_key_type(one, other)) is None:
            return None
        found.append(common)
    # Times of three units: those of one unit among them are to become what the others do.
    wide = [dtype for dtype in found if not pt.is_temporal(dtype)] or found or types
    result: pa.DataType | None = wide[0]
    for dtype in wide[1:]:
        result = None if result is None else common_key_type(result, dtype)
    return result


def comparable(column: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Returns values in the common type of their key."""
    values = plain(to_storage(column))
    if values.type == dtype:
        return values
    if not pt.is_temporal(values.type):
        return pc.cast(values, dtype)
    whole = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64()).cast(pa.int64())
    if dtype == whole.type:
        return whole
    digits = _UNIT_DIGITS[values.type.unit]
    return pc.cast(seen_as(whole.cast(_TICKS), pa.decimal128(_TICKS.precision, digits)), dtype)


def _is_number(dtype: pa.DataType) -> bool:
    return bool(pt.is_integer(dtype) or pt.is_decimal(dtype))


def _integers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if pt.is_unsigned_integer(one) and pt.is_unsigned_integer(other):
        return pa.uint64()
    return None if pa.uint64() in (one, other) else pa.int64()


def _decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    digits, scale = map(max, zip(_digits(one), _digits(other), strict=True))
    if digits + scale > 76:
        return None
    wide = digits + scale > 38 or 256 in (one.bit_width, other.bit_width)
    return (pa.decimal256 if wide else pa.decimal128)(digits + scale, scale)


def _digits(dtype: pa.DataType) -> tuple[int, int]:
    """Returns the digits before and after the point."""
    if pt.is_decimal(dtype):
        return dtype.precision - dtype.scale, max(0, dtype.scale)
    if pt.is_integer(dtype):
        return _INT_DIGITS[dtype.bit_width] + (dtype == pa.uint64()), 0
    return _TICKS.precision, _UNIT_DIGITS[dtype.unit]


def _times(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Instants compare with instants, times without a zone with such times, durations with durations."""
    for is_kind in (pt.is_timestamp, pt.is_duration, pt.is_time):
        if is_kind(one) and is_kind(other):
            zones = [getattr(dtype, "tz", None) is None for dtype in (one, other)]
            if zones[0] != zones[1]:
                return None
            return pa.int64() if one.unit == other.unit else _decimal(one, other)
    return None
