"""Combines left and right rows into joined rows, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np
import pyarrow as pa
from msgspec import Struct

from compactor.pipelines.key_types import comparable
from compactor.pipelines.sorted_rows import I64
from lsm_fragment.arrays.moves import concat, take
from lsm_fragment.arrays.storage import to_logical
from lsm_fragment.arrays.types import storage_type


class How(StrEnum):
    """Which rows a join keeps."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def keeps_left(self) -> bool:
        """Whether it keeps left rows without a match."""
        return self in (How.LEFT, How.FULL, How.ANTI)

    @property
    def keeps_right(self) -> bool:
        return self in (How.RIGHT, How.FULL)

    @property
    def is_probe_only(self) -> bool:
        """Whether the result is a choice of left rows."""
        return self in (How.SEMI, How.ANTI)


class Pairing(Struct, frozen=True):
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
        if total == len(ends) <= max_rows:  # each has one
            if total:
                yield self.left, self.first
            return
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
        is_whole = np.array_equal(of_left, np.arange(left.num_rows))
        columns = []
        for name in self._lefts:
            column, dtype = left.column(name), self.schema.field(name).type
            if not is_whole:
                column = take(column, of_left)
            if name in self._on and is_right_alone.any():
                column = _filled(column, right.column(self._on[name]), of_right, dtype)
            elif column.type != dtype:
                column = comparable(column, dtype)
            columns.append(column)
        columns += [take(right.column(name), of_right) for name in self._rights]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _filled(column: pa.Array, right: pa.Array, of_right: I64, dtype: pa.DataType) -> pa.Array:
    """Returns a key column with the right side's keys where rows have no left side."""
    storage = storage_type(dtype)
    other = take(comparable(right, storage), of_right)
    both = concat([other, comparable(column, storage)])
    whose = np.where(np.asarray(column.is_valid()), len(other), 0) + np.arange(len(other))
    return to_logical(take(both, whose), dtype)
