"""Sequences that grow with the data and spill: records read repeatedly, and arrays changed in place."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk, Region
from compactor.resources.merge_stages import ROW_HASHES
from compactor.resources.reservation import Reservation

_SEGMENT_BYTES: Final = 256 << 10


class RecordBuffer:
    """A sequence of byte records that is appended to, and read from first to last any number of times.

    Once spilled, it holds at most a segment of `_SEGMENT_BYTES`, or one record, in memory.
    """

    def __init__(self, budget: MemoryBudget, stage: str, disk: LocalDisk) -> None:
        self._budget = budget
        self._stage = stage
        self._disk = disk
        self._segments: list[tuple[Region, array[int]]] = []
        self._records: list[bytes] = []
        self._memory = Reservation(budget, stage)
        self._count = 0
        self._spilled = False
        self.largest_bytes = 0
        """Size of the largest record."""

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """Size of all records, in memory and on disk."""
        return self._memory.size + sum(region.size for region, _ in self._segments)

    def append(self, record: bytes) -> None:
        self._memory.grow(len(record))
        self.largest_bytes = max(self.largest_bytes, len(record))
        self._records.append(record)
        self._count += 1
        if self._spilled and self._memory.size >= _SEGMENT_BYTES:
            self.spill()

    def __iter__(self) -> Iterator[bytes]:
        for region, lengths in self._segments:
            with Reservation(self._budget, self._stage, region.size):
                data = self._disk.read(region)
                start = 0
                for length in lengths:
                    yield data[start : start + length]
                    start += length
        yield from self._records

    def spill(self) -> int:
        """Moves the records in memory to disk; returns the bytes freed."""
        self._spilled = True
        batch: list[bytes] = []
        size = 0
        for record in self._records:
            batch.append(record)
            size += len(record)
            if size >= _SEGMENT_BYTES:
                self._write(batch, size)
                batch, size = [], 0
        if batch:
            self._write(batch, size)
        self._records = []
        return self._memory.free()

    def close(self) -> None:
        for region, _ in self._segments:
            self._disk.release(region)
        self._records, self._segments = [], []
        self._memory.free()

    def _write(self, records: list[bytes], size: int) -> None:
        region = self._disk.allocate(size)
        self._disk.write(region, b"".join(records))
        self._segments.append((region, array("I", map(len, records))))


class NumberArrays:
    """A sequence of arrays of u64 numbers, each read and overwritten in place by index.

    Its memory is of the stage `ROW_HASHES`.
    """

    def __init__(self, budget: MemoryBudget, disk: LocalDisk) -> None:
        self._memory = Reservation(budget, ROW_HASHES)
        self._disk = disk
        self._arrays: list[npt.NDArray[np.uint64] | Region] = []
        self._spilled = False

    def __len__(self) -> int:
        return len(self._arrays)

    def append(self, numbers: npt.NDArray[np.uint64]) -> None:
        if self._spilled:
            region = self._disk.allocate(numbers.nbytes)
            self._disk.write(region, _bytes(numbers))
            self._arrays.append(region)
            return
        self._memory.grow(numbers.nbytes)
        if self._spilled:  # because there was no memory for them
            self._memory.shrink(numbers.nbytes)
            self.append(numbers)
            return
        self._arrays.append(numbers)

    def get(self, index: int) -> npt.NDArray[np.uint64]:
        """Returns an array; `put` it to make changes permanent."""
        numbers = self._arrays[index]
        if isinstance(numbers, Region):
            return np.frombuffer(bytearray(self._disk.read(numbers)), dtype=np.uint64)
        return numbers

    def put(self, index: int, numbers: npt.NDArray[np.uint64]) -> None:
        held = self._arrays[index]
        if isinstance(held, Region):
            self._disk.write(held, _bytes(numbers))
        else:
            self._arrays[index] = numbers

    def add(self, index: int, numbers: npt.NDArray[np.uint64]) -> None:
        """Adds numbers to those of an array."""
        sums = self.get(index)
        sums += numbers
        self.put(index, sums)

    def spill(self) -> int:
        """Moves all arrays to disk; returns the bytes freed."""
        self._spilled = True
        for index, numbers in enumerate(self._arrays):
            if not isinstance(numbers, Region):
                region = self._disk.allocate(numbers.nbytes)
                self._disk.write(region, _bytes(numbers))
                self._arrays[index] = region
        return self._memory.free()

    def close(self) -> None:
        for numbers in self._arrays:
            if isinstance(numbers, Region):
                self._disk.release(numbers)
        self._arrays = []
        self._memory.free()


def _bytes(numbers: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(numbers).data.cast("B")
