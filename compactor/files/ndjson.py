"""Reads newline-delimited JSON: one pass over the file for its types, one for its rows.

Types come from the whole file, so that a column that is null or integer at first may be double a million
lines later. Objects become structs, arrays lists, and ISO 8601 strings dates or timestamps (see `readings`),
at any level. Integers above int64 make the column uint64; beyond 64 bits, or among fractions or negative
numbers, they are refused. A column of the table gets the table's type, and is omitted if no row has it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from compactor.errors import InputError
from compactor.files.byte_source import FileBytes
from compactor.files.json_blocks import parse_block
from compactor.files.json_columns import JsonColumns, fitted
from compactor.files.json_fields import (
    MAX_CELLS,
    MAX_COLUMNS,
    TooManyColumnsError,
    TooManyValuesError,
    check_values,
    count_of,
    fields_in_lists,
    have_too_many_values,
    line_with,
)
from compactor.files.json_kept import with_json_as_text
from compactor.files.json_mistakes import explained
from compactor.files.problems import PROBLEMS, first_failing
from compactor.files.source import BadRow, TextBatches
from compactor.files.text_values import from_json_texts

MAX_LINE_BYTES: Final = 16 << 20
_SHOWN_CHARACTERS: Final = 60
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Complete lines of a file, at least one of them not blank."""

    data: bytes
    first_line: int


class _Line(NamedTuple):
    ordinal: int
    """Position among the non-blank lines, from 0."""
    number: int
    """Line number in the file, from 1."""
    text: bytes


def _divided(block: LineBlock, max_lines: int) -> Iterator[LineBlock]:
    """Splits the block into blocks of at most `max_lines` lines."""
    if count_of(b"\n", block.data) < max_lines:
        yield block
        return
    lines = block.data.split(b"\n")
    for start in range(0, len(lines), max_lines):
        data = b"\n".join(lines[start : start + max_lines])
        if data.strip():
            yield LineBlock(data, block.first_line + start)


def _narrowed(block: LineBlock, in_lists: int) -> Iterator[LineBlock]:
    """Splits the block into blocks within the limit of values in lists. in_lists: values per object in a
    list.

    Raises `TooManyColumnsError` for a single line with too many.
    """
    if not have_too_many_values(block.data, in_lists, are_new=False):
        yield block
        return
    lines = block.data.split(b"\n")
    half = len(lines) // 2
    if not half:
        check_values(block.data, in_lists)
        yield block
        return
    for start, stop in ((0, half), (half, len(lines))):
        data = b"\n".join(lines[start:stop])
        if data.strip():
            yield from _narrowed(LineBlock(data, block.first_line + start), in_lists)


def _lines_of(block: LineBlock, first_ordinal: int) -> list[_Line]:
    lines = enumerate(block.data.split(b"\n"), block.first_line)
    filled = [(number, text) for number, text in lines if text.strip()]
    return [_Line(n, number, text) for n, (number, text) in enumerate(filled, first_ordinal)]


def _is_object(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=dict)
    except (ValueError, RecursionError):
        return False
    return True


class NdjsonBatches(TextBatches):
    """An open NDJSON file; see `compactor.files.read.open_table_file`."""

    def _scan(self, known: pa.Schema | None, on_scan: Callable[[int], None]) -> None:
        self._learn(JsonColumns(self.path, known), on_scan)

    def _learn(self, columns: JsonColumns, on_scan: Callable[[int], None]) -> None:
        rows = 0
        for block in line_blocks(self.path, self._source, self._batch_bytes):
            try:
                columns = self._absorbed(columns, block, rows)
            except TooManyColumnsError as error:
                raise self._too_many(block, error) from None
            if self._leaves_out:
                rows += len(_lines_of(block, rows))
            on_scan(self._source.bytes_consumed)
        self.bad_rows.sort()
        self.schema = columns.schema()
        self._wire = columns.wire_schema()
        self._columns = columns.count
        self._in_lists = fields_in_lists(self._wire)

    def _absorbed(self, columns: JsonColumns, block: LineBlock, first_row: int) -> JsonColumns:
        """Returns the columns updated by the block."""
        before = copy.deepcopy(columns)
        try:
            columns.absorb(block.data)
        except PROBLEMS:
            if not self._leaves_out:
                raise self._located(block, before.known, before.would_absorb) from None
            lines = _lines_of(block, first_row)
            # Checks syntax line by line, so that only lines of another type need bisection.
            whole = [_is_object(line.text) for line in lines]
            columns = self._absorb_good(before, list(compress(lines, whole)))
            for line in compress(lines, (not is_whole for is_whole in whole)):
                columns = self._absorb_good(columns, [line])
        return columns

    def _too_many(self, block: LineBlock, error: TooManyColumnsError) -> InputError:
        line = block.first_line + line_with(block.data, error.path)
        key = ".".join(error.path)[:_SHOWN_CHARACTERS]
        if isinstance(error, TooManyValuesError):
            return InputError(
                f"{self.path}, line {line:,}: the objects of {key!r} and their fields make more than "
                f"{MAX_CELLS:,} values: write keys that vary as values, "
                '[{"key": ..., "value": ...}], or divide the list'
            )
        return InputError(
            f"{self.path}, line {line:,}: key {key!r} would be a column more than the {MAX_COLUMNS:,} that a "
            'file may have: write keys that vary as values, [{"key": ..., "value": ...}]'
        )

    def _absorb_good(self, columns: JsonColumns, lines: Sequence[_Line]) -> JsonColumns:
        """Returns the columns updated by the lines that fit, in order, and records the others as bad."""
        if not lines:
            return columns
        tried = copy.deepcopy(columns)
        try:
            tried.absorb(b"\n".join(line.text for line in lines))
            return tried
        except PROBLEMS as error:
            if len(lines) == 1:
                [line] = lines
                cause = explained(error, line.text, columns.known)
                reason = f"{self.path}, line {line.number:,}: {cause}"
                self.bad_rows.append(BadRow(line.ordinal, reason))
                self._keep(line)
                return columns
        half = len(lines) // 2
        return self._absorb_good(self._absorb_good(columns, lines[:half]), lines[half:])

    def _keep(self, line: _Line) -> None:
        """Stores the value of the kept column, if the line is an object that has it."""
        if self._kept_column is None:
            return
        try:
            value = _fields.decode(line.text).get(self._kept_column)
            if value is not None:
                self._kept[line.ordinal] = bytes(value).decode()
        except (ValueError, RecursionError):
            return

    def _values_of(self, texts: pa.Array, dtype: pa.DataType) -> pa.Array:
        return from_json_texts(texts, dtype)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for whole in self._good_blocks():
            for block in self._parsed_at_a_time(whole):
                try:
                    yield self._rows(block.data)
                except PROBLEMS:
                    raise self._located(block, self.schema, self._rows) from None

    def _parsed_at_a_time(self, whole: LineBlock) -> Iterator[LineBlock]:
        for block in _divided(whole, max(1, MAX_CELLS // max(1, self._columns))):
            try:
                yield from _narrowed(block, self._in_lists)
            except TooManyColumnsError as error:
                raise self._too_many(block, error) from None

    def _good_blocks(self) -> Iterator[LineBlock]:
        bad = {row.ordinal for row in self.bad_rows}
        row = 0
        for block in line_blocks(self.path, self._source, self._batch_bytes):
            if not bad:
                yield block
                continue
            lines = _lines_of(block, row)
            good = [line.text for line in lines if line.ordinal not in bad]
            row += len(lines)
            if len(good) == len(lines):
                yield block
            elif good:
                yield LineBlock(b"\n".join(good), block.first_line)

    def _rows(self, lines: bytes) -> pa.RecordBatch:
        lines = with_json_as_text(lines, self.schema)
        parsed = parse_block(lines, self._wire, other_fields="error")
        columns = [fitted(parsed.column(field.name), field) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _located(
        self, block: LineBlock, types: pa.Schema, attempt: Callable[[bytes], object]
    ) -> InputError:
        """Returns the error of the first line of `block` for which `attempt`, on the lines up to it, fails.

        types: columns whose type the user has given or can look up.
        """
        lines = block.data.split(b"\n")

        def attempt_first(count: int) -> None:
            start = b"\n".join(lines[:count])
            # Blank lines alone are no error.
            if start.strip():
                attempt(start)

        count, error = first_failing(len(lines), attempt_first)
        cause = explained(error, lines[count - 1], types)
        return InputError(f"{self.path}, line {block.first_line + count - 1:,}: {cause}")


def line_blocks(path: str, source: FileBytes, batch_bytes: int) -> Iterator[LineBlock]:
    """Yields the lines of a file, about `batch_bytes` at a time. Raises `InputError` for a line that is too
    long."""
    rest, first_line = source.read(batch_bytes).removeprefix(_BOM), 1
    while rest:
        more = source.read(batch_bytes)
        cut = rest.rfind(b"\n") + 1 if more else len(rest)
        block, rest = rest[:cut], rest[cut:] + more
        if block.strip():
            yield LineBlock(block, first_line)
        first_line += count_of(b"\n", block)
        if not cut and len(rest) > MAX_LINE_BYTES:
            raise InputError(
                f"{path}, line {first_line:,}: is longer than {MAX_LINE_BYTES >> 20} MiB: "
                "break the file into one object per line"
            )
