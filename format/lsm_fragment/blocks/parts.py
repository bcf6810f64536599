"""Divides payloads into parts, each with its own checksum (SPEC section 3).

A payload of one part has no table: its checksum is in the block header. A payload of several parts begins
with a table of their checksums, and the block header has the checksum of the table. So each part can be read
and verified alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lsm_fragment.blocks.layout import BlockHeader, Codec, checksum64

MAX_PARTS: Final = 8
_COUNT: Final = struct.Struct("<Q")
_ENTRY: Final = struct.Struct("<QQ")
MAX_TABLE_BYTES: Final = _COUNT.size + MAX_PARTS * _ENTRY.size
"""This much of a payload always includes its table."""
_MISMATCH: Final = "the payload's checksum does not match"


class PayloadPart(NamedTuple):
    """The place of a part in a payload, and the checksum of its stored bytes."""

    start: int
    stop: int
    checksum: int

    def check(self, stored: bytes | memoryview) -> None:
        """Raises `ValueError` unless the bytes match the part's checksum."""
        if checksum64(stored) != self.checksum:
            raise ValueError(_MISMATCH)


def joined_parts(parts: Sequence[bytes]) -> bytes:
    """Joins several parts to a payload, with their table first."""
    entries = (_ENTRY.pack(len(part), checksum64(part)) for part in parts)
    return b"".join((_COUNT.pack(len(parts)), *entries, *parts))


def payload_checksum(codec: Codec, stored: bytes) -> int:
    """Returns the checksum of a payload for the block header."""
    if codec is not Codec.ZSTD_PARTS:
        return checksum64(stored)
    return checksum64(memoryview(stored)[: _table_bytes(stored)])


def check_payload(header: BlockHeader, stored: bytes | memoryview) -> None:
    """Verifies all bytes of a payload. Raises `ValueError`."""
    if header.codec is not Codec.ZSTD_PARTS:
        if checksum64(stored) != header.payload_checksum:
            raise ValueError(_MISMATCH)
        return
    view = memoryview(stored)
    for part in checked_parts(header, stored):
        part.check(view[part.start : part.stop])


def checked_parts(header: BlockHeader, beginning: bytes | memoryview) -> list[PayloadPart]:
    """Returns the parts of a payload, after verifying their table.

    beginning: at least the first `MAX_TABLE_BYTES` of the payload, or all of it. Raises `ValueError`.
    """
    if header.codec is not Codec.ZSTD_PARTS:
        return [PayloadPart(0, header.stored_bytes, header.payload_checksum)]
    table = memoryview(beginning)[: _table_bytes(beginning)]
    if checksum64(table) != header.payload_checksum:
        raise ValueError("the checksum of the payload's parts does not match")
    return list(read_parts(beginning, header.stored_bytes))


def read_parts(beginning: bytes | memoryview, stored_bytes: int) -> Iterator[PayloadPart]:
    """Yields the parts of a payload that has several.

    beginning: see `checked_parts`. stored_bytes: the length of the whole payload. Raises `ValueError`.
    """
    stop = table_bytes = _table_bytes(beginning)
    for place in range(_COUNT.size, table_bytes, _ENTRY.size):
        length, checksum = _ENTRY.unpack_from(beginning, place)
        yield PayloadPart(stop, stop + length, checksum)
        stop += length
    if stop != stored_bytes:
        raise ValueError("the payload's parts do not fill it")


def _table_bytes(beginning: bytes | memoryview) -> int:
    """Returns the length of the table. Raises `ValueError` if it is invalid or incomplete."""
    if len(beginning) >= _COUNT.size:
        (count,) = _COUNT.unpack_from(beginning)
        if not 1 < count <= MAX_PARTS:
            raise ValueError(f"the payload has {count} parts")
        size = _COUNT.size + int(count) * _ENTRY.size
        if len(beginning) >= size:
            return size
    raise ValueError("the payload is too short for its parts")
