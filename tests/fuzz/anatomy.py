"""Fragments taken apart and put together again with any part changed, and checksums that match.

By the layout of SPEC.md sections 2 and 3, sharing no code with the readers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import xxhash
import zstandard

HEAD = struct.Struct("<BBHIIIQQQ")
NODE = struct.Struct("<BBBBIQQq")
PROLOGUE = struct.Struct("<8sHHI")
TRAILER = struct.Struct("<QQI4s")
_MOST_RAW_BYTES = 2 << 20


def xxh3(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)


@dataclass(frozen=True, slots=True)
class RawBlock:
    """A block whose fields need not be true. None: what is true."""

    kind: int
    codec: int
    rows: int
    meta: bytes
    stored: bytes
    raw_bytes: int
    reserved: int = 0
    meta_bytes: int | None = None
    stored_bytes: int | None = None

    def to_bytes(self) -> bytes:
        meta_bytes = len(self.meta) if self.meta_bytes is None else self.meta_bytes
        stored_bytes = len(self.stored) if self.stored_bytes is None else self.stored_bytes
        fields = [self.kind, self.codec, self.reserved, self.rows, meta_bytes, 0]
        fields += [stored_bytes, self.raw_bytes, xxh3(self.stored)]
        fields[5] = xxh3(HEAD.pack(*fields) + self.meta) & 0xFFFFFFFF
        return HEAD.pack(*fields) + self.meta + self.stored

    def raw(self) -> bytes:
        """Returns the payload, decompressed. Raises ValueError if it is too large, or not a frame."""
        if not self.codec:
            return self.stored
        try:
            if zstandard.frame_content_size(self.stored) > _MOST_RAW_BYTES:
                raise ValueError("a bomb")
            return zstandard.decompress(self.stored, _MOST_RAW_BYTES)
        except zstandard.ZstdError as error:
            raise ValueError("not a frame") from error

    def with_raw(self, raw: bytes) -> RawBlock:
        """The same block with another payload, compressed or not as it was."""
        stored = zstandard.compress(raw, 1) if self.codec else raw
        return replace(self, stored=stored, raw_bytes=len(raw))


@dataclass(slots=True)
class Anatomy:
    """A fragment in its parts."""

    version: int
    blocks: list[RawBlock]
    reserved: int = 0
    footer_offset: int | None = None
    total_bytes: int | None = None
    tail: bytes = b""
    """Bytes after the trailer."""
    is_linked: bool = True
    """Whether the footer's offsets and lengths are made those of the blocks as they are now."""
    edit_footer: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)
    """What is done to the footer after that."""

    @classmethod
    def of(cls, data: bytes) -> Anatomy:
        version = PROLOGUE.unpack_from(data)[1]
        blocks, at = [], PROLOGUE.size
        while at < len(data) - TRAILER.size:
            block, at = read_block(data, at)
            blocks.append(block)
        return cls(version, blocks)

    def to_bytes(self) -> bytes:
        head = PROLOGUE.pack(b"\x89LSMF\r\n\x1a", self.version, self.reserved, 0)[:12]
        parts = [head + struct.pack("<I", xxh3(head) & 0xFFFFFFFF)]
        at, places = len(parts[0]), []
        for block in self._linked():
            parts.append(block.to_bytes())
            places.append(at)
            at += len(parts[-1])
        footer = self.footer_offset if self.footer_offset is not None else (places or [0])[-1]
        total = self.total_bytes if self.total_bytes is not None else at + TRAILER.size
        tail = struct.pack("<QQ", footer & (2**64 - 1), total & (2**64 - 1))
        parts.append(tail + struct.pack("<I", xxh3(tail) & 0xFFFFFFFF) + b"LSMF" + self.tail)
        return b"".join(parts)

    def _linked(self) -> list[RawBlock]:
        if not self.blocks or self.blocks[-1].kind != ord("F"):
            return self.blocks
        if not self.is_linked and not self.edit_footer:
            return self.blocks
        try:
            footer = json.loads(self.blocks[-1].raw())
            if self.is_linked:
                _link(footer, self.blocks[:-1])
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            return self.blocks  # there is no such footer any more
        for edit in self.edit_footer:
            edit(footer)
        raw = json.dumps(footer, separators=(",", ":"), ensure_ascii=False).encode(
            errors="surrogatepass"
        )
        return [*self.blocks[:-1], self.blocks[-1].with_raw(raw)]


def _link(footer: dict[str, Any], blocks: list[RawBlock]) -> None:
    """Gives the footer the offsets of chunks where they lie now, as far as it has places for them."""
    chunks: dict[str, list[tuple[int, int, int]]] = {}
    keys: list[tuple[int, int, int]] = []
    at, name = PROLOGUE.size, ""
    for block in blocks:
        size = len(block.to_bytes())
        if block.kind == ord("C"):
            name = block.raw().decode(errors="replace")
        elif block.kind == ord("D"):
            chunks.setdefault(name, []).append((at, size, block.raw_bytes))
        elif block.kind == ord("K"):
            keys.append((at, size, block.raw_bytes))
        at += size
    sort_columns = [column["name"] for column in footer["columns"]]
    sort_columns = [name for name in sort_columns if name not in chunks]
    for place, name in enumerate(sort_columns):
        chunks[name] = keys[place :: len(sort_columns)]
    for column in footer["columns"]:
        for group, (offset, size, raw) in enumerate(chunks[column["name"]]):
            if group < len(column["offset"]):
                column["offset"][group], column["stored_bytes"][group] = offset, size
                column["raw_bytes"][group] = raw


def read_block(data: bytes, at: int) -> tuple[RawBlock, int]:
    """The block at an offset of an undamaged fragment, and where it ends."""
    kind, codec, _, rows, meta_bytes, _, stored_bytes, raw_bytes, _ = HEAD.unpack_from(data, at)
    meta_at = at + HEAD.size
    stored_at = meta_at + meta_bytes
    end = stored_at + stored_bytes
    block = RawBlock(kind, codec, rows, data[meta_at:stored_at], data[stored_at:end], raw_bytes)
    return block, end
