"""Spools the column section to memory and disk until the key section is written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, Final

from lsm_fragment.blocks.layout import BlockKind
from lsm_fragment.container.chunk import Chunk
from lsm_fragment.container.footer import ChunkStats

SPOOL_MEMORY_BYTES: Final = 16 << 20
"""Keep at most this much of encoded columns in memory while writing a fragment; the rest goes to a
temporary file."""


Parts = tuple[bytes, ...]
"""The bytes of a block, in one or more parts."""


class ColumnSpool:
    """Finished blocks by column, in memory and, beyond its limit, in a temporary file."""

    def __init__(self, memory_bytes: int) -> None:
        self._left_bytes = memory_bytes
        self._file: IO[bytes] | None = None
        self._file_bytes = 0
        self._blocks: dict[str, list[tuple[ChunkStats, Parts | None]]] = {}
        """The blocks of each column; None for a block in the file, at the offset in its statistics."""
        self._has_values: set[str] = set()

    def append(self, name: str, chunk: Chunk) -> None:
        parts = tuple(
            map(bytes, chunk.parts(BlockKind.DATA))
        )  # copies: views would keep more memory alive
        size = sum(map(len, parts))
        stats = chunk.stats(offset=self._file_bytes, stored_bytes=size)
        is_held = size <= self._left_bytes
        if is_held:
            self._left_bytes -= size
        else:
            self._write(parts, size)
        self._blocks.setdefault(name, []).append((stats, parts if is_held else None))
        if chunk.null_count < chunk.rows:
            self._has_values.add(name)

    def has_values(self, name: str) -> bool:
        return name in self._has_values

    def blocks(self, name: str) -> Iterator[tuple[Parts, ChunkStats]]:
        """Yields the parts of the column's blocks in row-group order, and their statistics with undefined
        offsets."""
        for stats, parts in self._blocks.pop(name):
            if parts is None:
                assert self._file is not None
                self._file.seek(stats.offset)
                parts = (self._file.read(stats.stored_bytes),)
            yield parts, stats

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, parts: Parts, size: int) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._file.writelines(parts)
        self._file_bytes += size
