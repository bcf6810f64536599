"""Writes the parts of a fragment in file order and records their offsets (SPEC section 1).

For producers that have one column after the other, such as a merge. `lsm_fragment.container.writer` produces
such columns from rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from msgspec import Struct

from lsm_fragment.arrays.hashing import combine
from lsm_fragment.blocks import layout
from lsm_fragment.blocks.layout import BlockKind
from lsm_fragment.container.block import Block
from lsm_fragment.container.chunk import ByteSink, Chunk, make_block
from lsm_fragment.container.directory import PageTable, pack_directory
from lsm_fragment.container.footer import ChunkStats, FragmentSummary, RowGroupStats, ValueStats
from lsm_fragment.container.header import FragmentHeader
from lsm_fragment.container.pages import pack_record, paged, unpack_record
from lsm_fragment.keys.bounds import Bound, lower_bound, upper_bound
from lsm_fragment.keys.sort_schema import ordering

KnownValues = Callable[[str, int], ValueStats | None]
"""Returns the value statistics of a copied chunk, by column and row group; None for any other chunk."""

_METADATA_LEVEL: Final = 1
_JOINED_BYTES: Final = 64 << 10
_PLAIN_BYTES: Final = 4 << 10
"""Do not compress headers, pages and directories up to this size: they stay readable in a hex dump."""


class _OpenGroup(Struct):
    rows: int
    first_key: Bound
    last_key: Bound


class RecordSequence(Protocol):
    """Storage for the records of finished columns: a list, or one that spills."""

    def append(self, record: bytes, /) -> None: ...

    def __iter__(self) -> Iterator[bytes]: ...


class FragmentEmitter:
    """Writes one fragment, part by part.

    Call `key_group` for every row group, then `begin_column` and `chunk`s for each column in lexicographic
    order, then `finish`. The caller guarantees sorted rows and equal row counts.
    """

    def __init__(
        self, sink: ByteSink, header: FragmentHeader, records: RecordSequence | None = None
    ) -> None:
        """records: used only by this emitter; a list by default."""
        self._sink = sink
        self._header = header
        self._records: RecordSequence = [] if records is None else records
        self._groups: list[_OpenGroup] = []
        self._last_key: Bound = ()
        self._keys: list[list[ChunkStats]] = [[] for _ in header.sort]
        self._column: str | None = None
        self._column_start = 0
        self._chunks: list[ChunkStats] = []
        self._summary = FragmentSummary()
        self.bytes_written = 0
        self._write(layout.pack_prologue())
        self._write(_metadata_block(BlockKind.HEADER, header.to_bytes()))
        self._key_start = self.bytes_written

    @property
    def header(self) -> FragmentHeader:
        return self._header

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self._groups)

    def key_group(self, chunks: Sequence[Chunk], first_key: Bound, last_key: Bound) -> None:
        """Writes one row group's sort columns, in sort-schema order.

        first_key, last_key: the unshortened keys of its first and last row.
        """
        for column, chunk in zip(self._keys, chunks, strict=True):
            column.append(self._write_chunk(BlockKind.KEY, chunk))
        self._add_group(chunks[0].rows, first_key, last_key)

    def copy_key_group(self, blocks: Sequence[Block], first_key: Bound, last_key: Bound) -> None:
        """Copies a row group's key chunks from another fragment; `finish` adds their value statistics."""
        for column, block in zip(self._keys, blocks, strict=True):
            column.append(self._pass(block))
        self._add_group(blocks[0].header.rows, first_key, last_key)

    def begin_column(self, name: str) -> None:
        self._end_column()
        self._column_start = self.bytes_written
        self._write(make_block(BlockKind.COLUMN, name.encode()))
        self._column = name

    def chunk(self, chunk: Chunk) -> None:
        """Writes the current column's chunk of the next row group."""
        self._chunks.append(self._write_chunk(BlockKind.DATA, chunk))

    def copy_chunk(self, block: Block) -> None:
        """Copies a chunk from another fragment; `finish` adds its value statistics."""
        self._chunks.append(self._pass(block))

    def finish(
        self, row_hashes: Sequence[int], known: KnownValues | None = None
    ) -> FragmentSummary:
        """Writes footer and trailer, one page at a time. row_hashes: one per row group, over all columns.

        known: returns the value statistics of copied chunks; None if no chunk was copied.
        """
        self._end_column()
        groups = [
            RowGroupStats(group.rows, row_hash, group.first_key, group.last_key)
            for group, row_hash in zip(self._groups, row_hashes, strict=True)
        ]
        records = iter(self._records)
        if known is not None:
            records = (self._completed(record, known) for record in records)
        keys = [next(records) for _ in self._header.sort]
        pages, columns_end = self._write_pages(records, unpack_record(keys[0]).end)
        offset = self.bytes_written
        directory = pack_directory(self._header, groups, keys, pages, columns_end)
        self._write(_metadata_block(BlockKind.DIRECTORY, directory))
        self._write(layout.pack_trailer(offset, self.bytes_written + layout.TRAILER_BYTES))
        summary = self._summary
        summary.rows, summary.row_groups = self.rows, len(groups)
        summary.row_hash = combine(*row_hashes)
        summary.last_key = self._last_key
        return summary

    def copy_block(self, parts: Sequence[bytes], stats: ChunkStats) -> None:
        """Copies a finished 'D' block as the current column's next chunk."""
        self._chunks.append(stats._replace(offset=self.bytes_written))
        self._write_parts(parts)

    def _add_group(self, rows: int, first_key: Bound, last_key: Bound) -> None:
        schema, sort = self._header.schema, self._header.sort
        if not self._groups:
            self._summary.first_key = first_key[: len(ordering(sort))]
        self._last_key = last_key[: len(ordering(sort))]
        self._groups.append(
            _OpenGroup(
                rows, lower_bound(first_key, schema, sort), upper_bound(last_key, schema, sort)
            )
        )

    def _end_column(self) -> None:
        """Puts the records of the sort columns, or of the last column, among the records."""
        if self._column is not None:
            self._keep_record(self._column, self._chunks, self._column_start)
            self._column, self._chunks = None, []
        for column, chunks in zip(self._header.sort, self._keys, strict=False):
            self._keep_record(column.column, chunks, self._key_start)
        self._keys = []

    def _keep_record(self, name: str, chunks: Sequence[ChunkStats], start: int) -> None:
        place = (start, self.bytes_written) if chunks else (0, 0)
        self._records.append(pack_record(self._header.stored_field(name), chunks, *place))
        self._summary.add_column(name, chunks, [group.rows for group in self._groups])

    def _completed(self, record: bytes, known: KnownValues) -> bytes:
        """Adds the value statistics of copied chunks to a record, and to the summary."""
        column = unpack_record(record)
        chunks = column.chunks()
        for group, chunk in enumerate(chunks):
            if (values := known(column.name, group)) is not None:
                chunks[group] = chunk._replace(**values._asdict())
        self._summary.add_column(column.name, chunks, [group.rows for group in self._groups])
        stored = self._header.stored_field(column.name)
        return pack_record(stored, chunks, column.start, column.end)

    def _write_pages(self, records: Iterator[bytes], key_end: int) -> tuple[PageTable, int]:
        """Writes the statistics pages. Returns their table, and the end of the column section.

        records: of the written columns outside the sort schema.
        """
        table, end = PageTable(), key_end
        for page in paged(self._with_absent(records), key_end):
            table.add(self.bytes_written, page.start, page.name)
            self._write(_metadata_block(BlockKind.STATISTICS, page.payload))
            end = page.end
        return table, end

    def _with_absent(self, records: Iterator[bytes]) -> Iterator[bytes]:
        """Yields the records of all columns outside the sort schema, including those without chunks."""
        waiting = next(records, None)
        for name in self._header.others:
            if waiting is not None and unpack_record(waiting).name == name:
                yield waiting
                waiting = next(records, None)
            else:
                yield pack_record(self._header.stored_field(name), (), 0, 0)

    def _pass(self, block: Block) -> ChunkStats:
        stats = block.stats(offset=self.bytes_written)
        for part in block.parts():
            self._write(part)
        return stats

    def _write_chunk(self, kind: BlockKind, chunk: Chunk) -> ChunkStats:
        parts = chunk.parts(kind)
        stats = chunk.stats(offset=self.bytes_written, stored_bytes=sum(map(len, parts)))
        self._write_parts(parts)
        return stats

    def _write_parts(self, parts: Sequence[bytes]) -> None:
        # Writes parts of large blocks one by one, to avoid a copy.
        is_large = max(map(len, parts)) > _JOINED_BYTES
        for part in parts if is_large else (b"".join(parts),):
            self._write(part)

    def _write(self, data: bytes) -> None:
        self._sink.write(data)
        self.bytes_written += len(data)


def _metadata_block(kind: BlockKind, payload: bytes) -> bytes:
    level = _METADATA_LEVEL if len(payload) > _PLAIN_BYTES else 0
    return make_block(kind, payload, level=level)
