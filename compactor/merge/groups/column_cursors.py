"""Takes the rows of one column from all inputs, one output row group after the other.

Every input is at some row of one decoded chunk. Where that has the rows that the input gives to a row group,
they are taken from all such inputs at once, without a step for each; the other inputs load their next chunk.
A few last rows of a chunk are copied before that, so that not every input has two chunks in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.merge.groups.splits import ColumnPieces
from compactor.merge.inputs.decoded import STAGE
from compactor.merge.inputs.decoding import may_decode_ahead
from compactor.merge.inputs.input import MergeInput
from compactor.merge.order.row_order import GroupOrder
from compactor.merge.order.string_ids import StringIds
from compactor.merge.tasks import OrderedTasks
from compactor.resources.budget import MemoryBudget
from lsm_fragment.arrays.nested_bytes import packed
from lsm_fragment.gather.pieces import FIELDS, ROWS, START, GatherArray, Pieces
from lsm_fragment.native.gather import rows as native

I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]
_NO_END: Final = np.iinfo(np.int64).max
_FEW_DIVISOR: Final = 4
"""The last rows of a chunk are copied if they are at most one of so many."""


class ColumnCursors:
    """The row and the chunk at which every input is. Inputs without the column give nulls."""

    def __init__(
        self,
        inputs: Sequence[MergeInput],
        present: npt.NDArray[np.bool_],
        dtype: pa.DataType,
        budget: MemoryBudget,
        tasks: OrderedTasks,
        slice_bytes: int,
    ) -> None:
        """present: the inputs that have the column. tasks: where row groups are made of the rows.
        slice_bytes: chunks of fewer bytes do not spill."""
        self._inputs = inputs
        self._dtype = dtype
        self._budget = budget
        self._tasks = tasks
        self._slice_bytes = slice_bytes
        self._ids = StringIds(budget)
        self._nulls = GatherArray(pa.nulls(0), dtype)
        self._arrays = [self._nulls] * len(inputs)
        self._charged = np.zeros(len(inputs), dtype=np.int64)
        self._fields = np.zeros((len(inputs), FIELDS), dtype=np.int64)
        self._fields[:] = self._nulls.fields
        self._left = np.where(present, 0, _NO_END)
        self._firsts = np.arange(len(inputs))
        """The piece of each input, where every input gives one."""
        self._group = self._groups_done = 0
        self._last_group = np.zeros(len(inputs), dtype=np.int64)
        """The last row group that took rows from an input's chunk."""
        self._ended_bytes = 0
        """The charge of chunks that have ended and whose rows the row group being taken may hold."""
        self._left_bytes: dict[int, int] = {}
        """The charge of chunks that are done with, but for a row group that is still being made."""

    def take(self, order: GroupOrder, pieces: ColumnPieces) -> Callable[[], None]:
        """Takes the next row group's rows into `pieces`. Returns what to call when nobody holds them any
        more, after the same of earlier row groups."""
        self._group += 1
        sources, missing = order.inputs, np.empty(len(order.inputs), dtype=np.int64)
        for place in native.lacking(self._left, sources, order.counts, missing):
            index = int(sources[place])
            here = int(self._left[index]) + self._inputs[index].disk_rows
            self._inputs[index].decode_ahead(self._dtype, int(missing[place]) - here)
        self._add(sources, missing, pieces)
        while len(places := missing.nonzero()[0]):
            places = places if may_decode_ahead(self._budget, 0) else places[:1]
            for index in sources[places].tolist():
                self._load(index)
            # Loading one may have moved another to disk.
            self._add(sources, missing, pieces)
        ended, self._ended_bytes = self._ended_bytes, 0
        return partial(self._done, self._group, ended)

    def spillable(self) -> list[tuple[int, Callable[[], int]]]:
        """Returns the bytes of the strings that are remembered and of each chunk that nobody holds, and what
        frees them: forgets, or moves rows to disk."""
        is_free = (self._last_group <= self._groups_done) & (self._charged > self._slice_bytes)
        return [
            (self._ids.held_bytes, self._ids.forget),
            *(
                (int(self._charged[index]), partial(self._spill, index))
                for index in np.flatnonzero(is_free).tolist()
            ),
        ]

    def close(self) -> None:
        """Releases the chunks."""
        self._ids.forget()
        self._budget.discharge(STAGE, int(self._charged.sum()) + self._ended_bytes)
        self._charged[:] = 0
        self._ended_bytes = 0

    def _load(self, index: int) -> None:
        array, charged = self._inputs[index].take_part(self._dtype)
        packed = self._packed(array)
        numbered = self._ids.numbered(array, packed)
        self._arrays[index] = GatherArray(array, self._dtype, packed=packed, numbered=numbered)
        self._fields[index] = self._arrays[index].fields
        self._left[index] = len(array)
        self._charged[index] = charged + self._arrays[index].beside_bytes

    def _packed(self, array: pa.Array) -> pa.Array | None:
        """Returns the nested values of an array's dictionary in the form in which native code gathers them;
        None if there are none, or no memory for it."""
        if not pt.is_dictionary(array.type) or not pt.is_nested(array.type.value_type):
            return None
        return packed(array.dictionary, partial(self._budget.try_charge, STAGE))

    def _add(self, sources: U16, missing: I64, pieces: ColumnPieces) -> None:
        """Takes what the inputs' chunks have of the missing rows."""
        places = np.empty(len(sources), dtype=np.int64)
        fields = np.empty((len(sources), FIELDS), dtype=np.int64)
        indices = native.take_rows(self._fields, self._left, sources, missing, places, fields)
        if not indices:
            return
        count = len(indices)
        arrays = [self._arrays[index] for index in indices]
        for number, index in enumerate(indices):
            if self._left[index]:
                self._last_group[index] = self._group
            else:
                arrays[number] = self._end(index, fields[number])
        taken = Pieces(arrays, fields[:count], self._firsts[:count], self._dtype)
        if not pieces.add(places[:count], taken):
            del arrays, taken
            self._tasks.flush()  # threads may hold rows of the chunks for earlier row groups
            self._budget.discharge(STAGE, self._ended_bytes)
            self._ended_bytes = 0

    def _end(self, index: int, fields: I64) -> GatherArray:
        """Drops a chunk, of which a row group has the last rows. Returns the array that has these, and puts
        their place in it into `fields`."""
        array, charged, rows = self._arrays[index], int(self._charged[index]), int(fields[ROWS])
        self._drop(index)
        if charged > self._slice_bytes and rows * _FEW_DIVISOR <= len(array.array):
            start = int(fields[START])
            # Known before they are copied: few rows may be heavy, and have all of a large dictionary.
            size = array.array.slice(start, rows).nbytes + array.beside_bytes
            if size * _FEW_DIVISOR <= charged and self._budget.try_charge(STAGE, size):
                few = array.copied(start, rows)
                beyond = max(0, few.held_bytes - size)
                self._budget.force(STAGE, beyond)
                self._ended_bytes += size + beyond
                self._leave(charged, int(self._last_group[index]))
                fields[:] = few.fields
                fields[ROWS] = rows
                return few
        self._ended_bytes += charged
        return array

    def _leave(self, charged: int, last_group: int) -> None:
        """Discharges a chunk once the last row group that holds its rows is made."""
        if last_group <= self._groups_done:
            self._budget.discharge(STAGE, charged)
        else:
            self._left_bytes[last_group] = self._left_bytes.get(last_group, 0) + charged

    def _spill(self, index: int) -> int:
        freed, start = int(self._charged[index]), int(self._fields[index, START])
        self._inputs[index].put_back(self._arrays[index].array.slice(start))
        self._left[index] = 0
        self._drop(index)
        self._budget.discharge(STAGE, freed)
        return freed

    def _drop(self, index: int) -> None:
        self._arrays[index] = self._nulls
        self._charged[index] = 0

    def _done(self, group: int, ended_bytes: int) -> None:
        self._groups_done = group
        self._budget.discharge(STAGE, ended_bytes + self._left_bytes.pop(group, 0))
