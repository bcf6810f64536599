"""Classifies rows in merged order key by key: which a tombstone removes, and which is oldest or newest.

Rows of one key follow one another, the oldest first. An example with keys `a` and `b`:

    key         a  a  a  a  b  b
    tombstone   .  x  .  .  .  .
    first       x  .  .  .  x  .     the first row of its key
    last        .  .  .  x  .  x     the last row of its key
    live        .  .  x  x  x  x     newer than the newest tombstone of its key
    oldest live .  .  x  .  x  .     what the policy `first` keeps
    newest live .  .  .  x  .  x     what the other policies keep
    barrier     .  x  .  .  .  .     the newest tombstone of its key, which removes older rows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
_NONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRows:
    """Masks of shape (rows,) over rows of whole keys."""

    live: Mask
    oldest_live: Mask
    newest_live: Mask
    barrier: Mask
    last: Mask
    _number: npt.NDArray[np.int64]
    """Number of each row's key, from 0. Shape (rows,)."""

    @classmethod
    def of(cls, first: Mask, tombstone: Mask) -> Self:
        """Classifies at least one row. first: whether each row is the first of its key; the first row is."""
        at = np.arange(len(first))
        number = np.cumsum(first) - 1
        last = np.append(first[1:], True)
        begins = np.flatnonzero(first)
        newest_tombstone = np.full(len(begins), _NONE)
        # The last of several tombstones of a key stays, since numpy assigns in order.
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
        """Returns all rows of the keys that have any of these rows. Shape (rows,)."""
        keys = np.zeros(int(self._number[-1]) + 1, dtype=np.bool_)
        keys[self._number[rows]] = True
        return keys[self._number]
