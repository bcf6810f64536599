"""Query results as files of the user's, each of which appears whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from compactor.errors import InputError, JobError, UsageError
from compactor.files.csvtext import csv_header, csv_lines
from compactor.files.jsontext import json_lines
from compactor.files.names import KNOWN_ENDINGS, Compression, FileFormat, FileKind, kind_of
from compactor.files.problems import PROBLEMS, one_line
from compactor.files.sinks import ArrowSink, Output, ParquetSink, TableSink, TextSink
from compactor.files.xmltext import FOOTER as XML_FOOTER
from compactor.files.xmltext import HEADER as XML_HEADER
from compactor.files.xmltext import xml_rows

Render = Callable[[pa.RecordBatch], bytes]
_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3


@contextlib.contextmanager
def open_table_sink(
    path: str,
    schema: pa.Schema,
    sorting_columns: Sequence[pq.SortingColumn] | None = None,
    render: Render | None = None,
) -> Iterator[TableSink]:
    """A sink for batches of `schema`, in the format that the ending of `path` names.

    The rows go to a file beside `path`, which takes its place once all are on disk; until then, and
    after any exception, whatever was at `path` is untouched, and nothing is left beside it.
    sorting_columns: noted in the metadata of Parquet files; other formats have no place for it.
    render: how NDJSON is written, if not as every row is.
    Raises `UsageError` for an unknown ending, `InputError` for a place that can't be written or a type
    or value that the format can't hold, `JobError` if writing fails half way.
    """
    kind = _kind_of_sink(path)
    _check_types(path, schema, kind)
    target = _checked_target(path)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        with _creating(path):
            file = beside.open("xb")
        with file:
            sink = _Guarded(path, schema, file, kind, sorting_columns, render)
            try:
                yield sink
                sink.finish()
            finally:
                sink.close()
        with _writing(path):
            beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def check_sink_path(path: str) -> None:
    """Raises `UsageError` for an unknown ending, `InputError` where there can be no file."""
    _kind_of_sink(path)
    _checked_target(path)


class _Guarded(TableSink):
    """A sink whose errors name the file, and the column if it is one column's fault."""

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        file: IO[bytes],
        kind: FileKind,
        sorting: Sequence[pq.SortingColumn] | None,
        render: Render | None,
    ) -> None:
        self._path = path
        self._schema = schema
        self._kind = kind
        self._file = file
        with _writing(path):
            self._output = _compressed(file, kind.compression)
            self._sink = _sink(self._output, schema, kind, sorting, render)

    def write(self, batch: pa.RecordBatch) -> None:
        with _writing(self._path):
            try:
                self._sink.write(batch)
            except PROBLEMS as error:
                raise _unfit(self._path, batch, self._kind, error) from error

    def finish(self) -> None:
        with _writing(self._path):
            self._sink.finish()
            if self._output is not self._file:
                self._output.close()
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        # Libraries that write their trailer when collected must do so while the file is open.
        with contextlib.suppress(OSError, *PROBLEMS):
            self._sink.close()
            self._output.close()


def _sink(
    output: Output,
    schema: pa.Schema,
    kind: FileKind,
    sorting: Sequence[pq.SortingColumn] | None,
    render: Render | None = None,
) -> TableSink:
    if kind.format is FileFormat.PARQUET:
        return ParquetSink(output, schema, sorting)
    if kind.format is FileFormat.ARROW:
        return ArrowSink(output, schema)
    if kind.format is FileFormat.CSV:
        return TextSink(output, csv_header(schema.names), csv_lines)
    if kind.format is FileFormat.XML:
        return TextSink(output, XML_HEADER, xml_rows, XML_FOOTER)
    return TextSink(output, b"", render or partial(json_lines, map_objects=False))


def _compressed(file: IO[bytes], compression: Compression) -> Any:
    if compression is Compression.GZIP:
        # No name and no time, so that equal rows make equal files.
        return gzip.GzipFile(
            filename="", mode="wb", compresslevel=_GZIP_LEVEL, fileobj=file, mtime=0
        )
    if compression is Compression.ZSTD:
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).stream_writer(file, closefd=False)
    return file


def _kind_of_sink(path: str) -> FileKind:
    kind = kind_of(path)
    if kind is None:
        raise UsageError(f"{path}: unknown kind of file; known endings are {KNOWN_ENDINGS}")
    return kind


def _checked_target(path: str) -> Path:
    """Follows links, so that the link stays and the file it names is replaced."""
    try:
        target = Path(path).resolve()
        if target.exists() and not target.is_file():
            raise InputError(f"{path}: is not a file: name a file to create or replace")
        if not target.parent.is_dir():
            raise InputError(f"{path}: its folder does not exist: create it first")
    except OSError as error:
        raise InputError(f"{path}: can't be written: {error.strerror or one_line(error)}") from None
    return target


def _check_types(path: str, schema: pa.Schema, kind: FileKind) -> None:
    """Raises `InputError` for the first column whose type the format can't hold."""
    for field in schema:
        alone = pa.schema([field])
        try:
            _sink(io.BytesIO(), alone, FileKind(kind.format, Compression.NONE), None).finish()
            if kind.format in (FileFormat.CSV, FileFormat.NDJSON):
                json_lines(_one_null(alone))
            elif kind.format is FileFormat.XML:
                xml_rows(_one_null(alone))
        except PROBLEMS as error:
            raise InputError(
                f"{path}: column {field.name!r} is {field.type}, which {kind.format.value} can't hold "
                f"({one_line(error)}): leave the column out, or choose another format"
            ) from error


def _one_null(schema: pa.Schema) -> pa.RecordBatch:
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    return pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in schema], schema=nullable)


def _unfit(path: str, batch: pa.RecordBatch, kind: FileKind, error: Exception) -> InputError:
    place = ""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            alone = pa.RecordBatch.from_arrays([column], names=[name])
            _ = xml_rows(alone) if kind.format is FileFormat.XML else json_lines(alone)
        except PROBLEMS:
            place = f"column {name!r}: "
            break
    return InputError(f"{path}: {place}{kind.format.value} can't hold a value: {one_line(error)}")


@contextlib.contextmanager
def _creating(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: can't be written: {error.strerror or one_line(error)}: choose another place"
        ) from None


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JobError(
            f"{path}: writing failed: {error.strerror or one_line(error)}; nothing was left behind"
        ) from error
