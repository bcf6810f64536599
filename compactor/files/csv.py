"""CSV with a header line: read as text, typed by the whole file, then cast column by column.

An empty cell is null, a quoted empty one the empty string.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from compactor.errors import InputError
from compactor.files.infer import first_uncastable, timestamp_type_of
from compactor.files.source import BLOCK_BYTES, CountedFile

_MAX_HEADER_BYTES: Final = 4 << 20
_LONG_INTEGER: Final = r"^[+-]?\d{17,}$"
"""More digits than a double holds: such a column is text unless it fits int64."""


class CsvBatches:
    """See `compactor.files.read.open_table_file`."""

    def __init__(self, path: str, known_schema: pa.Schema | None) -> None:
        self.path = path
        self._known = {f.name: f.type for f in known_schema} if known_schema is not None else {}
        self._file = CountedFile(path)
        self.bytes_total = Path(path).stat().st_size
        self._names = self._read_names()
        self.schema = self._infer()

    @property
    def bytes_consumed(self) -> int:
        return self._file.position

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        row = 1
        for batch in self._text_batches():
            columns = [
                self._cast(column, field, row)
                for column, field in zip(batch.columns, self.schema, strict=True)
            ]
            row += batch.num_rows
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def _infer(self) -> pa.Schema:
        types: dict[str, pa.DataType] = {}
        for batch in self._text_batches():
            for name, column in zip(self._names, batch.columns, strict=True):
                if name not in self._known:
                    types[name] = _narrow(types.get(name, pa.null()), column)
        return pa.schema([(n, self._known.get(n, types.get(n, pa.null()))) for n in self._names])

    def _read_names(self) -> list[str]:
        header = self._file.read(_MAX_HEADER_BYTES)
        if not header.strip():
            raise InputError(
                f"{self.path}: the file is empty; a CSV file begins with a header line"
            )
        try:
            reader = pcsv.open_csv(
                pa.BufferReader(header.removeprefix(b"\xef\xbb\xbf").split(b"\n")[0] + b"\n"),
                read_options=pcsv.ReadOptions(use_threads=False),
            )
            names: list[str] = reader.schema.names
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise InputError(f"{self.path}: line 1: not a CSV header: {_line(error)}") from error
        if len(set(names)) != len(names) or "" in names:
            raise InputError(f"{self.path}: line 1: column names must be unique and not empty")
        return names

    def _text_batches(self) -> Iterator[pa.RecordBatch]:
        self._file.close()
        self._file = CountedFile(self.path)
        try:
            yield from self._open()
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise InputError(
                f"{self.path}: {_line(error)}: every line needs {len(self._names)} valid UTF-8 cells"
            ) from error

    def _open(self) -> Iterator[pa.RecordBatch]:
        source: Any = pa.PythonFile(_Readable(self._file), mode="r")
        yield from pcsv.open_csv(
            source,
            read_options=pcsv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
            parse_options=pcsv.ParseOptions(newlines_in_values=True),
            convert_options=pcsv.ConvertOptions(
                column_types={name: pa.string() for name in self._names},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _cast(self, column: pa.Array, field: pa.Field, row: int) -> pa.Array:
        if pa.types.is_null(field.type):
            return pa.nulls(len(column))
        try:
            return column.cast(field.type)
        except pa.ArrowException as error:
            bad = first_uncastable(column, field.type)
            raise InputError(
                f"{self.path}: row {row + bad}: column {field.name!r}: {column[bad].as_py()!r} is "
                f"not a value of type {field.type}"
            ) from error


class _Readable:
    """The little of a file object that Arrow needs."""

    closed = False

    def __init__(self, file: CountedFile) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def close(self) -> None:
        self.closed = True


def _narrow(current: pa.DataType, column: pa.Array) -> pa.DataType:
    """The narrowest type, no narrower than `current`, that takes in these texts too."""
    if column.null_count == len(column) or pa.types.is_string(current):
        return current
    if pa.types.is_null(current):
        candidates = [pa.int64(), pa.float64(), pa.bool_(), timestamp_type_of(column)]
    elif pa.types.is_int64(current):
        candidates = [pa.int64(), pa.float64()]
    else:
        candidates = [current]
    for dtype in candidates:
        if dtype is not None and _casts(column, dtype):
            return dtype
    return pa.string()


def _casts(column: pa.Array, dtype: pa.DataType) -> bool:
    if (
        pa.types.is_floating(dtype)
        and pc.any(pc.match_substring_regex(column, _LONG_INTEGER)).as_py()
    ):
        return False
    if pa.types.is_timestamp(dtype) and timestamp_type_of(column) != dtype:
        return False
    try:
        column.cast(dtype)
    except pa.ArrowException:
        return False
    return True


def _line(error: Exception) -> str:
    return str(error).splitlines()[0]
