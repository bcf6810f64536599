"""Newline-delimited JSON, block by block: one pass over the file for its types, one for its rows.

Types come from the whole file, so that a column that is null or integer at first may be double a
million lines later. Strings that all look like ISO 8601 times become timestamps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyarrow import types as pt

from compactor.errors import InputError
from compactor.files.infer import (
    TypeConflictError,
    first_uncastable,
    timestamp_type_of,
    unify,
)
from compactor.files.source import BATCH_ROWS, BLOCK_BYTES, CountedFile

_MAX_LINE_BYTES: Final = 1 << 30
_BOM: Final = b"\xef\xbb\xbf"
_BIG_INTEGER: Final = re.compile(rb":\s*-?\d{19,}\s*[,}]")


class NdjsonBatches:
    """See `compactor.files.read.open_table_file`."""

    def __init__(self, path: str, known_schema: pa.Schema | None) -> None:
        self.path = path
        self._known = {f.name: f.type for f in known_schema} if known_schema is not None else {}
        self._file = CountedFile(path)
        self.bytes_total = Path(path).stat().st_size
        self._parse_types: dict[str, pa.DataType] = {
            name: _parse_type(dtype) for name, dtype in self._known.items()
        }
        self._times: dict[str, pa.DataType | None] = {}
        self.schema = self._infer()

    @property
    def bytes_consumed(self) -> int:
        return self._file.position

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self._file.close()
        self._file = CountedFile(self.path)
        names = self.schema.names
        explicit = pa.schema([(name, self._parse_types[name]) for name in names])
        for block, line in self._blocks():
            table = self._parse(block, line, explicit).combine_chunks()
            columns = [self._cast(_column(table, name, explicit), name, line) for name in names]
            merged = pa.Table.from_arrays(columns, schema=self.schema)
            yield from merged.to_batches(BATCH_ROWS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def _infer(self) -> pa.Schema:
        fields: dict[str, pa.DataType] = {}
        for block, line in self._blocks():
            explicit = pa.schema(
                [
                    (n, t)
                    for n, t in self._parse_types.items()
                    if n in self._known or n in self._times
                ]
            )
            table = self._parse(block, line, explicit)
            self._learn(table, block, line, fields)
        if not fields and not self._known:
            raise InputError(f"{self.path}: the file has no rows, so its columns are not known")
        result = []
        for name, dtype in fields.items():
            time_type = self._times.get(name)
            self._parse_types[name] = pa.string() if time_type is not None else dtype
            final = self._known.get(name, time_type if time_type is not None else dtype)
            if name in self._known:
                self._parse_types[name] = _parse_type(final)
            result.append((name, final))
        return pa.schema(result)

    def _learn(
        self, table: pa.Table, block: bytes, line: int, fields: dict[str, pa.DataType]
    ) -> None:
        names = _present_names(table, self._known, block)
        guessed = [n for n in names if pt.is_timestamp(table.schema.field(n).type)]
        guessed = [n for n in guessed if n not in self._known]
        if guessed:
            # Arrow's own guess drops zones and fractions: look at the text instead.
            as_text = pa.schema([(name, pa.string()) for name in guessed])
            texts = self._parse(block, line, as_text)
            for name in guessed:
                column = texts.column(name)
                index = table.schema.get_field_index(name)
                table = table.set_column(index, name, column)
        if _BIG_INTEGER.search(block):
            self._refuse_big_integers(table, block, line)
        for name in names:
            dtype = table.schema.field(name).type
            if name not in self._known and pt.is_string(dtype):
                self._learn_time(name, table.column(name).combine_chunks())
            try:
                fields[name] = unify(name, fields.get(name, pa.null()), _no_times(dtype))
            except TypeConflictError as error:
                raise InputError(
                    f"{self.path}: lines {line} to {line + block.count(10) - 1}: {error}: make the "
                    "field one type"
                ) from error

    def _refuse_big_integers(self, table: pa.Table, block: bytes, line: int) -> None:
        """Arrow reads integers past 64 bits as doubles, without a word."""
        for name, column in zip(table.schema.names, table.columns, strict=True):
            if pt.is_floating(column.type) and self._known.get(name) is None:
                greatest = pc.max(pc.abs(column)).as_py()
                if greatest is not None and greatest >= 2.0**63:
                    raise InputError(
                        f"{self.path}: lines {line} to {line + block.count(10) - 1}: field {name!r} has "
                        "integers beyond 64 bits: write them as strings"
                    )

    def _learn_time(self, name: str, strings: pa.Array) -> None:
        if strings.null_count == len(strings):
            return
        found = timestamp_type_of(strings)
        if name in self._times and self._times[name] != found:
            found = None
        self._times[name] = found
        self._parse_types[name] = pa.string()

    def _parse(self, block: bytes, line: int, explicit: pa.Schema) -> pa.Table:
        try:
            table = pj.read_json(
                pa.BufferReader(block),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=pj.ParseOptions(explicit_schema=explicit),
            )
            table.validate(full=True)  # the parser lets invalid UTF-8 through
            return table
        except (pa.ArrowException, UnicodeDecodeError, ValueError) as error:
            raise self._located(str(error).splitlines()[0], block, line) from error

    def _located(self, cause: str, block: bytes, line: int) -> InputError:
        """Arrow counts rows within the block; a user counts lines within the file."""
        row = re.search(r"in row (\d+)", cause)
        last = line + max(0, block.count(10) - 1)
        place = (
            f"line {_line_of_row(block, int(row.group(1)), line)}"
            if row
            else f"lines {line} to {last}"
        )
        cause = re.sub(r"^JSON parse error:\s*|\s*in row \d+", "", cause)
        return InputError(
            f"{self.path}: {place}: {cause}: each line must be one JSON object, and a field of one type"
        )

    def _cast(self, column: pa.Array, name: str, line: int) -> pa.Array:
        dtype = self.schema.field(name).type
        if column.type == dtype:
            return column
        try:
            return column.cast(dtype)
        except pa.ArrowException as error:
            row = first_uncastable(column, dtype)
            raise InputError(
                f"{self.path}: line {line + row} or after: column {name!r}: {column[row].as_py()!r} "
                f"is not a value of type {dtype}"
            ) from error

    def _blocks(self) -> Iterator[tuple[bytes, int]]:
        """Whole lines, about `BLOCK_BYTES` at a time, with the number of the first line."""
        rest, line, first = b"", 1, True
        while data := self._file.read(BLOCK_BYTES):
            if first:
                data, first = data.removeprefix(_BOM), False
            rest += data
            cut = rest.rfind(b"\n") + 1
            if cut:
                block, rest = rest[:cut], rest[cut:]
                if block.strip():
                    yield block, line
                line += block.count(b"\n")
            elif len(rest) > _MAX_LINE_BYTES:
                raise InputError(f"{self.path}: line {line} is longer than 1 GiB")
        if rest.strip():
            yield rest + b"\n", line


def _line_of_row(block: bytes, row: int, first_line: int) -> int:
    """Rows are lines that are not blank."""
    seen = -1
    for offset, text in enumerate(block.split(b"\n")):
        seen += bool(text.strip())
        if seen == row:
            return first_line + offset
    return first_line


def _present_names(table: pa.Table, known: dict[str, pa.DataType], block: bytes) -> list[str]:
    """Columns of the block: an explicit schema makes Arrow add columns that no row has."""
    return [
        name
        for name in table.schema.names
        if name not in known
        or table.column(name).null_count < len(table)
        or f'"{name}"'.encode() in block
    ]


def _column(table: pa.Table, name: str, explicit: pa.Schema) -> pa.Array:
    index = table.schema.get_field_index(name)
    if index < 0:
        return pa.nulls(len(table), explicit.field(name).type)
    chunks = table.column(index).chunks
    return pa.concat_arrays(chunks) if len(chunks) != 1 else chunks[0]


def _no_times(dtype: pa.DataType) -> pa.DataType:
    """Nested timestamps stay text: only whole columns are checked for being times."""
    if pt.is_timestamp(dtype):
        return pa.string()
    if pt.is_list(dtype):
        return pa.list_(_no_times(dtype.value_type))
    if pt.is_struct(dtype):
        return pa.struct([(f.name, _no_times(f.type)) for f in dtype.fields])
    return dtype


def _parse_type(dtype: pa.DataType) -> pa.DataType:
    """What to read a known column as; text, to be cast, where JSON has no such type."""
    if pt.is_struct(dtype):
        return pa.struct([(f.name, _parse_type(f.type)) for f in dtype.fields])
    if pt.is_list(dtype) or pt.is_large_list(dtype):
        return pa.list_(_parse_type(dtype.value_type))
    simple = pt.is_integer(dtype) or pt.is_floating(dtype) or pt.is_boolean(dtype)
    return dtype if simple or pt.is_null(dtype) else pa.string()
