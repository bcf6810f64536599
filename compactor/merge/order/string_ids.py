"""Numbers the strings of a column's dictionaries as its chunks are loaded, so that output row groups are
gathered without comparing strings.

Numbers only save time: strings without them are gathered to the same rows. So there are none where
memory is short, and where strings hardly recur.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.merge.order.word_numbers import WordNumbers
from compactor.resources.budget import MemoryBudget
from compactor.resources.merge_plan import NUMBERED_BYTES, NUMBERED_STRINGS
from compactor.resources.merge_stages import CHUNKS
from compactor.resources.reservation import Reservation
from lsm_fragment import native
from lsm_fragment.arrays.buffers import binary_parts
from lsm_fragment.arrays.templated import templates_of
from lsm_fragment.arrays.types import is_binary_like, is_templated
from lsm_fragment.gather.pieces import NumberedStrings
from lsm_fragment.native.gather.ids import StringTable

_MIN_RECURRENCE: Final = 2
"""Begin a new series of numbers only if strings come at least this often, on average."""


class StringIds:
    """The strings of one column that have come so far. When they become too many or too heavy, a new series
    of numbers begins without them.

    Dictionaries of very many strings have no numbers: to look each of them up takes as long as it spares.
    """

    def __init__(
        self,
        budget: MemoryBudget,
        max_strings: int = NUMBERED_STRINGS,
        max_bytes: int = NUMBERED_BYTES,
    ) -> None:
        self.words = WordNumbers(budget)
        self._memory = Reservation(budget, CHUNKS)
        self._max_strings = max_strings
        self._max_bytes = max_bytes
        self._table: StringTable | None = None
        self._series = 0
        self._came = 0
        """Strings that came in this series, equal ones too."""
        self._may_number = True

    @property
    def held_bytes(self) -> int:
        """The memory of the strings, without the numbers that were given."""
        return self._memory.size

    def numbered(
        self, array: pa.Array, memory: Reservation, packed: pa.Array | None = None
    ) -> NumberedStrings | None:
        """Numbers the dictionary of a storage array, or its templates; None if there is none, or no use or
        no memory for it. memory: the array's, which the numbers join. packed: see `GatherArray`."""
        values = (_strings_of(array) if packed is None else packed) if self._may_number else None
        if values is None or not 0 < len(values) <= self._max_strings:
            return None
        table = self._table or self._begin()
        if table is None:
            return None
        offsets, data = binary_parts(values)
        numbers, known = np.empty(len(values), dtype=np.int32), table.count
        if not table.number(offsets, native.as_bytes(data), numbers):
            self.forget()
            self._may_number = 0 < _MIN_RECURRENCE * known <= self._came
            return None
        self._came += len(values)
        if not memory.try_grow(numbers.nbytes):
            return None
        return NumberedStrings(numbers, self._series, table.count)

    def forget(self) -> int:
        """Forgets all strings, and numbers no more. Returns how many bytes that frees."""
        self._table = None
        self._may_number = False
        return self._memory.free()

    def _begin(self) -> StringTable | None:
        """Begins a series; None if there is no memory for it."""
        table = StringTable(self._max_strings, self._max_bytes)
        if not self._memory.try_grow(table.held_bytes):
            return None
        self._table = table
        self._series += 1
        self._came = 0
        return table


def _strings_of(array: pa.Array) -> pa.Array | None:
    """Returns the strings that rows name by codes."""
    if is_templated(array.type):
        return templates_of(array)
    if pt.is_dictionary(array.type) and is_binary_like(array.type.value_type):
        return array.dictionary
    return None
