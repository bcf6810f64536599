"""Compares the merged rows of two versions key by key. Knows no store.

Both sides are in key order and have at most one row of a key, so one batch of each is compared at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from compactor.read.change_plan import Change
from compactor.table.metadata import TableMetadata
from lsm_fragment.arrays.hashing import add_column
from lsm_fragment.arrays.joining import batch_of, concat_storage
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.storage import to_logical, to_storage
from lsm_fragment.keys.normalised import SortKeys, same_as_previous, sort_keys, stable_order
from lsm_fragment.keys.sort_schema import SortSchema

_KINDS: Final = pa.array(
    [Change.DELETE, Change.INSERT, Change.UPDATE_BEFORE, Change.UPDATE_AFTER], pa.string()
)
_DELETE, _INSERT, _BEFORE, _AFTER = range(4)


class MergedChanges(Struct, frozen=True):
    """Which columns are compared, and by which key."""

    asked: tuple[str, ...]
    """Shown names of the columns to read: those of the result, then the others of the key."""
    columns: int
    """Number of those of the result."""
    key: SortSchema
    places: tuple[int, ...]
    """Places of the key's columns among those asked for."""

    @classmethod
    def of(cls, table: TableMetadata, names: Sequence[str]) -> Self:
        """names: shown names of the result's columns."""
        key = table.rows.key_columns(table.sort)
        of_key = [table.shown_name(column.column) for column in key]
        asked = tuple(dict.fromkeys((*names, *of_key)))
        return cls(asked, len(names), key, tuple(map(asked.index, of_key)))


def merged_changes(
    before: Iterator[pa.RecordBatch], after: Iterator[pa.RecordBatch], wanted: MergedChanges
) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
    """Yields the rows that differ in key order, each batch with the kind of every row.

    Rows of one key are equal if their row hashes over the columns of the result are.
    """
    sides = _Side(before, wanted), _Side(after, wanted)
    while loaded := [side for side in sides if side.fill()]:
        bound = min(side.last_key for side in loaded)
        taken = [side.take_to(bound) for side in sides]
        kinds, batch = _differences(taken[0], taken[1], wanted)
        if batch.num_rows:
            yield kinds, batch


class _Side:
    """The rows of one version, a batch at a time."""

    def __init__(self, batches: Iterator[pa.RecordBatch], wanted: MergedChanges) -> None:
        self._batches = batches
        self._wanted = wanted
        self._batch: pa.RecordBatch | None = None
        self._keys: SortKeys | None = None
        self._start = 0

    @property
    def rows(self) -> int:
        """Rows of the loaded batch that were not taken."""
        return 0 if self._batch is None else self._batch.num_rows - self._start

    @property
    def last_key(self) -> bytes:
        assert self._keys is not None, "rows are loaded"
        return self._keys.key(self._keys.rows - 1)

    def fill(self) -> bool:
        """Loads the next batch if all rows were taken; returns whether there are rows."""
        while not self.rows:
            self._batch, self._start = next(self._batches, None), 0
            if self._batch is None:
                return False
            self._keys = _keys_of(self._batch, self._wanted)
        return True

    def take_to(self, bound: bytes) -> pa.RecordBatch | None:
        """Takes the rows up to a key, that key included; returns None if there are none."""
        if not self.rows:
            return None
        assert self._batch is not None and self._keys is not None, "rows are loaded"
        stop = bisect_right(range(self._keys.rows), bound, lo=self._start, key=self._keys.key)
        taken = self._batch.slice(self._start, stop - self._start)
        self._start = stop
        return taken if taken.num_rows else None


def _keys_of(batch: pa.RecordBatch, wanted: MergedChanges) -> SortKeys:
    return sort_keys([to_storage(batch.column(place)) for place in wanted.places], wanted.key)


def _differences(
    before: pa.RecordBatch | None, after: pa.RecordBatch | None, wanted: MergedChanges
) -> tuple[pa.Array, pa.RecordBatch]:
    """Returns the kinds and rows that differ. None stands for no rows."""
    both = [batch for batch in (before, after) if batch is not None]
    schema = both[0].schema
    columns = [
        concat_storage([to_storage(batch.column(place)) for batch in both])
        for place in range(len(schema))
    ]
    keys = sort_keys([columns[place] for place in wanted.places], wanted.key)
    order = stable_order(keys)
    is_repeat = same_as_previous(keys, order)
    has_repeat = np.append(is_repeat[1:], np.False_)
    is_after = order >= (0 if before is None else before.num_rows)
    kinds = np.where(
        is_after, np.where(is_repeat, _AFTER, _INSERT), np.where(has_repeat, _BEFORE, _DELETE)
    )
    is_same = is_repeat.copy()
    if is_repeat.any():
        hashes = _hashes(columns[: wanted.columns], schema.names, len(order))[order]
        is_same[1:] &= hashes[1:] == hashes[:-1]
    is_kept = ~(is_same | np.append(is_same[1:], np.False_))
    places, kinds = order[is_kept], kinds[is_kept]
    shown = pa.schema([schema.field(place) for place in range(wanted.columns)])
    arrays = [to_logical(take(columns[i], places), field.type) for i, field in enumerate(shown)]
    return take(_KINDS, kinds), batch_of(arrays, shown, len(places))


def _hashes(columns: Sequence[pa.Array], names: Sequence[str], rows: int) -> npt.NDArray[np.uint64]:
    hashes = np.zeros(rows, dtype=np.uint64)
    for name, column in zip(names, columns, strict=False):
        add_column(name, column, hashes)
    return hashes
