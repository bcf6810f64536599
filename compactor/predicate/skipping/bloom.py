"""Split-block Bloom filters: one cache line per lookup, no false negatives.

The layout is Parquet's (Putze, Sanders, Singler 2007; Apache Impala): a hash selects a block of 256 bits and
sets one bit in each of its eight words.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lsm_fragment.arrays.hashing import distinct_numbers

U64 = npt.NDArray[np.uint64]

BLOCK_BYTES: Final = 32
_BITS_PER_VALUE: Final = 12
_MIN_BITS_PER_VALUE: Final = 3
"""Store no filter with fewer bits per value: nearly every lookup would be a false positive."""
_SALTS: Final = np.array(
    [
        0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
    ],
    dtype=np.uint32,
)  # fmt: skip


def build(hashes: U64, max_bytes: int) -> bytes | None:
    """Builds a filter from the values' hashes; returns None if `max_bytes` is too small for a useful one."""
    distinct = distinct_numbers(hashes)
    wanted = -(-len(distinct) * _BITS_PER_VALUE // (8 * BLOCK_BYTES))
    blocks = max(1, min(wanted, max_bytes // BLOCK_BYTES))
    if blocks * BLOCK_BYTES * 8 < len(distinct) * _MIN_BITS_PER_VALUE or max_bytes < BLOCK_BYTES:
        return None
    words = np.zeros((blocks, len(_SALTS)), dtype=np.uint32)
    which, bits = _places(distinct, blocks)
    for word in range(len(_SALTS)):
        np.bitwise_or.at(words[:, word], which, bits[:, word])
    return words.astype("<u4").tobytes()


def may_hold(data: bytes, hashes: U64) -> npt.NDArray[np.bool_]:
    """Returns, for each hash, whether its value may be in the filter; False is certain."""
    words = np.frombuffer(data, dtype="<u4").reshape(-1, len(_SALTS))
    which, bits = _places(hashes, len(words))
    found: npt.NDArray[np.bool_] = ((words[which] & bits) == bits).all(axis=1)
    return found


def _places(hashes: U64, blocks: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Returns the block of each hash, shape (hashes,), and a bit in each of its words, shape (hashes, 8)."""
    which = ((hashes >> np.uint64(32)) * np.uint64(blocks)) >> np.uint64(32)
    low = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    shifts = (low[:, None] * _SALTS[None, :]) >> np.uint32(27)
    return which.astype(np.int64), np.uint32(1) << shifts
