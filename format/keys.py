"""Handles keys as values: JSON forms, bounds, and comparison of single keys (SPEC sections 6 and 7).

It serves what is done once per row group or fragment. `format.ordering` orders whole columns.
"""

from __future__ import annotations

import base64
import decimal
import math
from collections.abc import Sequence
from functools import total_ordering
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from format.schema import Nulls, Order, SortColumn, SortSchema, ordering
from format.types import is_binary_like, storage_type

Value = Any
"""A VALUE of SPEC section 7: None, bool, int, float or str; its meaning depends on the column's type."""
Bound = tuple[Value, ...]
"""A BOUND: values of one or more leading sort columns."""

MAX_VALUE_BYTES: Final = 64
_TEMPORAL: Final = (
    pa.TimestampScalar, pa.DurationScalar, pa.Date32Scalar, pa.Date64Scalar, pa.Time32Scalar, pa.Time64Scalar,
)  # fmt: skip
_MAX_CODE_POINT: Final = 0x10FFFF


def value_at(array: pa.Array, row: int) -> Value:
    """Returns the VALUE of one row of a storage array, never shortened."""
    scalar = array[row]
    if isinstance(scalar, pa.DictionaryScalar):
        scalar = scalar.value
    if not scalar.is_valid:
        return None
    if isinstance(scalar, _TEMPORAL):
        return scalar.value
    value = scalar.as_py()
    return str(value) if isinstance(value, decimal.Decimal) else value_to_json(value)


def value_to_json(value: Any) -> Value:
    """Returns a Python value (bool, int, float, str or bytes) as VALUE."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def key_at(columns: Sequence[pa.Array], row: int) -> Bound:
    """Returns the whole key of one row; `columns` are the sort columns as storage arrays."""
    return tuple(value_at(column, row) for column in columns)


@total_ordering
class _Reversed:
    """A value that compares the other way round, for descending columns."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.value == other.value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __hash__(self) -> int:
        return hash(self.value)


class KeyComparator:
    """A converter of keys and bounds to Python tuples that compare as SPEC section 6 says."""

    def __init__(self, schema: pa.Schema, sort: SortSchema) -> None:
        self._sort = sort = ordering(sort)
        self._types = [storage_type(schema.field(column.column).type) for column in sort]
        self._kinds = [_value_type(dtype) for dtype in self._types]

    def key(self, key: Bound) -> tuple[Any, ...]:
        """Returns the comparable form of a whole key or a lower bound; columns that a bound leaves out count
        as least."""
        return tuple(
            _comparable(value, dtype, column)
            for value, dtype, column in zip(key, self._types, self._sort, strict=False)
        )

    def check(self, key: Bound) -> None:
        """Checks a key that no checksum vouches for.

        Raises `ValueError` if it has fewer values than there are columns, or one that does not fit its
        column.
        """
        if len(key) < len(self._types):
            raise ValueError(f"{list(key)!r} has {len(key)} values for {len(self._types)} columns")
        for value, kind, dtype in zip(key, self._kinds, self._types, strict=False):
            if type(value) is kind or value is None:
                continue
            if kind is None and isinstance(value, str | int | float):
                try:
                    plain_value(value, dtype)
                    continue
                except (ValueError, ArithmeticError):
                    pass
            raise ValueError(f"{value!r} is not a key of a column of {dtype}")

    def upper(self, bound: Bound) -> tuple[Any, ...]:
        """Returns the comparable form of an upper bound; columns that it leaves out count as greatest."""
        parts = self.key(bound)
        return parts if len(parts) == len(self._sort) else (*parts, (3,))


def _comparable(value: Value, dtype: pa.DataType, column: SortColumn) -> tuple[Any, ...]:
    if value is None:
        return (0,) if column.nulls is Nulls.FIRST else (2,)
    plain = plain_value(value, dtype)
    return (1, _Reversed(plain) if column.order is Order.DESC else plain)


def plain_value(value: Value, dtype: pa.DataType) -> Any:
    """Returns a non-null VALUE as an object that compares like values of the type."""
    if pt.is_floating(dtype):
        number = float(value)
        return (1, 0.0) if math.isnan(number) else (0, number)
    if pt.is_decimal(dtype):
        return decimal.Decimal(value)
    if pt.is_binary(dtype) or pt.is_large_binary(dtype) or pt.is_fixed_size_binary(dtype):
        return base64.b64decode(value)
    return value


def _value_type(dtype: pa.DataType) -> type | None:
    """Returns the Python type of VALUEs that `plain_value` leaves unchanged; None for other types."""
    if pt.is_string(dtype) or pt.is_large_string(dtype):
        return str
    if pt.is_boolean(dtype):
        return bool
    if pt.is_floating(dtype) or pt.is_decimal(dtype) or is_binary_like(dtype):
        return None
    return None if pt.is_fixed_size_binary(dtype) else int


def lower_bound(key: Bound, schema: pa.Schema, sort: SortSchema) -> Bound:
    """Returns a bound <= `key` with values of at most `MAX_VALUE_BYTES` bytes."""
    return _shorten_key(key, schema, sort, is_lower=True)


def upper_bound(key: Bound, schema: pa.Schema, sort: SortSchema) -> Bound:
    """Returns a bound >= `key` with values of at most `MAX_VALUE_BYTES` bytes."""
    return _shorten_key(key, schema, sort, is_lower=False)


def _shorten_key(key: Bound, schema: pa.Schema, sort: SortSchema, *, is_lower: bool) -> Bound:
    result: list[Value] = []
    for value, column in zip(key, ordering(sort), strict=False):
        dtype = storage_type(schema.field(column.column).type)
        down = is_lower == (column.order is Order.ASC)
        short, exact = shorten(value, dtype, down=down)
        if short is None and not exact:
            break
        result.append(short)
        if not exact:
            break
    return tuple(result)


def shorten(value: Value, dtype: pa.DataType, *, down: bool) -> tuple[Value, bool]:
    """Shortens `value` to at most `MAX_VALUE_BYTES` bytes, as a bound from below (`down`) or from above.

    Returns the value and whether it is exact; (None, False) if there is no such upper bound.
    """
    if value is None or not isinstance(value, str):
        return value, True
    if pt.is_string(dtype) or pt.is_large_string(dtype):
        return _shorten_text(value, down=down)
    if is_binary_like(dtype) or pt.is_fixed_size_binary(dtype):
        return _shorten_bytes(base64.b64decode(value), down=down)
    return value, True


def _shorten_text(text: str, *, down: bool) -> tuple[Value, bool]:
    encoded = text.encode()
    if len(encoded) <= MAX_VALUE_BYTES:
        return text, True
    prefix = encoded[:MAX_VALUE_BYTES].decode(errors="ignore")
    if down:
        return prefix, False
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1]) + 1
        if code == 0xD800:  # surrogates are not characters
            code = 0xE000
        if code <= _MAX_CODE_POINT:
            return prefix[: end - 1] + chr(code), False
    return None, False


def _shorten_bytes(data: bytes, *, down: bool) -> tuple[Value, bool]:
    if len(data) <= MAX_VALUE_BYTES:
        return value_to_json(data), True
    prefix = data[:MAX_VALUE_BYTES]
    if down:
        return value_to_json(prefix), False
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None, False
    return value_to_json(stripped[:-1] + bytes([stripped[-1] + 1])), False
