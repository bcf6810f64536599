"""Reads a fragment front to back from a source that is not seekable, without the footer (SPEC section 8).

The caller takes all key groups, then column by column, chunk by chunk, then calls `finish`. Blocks are
checked but still compressed, so that a merge may decode them or copy them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from format import layout
from format.agreement import Sequel, check_footer
from format.blocks import Block, BlockReader, ByteSource
from format.errors import CorruptFragmentError, SchemaError
from format.footer import Footer, FooterHead
from format.layout import BlockHeader, BlockKind
from format.schema import FragmentHeader

_AnyFooter = TypeVar("_AnyFooter", Footer, FooterHead)
_AFTER_KEYS: Final = (BlockKind.COLUMN, BlockKind.FOOTER)


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
    ) -> None:
        """before_payload: see `BlockReader`."""
        self._reader = BlockReader(source, name, before_payload=before_payload)
        self.version = self._reader.read_prologue()
        """The format's version in which the fragment was written."""
        block = self._reader.read_block()
        if block.header.kind is not BlockKind.HEADER:
            raise block.fault("the fragment does not begin with its header")
        try:
            self.header = FragmentHeader.from_bytes(block.raw())
        except SchemaError as error:
            raise block.fault(str(error)) from error
        self._keys = [column.column for column in self.header.sort]
        self.row_group_rows: list[int] = []
        """Rows of each row group seen so far; complete once `next_key_group` has returned None."""
        self._ahead: Block | None = None
        self._column: str | None = None
        self._chunk_index = 0
        self._keys_done = False
        self._header_end = block.offset + block.header.block_bytes
        self._seen = Sequel()

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
        first = self._peek(self._keys[0])
        if first.header.kind in _AFTER_KEYS:
            self._keys_done = True
            return None
        blocks = []
        for name in self._keys:
            block = self._take(name)
            if block.header.kind is not BlockKind.KEY:
                raise block.fault(f"a key chunk of column {name!r} belongs here")
            self._seen.chunk(block.offset, block.header, block.meta)
            blocks.append(block)
        rows = {block.header.rows for block in blocks}
        if len(rows) != 1 or not 1 <= blocks[0].header.rows <= self.header.max_rows:
            raise blocks[0].fault(f"a row group of {sorted(rows)} rows")
        self.row_group_rows.append(blocks[0].header.rows)
        return blocks

    def next_column(self) -> str | None:
        """Returns the name of the next column of the column section; None at the footer.

        The caller must have taken all key groups, and all chunks of the column before.
        """
        assert self._keys_done, "key groups come first"
        self._check_column_complete()
        block = self._peek(None)
        if block.header.kind is BlockKind.FOOTER:
            self._column = None
            return None
        if block.header.kind is not BlockKind.COLUMN:
            raise block.fault("a column or the footer belongs here")
        name = self._column_name(self._take(None))
        self._column, self._chunk_index = name, 0
        self._seen.column(name)
        return name

    def next_chunk(self) -> Block:
        """Returns the current column's chunk of the next row group."""
        block = self._take(self._column)
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

    def skip_column(self) -> None:
        """Skips the rest of the current column."""
        while self._chunk_index < len(self.row_group_rows):
            self.next_chunk()

    def finish(self) -> Footer:
        """Reads footer and trailer, and checks them against the blocks that were read."""
        footer, block = self._finish(Footer)
        try:
            check_footer(footer, self.header, self._header_end, block.offset)
            self._seen.check(footer, self._keys)
        except ValueError as error:
            raise block.fault(str(error)) from error
        return footer

    def finish_quickly(self) -> FooterHead:
        """Does what `finish` does, but does not look at the columns' statistics."""
        return self._finish(FooterHead)[0]

    def _finish(self, kind: type[_AnyFooter]) -> tuple[_AnyFooter, Block]:
        block = self._take(None)
        if block.header.kind is not BlockKind.FOOTER:
            raise block.fault("the footer belongs here")
        try:
            footer = kind.from_bytes(block.raw())
        except SchemaError as error:
            raise block.fault(str(error)) from error
        if footer.group_rows != self.row_group_rows:
            raise block.fault("the footer's row groups are not those of the key section")
        trailer = self._reader.read_exactly(layout.TRAILER_BYTES)
        offset = layout.unpack_trailer(trailer, name=self.name, total_bytes=self._reader.offset)
        if offset != block.offset or not self._reader.at_end():
            raise CorruptFragmentError(
                "the trailer does not match the footer, or bytes follow it",
                name=self.name,
                offset=self._reader.offset,
            )
        return footer, block

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

    def _peek(self, column: str | None) -> Block:
        if self._ahead is None:
            self._ahead = self._reader.read_block(column)
        return self._ahead

    def _take(self, column: str | None) -> Block:
        block, self._ahead = self._peek(column), None
        return block
