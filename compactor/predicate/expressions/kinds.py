"""Kinds of types, as functions take them and messages name them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.types import is_list_like

_TESTS: Final[Sequence[tuple[str, Callable[[pa.DataType], bool]]]] = (
    ("null", pt.is_null),
    ("boolean", pt.is_boolean),
    ("integer", pt.is_integer),
    ("decimal", pt.is_decimal),
    ("float", pt.is_floating),
    ("text", lambda t: pt.is_string(t) or pt.is_large_string(t) or pt.is_string_view(t)),
    ("date", pt.is_date),
    ("timestamp", pt.is_timestamp),
    ("time", pt.is_time),
    ("duration", pt.is_duration),
    ("months", pt.is_interval),
    ("struct", pt.is_struct),
    ("map", pt.is_map),
    ("list", lambda t: is_list_like(t) or pt.is_fixed_size_list(t)),
)
_GROUPS: Final = {
    "number": ("integer", "decimal", "float"),
    "moment": ("date", "timestamp"),
}
_SHOWN: Final = {
    "text": "a text", "integer": "an integer", "number": "a number", "moment": "a date or timestamp",
    "list": "a list", "map": "a map", "boolean": "a condition", "time": "a time of day",
    "duration": "an interval", "decimal": "a decimal", "float": "a float", "date": "a date",
    "timestamp": "a timestamp",
}  # fmt: skip


def kind_of(dtype: pa.DataType) -> str:
    """Returns the kind of a type; its own name for types that no function takes."""
    return next((kind for kind, holds in _TESTS if holds(dtype)), str(dtype))


def is_of(kind: str, asked: str) -> bool:
    """Returns whether a kind is, or belongs to, the kind that is asked for; NULL is of every kind."""
    return asked == "any" or kind in ("null", asked, *_GROUPS.get(asked, ()))


def shown_kind(kind: str) -> str:
    return _SHOWN.get(kind, kind)
