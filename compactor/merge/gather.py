"""Gathers the rows of one output row group in one column: takes them from the inputs and puts them in
order."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compactor.merge.merge_input import MergeInput
from compactor.merge.merged_dictionary import MergedDictionary
from compactor.merge.row_order import GroupOrder
from compactor.merge.splits import ColumnPieces, Splits, coded_bytes, row_bits
from compactor.resources.budget import MemoryBudget
from compactor.resources.merge_plan import OVERSHOOT_FACTOR
from compactor.rows.flags import Flags as RowFlags
from compactor.rows.flags import is_divisible
from format.arrays import concat_storage
from format.fitting import expanded_bytes
from format.limits import max_written_bytes

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Gatherer:
    """A gatherer of row groups; once one was too heavy, it only weighs them."""

    def __init__(
        self, inputs: Sequence[MergeInput], budget: MemoryBudget, target_row_group_bytes: int
    ) -> None:
        self._inputs = inputs
        self._budget = budget
        self._target_bytes = target_row_group_bytes
        self._most_bytes = OVERSHOOT_FACTOR * target_row_group_bytes
        """The most bytes of one column in a row group of more than one row."""
        self.splits = Splits()
        """Splits of the row groups that were too heavy."""

    def gather(
        self,
        dictionary: MergedDictionary,
        order: GroupOrder,
        present: Flags,
        number: int,
    ) -> tuple[pa.Array, pa.Array | None] | None:
        """Gathers one row group. Returns its values, and their codes if they are in the dictionary.

        Returns None if the row group is too heavy or was only measured; `splits` has the result.
        present: which inputs have the column. number: that of the row group in output order.
        """
        has_rows = present[order.inputs]
        if not has_rows.any():
            return pa.nulls(order.rows, dictionary.values.type), None
        pieces = self._take(dictionary, order, has_rows)
        positions = _positions(order, has_rows)
        if (bits := pieces.row_bits) is not None:
            if is_divisible(order.flags, order.rows) and int(bits.sum()) > 8 * self._most_bytes:
                self._split(number, bits, positions, order.flags)
            return None
        arrays = pieces.alike()
        size = sum(array.nbytes for array in arrays) if len(arrays) > 1 else 0
        with self._budget.holding("gather", size):
            array = concat_storage(arrays)
            if positions is not None:
                array = pc.take(array, positions, boundscheck=False)
        codes = None
        if pieces.has_dictionary_codes:
            codes, array = array, dictionary.coded(array)
        if (
            pieces.is_coded
            and is_divisible(order.flags, order.rows)
            and array.nbytes > self._most_bytes < coded_bytes(array)
        ):
            self._split(number, row_bits(array), None, order.flags)
            return None
        if pieces.is_coded and is_divisible(order.flags, order.rows) and _stands_for_much(array):
            self.splits.add(number, row_bits(array), _most_stood_for_bytes(), order.flags)
            return None
        return array, codes

    def _take(
        self, dictionary: MergedDictionary, order: GroupOrder, has_rows: Flags
    ) -> ColumnPieces:
        """Takes the rows of the inputs that have the column, end to end."""
        most = self._most_bytes if is_divisible(order.flags, order.rows) else sys.maxsize
        pieces = ColumnPieces(dictionary, most, only_weighs=bool(self.splits))
        for index, count in zip(order.inputs[has_rows], order.counts[has_rows], strict=True):
            source, left = self._inputs[index], int(count)
            while left:
                piece = source.take_piece(dictionary, left)
                left -= len(piece)
                if not pieces.add(piece):
                    del piece
                    source.settle()
        return pieces

    def _split(
        self, number: int, bits: I64, positions: pa.Array | None, row_flags: RowFlags | None
    ) -> None:
        if positions is not None:
            bits = pc.take(pa.array(bits), positions).fill_null(0).to_numpy()
        self.splits.add(number, bits, self._target_bytes, row_flags)


def _most_stood_for_bytes() -> int:
    """Returns half of the bytes that readers accept; the other half is for everything else that they need."""
    return max_written_bytes() // 2


def _stands_for_much(array: pa.Array) -> bool:
    """Returns whether readers might refuse the array because its dictionary decodes to too much."""
    most = _most_stood_for_bytes()
    return len(array) * array.dictionary.nbytes > most and expanded_bytes(array) > most


def _positions(order: GroupOrder, has_rows: Flags) -> pa.Array | None:
    """Returns where each output row lies among the rows of the inputs that have the column, laid end to end.

    Null where the row's input does not have the column. Returns None if rows stay in that order.
    """
    positions = order.positions()
    if has_rows.all():
        return None if positions is None else pa.array(positions)
    if positions is None:
        positions = np.arange(order.rows)
    counts = order.counts.astype(np.int64)
    owner = np.searchsorted(np.cumsum(counts), positions, side="right")
    skipped = np.cumsum(np.where(has_rows, 0, counts))
    return pa.array(positions - skipped[owner], mask=~has_rows[owner])
