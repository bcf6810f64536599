"""Checks a footer against the chunks that a forward reader saw.

Every fault is a `ValueError` with the cause; the caller knows the place and adds it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import xxhash

from lsm_fragment.blocks.layout import BlockHeader
from lsm_fragment.encodings.node import Encoding
from lsm_fragment.footer import ChunkStats

_CHUNK: Final = struct.Struct("<BQQQQ")
_NULL_COUNT: Final = slice(16, 24)
_ENCODINGS: Final = {encoding.name: int(encoding) for encoding in Encoding}


class Sequel:
    """A checksum of the chunks that were seen, to compare with those of the footer that follows them."""

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
        """Adds chunks as a footer states them."""
        for chunk in chunks:
            self._seen.update(
                _CHUNK.pack(
                    _ENCODINGS[chunk.encoding], chunk.null_count, chunk.offset, chunk.stored_bytes,
                    chunk.raw_bytes,
                )
            )  # fmt: skip

    def check(self, stated: Sequel) -> None:
        """Raises `ValueError` unless `stated` had the same chunks."""
        if stated._seen.digest() != self._seen.digest():
            raise ValueError("the footer's chunks are not those that came before it")
