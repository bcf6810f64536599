"""How large batches may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.files.source import sliced
from lsm_fragment.arrays.batches import concat_rows
from lsm_fragment.arrays.sizes import running_totals, spans_within


class BatchSize(NamedTuple):
    """The most rows and bytes of a batch. A single row may be heavier."""

    rows: int
    bytes: int

    def rows_of(self, row_bytes: float) -> int:
        """Returns the most rows of this average size in a batch."""
        return max(1, min(self.rows, int(self.bytes / max(1.0, row_bytes))))

    def slices(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields even slices of a batch, as if its rows were of one size."""
        return sliced(batch, self.bytes, self.rows)

    def joined(
        self, batches: Iterable[pa.RecordBatch], min_rows: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Joins consecutive batches that fit into one, or have fewer than `min_rows`."""
        waiting: list[pa.RecordBatch] = []
        rows = held_bytes = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            fits = rows + batch.num_rows <= self.rows and held_bytes + batch.nbytes <= self.bytes
            if waiting and rows >= min_rows and not fits:
                yield concat_rows(waiting)
                waiting, rows, held_bytes = [], 0, 0
            waiting.append(batch)
            rows += batch.num_rows
            held_bytes += batch.nbytes
        if waiting:
            yield concat_rows(waiting)

    def divided(self, row_bytes: npt.NDArray[np.int64]) -> Iterator[slice]:
        """Yields the rows of each batch, consecutively. row_bytes: of each row. Shape (rows,)."""
        for start, stop in spans_within(running_totals(row_bytes), self.bytes, self.rows):
            yield slice(start, stop)
