"""Keys as values: JSON forms and bounds (SPEC section 7). `lsm_fragment.keys.comparator` compares them."""

from __future__ import annotations

import base64
import decimal
import math
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.decimals import text_of, unscaled_at
from lsm_fragment.arrays.types import is_bytes, is_string, storage_type
from lsm_fragment.keys.sort_schema import Order, SortSchema, ordering

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
    """Returns the VALUE of one row of a storage array, unshortened."""
    scalar = array[row]
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.DictionaryScalar):
        return value_at(array.dictionary, scalar.index.as_py())
    if isinstance(scalar, _TEMPORAL):
        return scalar.value
    if pt.is_decimal(array.type):
        return text_of(unscaled_at(array, row), array.type.scale)
    return value_to_json(scalar.as_py())


def value_to_json(value: Any) -> Value:
    """Converts a Python value (bool, int, float, str or bytes) to a VALUE."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def key_at(columns: Sequence[pa.Array], row: int) -> Bound:
    """Returns the full key of one row. columns: the sort columns as storage arrays."""
    return tuple(value_at(column, row) for column in columns)


def plain_value(value: Value, dtype: pa.DataType) -> Any:
    """Converts a non-null VALUE to an object that compares as values of the type do."""
    if pt.is_floating(dtype):
        number = float(value)
        return (1, 0.0) if math.isnan(number) else (0, number)
    if pt.is_decimal(dtype):
        return decimal.Decimal(value)
    if is_bytes(dtype):
        return base64.b64decode(value)
    return value


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
    """Shortens `value` to at most `MAX_VALUE_BYTES` bytes, as a lower (`down`) or an upper bound.

    Returns the value and whether it is exact; (None, False) if there is no such upper bound.
    """
    if value is None or not isinstance(value, str):
        return value, True
    if is_string(dtype):
        return _shorten_text(value, down=down)
    if is_bytes(dtype):
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
