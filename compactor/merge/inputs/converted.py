"""Hashes rows of one input that change on their way: dropped columns are left out, and values of columns
whose type was changed are converted.

The input's row hash covers what is stored, the outputs' row hash what is written. So each row is hashed both
ways when it is decoded: the one proves that nothing was lost before, the other that nothing is lost after.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from compactor.merge.outputs.row_numbers import STAGE, hash_of_pages
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.record_buffer import PagedNumbers
from lsm_fragment.arrays.hashing import column_contributions


class ConvertedRows:
    """Hashes of the rows to be written, by row group of the input."""

    def __init__(self, budget: MemoryBudget, disk: LocalDisk) -> None:
        self._stored = PagedNumbers(budget, STAGE, disk)
        self._written = PagedNumbers(budget, STAGE, disk)

    def begin_group(self, rows: int) -> None:
        for numbers in (self._stored, self._written):
            numbers.append(np.zeros(rows, dtype=np.uint64))

    def note(self, group: int, name: str, stored: pa.Array, written: pa.Array | None) -> None:
        """Hashes a column's chunk as it is stored and as it is written; `written` is None if it is left
        out."""
        contributions = column_contributions(name, stored)
        self._stored.add(group, contributions)
        if written is None:
            return
        if written is not stored:
            contributions = column_contributions(name, written)
        self._written.add(group, contributions)

    def stored_hash(self) -> int:
        """Returns the hash of all rows as stored, once every column was noted."""
        return hash_of_pages(self._stored)

    def written_hash(self) -> int:
        """Returns the hash of all rows as written."""
        return hash_of_pages(self._written)

    def spill(self) -> int:
        return self._stored.spill() + self._written.spill()

    def close(self) -> None:
        self._stored.close()
        self._written.close()
