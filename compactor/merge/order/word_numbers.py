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


class _ReservedTable(WordTable):
    """A table with its memory, which is free once nobody has rows of the table any more."""

    def __init__(self, memory: Reservation) -> None:
        self.memory = memory


class WordNumbers:
    """The words of one column that have come so far."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._table: WordTable | None = None

    def numbered(self, array: pa.Array, memory: Reservation) -> tuple[pa.Array, WordedRows | None]:
        """Renumbers a worded array. Returns it, with its rows to be gathered, or its strings if there is no
        room for its words. Any other array comes back as it is. memory: the array's, which is made to fit.

        Raises what `Reservation.grow` raises.
        """
        if not is_worded(array.type):
            return array, None
        table = self._table or self._begin()
        found = None if table is None else renumbered(array, table)
        array, rows = found or (text(array), None)
        memory.resize(array.get_total_buffer_size() + (0 if rows is None else rows.nbytes))
        return array, rows

    def forget(self) -> None:
        """Drops the words."""
        self._table = None

    def _begin(self) -> WordTable | None:
        memory = Reservation(self._budget, CHUNKS)
        if memory.try_grow(WORD_TABLE_BYTES):
            self._table = _ReservedTable(memory)
        return self._table
