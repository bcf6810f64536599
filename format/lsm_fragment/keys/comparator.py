"""Compares keys and bounds that are given as values, in footers and in the log.

Converts them to the normalised keys that `lsm_fragment.keys.normalised` builds for rows.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.types import is_binary_like, is_string, storage_type
from lsm_fragment.keys.bounds import Bound, Value, plain_value
from lsm_fragment.keys.normalised import KeyLayout, key_width
from lsm_fragment.keys.sort_schema import Nulls, Order, SortColumn, SortSchema, ordering

ComparableKey = bytes
"""A normalised key (`lsm_fragment.native.keys.normalised`), or a bound that compares with such keys."""
_IS_VALUE: Final = b"\1"
_GREATEST: Final = b"\xff"
"""Greater than every first byte of a column's part of a key."""


class KeyComparator:
    """Converts keys and bounds to bytes that compare as in SPEC section 6."""

    def __init__(self, schema: pa.Schema, sort: SortSchema) -> None:
        self._sort = sort = ordering(sort)
        self._types = [storage_type(schema.field(column.column).type) for column in sort]
        self.layout = KeyLayout(self._types, sort)
        """The layout by which rows become keys that compare with these."""
        self._kinds = [_value_type(dtype) for dtype in self._types]
        self._held = [_held(dtype) for dtype in self._types]

    def key(self, key: Bound) -> ComparableKey:
        """Converts a full key or a lower bound; columns missing in a bound count as least."""
        return self._normalised(key)[0]

    def upper(self, bound: Bound) -> ComparableKey:
        """Converts an upper bound; missing columns count as greatest."""
        data, is_exact = self._normalised(bound)
        return data + _GREATEST if is_exact and len(bound) < len(self._sort) else data

    def _normalised(self, key: Bound) -> tuple[bytes, bool]:
        """Returns the bytes, and whether they are exact. A value that no row can have ends them: they then
        fall between the rows before and after it."""
        data, is_exact = b"", True
        for value, dtype, column in zip(key, self._types, self._sort, strict=False):
            part, is_exact = _normalised(value, dtype, column)
            data += part
            if not is_exact:
                break
        return data, is_exact

    def check(self, key: Bound) -> None:
        """Validates a key without a checksum.

        Raises `ValueError` if it has fewer values than there are columns, or a value that does not fit its
        column.
        """
        if len(key) < len(self._types):
            raise ValueError(f"{list(key)!r} has {len(key)} values for {len(self._types)} columns")
        columns = zip(key, self._kinds, self._held, self._types, strict=False)
        for value, kind, held, dtype in columns:
            if value is None or (type(value) is kind and (kind is not int or value in held)):
                continue
            if kind is None and isinstance(value, str | int | float):
                try:
                    plain_value(value, dtype)
                    continue
                except (ValueError, ArithmeticError):
                    pass
            raise ValueError(f"{value!r} is not a key of a column of {dtype}")


def _normalised(value: Value, dtype: pa.DataType, column: SortColumn) -> tuple[bytes, bool]:
    width = key_width(dtype)
    if value is None:
        place = b"\0" if column.nulls is Nulls.FIRST else b"\2"
        return place + bytes(width or 0), True
    is_descending = column.order is Order.DESC
    if width is not None and not pt.is_fixed_size_binary(dtype):
        data, is_exact = _number(_rank(value, dtype, width), width, is_descending=is_descending)
        return _IS_VALUE + data, is_exact
    plain = plain_value(value, dtype)
    data = plain.encode("utf-8", "surrogatepass") if isinstance(plain, str) else plain
    missing = 0
    if width is None:
        data = data.replace(b"\0", b"\0\xff") + b"\0\0"
    else:
        missing = width - len(data)  # bounds may be shortened
    if is_descending:
        data = bytes(255 - byte for byte in data)
        data += _GREATEST * (missing + 1 if missing else 0)
    return _IS_VALUE + data, not missing


def _rank(value: Value, dtype: pa.DataType, width: int) -> int | Fraction:
    """Returns the rank of a number among all values of its type, ascending from 0."""
    if pt.is_floating(dtype):
        return _rank_of_float(plain_value(value, dtype))
    half = 1 << (8 * width - 1)
    if pt.is_decimal(dtype):
        number: Fraction = Fraction(plain_value(value, dtype)) * Fraction(10) ** dtype.scale
        return number + half
    return int(value) + (0 if pt.is_unsigned_integer(dtype) or pt.is_boolean(dtype) else half)


def _rank_of_float(value: tuple[int, float]) -> int:
    is_nan, number = value
    if is_nan:
        return (1 << 64) - 1
    bits = int.from_bytes(struct.pack(">d", number + 0.0), "big")  # -0.0 becomes 0.0
    return (1 << 64) - 1 - bits if bits >> 63 else bits + (1 << 63)


def _number(rank: int | Fraction, width: int, *, is_descending: bool) -> tuple[bytes, bool]:
    """Returns the bytes of a number, and whether its type can hold it; if not, they come right after those of
    the next lower number."""
    max_rank = (1 << 8 * width) - 1
    rank = max_rank - rank if is_descending else rank
    place = math.floor(rank)
    if place < 0:
        return b"", False
    if place > max_rank:
        return _GREATEST * (width + 1), False
    data = place.to_bytes(width, "big")
    return (data, True) if place == rank else (data + _GREATEST, False)


def _value_type(dtype: pa.DataType) -> type | None:
    """Returns the Python type of VALUEs that `plain_value` leaves unchanged; None for other types."""
    if is_string(dtype):
        return str
    if pt.is_boolean(dtype):
        return bool
    if pt.is_floating(dtype) or pt.is_decimal(dtype) or is_binary_like(dtype):
        return None
    return None if pt.is_fixed_size_binary(dtype) else int


def _held(dtype: pa.DataType) -> range:
    """Returns the integers that a type holds whose VALUEs are integers."""
    values = 1 << 8 * (key_width(dtype) or 0)
    least = 0 if pt.is_unsigned_integer(dtype) else -values // 2
    return range(least, least + values)
