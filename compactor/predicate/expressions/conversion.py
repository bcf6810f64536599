"""Casts values to the types named in expressions and column declarations."""

from __future__ import annotations

import math
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.common.escaping import shortened
from lsm_fragment import compute as pc
from lsm_fragment.arrays.cast import as_text
from lsm_fragment.arrays.decimals import decimal_floats
from lsm_fragment.arrays.dictionaries import coded
from lsm_fragment.arrays.storage import plain
from lsm_fragment.arrays.times import times_of
from lsm_fragment.arrays.types import is_string
from lsm_fragment.arrays.widening import may_be_text
from lsm_fragment.failing import null_where_failing
from lsm_fragment.value_errors import OF_VALUES

_ZONED: Final = r"(Z|z|[-+][0-9]{2}(:?[0-9]{2})?)$"
_MAX_SHOWN: Final = 60
_SOME_DAY: Final = "1970-01-01 "
_CLOCK: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?$"


def converted(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Casts a storage array as Arrow does, and formats the years and decimals that Arrow cannot format.

    No finite value becomes infinite. Raises `pa.ArrowInvalid` for a value that does not fit.
    """
    array = plain(array)
    if array.type == dtype:
        return array
    if pt.is_string(dtype) and may_be_text(array.type):
        return as_text(array).cast(dtype)
    if is_string(array.type):
        return _of_texts(array, dtype)
    if pt.is_decimal(dtype) and pt.is_integer(array.type):
        return _whole_decimals(array, dtype)
    if pt.is_decimal(dtype) and pt.is_floating(array.type):
        # Arrow's own cast rounds. By its shortest text, 0.1 is one tenth.
        return as_text(array).cast(dtype)
    try:
        return _cast(array, dtype)
    except pa.ArrowNotImplementedError:
        advice = ": name its elements or fields" if pt.is_nested(array.type) else ""
        raise pa.ArrowNotImplementedError(f"{array.type} has no CAST to {dtype}{advice}") from None


def converted_or_null(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Casts a storage array; values that do not fit become null."""
    array = plain(array)
    try:
        return converted(array, dtype)
    except OF_VALUES:
        if pt.is_nested(array.type) or not len(array):
            raise
    distinct = coded(array)
    values = null_where_failing(distinct.dictionary, lambda some: converted(some, dtype), OF_VALUES)
    return values.take(distinct.indices)


def cast_value(value: Any, dtype: pa.DataType, *, is_safe: bool = True) -> Any:
    """Casts an array or a scalar. is_safe: raises for values that do not fit; else they become null."""
    convert = converted if is_safe else converted_or_null
    if isinstance(value, pa.Scalar):
        return convert(pa.repeat(value, 1), dtype)[0]
    return convert(value, dtype)


def _of_texts(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    if pt.is_time(dtype):
        is_clock = pc.match_substring_regex(texts, _CLOCK)
        if (wrong := texts.filter(pc.invert(is_clock))) and len(wrong):
            raise pa.ArrowInvalid(
                f"{shortened(wrong[0].as_py(), _MAX_SHOWN)!r} is not a time of day, as in '08:30:00'"
            )
        days = pc.binary_join_element_wise(_SOME_DAY, texts.cast(pa.string()), "")
        return days.cast(pa.timestamp(dtype.unit)).cast(dtype)
    if pt.is_timestamp(dtype) and dtype.tz is not None:
        has_zone = pc.match_substring_regex(texts, _ZONED)
        is_date = pc.match_substring_regex(texts, r"^[-+]?[0-9]{4,12}-[0-9]{2}-[0-9]{2}$")
        has_zone = pc.and_not(has_zone, is_date)
        zoned = times_of(pc.if_else(has_zone, texts, None), dtype)
        local = times_of(pc.if_else(has_zone, None, texts), pa.timestamp(dtype.unit))
        return pc.coalesce(zoned, local.view(dtype))
    if pt.is_timestamp(dtype) or pt.is_date32(dtype):
        return times_of(texts, dtype)
    return _cast(texts, dtype)


def _cast(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Casts as Arrow does, except that no finite value becomes infinite."""
    if not pt.is_floating(dtype):
        return pc.cast(array, dtype)
    if pt.is_integer(array.type):
        found = _floats_of_integers(array, dtype)
    elif pt.is_decimal(array.type):
        found = decimal_floats(array, dtype)
    else:
        found = pc.cast(array, dtype)
    if not pc.any(is_infinite := pc.is_inf(found)).as_py():
        return found
    if is_string(array.type):
        is_infinite = pc.and_not(is_infinite, pc.match_substring(array, "inf", ignore_case=True))
    elif pt.is_floating(array.type):
        is_infinite = pc.and_not(is_infinite, pc.is_inf(array))
    if len(wrong := array.filter(is_infinite)):
        raise pa.ArrowInvalid(
            f"{shortened(str(wrong[0]), _MAX_SHOWN)} is beyond the values of {dtype}"
        )
    return found


def _floats_of_integers(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Casts integers that a float has exactly; Arrow takes none beyond those of which it has all."""
    try:
        return pc.cast(array, dtype)
    except pa.ArrowInvalid:
        found = pc.cast(array, dtype, safe=False)
        for value, number in zip(found.to_pylist(), array.to_pylist(), strict=True):
            if value is not None and (math.isinf(value) or int(value) != number):
                raise pa.ArrowInvalid(f"no {dtype} is {number} exactly") from None
        return found


def _whole_decimals(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Casts by way of the digits that every integer has: Arrow asks for room for all of them."""
    wide = array.cast(pa.decimal256(20 + max(dtype.scale, 0), max(dtype.scale, 0)))
    return wide.cast(dtype)
