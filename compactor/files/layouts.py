"""Describes the rows of files whose ending does not: lines by a pattern, columns of fixed width, XML."""

from __future__ import annotations

from enum import Enum
from typing import Final

import pyarrow as pa
from msgspec import Struct

from compactor.files.line_patterns import LinePattern
from compactor.files.names import FileFormat, FileKind, compression_of, kind_of


class Align(Enum):
    LEFT = "left"
    RIGHT = "right"


class LineLayout(Struct, frozen=True):
    """Lines, or records of several lines, that a pattern divides into columns."""

    pattern: LinePattern
    starts_with: str | None = None
    """Regular expression for the first line of a record; None if each line is a record."""


class FixedColumn(Struct, frozen=True, kw_only=True):
    """A column at a fixed place of each line; places and widths count characters."""

    name: str
    start: int
    """From 0."""
    width: int
    type: pa.DataType | None = None
    """None to find it out."""
    align: Align | None = None
    """None: numbers are written at the right, and blanks are dropped on both sides while reading."""
    pad: str = " "

    @property
    def stop(self) -> int:
        return self.start + self.width


class FixedLayout(Struct, frozen=True):
    columns: tuple[FixedColumn, ...]
    """In order of their places; they do not overlap."""


class XmlLayout(Struct, frozen=True):
    row: tuple[str, ...] = ()
    """Names of the row's element and of elements around it, innermost last; empty for the children of the
    outermost element."""


Layout = LineLayout | FixedLayout | XmlLayout
_FORMATS: Final = {
    LineLayout: FileFormat.LINES,
    FixedLayout: FileFormat.FIXED,
    XmlLayout: FileFormat.XML,
}


def kind_with(path: str, layout: Layout | None, ending: str | None = None) -> FileKind | None:
    """Returns the kind of a file: by its layout if it has one, otherwise by its ending.

    ending: stands in place of that of `path`.
    """
    name = path if ending is None else f".{ending}"
    if layout is None:
        return kind_of(name)
    return FileKind(_FORMATS[type(layout)], compression_of(name))
