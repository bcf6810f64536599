"""Buffers batches between two nodes, in memory and, when memory is short, on local disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from compactor.common.ipc import READING, writing
from compactor.pipelines.provenance import boundary_of
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk, Region
from compactor.resources.reservation import Reservation


class _InMemory(NamedTuple):
    batch: pa.RecordBatch
    memory: Reservation


class BatchBuffer:
    """An ordered buffer of batches of one schema and of document boundaries.

    Each batch carries its reservation. One thread may spill while another drains.
    """

    def __init__(
        self, schema: pa.Schema, budget: MemoryBudget, stage: str, disk: LocalDisk
    ) -> None:
        self.schema = schema
        self._budget = budget
        self._stage = stage
        self._disk = disk
        self._lock = threading.Lock()
        self._parts: list[_InMemory | Region | None] = []
        self.rows = 0
        self.bytes = 0
        """Total bytes of all batches, in memory or on disk."""
        self.spills = 0
        """Number of batches spilled."""

    def append(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows and boundary_of(batch) is None:
            return
        memory = Reservation(self._budget, self._stage, batch.nbytes)
        self._parts.append(_InMemory(batch, memory))
        self.bytes += batch.nbytes
        self.rows += batch.num_rows

    @property
    def held_bytes(self) -> int:
        """Bytes in memory."""
        return sum(part.memory.size for part in self._parts if isinstance(part, _InMemory))

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Yields every batch once, then drops it."""
        for index in range(len(self._parts)):
            yield self.batch(index)
            self._drop(index)
        self._parts = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for index in range(len(self._parts)):
            yield self.batch(index)

    def batch(self, index: int) -> pa.RecordBatch:
        with self._lock:
            part = self._parts[index]
            assert part is not None
            if isinstance(part, Region):
                stored = pa.py_buffer(self._disk.read(part))
                return pa.ipc.open_stream(stored, options=READING).read_next_batch()
            return part.batch

    def spill(self, size: int) -> int:
        """Spills about `size` bytes, last batches first. Returns the number of bytes freed."""
        freed = 0
        for index in reversed(range(len(self._parts))):
            if freed >= size:
                break
            with self._lock:
                part = self._parts[index] if index < len(self._parts) else None
                if isinstance(part, _InMemory):
                    self._parts[index] = self._put_aside(part.batch)
                    freed += part.memory.free()
                    self.spills += 1
        return freed

    def _put_aside(self, batch: pa.RecordBatch) -> Region:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=writing()) as writer:
            writer.write_batch(batch)
        data = sink.getvalue()
        region = self._disk.allocate(data.size)
        self._disk.write(region, memoryview(data))
        return region

    def close(self) -> None:
        for index in range(len(self._parts)):
            self._drop(index)
        self._parts = []

    def _drop(self, index: int) -> None:
        with self._lock:
            part, self._parts[index] = self._parts[index], None
            if isinstance(part, Region):
                self._disk.release(part)
            elif part is not None:
                part.memory.free()
