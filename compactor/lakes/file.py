"""Writes the Parquet file of a piece, and reads what its footer says."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from compactor.errors import DataError, InputError, ObjectNotFoundError
from compactor.files.problems import PROBLEMS, one_line
from compactor.files.sinks import ROW_GROUP_ROWS, ParquetSink
from compactor.lakes.lake import LakeFile
from compactor.lakes.pieces import Piece
from compactor.predicate.skipping.spec import SkipKind, can_index
from compactor.read.export import sink_options
from compactor.read.scan import scan
from compactor.read.scan_pieces import of_fragments
from compactor.stores.base import Store, UploadFile
from compactor.table.snapshot import Snapshot
from lsm_fragment.arrays.cast import as_type
from lsm_fragment.arrays.types import storage_type

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_TAIL_BYTES: Final = 64 << 10
"""Read this much of a file's end at first; most footers are shorter."""
_END_BYTES: Final = 8
"""The length of a footer and the four letters after it."""


def write_piece(
    source: Store,
    snapshot: Snapshot,
    piece: Piece,
    target: Store,
    key: str,
    schema: pa.Schema,
    *,
    threads: int,
    on_rows: Callable[[int], None],
) -> LakeFile:
    """Writes the rows of a piece, unless a run that ended early has.

    schema: the columns of the lake. Raises what `scan` raises, and `InputError` for a value that the lake has
    no place for.
    """
    try:
        return lake_file(target, key, target.head(key).size_bytes)
    except ObjectNotFoundError:
        pass
    schema = pa.schema([schema.field(name) for name in piece.columns])
    some = of_fragments(snapshot, piece.entries)
    with target.start_upload(key) as upload:
        output = io.BufferedWriter(UploadFile(upload), 1 << 20)
        try:
            sink = ParquetSink(
                output,
                schema,
                sink_options(snapshot.table, schema).sort,
                bloom_values=_bloom_values(snapshot, piece, schema),
            )
            with closing(sink):
                for batch in scan(source, some, piece.columns, threads=threads):
                    sink.write(_converted(batch, schema))
                    on_rows(batch.num_rows)
                sink.finish()
            output.flush()
        except PROBLEMS as error:
            raise InputError(f"{target.url}: {one_line(error)}") from error
        info = upload.complete()
    return lake_file(target, key, info.size_bytes)


def _converted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        try:
            columns.append(as_type(column, field.type))
        except PROBLEMS as error:
            raise pa.ArrowInvalid(
                f"column {field.name!r} has a value that {field.type} can't hold ({one_line(error)}): change "
                "it, or publish as parquet"
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _bloom_values(snapshot: Snapshot, piece: Piece, schema: pa.Schema) -> dict[str, int]:
    """Returns the columns for which the table has skip indexes, with the most values of a row group."""
    table = snapshot.table
    names = [table.shown_name(name) for name, _ in table.skips.columns]
    fitting = [
        name
        for name in names
        if name in schema.names
        and "." not in name  # Parquet's writer takes the name for a path.
        and can_index(SkipKind.BLOOM, storage_type(schema.field(name).type))
        and not pa.types.is_null(schema.field(name).type)
    ]
    return dict.fromkeys(fitting, max(1, min(piece.live_rows, ROW_GROUP_ROWS)))


def lake_file(store: Store, key: str, size_bytes: int) -> LakeFile:
    """Returns what a file is, by its footer."""
    return LakeFile(key.rpartition("/")[2], footer_of(store, key, size_bytes).num_rows, size_bytes)


def footer_of(store: Store, key: str, size_bytes: int) -> pq.FileMetaData:
    """Reads the footer of a Parquet file. Raises `DataError` for a file that has none."""
    import pyarrow.parquet as pq

    tail = store.read_range(key, max(0, size_bytes - _TAIL_BYTES), _TAIL_BYTES)
    length = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
    if len(tail) < length <= size_bytes:
        tail = store.read_range(key, size_bytes - length, length)
    try:
        return pq.read_metadata(pa.BufferReader(tail))
    except PROBLEMS as error:
        raise DataError(
            f"{store.url}/{key}: its footer is damaged ({one_line(error)}): remove the file and publish again"
        ) from error
