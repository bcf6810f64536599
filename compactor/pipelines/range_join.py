"""Range join: matches points of one side with the intervals of the other side that contain them, optionally
on equal keys.

A sweep: points are sorted by keys and value, intervals by keys and lower bound. For each chunk of points the
join keeps the intervals that contain one of them or may contain later ones; they spill when memory is short.
The points in an interval are consecutive, so two binary searches find them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from enum import StrEnum

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from compactor.pipelines.pairing import Joined
from compactor.pipelines.sorted_rows import (
    CHUNK_ROWS,
    I64,
    Batches,
    SortedRows,
    common_ranks,
    key_arrays,
    known_rows,
    nan_rows,
)
from compactor.resources.reservation import Reservation
from lsm_fragment.arrays.batches import concat_rows, no_rows, take_rows
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.sizes import running_totals, spans_within
from lsm_fragment.keys.sort_schema import Nulls, SortColumn, SortSchema


class Closed(StrEnum):
    """Which bounds belong to an interval."""

    LEFT = "left"
    RIGHT = "right"
    BOTH = "both"
    NEITHER = "neither"

    @property
    def has_left(self) -> bool:
        return self in (Closed.LEFT, Closed.BOTH)

    @property
    def has_right(self) -> bool:
        return self in (Closed.RIGHT, Closed.BOTH)


class Intervals(Struct, frozen=True):
    """The build-side columns that define the intervals: keys and bounds."""

    keys: tuple[str, ...]
    begin: str
    end: str
    closed: Closed = Closed.LEFT


def interval_order(keys: SortSchema, begin: str) -> SortSchema:
    """Returns the sort order of intervals; those without a lower bound come first."""
    return (*keys, SortColumn(begin, nulls=Nulls.FIRST))


class _Intervals(Struct, frozen=True):
    """A piece of the kept intervals, as ranges of points, counting only points that are neither null nor NaN.
    Shapes (intervals,)."""

    low: I64
    high: I64
    row_bytes: float

    def within(self, start: int, stop: int) -> I64:
        """Returns the intervals that contain any of these points."""
        return np.flatnonzero((self.low < stop) & (self.high > start) & (self.low < self.high))


class _Gathered(Struct):
    """Accumulates intervals until they make a piece."""

    rows: list[pa.RecordBatch] = field(default_factory=list)
    low: list[I64] = field(default_factory=list)
    high: list[I64] = field(default_factory=list)
    count: int = 0
    size: int = 0

    def add(self, rows: pa.RecordBatch, low: I64, high: I64) -> None:
        self.rows.append(rows)
        self.low.append(low)
        self.high.append(high)
        self.count += rows.num_rows
        self.size += rows.nbytes


class RangeJoin:
    """A range join of two sorted sides.

    Results are ordered by keys and point, then by point row; for one point, by the intervals' lower bounds,
    then by interval row. A null bound is unbounded. No interval contains null or NaN, and one with a NaN
    bound is empty.
    """

    def __init__(
        self,
        points: SortedRows,
        intervals: SortedRows,
        what: Intervals,
        joined: Joined,
        *,
        keeps_all: bool,
    ) -> None:
        """points: sorted by keys and value. intervals: sorted by `interval_order`. keeps_all: keep unmatched
        points."""
        self._points = points
        self._intervals = intervals
        self._what = what
        self._joined = joined
        self._room = room = points.room
        self._keeps_all = keeps_all
        self._active, self._spare = (
            room.new_buffer(intervals.schema),
            room.new_buffer(intervals.schema),
        )
        self._pieces: list[_Intervals] = []
        self._memory = Reservation(room.budget, room.stage)
        """That of `_pieces`."""

    def rows(self) -> Batches:
        """Yields the joined rows; may be called once. Raises `MemoryLimitError`."""
        with closing(self), self._room.working():
            while self._points.fill():
                keys = self._points.keys
                rows = self._points.take(self._points.rows.num_rows)
                known = np.flatnonzero(known_rows(keys, rows.num_rows))
                if len(known):
                    self._advance([take(key, known) for key in keys])
                yield from self._matched(rows, known)

    def close(self) -> None:
        self._memory.free()
        self._active.close()
        self._spare.close()

    # --- intervals needed by a chunk of points ---

    def _advance(self, points: Sequence[pa.Array]) -> None:
        """Keeps the intervals that contain any of these points, or may contain later ones."""
        self._pieces = []
        self._memory.free()
        count = len(points[0])
        gathered = _Gathered()
        for given in (
            self._active.drain(),
            self._intervals.take_through([column.slice(count - 1) for column in points]),
        ):
            for rows in given:
                low, high = self._bounds(points, rows)
                # Keep intervals that reach the last point or beyond: they may contain the next point.
                kept = np.flatnonzero((low < high) | (high == count))
                if len(kept):
                    gathered.add(take_rows(rows, kept), low[kept], high[kept])
                if gathered.count > CHUNK_ROWS or gathered.size > self._room.chunk_bytes:
                    gathered = self._keep(gathered)
        self._keep(gathered)
        self._active, self._spare = self._spare, self._active

    def _keep(self, gathered: _Gathered) -> _Gathered:
        if gathered.rows:
            piece = _Intervals(
                np.concatenate(gathered.low),
                np.concatenate(gathered.high),
                gathered.size / gathered.count,
            )
            self._memory.grow(piece.low.nbytes + piece.high.nbytes)
            self._pieces.append(piece)
            self._spare.append(concat_rows(gathered.rows))
        return _Gathered()

    def _bounds(self, points: Sequence[pa.Array], rows: pa.RecordBatch) -> tuple[I64, I64]:
        """Returns each interval's range of points: the first inside, and the first beyond."""
        what, sort, count = self._what, self._intervals.sort, len(points[0])
        keys = key_arrays(rows, what.keys)
        [begin, end] = key_arrays(rows, (what.begin, what.end))
        at, begins, ends = common_ranks([points, [*keys, begin], [*keys, end]], sort)
        low = np.searchsorted(at, begins, "left" if what.closed.has_left else "right")
        high = np.searchsorted(at, ends, "right" if what.closed.has_right else "left")
        if end.null_count:
            if keys:
                groups, theirs = common_ranks([points[:-1], keys], sort[:-1])
                last = np.searchsorted(groups, theirs, "right")
            else:
                last = np.full(rows.num_rows, count)
            high = np.where(np.asarray(end.is_null()), last, high)
        empty = ~known_rows(keys, rows.num_rows) | nan_rows(begin) | nan_rows(end)
        low[empty], high[empty] = 0, 0
        return low, high

    # --- joined rows ---

    def _matched(self, rows: pa.RecordBatch, known: I64) -> Batches:
        """Yields the chunk's rows with all intervals that contain them. known: rows that are neither null nor
        NaN."""
        matches = np.zeros(rows.num_rows, dtype=np.int64)
        if len(known):
            matches[known] = self._counts(len(known))
        heaviest = max((piece.row_bytes for piece in self._pieces), default=0.0)
        max_rows = self._room.rows_of(rows.nbytes / rows.num_rows + heaviest)
        totals = running_totals(np.maximum(matches, int(self._keeps_all)))
        for start, stop in spans_within(totals, max_rows):
            if matches[start] > max_rows:
                yield from self._one_point(
                    rows, start, int(np.searchsorted(known, start)), max_rows
                )
            else:
                alone = start + np.flatnonzero(matches[start:stop] == 0)
                yield self._some_points(rows, known, (start, stop), alone)

    def _counts(self, points: int) -> I64:
        """Returns the number of intervals that contain each known point."""
        changes = np.zeros(points + 1, dtype=np.int64)
        for piece in self._pieces:
            changes += np.bincount(piece.low, minlength=points + 1)
            changes -= np.bincount(piece.high, minlength=points + 1)
        return np.cumsum(changes[:-1])

    def _one_point(self, rows: pa.RecordBatch, row: int, place: int, max_rows: int) -> Batches:
        """Yields a row that has more matches than fit into a chunk. place: its index among the known rows."""
        for number, piece in enumerate(self._pieces):
            chosen = piece.within(place, place + 1)
            for start in range(0, len(chosen), max_rows):
                some = chosen[start : start + max_rows]
                intervals = take_rows(self._active.batch(number), some)
                same = np.full(len(some), row)
                yield self._joined.rows(rows, same, intervals, np.arange(len(some)))

    def _some_points(
        self, rows: pa.RecordBatch, known: I64, span: tuple[int, int], alone: I64
    ) -> pa.RecordBatch:
        """Returns the rows of this span with their intervals. alone: unmatched rows."""
        first, last = (int(place) for place in np.searchsorted(known, span))
        found, of_points, of_intervals, taken = [no_rows(self._intervals.schema)], [], [], 0
        for number, piece in enumerate(self._pieces):
            chosen = piece.within(first, last)
            if not len(chosen):
                continue
            low = np.maximum(piece.low[chosen], first)
            count = np.minimum(piece.high[chosen], last) - low
            inside = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
            of_points.append(known[np.repeat(low, count) + inside])
            of_intervals.append(np.repeat(taken + np.arange(len(chosen)), count))
            found.append(take_rows(self._active.batch(number), chosen))
            taken += len(chosen)
        if self._keeps_all:
            of_points.append(alone)
            of_intervals.append(np.full(len(alone), -1))
        points = np.concatenate([*of_points, np.zeros(0, dtype=np.int64)])
        intervals = np.concatenate([*of_intervals, np.zeros(0, dtype=np.int64)])
        # Stable: pieces are in the order of their intervals' lower bounds.
        order = np.argsort(points, kind="stable")
        return self._joined.rows(rows, points[order], concat_rows(found), intervals[order])
