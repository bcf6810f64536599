"""Reads blocks forward from a byte source, and verifies them (SPEC section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, cast

import xxhash

from lsm_fragment.blocks import layout
from lsm_fragment.blocks.layout import BLOCK_HEADER_BYTES, BlockHeader
from lsm_fragment.blocks.parts import check_payload
from lsm_fragment.container.block import Block
from lsm_fragment.errors import CorruptFragmentError

_STEP_BYTES: Final = 16 << 20
_SKIPPED_BYTES: Final = 1 << 20


class ByteSource(Protocol):
    """A forward-only source: up to `max_bytes` bytes (at least 1) per call, b"" only at the end."""

    def read(self, max_bytes: int, /) -> bytes: ...


class MemorySource:
    """A forward-only source over bytes in memory, without copies."""

    def __init__(self, data: bytes) -> None:
        self._left = memoryview(data)

    def read(self, max_bytes: int, /) -> bytes:
        piece, self._left = self._left[:max_bytes], self._left[max_bytes:]
        return cast("bytes", piece)


class BlockReader:
    """Reads blocks in sequence and tracks the offset."""

    def __init__(
        self,
        source: ByteSource,
        name: str,
        *,
        offset: int = 0,
        before_payload: Callable[[BlockHeader], None] = lambda _header: None,
        ahead_bytes: int = 0,
    ) -> None:
        """before_payload: called with each block's verified header before memory is allocated for its
        payload.

        ahead_bytes: read ahead up to this much of the available bytes at the beginning or end of a block: the
        next parts are short, and a request costs more than their bytes.
        """
        self._source = source
        self._before_payload = before_payload
        self._ahead_bytes = max(ahead_bytes, BLOCK_HEADER_BYTES)
        self.name = name
        self.offset = offset
        self._ahead = b""
        self._ahead_at = 0
        """Number of bytes taken from those read ahead."""

    def read_prologue(self) -> None:
        """Reads the prologue.

        Raises `NotAFragmentError`, `UnsupportedVersionError` or `CorruptFragmentError`.
        """
        layout.check_prologue(self._read_up_to(layout.PROLOGUE_BYTES), name=self.name)

    def read_block(self, column: str | None = None) -> Block:
        """Reads the next block. Raises `CorruptFragmentError`, also if the source ends."""
        offset = self.offset
        header, meta = self.read_head(column)
        self._before_payload(header)
        stored = self.read_exactly(header.stored_bytes, column)
        block = Block(
            header=header, meta=meta, stored=stored, offset=offset, name=self.name, column=column
        )
        try:
            check_payload(header, stored)
        except ValueError as error:
            raise block.fault(str(error)) from error
        return block

    def read_beginning(self, column: str) -> Block:
        """Returns the next block with as much of its payload as the source has, unverified.

        Raises `CorruptFragmentError`.
        """
        offset = self.offset
        header, meta = self.read_head(column)
        stored = self._read_up_to(header.stored_bytes)
        return Block(
            header=header, meta=meta, stored=stored, offset=offset, name=self.name, column=column
        )

    def read_head(self, column: str | None = None) -> tuple[BlockHeader, bytes]:
        """Reads header and meta of the next block, without its payload. Raises `CorruptFragmentError`."""
        offset = self.offset
        self._look_ahead()
        head = self.read_exactly(BLOCK_HEADER_BYTES, column)
        header = layout.unpack_block_header(head, name=self.name, offset=offset)
        meta = self.read_exactly(header.meta_bytes, column)
        layout.check_block_header(header, head, meta, name=self.name, offset=offset)
        return header, meta

    def next_kind(self) -> int:
        """Returns the kind of the next block, which this reader may not know."""
        self._look_ahead()
        if len(self._ahead) - self._ahead_at < BLOCK_HEADER_BYTES:
            self.read_exactly(BLOCK_HEADER_BYTES)  # raises
        return self._ahead[self._ahead_at]

    def skip_block(self) -> None:
        """Reads a block of any kind and verifies its checksums, without holding its payload."""
        offset = self.offset
        self._look_ahead()
        head = self.read_exactly(BLOCK_HEADER_BYTES)
        block = layout.unpack_skipped(head, name=self.name, offset=offset)
        meta = self.read_exactly(block.meta_bytes)
        layout.check_header_checksum(
            block.header_checksum, head, meta, name=self.name, offset=offset
        )
        payload, left = xxhash.xxh3_64(), block.stored_bytes
        while left:
            payload.update(self.read_exactly(min(left, _SKIPPED_BYTES)))
            left -= min(left, _SKIPPED_BYTES)
        if payload.intdigest() != block.payload_checksum:
            raise CorruptFragmentError(
                "the payload's checksum does not match", name=self.name, offset=offset
            )

    def read_exactly(self, size: int, column: str | None = None) -> bytes:
        data = self._read_up_to(size)
        if len(data) < size:
            raise CorruptFragmentError(
                f"truncated: {size} bytes expected, the object ends after {len(data)}",
                name=self.name,
                offset=self.offset - len(data),
                column=column,
            )
        return data

    def at_end(self) -> bool:
        """Returns whether nothing follows; consumes a byte if something does."""
        return self._ahead_at == len(self._ahead) and not self._source.read(1)

    def _look_ahead(self) -> None:
        """Reads ahead until a block header is available, unless the source ends."""
        while (held := len(self._ahead) - self._ahead_at) < BLOCK_HEADER_BYTES:
            piece = self._source.read(self._ahead_bytes - held)
            if not piece:
                return
            rest = self._ahead[self._ahead_at :]
            self._ahead, self._ahead_at = b"".join((rest, piece)) if held else piece, 0

    def _read_up_to(self, size: int) -> bytes:
        start, end = self._ahead_at, self._ahead_at + size
        if end <= len(self._ahead):
            self._ahead_at = end
            self.offset += size
            return self._ahead[start:end]
        first = self._ahead[start:]
        self._ahead, self._ahead_at = b"", 0
        if size > _STEP_BYTES:
            return self._read_large(first, size)
        pieces = [first] if first else []
        left = size - len(first)
        while left and (piece := self._source.read(max(left, self._ahead_bytes))):
            pieces.append(piece[:left])
            if left < len(piece):
                self._ahead, self._ahead_at = piece, left
            left -= len(pieces[-1])
        self.offset += size - left
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_large(self, first: bytes, size: int) -> bytes:
        """Reads a large payload into memory that grows as data arrives, without a second copy. first: the
        bytes read ahead."""
        data = bytearray(first)
        while len(data) < size and (piece := self._source.read(min(size - len(data), _STEP_BYTES))):
            data += piece
        self.offset += len(data)
        return cast("bytes", data)
