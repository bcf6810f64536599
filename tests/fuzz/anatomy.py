"""Fragments taken apart and put together again with any part changed, and checksums that match.

By the layout of SPEC.md sections 2 and 3, sharing no code with the readers.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable
from typing import Any

import xxhash
import zstandard
from msgspec import Struct, field
from msgspec.structs import replace

from tests.support.spec_footer import directory_bytes, page_bytes, read_footer

HEAD = struct.Struct("<BBHIIIQQQ")
NODE = struct.Struct("<BBBBIQQq")
PROLOGUE = struct.Struct("<8sHHI")
TRAILER = struct.Struct("<QQHHI4s")
_MAX_RAW_BYTES = 2 << 20


def xxh3(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)


class RawBlock(Struct, frozen=True, kw_only=True):
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
        fields += [stored_bytes, self.raw_bytes, xxh3(self._checked())]
        fields[5] = xxh3(HEAD.pack(*fields) + self.meta) & 0xFFFFFFFF
        return HEAD.pack(*fields) + self.meta + self.stored

    def raw(self) -> bytes:
        """Returns the payload, decompressed. Raises ValueError if it is too large, or not a frame."""
        if not self.codec:
            return self.stored
        try:
            return b"".join(map(_decompressed, self._frames()))
        except zstandard.ZstdError as error:
            raise ValueError("not a frame") from error

    def _checked(self) -> bytes:
        """The bytes of the payload that the header's checksum covers."""
        is_in_parts = self.codec == 2 and not 0x61 <= self.kind <= 0x7A
        return self.stored[: table_bytes(self.stored)] if is_in_parts else self.stored

    def _frames(self) -> list[bytes]:
        return parts_of(self.stored) if self.codec == 2 else [self.stored]

    def with_raw(self, raw: bytes) -> RawBlock:
        """The same block with another payload, compressed or not, or in as many parts, as it was."""
        stored = raw
        if self.codec == 1:
            stored = zstandard.compress(raw, 1)
        elif self.codec == 2:
            *sizes, _ = map(zstandard.frame_content_size, self._frames())
            stops = [0, *itertools.accumulate(sizes), len(raw)]
            stored = payload_of(
                [zstandard.compress(raw[a:b], 1) for a, b in itertools.pairwise(stops)]
            )
        return replace(self, stored=stored, raw_bytes=len(raw))


def table_bytes(stored: bytes) -> int:
    """The length of the table of a payload in parts, as it states it."""
    return 8 + 16 * int.from_bytes(stored[:8], "little")


def parts_of(stored: bytes) -> list[bytes]:
    """The parts of a payload by its table. Raises ValueError if they do not fill it."""
    stop = table_bytes(stored)
    if len(stored) < stop:
        raise ValueError("no table")
    parts = []
    for size, _ in struct.iter_unpack("<QQ", stored[8:stop]):
        parts.append(stored[stop : stop + size])
        stop += size
    if stop != len(stored):
        raise ValueError("parts that do not fill the payload")
    return parts


def payload_of(parts: list[bytes]) -> bytes:
    """A payload of these parts, with checksums that match."""
    entries = (struct.pack("<QQ", len(part), xxh3(part)) for part in parts)
    return b"".join((struct.pack("<Q", len(parts)), *entries, *parts))


def _decompressed(frame: bytes) -> bytes:
    if zstandard.frame_content_size(frame) > _MAX_RAW_BYTES:
        raise ValueError("a bomb")
    return zstandard.decompress(frame, _MAX_RAW_BYTES)


class Anatomy(Struct, kw_only=True):
    """A fragment in its parts."""

    version: int
    blocks: list[RawBlock]
    reserved: int = 0
    footer_offset: int | None = None
    total_bytes: int | None = None
    tail_version: int | None = None
    tail: bytes = b""
    """Bytes after the trailer."""
    is_linked: bool = True
    """Whether the footer's offsets and lengths are made those of the blocks as they are now."""
    edit_footer: list[Callable[[dict[str, Any]], object]] = field(default_factory=list)
    """What is done to the footer after that."""

    @classmethod
    def of(cls, data: bytes) -> Anatomy:
        version = PROLOGUE.unpack_from(data)[1]
        blocks, at = [], PROLOGUE.size
        while at < len(data) - TRAILER.size:
            block, at = read_block(data, at)
            blocks.append(block)
        return cls(version=version, blocks=blocks)

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
        version = self.version if self.tail_version is None else self.tail_version
        tail = struct.pack("<QQHH", footer & (2**64 - 1), total & (2**64 - 1), version, 0)
        parts.append(tail + struct.pack("<I", xxh3(tail) & 0xFFFFFFFF) + b"LSMF" + self.tail)
        return b"".join(parts)

    def _linked(self) -> list[RawBlock]:
        """Returns the blocks, with a footer that has the places of the others as they are now."""
        at = next((at for at, block in enumerate(self.blocks) if block.kind in b"SF"), None)
        if at is None or self.blocks[-1].kind != ord("F"):
            return self.blocks
        if not self.is_linked and not self.edit_footer:
            return self.blocks
        before, pages, directory = self.blocks[:at], self.blocks[at:-1], self.blocks[-1]
        try:
            footer = read_footer([page.raw() for page in pages], directory.raw())
            offset = _link(footer, before) if self.is_linked else 0
            for edit in self.edit_footer:
                edit(footer)
            written = []
            for number, page in enumerate(pages):
                written.append(page.with_raw(page_bytes(footer, number)))
                if self.is_linked and number < len(footer["pages"]):
                    footer["pages"][number]["offset"] = offset
                    offset += len(written[-1].to_bytes())
            return [*before, *written, directory.with_raw(directory_bytes(footer))]
        except (
            ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError, RecursionError,
            OverflowError, struct.error,
        ):  # fmt: skip
            return self.blocks  # there is no such footer any more


def _link(footer: dict[str, Any], blocks: list[RawBlock]) -> int:
    """Gives the footer the places of columns and chunks, as far as it has places for them.

    Returns the offset of what follows the blocks.
    """
    _link_schema(footer, json.loads(blocks[0].raw()))
    chunks: dict[str, list[tuple[int, int, int]]] = {}
    places: dict[str, list[int]] = {}
    keys: list[tuple[int, int, int]] = []
    at, name = PROLOGUE.size, ""
    for block in blocks:
        size = len(block.to_bytes())
        if block.kind == ord("C"):
            name = block.raw().decode(errors="replace")
            places[name] = [at, at + size]
        elif block.kind == ord("D"):
            chunks.setdefault(name, []).append((at, size, block.raw_bytes))
            places[name][1] = at + size
        elif block.kind == ord("K"):
            keys.append((at, size, block.raw_bytes))
        at += size
    sort = [column["column"] for column in footer["sort"]]
    key_end = 0
    for place, name in enumerate(sort):
        chunks[name] = keys[place :: len(sort)]
        if keys:
            key_end = keys[-1][0] + keys[-1][1]
            places[name] = [keys[0][0], key_end]
    end = key_end
    seen: set[int] = set()
    for column in footer["columns"]:
        found = chunks.get(column["name"], ())
        for group, (offset, size, raw) in enumerate(found):
            if group < len(column["offset"]):
                column["offset"][group], column["stored_bytes"][group] = offset, size
                column["raw_bytes"][group] = raw
        page = column["page"]
        if page is not None and page not in seen:
            seen.add(page)
            footer["pages"][page]["start"] = end
        if column["offset"] and column["name"] in places:
            column["start"], column["end"] = places[column["name"]]
            end = max(end, column["end"])
    footer["columns_end"] = end
    return at


def _link_schema(footer: dict[str, Any], header: dict[str, Any]) -> None:
    """Gives the footer what it has in common with the header."""
    footer |= {name: header[name] for name in ("sort", "max_rows", "required_features")}
    fields = {field["name"]: field for field in header["schema"]["fields"]}
    footer["schema_columns"] = len(header["schema"]["fields"])
    for column in footer["columns"]:
        if column["name"] in fields:
            column["field"] = {k: v for k, v in fields[column["name"]].items() if k != "name"}


def read_block(data: bytes, at: int) -> tuple[RawBlock, int]:
    """The block at an offset of an undamaged fragment, and where it ends."""
    kind, codec, _, rows, meta_bytes, _, stored_bytes, raw_bytes, _ = HEAD.unpack_from(data, at)
    meta_at = at + HEAD.size
    stored_at = meta_at + meta_bytes
    end = stored_at + stored_bytes
    block = RawBlock(
        kind=kind,
        codec=codec,
        rows=rows,
        meta=data[meta_at:stored_at],
        stored=data[stored_at:end],
        raw_bytes=raw_bytes,
    )
    return block, end
