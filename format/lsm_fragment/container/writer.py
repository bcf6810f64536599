"""Writes sorted batches as a fragment, a stream of bytes, in bounded memory.

Rows arrive with all columns, but the file has one column after the other: chunks of the columns outside the
sort schema go through a spool (memory, then a temporary file). Row groups are cut by the heaviest column, at
the same rows however the rows are batched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from lsm_fragment.arrays.canonical import canonical
from lsm_fragment.arrays.hashing import U64, add_column, fold_rows
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.arrays.type_json import JsonObject
from lsm_fragment.arrays.validity import ValueCheck
from lsm_fragment.container.chunk import ByteSink, Chunk, EncodedChunk, encode_chunk, make_chunk
from lsm_fragment.container.emitter import FragmentEmitter
from lsm_fragment.container.footer import FragmentSummary
from lsm_fragment.container.header import FragmentHeader
from lsm_fragment.container.row_buffer import Pending
from lsm_fragment.container.spool import SPOOL_MEMORY_BYTES, ColumnSpool
from lsm_fragment.encodings.dictionary import Coding, by_dictionary, recoded
from lsm_fragment.encodings.template import Precedent
from lsm_fragment.errors import LimitError, OrderError, SchemaError
from lsm_fragment.keys.bounds import Bound, key_at
from lsm_fragment.keys.normalised import KeyColumns
from lsm_fragment.keys.sort_schema import SortSchema
from lsm_fragment.threads import ALONE, ThreadPool, Work
from lsm_fragment.version import __version__

_COMPRESSED_APART_BYTES: Final = 1 << 20
"""Compress columns from this size on in another thread: it takes milliseconds, to hand them over a tenth."""


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Settings for row groups and compression. Raises `ValueError` for values out of range."""

    max_rows: int = 131_072
    """Maximum rows of a row group. Fewer bound memory more tightly; more compress better."""
    target_row_group_bytes: int = 16 << 20
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


class WrittenFragment(Struct, frozen=True):
    """Size and summary of a finished fragment."""

    bytes_written: int
    summary: FragmentSummary


class FragmentSequence:
    """What the writers of several fragments in a row share: the precedents of each column's last chunks, and
    the header as long as it stays the same."""

    def __init__(self) -> None:
        self.precedents: dict[str, Precedent] = {}
        self.encoding: Work[Any] | None = None
        """Encodes the last row group, after which the precedents are those of the next one."""
        self._header: FragmentHeader | None = None

    def header(self, schema: pa.Schema, sort: SortSchema, options: WriterOptions) -> FragmentHeader:
        known, writer = self._header, options.writer_json()
        if (
            known is not None
            and known.schema.equals(schema, check_metadata=True)
            and (known.sort, known.max_rows, known.writer) == (sort, options.max_rows, writer)
        ):
            return known
        self._header = FragmentHeader(
            schema=schema, sort=sort, max_rows=options.max_rows, writer=writer
        )
        return self._header


class FragmentWriter:
    """Writes one fragment. A context manager: leaving it by an exception drops the spool.

    The caller owns the sink, and must not make its bytes visible before `finish` has returned.
    """

    def __init__(
        self,
        sink: ByteSink,
        schema: pa.Schema,
        sort: SortSchema,
        options: WriterOptions | None = None,
        *,
        spool_memory_bytes: int = SPOOL_MEMORY_BYTES,
        on_row_group: Callable[[dict[str, pa.Array]], None] | None = None,
        pool: ThreadPool = ALONE,
        sequence: FragmentSequence | None = None,
    ) -> None:
        """on_row_group: called with the columns of each row group, as storage arrays.

        sequence: that of the fragments that the writer continues.

        pool: encodes the columns of a row group while the caller makes the next one, and compresses heavy
        ones while that is encoded; the bytes are the same for any number of threads.
        """
        self._pool = pool
        self._on_row_group = on_row_group
        self._options = options or WriterOptions()
        self._sequence = sequence = FragmentSequence() if sequence is None else sequence
        header = sequence.header(schema, sort, self._options)
        self._emitter = FragmentEmitter(sink, header)
        self._values = ValueCheck()
        self._compare = header.comparator
        self._keys = [column.column for column in sort]
        self._others = header.others
        self._pending = Pending()
        self._rows = 0
        """Rows of the row groups so far."""
        self._encoding: _Group | None = None
        """The last row group, while its chunks are encoded."""
        self._encoded: _Group | None = None
        """The one before, or the last one, while its chunks are compressed."""
        self._last_key: Bound | None = None
        self._row_hashes: list[int] = []
        self._spool = ColumnSpool(spool_memory_bytes)

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
        self.write_sorted(columns)

    def write_sorted(self, columns: Mapping[str, pa.Array]) -> None:
        """Appends rows without checks: the caller guarantees that they are valid and continue the sort order.

        columns: the storage arrays of all columns by name. Strings and binaries may be dictionary-coded even
        if the schema does not say so; the bytes are the same.
        Raises `LimitError` for values that readers would refuse.
        """
        self._pending.append({name: columns[name] for name in self._emitter.header.schema.names})
        self._cut(final=False)

    def end_rows(self) -> None:
        """Begins to encode the pending rows: no others follow. Another thread may then call `finish`."""
        if self._pending.rows:
            self._cut(final=True)

    def finish(self) -> WrittenFragment:
        """Writes the pending rows, the other columns and the footer."""
        self.end_rows()
        self._end_encoding()
        self._write_group()
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
        for group in (self._encoding, self._encoded):
            if group is not None:
                group.drop()
        self._spool.close()

    def _check_order(self, columns: Mapping[str, pa.Array]) -> None:
        keys = [columns[name] for name in self._keys]
        ordered, last = KeyColumns(keys, self._compare.layout), self._last_key
        if last is not None and ordered.key(0) < self._compare.key(last):
            raise OrderError(f"rows are not sorted: {key_at(keys, 0)!r} comes after {last!r}")
        row = ordered.first_disorder()
        if row is not None:
            raise OrderError(
                f"rows are not sorted: {key_at(keys, row)!r} comes after {key_at(keys, row - 1)!r}"
            )
        self._last_key = key_at(keys, len(keys[0]) - 1)

    def _cut(self, *, final: bool) -> None:
        """Emits the row groups with a known end: full ones, and with `final` the rest."""
        max_rows, target_bytes = self._options.max_rows, self._options.target_row_group_bytes
        while self._pending.rows:
            rows = self._pending.rows_within(max_rows, target_bytes)
            if rows == self._pending.rows < max_rows and not final:
                break
            self._emit_group(self._pending.take(rows), rows)

    def _emit_group(self, columns: dict[str, pa.Array], rows: int) -> None:
        keys = [columns[name] for name in self._keys]
        names = [*self._keys, *self._others]
        group = _Group(
            first_row=self._rows,
            first_key=key_at(keys, 0),
            last_key=key_at(keys, rows - 1),
            numbers=_RowNumbers(rows),
        )
        self._rows += rows
        sizes = [columns[name].nbytes for name in names]
        chunk = partial(self._chunk, group, columns)
        encode = partial(self._pool.each, chunk, list(zip(names, sizes, strict=True)), sizes)
        self._end_encoding()
        if (before := self._sequence.encoding) is not None:  # of another fragment
            self._pool.finish(before)
        group.encoding = self._pool.begin(encode)
        self._encoding, self._sequence.encoding = group, group.encoding
        if self._on_row_group is not None:
            self._on_row_group(columns)
        if self._pool.threads == 1:
            self._end_encoding()
            self._write_group()

    def _end_encoding(self) -> None:
        """Waits for the row group that is still being encoded, if there is one. Its heavy chunks are then
        compressed while the next one is encoded."""
        if (group := self._encoding) is None:
            return
        self._encoding = None
        encoding, group.encoding = group.encoding, None
        assert encoding is not None
        group.chunks = self._pool.wait(encoding)
        self._write_group()
        self._encoded = group

    def _write_group(self) -> None:
        """Writes the row group that is still being compressed, if there is one."""
        if (group := self._encoded) is None:
            return
        self._encoded = None
        try:
            chunks = [self._pool.wait(chunk) for chunk in group.chunks]
        finally:
            group.drop()
        self._emitter.key_group(chunks[: len(self._keys)], group.first_key, group.last_key)
        for name, chunk in zip(self._others, chunks[len(self._keys) :], strict=True):
            self._spool.append(name, chunk)
        self._row_hashes.append(group.numbers.row_hash())

    def _chunk(
        self, group: _Group, columns: Mapping[str, pa.Array], column: tuple[str, int]
    ) -> Work[Chunk]:
        """Makes a column's chunk, or only encodes it if it is heavy, and begins the rest.

        column: its name and the size of its values.
        """
        name, size = column
        array = columns[name]
        coded, coding = self._coded(name, array)
        precedent = self._sequence.precedents.setdefault(name, Precedent())
        try:
            encoded = encode_chunk(coded, coding=coding, precedent=precedent)
        except LimitError as error:
            raise group.named(name, error) from error
        work = Work(partial(self._compressed, group, name, array, encoded, coding))
        if size >= _COMPRESSED_APART_BYTES:
            self._pool.queue(work)
        else:
            work.do()
        return work

    def _compressed(
        self, group: _Group, name: str, array: pa.Array, encoded: EncodedChunk, coding: Coding
    ) -> Chunk:
        """Compresses a column's chunk, and adds the column to the numbers of the rows."""
        # Coding came before hashing: so only distinct values need hashing.
        group.numbers.add(name, encoded.array)
        try:
            return self._fitting(array, encoded, coding)
        except LimitError as error:
            raise group.named(name, error) from error

    def _fitting(self, array: pa.Array, encoded: EncodedChunk, coding: Coding) -> Chunk:
        level = self._options.compression_level
        try:
            return encoded.compressed(level)
        except LimitError:
            if coding is Coding.OPEN or not pt.is_dictionary(encoded.array.type):
                raise
            # The few values of one row group may fit without codes.
            return make_chunk(plain(array), level=level)

    def _coded(self, name: str, array: pa.Array) -> tuple[pa.Array, Coding]:
        """Dictionary-codes a column's rows if that pays, whether they are coded or not."""
        if name in self._emitter.header.coded:
            return array, Coding.OPEN
        is_coded = pt.is_dictionary(array.type)
        return recoded(array) if is_coded else by_dictionary(array), Coding.FINAL

    def _copy_column(self, name: str) -> None:
        if not self._spool.has_values(name):
            return
        self._emitter.begin_column(name)
        for parts, stats in self._spool.blocks(name):
            self._emitter.copy_block(parts, stats)


class _Group(Struct, kw_only=True):
    """A row group whose chunks are being made."""

    first_row: int
    first_key: Bound
    last_key: Bound
    numbers: _RowNumbers
    encoding: Work[Sequence[Work[Chunk]]] | None = None
    chunks: Sequence[Work[Chunk]] = ()

    def named(self, column: str, error: LimitError) -> LimitError:
        """Returns an error that names column and rows."""
        first, last = self.first_row, self.first_row + self.numbers.rows - 1
        return LimitError(
            f"column {column!r}, rows {first:,} to {last:,} in sort order: {error}: "
            "divide these values into several rows, or leave them out"
        )

    def drop(self) -> None:
        if self.encoding is not None and not self.encoding.cancel():
            self.encoding.wait()
            with suppress(Exception):
                self.chunks = self.encoding.take()
        for chunk in self.chunks:
            chunk.drop()


class _RowNumbers:
    """The row-hash numbers of one row group's rows; several threads add columns."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._by_thread: dict[int, U64] = {}

    def add(self, name: str, array: pa.Array) -> None:
        thread = get_ident()
        if thread not in self._by_thread:
            self._by_thread[thread] = np.zeros(self.rows, dtype=np.uint64)
        add_column(name, array, self._by_thread[thread])

    def row_hash(self) -> int:
        """Returns the row hash after all columns were added."""
        first, *others = self._by_thread.values()
        for numbers in others:
            first += numbers
        return fold_rows(first)
