"""Splits a CSV file into rows and cells, a block of whole rows at a time.

Arrow's reader needs its own threads, which may still hold the file when the process ends
(docs/decisions/0068-what-the-machine-lacks.md).
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from compactor.errors import InputError
from compactor.files.number_text import Spans, plain_numbers
from compactor.files.source import Ordinals, beginning
from compactor.files.text_options import PLAIN, TextOptions
from lsm_fragment.arrays.buffers import validity_buffer
from lsm_fragment.native.arrays import cells

Bytes = npt.NDArray[np.uint8]
_PARTS: Final = 64
"""A block leaves one part in this many free for the row that began in the one before, and one more so that it
stays below the size that the heap maps anew each time (`compactor/common/heap.py`)."""
_LINE_ENDS: Final = b"\r\n"
SWAPPED: Final = bytes.maketrans(b",.", b".,")
"""Makes numbers with a decimal comma plain, and those with a point no numbers."""
SHOWN_CHARACTERS: Final = 60
"""Characters of a row, a name or a value that messages show."""


class BlockSource(Protocol):
    def read_after(self, room: int, size: int, /) -> Bytes:
        """Returns about `size` bytes, after `room` bytes that the caller may fill; none at the end."""
        ...


class OddRow(Struct, frozen=True):
    """A row with more or fewer cells than the header."""

    ordinal: int
    """Position among all rows, from 0."""
    cells: int
    text: str
    """The beginning of it."""

    @property
    def shown(self) -> str:
        return self.text[:SHOWN_CHARACTERS]


class CsvRows(Struct, frozen=True, kw_only=True):
    """Consecutive rows of a file."""

    ordinals: Ordinals
    """Positions, among all rows, of the rows with the right number of cells."""
    odd: list[OddRow]
    _data: Bytes
    _spans: tuple[Spans, Spans, npt.NDArray[np.uint8]]
    """Starts, stops and forms of the cells, row by row."""
    _columns: int
    _quote: int

    def column(self, place: int) -> pa.Array:
        """Returns a column as binaries; an empty cell without quotes is null."""
        offsets, text, is_value = cells.column(
            self._data, *self._spans, place, self._columns, self._quote
        )
        buffers = [
            validity_buffer(is_value.view(np.bool_)),
            pa.py_buffer(offsets),
            pa.py_buffer(text),
        ]
        return pa.Array.from_buffers(pa.binary(), len(is_value), buffers)

    def text(self, row: int) -> str:
        """Returns the beginning of a row's text. row: among those with the right number of cells."""
        starts, stops, forms = self._spans
        first, last = row * self._columns, (row + 1) * self._columns - 1
        begin, end = int(starts[first]) - (forms[first] != 0), int(stops[last]) + (forms[last] != 0)
        return beginning(self._data[begin:end].tobytes())

    def numbers(self, place: int, decimal: str) -> pa.Array | None:
        """Returns a column of which all cells are plain numbers as int64 or as doubles; otherwise None."""
        if decimal == ",":
            offsets, text, is_value = cells.column(
                self._data, *self._spans, place, self._columns, self._quote
            )
            data = text.tobytes().translate(SWAPPED)
            return plain_numbers(data, offsets[:-1], offsets[1:], is_value)
        at = slice(place, None, self._columns)
        starts, stops, forms = self._spans
        starts, stops, forms = starts[at], stops[at], forms[at]
        is_there = ((stops > starts) | (forms != 0)).view(np.uint8)
        return plain_numbers(self._data, starts, stops, is_there)


def place_of_row(path: str, ordinal: int) -> str:
    """Returns the place of a row for messages, by its number from 1. ordinal: from 0; -1 is the header."""
    return f"{path}, row {ordinal + 1:,}" if ordinal >= 0 else f"{path}, header"


def has_row(start: bytes, options: TextOptions) -> bool:
    """Returns whether the beginning of a file has a whole row, be it the header."""
    rows = cells.cut(start.removeprefix(BOM_UTF8), 1, False, False, len(start), options.marks)[4]
    return rows > 0


def cut_rows(
    path: str,
    source: BlockSource,
    columns: int,
    block_bytes: int,
    options: TextOptions = PLAIN,
) -> Iterator[CsvRows]:
    """Yields the rows after the header. Raises `InputError` for a row that exceeds a block or has an unclosed
    quote."""
    room = block_bytes // _PARTS
    read_bytes = block_bytes - 2 * room
    rest = _from_first_row(source.read_after(0, read_bytes), options.header or columns > 1)
    row, is_all = -1 if options.header else 0, False
    while len(rest):
        cut = cells.cut(rest, columns, columns == 1, is_all, block_bytes, options.marks)
        block = _Block(*cut, data=rest, columns=columns, quote=options.marks[1])
        place = place_of_row(path, row + block.rows)
        if block.is_long:
            raise InputError(
                f"{place} or later: is longer than {block_bytes >> 20} MiB: look for a quote that is never "
                "closed"
            )
        if block.end < len(rest) and is_all and not block.ended_early:
            raise InputError(
                f"{place}: its quoted last cell never ends: close the quotes, or fetch the file again if it "
                "is cut off"
            )
        yield block.after(row)
        row += block.rows
        rest = rest[block.end :]
        if not block.ended_early and not is_all:
            more = source.read_after(room, read_bytes)
            is_all = len(more) == room
            rest = _joined(rest, room, more)


def _from_first_row(data: Bytes, skips_blanks: bool) -> Bytes:
    """Returns the beginning of a file without its mark of UTF-8, and without the blank lines after it, which
    are nulls in rows of one column."""
    start = len(BOM_UTF8) if data[: len(BOM_UTF8)].tobytes() == BOM_UTF8 else 0
    while skips_blanks and data[start : start + 1].tobytes() in (b"\n", b"\r"):
        start += 1
    return data[start:]


def _joined(rest: Bytes, room: int, more: Bytes) -> Bytes:
    """Returns the rest of a block and the next one, which begins after `room` bytes."""
    if len(rest) > room:
        return np.concatenate([rest, more[room:]])
    more[room - len(rest) : room] = rest
    return more[room - len(rest) :]


class _Block(NamedTuple):
    """A block of a file, split into rows."""

    starts: Spans
    stops: Spans
    forms: npt.NDArray[np.uint8]
    odd: list[tuple[int, int, int, int]]
    rows: int
    end: int
    """Offset of the first incomplete row."""
    is_long: bool
    """Whether the incomplete row is too long."""
    ended_early: bool
    """Whether more rows may follow, after many of other widths."""
    data: Bytes
    columns: int
    quote: int

    def after(self, first: int) -> CsvRows:
        """Returns the rows without the header. first: position of the first row."""
        ordinals = np.arange(first, first + self.rows, dtype=np.int64)
        ordinals = np.delete(ordinals, [row for row, *_ in self.odd])
        skipped = int(len(ordinals) > 0 and ordinals[0] < 0)
        odd = [
            OddRow(
                first + row, found, beginning(self.data[start:stop].tobytes().rstrip(_LINE_ENDS))
            )
            for row, found, start, stop in self.odd
            if first + row >= 0
        ]
        begin = skipped * self.columns
        spans = (self.starts[begin:], self.stops[begin:], self.forms[begin:])
        return CsvRows(
            ordinals=ordinals[skipped:],
            odd=odd,
            _data=self.data,
            _spans=spans,
            _columns=self.columns,
            _quote=self.quote,
        )
