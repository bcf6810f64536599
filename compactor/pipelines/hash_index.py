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
        distinct = hashes[starts]
        self._first = starts
        self._counts = np.diff(starts, append=len(hashes))
        self._is_distinct = len(starts) == len(hashes)
        bits = min(_MAX_BITS, 1 + len(starts).bit_length())
        self._shift = np.uint64(64 - bits)
        buckets = np.bincount((distinct >> self._shift).view(np.int64), minlength=1 << bits)
        self._stops = np.append(0, np.cumsum(buckets)).astype(np.int32)
        # What is looked for in an empty bucket is compared with the first hash of a later one, or with this
        # copy of the last one: never with one of its own bucket.
        self._distinct = np.append(distinct, distinct[-1:])

    def find(self, hashes: U64) -> tuple[I64, I64]:
        """Returns the place of the first equal hash of each, and how many there are. Shape (hashes,)."""
        if not len(self._first):
            first, counts = np.zeros((2, len(hashes)), dtype=np.int64)
            return first, counts
        bucket = (hashes >> self._shift).view(np.int64)
        place = self._stops.take(bucket)
        is_found = self._distinct.take(place) == hashes
        # Buckets have half a hash on average, so few rows are left after a step or two.
        left = np.flatnonzero(~is_found)
        at, stop = place[left] + 1, self._stops.take(bucket[left] + 1)
        while len(left):
            goes_on = at < stop
            left, at, stop = left[goes_on], at[goes_on], stop[goes_on]
            is_same = self._distinct.take(at) == hashes[left]
            found = left[is_same]
            place[found] = at[is_same]
            is_found[found] = True
            left, at, stop = left[~is_same], at[~is_same] + 1, stop[~is_same]
        place[~is_found] = 0
        if self._is_distinct:
            return place.astype(np.int64), is_found.astype(np.int64)
        return self._first.take(place), self._counts.take(place) * is_found
