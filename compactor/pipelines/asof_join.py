"""As-of join: matches each left row with the last right row of equal keys at or before its time.

Both sides are sorted by keys and time, so of the right rows already passed only the last can still match.
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
    key_arrays,
    known_rows,
)
from lsm_fragment.arrays.batches import concat_rows, no_rows
from lsm_fragment.arrays.moves import take


class AsofJoin:
    """An as-of join of two sorted sides.

    Results are ordered by keys and time, then by left row. Of right rows with equal times the last one wins.
    Null and NaN, as key or time, never match.
    """

    def __init__(
        self, left: SortedRows, right: SortedRows, joined: Joined, *, keeps_all: bool
    ) -> None:
        """left, right: sorted by keys and time, ascending. keeps_all: keep unmatched left rows."""
        self._left = left
        self._right = right
        self._joined = joined
        self._keeps_all = keeps_all
        self._names = [part.column for part in right.sort]
        self._last = no_rows(right.schema)
        """The last right row passed, or no row."""

    def rows(self) -> Batches:
        """Yields the joined rows; may be called once. Raises `MemoryLimitError`."""
        with self._left.room.working():
            while self._left.fill():
                keys = self._left.keys
                rows = self._left.take(self._left.rows.num_rows)
                known = np.flatnonzero(known_rows(keys, rows.num_rows))
                yield from self._matched(rows, [take(key, known) for key in keys], known)

    def _matched(self, rows: pa.RecordBatch, keys: Sequence[pa.Array], known: I64) -> Batches:
        """Yields the chunk's rows with their matches. keys: keys of the rows listed in `known`."""
        start, done = 0, 0
        if len(known):
            last = [key.slice(len(known) - 1) for key in keys]
            for piece in self._right.take_through(last):
                passed = concat_rows([self._last, piece])
                at, theirs = common_ranks(
                    [[key.slice(start) for key in keys], key_arrays(passed, self._names)],
                    self._right.sort,
                )
                # Rows at the time of the last right row wait: a later right row of the same time may match
                # them.
                stop = start + int(np.searchsorted(at, theirs[-1]))
                if stop > start:
                    until = int(known[stop]) if stop < len(known) else rows.num_rows
                    some = [key.slice(start, stop - start) for key in keys]
                    yield from self._with_matches(
                        rows, (done, until), known[start:stop], some, passed
                    )
                    start, done = stop, until
                self._last = passed.slice(passed.num_rows - 1)
        some = [key.slice(start) for key in keys]
        yield from self._with_matches(rows, (done, rows.num_rows), known[start:], some, self._last)

    def _with_matches(
        self, rows: pa.RecordBatch, span: tuple[int, int], known: I64,
        keys: Sequence[pa.Array], others: pa.RecordBatch,
    ) -> Batches:  # fmt: skip
        """Yields the rows of this span, each with its match from `others`."""
        found = np.full(span[1] - span[0], -1)
        found[known - span[0]] = self._last_before(keys, others)
        every = np.arange(*span)
        if not self._keeps_all:
            every, found = every[found >= 0], found[found >= 0]
        sides = [batch.nbytes / batch.num_rows for batch in (rows, others) if batch.num_rows]
        max_rows = self._left.room.rows_of(sum(sides))
        for start in range(0, len(every), max_rows):
            some = slice(start, start + max_rows)
            yield self._joined.rows(rows, every[some], others, found[some])

    def _last_before(self, keys: Sequence[pa.Array], others: pa.RecordBatch) -> I64:
        """Returns the index in `others` of the last row at or before each row; -1 if none. Shape (rows,).

        Right rows whose time is null or NaN sort last within their keys, so they never match.
        """
        theirs = key_arrays(others, self._names)
        at, when = common_ranks([keys, theirs], self._right.sort)
        found = np.searchsorted(when, at, "right") - 1
        if len(keys) > 1 and len(when):
            groups, their_groups = common_ranks([keys[:-1], theirs[:-1]], self._right.sort[:-1])
            found[their_groups[found] != groups] = -1
        return found
