"""Writes sorted batches as a fragment, a stream of bytes, in bounded memory.

Chunks of the columns outside the sort schema go through a spool (memory, then a temporary file), because the
file has one column after the other, while rows come with all columns at once. Row groups are cut by the
heaviest column, at the same rows however the rows were batched.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from format import __version__
from format.arrays import concat_storage
from format.blocks import ByteSink, Chunk, make_chunk
from format.canonical import canonical
from format.emitter import FragmentEmitter
from format.errors import LimitError, OrderError, SchemaError
from format.footer import ChunkStats, FragmentSummary
from format.hashing import hash_batch
from format.key_comparator import KeyComparator
from format.keys import Bound, key_at
from format.layout import BlockKind
from format.ordering import KeyColumns
from format.schema import FragmentHeader, SortSchema, column_order
from format.sizes import rows_within, total_bytes
from format.storage import to_storage
from format.type_json import JsonObject
from format.validity import ValueCheck

SPOOL_MEMORY_BYTES: Final = 16 << 20
"""The most bytes of encoded columns in memory while a fragment is written; more go to a temporary file."""


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Settings for how a fragment is cut and compressed. Raises `ValueError` for values out of bounds."""

    max_rows: int = 65_536
    """The most rows of a row group. Fewer bound memory more tightly; more compress better."""
    target_row_group_bytes: int = 4 << 20
    """Target for raw bytes of a row group's heaviest column.

    A merge holds about two such chunks per input.
    """
    compression_level: int = 1
    """zstd level; 0 stores uncompressed.

    Use 1 for short-lived level-0 fragments, 3 and up for deeper levels.
    """

    def __post_init__(self) -> None:
        if not 1 <= self.max_rows < 2**31:
            raise ValueError(f"max_rows must be in 1..2147483647, not {self.max_rows}")
        if self.target_row_group_bytes < 1:
            raise ValueError("target_row_group_bytes must be at least 1")
        if not 0 <= self.compression_level <= 22:
            raise ValueError(f"compression_level must be in 0..22, not {self.compression_level}")

    def writer_json(self) -> JsonObject:
        """Returns the header's `writer` object."""
        options = {
            "target_row_group_bytes": self.target_row_group_bytes,
            "compression_level": self.compression_level,
        }
        return {"name": "lsm-compactor", "version": __version__, "options": options}


@dataclass(frozen=True, slots=True)
class WrittenFragment:
    """The figures of a finished fragment."""

    bytes_written: int
    summary: FragmentSummary


class FragmentWriter:
    """A writer of one fragment, used as a context manager. Leaving it by an exception drops the spool.

    The caller owns the sink, and must not make its bytes visible before `finish` has returned.
    """

    def __init__(
        self,
        sink: ByteSink,
        schema: pa.Schema,
        sort: SortSchema,
        options: WriterOptions | None = None,
        *,
        spool_directory: str | None = None,
        spool_memory_bytes: int = SPOOL_MEMORY_BYTES,
        on_row_group: Callable[[dict[str, pa.Array]], None] | None = None,
        threads: int = 1,
    ) -> None:
        """on_row_group: called with the columns of each row group, as storage arrays.

        threads: how many encode the columns of a row group; the bytes are the same for any number.
        """
        self._pool = ThreadPoolExecutor(threads, "encode") if threads > 1 else None
        self._on_row_group = on_row_group
        self._options = options or WriterOptions()
        header = FragmentHeader(schema, sort, self._options.max_rows, self._options.writer_json())
        self._emitter = FragmentEmitter(sink, header)
        self._values = ValueCheck()
        self._compare = KeyComparator(schema, sort)
        self._keys = [column.column for column in sort]
        self._others = column_order(schema, sort)
        self._pending = _Pending(schema.names)
        self._last_key: Bound | None = None
        self._row_hashes: list[int] = []
        self._spool = _ColumnSpool(spool_directory, spool_memory_bytes)

    @property
    def rows_written(self) -> int:
        return self._emitter.rows + self._pending.rows

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends rows, which must continue the sort order.


        Raises `OrderError` if they do not, `SchemaError` for another schema than the writer's and for values
        that its types do not allow, `LimitError` for values that readers would refuse.
        """
        if not batch.schema.equals(self._emitter.header.schema):
            raise SchemaError("the batch's schema is not the writer's")
        if batch.num_rows == 0:
            return
        try:
            batch = canonical(batch, self._values.check)
        except ValueError as error:
            raise SchemaError(str(error)) from error
        columns = {n: to_storage(a) for n, a in zip(batch.schema.names, batch.columns, strict=True)}
        self._check_order(columns)
        self._pending.append(columns, batch.num_rows)
        full = self._pending.rows >= self._options.max_rows
        if full or self._pending.heaviest_bytes > self._options.target_row_group_bytes:
            self._cut(final=False)

    def finish(self) -> WrittenFragment:
        """Writes the pending rows, the other columns and the footer."""
        if self._pending.rows:
            self._cut(final=True)
        for name in self._others:
            self._copy_column(name)
        summary = self._emitter.finish(self._row_hashes)
        self._close()
        return WrittenFragment(self._emitter.bytes_written, summary)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._spool.close()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _check_order(self, columns: dict[str, pa.Array]) -> None:
        keys = [columns[name] for name in self._keys]
        ordered = KeyColumns(keys, self._compare.layout)
        if self._last_key is not None and ordered.key(0) < self._compare.key(self._last_key):
            raise OrderError(
                f"rows are not sorted: {key_at(keys, 0)!r} comes after {self._last_key!r}"
            )
        row = ordered.first_disorder()
        if row is not None:
            raise OrderError(
                f"rows are not sorted: {key_at(keys, row)!r} comes after {key_at(keys, row - 1)!r}"
            )
        self._last_key = key_at(keys, len(keys[0]) - 1)

    def _cut(self, *, final: bool) -> None:
        """Emits the row groups whose end is known: full ones, and with `final` the rest."""
        columns, rows = self._pending.drain()
        start = 0
        while start < rows:
            window = {n: a.slice(start, self._options.max_rows) for n, a in columns.items()}
            seen = len(window[self._keys[0]])
            take = min(
                seen, rows_within(list(window.values()), self._options.target_row_group_bytes)
            )
            if take == seen < self._options.max_rows and not final:
                break
            self._emit_group({name: array.slice(0, take) for name, array in window.items()}, take)
            start += take
        if start < rows:
            self._pending.append({n: a.slice(start) for n, a in columns.items()}, rows - start)

    def _emit_group(self, columns: dict[str, pa.Array], rows: int) -> None:
        keys = [columns[name] for name in self._keys]
        names = [*self._keys, *self._others]
        arrays = [columns[name] for name in names]
        map_ = map if self._pool is None else self._pool.map
        chunks = iter(map_(partial(self._chunk, self._emitter.rows), names, arrays))
        key_chunks = list(islice(chunks, len(keys)))
        self._emitter.key_group(key_chunks, key_at(keys, 0), key_at(keys, rows - 1))
        for name, chunk in zip(self._others, chunks, strict=True):
            self._spool.append(name, chunk)
        self._row_hashes.append(hash_batch(columns, rows))
        if self._on_row_group is not None:
            self._on_row_group(columns)

    def _chunk(self, first: int, name: str, array: pa.Array) -> Chunk:
        """Makes the chunk of rows from `first` on."""
        try:
            return make_chunk(array, level=self._options.compression_level)
        except LimitError as error:
            raise LimitError(
                f"column {name!r}, rows {first:,} to {first + len(array) - 1:,} in sort order: {error}: "
                "divide these values into several rows, or leave them out"
            ) from error

    def _copy_column(self, name: str) -> None:
        if not self._spool.has_values(name):
            return
        self._emitter.begin_column(name)
        for block, stats in self._spool.blocks(name):
            self._emitter.copy_block(block, stats)


class _Pending:
    """Rows that do not fill a row group yet."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._pieces: list[dict[str, pa.Array]] = []
        self._bytes = dict.fromkeys(names, 0)
        self.rows = 0

    @property
    def heaviest_bytes(self) -> int:
        return max(self._bytes.values())

    def append(self, columns: dict[str, pa.Array], rows: int) -> None:
        self._pieces.append(columns)
        self.rows += rows
        for name, array in columns.items():
            self._bytes[name] += total_bytes(array)

    def drain(self) -> tuple[dict[str, pa.Array], int]:
        """Returns all rows, one array per column, and their number; nothing is pending afterwards."""
        pieces, rows = self._pieces, self.rows
        self._pieces, self.rows, self._bytes = [], 0, dict.fromkeys(self._names, 0)
        return {n: concat_storage([piece[n] for piece in pieces]) for n in self._names}, rows


class _ColumnSpool:
    """A spool of finished blocks by column: statistics in memory, bytes in memory and then on disk."""

    def __init__(self, directory: str | None, memory_bytes: int) -> None:
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - closed by close()
            max_size=memory_bytes, dir=directory
        )
        self._stats: dict[str, list[ChunkStats]] = {}
        self._has_values: set[str] = set()
        self._position = 0

    def append(self, name: str, chunk: Chunk) -> None:
        block = chunk.block(BlockKind.DATA)
        self._file.write(block)
        stats = chunk.stats(offset=self._position, stored_bytes=len(block))
        self._stats.setdefault(name, []).append(stats)
        self._position += len(block)
        if chunk.null_count < chunk.rows:
            self._has_values.add(name)

    def has_values(self, name: str) -> bool:
        return name in self._has_values

    def blocks(self, name: str) -> Iterator[tuple[bytes, ChunkStats]]:
        """Yields the column's blocks in row-group order; offsets in their statistics are those of the
        spool."""
        for stats in self._stats[name]:
            self._file.seek(stats.offset)
            yield self._file.read(stats.stored_bytes), stats

    def close(self) -> None:
        self._file.close()
