"""Rows of one input that become others on their way: columns that the table has dropped are left out, values
of a type that the table has changed are converted.

The input's row hash is of what is stored, the outputs' of what is written. So each row is hashed both ways
when it is decoded: that nothing was lost before is seen from the one, after it from the other.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from compactor.merge.row_numbers import STAGE, hash_of_pages
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.tape import PagedNumbers
from format.hashing import column_contributions


class ConvertedRows:
    """By row group of the input; of the rows that are to be written."""

    def __init__(self, budget: MemoryBudget, disk: LocalDisk, version: int) -> None:
        """version: of the input."""
        self._version = version
        self._stored = PagedNumbers(budget, STAGE, disk)
        self._written = PagedNumbers(budget, STAGE, disk)

    def begin_group(self, rows: int) -> None:
        for numbers in (self._stored, self._written):
            numbers.append(np.zeros(rows, dtype=np.uint64))

    def note(self, group: int, name: str, stored: pa.Array, written: pa.Array | None) -> None:
        """A column's chunk as it is stored, and as it goes on; None if it does not."""
        contributions = column_contributions(name, stored, self._version)
        self._stored.add(group, contributions)
        if written is None:
            return
        if written is not stored:
            # By the rule of the input's version, as the merge compares rows that come from it.
            contributions = column_contributions(name, written, self._version)
        self._written.add(group, contributions)

    def stored_hash(self) -> int:
        """Of all rows as they are stored, once every column was noted."""
        return hash_of_pages(self._stored)

    def written_hash(self) -> int:
        """Of all rows as they go on."""
        return hash_of_pages(self._written)

    def spill(self) -> int:
        return self._stored.spill() + self._written.spill()

    def close(self) -> None:
        self._stored.close()
        self._written.close()
