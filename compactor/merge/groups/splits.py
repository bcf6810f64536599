"""Decides where row groups are divided because one of their columns is too heavy.

Row groups are cut by the inputs' statistics, before any column other than the sort columns is read. Heavy
rows that are scattered over the inputs may become neighbours only in the merged order. The first pass notices
that, measures that column and all that follow, and the second pass divides exactly those row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from compactor.merge.groups.column_pieces import I64
from compactor.merge.groups.row_groups import OutputGroup
from compactor.rows.flags import Flags, whole_until


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
