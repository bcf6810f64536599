"""Takes sort columns in the merged order from their inputs, where they wait until their row group is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compactor.merge.inputs.decoded import DecodedRows
from compactor.resources.reservation import Pins
from lsm_fragment.arrays.sizes import cumulative_bits
from lsm_fragment.gather.nested import positions_by_source
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import Pieces, Span, pieces_of_spans
from lsm_fragment.keys.comparator import ComparableKey
from lsm_fragment.keys.normalised import KeyLayout
from lsm_fragment.native.gather import origins as native

U16 = npt.NDArray[np.uint16]
I64 = npt.NDArray[np.int64]


class KeyPieces(NamedTuple):
    """The sort columns of consecutive rows in order, not gathered yet."""

    columns: Sequence[Pieces]
    """Pieces of each contributing input, for each sort column."""
    inputs: npt.NDArray[np.intp]
    """The contributing inputs, ascending."""
    origins: Origins
    """For each row, the place of its input among these."""
    counts: I64
    """How many rows each input has, contributing or not."""
    pins: Pins
    """Keep them in memory; free these when the rows are done with."""


def borrowed(sources: Sequence[DecodedRows], inputs: U16, skips: I64) -> KeyPieces:
    """Returns the sort columns of rows, without taking them.

    inputs: the input of each row. skips: the number of rows of each input that come before them and were not
    taken.
    """
    of_all = Origins.of(inputs, len(sources))
    counts, numbers = of_all.counts, np.flatnonzero(of_all.counts)
    pins, spans = Pins(), list[list[Span]]()
    places = zip(numbers.tolist(), skips[numbers].tolist(), counts[numbers].tolist(), strict=True)
    for number, skip, count in places:
        found = sources[number].borrow(skip, count, pins)
        spans.append([rows.span() for rows in found])
    origins = Origins(_places(inputs, numbers), counts[numbers], of_all.runs)
    return KeyPieces(pieces_of_spans(spans), numbers, origins, counts, pins)


class WaitingKeys:
    """The sort columns of rows that are in order and wait until their row group is cut. `inputs` always has
    the input of each of the first rows that wait, up to some row."""

    def __init__(self, sources: Sequence[DecodedRows], layout: KeyLayout) -> None:
        self._sources = sources
        self._layout = layout

    def key(self, inputs: U16, row: int) -> ComparableKey:
        """Returns the key of one row."""
        source = int(inputs[row])
        skip = int(np.count_nonzero(inputs[:row] == source))
        found = self._sources[source].key_rows(skip, self._layout)
        return found.keys.key(found.start)

    def rows_within(self, inputs: U16, start: int, limit_bytes: int) -> int:
        """Returns the most rows from `start` on (at least 1) that take at most `limit_bytes` in every column,
        as if none were dictionary-coded."""
        rows = len(inputs) - start
        if self._are_light(rows, limit_bytes):
            return rows
        skips = Origins.of(inputs[:start], len(self._sources)).counts
        keys = borrowed(self._sources, inputs[start:], skips)
        with keys.pins:
            # Bits of a bitmap may be missing in the upper bound.
            most = max(pieces.weigh()[1] for pieces in keys.columns) + rows // 8 + 1
            if most <= limit_bytes:
                return rows
            within = (_rows_within(pieces, keys.origins, limit_bytes) for pieces in keys.columns)
            return max(1, min(within))

    def _are_light(self, rows: int, limit_bytes: int) -> bool:
        """Returns whether `rows` rows fit even if each is as heavy as the heaviest."""
        heaviest = [source.heaviest_bytes() for source in self._sources]
        known = [size for size in heaviest if size is not None]
        return len(known) == len(heaviest) and rows * max(known) <= limit_bytes

    def borrow(self, inputs: U16) -> KeyPieces:
        """Returns the first rows without taking them; until their pins are freed, they do not spill."""
        return borrowed(self._sources, inputs, np.zeros(len(self._sources), dtype=np.int64))

    def spill(self, counts: I64) -> None:
        """Moves the rows to disk, the first ones of each input apart from those behind them."""
        for source, count in zip(self._sources, counts.tolist(), strict=True):
            source.spill(count)

    def drop(self, counts: I64) -> None:
        """Takes the first rows of each input; what is pinned of them stays in memory."""
        for number in np.flatnonzero(counts).tolist():
            self._sources[number].drop(int(counts[number]))


def _places(inputs: U16, numbers: npt.NDArray[np.intp]) -> U16:
    """Returns the place of each row's input among those with rows."""
    if len(numbers) > numbers[-1]:
        return inputs
    place_of = np.zeros(int(numbers[-1]) + 1, dtype=np.uint16)
    place_of[numbers] = np.arange(len(numbers))
    places = np.empty(len(inputs), dtype=np.uint16)
    native.renumber(inputs, place_of, places)
    return places


def _rows_within(pieces: Pieces, origins: Origins, limit_bytes: int) -> int:
    bits = (cumulative_bits(pieces.array(number)) for number in range(len(pieces)))
    by_source = np.concatenate([np.diff(totals) for totals in bits])
    totals = np.cumsum(by_source[positions_by_source(origins.sources)]) // 8
    return int(np.searchsorted(totals, limit_bytes, side="right"))
