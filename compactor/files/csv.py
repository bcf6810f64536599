"""Reads CSV with a header: one pass over the file for its types, one for its rows.

Cells are UTF-8 text between commas, quoted as in RFC 4180. An empty cell is null, a quoted empty one
the empty string. A column has the table's type, or else the first type that all its cells can be read as
(see `readings`), which is text if there is no other. Blank lines are skipped, except in a file of one column,
where a blank line is a null.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from compactor.common.counts import counted
from compactor.errors import InputError
from compactor.files.byte_source import FileBytes
from compactor.files.csv_blocks import MAX_ROW_BYTES, CsvBlocks, LongRowError
from compactor.files.json_fields import MAX_COLUMNS
from compactor.files.names import Compression
from compactor.files.problems import PROBLEMS, failing_rows, first_failing, one_line
from compactor.files.readings import ALL_READINGS, Readings
from compactor.files.source import BadRow, FileBatches, Ordinals, Places
from compactor.files.text_values import UnreadableTypeError, from_cells, wire_type

_HEADER_BYTES: Final = 1 << 20
_FIRST_ROW: Final = 2
"""Number of the first row; the header is row 1."""
_STRAY: Final = "\x1a"
"""SUBSTITUTE, which replaces each byte that is not UTF-8 without changing the length."""
_ESCAPED: Final = re.compile("[\udc80-\udcff]")
_ROW_NUMBER: Final = re.compile(r"^CSV parse error: Row #(\d+): ")


class CsvBatches(FileBatches):
    """An open CSV file; see `compactor.files.read.open_table_file`."""

    def __init__(
        self,
        path: str,
        compression: Compression,
        batch_bytes: int,
        known_schema: pa.Schema | None,
        on_scan: Callable[[int], None],
        *,
        leaves_out_bad_rows: bool = False,
        kept_column: str | None = None,
    ) -> None:
        super().__init__(path, batch_bytes)
        self._compression = compression
        self._leaves_out = leaves_out_bad_rows
        self._kept_column = kept_column
        self._unreadable: dict[int, str] = {}
        """Reasons of the rows that Arrow skips in either pass, by their place."""
        self._unfit: dict[int, str] = {}
        """Reasons of the rows with a value that is not of its column's type, or not UTF-8, by their place."""
        self._last_unreadable = ""
        self._source = FileBytes(path, compression)
        try:
            self._header = _read_header(path, self._source, known_schema)
            self.schema = self._learn(known_schema, on_scan)
        finally:
            self._source.close()
        bad = sorted((self._unfit | self._unreadable).items())
        self.bad_rows = [BadRow(ordinal, reason) for ordinal, reason in bad]

    @property
    def bytes_consumed(self) -> int:
        return self._source.bytes_consumed

    def close(self) -> None:
        self._source.close()

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
            # If no row is left, all that is known of the columns is that they had texts.
            name: pa.field(name, column.outcome if rows or not self._leaves_out else pa.string())
            for name, column in readings.items()
        }
        return pa.schema([(given | found)[name] for name in self._header.names])

    def _keep(self, ordinals: Ordinals, cells: list[pa.Array]) -> None:
        """Keeps the cells of the column to keep, for rows that were found unfit."""
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
        """Raises `InputError` for the first cell that does not fit, or notes all such cells."""
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
            f"{self.path}, row {ordinal + _FIRST_ROW:,}: column {field.name!r}: {shown} can't be read as "
            f"{field.type} ({one_line(error)}): correct the value or leave the cell empty"
        )

    def _cell_batches(self) -> Iterator[tuple[Ordinals, list[pa.Array]]]:
        """Yields places among all rows, and columns as strings; each batch has at least one row."""
        if not self._header.has_rows:
            return
        self._source.close()
        self._source = FileBytes(self.path, self._compression)
        rows, last_place, last_cell = 0, -1, None
        places = Places(list(self._unreadable))
        source = _Utf8(self._source) if self._leaves_out else self._source
        tail = _Tail(source)
        handler = self._skip if self._leaves_out else None
        blocks = CsvBlocks(tail, self._header.names, handler)
        try:
            for batch in blocks:
                if len(self._unreadable) != places.left_out:
                    places = Places(list(self._unreadable))
                ordinals = places.of(rows, batch.num_rows)
                rows += batch.num_rows
                last_place, last_cell = int(ordinals[-1]), batch.columns[-1][-1]
                columns = batch.columns
                if isinstance(source, _Utf8) and source.has_strays:
                    ordinals, columns = self._without_strays(ordinals, columns)
                if len(ordinals):
                    named = zip(columns, self._header.names, strict=True)
                    yield ordinals, [self._decoded(c, name, ordinals) for c, name in named]
        except (pa.ArrowInvalid, LongRowError) as error:
            raise InputError(
                f"{self.path}{_explained(error, last_place + 1, blocks.rows_before)}"
            ) from None
        last_bad = next(reversed(self._unreadable), -1)
        if last_bad > last_place:
            last_place, is_open = last_bad, _is_open(self._last_unreadable)
        else:
            is_open = tail.ends_inside_quotes(last_cell)
        if is_open:
            raise InputError(
                f"{self.path}, row {last_place + _FIRST_ROW:,}: its quoted last cell never ends: close the "
                "quotes, or fetch the file again if it is cut off"
            )

    def _skip(self, row: pcsv.InvalidRow) -> str:
        place = row.number - _FIRST_ROW
        self._last_unreadable = row.text
        if place not in self._unreadable:
            shown = row.text[:60].replace(_STRAY, "\N{REPLACEMENT CHARACTER}")
            self._unreadable[place] = (
                f"{self.path}, row {row.number:,}: expected {counted(row.expected_columns, 'column')}, "
                f"got {row.actual_columns}: {shown!r}: give every row one cell per column"
            )
        return "skip"

    def _without_strays(
        self, ordinals: Ordinals, columns: list[pa.Array]
    ) -> tuple[Ordinals, list[pa.Array]]:
        """Returns the rows that are UTF-8 and notes the others."""
        is_known = np.ones(len(ordinals), dtype=np.bool_)
        is_sound = np.ones(len(ordinals), dtype=np.bool_)
        for column, name in zip(columns, self._header.names, strict=True):
            found = pc.match_substring(column, _STRAY).fill_null(False)
            is_stray = found.to_numpy(zero_copy_only=False)
            for place in ordinals[is_stray].tolist():
                self._unfit.setdefault(place, self._not_utf8(place, name))
            is_sound &= ~is_stray
            if name == self._kept_column:
                is_known = ~is_stray
        known = pa.array(is_known & ~is_sound)
        self._keep(
            ordinals[is_known & ~is_sound],
            [column.filter(known).cast(pa.string()) for column in columns],
        )
        kept = pa.array(is_sound)
        return ordinals[is_sound], [column.filter(kept) for column in columns]

    def _decoded(self, column: pa.Array, name: str, ordinals: Ordinals) -> pa.Array:
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            bad, _ = first_failing(len(column), lambda n: column.slice(0, n).cast(pa.string()))
            raise InputError(self._not_utf8(int(ordinals[bad - 1]), name)) from None

    def _not_utf8(self, ordinal: int, name: str) -> str:
        return (
            f"{self.path}, row {ordinal + _FIRST_ROW:,}: column {name!r} is not valid UTF-8: save the "
            "file as UTF-8"
        )


@dataclass(frozen=True, slots=True)
class _Header:
    names: list[str]
    has_rows: bool


class _Utf8:
    """A source that replaces bytes that are not UTF-8 by `_STRAY`: Arrow can't report a bad row with such."""

    def __init__(self, source: FileBytes) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.has_strays = False

    def read(self, size: int) -> bytes:
        while True:
            # The decoder may still hold the start of a character.
            data = self._source.read(max(1, size - 3))
            text = self._decoder.decode(data, final=not data)
            if text or not data:
                break
        try:
            return text.encode()
        except UnicodeEncodeError:
            self.has_strays = True
            return _ESCAPED.sub(_STRAY, text).encode()


class _Tail:
    """A source that remembers its last bytes, because Arrow accepts the end of the file for a missing end
    quote.

    It also ends the last line: at the end of a file Arrow takes an empty cell after a quoted one for quoted,
    and so for an empty string.
    """

    def __init__(self, source: FileBytes | _Utf8) -> None:
        self._source = source
        self._tail = b""

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        if not data and self._tail and self._tail[-1:] not in b"\r\n":
            data = b"\n"
        self._tail = (self._tail + data if len(data) < 4096 else data)[-65_536:]
        return data

    def ends_inside_quotes(self, last_cell: pa.BinaryScalar | None) -> bool:
        """Returns whether the last cell has an opening quote and no closing one."""
        value = None if last_cell is None else last_cell.as_py()
        if not value:
            return False
        opened = b'"' + value.replace(b'"', b'""')
        return self._tail.endswith(opened) or opened.endswith(self._tail)


def _is_open(row: str) -> bool:
    """Returns whether the text of a row ends inside quotes."""
    try:
        list(csv.reader(io.StringIO(row, newline=""), strict=True))
    except csv.Error as error:
        # A cell that is too long for this reader is the rest of the file after an open quote.
        return "unexpected end" in str(error) or "field larger" in str(error)
    return False


def _checked(cells: pa.Array, field: pa.Field) -> pa.Array:
    column = from_cells(cells, field.type)
    if column.null_count and not field.nullable:
        raise ValueError("the table's column takes no nulls")
    return column


def _read_header(path: str, source: FileBytes, known: pa.Schema | None) -> _Header:
    text = source.read(_HEADER_BYTES).decode("utf-8-sig", errors="surrogateescape")
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        names = next(filter(None, rows), [])
    except csv.Error as error:
        raise InputError(f"{path}, row 1: not a header of column names: {error}") from None
    place = f"{path}, row 1"
    if not names and known is not None:
        return _Header(known.names, has_rows=False)
    if not names:
        raise InputError(f"{path}: is empty: the first line must name the columns")
    if any(not name.isprintable() for name in names):
        raise InputError(
            f"{place}: a column name is not printable UTF-8 text: save the file as UTF-8"
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
    return _Header(names, has_rows=_has_another(rows, blank_counts=len(names) == 1))


def _has_another(rows: Iterator[list[str]], *, blank_counts: bool) -> bool:
    try:
        return any(row or blank_counts for row in rows)
    except csv.Error:
        return True


def _explained(error: Exception, ordinal: int, rows_before: int) -> str:
    """ordinal: of the row after the last that was read. rows_before: those before the block."""
    row = ordinal + _FIRST_ROW
    if isinstance(error, LongRowError):
        return (
            f", row {row:,} or later: is longer than {MAX_ROW_BYTES >> 20} MiB: look for a quote that is "
            "never closed"
        )
    cause = one_line(error)
    if found := _ROW_NUMBER.match(cause):
        rest = cause[found.end() :][:120]
        return f", row {rows_before + int(found[1]):,}: {rest}: give every row one cell per column"
    return f", row {row:,} or later: {cause}: correct it"
