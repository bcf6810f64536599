"""Rows of two sides side by side, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compactor.pipelines.sorted_rows import I64
from format.storage import plain, to_logical, to_storage


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which rows stand side by side, as stretches: one row of the left side with some of the right side that
    follow each other. -1: no row of that side. All of shape (stretches,)."""

    left: I64
    first: I64
    """Of the right side."""
    count: I64
    """How many rows come of it: at least 1; 1 where a side has none."""

    def slices(self, most: int) -> Iterator[tuple[I64, I64]]:
        """Positions of both sides, row by row, so many at a time. However long a stretch is."""
        ends = np.cumsum(self.count)
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, most):
            at = np.arange(start, min(total, start + most))
            stretch = np.searchsorted(ends, at, "right")
            first = self.first[stretch]
            inside = at - (ends[stretch] - self.count[stretch])
            yield self.left[stretch], np.where(first < 0, -1, first + inside)


class Joined:
    """Makes rows of what is joined: the left side's columns, then the right side's without its keys."""

    def __init__(self, schema: pa.Schema, left: pa.Schema, on: Sequence[tuple[str, str]]) -> None:
        """schema: of the result. on: keys of both sides; where there is no left row, they are the right's."""
        self.schema = schema
        self._lefts = left.names
        self._rights = schema.names[len(left.names) :]
        self._on = dict(on)

    def rows(
        self, left: pa.RecordBatch, of_left: I64, right: pa.RecordBatch, of_right: I64
    ) -> pa.RecordBatch:
        """Rows at these positions; -1: nulls. Shapes (rows,)."""
        is_right_alone = of_left < 0
        lefts, rights = _positions(of_left), _positions(of_right)
        columns = []
        for name in self._lefts:
            column = left.column(name).take(lefts)
            if name in self._on and is_right_alone.any():
                other = plain(to_storage(right.column(self._on[name]))).take(rights)
                dtype = column.type
                whose = pa.array(is_right_alone)
                column = to_logical(pc.if_else(whose, other, plain(to_storage(column))), dtype)
            columns.append(column)
        columns += [right.column(name).take(rights) for name in self._rights]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _positions(rows: I64) -> pa.Array:
    return pa.array(rows, mask=rows < 0)
