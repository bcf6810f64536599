"""Sort-merge join: reads both sides in key order, in bounded memory.

Each step takes a chunk per side. Rows below the lesser of the two last keys are complete on both sides and
are joined at once. Rows of that key may continue over any number of chunks: the right side's go to a buffer,
which may spill, and the left side's are crossed with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.pairing import How, Joined, Pairing
from compactor.pipelines.sorted_rows import (
    CHUNK_ROWS,
    I64,
    Batches,
    Flags,
    SortedRows,
    common_ranks,
    known_rows,
)
from lsm_fragment.arrays.batches import concat_rows, no_rows


class MergeJoin:
    """A sort-merge join of two sorted sides.

    Results are ordered by key, then by left row, then by right row. Unmatched right rows follow the left rows
    of their key. Null and NaN never match.
    """

    def __init__(self, left: SortedRows, right: SortedRows, joined: Joined, how: How) -> None:
        """left, right: both sorted by the join keys, pairwise in the same direction."""
        self._left = left
        self._right = right
        self._sort = left.sort
        self._joined = joined
        self._how = how
        self._room = left.room
        self._no_left = no_rows(left.schema)
        self._no_right = no_rows(right.schema)
        self._run: BatchBuffer = left.room.new_buffer(right.schema)
        """Right rows of the current key."""

    def rows(self) -> Batches:
        """Yields the joined rows; may be called once. Raises `MemoryLimitError`."""
        with self._room.working():
            while any([self._left.fill(), self._right.fill()]):
                yield from self._step()

    def _step(self) -> Batches:
        lefts, rights = common_ranks([self._left.keys, self._right.keys], self._sort)
        last = min(int(ranks[-1]) for ranks in (lefts, rights) if len(ranks))
        before, before_right = (int(np.searchsorted(ranks, last)) for ranks in (lefts, rights))
        pairing = self._pairing(
            lefts[:before],
            rights[:before_right],
            known_rows(self._left.keys, len(lefts))[:before],
            known_rows(self._right.keys, len(rights))[:before_right],
        )
        yield from self._paired(self._left.take(before), self._right.take(before_right), pairing)
        side = self._left if len(lefts) and int(lefts[-1]) == last else self._right
        yield from self._one_key([key.slice(0, 1) for key in side.keys])

    def _pairing(self, lefts: I64, rights: I64, known_left: Flags, known_right: Flags) -> Pairing:
        """Pairs rows by rank. Both sides must be complete for these ranks."""
        first = np.searchsorted(rights, lefts)
        count = np.searchsorted(rights, lefts, "right") - first
        count[~known_left] = 0
        if self._how.is_probe_only:
            return _alone(np.flatnonzero((count > 0) == (self._how is How.SEMI)))
        kept = np.flatnonzero((count > 0) | self._how.keeps_left)
        found = Pairing(
            kept,
            np.where(count > 0, first, -1)[kept],
            np.maximum(count, 1)[kept],
        )
        if not self._how.keeps_right:
            return found
        theirs = np.searchsorted(lefts, rights, "right") - np.searchsorted(lefts, rights)
        alone = np.flatnonzero((theirs == 0) | ~known_right)
        order = np.argsort(np.concatenate([lefts[kept], rights[alone]]), kind="stable")
        missing = np.full(len(alone), -1)
        return Pairing(
            np.concatenate([found.left, missing])[order],
            np.concatenate([found.first, alone])[order],
            np.concatenate([found.count, np.ones(len(alone), dtype=np.int64)])[order],
        )

    def _paired(self, left: pa.RecordBatch, right: pa.RecordBatch, pairing: Pairing) -> Batches:
        for of_left, of_right in pairing.slices(self._max_rows(left, right)):
            yield self._joined.rows(left, of_left, right, of_right)

    def _one_key(self, key: Sequence[pa.Array]) -> Batches:
        """Joins all rows of this key, the lesser of the sides' next keys."""
        is_known = bool(known_rows(key, 1)[0])
        lefts = self._left.take_through(key)
        if self._how.is_probe_only:
            matches = sum(right.num_rows for right in self._right.take_through(key))
            is_kept = (is_known and matches > 0) == (self._how is How.SEMI)
            for left in lefts:
                if is_kept:
                    yield from self._left_alone(left)
            return
        left = next(lefts, None) if is_known else None
        if left is None:
            for left in lefts if not is_known else ():
                yield from self._unmatched(left, is_left=True)
            for right in self._right.take_through(key):
                yield from self._unmatched(right, is_left=False)
            return
        for right in self._right.take_through(key):
            self._run.append(right)
        matches = self._matches()
        while left is not None:
            yield from (
                self._crossed(left, matches) if matches else self._unmatched(left, is_left=True)
            )
            left = next(lefts, None)
        self._run.close()

    def _matches(self) -> BatchBuffer | list[pa.RecordBatch]:
        """Returns the right rows of the current key, as one batch if they fit into a chunk: each left row
        loops over all pieces."""
        pieces, rows, size = [], 0, 0
        for piece in self._run:
            pieces.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
            if rows > CHUNK_ROWS or size > self._room.chunk_bytes:
                return self._run
        return [concat_rows(pieces)] if pieces else []

    def _crossed(
        self, left: pa.RecordBatch, matches: BatchBuffer | list[pa.RecordBatch]
    ) -> Batches:
        """Yields the cross product of the left rows and all matches."""
        if isinstance(matches, list):
            yield from self._every(left, np.arange(left.num_rows), matches[0])
            return
        for row in range(left.num_rows):  # each yields more than a chunk
            for right in matches:
                yield from self._every(left, np.array([row]), right)

    def _every(self, left: pa.RecordBatch, rows: I64, right: pa.RecordBatch) -> Batches:
        zeros = np.zeros(len(rows), dtype=np.int64)
        return self._paired(left, right, Pairing(rows, zeros, zeros + right.num_rows))

    def _unmatched(self, rows: pa.RecordBatch, *, is_left: bool) -> Batches:
        """Yields unmatched rows padded with nulls, if the join keeps them."""
        if is_left and self._how.keeps_left:
            yield from self._left_alone(rows)
        if not is_left and self._how.keeps_right:
            alone = _alone(np.arange(rows.num_rows))
            yield from self._paired(
                self._no_left, rows, Pairing(alone.first, alone.left, alone.count)
            )

    def _left_alone(self, rows: pa.RecordBatch) -> Batches:
        return self._paired(rows, self._no_right, _alone(np.arange(rows.num_rows)))

    def _max_rows(self, left: pa.RecordBatch, right: pa.RecordBatch) -> int:
        sides = [batch.nbytes / batch.num_rows for batch in (left, right) if batch.num_rows]
        return self._room.rows_of(sum(sides))


def _alone(places: I64) -> Pairing:
    """Pairs left rows with no row."""
    return Pairing(places, np.full(len(places), -1), np.ones(len(places), dtype=np.int64))
