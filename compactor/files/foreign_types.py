"""Finds the column whose type makes Arrow refuse a whole schema, such as Polars' 128-bit integers.

Arrow's error does not name the column. This module reads names and types from the schema's FlatBuffer
(Arrow's `Schema.fbs`), which is untrusted: every offset is checked.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from compactor.errors import InputError
from compactor.files.problems import one_line

_READ_BYTES: Final = 8 << 20
"""Search this much of the start and the end of a file."""
_CONTINUATION: Final = b"\xff\xff\xff\xff"
_PARQUET_END: Final = b"PAR1"
_PARQUET_NOTE: Final = re.compile(rb"ARROW:schema\x18[\x80-\xff]*[\x00-\x7f]([A-Za-z0-9+/]+=*)")
"""Arrow's own schema in a Parquet footer. pyarrow refuses a footer if it does not support that schema."""
_ARROW_END: Final = b"ARROW1"
_SCHEMA: Final = 1
_INTEGER: Final = 2
_LAST_KNOWN: Final = 26
"""Treat higher type numbers than that of large list views as unknown to Arrow."""
_MAX_FIELDS: Final = 100_000


@contextlib.contextmanager
def naming_foreign_types(path: str) -> Iterator[None]:
    """Turns Arrow's error about an unsupported type in a Parquet or Arrow file into `InputError`."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        found = _foreign(path)
        what = "has a column of a type" if found is None else f"column {found[0]!r} has {found[1]}"
        raise InputError(
            f"{path}: {what}, which Arrow does not support ({one_line(error)}): write the file again with "
            "decimals, text or another type, or leave the column out"
        ) from error


def _foreign(path: str) -> tuple[str, str] | None:
    """Returns the first column with an unsupported type, and the type; None if none is found."""
    with Path(path).open("rb") as file:
        start = file.read(_READ_BYTES)
        file.seek(max(0, file.seek(0, os.SEEK_END) - _READ_BYTES))
        end = file.read()
    try:
        schema = _schema_in(start, end)
        fields = () if schema is None else itertools.islice(_fields(schema), _MAX_FIELDS)
        return next(((name, found) for name, field in fields if (found := _type_of(field))), None)
    except (struct.error, ValueError, RecursionError):
        return None


def _schema_in(start: bytes, end: bytes) -> _Table | None:
    if end.endswith(_PARQUET_END):
        note = _PARQUET_NOTE.search(end)
        return None if note is None else _schema_of(base64.b64decode(note[1]))
    if end.endswith(_ARROW_END):
        length = _number("<I", end, len(end) - len(_ARROW_END) - 4)
        footer = end[: -len(_ARROW_END) - 4][-length:]
        return _Table(footer, _number("<I", footer, 0)).table(1)
    return _schema_of(start)


def _schema_of(message: bytes) -> _Table | None:
    start = 8 if message.startswith(_CONTINUATION) else 4
    root = _Table(message, start + _number("<I", message, start))
    return root.table(2) if root.byte(1) == _SCHEMA else None


def _fields(schema: _Table) -> Iterator[tuple[str, _Table]]:
    """Yields all fields at any depth, each with its column's name."""
    for column in schema.tables(1):
        name = column.text(0)
        yield from ((name, field) for field in _with_children(column))


def _with_children(field: _Table) -> Iterator[_Table]:
    yield field
    for child in field.tables(5):
        yield from _with_children(child)


def _type_of(field: _Table) -> str | None:
    number, dtype = field.byte(2), field.table(3)
    if number > _LAST_KNOWN:
        return f"a type of number {number}"
    if number == _INTEGER and dtype is not None and (bits := dtype.integer(0)) > 64:
        return f"integers of {bits} bits"
    return None


class _Table:
    """A table of a FlatBuffer. Raises `struct.error` for offsets outside the buffer."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._slots = at - _number("<i", data, at)
        self._size = _number("<H", data, self._slots)

    def byte(self, slot: int) -> int:
        place = self._place(slot)
        return 0 if place is None else _number("<B", self._data, place)

    def integer(self, slot: int) -> int:
        place = self._place(slot)
        return 0 if place is None else _number("<i", self._data, place)

    def table(self, slot: int) -> _Table | None:
        place = self._place(slot)
        return None if place is None else _Table(self._data, self._target(place))

    def text(self, slot: int) -> str:
        place = self._place(slot)
        if place is None:
            return ""
        start = self._target(place)
        return self._data[start + 4 :][: _number("<I", self._data, start)].decode()

    def tables(self, slot: int) -> Iterator[_Table]:
        place = self._place(slot)
        if place is None:
            return
        start = self._target(place)
        for item in range(_number("<I", self._data, start)):
            yield _Table(self._data, self._target(start + 4 + 4 * item))

    def _place(self, slot: int) -> int | None:
        entry = 4 + 2 * slot
        offset = _number("<H", self._data, self._slots + entry) if entry < self._size else 0
        return self._at + offset if offset else None

    def _target(self, place: int) -> int:
        return place + _number("<I", self._data, place)


def _number(code: str, data: bytes, at: int) -> int:
    if at < 0:
        raise ValueError("a place before the buffer")
    return int(struct.unpack_from(code, data, at)[0])
