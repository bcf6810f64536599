"""Orders in which rows of several inputs become one: in turn, drawn by a seed, by key. A batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.errors import DataError
from compactor.flow.budget import MemoryBudget
from compactor.flow.disk import LocalDisk
from compactor.merge.decoded import DecodedRows
from compactor.merge.key_merge import LoadedGroup, WholeGroup, loaded_group, merge_keys
from compactor.merge.row_order import positions_by_input
from format.arrays import concat_storage
from format.errors import OrderError
from format.keys import KeyComparator
from format.schema import SortSchema
from format.types import to_logical, to_storage

Batches = Iterator[pa.RecordBatch]
_CHUNK_ROWS: Final = 65_536
_SLICE_BYTES: Final = 256 << 10
_BATCH_BYTES: Final = 32 << 20


class _Rows:
    """Rows of one input, taken from the front."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._current: pa.RecordBatch | None = None

    def available(self) -> int:
        """Rows that can be taken at once; 0 at the end."""
        while self._current is None or not self._current.num_rows:
            self._current = next(self._batches, None)
            if self._current is None:
                return 0
        return int(self._current.num_rows)

    def take(self, rows: int) -> list[pa.RecordBatch]:
        pieces = []
        while rows and (count := min(rows, self.available())):
            assert self._current is not None
            pieces.append(self._current.slice(0, count))
            self._current = self._current.slice(count)
            rows -= count
        return pieces


def in_turn(inputs: Sequence[Batches]) -> Batches:
    """A row of each input in turn, of those that have any left."""
    left = [_Rows(batches) for batches in inputs]
    while left := [rows for rows in left if rows.available()]:
        count = min(_CHUNK_ROWS // len(left) or 1, *(rows.available() for rows in left))
        pieces = [piece for rows in left for piece in rows.take(count)]
        turns = np.arange(count * len(left)).reshape(len(left), count).T.reshape(-1)
        yield _in_order(pieces, turns)


def drawn(inputs: Sequence[Batches], counts: Sequence[int], seed: int) -> Batches:
    """All rows in a random order that depends on the seed and on how many each input has, and keeps the order
    within each. Every such order is as likely.

    Drawn a chunk at a time: how many of each input come next, then in which order.
    """
    rng = np.random.default_rng(seed)
    rows = [_Rows(batches) for batches in inputs]
    left = np.array(counts, dtype=np.int64)
    while total := int(left.sum()):
        chunk = rng.multivariate_hypergeometric(left, min(_CHUNK_ROWS, total), method="marginals")
        which = rng.permutation(np.repeat(np.arange(len(rows)), chunk))
        pieces = [p for source, n in zip(rows, chunk, strict=True) for p in source.take(int(n))]
        yield _in_order(pieces, positions_by_input(which))
        left -= chunk


def _in_order(pieces: Sequence[pa.RecordBatch], positions: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Rows of the pieces, laid end to end, at these positions."""
    table = pa.Table.from_batches(pieces).combine_chunks()
    [batch] = table.to_batches() or [pieces[0].slice(0, 0)]
    return batch.take(pa.array(positions))


class _KeyInput:
    """Sorted batches as a source of the key merge, its other columns beside."""

    def __init__(
        self, name: str, batches: Batches, keys: Sequence[str], new_rows: Callable[[], DecodedRows]
    ) -> None:
        self.name = name
        self._batches = batches
        self._keys = keys
        self.keys = new_rows()
        self.rows = new_rows()

    def load_keys(self) -> LoadedGroup | None:
        for batch in self._batches:
            if batch.num_rows:
                keys = [to_storage(batch.column(name)) for name in self._keys]
                self.rows.push([to_storage(column) for column in batch.columns])
                loaded = loaded_group(keys)
                self.keys.push(keys)
                return loaded
        return None

    def row_bytes(self, group_rows: int) -> int:  # noqa: ARG002 - no row groups are written
        return 0

    def close(self) -> None:
        self.keys.clear()
        self.rows.clear()


def by_key(
    inputs: Sequence[tuple[str, Batches]],
    schema: pa.Schema,
    sort: SortSchema,
    batch_rows: int,
    budget: MemoryBudget,
    disk: LocalDisk,
) -> Batches:
    """All rows in sort order; equal keys by input, then as they came.

    inputs: names, and batches in that order.
    Raises `DataError` naming an input that is not sorted. `budget` has the stage `chunks`.
    """
    names = [column.column for column in sort]
    sources = [
        _KeyInput(name, batches, names, lambda: DecodedRows(budget, disk, _SLICE_BYTES))
        for name, batches in inputs
    ]
    compare = KeyComparator(schema, sort)
    with closing(_Closers(sources)):
        try:
            for window in merge_keys(sources, compare, sort, batch_rows, _BATCH_BYTES):
                rows = window.as_window() if isinstance(window, WholeGroup) else window
                yield _gathered(sources, rows.inputs, schema)
        except OrderError as error:
            raise DataError(f"{error}; sort it before, or merge in another mode") from error


class _Closers:
    def __init__(self, sources: Sequence[_KeyInput]) -> None:
        self._sources = sources

    def close(self) -> None:
        for source in self._sources:
            source.close()


def _gathered(
    sources: Sequence[_KeyInput], which: npt.NDArray[np.uint16], schema: pa.Schema
) -> pa.RecordBatch:
    positions = positions_by_input(which)
    counts = np.bincount(which, minlength=len(sources))
    pieces = [
        p for source, n in zip(sources, counts, strict=True) if n for p in source.rows.take(int(n))
    ]
    columns = [
        to_logical(
            concat_storage([piece[index] for piece in pieces]).take(pa.array(positions)), f.type
        )
        for index, f in enumerate(schema)
    ]
    for source in sources:
        source.rows.settle()
    return pa.RecordBatch.from_arrays(columns, schema=schema)
