"""Handles copied row groups, which are written as they were stored, without being decompressed.

Only the input's footer has the statistics of their chunks. It comes last, as does the output's footer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk, Region
from compactor.resources.merge_stages import CHUNKS
from compactor.resources.reservation import Reservation
from lsm_fragment.container.block import Block
from lsm_fragment.container.directory import Directory
from lsm_fragment.container.footer import ChunkStats, ValueStats

_VALUES_BYTES: Final = 256
"""Bytes of one chunk's value statistics as Python objects."""


class StoredKeys:
    """A row group's sort columns as stored, until it is decided whether it is copied: in memory or on local
    disk."""

    def __init__(self, blocks: Sequence[Block], budget: MemoryBudget, disk: LocalDisk) -> None:
        self._blocks = list(blocks)
        self._disk = disk
        self._region: Region | None = None
        self._memory = Reservation(budget, CHUNKS, sum(len(block.stored) for block in blocks))

    @property
    def held_bytes(self) -> int:
        return self._memory.size

    def take(self) -> list[Block]:
        """Returns the chunks, and no longer holds them."""
        if self._region is None:
            blocks = self._blocks
        else:
            data, at, blocks = self._disk.read(self._region), 0, []
            for block in self._blocks:
                end = at + block.header.stored_bytes
                blocks.append(block._replace(stored=data[at:end]))
                at = end
        self.drop()
        return blocks

    def drop(self) -> None:
        """Drops the chunks."""
        self._blocks = []
        self._memory.free()
        if self._region is not None:
            self._disk.release(self._region)
            self._region = None

    def spill(self) -> int:
        """Moves the chunks to disk. Returns how many bytes that frees."""
        if not self._memory.size:
            return 0
        self._region = self._disk.allocate(self._memory.size)
        self._disk.write(self._region, b"".join(block.stored for block in self._blocks))
        self._blocks = [block._replace(stored=b"") for block in self._blocks]
        return self._memory.free()


class CopiedRowGroups:
    """Row groups of one input that were copied."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._values: dict[str, dict[int, ValueStats]] = {}
        self._row_hashes: dict[int, int] = {}

    def add(self, group: int) -> None:
        """Adds a row group by its number in the input."""
        self._groups.add(group)

    def take_column(self, name: str, chunks: Sequence[ChunkStats]) -> None:
        """Takes the statistics of a column from the input's footer."""
        self._values[name] = {
            g: ValueStats(chunks[g].min, chunks[g].max, chunks[g].decoded_bytes)
            for g in self._groups
        }

    def take_row_hashes(self, directory: Directory) -> None:
        self._row_hashes = {g: directory.row_groups[g].row_hash for g in self._groups}

    @property
    def nbytes(self) -> int:
        """About how many bytes are held of the footer."""
        return _VALUES_BYTES * len(self._values) * len(self._groups)

    def row_hash(self, group: int) -> int:
        return self._row_hashes[group]

    def values(self, column: str, group: int) -> ValueStats | None:
        """Returns the statistics of a chunk's values; None for a column that the input does not have."""
        return self._values.get(column, {}).get(group)
