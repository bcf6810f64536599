"""How many columns and fields a JSON file has, and how many of its lines are parsed at a time.

Arrow makes a value of every field for every row of what it parses, so lines that each bring a field of their
own take memory by the square of their number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

MAX_COLUMNS: Final = 10_000
"""Of a text file, fields within others among them."""
MAX_CELLS: Final = 16 << 20
"""Values of all fields in all rows that are parsed at a time, those that are not there among them."""
_MAX_KEYS: Final = 64 << 10
"""Of the lines that are parsed at a time, as often as they stand there: each may be a field that takes a
kilobyte."""

_FIRST_BYTES: Final = 64 << 10
"""Of a piece, until it is known how long those are that do."""

Path = tuple[str, ...]


class TooManyColumnsError(Exception):
    """A file has more columns than are taken."""

    def __init__(self, path: Path) -> None:
        """path: of the first that is too many."""
        super().__init__(path)
        self.path = path


class Fields:
    """The fields of a file as they are found, at any depth."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, path: Path) -> None:
        """Raises `TooManyColumnsError`."""
        self.count += 1
        if self.count > MAX_COLUMNS:
            raise TooManyColumnsError(path)


def pieces(lines: bytes, columns: int) -> Iterator[bytes]:
    """Divides lines into such as may be parsed at a time, whatever fields they bring.

    columns: that are known before and parsed, whether the lines have them or not.
    Raises `TooManyColumnsError` for a single line of too many.
    """
    start, guess = 0, _FIRST_BYTES
    while start < len(lines):
        stop = _end(lines, start, min(len(lines), start + guess), columns)
        guess = 2 * (stop - start)
        piece = lines[start:stop]
        if piece.count(b":") > _MAX_KEYS:
            _check(piece)
        if piece.strip():
            yield piece
        start = stop


def _end(lines: bytes, start: int, stop: int, columns: int) -> int:
    """Returns where a piece ends that begins at `start`: at `stop` or before, but for a line that goes on."""
    while True:
        stop = lines.rfind(b"\n", start, stop) + 1 if stop < len(lines) else stop
        if stop <= start:
            return lines.find(b"\n", start) + 1 or len(lines)
        keys, rows = lines.count(b":", start, stop), lines.count(b"\n", start, stop) + 1
        if keys <= _MAX_KEYS and rows * (columns + keys) <= MAX_CELLS:
            return stop
        stop = start + (stop - start) // 2


def _check(line: bytes) -> None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return  # several lines, or none that Arrow takes
    seen: set[Path] = set()
    for path in _paths(value, ()):
        seen.add(path)
        if len(seen) > MAX_COLUMNS:
            raise TooManyColumnsError(path)


def line_with(lines: bytes, path: Path) -> int:
    """Returns the number of the first line, from 0, that has a field."""
    for number, line in enumerate(lines.split(b"\n")):
        try:
            if line.strip() and path in set(_paths(json.loads(line), ())):
                return number
        except (ValueError, RecursionError):
            continue
    return 0


def _paths(value: Any, path: Path) -> Iterator[Path]:
    """Returns the fields of a value, those of objects in lists as one; as often as they are there."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from _paths(item, path)
