"""Packs the skip index of one column of a fragment into a block of the fragment format.

The block holds one value per row group; null if there is no summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from lsm_fragment.blocks.layout import BlockKind
from lsm_fragment.container.chunk import make_chunk

_LEVEL: Final = 1
TYPE: Final = pa.large_binary()


def pack(summaries: Sequence[bytes | None]) -> bytes:
    """Returns the block of one column. summaries: one per row group."""
    return make_chunk(pa.array(summaries, TYPE), level=_LEVEL).block(BlockKind.DATA)
