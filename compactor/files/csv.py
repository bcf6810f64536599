"""Reads CSV in one pass over the file.

Cells are text between commas, or what `TextOptions` says, quoted as in RFC 4180. An empty cell is null, a
quoted empty one the empty string. A column has the table's type, or else the first type that all its cells
can be read as (see `readings`), otherwise text. Blank lines are skipped, except in a file of one column,
where they are null.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from compactor.common.counts import counted
from compactor.errors import InputError
from compactor.files.byte_source import FileBytes
from compactor.files.csv_rows import (
    SHOWN_CHARACTERS,
    CsvRows,
    OddRow,
    cut_rows,
    has_row,
    place_of_row,
)
from compactor.files.json_arrays import MAX_COLUMNS
from compactor.files.problems import PROBLEMS, UnknownColumnsError
from compactor.files.readings import NUMBERS
from compactor.files.source import Ordinals, Piece, wanted_names
from compactor.files.text_options import UTF_8, TextOptions
from compactor.files.typed_texts import TypedTexts
from lsm_fragment.arrays.json_texts import SURROGATE
from lsm_fragment.failing import failing_rows

MAX_ROW_BYTES: Final = 4 << 20
_HEADER_BYTES: Final = 1 << 20
_NO_HEADER: Final = "is empty: the first line must name the columns"


class CsvBatches(TypedTexts[CsvRows]):
    """An open CSV file; see `compactor.files.read.open_table_file`."""

    _value = "cell"
    _it = "the cell"

    def _begin(self, known: pa.Schema | None) -> None:
        self._header = self._read_header(known)
        self._names = wanted_names(self._header.names, self._wanted)
        if self._kept_column in self._header.names and self._kept_column not in self._names:
            self._names.append(self._kept_column)
        self._at = {name: self._header.names.index(name) for name in self._names}
        given = {} if known is None else {field.name: field for field in known}
        if not self._infers_types:
            given = {name: pa.field(name, pa.string()) for name in self._header.names} | given
        self._set_types(self._header.names, given)
        is_empty = not self._header.has_rows
        self.lacks_columns = is_empty and (bool(self._readings) or not self._names)
        if self.lacks_columns and not self._may_be_empty and not self.is_stream:
            if not self._header.names:
                raise UnknownColumnsError(f"{self.path}: {_NO_HEADER}")
            raise UnknownColumnsError(
                f"{self.path}: has no rows, so the types of its columns are unknown: name another file"
            )

    def _names_read(self) -> list[str]:
        return self._names

    def _read_header(self, known: pa.Schema | None) -> _Header:
        if self._may_be_empty:
            known = pa.schema([])
        return _read_header(self.path, self._source, known, self._options)

    def _blocks(self) -> Iterator[CsvRows]:
        if not self._header.has_rows:
            return
        self._source.restart()
        columns = len(self._header.names)
        yield from cut_rows(self.path, self._source, columns, MAX_ROW_BYTES, self._options)

    def _learned(self, block: CsvRows) -> Iterator[Piece]:
        self._note_odd(block.odd)
        if (piece := self._learned_at_once(block)) is not None:
            yield piece
            return
        ordinals, cells = self._texts(block.ordinals, self._cells_of(block))
        if not len(ordinals):
            self._keep_texts(block)
            return
        self._rows += len(ordinals)
        found = {}
        for name, column in zip(self._names, cells, strict=True):
            if name in self._given:
                place = partial(self._row_of, ordinals)
                found[name] = self._checked(column, self._given[name], ordinals, place)
            else:
                found[name] = self._read(name, column)
        if self._bad and self._kept_column in self._names:
            self._keep(ordinals, cells[self._names.index(self._kept_column)])
        is_fit = self._are_fit(ordinals)
        self._keep_texts(block)
        yield Piece(len(ordinals), found) if is_fit.all() else self._fit(cells, is_fit)

    def _learned_at_once(self, block: CsvRows) -> Piece | None:
        """Returns rows without mistakes, their numbers read where they stand; None if there may be one."""
        try:
            found = self._numbers_and_texts(block)
            for name, field in self._given.items():
                if name in found:
                    found[name] = self._converted(found[name], field)
        except PROBLEMS:
            return None
        for name, place in self._at.items():
            if name in self._readings:
                read = self._readings[name].add(found[name])
                if read is None:
                    texts = found[name] if pt.is_string(found[name].type) else block.column(place)
                    read = self._read(name, texts.cast(pa.string()))
                found[name] = read
        self._rows += len(block.ordinals)
        return Piece(len(block.ordinals), found)

    def _numbers_and_texts(self, block: CsvRows) -> dict[str, pa.Array]:
        """Returns columns of numbers as such if all cells are plain numbers, and all others as texts.

        Raises one of `PROBLEMS` if a text is not UTF-8.
        """
        found = {}
        for name, place in self._at.items():
            readings = self._readings.get(name)
            may_be = readings is not None and readings.outcome in (pa.null(), *NUMBERS)
            numbers = block.numbers(place, self._options.decimal) if may_be else None
            found[name] = block.column(place).cast(pa.string()) if numbers is None else numbers
        return found

    def _declared(self, _known: pa.Schema) -> pa.Schema | None:
        if self._readings:
            return None
        return pa.schema([self._given[name] for name in self._names])

    def _cells_of(self, block: CsvRows) -> list[pa.Array]:
        return [block.column(place) for place in self._at.values()]

    def _parsed(self, block: CsvRows) -> Iterator[Piece]:
        try:
            is_fit = self._are_fit(block.ordinals)
            found = self._numbers_and_texts(block) if is_fit.all() else None
        except PROBLEMS:
            found = None
        if found is not None:
            yield Piece(len(block.ordinals), found)
            return
        ordinals, cells = self._texts(block.ordinals, self._cells_of(block))
        yield self._fit(cells, self._are_fit(ordinals))

    def _fit(self, cells: Sequence[pa.Array], is_fit: npt.NDArray[np.bool_]) -> Piece:
        if not is_fit.all():
            cells = [column.filter(pa.array(is_fit)) for column in cells]
        return Piece(int(is_fit.sum()), dict(zip(self._names, cells, strict=True)))

    def _note_odd(self, odd: Sequence[OddRow]) -> None:
        """Records rows with more or fewer cells than the header, or raises `InputError` for the first."""
        for row in odd:
            reason = (
                f"{self._row_at(row.ordinal)}: expected "
                f"{counted(len(self._header.names), 'column')}, got {row.cells}: {row.shown!r}: give every "
                "row one cell per column"
            )
            self._note(row.ordinal, reason)
            if self._max_bad_rows is not None:
                self._bad_texts[row.ordinal] = row.text

    def _keep_texts(self, block: CsvRows) -> None:
        """Stores the texts of the block's bad rows, if they are asked for."""
        if self._max_bad_rows is not None and self._bad:
            for row in np.flatnonzero(~self._are_fit(block.ordinals)).tolist():
                self._bad_texts[int(block.ordinals[row])] = block.text(row)

    def _texts(self, ordinals: Ordinals, cells: list[pa.Array]) -> tuple[Ordinals, list[pa.Array]]:
        """Decodes rows to strings, and drops and records those that are not UTF-8.

        Raises `InputError` for the first of these, unless bad rows are left out.
        """
        with contextlib.suppress(*PROBLEMS):
            return ordinals, [column.cast(pa.string()) for column in cells]
        is_sound = np.ones(len(ordinals), dtype=np.bool_)
        is_known = is_sound
        for column, name in zip(cells, self._names, strict=True):
            strange = self._not_text(column)
            for place in ordinals[strange].tolist():
                self._note(place, self._not_utf8(place, name))
            is_text = np.ones(len(ordinals), dtype=np.bool_)
            is_text[strange] = False
            is_sound = is_sound & is_text
            if name == self._kept_column:
                is_known = is_text
        if not is_sound.all():
            if self._kept_column in self._names:
                kept, column = is_known & ~is_sound, cells[self._names.index(self._kept_column)]
                self._keep(ordinals[kept], column.filter(pa.array(kept)).cast(pa.string()))
            sound = pa.array(is_sound)
            ordinals, cells = ordinals[is_sound], [column.filter(sound) for column in cells]
        return ordinals, [column.cast(pa.string()) for column in cells]

    def _not_text(self, column: pa.Array) -> list[int]:
        """Returns the rows whose cell is not UTF-8; only the first, unless bad rows are left out."""
        try:
            column.cast(pa.string())
        except PROBLEMS:
            failing = failing_rows(
                len(column), lambda start, stop: column[start:stop].cast(pa.string()), PROBLEMS
            )
            return [row for row, _ in (failing if self._leaves_out else islice(failing, 1))]
        return []

    def _not_utf8(self, ordinal: int, name: str) -> str:
        return f"{self._row_at(ordinal)}: column {name!r} is not valid {_not_in(self._options)}"

    def _row_of(self, ordinals: Ordinals, row: int) -> str:
        return self._row_at(int(ordinals[row]))

    def _row_at(self, ordinal: int) -> str:
        return place_of_row(self.path, ordinal)


class _Header(Struct, frozen=True):
    names: list[str]
    has_rows: bool


def _not_in(options: TextOptions) -> str:
    """Returns the encoding that a text is not in, with advice."""
    if options.encoding == UTF_8:
        advice = ", or name its encoding" if options.can_be_set else ""
        return f"UTF-8: save the file as UTF-8{advice}"
    return f"{options.encoding}: name another encoding"


def _read_header(
    path: str, source: FileBytes, known: pa.Schema | None, options: TextOptions
) -> _Header:
    rows, top = _FirstRows(source, options), place_of_row(path, -1 if options.header else 0)
    try:
        first = next(filter(None, rows.read), [])
    except csv.Error as error:
        raise InputError(f"{top}: not a header of column names: {error}") from None
    if not options.header:
        names = list(options.names) or [f"c{number}" for number in range(1, len(first) + 1)]
        _check_names(top, names, options, is_quoted=rows.is_quoted)
        return _Header(names, has_rows=bool(first))
    has_rows = rows.may_go_on or _has_another(rows.read, blank_counts=len(first) == 1)
    if not has_rows and rows.is_cut:
        raise InputError(
            f"{path}: its first MiB has no header with a row below it: shorten the names of the columns, or "
            "take out blank lines"
        )
    if not first and known is not None:
        return _Header(known.names, has_rows=False)
    if not first:
        raise UnknownColumnsError(f"{path}: {_NO_HEADER}")
    _check_names(top, first, options, is_quoted=rows.is_quoted)
    return _Header(first, has_rows)


class _FirstRows:
    """The rows at the beginning of a file, without comments, as plain Python reads them; of a stream only
    those that come with the first."""

    def __init__(self, source: FileBytes, options: TextOptions) -> None:
        start = source.read(_HEADER_BYTES)
        more = start
        while source.is_stream and more and not has_row(start, options):
            more = source.read(max(0, _HEADER_BYTES - len(start)))
            start += more
        self.may_go_on = source.is_stream and has_row(start, options)
        """Whether more rows may come."""
        lines = io.StringIO(start.decode("utf-8-sig", errors="surrogateescape"), newline="")
        used = (
            line for line in lines if not (options.comment and line.startswith(options.comment))
        )
        first = next((line for line in used if line.strip("\r\n")), "")
        self.is_quoted = bool(options.quote) and first.startswith(options.quote)
        """Whether the first cell is in quotes."""
        self.is_cut = len(start) >= _HEADER_BYTES
        self.read = csv.reader(
            itertools.chain([first], used),
            delimiter=options.delimiter,
            quotechar=options.quote or None,
            quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
        )


def _check_names(
    place: str, names: Sequence[str], options: TextOptions, *, is_quoted: bool
) -> None:
    """Raises `InputError` unless these can be the names of a file's columns. is_quoted: the first one."""
    if any(SURROGATE.search(name) for name in names):
        raise InputError(f"{place}: a column name is not {_not_in(options)}")
    if strange := next((name for name in names if not name.isprintable()), None):
        if "\n" in strange or "\r" in strange:
            raise InputError(
                f"{place}: the column name {strange[:SHOWN_CHARACTERS]!r} has a line break: close the quote "
                "that it begins with, or take the line break out"
            )
        advice = "name the file's encoding, such as utf-16"
        raise InputError(
            f"{place}: the column name {strange[:SHOWN_CHARACTERS]!r} has a character that can't be seen: "
            f"take it out, or {advice if options.can_be_set else 'save the file as UTF-8'}"
        )
    if "" in names:
        raise InputError(f"{place}: column {names.index('') + 1} has no name: name every column")
    if len(names) > MAX_COLUMNS:
        raise InputError(
            f"{place}: has {len(names):,} columns, and a file may have {MAX_COLUMNS:,}: divide it, or write "
            "a row for each cell"
        )
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise InputError(f"{place}: the name {repeated[0]!r} is given twice: names must be unique")
    # Who quotes a name says that it is one.
    if len(names) == 1 and not is_quoted and re.search("[,;\t|]", names[0]):
        advice = "name the delimiter, if it is not"
        if not options.can_be_set:
            advice = "save the file with the delimiter"
        raise InputError(f"{place}: one column, {names[0]!r}: {advice} {options.delimiter!r}")


def _has_another(rows: Iterator[list[str]], *, blank_counts: bool) -> bool:
    try:
        return any(row or blank_counts for row in rows)
    except csv.Error:
        return True
