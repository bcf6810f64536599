"""Holds the rows of one column that will make an output row group, and weighs them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_fragment.arrays.sizes import cumulative_bits
from lsm_fragment.arrays.types import is_binary_like
from lsm_fragment.gather.columns import used_bytes
from lsm_fragment.gather.pieces import Pieces

I64 = npt.NDArray[np.int64]
_PLAIN_ROW_BYTES: Final = 64
"""Gather dictionary-coded strings that hardly repeat as values, if their mean size is at most this."""


class ColumnPieces:
    """Rows of one column that will make a row group; once they are too heavy, they are only weighed."""

    def __init__(self, dtype: pa.DataType, max_bytes: int, *, only_weighs: bool) -> None:
        """max_bytes: limit for all pieces once they are joined."""
        self._dtype = dtype
        self._max_bytes = max_bytes
        self._only_weighs = only_weighs
        self._held: list[Pieces] = []
        self._places: list[I64] = []
        self._bits: list[I64] | None = None
        self._has_values = False
        self._held_bytes = self._max_held_bytes = self._weighed_bits = 0
        self._counted_bytes = 0
        self._not_weighed: list[Pieces] = []

    def add(self, places: I64, pieces: Pieces) -> bool:
        """Adds pieces. Returns whether they are held.

        places: the place of each piece's input among those of the row group, ascending, shape (pieces,).
        Pieces of one input must come in their order.
        """
        pieces.mark_nulls()
        held, most = pieces.weigh()
        self._has_values |= pieces.has_values or pieces.has_templates
        self._held_bytes += held
        self._max_held_bytes += most
        self._held.append(pieces)
        self._places.append(places)
        if self._bits is None:
            self._not_weighed.append(pieces)
            if not self._is_too_heavy():
                return True
            self._bits = []
            self._not_weighed.clear()
        for some in self._held:
            self._bits += [row_bits(some.array(number)) for number in range(len(some))]
        self._held.clear()
        return False

    @property
    def row_bits(self) -> I64 | None:
        """Bits of each row by input, if the pieces are not held, otherwise None. Shape (rows,)."""
        if self._bits is None:
            return None
        order = np.argsort(np.concatenate(self._places), kind="stable")
        return np.concatenate([self._bits[number] for number in order])

    @property
    def pieces(self) -> Pieces:
        """The pieces in the order of their inputs."""
        if len(self._held) == 1:
            return self._held[0]
        places = np.concatenate(self._places)
        fields = np.concatenate([pieces.fields for pieces in self._held])
        arrays = [array for pieces in self._held for array in pieces.arrays]
        order = np.argsort(places, kind="stable")
        places, fields = places[order], fields[order]
        arrays = [arrays[number] for number in order.tolist()]
        firsts = np.flatnonzero(np.diff(places, prepend=-1))
        return Pieces(arrays, fields, firsts, self._dtype)

    def work_bytes(self, rows: int, *, is_exact: bool) -> int:
        """Returns an upper bound of the bytes of all `rows` rows once they are gathered.

        is_exact: sums up the weight of every row, which takes longer, where the bound may be far too high.
        """
        if not any(pieces.has_codes for pieces in self._held):
            return self._held_bytes
        if self._has_values:
            bound = self._max_held_bytes + 4 * rows
        else:  # rows may be far heavier than the values that they share
            bound = self._held_bytes + max_plain_bytes(rows)
        if not is_exact:
            return bound
        if not self._has_values and (used := used_bytes(self.pieces)) is not None:
            bound = min(bound, used + max_plain_bytes(rows))
        return min(bound, 4 * rows + sum(map(_bits_of, self._held)) // 8)

    def _is_too_heavy(self) -> bool:
        """Returns whether the pieces are too heavy, whatever is still to come.

        Dictionary-coded pieces weigh as much as the distinct values that they use together.
        """
        if not self._has_values:
            return self._use_more_than(self._max_bytes)
        if self._only_weighs:
            return True
        if self._max_held_bytes <= self._max_bytes:
            return False
        self._weighed_bits += sum(map(_bits_of, self._not_weighed))
        self._not_weighed.clear()
        return self._weighed_bits > 8 * self._max_bytes

    def _use_more_than(self, max_bytes: int) -> bool:
        """Returns whether the distinct strings of dictionary-coded pieces take more than `max_bytes`.

        It counts them only once those that are held have doubled, because that looks up every dictionary.
        """
        if self._held_bytes <= max(max_bytes, 2 * self._counted_bytes):
            return False
        self._counted_bytes = self._held_bytes
        # What is packed may take other bytes than the values that are written.
        used = used_bytes(self.pieces) if is_binary_like(self._dtype) else None
        return used is not None and used > max_bytes


def _bits_of(pieces: Pieces) -> int:
    return sum(int(cumulative_bits(pieces.array(number))[-1]) for number in range(len(pieces)))


def max_plain_bytes(rows: int) -> int:
    """Returns the most bytes of dictionary-coded strings that may be gathered as values."""
    return _PLAIN_ROW_BYTES * rows


def row_bits(array: pa.Array) -> I64:
    """Returns the bits of each row, as if the array were not dictionary-coded. Shape (rows,)."""
    return np.diff(cumulative_bits(array))
