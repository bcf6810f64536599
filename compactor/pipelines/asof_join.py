"""As-of join: each row of one side beside the last row of the other, of equal keys, at or before it in time.

Both sides come in the order of keys and time. Of rows that have passed, only the last can be anybody's later.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from compactor.pipelines.pairing import Joined
from compactor.pipelines.sorted_rows import (
    I64,
    Batches,
    SortedRows,
    common_ranks,
    end_to_end,
    key_arrays,
    known_rows,
    no_rows,
)


class AsofJoin:
    """Rows by keys and time, then as the left side's came. Of rows of the right side at the same time the
    last counts. Null and NaN are at no time, and equal to nothing."""

    def __init__(
        self, left: SortedRows, right: SortedRows, joined: Joined, *, keeps_all: bool
    ) -> None:
        """Both sides by keys and time, upwards. keeps_all: rows that have none before them too."""
        self._left = left
        self._right = right
        self._joined = joined
        self._keeps_all = keeps_all
        self._names = [part.column for part in right.sort]
        self._last = no_rows(right.schema)
        """The right side's row that passed last."""

    def rows(self) -> Batches:
        """Once. Raises `MemoryLimitError`."""
        with self._left.room.working():
            while self._left.fill():
                keys = self._left.keys
                rows = self._left.take(self._left.rows.num_rows)
                known = np.flatnonzero(known_rows(keys, rows.num_rows))
                yield from self._matched(rows, [key.take(pa.array(known)) for key in keys], known)

    def _matched(self, rows: pa.RecordBatch, keys: Sequence[pa.Array], known: I64) -> Batches:
        """The chunk's rows with theirs. keys: of the known ones."""
        start, done = 0, 0
        if len(known):
            last = [key.slice(len(known) - 1) for key in keys]
            for piece in self._right.take_through(last):
                passed = end_to_end([self._last, piece])
                at, theirs = common_ranks(
                    [[key.slice(start) for key in keys], key_arrays(passed, self._names)],
                    self._right.sort,
                )
                # Those at the time of the last row may find a later one of that time.
                stop = start + int(np.searchsorted(at, theirs[-1]))
                if stop > start:
                    until = int(known[stop]) if stop < len(known) else rows.num_rows
                    some = [key.slice(start, stop - start) for key in keys]
                    yield from self._beside(rows, (done, until), known[start:stop], some, passed)
                    start, done = stop, until
                self._last = passed.slice(passed.num_rows - 1)
        some = [key.slice(start) for key in keys]
        yield from self._beside(rows, (done, rows.num_rows), known[start:], some, self._last)

    def _beside(
        self, rows: pa.RecordBatch, span: tuple[int, int], known: I64,
        keys: Sequence[pa.Array], others: pa.RecordBatch,
    ) -> Batches:  # fmt: skip
        """Rows of this span, with what of the others is theirs."""
        found = np.full(span[1] - span[0], -1)
        found[known - span[0]] = self._last_before(keys, others)
        every = np.arange(*span)
        if not self._keeps_all:
            every, found = every[found >= 0], found[found >= 0]
        sides = [batch.nbytes / batch.num_rows for batch in (rows, others) if batch.num_rows]
        most = self._left.room.rows_of(sum(sides))
        for start in range(0, len(every), most):
            some = slice(start, start + most)
            yield self._joined.rows(rows, every[some], others, found[some])

    def _last_before(self, keys: Sequence[pa.Array], others: pa.RecordBatch) -> I64:
        """Which of the others is the last at or before each; -1: none. Shape (rows,).

        One without time, or of NaN, comes after all rows of its keys, and so is none.
        """
        theirs = key_arrays(others, self._names)
        at, when = common_ranks([keys, theirs], self._right.sort)
        found = np.searchsorted(when, at, "right") - 1
        if len(keys) > 1 and len(when):
            groups, their_groups = common_ranks([keys[:-1], theirs[:-1]], self._right.sort[:-1])
            found[their_groups[found] != groups] = -1
        return found
