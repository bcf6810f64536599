"""Packs the skip index of one column of a fragment into a block of the fragment format.

The block holds a value for each row group, null where none was kept.
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
    """Returns the block of one column of a fragment. summaries: one for each row group."""
    return make_chunk(pa.array(summaries, TYPE), level=_LEVEL).block(BlockKind.DATA)
