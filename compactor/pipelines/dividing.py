"""Divides rows into parts on local disk; a part's rows gather in memory until a write is worth it."""

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
"""Bytes of one part that are written at a time."""
_DIVISOR: Final = 8
"""The pieces of all parts take at most one part in this many of the soft limit."""


def gathered_bytes(budget: MemoryBudget, parts: int) -> int:
    """Returns how many bytes the pieces of `parts` parts may take. The caller charges them."""
    return min(parts * _PIECE_BYTES, budget.soft_bytes // _DIVISOR)


class PartitionBuffers:
    """Appends rows to the buffers of their parts, on disk. Rows of a part keep their order."""

    def __init__(self, parts: Sequence[BatchBuffer], max_bytes: int) -> None:
        """max_bytes: limit for pieces that wait in memory, which the caller charges; with 0 none wait."""
        self._parts = parts
        self._max_bytes = max_bytes
        self._waiting: list[list[pa.RecordBatch]] = [[] for _ in parts]
        self._waiting_bytes: npt.NDArray[np.int64] = np.zeros(len(parts), dtype=np.int64)

    def put(self, batch: pa.RecordBatch, part_of: npt.NDArray[np.uint64]) -> None:
        """Takes a batch. part_of: the number of each row's part, shape (rows,)."""
        order = np.argsort(part_of, kind="stable")
        ends = np.cumsum(np.bincount(part_of.astype(np.int64), minlength=len(self._parts)))
        start = 0
        for number, end in enumerate(ends.tolist()):
            if end > start:
                # Copied, because a slice would keep the rows of all parts in memory.
                piece = take_rows(batch, order[start:end])
                self._waiting[number].append(piece)
                self._waiting_bytes[number] += piece.nbytes
                if self._waiting_bytes[number] >= min(_PIECE_BYTES, self._max_bytes):
                    self._write(number)
                start = end
        while self._waiting_bytes.sum() > self._max_bytes:
            self._write(int(self._waiting_bytes.argmax()))

    def finish(self) -> None:
        """Writes everything that still waits to disk."""
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
