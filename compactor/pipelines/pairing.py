"""Combines left and right rows into joined rows, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from compactor.pipelines.sorted_rows import I64
from lsm_fragment.arrays.moves import concat, take
from lsm_fragment.arrays.storage import plain, to_logical, to_storage


@dataclass(frozen=True, slots=True)
class Pairing:
    """Runs of row pairs: a left row with consecutive right rows. -1 means no row on that side. All arrays
    have shape (runs,)."""

    left: I64
    first: I64
    """First right row of the run."""
    count: I64
    """Length of the run; 1 where a side has no row."""

    def slices(self, max_rows: int) -> Iterator[tuple[I64, I64]]:
        """Yields row positions of both sides, at most `max_rows` at a time, splitting runs if needed."""
        ends = np.cumsum(self.count)
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, max_rows):
            at = np.arange(start, min(total, start + max_rows))
            stretch = np.searchsorted(ends, at, "right")
            first = self.first[stretch]
            inside = at - (ends[stretch] - self.count[stretch])
            yield self.left[stretch], np.where(first < 0, -1, first + inside)


class Joined:
    """Builds joined rows: the left columns, then the right columns without the keys."""

    def __init__(self, schema: pa.Schema, left: pa.Schema, on: Sequence[tuple[str, str]]) -> None:
        """schema: schema of the result. on: pairs of key columns.

        Rows without a left side take their keys from the right side.
        """
        self.schema = schema
        self._lefts = left.names
        self._rights = schema.names[len(left.names) :]
        self._on = dict(on)

    def rows(
        self, left: pa.RecordBatch, of_left: I64, right: pa.RecordBatch, of_right: I64
    ) -> pa.RecordBatch:
        """Joins rows at these positions, shape (rows,); -1 gives nulls."""
        is_right_alone = of_left < 0
        columns = []
        for name in self._lefts:
            column = take(left.column(name), of_left)
            if name in self._on and is_right_alone.any():
                other = take(plain(to_storage(right.column(self._on[name]))), of_right)
                dtype = column.type
                both = concat([other, plain(to_storage(column))])
                whose = np.where(is_right_alone, 0, len(other)) + np.arange(len(other))
                column = to_logical(take(both, whose), dtype)
            columns.append(column)
        columns += [take(right.column(name), of_right) for name in self._rights]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
