"""Limits the fields of a JSON file, and the lines parsed at a time.

Arrow allocates a value for every field in every row of a block, so lines with distinct fields take memory
quadratic in their number.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

MAX_COLUMNS: Final = 10_000
"""Maximum columns of a text file, nested fields included."""
MAX_CELLS: Final = 16 << 20
"""Maximum values parsed at a time: rows times fields, missing values included."""
_MAX_KEYS: Final = 64 << 10
"""Maximum keys parsed at a time, repetitions included: each may be a new field, which takes a kilobyte."""

_FIRST_BYTES: Final = 64 << 10
"""Size of the first piece to try."""

_TEXT: Final = re.compile(rb'(?s)("[^"\\]*+(?:\\.[^"\\]*+)*+"?)\s*+(:?)')
"""A string, and the colon after it if it is a key."""

FieldPath = tuple[str, ...]


class TooManyColumnsError(Exception):
    """A file has more than `MAX_COLUMNS` columns."""

    def __init__(self, path: FieldPath) -> None:
        """path: the first field beyond the limit."""
        super().__init__(path)
        self.path = path


class TooManyValuesError(TooManyColumnsError):
    """The objects of one line have more than `MAX_CELLS` values, counting every field in every object."""


class Fields:
    """The fields of a file found so far, at any depth."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, path: FieldPath) -> None:
        """Counts a field. Raises `TooManyColumnsError`."""
        self.count += 1
        if self.count > MAX_COLUMNS:
            raise TooManyColumnsError(path)


def fields_in_lists(schema: pa.Schema) -> int:
    """Returns the maximum number of values that Arrow allocates per object in a list."""

    def count(dtype: pa.DataType, *, in_list: bool) -> int:
        if pt.is_struct(dtype):
            return sum(in_list + count(field.type, in_list=in_list) for field in dtype)
        return count(dtype.value_type, in_list=True) if pt.is_list(dtype) else 0

    return sum(count(field.type, in_list=False) for field in schema)


def count_of(byte: bytes, text: bytes | memoryview) -> int:
    """Returns how often a byte occurs; where it is frequent, ten times as fast as `bytes.count`."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord(byte)))


def have_too_many_values(lines: bytes | memoryview, known: int, *, are_new: bool) -> bool:
    """Returns whether objects in lists may have too many values to parse at a time.

    known: number of known fields in lists, present or not. are_new: whether fields in the lines are added to
    these.
    """
    objects = count_of(b"{", lines)
    if objects <= count_of(b"\n", lines) + 1:
        return False
    if objects * (known + are_new * count_of(b":", lines)) <= MAX_CELLS:
        return False
    return objects * (known + are_new * _names(lines)) > MAX_CELLS


def _names(lines: bytes | memoryview) -> int:
    return len({text for text, colon in _TEXT.findall(lines) if colon})


def check_values(line: bytes, known: int) -> None:
    """Raises `TooManyValuesError` if the line's objects in lists have too many values, and
    `TooManyColumnsError`.

    known: number of known fields in lists, present or not.
    """
    objects: Counter[FieldPath] = Counter()
    fields: dict[FieldPath, set[str]] = defaultdict(set)
    count = 0
    try:
        for path, item in _objects(json.loads(line), ()):
            objects[path] += 1
            for key in item:
                count += key not in fields[path]
                fields[path].add(key)
                if count > MAX_COLUMNS:
                    raise TooManyColumnsError((*path, key))
    except (ValueError, RecursionError):
        return  # several lines, or one that Arrow refuses anyway
    cells = {path: objects[path] * (len(fields[path]) + bool(path) * known) for path in objects}
    if sum(cells.values()) > MAX_CELLS:
        raise TooManyValuesError(max(cells, key=lambda path: cells[path]))


def pieces(lines: bytes, columns: int, in_lists: int = 0) -> Iterator[bytes]:
    """Splits lines into pieces within the limits, whatever fields they have.

    columns: number of known columns, which are parsed whether present or not. in_lists: those within objects
    in lists. Raises `TooManyColumnsError` for a single line with too many.
    """
    start, guess = 0, _FIRST_BYTES
    while start < len(lines):
        stop = _end(lines, start, min(len(lines), start + guess), columns, in_lists)
        guess = 2 * (stop - start)
        piece = lines[start:stop]
        if count_of(b":", piece) > _MAX_KEYS or have_too_many_values(piece, in_lists, are_new=True):
            check_values(piece, in_lists)
        if piece.strip():
            yield piece
        start = stop


def _end(lines: bytes, start: int, stop: int, columns: int, in_lists: int) -> int:
    """Returns the end of the piece that starts at `start`: at most `stop`, unless one line is longer."""
    while True:
        stop = lines.rfind(b"\n", start, stop) + 1 if stop < len(lines) else stop
        if stop <= start:
            return lines.find(b"\n", start) + 1 or len(lines)
        piece = memoryview(lines)[start:stop]
        keys, rows = count_of(b":", piece), count_of(b"\n", piece) + 1
        if (
            keys <= _MAX_KEYS
            and rows * (columns + keys) <= MAX_CELLS
            and not have_too_many_values(piece, in_lists, are_new=True)
        ):
            return stop
        stop = start + (stop - start) // 2


def line_with(lines: bytes, path: FieldPath) -> int:
    """Returns the number, from 0, of the first line that has the field."""
    for number, line in enumerate(lines.split(b"\n")):
        try:
            if line.strip() and path in set(_paths(json.loads(line))):
                return number
        except (ValueError, RecursionError):
            continue
    return 0


def _paths(value: Any) -> Iterator[FieldPath]:
    return ((*path, key) for path, item in _objects(value, ()) for key in item)


def _objects(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, dict[str, Any]]]:
    """Yields the objects in a value with their paths; all objects of a list share a path."""
    if isinstance(value, dict):
        yield path, value
        for key, inner in value.items():
            yield from _objects(inner, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from _objects(item, path)
