"""Finds equal hashes by their first bits, in whole batches."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from compactor.pipelines.sorted_rows import I64

U64 = npt.NDArray[np.uint64]
_MAX_BITS: Final = 24
"""A bucket takes four bytes: 64 MiB at most, for some millions of hashes."""


class HashIndex:
    """Sorted hashes, and where those with the same first bits begin."""

    def __init__(self, hashes: U64) -> None:
        """hashes: ascending. Shape (hashes,)."""
        starts = np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]))
        self._distinct = hashes[starts]
        self._first = starts
        self._counts = np.diff(starts, append=len(hashes))
        bits = min(_MAX_BITS, 1 + len(starts).bit_length())
        self._shift = np.uint64(64 - bits)
        buckets = np.bincount((self._distinct >> self._shift).astype(np.int64), minlength=1 << bits)
        self._longest = int(buckets.max(initial=0))
        self._stops = np.append(0, np.cumsum(buckets)).astype(np.int32)

    def find(self, hashes: U64) -> tuple[I64, I64]:
        """Returns the place of the first equal hash of each, and how many there are. Shape (hashes,)."""
        first, counts = np.zeros((2, len(hashes)), dtype=np.int64)
        bucket = (hashes >> self._shift).astype(np.int64)
        at, stop = self._stops[bucket], self._stops[bucket + 1]
        # Buckets have half a hash on average, so few rows are left after a step or two.
        left = np.flatnonzero(at < stop)
        at, stop = at[left], stop[left]
        for _ in range(self._longest):
            is_found = self._distinct[at] == hashes[left]
            place = at[is_found]
            first[left[is_found]] = self._first[place]
            counts[left[is_found]] = self._counts[place]
            goes_on = ~is_found & (at + 1 < stop)
            left, at, stop = left[goes_on], at[goes_on] + 1, stop[goes_on]
            if not len(left):
                break
        return first, counts
