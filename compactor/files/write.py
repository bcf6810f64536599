"""Writes query results to users' files, which appear whole or not at all."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import IO, Any, Final

import pyarrow as pa
import zstandard
from msgspec import Struct

from compactor.errors import InputError, UsageError
from compactor.files.csvtext import csv_header, csv_lines
from compactor.files.jsontext import json_lines
from compactor.files.layouts import FixedLayout, Layout, kind_with
from compactor.files.names import (
    KNOWN_ENDINGS,
    SEGMENT_FORMATS,
    Compression,
    FileFormat,
    FileKind,
)
from compactor.files.plain_text import UnwritableError, plain_text
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
from compactor.files.staging import Staging
from compactor.files.text_options import PLAIN, TextOptions
from compactor.files.unfinished import begin, check_place
from compactor.files.whole import creating, writing
from compactor.files.xmltext import FOOTER as XML_FOOTER
from compactor.files.xmltext import HEADER as XML_HEADER
from compactor.files.xmltext import xml_rows
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.errors import FormatError
from lsm_fragment.keys.sort_schema import SortSchema, check_sort_schema

Render = Callable[[pa.RecordBatch], bytes]
_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3


class SinkOptions(Struct, frozen=True, kw_only=True):
    """Options of sinks; each applies to some formats and is ignored by the others."""

    threads: int = 1
    """Number of threads that encode a fragment's columns, or render CSV and NDJSON; they change no byte."""
    row_group_bytes: int = ROW_GROUP_BYTES
    """Maximum Arrow bytes of a Parquet row group, which are held until the row group is complete."""
    sort: SortSchema | None = None
    """Sort schema of the rows: required for fragments, recorded in Parquet and Arrow files."""
    map_objects: bool = False
    """Whether maps with text keys become JSON objects, which readers do not recognise as maps."""
    expanded: str | None = None
    """A column of maps from names to JSON texts, which become fields of the row's JSON object."""
    text: TextOptions = PLAIN
    """Delimiter, quote and header of CSV."""
    ending: str | None = None
    """Tells format and compression in place of the ending of the path."""
    render: Render | None = None
    """Renders rows as NDJSON; None for the usual form."""
    layout: Layout | None = None
    """Places of the columns in a file of fixed width."""


_DEFAULTS: Final = SinkOptions()


@contextlib.contextmanager
def open_table_sink(
    path: str, schema: pa.Schema, options: SinkOptions = _DEFAULTS
) -> Iterator[TableSink]:
    """Opens a sink for batches of `schema`, in the format of the ending of `path`.

    The rows go to an unfinished file, which replaces `path` once all are on disk. Until then, and after any
    exception, an existing file is untouched, and no other file remains. Raises `UsageError` for an unknown
    ending or a path that cannot be written, `InputError` for a type or value that the format cannot hold,
    `JobError` if writing fails half way.
    """
    with contextlib.closing(StagedSink(path, schema, options)) as sink:
        yield sink
        sink.finish()
        sink.publish()


def write_batches(
    path: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions = _DEFAULTS,
) -> None:
    """Writes batches of `schema` to a file, and raises, as `open_table_sink` does."""
    with open_table_sink(path, schema, options) as sink:
        for batch in batches:
            sink.write(batch)


def check_sink_path(path: str, layout: Layout | None = None, ending: str | None = None) -> None:
    """Raises `UsageError` for an unknown ending or a path that cannot be a file.

    ending: tells the format in place of that of `path`.
    """
    _kind_of_sink(path, layout, ending)
    check_place(path)


def check_columns(
    path: str, schema: pa.Schema, layout: Layout | None = None, ending: str | None = None
) -> None:
    """Raises `InputError` for columns that the file's format has no place for, whatever their values."""
    try:
        _check_columns(schema, _kind_of_sink(path, layout, ending), layout)
    except UnwritableError as error:
        raise InputError(f"{path}: {error}") from None


class StagedSink(TableSink):
    """A sink to an unfinished file; `publish` moves the finished file to `path`, `close` removes it.

    Errors name the file, and the column if one is at fault.
    """

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        options: SinkOptions = _DEFAULTS,
        staging: Staging | None = None,
    ) -> None:
        """Raises what `open_table_sink` raises.

        staging: shared with other files of the output; the caller closes it.
        """
        self._path = path
        self._kind = _kind_of_sink(path, options.layout, options.ending)
        check_columns(path, schema, options.layout, options.ending)
        _check_types(path, schema, self._kind, options)
        with contextlib.ExitStack() as opened:
            with creating(path):
                self._staged = opened.enter_context(contextlib.closing(begin(path, staging)))
            with writing(path):
                self._output = _compressed(self._staged.file, self._kind.compression)
                self._sink = _sink(self._output, schema, self._kind, options)
            opened.callback(self._close_sink)
            self._opened = opened.pop_all()

    def write(self, batch: pa.RecordBatch) -> None:
        with writing(self._path):
            try:
                self._sink.write(batch)
            except PROBLEMS as error:
                raise _unfit(self._path, batch, self._kind, error) from error

    def finish(self) -> None:
        with writing(self._path):
            try:
                self._sink.finish()
            except PROBLEMS as error:
                raise _unfit(self._path, None, self._kind, error) from error
            if self._output is not self._staged.file:
                self._output.close()
            self._close_sink()
            self._staged.seal()

    def publish(self) -> None:
        """Moves the file to its path. Call it once, after `finish`."""
        with writing(self._path):
            self._staged.publish()

    def close(self) -> None:
        self._opened.close()

    def _close_sink(self) -> None:
        # Some libraries write a trailer when their objects are collected; the file must still be open then.
        with contextlib.suppress(OSError, *PROBLEMS):
            self._sink.close()
            if self._output is not self._staged.file:
                self._output.close()


def _sink(output: FileOutput, schema: pa.Schema, kind: FileKind, options: SinkOptions) -> TableSink:
    if kind.format is FileFormat.PARQUET:
        return ParquetSink(output, schema, options.sort, options.row_group_bytes)
    if kind.format is FileFormat.FRAGMENT:
        assert options.sort is not None
        return FragmentSink(output, schema, options.sort, options.threads)
    if kind.format is FileFormat.ARROW:
        return ArrowSink(output, schema, options.sort)
    if kind.format is FileFormat.CSV:
        lines = partial(csv_lines, options=options.text)
        header = csv_header(schema.names, options.text)
        return TextSink(output, header, lines, threads=options.threads)
    if kind.format is FileFormat.XML:
        return TextSink(output, XML_HEADER, xml_rows, XML_FOOTER)
    if isinstance(options.layout, FixedLayout):
        from compactor.files.fixedtext import FixedLines

        return TextSink(output, b"", FixedLines(options.layout))
    if kind.format in SEGMENT_FORMATS:
        from compactor.files.segment_text import SegmentText

        return TextSink(output, b"", SegmentText(kind.format))
    render = partial(json_lines, map_objects=options.map_objects, expanded=options.expanded)
    return TextSink(output, b"", options.render or render, threads=options.threads)


def _compressed(file: IO[bytes], compression: Compression) -> Any:
    if compression is Compression.GZIP:
        # Omits name and time, so that equal rows give equal files.
        return gzip.GzipFile(
            filename="", mode="wb", compresslevel=_GZIP_LEVEL, fileobj=file, mtime=0
        )
    if compression is Compression.ZSTD:
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).stream_writer(file, closefd=False)
    if compression is Compression.BZIP2:
        return bz2.BZ2File(file, "wb")
    if compression is Compression.XZ:
        return lzma.LZMAFile(file, "wb")
    return file


def _kind_of_sink(path: str, layout: Layout | None, ending: str | None) -> FileKind:
    kind = kind_with(path, layout, ending)
    if kind is None:
        raise UsageError(f"{path}: unknown kind of file; known endings are {KNOWN_ENDINGS}")
    return kind


def _check_columns(schema: pa.Schema, kind: FileKind, layout: Layout | None) -> None:
    if isinstance(layout, FixedLayout):
        from compactor.files.fixedtext import check_fixed

        check_fixed(schema, layout)
    elif kind.format in SEGMENT_FORMATS:
        from compactor.files.segment_text import check_segment_columns

        check_segment_columns(schema, kind.format)


def _check_types(path: str, schema: pa.Schema, kind: FileKind, options: SinkOptions) -> None:
    """Raises `InputError` for the first column whose type the format cannot hold."""
    if kind.format is FileFormat.FRAGMENT:
        if options.sort is None:
            raise UsageError(f"{path}: a fragment is sorted: name the sort columns")
        # Imported here, since few files are fragments.
        from lsm_fragment.container.header import FragmentHeader

        try:
            check_sort_schema(schema, options.sort)
            FragmentHeader(schema=schema, sort=options.sort, max_rows=1).to_bytes()
        except FormatError as error:
            raise InputError(f"{path}: {one_line(error)}") from None
        return
    if kind.format in SEGMENT_FORMATS:
        return
    for field in schema:
        alone = pa.schema([field])
        try:
            if kind.format is FileFormat.FIXED:
                plain_text(pa.nulls(1, storage_type(field.type)))
                continue
            plain = FileKind(kind.format, Compression.NONE)
            _sink(io.BytesIO(), alone, plain, _DEFAULTS).finish()
            if kind.format in (FileFormat.CSV, FileFormat.NDJSON):
                json_lines(_one_null(alone))
            elif kind.format is FileFormat.XML:
                xml_rows(_one_null(alone))
        except (*PROBLEMS, OSError) as error:  # nothing is written to disk here
            raise InputError(
                f"{path}: column {field.name!r} is {field.type}, which {kind.format.value} can't hold "
                f"({one_line(error)}): leave the column out, or choose another format"
            ) from error


def _one_null(schema: pa.Schema) -> pa.RecordBatch:
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    return pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in schema], schema=nullable)


def _unfit(path: str, batch: pa.RecordBatch | None, kind: FileKind, error: Exception) -> InputError:
    """Returns the error for a value. batch: contains it, if the sink does not name the column."""
    names_place = kind.format in (FileFormat.PARQUET, FileFormat.FIXED, *SEGMENT_FORMATS)
    place = "" if batch is None or names_place else _place(batch, kind)
    return InputError(f"{path}: {place}{kind.format.value} can't hold a value: {one_line(error)}")


def _place(batch: pa.RecordBatch, kind: FileKind) -> str:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            alone = pa.RecordBatch.from_arrays([column], names=[name])
            if kind.format is FileFormat.XML:
                xml_rows(alone)
            else:
                json_lines(alone, map_objects=False)
        except PROBLEMS:
            return f"column {name!r}: "
    return ""
