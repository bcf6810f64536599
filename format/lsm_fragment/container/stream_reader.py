"""Reads a fragment forward from a source without seeking, and without the footer (SPEC section 8).

The caller takes all key groups, then chunk by chunk of each column, then calls `finish`. Blocks are verified
but still compressed, so that a merge can either decode or copy them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import xxhash

from lsm_fragment.blocks import layout
from lsm_fragment.blocks.layout import BlockHeader, BlockKind
from lsm_fragment.container.block import Block
from lsm_fragment.container.block_reader import BlockReader, ByteSource
from lsm_fragment.container.directory import Directory, DirectoryHead, PageTable
from lsm_fragment.container.footer import ChunkStats
from lsm_fragment.container.header import FragmentHeader
from lsm_fragment.container.pages import ColumnRecord, check_records, unpack_page
from lsm_fragment.encodings.registry import NUMBERS
from lsm_fragment.errors import CorruptFragmentError, SchemaError
from lsm_fragment.keys.sort_schema import column_order

TakeColumn = Callable[[str, Sequence[ChunkStats]], None]
AHEAD_BYTES: Final = 1 << 10
"""Enough for the header of a column, the header of its first chunk, and the nodes of that chunk."""
_FOOTER: Final = (BlockKind.STATISTICS, BlockKind.DIRECTORY)


class FragmentStream:
    """One forward pass over a fragment.

    The constructor and every method raise `NotAFragmentError`, `UnsupportedVersionError` or
    `CorruptFragmentError`; after an error the stream is unusable.
    """

    def __init__(
        self,
        source: ByteSource,
        name: str,
        *,
        before_payload: Callable[[BlockHeader], None] = lambda _header: None,
        ahead_bytes: int = AHEAD_BYTES,
    ) -> None:
        """before_payload, ahead_bytes: see `BlockReader`."""
        self._reader = BlockReader(
            source, name, before_payload=before_payload, ahead_bytes=ahead_bytes
        )
        self._reader.read_prologue()
        block = self._reader.read_block()
        if block.header.kind is not BlockKind.HEADER:
            raise block.fault("the fragment does not begin with its header")
        try:
            self.header = FragmentHeader.from_bytes(block.raw(), name=name)
        except SchemaError as error:
            raise block.fault(str(error)) from error
        self._keys = [column.column for column in self.header.sort]
        self.row_group_rows: list[int] = []
        """Rows of each row group so far; complete once `next_key_group` has returned None."""
        self._column: str | None = None
        self._chunk_index = 0
        self._keys_done = False
        self._key_end = 0
        self._seen_keys = ChunkDigest()
        self._seen = ChunkDigest()

    @property
    def name(self) -> str:
        return self._reader.name

    @property
    def bytes_read(self) -> int:
        return self._reader.offset

    def next_key_group(self) -> list[Block] | None:
        """Returns the next row group's sort columns, in sort-schema order; None after the last."""
        if self._keys_done:
            return None
        if not self.row_group_rows:
            self._skip_ancillary()
        if self._reader.next_kind() != BlockKind.KEY:
            self._keys_done = True
            return None
        blocks = []
        for name in self._keys:
            block = self._reader.read_block(name)
            if block.header.kind is not BlockKind.KEY:
                raise block.fault(f"a key chunk of column {name!r} belongs here")
            self._seen_keys.chunk(block.offset, block.header, block.meta)
            blocks.append(block)
        rows = {block.header.rows for block in blocks}
        if len(rows) != 1 or not 1 <= blocks[0].header.rows <= self.header.max_rows:
            raise blocks[0].fault(f"a row group of {sorted(rows)} rows")
        self.row_group_rows.append(blocks[0].header.rows)
        self._key_end = self._reader.offset
        return blocks

    def next_column(self) -> str | None:
        """Returns the name of the next column of the column section; None at the footer.

        The caller must have taken all key groups, and all chunks of the previous column.
        """
        assert self._keys_done, "key groups come first"
        self._check_column_complete()
        if self._reader.next_kind() != BlockKind.COLUMN:
            self._skip_ancillary()
            if self._reader.next_kind() not in _FOOTER:
                raise self._reader.read_block().fault("the footer belongs here")
            self._column = None
            return None
        block = self._reader.read_block()
        name = self._column_name(block)
        self._column, self._chunk_index = name, 0
        self._seen.column(name)
        return name

    def next_chunk(self) -> Block:
        """Returns the current column's chunk of the next row group."""
        block = self._reader.read_block(self._column)
        if block.header.kind is not BlockKind.DATA:
            raise block.fault("a chunk belongs here")
        if block.header.rows != self.row_group_rows[self._chunk_index]:
            raise block.fault(
                f"{block.header.rows} rows in a row group of "
                f"{self.row_group_rows[self._chunk_index]}"
            )
        self._chunk_index += 1
        self._seen.chunk(block.offset, block.header, block.meta)
        return block

    def finish(self, take: TakeColumn | None = None) -> Directory:
        """Reads footer and trailer, and verifies them against the blocks that were read.

        take: called for each column with chunks, with their statistics; sort columns come last. Only one page
        is in memory at a time.
        """
        pages, stated = PageTable(), ChunkDigest()
        names = iter(column_order(self.header.schema, self.header.sort))
        start = self._key_end
        self._skip_ancillary()
        while self._reader.next_kind() == BlockKind.STATISTICS:
            block = self._reader.read_block()
            try:
                records = list(unpack_page(block.raw()))
                pages.add(block.offset, start, records[0].name)
                start = check_records(records, start)
                for record in records:
                    if record.name != next(names, None):
                        raise ValueError(f"column {record.name!r} is not in its place")
                    chunks = self._chunks_of(record)
                    if chunks:
                        record.check_places(chunks)
                        stated.column(record.name)
                        stated.chunks(chunks)
                        if take is not None:
                            take(record.name, chunks)
            except ValueError as error:
                raise block.fault(str(error)) from error
        block = self._read_directory()
        try:
            directory = Directory.from_bytes(block.raw(), name=self.name)
            self._check_head(directory.head)
            stated_pages = directory.page_table, directory.head.columns_end
            if next(names, None) is not None or stated_pages != (pages.to_bytes(), start):
                raise ValueError("the directory does not match the pages")
            self._seen.check(stated)
            self._check_keys(directory)
        except ValueError as error:
            raise block.fault(str(error)) from error
        if take is not None:
            for name, (_, chunks) in directory.keys.items():
                take(name, chunks)
        return directory

    def finish_quickly(self) -> DirectoryHead:
        """Does the same as `finish`, but skips the statistics of chunks and row groups."""
        self._skip_ancillary()
        while self._reader.next_kind() == BlockKind.STATISTICS:
            self._reader.skip_block()
        block = self._read_directory()
        try:
            head, _ = DirectoryHead.from_bytes(block.raw(), name=self.name)
            self._check_head(head)
        except ValueError as error:
            raise block.fault(str(error)) from error
        return head

    def _chunks_of(self, record: ColumnRecord) -> list[ChunkStats]:
        field = record.field()
        if not field.equals(self.header.schema.field(record.name), check_metadata=True):
            raise ValueError(f"header and footer differ in column {record.name!r}")
        chunks = record.chunks()
        if len(chunks) not in (0, len(self.row_group_rows)):
            raise ValueError(f"column {record.name!r} has {len(chunks)} chunks")
        return chunks

    def _check_keys(self, directory: Directory) -> None:
        stated = ChunkDigest()
        for group in zip(*(chunks for _, chunks in directory.keys.values()), strict=True):
            stated.chunks(group)
        self._seen_keys.check(stated)
        for field, _ in directory.keys.values():
            if not field.equals(self.header.schema.field(field.name), check_metadata=True):
                raise ValueError(f"header and footer differ in column {field.name!r}")

    def _read_directory(self) -> Block:
        """Reads the directory's block and the trailer."""
        block = self._reader.read_block()
        if block.header.kind is not BlockKind.DIRECTORY:
            raise block.fault("the directory belongs here")
        trailer = self._reader.read_exactly(layout.TRAILER_BYTES)
        offset = layout.unpack_trailer(trailer, name=self.name, total_bytes=self._reader.offset)
        if offset != block.offset or not self._reader.at_end():
            raise CorruptFragmentError(
                "the trailer does not match the directory, or bytes follow it",
                name=self.name,
                offset=self._reader.offset,
            )
        return block

    def _check_head(self, head: DirectoryHead) -> None:
        head.check_header(self.header)
        if head.group_rows != tuple(self.row_group_rows):
            raise ValueError("the directory's row groups are not those of the key section")

    def _check_column_complete(self) -> None:
        assert self._column is None or self._chunk_index == len(self.row_group_rows), (
            "chunks of the column before were not taken"
        )

    def _column_name(self, block: Block) -> str:
        try:
            name = block.raw().decode()
        except UnicodeDecodeError as error:
            raise block.fault("the column's name is not UTF-8") from error
        if name in self._keys or self.header.schema.get_field_index(name) < 0:
            raise block.fault(f"column {name!r} is not in the schema, or comes twice")
        if self._column is not None and name.encode() <= self._column.encode():
            raise block.fault(f"column {name!r} comes after {self._column!r}")
        return name

    def _skip_ancillary(self) -> None:
        while layout.is_ancillary(self._reader.next_kind()):
            self._reader.skip_block()


_CHUNK: Final = struct.Struct("<BQQQQ")
_NULL_COUNT: Final = slice(16, 24)


class ChunkDigest:
    """A checksum over chunks as read, to compare with the chunks of the footer."""

    def __init__(self) -> None:
        self._seen = xxhash.xxh3_64()

    def column(self, name: str) -> None:
        self._seen.update(name.encode())

    def chunk(self, offset: int, header: BlockHeader, meta: bytes) -> None:
        nulls = int.from_bytes(meta[_NULL_COUNT], "little")
        encoding = meta[0] if meta else 0
        self._seen.update(
            _CHUNK.pack(encoding, nulls, offset, header.block_bytes, header.raw_bytes)
        )

    def chunks(self, chunks: Iterable[ChunkStats]) -> None:
        """Adds chunks as stated by a footer."""
        for chunk in chunks:
            self._seen.update(
                _CHUNK.pack(
                    NUMBERS[chunk.encoding], chunk.null_count, chunk.offset, chunk.stored_bytes,
                    chunk.raw_bytes,
                )
            )  # fmt: skip

    def check(self, stated: ChunkDigest) -> None:
        """Raises `ValueError` unless `stated` has the same chunks."""
        if stated._seen.digest() != self._seen.digest():
            raise ValueError("the footer's chunks do not match the chunks before it")
