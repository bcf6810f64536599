"""Writing query results to files, atomically: the file appears whole, or not at all."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import zstandard
from pyarrow import types as pt

from compactor.errors import InputError, UsageError
from compactor.files.jsontext import json_lines, json_values
from compactor.files.source import strip_compression

KNOWN_ENDINGS: Final = ".parquet .arrow .ndjson .csv (text also .gz .zst)"
_ROW_GROUP_ROWS: Final = 122_880
_ROW_GROUP_BYTES: Final = 64 << 20


class TableSink(Protocol):
    """Where batches go."""

    def write(self, batch: pa.RecordBatch) -> None: ...


@contextlib.contextmanager
def open_table_sink(
    path: str, schema: pa.Schema, sorting_columns: Sequence[pq.SortingColumn] | None = None
) -> Iterator[TableSink]:
    """A sink for batches of `schema`, by the ending of `path`; an existing file is replaced at the end.

    Raises `UsageError` for unknown endings, `InputError` where the file cannot be written or cannot
    hold a type. Leaving by an exception leaves nothing behind.
    """
    maker = _maker(path)
    temporary = Path(path).with_name(f".{Path(path).name}.{os.getpid()}.tmp")
    try:
        with _writable(path), temporary.open("xb") as file:
            sink = maker(file, schema, sorting_columns)
            yield sink
            sink.close()
            file.flush()
            os.fsync(file.fileno())
        with _writable(path):
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_sink_path(path: str) -> None:
    """Raises `UsageError` unless the ending of `path` is known."""
    _maker(path)


def _maker(path: str) -> Any:
    name = path.lower()
    if name.endswith(".parquet"):
        return _ParquetSink
    if name.endswith((".arrow", ".feather", ".ipc")):
        return _ArrowSink
    text, compression = strip_compression(name), Path(name).suffix
    if text.endswith((".ndjson", ".jsonl", ".json")):
        return lambda file, _schema, _: _NdjsonSink(_compressed(file, compression))
    if text.endswith(".csv"):
        return lambda file, schema, _: _CsvSink(_compressed(file, compression), schema)
    raise UsageError(f"{path}: unknown kind of file; known endings are {KNOWN_ENDINGS}")


@contextlib.contextmanager
def _writable(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: its folder does not exist") from None
    except IsADirectoryError:
        raise InputError(f"{path}: it is a folder") from None
    except PermissionError:
        raise InputError(f"{path}: permission denied") from None
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid) as error:
        cause = str(error).splitlines()[0]
        raise InputError(f"{path}: this kind of file cannot hold the data: {cause}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


class _Closer(Protocol):
    def write(self, data: Any, /) -> Any: ...
    def close(self) -> None: ...


class _NoClose:
    """The plain file, which its owner closes."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write = file.write

    def close(self) -> None:
        return


def _compressed(file: IO[bytes], ending: str) -> _Closer:
    if ending == ".gz":
        return gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6)
    if ending == ".zst":
        return zstandard.ZstdCompressor(level=3).stream_writer(file, closefd=False)
    return _NoClose(file)


class _ParquetSink:
    def __init__(
        self, file: IO[bytes], schema: pa.Schema, sorting: Sequence[pq.SortingColumn] | None
    ) -> None:
        self._schema = _parquet_schema(schema)
        self._writer = pq.ParquetWriter(
            file, self._schema, compression="zstd", sorting_columns=sorting
        )
        self._pending: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        # Small batches must not become small row groups.
        self._pending.append(pa.Table.from_batches([batch]).cast(self._schema))
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _ROW_GROUP_ROWS or self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.concat_tables(self._pending), row_group_size=self._rows)
        self._pending, self._rows, self._bytes = [], 0, 0


def _parquet_schema(schema: pa.Schema) -> pa.Schema:
    """Views as what Parquet can hold."""
    simple = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([field.with_type(simple.get(field.type, field.type)) for field in schema])


class _ArrowSink:
    def __init__(self, file: IO[bytes], schema: pa.Schema, _: object) -> None:
        # Deltas and replacements: every batch may bring a dictionary of its own.
        self._schema = pa.schema([f.with_type(_undictionaried(f.type)) for f in schema])
        self._writer = pa.ipc.new_file(file, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        for piece in pa.Table.from_batches([batch]).cast(self._schema).to_batches():
            self._writer.write_batch(piece)

    def close(self) -> None:
        self._writer.close()


def _undictionaried(dtype: pa.DataType) -> pa.DataType:
    """An IPC file holds one dictionary a column; batches of a scan have one each."""
    return dtype.value_type if pt.is_dictionary(dtype) else dtype


class _NdjsonSink:
    def __init__(self, out: _Closer) -> None:
        self._out = out

    def write(self, batch: pa.RecordBatch) -> None:
        self._out.write(json_lines(batch))

    def close(self) -> None:
        self._out.close()


class _CsvSink:
    def __init__(self, out: _Closer, schema: pa.Schema) -> None:
        self._out = out
        self._schema = pa.schema([(f.name, _csv_type(f.type)) for f in schema])
        self._started = False

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [
            _csv_column(column, field.type)
            for column, field in zip(batch.columns, self._schema, strict=True)
        ]
        self._put(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        if not self._started:
            self._put(pa.RecordBatch.from_pylist([], schema=self._schema))
        self._out.close()

    def _put(self, batch: pa.RecordBatch) -> None:
        text = pa.BufferOutputStream()
        pcsv.write_csv(batch, text, pcsv.WriteOptions(include_header=not self._started))
        self._started = True
        self._out.write(text.getvalue())


def _csv_type(dtype: pa.DataType) -> pa.DataType:
    if pt.is_dictionary(dtype):
        return _csv_type(dtype.value_type)
    simple = pt.is_primitive(dtype) or pt.is_null(dtype) or pt.is_string(dtype)
    if pt.is_interval(dtype) or pt.is_float16(dtype):
        simple = False
    return dtype if simple else pa.large_string()


def _csv_column(column: pa.Array, dtype: pa.DataType) -> pa.Array:
    if column.type == dtype:
        return column
    if pt.is_dictionary(column.type):
        return _csv_column(column.dictionary_decode(), dtype)
    text = pt.is_large_string(column.type) or pt.is_string_view(column.type)
    if text or pt.is_decimal(column.type) or pt.is_float16(column.type):
        return column.cast(dtype)
    quoted = json_values(column)
    binary = not pt.is_nested(column.type)
    values = quoted if not binary else pa.compute.utf8_trim(quoted, '"')
    return pa.compute.if_else(column.is_valid(), values, None)
