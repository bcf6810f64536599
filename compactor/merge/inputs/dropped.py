"""Leaves out rows of one input that are not written again, and hashes them to prove that no other is missing.

They are left out as soon as they are decoded, so that ordering and gathering never see them. Their
contributions to the row hash are summed up column by column, like those of the rows that stay.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from compactor.merge.outputs.row_numbers import STAGE, hash_of_pages
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.record_buffer import PagedNumbers
from lsm_fragment.arrays.hashing import column_contributions
from lsm_fragment.arrays.moves import keep


class DroppedRows:
    """The dropped rows of one input, by row group."""

    def __init__(self, bits: pa.BooleanArray, budget: MemoryBudget, disk: LocalDisk) -> None:
        """bits: for each row of the input, whether it is dropped."""
        self._bits = bits
        self._budget = budget
        self._numbers = PagedNumbers(budget, STAGE, disk)
        self._page_of: dict[int, int] = {}
        self._starts = [0]
        budget.charge(STAGE, bits.nbytes)
        self._charged = bits.nbytes
        self.rows = int(bits.true_count)

    def begin_group(self, rows: int) -> None:
        """Begins the input's next row group, which has `rows` rows."""
        group = len(self._starts) - 1
        self._starts.append(self._starts[-1] + rows)
        if dropped := self._of(group).true_count:
            self._page_of[group] = len(self._numbers)
            self._numbers.append(np.zeros(dropped, dtype=np.uint64))

    def is_whole(self, group: int) -> bool:
        """Returns whether no row of the row group is dropped."""
        return group not in self._page_of

    def is_gone(self, group: int) -> bool:
        """Returns whether all rows of the row group are dropped."""
        return bool(self._of(group).true_count == self._starts[group + 1] - self._starts[group])

    def split(self, group: int, name: str, array: pa.Array) -> pa.Array:
        """Returns the rows of a column's chunk that stay; hashes the others."""
        if self.is_whole(group):
            return array
        is_gone = np.asarray(self._of(group))
        gone = keep(array, is_gone)
        self._numbers.add(self._page_of[group], column_contributions(name, gone))
        return keep(array, ~is_gone)

    def row_hash(self) -> int:
        """Returns the hash of all dropped rows, once every column went through `split`."""
        return hash_of_pages(self._numbers)

    def spill(self) -> int:
        return self._numbers.spill()

    def close(self) -> None:
        self._numbers.close()
        self._budget.discharge(STAGE, self._charged)
        self._charged = 0

    def _of(self, group: int) -> pa.BooleanArray:
        start = self._starts[group]
        return self._bits.slice(start, self._starts[group + 1] - start)
