"""Partitions rows onto local disk, buffering each partition in memory until a write pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.pipelines.buffer import BatchBuffer
from compactor.resources.budget import MemoryBudget
from lsm_fragment.arrays.batches import concat_rows, take_rows

_PIECE_BYTES: Final = 256 << 10
"""Write a partition once it has buffered this many bytes."""
_DIVISOR: Final = 8
"""The buffers of all partitions use at most 1/8 of the soft limit."""


def gathered_bytes(budget: MemoryBudget, parts: int) -> int:
    """Returns the memory for the write buffers of `parts` partitions. The caller charges it."""
    return min(parts * _PIECE_BYTES, budget.soft_bytes // _DIVISOR)


class PartitionBuffers:
    """Appends rows to partition buffers on disk, keeping their order within a partition."""

    def __init__(self, parts: Sequence[BatchBuffer], max_bytes: int) -> None:
        """max_bytes: memory for rows not yet written, charged by the caller; 0 writes at once."""
        self._parts = parts
        self._max_bytes = max_bytes
        self._waiting: list[list[pa.RecordBatch]] = [[] for _ in parts]
        self._waiting_bytes: npt.NDArray[np.int64] = np.zeros(len(parts), dtype=np.int64)

    def put(self, batch: pa.RecordBatch, part_of: npt.NDArray[np.uint64]) -> None:
        """Takes a batch. part_of: each row's partition number, shape (rows,)."""
        order = np.argsort(part_of, kind="stable")
        ends = np.cumsum(np.bincount(part_of.astype(np.int64), minlength=len(self._parts)))
        start = 0
        for number, end in enumerate(ends.tolist()):
            if end > start:
                # Copy: a slice would keep the rows of all partitions in memory.
                piece = take_rows(batch, order[start:end])
                self._waiting[number].append(piece)
                self._waiting_bytes[number] += piece.nbytes
                if self._waiting_bytes[number] >= min(_PIECE_BYTES, self._max_bytes):
                    self._write(number)
                start = end
        while self._waiting_bytes.sum() > self._max_bytes:
            self._write(int(self._waiting_bytes.argmax()))

    def finish(self) -> None:
        """Writes all buffered rows to disk."""
        for number in range(len(self._parts)):
            self._write(number)

    def _write(self, number: int) -> None:
        pieces, self._waiting[number] = self._waiting[number], []
        self._waiting_bytes[number] = 0
        if pieces:
            piece = concat_rows(pieces)
            part = self._parts[number]
            part.append(piece)
            part.spill(piece.nbytes)
