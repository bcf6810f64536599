"""Sides of joins, and what a join should give, row by row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from compactor.pipelines.batch_size import BatchSize
from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.sorted_rows import Room, SortedRows
from compactor.pipelines.sorting import Sorter
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.merge_stages import CHUNKS
from compactor.resources.stage import Buffer, MemoryStage, StagePlan
from lsm_fragment.keys.sort_schema import SortSchema

MIB = 1 << 20
NAN = float("nan")
FLOATS = st.sampled_from([None, NAN, -0.0, 0.0, 1.0, 1.5, 2.0, 3.0])
INTS = st.one_of(st.none(), st.integers(0, 4))
TEXTS = st.sampled_from([None, "", "a", "b", "ab"])


class Held:
    """Memory of a join under a limit."""

    def __init__(self, limit_bytes: int = 512 * MIB) -> None:
        stages = tuple(
            MemoryStage(
                name=name,
                holds="",
                buffer=Buffer.MATERIALIZED,
                memory_bytes=limit_bytes,
                spill_priority=0,
            )
            for name in ("join", CHUNKS)
        )
        self.budget = MemoryBudget(StagePlan(limit_bytes, 0, stages))
        self.disk = LocalDisk()
        self.buffers: list[BatchBuffer] = []
        self.sorters: list[Sorter] = []
        self.room = Room(self.budget, "join", self._buffer)
        self.budget.spill_by("join", self._spill)

    def sorted(
        self, table: pa.Table, keys: Sequence[str], sort: SortSchema, batch_rows: int
    ) -> SortedRows:
        sorter = Sorter(
            table.schema, sort, BatchSize(batch_rows, 1 << 20), self.budget, "join", self.disk
        )
        self.sorters.append(sorter)
        for batch in table.to_batches(max_chunksize=batch_rows):
            sorter.append(batch)
        return SortedRows(sorter.sorted(), table.schema, keys, sort, self.room)

    @property
    def spills(self) -> int:
        return sum(buffer.spills for buffer in self.buffers)

    def close(self) -> None:
        for sorter in self.sorters:
            sorter.close()
        self.disk.close()

    def _buffer(self, schema: pa.Schema) -> BatchBuffer:
        buffer = BatchBuffer(schema, self.budget, "join", self.disk)
        self.buffers.append(buffer)
        return buffer

    def _spill(self, _size: int) -> int:
        freed = sum(sorter.spill(0) for sorter in self.sorters)
        return freed + sum(buffer.spill(1 << 62) for buffer in self.buffers)


def order_key(values: Iterable[Any]) -> tuple[Any, ...]:
    """Compares as rows are sorted: NaN is the greatest number, null comes last."""
    return tuple((2, 0) if v is None else (1, 0) if is_nan(v) else (0, v) for v in values)


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def is_known(value: Any) -> bool:
    return value is not None and not is_nan(value)


def shown(rows: Iterable[Any]) -> list[Any]:
    """With NaN, and zeros of either sign, as texts that compare."""
    return [tuple(repr(v) if isinstance(v, float) else v for v in row) for row in rows]


def rows_of(batches: Iterator[pa.RecordBatch], held: Held) -> list[Any]:
    with closing(held):
        return shown(row.values() for batch in batches for row in batch.to_pylist())
