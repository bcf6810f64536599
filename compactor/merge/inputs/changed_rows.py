"""Hashes the rows of one input that are not written as they are stored: deleted ones, and converted ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from compactor.merge.outputs.row_numbers import hash_of_all
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.merge_stages import ROW_HASHES
from compactor.resources.record_buffer import NumberArrays
from compactor.resources.reservation import Reservation
from lsm_fragment.arrays.hashing import column_contributions
from lsm_fragment.arrays.moves import keep


class DroppedRows:
    """The rows of one input that are not written again, by row group.

    They are left out as soon as they are decoded, so that ordering and gathering never see them. Their
    contributions to the row hash are summed up column by column, like those of the rows that stay, to prove
    that no other row is missing.
    """

    def __init__(self, bits: pa.BooleanArray, budget: MemoryBudget, disk: LocalDisk) -> None:
        """bits: for each row of the input, whether it is dropped."""
        self._bits = bits
        self._memory = Reservation(budget, ROW_HASHES, bits.nbytes)
        self._numbers = NumberArrays(budget, disk)
        self._place_of: dict[int, int] = {}
        self._starts = [0]
        self.rows = int(bits.true_count)

    def begin_group(self, rows: int) -> None:
        """Begins the input's next row group, which has `rows` rows."""
        group = len(self._starts) - 1
        self._starts.append(self._starts[-1] + rows)
        if dropped := self._of(group).true_count:
            self._place_of[group] = len(self._numbers)
            self._numbers.append(np.zeros(dropped, dtype=np.uint64))

    def is_whole(self, group: int) -> bool:
        """Returns whether no row of the row group is dropped."""
        return group not in self._place_of

    def is_gone(self, group: int) -> bool:
        """Returns whether all rows of the row group are dropped."""
        return bool(self._of(group).true_count == self._starts[group + 1] - self._starts[group])

    def split(self, group: int, name: str, array: pa.Array) -> pa.Array:
        """Returns the rows of a column's chunk that stay; hashes the others."""
        if self.is_whole(group):
            return array
        is_gone = np.asarray(self._of(group))
        gone = keep(array, is_gone)
        self._numbers.add(self._place_of[group], column_contributions(name, gone))
        return keep(array, ~is_gone)

    def row_hash(self) -> int:
        """Returns the hash of all dropped rows, once every column went through `split`."""
        return hash_of_all(self._numbers)

    def spill(self) -> int:
        return self._numbers.spill()

    def close(self) -> None:
        self._numbers.close()
        self._memory.free()

    def _of(self, group: int) -> pa.BooleanArray:
        start = self._starts[group]
        return self._bits.slice(start, self._starts[group + 1] - start)


class ConvertedRows:
    """Hashes of rows that change on their way, by row group of the input.

    The input's row hash covers what is stored, the outputs' row hash what is written. So each row is hashed
    both ways when it is decoded: the one proves that nothing was lost before, the other that nothing is lost
    after.
    """

    def __init__(self, budget: MemoryBudget, disk: LocalDisk) -> None:
        self._stored = NumberArrays(budget, disk)
        self._written = NumberArrays(budget, disk)

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
        return hash_of_all(self._stored)

    def written_hash(self) -> int:
        """Returns the hash of all rows as written."""
        return hash_of_all(self._written)

    def spill(self) -> int:
        return self._stored.spill() + self._written.spill()

    def close(self) -> None:
        self._stored.close()
        self._written.close()
