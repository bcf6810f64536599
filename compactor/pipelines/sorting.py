"""External sort: writes sorted runs and merges them by key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from compactor.pipelines.batch_size import BatchSize
from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.merging import by_key
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.reservation import Reservation
from lsm_fragment.arrays.joining import concat_storage
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.sizes import cumulative_bytes, max_row_bytes
from lsm_fragment.arrays.storage import to_logical, to_storage
from lsm_fragment.keys.normalised import sort_keys, stable_order
from lsm_fragment.keys.sort_schema import SortSchema
from lsm_fragment.threads import ALONE, ThreadPool

_WORK_COPIES = 3
"""Copies of a run while it is sorted: its batches, the concatenated columns, and the keys, or later some
sorted rows."""
_MERGE_DIVISOR = 8
"""Limits the fan-in: each run may hold a few batches, within half of the memory."""


class Sorter:
    """A stable external sort."""

    def __init__(
        self,
        schema: pa.Schema,
        sort: SortSchema,
        batch_size: BatchSize,
        budget: MemoryBudget,
        stage: str,
        disk: LocalDisk,
        *,
        at_once: int = 1,
        pool: ThreadPool = ALONE,
    ) -> None:
        """at_once: number of sorters that emit rows at the same time under one budget. pool: moves rows."""
        self._pool = pool
        self._divisor = _MERGE_DIVISOR * at_once
        self._schema = schema
        self._sort = sort
        self._batch_size = batch_size
        self._budget = budget
        self._stage = stage
        self._disk = disk
        self._held: list[pa.RecordBatch] = []
        self._memory = Reservation(budget, stage)
        self._rest: Iterator[pa.RecordBatch] | None = None
        """Rows sorted in memory but not yet emitted."""
        self._runs: list[BatchBuffer] = []
        self._batch_bytes = 0
        """Size of the largest batch of any run."""
        self.spills = 0

    def append(self, batch: pa.RecordBatch) -> None:
        size = _WORK_COPIES * batch.nbytes
        if self._held and not self._budget.has_room(size):
            self._end_run()
        self._memory.grow(size)
        self._held.append(batch)

    def sorted(self) -> Iterator[pa.RecordBatch]:
        """Yields all rows in order, then holds none."""
        if not self._runs:
            self._rest = self._sorted_run()
            # Look up `_rest` each time: a spill may have replaced it.
            while (batch := next(self._rest, None)) is not None:
                yield batch
            self._release()
            return
        self._end_run()
        fan_in = max(2, int(self._budget.soft_bytes // (self._divisor * max(1, self._batch_bytes))))
        while len(self._runs) > fan_in:
            # Merge adjacent runs only, so that equal keys keep their order.
            merged = self._new_run()
            for batch in self._merged(self._runs[:fan_in]):
                self._put(merged, batch)
            self._runs[:fan_in] = [merged]
        yield from self._merged(self._runs)

    def _merged(self, runs: Sequence[BatchBuffer]) -> Iterator[pa.RecordBatch]:
        inputs = [(f"run {n}", run.drain()) for n, run in enumerate(runs)]
        size = self._batch_size
        row_bytes = sum(run.bytes for run in runs) / max(1, sum(run.rows for run in runs))
        return by_key(
            inputs,
            self._schema,
            self._sort,
            size._replace(rows=size.rows_of(row_bytes)),  # they need not go to disk once more
            self._budget,
            self._disk,
            self._pool,
        )

    def _new_run(self) -> BatchBuffer:
        return BatchBuffer(self._schema, self._budget, self._stage, self._disk)

    def _put(self, run: BatchBuffer, batch: pa.RecordBatch) -> None:
        """Appends a batch to a run on disk."""
        run.append(batch)
        run.spill(batch.nbytes)
        self._batch_bytes = max(self._batch_bytes, batch.nbytes)

    def spill(self, _size: int) -> int:
        before = self._budget.held_bytes(self._stage)
        if self._rest is not None and self._held:
            self._put_rest()
        elif self._held:
            self._end_run()
        return before - self._budget.held_bytes(self._stage)

    def close(self) -> None:
        self._release()
        for run in self._runs:
            run.close()

    def _end_run(self) -> None:
        if not self._held:
            return
        run = self._new_run()
        batches = list(self._sorted_run())
        self._release()
        for batch in batches:
            self._put(run, batch)
        self._runs.append(run)
        self.spills += 1

    def _put_rest(self) -> None:
        """Spills the rows not yet emitted."""
        assert self._rest is not None
        rest, run = self._rest, self._new_run()
        self._release()
        for batch in rest:
            self._put(run, batch)
        self._rest = run.drain()
        self._runs.append(run)
        self.spills += 1

    def _sorted_run(self) -> Iterator[pa.RecordBatch]:
        if not self._held:
            return
        # Nothing here may hold the batches: a spill releases them while rows are left.
        columns = self._pool.each(partial(_column_of, self._held), range(len(self._schema)))
        keys = [columns[self._schema.get_field_index(c.column)] for c in self._sort]
        order = stable_order(sort_keys(keys, self._sort))
        size, row_bytes = self._batch_size, np.zeros(len(order), dtype=np.int64)
        if size.rows_of(sum(map(max_row_bytes, columns))) < size.rows:
            for column in columns:
                row_bytes += np.diff(cumulative_bytes(column))
        for rows in size.divided(row_bytes[order]):
            taken = self._pool.each(partial(take, places=order[rows]), columns)
            yield pa.RecordBatch.from_arrays(
                [to_logical(a, f.type) for a, f in zip(taken, self._schema, strict=True)],
                schema=self._schema,
            )

    def _release(self) -> None:
        self._held = []
        self._memory.free()


def _column_of(batches: Sequence[pa.RecordBatch], index: int) -> pa.Array:
    return concat_storage([to_storage(batch.column(index)) for batch in batches])
