"""Takes the rows of one column from all inputs, one output row group after the other.

Every input is at some row of one decoded chunk. Where that has the rows that the input gives to a row group,
they are taken from all such inputs at once, without a step for each; the other inputs load their next chunk.
A few last rows of a chunk are copied before that, so that not every input has two chunks in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.merge.groups.column_pieces import ColumnPieces
from compactor.merge.inputs.column_reader import ColumnReader
from compactor.merge.inputs.decoding import may_decode_ahead
from compactor.merge.order.row_order import GroupOrder
from compactor.merge.order.string_ids import StringIds
from compactor.resources.budget import MemoryBudget
from compactor.resources.merge_stages import CHUNKS
from compactor.resources.reservation import Pins, Reservation
from lsm_fragment.arrays.nested_bytes import packed
from lsm_fragment.arrays.types import is_string
from lsm_fragment.encodings.template import Precedent
from lsm_fragment.gather.pieces import FIELDS, ROWS, START, GatherArray, Pieces
from lsm_fragment.native.gather import rows as native

I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]
_NO_END: Final = np.iinfo(np.int64).max
_FEW_DIVISOR: Final = 4
"""Copy the last rows of a chunk, and drop the chunk, if they are at most one in this many of its rows."""


class ColumnCursors:
    """The row and the chunk at which every input is. Inputs without the column give nulls."""

    def __init__(
        self,
        inputs: Sequence[ColumnReader],
        present: npt.NDArray[np.bool_],
        dtype: pa.DataType,
        budget: MemoryBudget,
        slice_bytes: int,
    ) -> None:
        """present: the inputs that have the column. slice_bytes: chunks of fewer bytes do not spill."""
        self._inputs = inputs
        self._dtype = dtype
        self._budget = budget
        self._slice_bytes = slice_bytes
        self._ids = StringIds(budget)
        self._nulls = GatherArray(pa.nulls(0), dtype)
        self._arrays = [self._nulls] * len(inputs)
        self._memory = [Reservation(budget, CHUNKS)] * len(inputs)
        """The memory of each input's chunk."""
        self._fields = np.zeros((len(inputs), FIELDS), dtype=np.int64)
        self._fields[:] = self._nulls.fields
        self._left = np.where(present, 0, _NO_END)
        self._firsts = np.arange(len(inputs))
        """The piece of each input, where every input gives one."""
        self._pins = Pins()
        """The memory of the rows that are being taken."""

    def take(self, order: GroupOrder, pieces: ColumnPieces) -> Pins:
        """Takes the next row group's rows into `pieces`. Returns the pins of their memory."""
        pins = self._pins = Pins()
        sources, missing = order.inputs, np.empty(len(order.inputs), dtype=np.int64)
        lacking = deque(native.lacking(self._left, sources, order.counts, missing))
        self._decode_ahead(sources, missing, lacking)
        self._add(sources, missing, pieces)
        while len(places := missing.nonzero()[0]):
            places = places if may_decode_ahead(self._budget, 0) else places[:1]
            for index in sources[places].tolist():
                self._load(index)
                self._decode_ahead(sources, missing, lacking)  # in the room that its decoding took
            # Loading one may have moved another to disk.
            self._add(sources, missing, pieces)
        self._pins = Pins()
        return pins

    def precedent(self, order: GroupOrder) -> Precedent:
        """Returns what became of the strings of a row group that was just taken, when they were written: they
        are not searched for templates again if no input has any, nor codes."""
        if not is_string(self._dtype):
            return Precedent()
        present = order.inputs[self._left[order.inputs] < _NO_END // 2]
        inputs = [self._inputs[index] for index in present.tolist()]
        rows = min((reader.searched_rows for reader in inputs), default=0)
        known = {reader.by_vocabulary for reader in inputs}
        by_vocabulary = known.pop() if len(known) == 1 else None
        return Precedent.of_text(rows, by_vocabulary=by_vocabulary)

    def spillable(self) -> list[tuple[int, Callable[[], int]]]:
        """Returns the bytes of the strings that are remembered and of each chunk that is not pinned, with a
        function that frees them: it forgets the strings, or moves rows to disk."""
        return [
            (self._ids.held_bytes, self._ids.forget),
            *(
                (memory.size, partial(self._spill, index, memory))
                for index, memory in enumerate(self._memory)
                if memory.size > self._slice_bytes and not memory.is_pinned
            ),
        ]

    def close(self) -> None:
        """Releases the chunks."""
        self._ids.forget()
        self._ids.words.forget()
        self._pins.free()
        for index in range(len(self._inputs)):
            self._drop(index)

    def _decode_ahead(self, sources: U16, missing: I64, lacking: deque[int]) -> None:
        """Begins to decode chunks with missing rows, as far as there is room. lacking: the places of their
        inputs; loses those whose chunks are begun."""
        while lacking:
            index, rows = int(sources[lacking[0]]), int(missing[lacking[0]])
            if not self._inputs[index].decode_ahead(self._dtype, rows - int(self._left[index])):
                return
            lacking.popleft()

    def _load(self, index: int) -> None:
        array, memory = self._inputs[index].take_part(self._dtype)
        array, words = self._ids.words.numbered(array, memory)
        packed = self._packed(array, memory)
        numbered = self._ids.numbered(array, memory, packed)
        self._arrays[index] = GatherArray(
            array, self._dtype, packed=packed, numbered=numbered, words=words
        )
        self._fields[index] = self._arrays[index].fields
        self._left[index] = len(array)
        self._memory[index] = memory

    def _packed(self, array: pa.Array, memory: Reservation) -> pa.Array | None:
        """Returns the nested values of an array's dictionary in the form in which native code gathers them;
        None if there are none, or no memory for it."""
        if not pt.is_dictionary(array.type) or not pt.is_nested(array.type.value_type):
            return None
        return packed(array.dictionary, memory.try_grow)

    def _add(self, sources: U16, missing: I64, pieces: ColumnPieces) -> None:
        """Takes those of the missing rows that the inputs' chunks have."""
        places = np.empty(len(sources), dtype=np.int64)
        fields = np.empty((len(sources), FIELDS), dtype=np.int64)
        indices = native.take_rows(self._fields, self._left, sources, missing, places, fields)
        if not indices:
            return
        count = len(indices)
        arrays = [self._arrays[index] for index in indices]
        left = self._left[indices].tolist()
        self._pins.extend(
            [self._memory[index] for index, rows in zip(indices, left, strict=True) if rows]
        )
        for number, rows in enumerate(left):
            if not rows:
                arrays[number] = self._end(indices[number], fields[number])
        taken = Pieces(arrays, fields[:count], self._firsts[:count], self._dtype)
        if not pieces.add(places[:count], taken):
            del arrays, taken
            self._pins.free()  # the rows were only weighed

    def _end(self, index: int, fields: I64) -> GatherArray:
        """Drops a chunk whose last rows a row group has. Returns the array that has these, and puts their
        place in it into `fields`."""
        array, memory = self._arrays[index], self._memory[index]
        self._drop(index)
        few = self._few(array, fields, memory.size)
        if few is None:
            self._pins.add(memory)
            return array
        rows = fields[ROWS]
        fields[:] = few.fields
        fields[ROWS] = rows
        return few

    def _few(self, array: GatherArray, fields: I64, held_bytes: int) -> GatherArray | None:
        """Returns a copy of a chunk's last rows, if they are few; None if a copy would free too little."""
        start, rows = int(fields[START]), int(fields[ROWS])
        if held_bytes <= self._slice_bytes or rows * _FEW_DIVISOR > len(array.array):
            return None
        # Known before they are copied: few rows may be heavy, and have all of a large dictionary.
        size = array.array.slice(start, rows).nbytes + array.beside_bytes
        memory = Reservation(self._budget, CHUNKS)
        if size * _FEW_DIVISOR > held_bytes or not memory.try_grow(size):
            return None
        few = array.copied(start, rows)
        memory.grow_beyond(max(0, few.held_bytes - size))
        self._pins.add(memory)
        return few

    def _spill(self, index: int, memory: Reservation) -> int:
        array, start = self._arrays[index], int(self._fields[index, START])
        self._inputs[index].put_back(array.part(start, len(array.array) - start))
        self._left[index] = 0
        self._drop(index)
        return memory.free()

    def _drop(self, index: int) -> None:
        self._arrays[index] = self._nulls
        self._memory[index] = Reservation(self._budget, CHUNKS)
