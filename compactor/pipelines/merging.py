"""Merges several inputs batch by batch: round-robin, in a seeded random order, or by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.errors import DataError
from compactor.merge.inputs.decoded import DecodedRows
from compactor.merge.inputs.loaded_rows import LoadedGroup, loaded_group
from compactor.merge.order.key_merge import merge_rows
from compactor.pipelines.batch_size import BatchSize
from compactor.pipelines.disorder import find_disorder, values_text
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.reservation import Pins, Reservation
from lsm_fragment.arrays.batches import concat_rows, take_rows
from lsm_fragment.arrays.storage import to_logical, to_storage
from lsm_fragment.errors import OrderError
from lsm_fragment.gather.columns import gather_arrays
from lsm_fragment.gather.nested import positions_by_source
from lsm_fragment.gather.origins import Origins
from lsm_fragment.keys.comparator import KeyComparator
from lsm_fragment.keys.sort_schema import SortSchema
from lsm_fragment.threads import ALONE, ThreadPool

Batches = Iterator[pa.RecordBatch]
PlaceOf = Callable[[int, int, pa.RecordBatch], str]
"""Returns where a row is, for an error, by the number of its input, its own in there, and its columns."""
_CHUNK_ROWS: Final = 65_536
_PIECE_BYTES: Final = 1 << 20
_COPIES: Final = 2
"""Copies of a piece while it is reordered: concatenated, and in order."""
_SLICE_BYTES: Final = 256 << 10
_RESERVE_DIVISOR: Final = 2
"""Rows that wait until they are merged leave one part in this many free: what takes them can't spill them."""


class _InputRows:
    """The rows of one input, consumed from the front."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._current: pa.RecordBatch | None = None
        self.held_bytes = 0
        """Bytes of the current batch."""
        self.row_bytes = 0
        """Average row size of the current batch."""

    def available(self) -> int:
        """Returns the number of rows ready; 0 at the end."""
        while self._current is None or not self._current.num_rows:
            self._current = next(self._batches, None)
            self.held_bytes = 0 if self._current is None else self._current.nbytes
            if self._current is None:
                return 0
            self.row_bytes = self.held_bytes // max(1, self._current.num_rows)
        return int(self._current.num_rows)

    def take(self, rows: int) -> pa.RecordBatch:
        """Takes the next `rows` rows, at most `available()`."""
        assert self._current is not None
        piece, self._current = self._current.slice(0, rows), self._current.slice(rows)
        return piece


class InterleavedRows:
    """A merge that keeps the order within each input.

    Holds a batch per input and a piece of the result, charged to a stage.
    """

    def __init__(self, inputs: Sequence[Batches], budget: MemoryBudget, stage: str) -> None:
        self._rows = [_InputRows(batches) for batches in inputs]
        self._memory = Reservation(budget, stage)

    def close(self) -> None:
        self._memory.free()

    def in_turn(self) -> Batches:
        """Yields rows round-robin, until every input is exhausted."""
        left = np.arange(len(self._rows))
        while True:
            available = np.array([self._rows[n].available() for n in left], dtype=np.int64)
            left, available = left[available > 0], available[available > 0]
            if not len(left):
                return
            yield from self._ordered(np.tile(left, min(_CHUNK_ROWS // len(left) or 1, *available)))

    def drawn(self, counts: Sequence[int], seed: int) -> Batches:
        """Yields all rows in a random order, determined by the seed and the row counts of the inputs.

        All orders are equally likely. Each chunk is drawn in two steps: the number of rows per input, then
        their order.
        """
        rng = np.random.default_rng(seed)
        left = np.array(counts, dtype=np.int64)
        while total := int(left.sum()):
            chunk = rng.multivariate_hypergeometric(
                left, min(_CHUNK_ROWS, total), method="marginals"
            )
            yield from self._ordered(rng.permutation(np.repeat(np.arange(len(left)), chunk)))
            left -= chunk

    def _ordered(self, which: npt.NDArray[np.int64]) -> Batches:
        """Yields the next rows, taken from the inputs that `which` lists, as many at a time as memory
        allows."""
        start = 0
        while start < len(which):
            mine = which[start : start + self._max_rows(which[start:])]
            counts = np.bincount(mine, minlength=len(self._rows)).tolist()
            taken = [rows.take(n) for rows, n in zip(self._rows, counts, strict=True) if n]
            weight = sum(piece.nbytes for piece in taken)
            self._memory.resize(sum(rows.held_bytes for rows in self._rows) + _COPIES * weight)
            yield take_rows(concat_rows(taken), positions_by_source(mine))
            start += len(mine)

    def _max_rows(self, which: npt.NDArray[np.int64]) -> int:
        """Returns how many rows of an order the loaded batches can supply, up to the size of a piece.

        Batches not yet loaded may have rows of any size.
        """
        available = np.array([rows.available() for rows in self._rows])
        weights = np.array([max(1, rows.row_bytes) for rows in self._rows])
        which = which[: min(int(available.sum()), 1 + _PIECE_BYTES // int(weights.min()))]
        max_rows = len(which)
        if max_rows * int(weights.max()) > _PIECE_BYTES:
            max_rows = int(np.searchsorted(np.cumsum(weights[which]), _PIECE_BYTES, side="right"))
        for number in np.flatnonzero(np.bincount(which, minlength=len(available)) > available):
            max_rows = min(max_rows, int(np.flatnonzero(which == number)[available[number]]))
        return max(1, max_rows)


class _KeyInput:
    """Sorted batches as an input of the key merge, with all columns."""

    def __init__(
        self, name: str, batches: Batches, keys: Sequence[str], new_rows: Callable[[], DecodedRows]
    ) -> None:
        self.name = name
        self._batches = batches
        self._keys = keys
        self._row_bytes = 0
        self.keys = new_rows()
        self.rows = new_rows()

    def load_keys(self) -> LoadedGroup | None:
        for batch in self._batches:
            if batch.num_rows:
                self._row_bytes = batch.nbytes // batch.num_rows
                keys = [to_storage(batch.column(name)) for name in self._keys]
                self.rows.push([to_storage(column) for column in batch.columns])
                loaded = loaded_group(keys)
                self.keys.push(keys)
                return loaded
        return None

    def row_bytes(self, group_rows: int) -> int:  # noqa: ARG002 - the rows of a batch
        """Returns the average bytes of a row of the batch that was loaded last, in all columns."""
        return self._row_bytes

    def close(self) -> None:
        self.keys.clear()
        self.rows.clear()


def number_of(_input: int, number: int, _row: pa.RecordBatch) -> str:
    return f"row {number:,}"


def by_key(
    inputs: Sequence[tuple[str, Batches]],
    schema: pa.Schema,
    sort: SortSchema,
    batch_size: BatchSize,
    budget: MemoryBudget,
    disk: LocalDisk,
    pool: ThreadPool = ALONE,
    place_of: PlaceOf = number_of,
) -> Batches:
    """Yields all rows in sort order; equal keys by input, then in input order.

    inputs: name and sorted batches of each. `budget` must have the stage `chunks`. pool: gathers columns.
    Raises `DataError` naming an input that is not sorted, with the place of the row and its values.
    """
    names = [column.column for column in sort]
    # Smaller than batches, which would not go to disk otherwise.
    slice_bytes = min(_SLICE_BYTES, batch_size.bytes // 4)
    reserve = budget.limit_bytes // _RESERVE_DIVISOR
    sources = [
        _KeyInput(name, batches, names, lambda: DecodedRows(budget, disk, slice_bytes, reserve))
        for name, batches in inputs
    ]
    compare = KeyComparator(schema, sort)
    with ExitStack() as opened:
        for source in sources:
            opened.enter_context(closing(source))
        try:
            for window in merge_rows(sources, compare, sort, *batch_size):
                for rows in batch_size.divided(window.row_bytes):
                    yield _gathered(sources, window.inputs[rows], schema, pool)
        except OrderError as error:
            index = [source.name for source in sources].index(error.name)
            found = find_disorder(sources[index].rows, schema, sort)
            after = "" if found.before is None else f" after {values_text(found.before, sort)}"
            raise DataError(
                f"{error}: {place_of(index, found.number, found.row)} has {values_text(found.row, sort)}"
                f"{after}; sort it before, or merge in another mode"
            ) from error


def _gathered(
    sources: Sequence[_KeyInput],
    which: npt.NDArray[np.uint16],
    schema: pa.Schema,
    pool: ThreadPool,
) -> pa.RecordBatch:
    origins = Origins.of(which, len(sources))
    counts = origins.counts.tolist()
    with Pins() as pins:
        taken = [source.rows.take(n, pins) for source, n in zip(sources, counts, strict=True)]

        def gathered(index: int) -> pa.Array:
            pieces = [[piece[index] for piece in of_source] for of_source in taken]
            return to_logical(gather_arrays(pieces, origins), schema.field(index).type)

        columns = pool.each(gathered, range(len(schema)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
