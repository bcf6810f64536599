"""The row order: computed once from the sort columns, replayed by every other column.

For each output row group: how many rows each input contributes, and how those rows, laid end to
end in input order, are permuted. Rows of one input keep their order, so nothing else is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compactor.merge.scratch import Handle, Scratch

_MIN_RUN: Final = 8
"""Average run length from which runs take less room than one position a row."""


@dataclass(frozen=True, slots=True)
class GroupOrder:
    """One output row group."""

    inputs: npt.NDArray[np.uint16]
    """Contributing inputs, ascending."""
    counts: npt.NDArray[np.int64]
    """Rows of each; their sum is the row group's rows."""
    positions: npt.NDArray[Any] | None
    """For each output row, its position among the inputs' rows laid end to end; None: as they lie."""


@dataclass(frozen=True, slots=True)
class _Stored:
    inputs: npt.NDArray[np.uint16]
    counts: npt.NDArray[np.int64]
    positions: Handle | None
    run_starts: Handle | None


class RowOrder:
    """Row groups in output order. Positions are kept as runs where that is smaller, and spill."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._groups: list[_Stored] = []

    def __len__(self) -> int:
        return len(self._groups)

    def append(self, origins: npt.NDArray[np.uint16]) -> None:
        """A row group from the input of each of its rows, in output order."""
        per_input = np.bincount(origins)
        inputs = np.flatnonzero(per_input)
        counts = per_input[inputs]
        if len(inputs) == 1:
            self._groups.append(_Stored(inputs.astype(np.uint16), counts, None, None))
            return
        by_input = np.argsort(origins, kind="stable")
        positions = np.empty(len(origins), dtype=_narrow(len(origins)))
        positions[by_input] = np.arange(len(origins), dtype=positions.dtype)
        run_starts = np.flatnonzero(np.diff(positions.astype(np.int64)) != 1) + 1
        handle_runs = None
        if (len(run_starts) + 1) * _MIN_RUN <= len(origins):
            run_starts = np.concatenate(([0], run_starts))
            positions = positions[run_starts]
            handle_runs = self._scratch.add(run_starts.astype(_narrow(len(origins))))
        handle = self._scratch.add(positions)
        self._groups.append(_Stored(inputs.astype(np.uint16), counts, handle, handle_runs))

    def groups(self) -> Iterator[GroupOrder]:
        """All row groups, in output order; may be iterated many times."""
        for stored in self._groups:
            yield GroupOrder(stored.inputs, stored.counts, self._positions(stored))

    def _positions(self, stored: _Stored) -> npt.NDArray[Any] | None:
        if stored.positions is None:
            return None
        positions = self._scratch.get(stored.positions)
        if stored.run_starts is None:
            return positions
        rows = int(stored.counts.sum())
        starts = self._scratch.get(stored.run_starts).astype(np.int64)
        lengths = np.diff(np.append(starts, rows))
        offsets = positions.astype(np.int64) - starts
        return (np.repeat(offsets, lengths) + np.arange(rows)).astype(_narrow(rows))


def _narrow(rows: int) -> type[Any]:
    return np.uint16 if rows <= 1 << 16 else np.uint32
