"""Classifies rows in merged order, key by key: removed by a tombstone, oldest, newest.

Rows of one key are adjacent, the oldest first. An example with keys `a` and `b`:

    key         a  a  a  a  b  b
    tombstone   .  x  .  .  .  .
    first       x  .  .  .  x  .     the first row of its key
    last        .  .  .  x  .  x     the last row of its key
    live        .  .  x  x  x  x     newer than the newest tombstone of its key
    oldest live .  .  x  .  x  .     kept by the policy `first`
    newest live .  .  .  x  .  x     kept by the other policies
    barrier     .  x  .  .  .  .     the newest tombstone of its key, which removes older rows
"""

from __future__ import annotations

from typing import Final, Self

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Mask = npt.NDArray[np.bool_]
_NONE: Final = -1


class KeyRows(Struct, frozen=True, kw_only=True):
    """Masks of shape (rows,) over the rows of whole keys."""

    live: Mask
    oldest_live: Mask
    newest_live: Mask
    barrier: Mask
    last: Mask
    _number: npt.NDArray[np.int64]
    """Ordinal of each row's key, from 0. Shape (rows,)."""

    @classmethod
    def of(cls, first: Mask, tombstone: Mask) -> Self:
        """Classifies rows, at least one. first: whether each row is the first of its key; row 0 must be."""
        at = np.arange(len(first))
        number = np.cumsum(first) - 1
        last = np.append(first[1:], True)
        begins = np.flatnonzero(first)
        newest_tombstone = np.full(len(begins), _NONE)
        # numpy assigns in order, so the last tombstone of a key wins.
        newest_tombstone[number[tombstone]] = at[tombstone]
        live = at > newest_tombstone[number]
        oldest_live = live & (at == np.maximum(begins, newest_tombstone + 1)[number])
        barrier = tombstone & (at == newest_tombstone[number])
        return cls(
            live=live,
            oldest_live=oldest_live,
            newest_live=live & last,
            barrier=barrier,
            last=last,
            _number=number,
        )

    def of_keys_with(self, rows: Mask) -> Mask:
        """Returns a mask of all rows that share a key with any of these rows. Shape (rows,)."""
        keys = np.zeros(int(self._number[-1]) + 1, dtype=np.bool_)
        keys[self._number[rows]] = True
        return keys[self._number]
