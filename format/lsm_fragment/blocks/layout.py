"""Layout of prologue, block headers and trailer (SPEC sections 2 and 3). Pure: bytes in, bytes out."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

import xxhash

from lsm_fragment.errors import CorruptFragmentError, NotAFragmentError, UnsupportedVersionError

VERSION: Final = 1
KNOWN_FEATURES: Final[frozenset[str]] = frozenset()
"""The features of SPEC section 10 that this reader knows."""
MAGIC: Final = b"\x89LSMF\r\n\x1a"
TRAILER_MAGIC: Final = b"LSMF"

_PROLOGUE: Final = struct.Struct("<8sHHI")
_BLOCK: Final = struct.Struct("<BBHIIIQQQ")
_TRAILER: Final = struct.Struct("<QQHHI4s")
_CHECKSUM_SLICE: Final = slice(12, 16)
_NO_CHECKSUM: Final = bytes(4)

PROLOGUE_BYTES: Final = _PROLOGUE.size
BLOCK_HEADER_BYTES: Final = _BLOCK.size
TRAILER_BYTES: Final = _TRAILER.size
MAX_META_BYTES: Final = 64 << 20


class BlockKind(IntEnum):
    """The kind of a block; the values spell H, K, C, D, S, F."""

    HEADER = 0x48
    KEY = 0x4B
    COLUMN = 0x43
    DATA = 0x44
    STATISTICS = 0x53
    DIRECTORY = 0x46


class Codec(IntEnum):
    NONE = 0
    ZSTD = 1
    ZSTD_PARTS = 2
    """Several parts, each a frame with its own checksum (`lsm_fragment.blocks.parts`)."""


_KINDS: Final = {int(kind): kind for kind in BlockKind}
_CODECS: Final = {int(codec): codec for codec in Codec}


class BlockHeader(NamedTuple):
    """The fixed part of a block; `meta` and payload follow it."""

    kind: BlockKind
    codec: Codec
    rows: int
    meta_bytes: int
    stored_bytes: int
    raw_bytes: int
    payload_checksum: int
    header_checksum: int

    @property
    def block_bytes(self) -> int:
        """Bytes of the whole block: header, meta and payload."""
        return BLOCK_HEADER_BYTES + self.meta_bytes + self.stored_bytes


def checksum64(data: bytes | memoryview) -> int:
    return xxhash.xxh3_64_intdigest(data)


def checksum32(data: bytes | memoryview) -> int:
    return checksum64(data) & 0xFFFFFFFF


def pack_prologue() -> bytes:
    head = _PROLOGUE.pack(MAGIC, VERSION, 0, 0)[:12]
    return head + checksum32(head).to_bytes(4, "little")


def check_prologue(data: bytes, *, name: str) -> None:
    """Raises `NotAFragmentError`, `UnsupportedVersionError` or `CorruptFragmentError` unless the prologue is
    that of this version.
    """
    if len(data) == 0:
        raise NotAFragmentError(f"{name}: not a fragment: the object is empty", name=name)
    if len(data) < PROLOGUE_BYTES:
        if MAGIC.startswith(data[:8]) or data.startswith(MAGIC):
            raise CorruptFragmentError("truncated in the prologue", name=name, offset=len(data))
        raise NotAFragmentError(
            f"{name}: not a fragment: it does not begin with the magic bytes", name=name
        )
    magic, version, reserved, checksum = _PROLOGUE.unpack(data)
    if magic != MAGIC:
        raise NotAFragmentError(
            f"{name}: not a fragment: it does not begin with the magic bytes", name=name
        )
    if checksum != checksum32(data[:12]) or reserved != 0:
        raise CorruptFragmentError("the prologue is damaged", name=name, offset=0)
    _check_version(version, name)


def _check_version(version: int, name: str) -> None:
    if version != VERSION:
        raise UnsupportedVersionError(
            f"{name}: fragment version {version}, but this reader knows only version {VERSION}: upgrade it",
            name=name,
        )


def is_ancillary(kind: int) -> bool:
    """Returns whether readers that do not know the kind may skip the block."""
    return 0x61 <= kind <= 0x7A


def pack_block_header(
    kind: BlockKind,
    codec: Codec,
    *,
    rows: int,
    meta: bytes,
    stored_bytes: int,
    raw_bytes: int,
    payload_checksum: int,
) -> bytes:
    """Returns the 40 header bytes of a block.

    stored_bytes: of the payload as stored. payload_checksum: see
    `lsm_fragment.blocks.parts.payload_checksum`.
    """
    head = bytearray(
        _BLOCK.pack(
            kind, codec, 0, rows, len(meta), 0, stored_bytes, raw_bytes, payload_checksum
        )
    )  # fmt: skip
    head[_CHECKSUM_SLICE] = _header_checksum(head, meta).to_bytes(4, "little")
    return bytes(head)


def repack_block_header(header: BlockHeader) -> bytes:
    """Returns the 40 bytes of a verified header."""
    return _BLOCK.pack(
        header.kind, header.codec, 0, header.rows, header.meta_bytes, header.header_checksum,
        header.stored_bytes, header.raw_bytes, header.payload_checksum,
    )  # fmt: skip


def _header_checksum(head: bytes | bytearray, meta: bytes) -> int:
    """Returns the checksum of header and meta, with the checksum field as zeros."""
    start, stop = _CHECKSUM_SLICE.start, _CHECKSUM_SLICE.stop
    return checksum32(b"".join((head[:start], _NO_CHECKSUM, head[stop:], meta)))


def unpack_block_header(data: bytes, *, name: str, offset: int) -> BlockHeader:
    """Reads a block header. Its lengths are untrusted until `check_block_header`."""
    kind, codec, reserved, rows, meta_bytes, checksum, stored, raw, payload = _BLOCK.unpack(data)
    known_kind, known_codec = _KINDS.get(kind), _CODECS.get(codec)
    if known_kind is None or known_codec is None:
        raise CorruptFragmentError(
            f"no block begins here (kind {kind}, codec {codec})", name=name, offset=offset
        )
    if reserved != 0 or meta_bytes > MAX_META_BYTES:
        raise CorruptFragmentError("the block header is damaged", name=name, offset=offset)
    # By place: a merge of many small inputs reads tens of thousands, and names take a third of the time.
    return BlockHeader._make(
        (known_kind, known_codec, rows, meta_bytes, stored, raw, payload, checksum)
    )


def check_block_header(
    header: BlockHeader, data: bytes, meta: bytes, *, name: str, offset: int
) -> None:
    """Raises `CorruptFragmentError` unless the header checksum over `data` and `meta` matches."""
    check_header_checksum(header.header_checksum, data, meta, name=name, offset=offset)
    if header.codec is Codec.NONE and header.stored_bytes != header.raw_bytes:
        raise CorruptFragmentError(
            "an uncompressed block with two different lengths", name=name, offset=offset
        )


def check_header_checksum(
    checksum: int, data: bytes, meta: bytes, *, name: str, offset: int
) -> None:
    """Raises `CorruptFragmentError` unless the checksum over `data` and `meta` matches."""
    if _header_checksum(data, meta) != checksum:
        raise CorruptFragmentError(
            "the block header's checksum does not match", name=name, offset=offset
        )


class SkippedBlock(NamedTuple):
    """The fields that are needed to verify and skip a block of any kind."""

    meta_bytes: int
    header_checksum: int
    stored_bytes: int
    payload_checksum: int


def unpack_skipped(data: bytes, *, name: str, offset: int) -> SkippedBlock:
    """Reads the header of a block to be skipped; its kind and codec may be unknown."""
    _, _, _, _, meta_bytes, checksum, stored, _, payload = _BLOCK.unpack(data)
    if meta_bytes > MAX_META_BYTES:
        raise CorruptFragmentError("the block header is damaged", name=name, offset=offset)
    return SkippedBlock(meta_bytes, checksum, stored, payload)


def pack_trailer(directory_offset: int, total_bytes: int) -> bytes:
    head = struct.pack("<QQHH", directory_offset, total_bytes, VERSION, 0)
    return head + checksum32(head).to_bytes(4, "little") + TRAILER_MAGIC


def unpack_trailer(data: bytes, *, name: str, total_bytes: int) -> int:
    """Returns the offset of the directory's block. total_bytes: the actual length of the object."""
    offset = max(0, total_bytes - TRAILER_BYTES)
    if len(data) < TRAILER_BYTES or data[-4:] != TRAILER_MAGIC:
        raise CorruptFragmentError(
            "no trailer at the end: truncated, or not a fragment", name=name, offset=offset
        )
    directory_offset, stated_bytes, version, reserved, checksum, _ = _TRAILER.unpack(data)
    if checksum != checksum32(data[:-8]) or reserved != 0:
        raise CorruptFragmentError("the trailer is damaged", name=name, offset=offset)
    _check_version(version, name)
    if stated_bytes != total_bytes:
        raise CorruptFragmentError(
            f"the object has {total_bytes} bytes where {stated_bytes} were written",
            name=name,
            offset=offset,
        )
    if not PROLOGUE_BYTES <= directory_offset < offset:
        raise CorruptFragmentError("the trailer points nowhere", name=name, offset=offset)
    return int(directory_offset)
