"""Decides where row groups are divided because one of their columns is too heavy.

Row groups are cut by the inputs' statistics, before any column other than the sort columns is read. Heavy
rows that are scattered over the inputs may become neighbours only in the merged order. The first pass notices
that, measures that column and all that follow, and the second pass divides exactly those row groups.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.merge.merged_dictionary import MergedDictionary, code_nulls
from compactor.merge.row_groups import OutputGroup
from compactor.rows.flags import Flags, whole_until
from format.arrays import without_unused
from format.nodes import dictionary_codes, valid_mask
from format.sizes import cumulative_bits, cumulative_bytes

I64 = npt.NDArray[np.int64]


class Splits:
    """The rows at which row groups are divided, by the number of the row group in output order."""

    def __init__(self) -> None:
        self._rows: dict[int, set[int]] = {}

    def __len__(self) -> int:
        """Returns the number of row groups that are divided."""
        return len(self._rows)

    def add(self, group: int, row_bits: I64, limit_bytes: int, flags: Flags | None = None) -> None:
        """Divides a row group so that no part takes more than the limit, as far as it can be divided.

        row_bits: bits of each row in one column, in output order, shape (rows,). flags: those of the rows.
        """
        running = np.concatenate(([0], np.cumsum(row_bits)))
        start, rows = 0, len(row_bits)
        while True:
            limit = running[start] + 8 * limit_bytes
            stop = max(start + 1, int(np.searchsorted(running, limit, side="right")) - 1)
            stop = whole_until(flags, stop, start)
            if stop >= rows:
                return
            self._rows.setdefault(group, set()).add(stop)
            start = stop

    def divide(self, number: int, group: OutputGroup) -> Iterator[OutputGroup]:
        """Yields the parts of the row group."""
        stops = [*sorted(self._rows.get(number, ())), group.rows]
        start = 0
        for stop in stops:
            yield OutputGroup(
                [key.slice(start, stop - start) for key in group.keys],
                group.origins[start:stop],
                group.starts_fragment and start == 0,
                None if group.flags is None else group.flags[start:stop],
            )
            start = stop


class ColumnPieces:
    """Rows of one column that will make a row group; once they are too heavy, they are only weighed."""

    def __init__(self, dictionary: MergedDictionary, most_bytes: int, *, only_weighs: bool) -> None:
        """most_bytes: limit for all pieces once they are joined."""
        self.arrays: list[pa.Array] = []
        self._dictionary = dictionary
        self._most_bytes = most_bytes
        self._only_weighs = only_weighs
        self._bits: list[I64] | None = None
        self._has_values = self._has_own = self._has_merged = False
        self._held_bytes = self._weighed_bits = self._weighed = 0

    def add(self, piece: pa.Array) -> bool:
        """Adds a piece. Returns whether it is held."""
        if isinstance(piece, pa.DictionaryArray):
            self._has_own = True
            if len(piece.dictionary) > len(piece):
                piece = without_unused(piece)
        elif self._dictionary.has_coded(piece):
            self._has_merged = True
        else:
            self._has_values = self._has_values or piece.null_count < len(piece)
        self.arrays.append(piece)
        self._held_bytes += piece.nbytes
        if self._bits is None:
            if not self._is_too_heavy():
                return True
            self._bits = []
        self._bits.append(np.concatenate([self._row_bits(array) for array in self.arrays]))
        self.arrays.clear()
        return False

    def alike(self) -> list[pa.Array]:
        """Returns the pieces in a form that can be joined: all are codes of the dictionary, or none is."""
        if not self._has_merged:
            return self.arrays
        if self.has_dictionary_codes:
            return [a if self._dictionary.has_coded(a) else code_nulls(len(a)) for a in self.arrays]
        as_values = self._dictionary.decoded if self._has_values else self._dictionary.coded
        return [as_values(a) if self._dictionary.has_coded(a) else a for a in self.arrays]

    @property
    def row_bits(self) -> I64 | None:
        """Bits of each row if the pieces are not held, otherwise None. Shape (rows,)."""
        return None if self._bits is None else np.concatenate(self._bits)

    @property
    def has_dictionary_codes(self) -> bool:
        """Whether all pieces are codes of the dictionary, or null."""
        return self._has_merged and not self._has_values and not self._has_own

    @property
    def is_coded(self) -> bool:
        """Whether the pieces make a dictionary-coded array."""
        return (self._has_own or self._has_merged) and not self._has_values

    def _row_bits(self, array: pa.Array) -> I64:
        return row_bits(
            self._dictionary.coded(array) if self._dictionary.has_coded(array) else array
        )

    def _is_too_heavy(self) -> bool:
        """Returns whether the pieces are too heavy, whatever is still to come.

        Dictionary-coded pieces weigh as much as the values that they use, which is known only for all
        together.
        """
        if not self._has_values:
            return False
        if self._only_weighs:
            return True
        if not (self._has_own or self._has_merged) and self._held_bytes <= self._most_bytes:
            return False
        for array in self.arrays[self._weighed :]:
            self._weighed_bits += int(self._row_bits(array).sum())
        self._weighed = len(self.arrays)
        return self._weighed_bits > 8 * self._most_bytes


def coded_bytes(array: pa.Array) -> int:
    """Returns the bytes of a dictionary-coded array: its codes, and the values that they point to."""
    valid, codes = valid_mask(array), dictionary_codes(array)
    used = np.unique(codes if valid is None else codes[valid])
    values = np.diff(cumulative_bytes(array.dictionary))
    return 4 * len(array) + int(values[used].sum())


def row_bits(array: pa.Array) -> I64:
    """Returns the bits of each row, as if the array were not dictionary-coded. Shape (rows,)."""
    return np.diff(cumulative_bits(array))
