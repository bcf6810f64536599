"""Types of text: how schemas of blocks unify, and which strings are timestamps."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

_DATE_TIME: Final = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?"
_ZONE: Final = r"(Z|[+-]\d{2}(:?\d{2})?)$"

UTC_TIMESTAMP: Final = pa.timestamp("us", "UTC")
LOCAL_TIMESTAMP: Final = pa.timestamp("us")


class TypeConflictError(Exception):
    """Two types of one field that no type holds both."""

    def __init__(self, field: str, first: pa.DataType, second: pa.DataType) -> None:
        super().__init__(f"field {field!r} is {first} earlier and {second} here")


def unify(field: str, a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type that holds both. Raises `TypeConflictError`."""
    if a == b or pt.is_null(b):
        return a
    if pt.is_null(a):
        return b
    if pt.is_integer(a) and pt.is_floating(b):
        return b
    if pt.is_floating(a) and pt.is_integer(b):
        return a
    texts = (pt.is_string(a) or pt.is_timestamp(a)) and (pt.is_string(b) or pt.is_timestamp(b))
    if texts:
        return pa.string()
    if pt.is_list(a) and pt.is_list(b):
        return pa.list_(unify(f"{field}[]", a.value_type, b.value_type))
    if pt.is_struct(a) and pt.is_struct(b):
        fields = {f.name: f.type for f in a.fields}
        for other in b.fields:
            known = fields.get(other.name, pa.null())
            fields[other.name] = unify(f"{field}.{other.name}", known, other.type)
        return pa.struct(list(fields.items()))
    raise TypeConflictError(field, a, b)


def timestamp_type_of(strings: pa.Array) -> pa.DataType | None:
    """The timestamp type that all strings (ISO 8601, at most microseconds) have; None for other text.

    With a zone or offset: timestamp[us, tz=UTC]; without: timestamp[us]. Mixtures are text.
    """
    strings = strings.drop_null()
    if len(strings) == 0:
        return None
    for pattern, dtype in (
        (_DATE_TIME + _ZONE, UTC_TIMESTAMP),
        (_DATE_TIME + "$", LOCAL_TIMESTAMP),
    ):
        if pc.all(pc.match_substring_regex(strings, pattern)).as_py():
            try:
                strings.cast(dtype)
            except pa.ArrowInvalid:
                return None
            return dtype
    return None


def first_uncastable(array: pa.Array, dtype: pa.DataType) -> int:
    """The first row that cannot be cast to `dtype`, given that some cannot."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            array.slice(low, middle - low).cast(dtype)
            low = middle
        except pa.ArrowException:
            high = middle
    return low
