"""Gives the words of a column's chunks the same numbers as they are loaded, so that output row groups are
gathered without comparing words."""

from __future__ import annotations

import pyarrow as pa

from compactor.resources.budget import MemoryBudget
from compactor.resources.merge_plan import WORD_TABLE_BYTES
from compactor.resources.merge_stages import CHUNKS
from compactor.resources.reservation import Reservation
from lsm_fragment.arrays.templated import text
from lsm_fragment.arrays.types import is_worded
from lsm_fragment.arrays.worded import WordedRows, renumbered
from lsm_fragment.native.gather.words import WordTable


class WordNumbers:
    """The words of one column that have come so far. Those for which there is no room are spelled."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._memory = Reservation(budget, CHUNKS)
        self._table: WordTable | None = None

    def numbered(self, array: pa.Array, memory: Reservation) -> tuple[pa.Array, WordedRows | None]:
        """Renumbers a worded array. Returns it, with its rows to be gathered, or its strings if there is no
        memory for its words. Any other array comes back as it is. memory: the array's, which grows.

        Raises what `Reservation.grow` raises.
        """
        if not is_worded(array.type):
            return array, None
        table = self._table or self._begin()
        if table is None:
            return _in(memory, text(array)), None
        array, rows = renumbered(array, table)
        memory.grow_beyond(max(0, array.get_total_buffer_size() + rows.nbytes - memory.size))
        return array, rows

    def forget(self) -> None:
        """Frees the memory of the words. No more rows may be gathered by them."""
        self._table = None
        self._memory.free()

    def _begin(self) -> WordTable | None:
        if self._memory.try_grow(WORD_TABLE_BYTES):
            self._table = WordTable()
        return self._table


def _in(memory: Reservation, array: pa.Array) -> pa.Array:
    """Returns the array, after its memory has grown to hold it."""
    memory.grow(max(0, array.get_total_buffer_size() - memory.size))
    return array
