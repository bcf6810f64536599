"""CSV with a header: one pass over the file for its types, one for its rows.

Cells are UTF-8 text between commas, quoted as in RFC 4180. An empty cell is null, a quoted empty one
the empty string. A column has the table's type, or else the first type all its cells can be read as
(see `readings`): in CSV everything is text, so cells that agree on nothing else make a text column.
Blank lines are skipped, except in a file of one column, where a blank line is a null.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pcsv

from compactor.errors import InputError
from compactor.files.byte_source import ByteSource
from compactor.files.names import Compression
from compactor.files.problems import PROBLEMS, first_failing, one_line
from compactor.files.readings import ALL_READINGS, Readings
from compactor.files.source import BadRow, FileBatches, ordinals_of
from compactor.files.text_values import UnreadableTypeError, from_cells, wire_type

MAX_ROW_BYTES: Final = 4 << 20
_HEADER_BYTES: Final = 1 << 20
_FIRST_ROW: Final = 2
"""The header is row 1."""
Ordinals = npt.NDArray[np.int64]
_ROW_NUMBER: Final = re.compile(r"^CSV parse error: Row #(\d+): ")


class CsvBatches(FileBatches):
    """See `compactor.files.read.open_table_file`."""

    def __init__(
        self,
        path: str,
        compression: Compression,
        batch_bytes: int,
        known_schema: pa.Schema | None,
        on_scan: Callable[[int], None],
        *,
        leaves_out_bad_rows: bool = False,
    ) -> None:
        super().__init__(path, batch_bytes)
        self._compression = compression
        self._leaves_out = leaves_out_bad_rows
        self._unreadable: dict[int, str] = {}
        """Rows that are none, by their place: what Arrow skips, in either pass."""
        self._unfit: dict[int, str] = {}
        """Rows with a value that is not of its column's type."""
        self._source = ByteSource(path, compression)
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
        for ordinals, cells in self._cell_batches():
            for name, column in zip(self._header.names, cells, strict=True):
                if name in given:
                    self._check(column, given[name], ordinals)
                else:
                    readings[name].narrow(column)
            on_scan(self._source.bytes_consumed)
        found = {name: pa.field(name, column.outcome) for name, column in readings.items()}
        return pa.schema([(given | found)[name] for name in self._header.names])

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
            if len(unfit):
                is_fit = ~np.isin(ordinals, unfit)
                ordinals = ordinals[is_fit]
                cells = [column.filter(pa.array(is_fit)) for column in cells]
            pairs = zip(cells, self.schema, strict=True)
            columns = [self._fitted(column, field, ordinals) for column, field in pairs]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _check(self, cells: pa.Array, field: pa.Field, ordinals: Ordinals) -> None:
        """Raises `InputError` for the first cell that does not fit, or notes all that don't."""
        if not self._leaves_out:
            self._fitted(cells, field, ordinals)
            return
        try:
            _checked(cells, field)
        except PROBLEMS as error:
            if len(cells) > 1:
                half = len(cells) // 2
                self._check(cells[:half], field, ordinals[:half])
                self._check(cells[half:], field, ordinals[half:])
            else:
                reason = self._unfit_cell(cells[0], field, int(ordinals[0]), error)
                self._unfit.setdefault(int(ordinals[0]), reason)

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
        """The rows' places among all, and their columns, as strings."""
        if not self._header.has_rows:
            return
        self._source.close()
        self._source = ByteSource(self.path, self._compression)
        row, rows = _FIRST_ROW, 0
        tail = _Tail(self._source)
        handler = self._skip if self._leaves_out else None
        try:
            for batch in _open(tail, self._header.names, handler):
                names = zip(batch.columns, self._header.names, strict=True)
                cells = [self._decoded(column, name, row) for column, name in names]
                yield ordinals_of(rows, batch.num_rows, sorted(self._unreadable)), cells
                row += batch.num_rows
                rows += batch.num_rows
        except pa.ArrowInvalid as error:
            raise InputError(f"{self.path}{_explained(one_line(error), row)}") from None
        if tail.ends_inside_quotes(cells[-1]):
            raise InputError(
                f"{self.path}, row {row - 1:,}: its quoted last cell never ends: close the quotes, or "
                "fetch the file again if it is cut off"
            )

    def _skip(self, row: pcsv.InvalidRow) -> str:
        self._unreadable[row.number - _FIRST_ROW] = (
            f"{self.path}, row {row.number:,}: expected {row.expected_columns} columns, got "
            f"{row.actual_columns}: {row.text[:60]!r}: give every row one cell per column"
        )
        return "skip"

    def _decoded(self, column: pa.Array, name: str, row: int) -> pa.Array:
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            bad, _ = first_failing(len(column), lambda n: column.slice(0, n).cast(pa.string()))
            raise InputError(
                f"{self.path}, row {row + bad - 1:,}: column {name!r} is not valid UTF-8: save the file "
                "as UTF-8"
            ) from None


@dataclass(frozen=True, slots=True)
class _Header:
    names: list[str]
    has_rows: bool


class _Tail:
    """A source that remembers its end: Arrow takes the end of the file for a missing end quote."""

    closed = False

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._tail = b""

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._tail = (self._tail + data if len(data) < 4096 else data)[-65_536:]
        return data

    def close(self) -> None:
        self.closed = True

    def ends_inside_quotes(self, last_column: pa.Array) -> bool:
        """Whether the last cell, the last of `last_column`, is opened by a quote and not closed."""
        value = last_column[-1].as_py()
        if not value:
            return False
        opened = b'"' + value.encode().replace(b'"', b'""')
        return self._tail.endswith(opened) or opened.endswith(self._tail)


def _open(tail: _Tail, names: list[str], on_invalid_row: Callable[[Any], str] | None) -> Any:
    return pcsv.open_csv(
        pa.PythonFile(tail, mode="r"),
        # Threads would lose the row numbers of errors.
        read_options=pcsv.ReadOptions(use_threads=False, block_size=MAX_ROW_BYTES),
        parse_options=pcsv.ParseOptions(
            newlines_in_values=True,
            ignore_empty_lines=len(names) > 1,
            invalid_row_handler=on_invalid_row,
        ),
        convert_options=pcsv.ConvertOptions(
            # Bytes, so that a cell that is not UTF-8 can be named.
            column_types=dict.fromkeys(names, pa.binary()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _checked(cells: pa.Array, field: pa.Field) -> pa.Array:
    column = from_cells(cells, field.type)
    if column.null_count and not field.nullable:
        raise ValueError("the table's column takes no nulls")
    return column


def _read_header(path: str, source: ByteSource, known: pa.Schema | None) -> _Header:
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
    repeated = sorted({name for name in names if names.count(name) > 1})
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


def _explained(cause: str, row: int) -> str:
    if "straddling" in cause:
        return (
            f", row {row:,} or later: is longer than {MAX_ROW_BYTES >> 20} MiB: look for a quote that is "
            "never closed"
        )
    if found := _ROW_NUMBER.match(cause):
        rest = cause[found.end() :][:120]
        return f", row {int(found[1]):,}: {rest}: give every row one cell per column"
    return f", row {row:,} or later: {cause}: correct it"
