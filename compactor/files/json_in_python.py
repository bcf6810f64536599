"""Parses lines of JSON in the calling thread, for a process that cannot start threads.

Arrow's parser starts a thread per call; this slow parser replaces it if the system allows none. It accepts
and refuses the same input, but describes broken JSON in its own words, and infers no timestamps: callers read
these as strings anyway.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.nested import build_list, build_struct

_BLANK: Final = " \t\r\n"
_STRING_OR_CONSTANT: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|-?\b(?:Inf(?:inity)?|NaN)\b')
_IN_PYTHON: Final = {"Inf": "Infinity", "-Inf": "-Infinity", "-NaN": "NaN"}
"""Constants as Arrow also knows them, and as Python does."""


class _Number(str):
    """A number as written."""

    __slots__ = ()


class _Object(dict[str, Any]):
    """An object; `twice` is a duplicate key."""

    twice: str | None = None


def rows_of(block: bytes, types: pa.Schema, other_fields: str) -> pa.RecordBatch:
    """Parses `block`: the columns of `types`, then the other fields.

    other_fields: "infer", "ignore" or "error". Raises ValueError, `pa.ArrowInvalid` or `RecursionError`.
    """
    lines = (line for line in block.decode().split("\n") if line.strip(_BLANK))
    rows = [_decoded(_with_pythons_constants(line)) for line in lines]
    _check_kinds(rows, "object", "")
    return pa.RecordBatch.from_struct_array(_Builder(other_fields).structs(rows, list(types), ""))


def _with_pythons_constants(line: str) -> str:
    if "Inf" not in line and "-NaN" not in line:
        return line
    return _STRING_OR_CONSTANT.sub(lambda found: _IN_PYTHON.get(found[0], found[0]), line)


def _decoded(line: str) -> Any:
    try:
        return json.loads(
            line,
            parse_int=_Number,
            parse_float=_finite,
            parse_constant=_Number,
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"JSON parse error: {error.msg}") from None


def _finite(text: str) -> _Number:
    if math.isinf(float(text)):
        raise ValueError("JSON parse error: Number too big to be stored in double")
    return _Number(text)


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        made.twice = next(name for place, name in enumerate(names) if name in names[:place])
    return made


def _kind(value: Any) -> str:
    match value:
        case _Number():
            return "number"
        case str():
            return "string"
        case bool():
            return "boolean"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "null"


def _kind_of_type(dtype: pa.DataType) -> str:
    if pt.is_struct(dtype):
        return "object"
    if pt.is_nested(dtype):
        return "array"
    if pt.is_boolean(dtype):
        return "boolean"
    if pt.is_decimal(dtype):
        return "number_or_string"
    return "string" if pt.is_string(dtype) else "null" if pt.is_null(dtype) else "number"


def _check_kinds(values: Sequence[Any], kind: str, path: str) -> None:
    """Raises ValueError for the first value of another kind. Nulls fit any kind, except as a row."""
    for value in values:
        here = _kind(value)
        if here != kind and not (here == "null" and path) and here not in kind.split("_or_"):
            raise ValueError(f"JSON parse error: Column({path}) changed from {kind} to {here}")


class _Builder:
    """Builds arrays from decoded values. Paths are those of fields, in Arrow's notation."""

    def __init__(self, other_fields: str) -> None:
        self._other_fields = other_fields

    def structs(self, values: Sequence[Any], given: Sequence[pa.Field], path: str) -> pa.Array:
        """Returns objects or nulls as structs of the given fields and of those found."""
        twice = next((v.twice for v in values if v is not None and v.twice is not None), None)
        if twice is not None:
            raise ValueError(f"JSON parse error: Column({path}/{twice}) was specified twice")
        types: dict[str, pa.DataType | None] = {field.name: field.type for field in given}
        if self._other_fields != "ignore":
            found = dict.fromkeys(name for value in values if value is not None for name in value)
            if self._other_fields == "error" and found.keys() - types.keys():
                raise ValueError("JSON parse error: unexpected field")
            types = {**dict.fromkeys([*types, *found]), **types}
        columns = [
            self._array(
                [None if v is None else v.get(name) for v in values], dtype, f"{path}/{name}"
            )
            for name, dtype in types.items()
        ]
        fields = [pa.field(name, column.type) for name, column in zip(types, columns, strict=True)]
        return build_struct(pa.struct(fields), len(values), columns, _nulls(values))

    def _array(self, values: Sequence[Any], dtype: pa.DataType | None, path: str) -> pa.Array:
        """Returns an array of the type, or of the inferred type if it is None."""
        first = next((value for value in values if value is not None), None)
        kind = _kind(first) if dtype is None else _kind_of_type(dtype)
        if kind == "null":
            if first is not None:
                raise ValueError("Failed to convert JSON to null")
            return pa.nulls(len(values))
        _check_kinds(values, kind, path)
        if kind == "object":
            return self.structs(values, () if dtype is None else dtype.fields, path)
        return self._lists(values, dtype, path) if kind == "array" else _scalars(values, dtype)

    def _lists(self, values: Sequence[Any], dtype: pa.DataType | None, path: str) -> pa.Array:
        items = [item for value in values if value is not None for item in value]
        counts = np.array([len(value or ()) for value in values], dtype=np.int64)
        of_items = self._array(items, None if dtype is None else dtype.value_type, f"{path}/[]")
        return build_list(pa.list_(of_items.type), counts, of_items, _nulls(values))


def _scalars(values: Sequence[Any], dtype: pa.DataType | None) -> pa.Array:
    if isinstance(next((v for v in values if v is not None), None), bool):
        return pa.array(values, pa.bool_())
    texts = pa.array(values, pa.string())
    if dtype is not None:
        return _converted(texts, dtype)
    if not any(isinstance(value, _Number) for value in values):
        return texts
    try:
        return _converted(texts, pa.int64())
    except ValueError:
        return _converted(texts, pa.float64())


def _converted(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    try:
        return texts.cast(dtype)
    except pa.ArrowInvalid as error:
        raise ValueError(f"Failed to convert JSON to {dtype}: {error}") from None


def _nulls(values: Sequence[Any]) -> pa.Array | None:
    missing = [value is None for value in values]
    return pa.array(missing) if any(missing) else None
