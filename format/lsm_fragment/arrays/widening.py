"""Decides which types a column may change to without changing a value, and converts values."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.json_texts import has_json
from lsm_fragment.arrays.times import UNITS
from lsm_fragment.arrays.types import is_list_like, is_string, storage_type


def is_stored_as(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Returns whether a column of type `stored` can be read as `wanted`.

    True for equal storage types, narrower or coarser types, columns of type null, and those that become JSON.
    """
    source, target = storage_type(stored), storage_type(wanted)
    if pt.is_null(source) or becomes_json(stored, wanted):
        return True
    if isinstance(wanted, pa.JsonType):
        return isinstance(stored, pa.JsonType)
    if source == target:
        return True
    return widens_to(source, target) or converts_to(source, target)


def becomes_json(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Returns whether values of a column of type `stored` are written as JSON to be read as `wanted`."""
    is_json = isinstance(wanted, pa.JsonType) and not isinstance(stored, pa.JsonType)
    return is_json and has_json(storage_type(stored))


MANTISSA_BITS: Final = {16: 11, 32: 24, 64: 53}
"""Exponent of the power of two up to which integers are exact, by the width of the float."""


def converts_to(source: pa.DataType, target: pa.DataType) -> bool:
    """Returns whether values of a storage type convert to another with the same meaning but another row hash.

    Integers convert to floats that hold them exactly, times to finer units, and flat types to text. Times do
    not convert to nanoseconds, which end in the year 2262.
    """
    if pt.is_integer(source) and pt.is_floating(target):
        return bool(source.bit_width < MANTISSA_BITS[target.bit_width])
    if pt.is_timestamp(source) and pt.is_timestamp(target):
        is_finer = UNITS.index(source.unit) < UNITS.index(target.unit)
        return bool(is_finer and target.unit != "ns" and (source.tz is None) == (target.tz is None))
    return may_be_text(source) and is_string(target)


def may_be_text(dtype: pa.DataType) -> bool:
    """Returns whether values of a non-text storage type can be written as text."""
    return bool(
        pt.is_integer(dtype) or pt.is_floating(dtype) or pt.is_boolean(dtype) or pt.is_decimal(dtype)
        or pt.is_timestamp(dtype) or pt.is_date(dtype) or pt.is_time(dtype)
    )  # fmt: skip


def widens_to(source: pa.DataType, target: pa.DataType) -> bool:
    """Returns whether a storage type widens to another: the same numbers, texts or lists of nulls, and so the
    same row hash, statistics and order."""
    if pt.is_integer(source) and pt.is_integer(target):
        if pt.is_signed_integer(source) == pt.is_signed_integer(target):
            return bool(source.bit_width < target.bit_width)
        return bool(pt.is_signed_integer(target) and source.bit_width < target.bit_width)
    if pt.is_floating(source) and pt.is_floating(target):
        return bool(source.bit_width < target.bit_width)
    if pt.is_decimal(source) and pt.is_decimal(target):
        is_larger = source.precision <= target.precision and source.bit_width <= target.bit_width
        return bool(is_larger and source.scale == target.scale and source != target)
    if is_list_like(source) and is_list_like(target):
        return bool(pt.is_null(source.value_type) and not pt.is_null(target.value_type))
    return bool(
        (pt.is_string(source) and pt.is_large_string(target))
        or (pt.is_binary(source) and pt.is_large_binary(target))
    )


def converted_value(value: Any, source: pa.DataType, target: pa.DataType) -> Any:
    """Converts a VALUE of the footer from a column of type `source` to `target`; None if it is no bound
    there.

    `source` must convert or widen to `target`.
    """
    if becomes_json(source, target):
        return None
    source, target = storage_type(source), storage_type(target)
    if value is None or source == target:
        return value
    if may_be_text(source) and not may_be_text(target):
        return None  # texts have another order
    if not pt.is_timestamp(source):
        return value
    steps = UNITS.index(target.unit) - UNITS.index(source.unit)
    return value * 1000**steps
