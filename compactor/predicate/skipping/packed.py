"""Packs the skip index of one column of a fragment into a block of the fragment format.

The block holds one value per row group; null if there is no summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from lsm_fragment.blocks.layout import BlockKind, checksum64
from lsm_fragment.container.chunk import make_chunk

_LEVEL: Final = 1
TYPE: Final = pa.large_binary()


class BlockPlace(NamedTuple):
    """Where a column's block is in its object."""

    offset: int
    length: int
    hash: int
    """XXH3 of the block's bytes: another one may lie there."""

    @classmethod
    def of(cls, block: bytes, offset: int) -> BlockPlace:
        return cls(offset, len(block), checksum64(block))


NO_BLOCK: Final = BlockPlace(0, 0, 0)
"""Stands for the block of a column of which nothing was worth keeping."""


def pack(summaries: Sequence[bytes | None]) -> bytes:
    """Returns the block of one column. summaries: one per row group."""
    return make_chunk(pa.array(summaries, TYPE), level=_LEVEL).block(BlockKind.DATA)
