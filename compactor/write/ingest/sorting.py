"""Sorts the rows of a fragment and merges rows of equal key. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.rows.flags import COUNTS, KEPT, RowRule
from compactor.rows.fold import FoldError, chosen_rows, folded
from compactor.table.key_text import with_key
from compactor.table.metadata import TableMetadata
from compactor.write.ingest.incoming import IncomingRows, hash_of
from lsm_fragment.arrays.hashing import column_contributions, fold_rows
from lsm_fragment.arrays.joining import concat_storage
from lsm_fragment.arrays.moves import take, take_columns
from lsm_fragment.arrays.nested import I64
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.gather.columns import gather_arrays
from lsm_fragment.gather.origins import Origins
from lsm_fragment.keys.normalised import (
    KeyColumns,
    key_columns,
    same_as_previous,
    sort_keys,
    stable_order,
)

Columns = Mapping[str, pa.Array]
_MAX_SOURCES: Final = 1 << 16
_TAKEN_ROWS: Final = 16_384
"""Copy rows in sort order in slices of this size, to bound memory, ..."""
_TAKEN_BYTES: Final = 16 << 20
"""... and at once if no column is larger: they make a row group, of which slices would be copied again."""


class SortedRows:
    """The rows of a fragment in stable sort order; the rule may merge rows of equal key."""

    def __init__(
        self, rows: Sequence[IncomingRows], schema: pa.Schema, table: TableMetadata, rule: RowRule
    ) -> None:
        self._rows = rows
        self._names = schema.names
        self._table = table
        self._sort = table.sort
        self._rule = rule
        self.row_hash = hash_of(rows)
        """The expected row hash of the fragment; final once `columns` is exhausted."""

    def columns(self) -> Iterator[Columns]:
        """Yields slices of rows, as storage arrays by column name. May be called once.

        Raises `FoldError` for a sum that overflows.
        """
        names = [column.column for column in self._sort]
        pieces = [{n: to_storage(part.batch.column(n)) for n in self._names} for part in self._rows]
        are_sorted = False
        if not self._rule.merges:
            own = [key_columns([piece[name] for name in names], self._sort) for piece in pieces]
            are_sorted = all(key.first_disorder() is None for key in own)
            if are_sorted and _follow(own):
                # Rows that arrive in order, as from a sorted file, need neither sort nor copy.
                yield from pieces
                return
        keys = [concat_storage([piece[name] for piece in pieces]) for name in names]
        order = stable_order(sort_keys(keys, self._sort))
        if are_sorted and len(pieces) <= _MAX_SOURCES:
            yield self._gathered(pieces, order)
            return
        joined = ((name, concat_storage([piece[name] for piece in pieces])) for name in self._names)
        if not (self._rule.merges or _are_heavy(pieces, len(order))):
            # One column after the other, while it is in the caches.
            yield take_columns(joined, order)
            return
        arrays = dict(joined)
        del pieces
        if self._rule.merges:
            yield self._merged(arrays, order)
            return
        for start in range(0, len(order), _TAKEN_ROWS):
            yield take_columns(arrays.items(), order[start : start + _TAKEN_ROWS])

    def _gathered(self, pieces: Sequence[Columns], order: I64) -> Columns:
        """Returns the rows of sorted pieces in order: each piece gives its rows in turn."""
        rows = [part.rows for part in self._rows]
        sources = np.repeat(np.arange(len(rows), dtype=np.uint16), rows)[order]
        origins = Origins.of(sources, len(rows))
        return {
            name: gather_arrays([[piece[name]] for piece in pieces], origins)
            for name in self._names
        }

    def _merged(self, arrays: Columns, order: I64) -> Columns:
        """Returns each column by name, in order, with one row per key."""
        rule = self._rule
        keys = [take(arrays[column.column], order) for column in self._sort]
        starts = ~same_as_previous(sort_keys(keys, rule.key))
        decision = rule.decide(keys, starts)
        # Even a key's only row needs duplicates removed from its sets.
        flags = np.full(len(order), KEPT | COUNTS, np.uint8) if decision is None else decision.flags
        numbers = np.concatenate([part.numbers for part in self._rows])[order]
        # Folded values may come from other rows: subtract them from the rows' numbers, and add the results.
        folds = np.zeros(int(np.count_nonzero(flags & KEPT)), dtype=np.uint64)
        columns = {}
        kept = np.flatnonzero((flags & KEPT).astype(np.bool_))
        for name, array in arrays.items():
            function = rule.function(name)
            if function is None:
                columns[name] = take(array, order[kept])
                continue
            before, moved = column_contributions(name, array)[order], take(array, order)
            numbers -= before
            rows = chosen_rows(moved, flags, function)
            if rows is None:
                try:
                    columns[name] = folded(moved, flags, function, name)
                except FoldError as error:
                    raise with_key(error, keys, self._table) from None
                folds += column_contributions(name, columns[name])
            else:
                columns[name] = take(moved, rows)
                folds += before[rows]
        self.row_hash = fold_rows(numbers[kept] + folds)
        return columns


def _are_heavy(pieces: Sequence[Columns], rows: int) -> bool:
    """Returns whether a column is so large that its rows are copied in slices."""
    return rows > _TAKEN_ROWS and any(
        sum(int(piece[name].nbytes) for piece in pieces) > _TAKEN_BYTES for name in pieces[0]
    )


def _follow(keys: Sequence[KeyColumns]) -> bool:
    """Returns whether the rows of sorted pieces follow each other in order."""
    return all(one.key(one.rows - 1) <= other.key(0) for one, other in itertools.pairwise(keys))
