"""Decides where row groups are divided because one of their columns is too heavy.

Row groups are cut by the inputs' statistics, before any column other than the sort columns is read. Heavy
rows that are scattered over the inputs may become neighbours only in the merged order. The first pass notices
that, measures that column and all that follow, and the second pass divides exactly those row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.merge.row_groups import OutputGroup
from compactor.rows.flags import Flags, whole_until
from format.gather import Rows
from format.sizes import cumulative_bits

I64 = npt.NDArray[np.int64]
_PLAIN_ROW_BYTES: Final = 64
"""Mean bytes up to which dictionary-coded strings that hardly repeat are gathered as values."""


class Splits:
    """The rows at which row groups are divided, by the number of the row group in output order."""

    def __init__(self) -> None:
        self._rows: dict[int, set[int]] = {}

    def __len__(self) -> int:
        """Returns the number of row groups that are divided."""
        return len(self._rows)

    def add(self, group: int, stops: Sequence[int]) -> None:
        """Divides a row group before the rows `stops`."""
        if stops:
            self._rows.setdefault(group, set()).update(stops)

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


def stops_within(row_bits: I64, limit_bytes: int, flags: Flags | None) -> list[int]:
    """Returns the rows before which a row group is divided, so that no part takes more than the limit, as far
    as it can be divided.

    row_bits: bits of each row in one column, in output order, shape (rows,). flags: those of the rows.
    """
    running = np.concatenate(([0], np.cumsum(row_bits)))
    stops: list[int] = []
    start, rows = 0, len(row_bits)
    while True:
        limit = running[start] + 8 * limit_bytes
        stop = max(start + 1, int(np.searchsorted(running, limit, side="right")) - 1)
        stop = whole_until(flags, stop, start)
        if stop >= rows:
            return stops
        stops.append(stop)
        start = stop


class ColumnPieces:
    """Rows of one column that will make a row group; once they are too heavy, they are only weighed."""

    def __init__(self, most_bytes: int, *, only_weighs: bool) -> None:
        """most_bytes: limit for all pieces once they are joined."""
        self.sources: list[list[Rows]] = []
        """The pieces of each input, in the order of the inputs."""
        self._most_bytes = most_bytes
        self._only_weighs = only_weighs
        self._bits: list[I64] | None = None
        self._has_values = self._has_codes = False
        self._held_bytes = self._most_held_bytes = self._weighed_bits = 0
        self._not_weighed: list[Rows] = []

    def begin_input(self) -> None:
        """Begins the pieces of the next input."""
        self.sources.append([])

    def add(self, rows: Rows) -> bool:
        """Adds a piece of the input that was begun last. Returns whether it is held."""
        array, start, count = rows
        self._has_codes = self._has_codes or array.is_coded
        self._has_values = self._has_values or array.is_plain
        self.sources[-1].append(rows)
        size = array.bytes_of(start, count)
        self._held_bytes += size
        self._most_held_bytes += array.most_bytes_of(start, count) if array.is_coded else size
        if self._bits is None:
            self._not_weighed.append(rows)
            if not self._is_too_heavy():
                return True
            self._bits = []
            self._not_weighed.clear()
        held = [piece for source in self.sources for piece in source]
        self._bits.append(np.concatenate([row_bits(piece.as_array) for piece in held]))
        for source in self.sources:
            source.clear()
        return False

    @property
    def row_bits(self) -> I64 | None:
        """Bits of each row if the pieces are not held, otherwise None. Shape (rows,)."""
        return None if self._bits is None else np.concatenate(self._bits)

    def work_bytes(self, *, is_exact: bool) -> int:
        """Returns an upper bound of the bytes of the rows once they are gathered.

        is_exact: sums up the weight of every row, which takes longer, where the bound may be far too high.
        """
        if not self._has_codes:
            return self._held_bytes
        pieces = [piece for source in self.sources for piece in source]
        if self._has_values and not is_exact:
            return self._most_held_bytes + 4 * sum(piece.rows for piece in pieces)
        if is_exact:
            return sum(4 * piece.rows + _bits_of(piece) // 8 for piece in pieces)
        return self._held_bytes + most_plain_bytes(sum(piece.rows for piece in pieces))

    def _is_too_heavy(self) -> bool:
        """Returns whether the pieces are too heavy, whatever is still to come.

        Dictionary-coded pieces weigh as much as the values that they use, which is known only for all
        together.
        """
        if not self._has_values:
            return False
        if self._only_weighs:
            return True
        if self._most_held_bytes <= self._most_bytes:
            return False
        self._weighed_bits += sum(map(_bits_of, self._not_weighed))
        self._not_weighed.clear()
        return self._weighed_bits > 8 * self._most_bytes


def _bits_of(rows: Rows) -> int:
    return int(cumulative_bits(rows.as_array)[-1])


def most_plain_bytes(rows: int) -> int:
    """Returns the most bytes of dictionary-coded strings that may be gathered as values."""
    return _PLAIN_ROW_BYTES * rows


def row_bits(array: pa.Array) -> I64:
    """Returns the bits of each row, as if the array were not dictionary-coded. Shape (rows,)."""
    return np.diff(cumulative_bits(array))
