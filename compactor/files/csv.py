"""Reads CSV with a header: one pass over the file for its types, one for its rows.

Cells are UTF-8 text between commas, quoted as in RFC 4180. An empty cell is null, a quoted empty one the
empty string. A column has the table's type, or else the first type that all its cells can be read as (see
`readings`), otherwise text. Blank lines are skipped, except in a file of one column, where they are null.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compactor.common.counts import counted
from compactor.errors import InputError
from compactor.files.byte_source import FileBytes
from compactor.files.csv_rows import FIRST_ROW, OddRow, cut_rows
from compactor.files.json_fields import MAX_COLUMNS
from compactor.files.problems import PROBLEMS, failing_rows, first_failing, one_line
from compactor.files.readings import ALL_READINGS, Readings
from compactor.files.source import BadRow, Ordinals, TextBatches
from compactor.files.text_values import UnreadableTypeError, from_cells, wire_type

MAX_ROW_BYTES: Final = 4 << 20
_HEADER_BYTES: Final = 1 << 20
_SHOWN_CHARACTERS: Final = 60
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class CsvBatches(TextBatches):
    """An open CSV file; see `compactor.files.read.open_table_file`."""

    def _scan(self, known: pa.Schema | None, on_scan: Callable[[int], None]) -> None:
        self._odd: dict[int, str] = {}
        """Reasons by ordinal of rows with more or fewer cells than the header."""
        self._unfit: dict[int, str] = {}
        """Reasons of the rows with a value that is not of its column's type, or not UTF-8, by their place."""
        self._header = _read_header(self.path, self._source, known)
        self.schema = self._learn(known, on_scan)
        bad = sorted((self._unfit | self._odd).items())
        self.bad_rows = [BadRow(ordinal, reason) for ordinal, reason in bad]

    def _learn(self, known: pa.Schema | None, on_scan: Callable[[int], None]) -> pa.Schema:
        given = {} if known is None else {field.name: field for field in known}
        self._check_types(given)
        readings = {
            name: Readings(ALL_READINGS) for name in self._header.names if name not in given
        }
        if not self._header.has_rows and readings:
            raise InputError(
                f"{self.path}: has no rows, so the types of its columns are unknown: name another file"
            )
        rows = 0
        for ordinals, cells in self._cell_batches():
            rows += len(ordinals)
            for name, column in zip(self._header.names, cells, strict=True):
                if name in given:
                    self._check(column, given[name], ordinals)
                else:
                    readings[name].narrow(pc.ascii_trim_whitespace(column))
            self._keep(ordinals, cells)
            on_scan(self._source.bytes_consumed)
        found = {
            # If no row is left, the columns are known only to be text.
            name: pa.field(name, column.outcome if rows or not self._leaves_out else pa.string())
            for name, column in readings.items()
        }
        return pa.schema([(given | found)[name] for name in self._header.names])

    def _keep(self, ordinals: Ordinals, cells: list[pa.Array]) -> None:
        """Stores the cells of the kept column for rows that do not fit."""
        if self._kept_column not in self._header.names or not self._unfit:
            return
        column = cells[self._header.names.index(self._kept_column)]
        unfit = np.fromiter(self._unfit, dtype=np.int64)
        rows = np.flatnonzero(np.isin(ordinals, unfit))
        found = zip(ordinals[rows].tolist(), column.take(pa.array(rows)).to_pylist(), strict=True)
        self._kept.update((place, text) for place, text in found if text is not None)

    def _values_of(self, texts: pa.Array, dtype: pa.DataType) -> pa.Array:
        return from_cells(texts, dtype)

    def _check_types(self, given: dict[str, pa.Field]) -> None:
        try:
            for name in self._header.names:
                if name in given:
                    wire_type(given[name].type)
        except UnreadableTypeError as error:
            raise InputError(f"{self.path}: column {name!r}: {error}: use Parquet") from None

    def _batches(self) -> Iterator[pa.RecordBatch]:
        unfit = np.array(sorted(self._unfit), dtype=np.int64)
        for ordinals, cells in self._cell_batches():
            near = unfit[slice(*np.searchsorted(unfit, [ordinals[0], ordinals[-1] + 1]))]
            if len(near):
                is_fit = ~np.isin(ordinals, near)
                ordinals = ordinals[is_fit]
                cells = [column.filter(pa.array(is_fit)) for column in cells]
            pairs = zip(cells, self.schema, strict=True)
            columns = [self._fitted(column, field, ordinals) for column, field in pairs]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _check(self, cells: pa.Array, field: pa.Field, ordinals: Ordinals) -> None:
        """Raises `InputError` for the first cell that does not fit, or records all such rows as bad."""
        if not self._leaves_out:
            self._fitted(cells, field, ordinals)
            return
        try:
            _checked(cells, field)
        except PROBLEMS:
            for n, error in failing_rows(
                len(cells), lambda start, stop: _checked(cells[start:stop], field)
            ):
                place = int(ordinals[n])
                self._unfit.setdefault(place, self._unfit_cell(cells[n], field, place, error))

    def _fitted(self, cells: pa.Array, field: pa.Field, ordinals: Ordinals) -> pa.Array:
        try:
            return _checked(cells, field)
        except PROBLEMS:
            count, error = first_failing(len(cells), lambda n: _checked(cells.slice(0, n), field))
            place = int(ordinals[count - 1])
            raise InputError(self._unfit_cell(cells[count - 1], field, place, error)) from None

    def _unfit_cell(self, cell: pa.Scalar, field: pa.Field, ordinal: int, error: Exception) -> str:
        value = cell.as_py()
        shown = "an empty cell" if value is None else repr(value[:60])
        return (
            f"{self.path}, row {ordinal + FIRST_ROW:,}: column {field.name!r}: {shown} can't be read as "
            f"{field.type} ({one_line(error)}): correct the value or leave the cell empty"
        )

    def _cell_batches(self) -> Iterator[tuple[Ordinals, list[pa.Array]]]:
        """Yields ordinals and columns as strings; each batch has at least one row."""
        if not self._header.has_rows:
            return
        self._source.close()
        self._source = FileBytes(self.path, self._compression)
        for rows in cut_rows(self.path, self._source, len(self._header.names), MAX_ROW_BYTES):
            self._note_odd(rows.odd)
            ordinals, cells = self._texts(rows.ordinals, rows.cells)
            if len(ordinals):
                yield ordinals, cells

    def _note_odd(self, odd: Sequence[OddRow]) -> None:
        """Records rows with more or fewer cells than the header, or raises `InputError` for the first."""
        for row in odd:
            reason = (
                f"{self.path}, row {row.ordinal + FIRST_ROW:,}: expected "
                f"{counted(len(self._header.names), 'column')}, got {row.cells}: {row.shown!r}: give every "
                "row one cell per column"
            )
            if not self._leaves_out:
                raise InputError(reason)
            self._odd[row.ordinal] = reason

    def _texts(self, ordinals: Ordinals, cells: list[pa.Array]) -> tuple[Ordinals, list[pa.Array]]:
        """Decodes rows to strings, and drops and records those that are not UTF-8.

        Raises `InputError` for the first of these, unless bad rows are left out.
        """
        is_sound = np.ones(len(ordinals), dtype=np.bool_)
        is_known = is_sound
        for column, name in zip(cells, self._header.names, strict=True):
            strange = self._not_text(column)
            for place in ordinals[strange].tolist():
                reason = self._not_utf8(place, name)
                if not self._leaves_out:
                    raise InputError(reason)
                self._unfit.setdefault(place, reason)
            is_text = np.ones(len(ordinals), dtype=np.bool_)
            is_text[strange] = False
            is_sound = is_sound & is_text
            if name == self._kept_column:
                is_known = is_text
        if not is_sound.all():
            kept = pa.array(is_known & ~is_sound)
            texts = [
                column.filter(kept).cast(pa.string()) if name == self._kept_column else column
                for column, name in zip(cells, self._header.names, strict=True)
            ]
            self._keep(ordinals[is_known & ~is_sound], texts)
            sound = pa.array(is_sound)
            ordinals, cells = ordinals[is_sound], [column.filter(sound) for column in cells]
        return ordinals, [column.cast(pa.string()) for column in cells]

    def _not_text(self, column: pa.Array) -> list[int]:
        """Returns the rows whose cell is not UTF-8; only the first, unless bad rows are left out."""
        try:
            column.cast(pa.string())
        except PROBLEMS:
            failing = failing_rows(
                len(column), lambda start, stop: column[start:stop].cast(pa.string())
            )
            return [row for row, _ in (failing if self._leaves_out else islice(failing, 1))]
        return []

    def _not_utf8(self, ordinal: int, name: str) -> str:
        return (
            f"{self.path}, row {ordinal + FIRST_ROW:,}: column {name!r} is not valid UTF-8: save the "
            "file as UTF-8"
        )


@dataclass(frozen=True, slots=True)
class _Header:
    names: list[str]
    has_rows: bool


def _checked(cells: pa.Array, field: pa.Field) -> pa.Array:
    column = from_cells(cells, field.type)
    if column.null_count and not field.nullable:
        raise ValueError("the table's column takes no nulls")
    return column


def _read_header(path: str, source: FileBytes, known: pa.Schema | None) -> _Header:
    start = source.read(_HEADER_BYTES)
    text = start.decode("utf-8-sig", errors="surrogateescape")
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        names = next(filter(None, rows), [])
    except csv.Error as error:
        raise InputError(f"{path}, row 1: not a header of column names: {error}") from None
    place = f"{path}, row 1"
    has_rows = _has_another(rows, blank_counts=len(names) == 1)
    if not has_rows and len(start) == _HEADER_BYTES:
        raise InputError(
            f"{path}: its first MiB has no header with a row below it: shorten the names of the columns, or "
            "take out blank lines"
        )
    if not names and known is not None:
        return _Header(known.names, has_rows=False)
    if not names:
        raise InputError(f"{path}: is empty: the first line must name the columns")
    if any(_SURROGATE.search(name) for name in names):
        raise InputError(f"{place}: a column name is not UTF-8: save the file as UTF-8")
    if strange := next((name for name in names if not name.isprintable()), None):
        raise InputError(
            f"{place}: the column name {strange[:_SHOWN_CHARACTERS]!r} has a character that can't be seen: "
            "take it out, or save the file as UTF-8 if it is in UTF-16"
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
    if len(names) == 1 and re.search("[;\t|]", names[0]):
        raise InputError(f"{place}: one column, {names[0]!r}: separate the cells by commas")
    return _Header(names, has_rows)


def _has_another(rows: Iterator[list[str]], *, blank_counts: bool) -> bool:
    try:
        return any(row or blank_counts for row in rows)
    except csv.Error:
        return True
