"""Fragments in memory: written, read back, and handed to merges."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pyarrow as pa

from lsm_fragment.arrays.storage import to_logical
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.stream_reader import FragmentStream
from lsm_fragment.container.writer import FragmentWriter, WriterOptions
from lsm_fragment.encodings.null import nulls
from lsm_fragment.errors import CorruptFragmentError
from lsm_fragment.keys.sort_schema import SortSchema, parse_sort_schema
from lsm_fragment.threads import ALONE, ThreadPool


class NonSeekableSink:
    """Accepts bytes in order and can do nothing else."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(bytes(data))

    def getvalue(self) -> bytes:
        return b"".join(self.pieces)


class NonSeekableSource:
    """Gives bytes in order, a few at a time, and can do nothing else."""

    def __init__(self, data: bytes, piece_bytes: int = 1000) -> None:
        self._data = io.BytesIO(data)
        self._piece_bytes = piece_bytes

    def read(self, max_bytes: int) -> bytes:
        return self._data.read(min(max_bytes, self._piece_bytes))

    def close(self) -> None:
        self._data.close()


class BytesSource:
    """Random access to bytes in memory; counts requests."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.requests: list[tuple[int, int]] = []

    def read_range(self, start: int, length: int) -> bytes:
        self.requests.append((start, length))
        return self._data[start : start + length]


def sort_schema(sort: str | SortSchema) -> SortSchema:
    return parse_sort_schema(sort) if isinstance(sort, str) else sort


def write_fragment(
    table: pa.Table,
    sort: str | SortSchema,
    options: WriterOptions | None = None,
    *,
    batch_rows: int | None = None,
    pool: ThreadPool = ALONE,
) -> bytes:
    """Writes a fragment of a table that is sorted already."""
    sink = NonSeekableSink()
    with FragmentWriter(sink, table.schema, sort_schema(sort), options, pool=pool) as writer:
        for batch in table.to_batches(max_chunksize=batch_rows):
            writer.write(batch)
        writer.finish()
    return sink.getvalue()


def read_random(data: bytes) -> pa.Table:
    """Reads all rows by the footer."""
    reader = FragmentReader(BytesSource(data), len(data), "mem")
    return pa.Table.from_batches(reader.scan(), reader.schema)


def read_stream(data: bytes, *, piece_bytes: int = 1000) -> pa.Table:
    """Reads all rows from front to back, without looking at the footer before the end."""
    stream = FragmentStream(NonSeekableSource(data, piece_bytes), "mem")
    schema = stream.header.schema
    columns: dict[str, list[pa.Array]] = {name: [] for name in schema.names}
    sort_names = [column.column for column in stream.header.sort]
    while (blocks := stream.next_key_group()) is not None:
        for name, block in zip(sort_names, blocks, strict=True):
            columns[name].append(block.decode(storage_type(schema.field(name).type)))
    while (column := stream.next_column()) is not None:
        dtype = storage_type(schema.field(column).type)
        columns[column] = [stream.next_chunk().decode(dtype) for _ in stream.row_group_rows]
    stream.finish()
    rows = sum(stream.row_group_rows)
    arrays = []
    for field in schema:
        chunks = columns[field.name] or [_absent(field, rows)]
        arrays.append(pa.chunked_array([to_logical(chunk, field.type) for chunk in chunks]))
    return pa.Table.from_arrays(arrays, schema=schema)


def _absent(field: pa.Field, rows: int) -> pa.Array:
    try:
        return nulls(rows, storage_type(field.type))
    except ValueError as error:
        raise CorruptFragmentError(str(error), name="mem", column=field.name) from error


def rows_of(table: pa.Table | Iterable[pa.RecordBatch]) -> list[dict[str, object]]:
    """Returns rows as Python values, to compare what chunking and dictionaries may hide."""
    if not isinstance(table, pa.Table):
        table = pa.Table.from_batches(list(table))
    rows: list[dict[str, object]] = table.to_pylist()
    return rows
