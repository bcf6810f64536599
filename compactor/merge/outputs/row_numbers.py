"""Sums up the row hash: one number per row, to which every column adds (SPEC section 7)."""

from __future__ import annotations

import numpy as np

from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.record_buffer import NumberArrays
from compactor.rows.flags import KEPT, Flags
from lsm_fragment.arrays.hashing import U64, combine, fold_rows


def hash_of_all(numbers: NumberArrays) -> int:
    """Returns the hash of all rows."""
    return combine(*(fold_rows(numbers.get(index)) for index in range(len(numbers))))


class RowNumbers:
    """The row numbers of one output, one array per row group."""

    def __init__(self, budget: MemoryBudget, disk: LocalDisk) -> None:
        self._numbers = NumberArrays(budget, disk)

    def __len__(self) -> int:
        return len(self._numbers)

    def append(self, contributions: U64) -> None:
        """Begins a row group with what its sort columns add to the rows' numbers. Shape (rows,)."""
        self._numbers.append(contributions)

    def add(self, index: int, contributions: U64) -> None:
        """Adds what another column adds to them. Shape (rows,)."""
        self._numbers.add(index, contributions)

    def hash_of(self, index: int, flags: Flags | None = None) -> int:
        """Returns a row group's hash: of all its rows, or of the kept ones."""
        numbers = self._numbers.get(index)
        return fold_rows(numbers if flags is None else numbers[(flags & KEPT).astype(np.bool_)])

    def spill(self) -> int:
        return self._numbers.spill()

    def close(self) -> None:
        self._numbers.close()
