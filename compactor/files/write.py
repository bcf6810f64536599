"""Writes query results to users' files, each of which appears whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import zstandard

from compactor.common.system_errors import cause_and_advice
from compactor.errors import InputError, JobError, UsageError
from compactor.files.csvtext import csv_header, csv_lines
from compactor.files.jsontext import json_lines
from compactor.files.names import KNOWN_ENDINGS, Compression, FileFormat, FileKind, kind_of
from compactor.files.problems import PROBLEMS, one_line
from compactor.files.sinks import (
    ROW_GROUP_BYTES,
    ArrowSink,
    FileOutput,
    FragmentSink,
    ParquetSink,
    TableSink,
    TextSink,
)
from compactor.files.xmltext import FOOTER as XML_FOOTER
from compactor.files.xmltext import HEADER as XML_HEADER
from compactor.files.xmltext import xml_rows
from format.errors import FormatError
from format.schema import FragmentHeader, SortSchema, check_sort_schema

Render = Callable[[pa.RecordBatch], bytes]
_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
_DEAD_AFTER_SECONDS = 86_400
_PART = re.compile(r"\.(.+)\.[0-9a-f]{12}\.part", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of some formats, which the others ignore."""

    threads: int = 1
    """How many encode a fragment's columns; its bytes are the same for any number."""
    row_group_bytes: int = ROW_GROUP_BYTES
    """Limit of a Parquet row group in bytes of Arrow data, which is held until the row group is complete."""
    sort: SortSchema | None = None
    """Sort schema of the rows: fragments need it, Parquet and Arrow files state it."""
    map_objects: bool = False
    """Whether maps with text keys become JSON objects, which readers do not take for maps."""
    expanded: str | None = None
    """A column of maps from names to JSON texts, which become fields of the JSON objects."""
    render: Render | None = None
    """Renders rows as NDJSON; None for the usual form."""


@contextlib.contextmanager
def open_table_sink(
    path: str, schema: pa.Schema, options: SinkOptions = SinkOptions()
) -> Iterator[TableSink]:
    """Opens a sink for batches of `schema`, in the format that the ending of `path` names.

    The rows go to a file beside `path`, which replaces it once all are on disk. Until then, and after any
    exception, an existing file is untouched, and nothing is left beside it.
    Raises `UsageError` for an unknown ending or a path that can't be written, `InputError` for a type or
    value that the format can't hold, `JobError` if writing fails half way.
    """
    with contextlib.closing(StagedSink(path, schema, options)) as sink:
        yield sink
        sink.finish()
        sink.publish()


def check_sink_path(path: str) -> None:
    """Raises `UsageError` for an unknown ending or a path that can't be a file."""
    _kind_of_sink(path)
    check_target(path)


def check_target(path: str) -> None:
    """Raises `UsageError` for a path that can't be a file."""
    _checked_target(path)


def write_whole(path: str, data: bytes) -> None:
    """Writes a file at `path`, replacing any earlier one; after an exception nothing has changed.

    Raises `UsageError` for a path that can't be written, `JobError` if writing fails half way.
    """
    target = _checked_target(path)
    beside = _beside(target)
    with _creating(path):
        file = beside.open("xb")
    try:
        with _writing(path):
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


class StagedSink(TableSink):
    """A sink that writes beside `path`; `publish` moves the finished file to `path`, `close` removes it.

    Errors name the file, and the column if one is at fault.
    """

    def __init__(self, path: str, schema: pa.Schema, options: SinkOptions = SinkOptions()) -> None:
        """Raises what `open_table_sink` raises."""
        self._path = path
        self._kind = _kind_of_sink(path)
        _check_types(path, schema, self._kind, options)
        self._target = _checked_target(path)
        self._beside = _beside(self._target)
        with _creating(path):
            self._file = self._beside.open("xb")
        try:
            with _writing(path):
                self._output = _compressed(self._file, self._kind.compression)
                self._sink = _sink(self._output, schema, self._kind, options)
        except BaseException:
            self._file.close()
            self._beside.unlink(missing_ok=True)
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        with _writing(self._path):
            try:
                self._sink.write(batch)
            except PROBLEMS as error:
                raise _unfit(self._path, batch, self._kind, error) from error

    def finish(self) -> None:
        with _writing(self._path):
            try:
                self._sink.finish()
            except PROBLEMS as error:
                raise _unfit(self._path, None, self._kind, error) from error
            if self._output is not self._file:
                self._output.close()
            self._file.flush()
            os.fsync(self._file.fileno())
        self._let_go()

    def publish(self) -> None:
        """Moves the file to its path. Called once, after `finish`."""
        with _writing(self._path):
            self._beside.replace(self._target)

    def close(self) -> None:
        self._let_go()
        self._beside.unlink(missing_ok=True)

    def _let_go(self) -> None:
        # Some libraries write a trailer when they are collected; the file must still be open then.
        with contextlib.suppress(OSError, *PROBLEMS):
            self._sink.close()
            self._output.close()
        with contextlib.suppress(OSError):
            self._file.close()


def _sink(output: FileOutput, schema: pa.Schema, kind: FileKind, options: SinkOptions) -> TableSink:
    if kind.format is FileFormat.PARQUET:
        return ParquetSink(output, schema, options.sort, options.row_group_bytes)
    if kind.format is FileFormat.FRAGMENT:
        assert options.sort is not None
        return FragmentSink(output, schema, options.sort, options.threads)
    if kind.format is FileFormat.ARROW:
        return ArrowSink(output, schema, options.sort)
    if kind.format is FileFormat.CSV:
        return TextSink(output, csv_header(schema.names), csv_lines)
    if kind.format is FileFormat.XML:
        return TextSink(output, XML_HEADER, xml_rows, XML_FOOTER)
    render = partial(json_lines, map_objects=options.map_objects, expanded=options.expanded)
    return TextSink(output, b"", options.render or render)


def _compressed(file: IO[bytes], compression: Compression) -> Any:
    if compression is Compression.GZIP:
        # Without name and time, equal rows make equal files.
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


def _beside(target: Path) -> Path:
    """Returns a new name for an unfinished file, after removing those that dead writers left."""
    today = int(time.time() / _DEAD_AFTER_SECONDS)
    for path in _left_by_the_dead(target.parent, today).get(target.name, ()):
        with contextlib.suppress(OSError):
            if _is_dead(path.lstat()):
                path.unlink()
    return target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.part")


@lru_cache(maxsize=16)
def _left_by_the_dead(folder: Path, _today: int) -> dict[str, list[Path]]:
    """Returns unfinished files that nobody wrote to for a day, by their target name.

    Each process lists a folder once a day: it may write thousands of files into it. A writer that was only
    paused that long fails when it publishes its file.
    """
    dead: dict[str, list[Path]] = {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _PART.fullmatch(entry.name)
            if match is not None and _is_dead(entry.stat(follow_symlinks=False)):
                dead.setdefault(match[1], []).append(Path(entry.path))
    return dead


def _is_dead(status: os.stat_result) -> bool:
    is_old = status.st_mtime < time.time() - _DEAD_AFTER_SECONDS
    return is_old and stat.S_ISREG(status.st_mode)


def _checked_target(path: str) -> Path:
    """Returns the path with links followed, so that a link stays and its target is replaced."""
    try:
        target = Path(path).resolve()
        if target.exists() and not target.is_file():
            raise UsageError(f"{path}: is not a file: name a file to create or replace")
        if not target.parent.is_dir():
            raise UsageError(f"{path}: its folder does not exist: create it first")
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror or one_line(error)}") from None
    return target


def _check_types(path: str, schema: pa.Schema, kind: FileKind, options: SinkOptions) -> None:
    """Raises `InputError` for the first column whose type the format can't hold."""
    if kind.format is FileFormat.FRAGMENT:
        if options.sort is None:
            raise UsageError(f"{path}: a fragment is sorted: name the sort columns")
        try:
            check_sort_schema(schema, options.sort)
            FragmentHeader(schema, options.sort, 1).to_bytes()
        except FormatError as error:
            raise InputError(f"{path}: {one_line(error)}") from None
        return
    for field in schema:
        alone = pa.schema([field])
        try:
            plain = FileKind(kind.format, Compression.NONE)
            _sink(io.BytesIO(), alone, plain, SinkOptions()).finish()
            if kind.format in (FileFormat.CSV, FileFormat.NDJSON):
                json_lines(_one_null(alone))
            elif kind.format is FileFormat.XML:
                xml_rows(_one_null(alone))
        except (*PROBLEMS, OSError) as error:  # Nothing is written to disk here.
            raise InputError(
                f"{path}: column {field.name!r} is {field.type}, which {kind.format.value} can't hold "
                f"({one_line(error)}): leave the column out, or choose another format"
            ) from error


def _one_null(schema: pa.Schema) -> pa.RecordBatch:
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    return pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in schema], schema=nullable)


def _unfit(path: str, batch: pa.RecordBatch | None, kind: FileKind, error: Exception) -> InputError:
    """Returns the error of a value. batch: has the value, if the sink does not name the column."""
    place = "" if batch is None or kind.format is FileFormat.PARQUET else _place(batch, kind)
    return InputError(f"{path}: {place}{kind.format.value} can't hold a value: {one_line(error)}")


def _place(batch: pa.RecordBatch, kind: FileKind) -> str:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            alone = pa.RecordBatch.from_arrays([column], names=[name])
            _ = xml_rows(alone) if kind.format is FileFormat.XML else json_lines(alone)
        except PROBLEMS:
            return f"column {name!r}: "
    return ""


@contextlib.contextmanager
def _creating(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{path}: can't be written: {cause_and_advice(error, 'choose another place')}"
        ) from None


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JobError(
            f"{path}: writing failed, and nothing was left behind: {cause_and_advice(error)}"
        ) from error
