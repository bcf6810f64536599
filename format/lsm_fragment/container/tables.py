"""Writes and reads little-endian binary tables, and columns of VALUEs in them (SPEC section 7).

Arrays are aligned to 8 bytes from the beginning of their table. A reader does not trust counts: an array that
exceeds the available bytes is refused before memory is allocated.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import int_dtype
from lsm_fragment.arrays.types import is_bytes, is_string
from lsm_fragment.keys.bounds import Value, value_to_json

_SIZES: Final = {"Q": 8, "q": 8, "d": 8, "I": 4, "B": 1}
LEFT_OUT: Final = object()
"""The VALUE of a column beyond the end of a bound."""
MAX_COUNT: Final = 1 << 62
"""Upper bound of byte counts and offsets: sums of a few of them fit 64 bits."""


def padded(data: bytes) -> bytes:
    """Pads bytes with zeros to a multiple of 8."""
    return data + bytes(-len(data) % 8)


def packed(code: str, values: Sequence[Any]) -> bytes:
    """Packs numbers as a padded array. code: a format character of `struct`."""
    return padded(struct.pack(f"<{len(values)}{code}", *values))


class TableReader:
    """Reads consecutive arrays. All methods raise `ValueError` at the end of the table."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.at = at
        self._data = data
        self._end = len(data) if end is None else end

    def array(self, code: str, count: int) -> tuple[Any, ...]:
        """Returns the next array of numbers. code: a format character of `struct`."""
        return struct.unpack_from(f"<{count}{code}", self._data, self._skip(_SIZES[code] * count))

    def raw(self, size: int) -> bytes:
        """Returns the next bytes."""
        at = self._skip(size)
        return self._data[at : at + size]

    def counts(self, count: int) -> tuple[int, ...]:
        """Returns the next array of 64-bit offsets or byte counts."""
        values = self.array("Q", count)
        if values and max(values) >= MAX_COUNT:
            raise ValueError(f"{max(values)} is not a number of bytes")
        return values

    def finish(self) -> None:
        """Raises `ValueError` if bytes are left."""
        if self.at != self._end:
            raise ValueError("unexpected bytes follow")

    def _skip(self, size: int) -> int:
        """Skips an array and its padding. Returns the offset of the array."""
        at, end = self.at, self.at + size + -size % 8
        if end > self._end:
            raise ValueError(f"{size:,} bytes are stated where {self._end - at:,} are left")
        self.at = end
        return at


class ValueKind(IntEnum):
    """The storage of a column of VALUEs."""

    NONE = 0
    INT64 = 1
    UINT64 = 2
    FLOAT64 = 3
    BOOL = 4
    TEXT = 5
    BYTES = 6
    DECIMAL = 7


_CODES: Final = {
    ValueKind.INT64: "q",
    ValueKind.UINT64: "Q",
    ValueKind.FLOAT64: "d",
    ValueKind.BOOL: "B",
}
_NULL, _VALUE, _NO_VALUE = 0, 1, 2
_STATES: Final = bytes((_NULL, _VALUE, _NO_VALUE))
_RESERVED: Final = bytes(7)
_DECIMAL: Final = re.compile("-?[0-9]+([.][0-9]+)?(E[+-][0-9]{1,10})?")


def value_kind(dtype: pa.DataType) -> ValueKind:
    """Returns the kind of VALUEs of a storage type; NONE for types without an order."""
    if pt.is_decimal(dtype):
        return ValueKind.DECIMAL
    if pt.is_null(dtype):
        return ValueKind.INT64  # has no values, but may be left out of a bound
    if int_dtype(dtype) is not None:
        return ValueKind.UINT64 if pt.is_unsigned_integer(dtype) else ValueKind.INT64
    if is_string(dtype):
        return ValueKind.TEXT
    if is_bytes(dtype):
        return ValueKind.BYTES
    if pt.is_floating(dtype):
        return ValueKind.FLOAT64
    return ValueKind.BOOL if pt.is_boolean(dtype) else ValueKind.NONE


def pack_values(values: Sequence[Value], kind: ValueKind) -> bytes:
    """Packs VALUEs of one kind, some of which may be None or `LEFT_OUT`."""
    nulls, left_out = values.count(None), values.count(LEFT_OUT)
    if nulls == len(values):
        return struct.pack("<B7x", ValueKind.NONE)
    states = bytes((_VALUE,)) * len(values)
    if nulls or left_out:
        states = bytes(
            _NULL if v is None else _NO_VALUE if v is LEFT_OUT else _VALUE for v in values
        )
    head = struct.pack("<B7x", kind) + padded(states)
    code = _CODES.get(kind)
    if code is not None:
        zero = _to_number(0, kind)
        numbers = [
            _to_number(value, kind) if state == _VALUE else zero
            for value, state in zip(values, states, strict=True)
        ]
        return head + packed(code, numbers)
    texts = [
        _to_bytes(value, kind) if state == _VALUE else b""
        for value, state in zip(values, states, strict=True)
    ]
    return head + packed("I", [len(text) for text in texts]) + padded(b"".join(texts))


def unpack_values(table: TableReader, count: int, kind: ValueKind) -> list[Value]:
    """Reads a column of `count` VALUEs. kind: of the column's type.

    Raises `ValueError` for values of another kind, and for invalid texts and decimals.
    """
    head = table.raw(8)
    found = head[0]
    if head[1:] != _RESERVED:
        raise ValueError("bounds with reserved bytes that are not 0")
    if found == ValueKind.NONE:
        return [None] * count
    if found != kind:
        raise ValueError(f"bounds of kind {found} where the column's type has {kind.value}")
    states = table.raw(count)
    if states.translate(None, _STATES):
        raise ValueError("a bound that is neither null, nor a value, nor left out")
    code = _CODES.get(kind)
    if code is None:
        return _unpack_texts(table, states, kind)
    values = list(table.array(code, count))
    if kind is ValueKind.FLOAT64:
        values = list(map(value_to_json, values))
    elif kind is ValueKind.BOOL:
        values = list(map(bool, values))
    if states.count(_VALUE) < count:
        for place, state in enumerate(states):
            if state != _VALUE:
                values[place] = _without_value(state)
    return values


def _unpack_texts(table: TableReader, states: bytes, kind: ValueKind) -> list[Value]:
    lengths = table.array("I", len(states))
    data = table.raw(sum(lengths))
    values, at = [], 0
    for state, length in zip(states, lengths, strict=True):
        text = data[at : at + length]
        at += length
        values.append(_from_bytes(text, kind) if state == _VALUE else _without_value(state))
    return values


def _without_value(state: int) -> Value:
    return None if state == _NULL else LEFT_OUT


def _to_number(value: Value, kind: ValueKind) -> Any:
    return float(value) if kind is ValueKind.FLOAT64 else value


def _to_bytes(value: Value, kind: ValueKind) -> bytes:
    return base64.b64decode(value) if kind is ValueKind.BYTES else value.encode()


def _from_bytes(data: bytes, kind: ValueKind) -> Value:
    if kind is ValueKind.BYTES:
        return base64.b64encode(data).decode("ascii")
    text = data.decode()
    if kind is ValueKind.DECIMAL and not _DECIMAL.fullmatch(text):
        raise ValueError(f"{text[:100]!r} is not a decimal")
    return text
