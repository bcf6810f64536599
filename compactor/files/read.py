"""Opens users' files as streams of Arrow batches in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import IO, Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import InputError
from compactor.files.fetched import FetchedBatches
from compactor.files.layouts import FixedLayout, Layout, LineLayout, XmlLayout, kind_with
from compactor.files.names import (
    BINARY_FORMATS,
    KNOWN_ENDINGS,
    SEGMENT_FORMATS,
    FileFormat,
    FileKind,
)
from compactor.files.places import Place, place_of
from compactor.files.source import FileBatches, Wanted
from compactor.files.text_options import PLAIN, TextOptions

DEFAULT_BATCH_BYTES: Final = 8 << 20
_HELD_BATCHES: Final = 16
_IN_ONE_PASS: Final = (FileFormat.CSV, FileFormat.NDJSON, FileFormat.LINES, FileFormat.FIXED)
_MAY_BE_ARRAY: Final = ".json"


def open_table_file(
    path: str,
    known_schema: pa.Schema | None = None,
    *,
    options: TextOptions = PLAIN,
    columns: Wanted = None,
    in_one_pass: bool = False,
    may_be_empty: bool = False,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    on_scan: Callable[[int], None] | None = None,
    leaves_out_bad_rows: bool = False,
    max_bad_rows: int | None = None,
    kept_column: str | None = None,
    max_codes: int = 0,
    layout: Layout | None = None,
    ending: str | None = None,
    takes_streams: bool = False,
    held_bytes: int | None = None,
    guesses: bool = False,
    infers_types: bool = True,
    keeps_zones: bool = False,
    mixes_kinds: bool | None = None,
    text_holds_all: bool = False,
    threads: int = 1,
) -> FileBatches:
    """Opens a file in the format of its layout or ending; reads a text file once for its types.

    known_schema: the table's; its types, other than null, apply to columns of text files. A text file with
        values that do not fit is refused here, before the first batch.
    options: of a text file.
    columns: to read; a file without any of them has one column. The values of others are not checked.
    in_one_pass: reads a text file only while iterating if `known_schema` has all its columns, or all in
        `columns`. Then errors come, and `bad_rows` grow, as far as the batches do.
    may_be_empty: accepts a text file without rows: its columns are those it names, perhaps none; those that
        `known_schema` lacks are null.
    batch_bytes: approximate Arrow bytes of a batch; memory is a small multiple of it, and of the largest
        line of a text file (at most 16 MiB for JSON, 4 MiB for CSV) or batch of an IPC file.
    on_scan: called with the bytes read so far while a text file is read for its types.
    leaves_out_bad_rows: omits invalid rows of text files, and lists them in `bad_rows`, which is complete
        before the first batch.
    max_bad_rows: refuses a file from which more would be omitted. If given, they come with their texts.
    kept_column: column whose values in bad rows are available from `kept_of_bad_rows`.
    max_codes: returns strings and binaries of Parquet files as codes, where their dictionaries have no more
        values than this.
    layout: what the ending does not tell of the file's rows.
    ending: tells format and compression in place of the ending of `path`.
    takes_streams: reads a text file that can be read only once too; then `known_schema` has all its columns,
        and `FileBatches.is_stream` says what is different.
    held_bytes: how much of its rows a text file may keep from the pass that tells its types; None for 16
        times `batch_bytes`.
    guesses: takes the types of the rows that are kept for those of a text file; see `FileBatches.is_guess`.
    infers_types: if false, the cells of CSV, XML and other files of texts stay texts where `known_schema`
        has no type for them.
    keeps_zones: refuses texts with a zone in columns that `known_schema` has as timestamps without one. If
        false, they become the wall times in UTC.
    mixes_kinds: reads a field of JSON that has values of several kinds as text, strings as they are and other
        values as the file has them. If false, the error says that it can be asked for.
    text_holds_all: reads values of other kinds so in columns that `known_schema` has as text, too.
    threads: with more than one, threads read some batches ahead, except of streams. What comes does not
        depend on it.
    Raises `InputError`, here and while iterating.
    """
    place = place_of(path)
    if place.is_stream and not takes_streams:
        raise InputError(f"{path}: is not a regular file, and can't be read twice: save it as one")
    kind = kind_with(path, layout, ending)
    if kind is None:
        raise InputError(f"{path}: unknown kind of file; known endings are {KNOWN_ENDINGS}")
    if place.is_stream:
        _check_stream(path, kind.format, known_schema)
    if kind.format in BINARY_FORMATS:
        opened = partial(
            _columnar, kind.format, batch_bytes, columns, max_codes=max_codes, threads=threads
        )
        if place.is_local:
            return opened(path)
        # Codes are decided by dictionaries of all columns.
        is_partial = kind.format is FileFormat.PARQUET and not max_codes
        return FetchedBatches(
            path, place, opened, partial(_copy_columns, place, columns) if is_partial else None
        )
    if known_schema is not None:
        # A column of the null type never had a value, so the file decides its type.
        known_schema = pa.schema([field for field in known_schema if not pt.is_null(field.type)])
    of_json = {"mixes_kinds": mixes_kinds, "text_holds_all": text_holds_all}
    return _text_reader(kind, layout, path if ending is None else f".{ending}")(
        path,
        place,
        kind.compression,
        batch_bytes,
        known_schema,
        on_scan or _ignore,
        options=options,
        columns=columns,
        in_one_pass=in_one_pass,
        may_be_empty=may_be_empty,
        leaves_out_bad_rows=leaves_out_bad_rows,
        max_bad_rows=max_bad_rows,
        kept_column=kept_column,
        held_bytes=_HELD_BATCHES * batch_bytes if held_bytes is None else held_bytes,
        guesses=guesses,
        infers_types=infers_types,
        keeps_zones=keeps_zones,
        threads=threads,
        **(of_json if kind.format is FileFormat.NDJSON else {}),
    )


def _check_stream(path: str, file_format: FileFormat, known: pa.Schema | None) -> None:
    """Raises `InputError` unless one pass is enough to read the file."""
    if file_format not in _IN_ONE_PASS:
        raise InputError(
            f"{path}: {file_format.value} can't be read from a stream: save it as a file"
        )
    if known is None:
        raise InputError(
            f"{path}: can be read only once, so its types can't be inferred: declare all its columns in "
            "`fields`, or save it as a file"
        )


def _columnar(
    file_format: FileFormat,
    batch_bytes: int,
    columns: Wanted,
    path: str,
    *,
    max_codes: int,
    threads: int,
) -> FileBatches:
    from compactor.files.columnar import ArrowBatches, FragmentBatches, ParquetBatches

    if file_format is FileFormat.PARQUET:
        return ParquetBatches(path, batch_bytes, columns, max_codes=max_codes, threads=threads)
    reader = ArrowBatches if file_format is FileFormat.ARROW else FragmentBatches
    return reader(path, batch_bytes, columns, threads=threads)


def _copy_columns(place: Place, columns: Wanted, copy: IO[bytes], local: str) -> bool:
    from compactor.files.parquet_ranges import copy_columns

    return copy_columns(place, columns, copy, local)


def _text_reader(kind: FileKind, layout: Layout | None, name: str) -> Callable[..., FileBatches]:
    """Returns the reader of a kind of file. Only its modules are imported. name: has the ending."""
    if kind.format is FileFormat.NDJSON:
        from compactor.files.ndjson import JsonBatches, NdjsonBatches

        plain = name.lower().removesuffix(kind.compression.value)
        return JsonBatches if plain.endswith(_MAY_BE_ARRAY) else NdjsonBatches
    if kind.format in SEGMENT_FORMATS:
        from compactor.files.segment_rows import SegmentBatches

        return SegmentBatches
    if kind.format is FileFormat.XML:
        from compactor.files.xml import XmlBatches

        return partial(XmlBatches, layout if isinstance(layout, XmlLayout) else XmlLayout())
    if isinstance(layout, LineLayout):
        from compactor.files.lines import LineBatches

        return partial(LineBatches, layout)
    if isinstance(layout, FixedLayout):
        from compactor.files.fixed import FixedBatches

        return partial(FixedBatches, layout)
    from compactor.files.csv import CsvBatches

    return CsvBatches


def _ignore(_bytes_read: int) -> None:
    return
