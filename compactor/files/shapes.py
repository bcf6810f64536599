"""Merges the kinds of values of each JSON field over the whole file.

Null is compatible with any kind, and int64 widens to uint64 and double. JSON distinguishes all other kinds,
so two of them in one field are an error. Integers that are not exact as doubles must not occur among doubles,
and integers above int64 only among non-negative integers.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from compactor.files.json_fields import FieldPath, Fields
from compactor.files.json_numbers import RoundedError
from compactor.files.number_text import MAX_EXACT, has_inexact
from compactor.files.readings import TIME_READINGS, Readings

_FIRST_BEYOND_INT64: Final = 2.0**63


class ShapeConflictError(ValueError):
    """A field has two kinds of values."""

    def __init__(self, field: str, earlier: str, here: str) -> None:
        super().__init__(f"field {field!r} is {here} here and {earlier} in the lines before")


class JsonKind(Enum):
    NULL = auto()
    BOOL = auto()
    INT64 = auto()
    UINT64 = auto()
    DOUBLE = auto()
    TEXT = auto()
    LIST = auto()
    STRUCT = auto()


_NUMBERS: Final = {
    JsonKind.INT64: pa.int64(),
    JsonKind.UINT64: pa.uint64(),
    JsonKind.DOUBLE: pa.float64(),
}


class JsonShape:
    """The kind of one field, with the shapes of nested fields."""

    def __init__(self, fields: Fields, path: FieldPath) -> None:
        """fields: counts this field and nested ones. Raises `TooManyColumnsError`."""
        fields.add(path)
        self._all = fields
        self._path = path
        self._kind = JsonKind.NULL
        self._negative = False
        self._inexact = False
        """Whether an integer was seen that is not exact as a double."""
        self._texts = Readings(TIME_READINGS)
        self._fields: dict[str, JsonShape] = {}
        self._item: JsonShape | None = None

    def absorb(self, array: pa.Array, path: str) -> None:
        """Merges in `array`. path: name of the field. Raises `ShapeConflictError`, `RoundedError`."""
        kind = JsonKind.NULL if array.null_count == len(array) else _kind_of(array.type)
        if kind is JsonKind.INT64:
            self._absorb_range(array)
        self._kind = _merged(self._kind, kind, path)
        if self._kind is JsonKind.UINT64 and self._negative:
            raise RoundedError(path)
        if self._kind is JsonKind.DOUBLE and self._inexact:
            raise RoundedError(path)
        if kind is JsonKind.TEXT:
            self._texts.narrow(array)
        elif kind is JsonKind.LIST:
            self._item = self._item or JsonShape(self._all, self._path)
            self._item.absorb(array.flatten(), f"{path}[]")
        elif kind is JsonKind.STRUCT:
            for name, child in zip(array.type.names, array.flatten(), strict=True):
                if name not in self._fields:
                    self._fields[name] = JsonShape(self._all, (*self._path, name))
                self._fields[name].absorb(child, f"{path}.{name}")

    def _absorb_range(self, integers: pa.Array) -> None:
        low, high = pc.min_max(integers).as_py().values()
        self._negative = self._negative or low < 0
        if not self._inexact and max(-low, high) > MAX_EXACT:
            self._inexact = has_inexact(integers)

    @property
    def pinned(self) -> pa.DataType | None:
        """The type, if all values so far are text. Parsing by it avoids a second parse to undo Arrow's
        guesses."""
        if self._kind is JsonKind.TEXT:
            return pa.string()
        if self._item is not None and (item := self._item.pinned) is not None:
            return pa.list_(item)
        fields = [(name, dtype) for name, s in self._fields.items() if (dtype := s.pinned)]
        return pa.struct(fields) if fields else None

    @property
    def outcome(self) -> pa.DataType:
        """The type that holds every value seen."""
        if self._kind is JsonKind.TEXT:
            return self._texts.outcome
        if self._item is not None:
            return pa.list_(self._item.outcome)
        if self._kind is JsonKind.STRUCT:
            return pa.struct([(name, shape.outcome) for name, shape in self._fields.items()])
        if self._kind is JsonKind.BOOL:
            return pa.bool_()
        return _NUMBERS.get(self._kind, pa.null())


def text_instead_of_times(dtype: pa.DataType) -> pa.DataType:
    """Replaces timestamps, which Arrow guesses and which lose zones, by strings."""
    if pt.is_timestamp(dtype):
        return pa.string()
    if pt.is_list(dtype):
        return pa.list_(text_instead_of_times(dtype.value_type))
    if pt.is_struct(dtype):
        return pa.struct([(f.name, text_instead_of_times(f.type)) for f in dtype.fields])
    return dtype


def exact_instead_of_rounded(array: pa.Array) -> pa.DataType:
    """Replaces doubles that may come from integers above int64 by uint64 in `array.type`."""
    if pt.is_float64(array.type):
        largest = pc.max(pc.abs(array)).as_py()
        return pa.uint64() if largest is not None and largest >= _FIRST_BEYOND_INT64 else array.type
    if pt.is_list(array.type):
        return pa.list_(exact_instead_of_rounded(array.flatten()))
    if pt.is_struct(array.type):
        children = zip(array.type.names, array.flatten(), strict=True)
        return pa.struct([(name, exact_instead_of_rounded(child)) for name, child in children])
    return array.type


_SCALARS: Final = {
    pa.null(): JsonKind.NULL,
    pa.bool_(): JsonKind.BOOL,
    pa.string(): JsonKind.TEXT,
    **{dtype: kind for kind, dtype in _NUMBERS.items()},
}


def _kind_of(dtype: pa.DataType) -> JsonKind:
    if pt.is_struct(dtype):
        return JsonKind.STRUCT
    return JsonKind.LIST if pt.is_list(dtype) else _SCALARS[dtype]


_NAMES: Final = {
    JsonKind.BOOL: "a boolean",
    JsonKind.TEXT: "a string",
    JsonKind.LIST: "an array",
    JsonKind.STRUCT: "an object",
}


def _merged(earlier: JsonKind, here: JsonKind, path: str) -> JsonKind:
    if earlier is here or here is JsonKind.NULL:
        return earlier
    if earlier is JsonKind.NULL:
        return here
    if {earlier, here} == {JsonKind.UINT64, JsonKind.DOUBLE}:
        raise RoundedError(path)
    if earlier in _NUMBERS and here in _NUMBERS:
        return here if earlier is JsonKind.INT64 else earlier
    raise ShapeConflictError(path, _NAMES.get(earlier, "a number"), _NAMES.get(here, "a number"))
