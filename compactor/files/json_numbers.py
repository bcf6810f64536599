"""Compares parsed floats with the text of JSON lines, because Arrow's parser rounds silently.

Checks lines one by one only if a float column has a value that may come from an inexact integer, or a block
has a number with too many digits, or too close to zero, for a double.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from compactor.files.number_text import MAX_DIGITS, float_holds, may_be_rounded

_LONG: Final = "|".join(
    rf"[1-9][0-9]{{{before}}}\.[0-9]{{{MAX_DIGITS - before}}}" for before in range(MAX_DIGITS + 1)
)
# Anchoring at the character before a number keeps the automaton small, and makes the search 100 times faster.
_SUSPECT: Final = (
    rf"[-:,\[\s](?:{_LONG}|[1-9][0-9]{{{MAX_DIGITS},}}[eE]|0\.0*[1-9][0-9]{{{MAX_DIGITS}}}|0\.0{{200}})"
    r"|[0-9][eE]-[0-9]{3}"
)
"""Fractions with too many digits for a double, and numbers that may underflow to zero."""
_INTEGERS: Final = (
    "has integers beyond 64 bits, beyond int64 among negative numbers, or beyond 2^53 among "
    "fractions"
)


class RoundedError(ValueError):
    """A number would be rounded."""

    def __init__(self, field: str, number: str = "", column: str = "") -> None:
        """number: a fraction as written; empty for integers."""
        what = f"has {number[:60]}, which a double does not hold" if number else _INTEGERS
        super().__init__(f"field {field!r} {what}: write them as strings")
        self.column = column


class _Number(str):
    """A non-integer number as written."""


def check_floats(
    lines: bytes, columns: Mapping[str, pa.Array], types: Mapping[str, pa.DataType]
) -> None:
    """Raises `RoundedError` for a number in `lines` that its float type cannot hold.

    columns: as parsed, with doubles for floats of all widths.
    types: float types in the same nesting.
    """
    columns = {name: column for name, column in columns.items() if _has_floats(types[name])}
    if not columns:
        return
    may_be = any(_may_be_rounded(column, types[name]) for name, column in columns.items())
    if not may_be and not pc.match_substring_regex(pa.array([lines]), _SUSPECT)[0].as_py():
        return
    for line in lines.split(b"\n"):
        if line.strip():
            row = json.loads(line, parse_float=_Number)
            for name in columns:
                _check(row.get(name), types[name], name, name)


def _has_floats(dtype: pa.DataType) -> bool:
    if pt.is_floating(dtype):
        return True
    return any(_has_floats(dtype.field(place).type) for place in range(dtype.num_fields))


def _may_be_rounded(column: pa.Array, dtype: pa.DataType) -> bool:
    if pt.is_floating(dtype):
        return may_be_rounded(column, dtype)
    if pt.is_struct(dtype):
        pairs = zip(column.flatten(), dtype.fields, strict=True)
        return any(_may_be_rounded(child, field.type) for child, field in pairs)
    return bool(dtype.num_fields) and _may_be_rounded(column.flatten(), dtype.field(0).type)


def _check(value: Any, dtype: pa.DataType, path: str, column: str) -> None:
    if pt.is_floating(dtype):
        if isinstance(value, (int, _Number)) and not float_holds(str(value), dtype):
            raise RoundedError(path, "" if isinstance(value, int) else value, column)
    elif isinstance(value, dict):
        for field in dtype.fields:
            _check(value.get(field.name), field.type, f"{path}.{field.name}", column)
    elif isinstance(value, list) and dtype.num_fields:
        for item in value:
            _check(item, dtype.field(0).type, f"{path}[]", column)
