"""Hash join: a hash table of the complete build side, then look-ups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.pipelines.hash_index import HashIndex
from compactor.pipelines.pairing import How, Joined, Pairing
from compactor.pipelines.sorted_rows import I64, Flags, Room
from compactor.spark.shuffle.exchange import key_hashes
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import no_rows, one_batch, take_rows
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.sizes import running_totals, spans_within
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.keys.normalised import same_as_previous, sort_keys, stable_order
from lsm_fragment.keys.sort_schema import SortColumn


class BuildTable:
    """The build side's rows, indexed by key hash."""

    def __init__(self, rows: pa.Table, keys: Sequence[str], joined: Joined, how: How) -> None:
        """keys: columns of the rows, of the same types as those of the probe side."""
        self._rows = one_batch(rows)
        self._joined = joined
        self._how = how
        columns = [to_storage(self._rows.column(name)) for name in keys]
        # Null never matches.
        known = np.flatnonzero(_all_valid(columns))
        if how.is_probe_only:
            known = known[_first_of_equal([take(column, known) for column in columns])]
        hashes = key_hashes([take(column, known) for column in columns])
        order = np.argsort(hashes, kind="stable")
        self._index = HashIndex(hashes[order])
        self._positions = known[order]
        self._columns = columns
        self._is_matched = np.zeros(self._rows.num_rows, dtype=np.bool_)
        self._row_bytes = self._rows.nbytes / max(1, self._rows.num_rows)

    def probe(
        self, batch: pa.RecordBatch, keys: Sequence[str], room: Room
    ) -> Iterator[pa.RecordBatch]:
        """Yields the batch's rows once per match, at most a chunk of `room` at a time."""
        if not batch.num_rows:
            return
        columns = [to_storage(batch.column(name)) for name in keys]
        hashes = key_hashes(columns)
        first, counts = self._index.find(hashes)
        counts[~_all_valid(columns)] = 0
        max_rows = room.rows_of(batch.nbytes / batch.num_rows + self._row_bytes)
        if self._how.is_probe_only:
            yield self._chosen(batch, columns, first, counts)
            return
        keeps_all = self._how.keeps_left
        for start, stop in spans_within(running_totals(counts + int(keeps_all)), max_rows):
            rows = np.arange(start, stop)
            rows = rows[counts[rows] > 0]
            alone = np.arange(start, stop) if keeps_all else rows[:0]
            # More than one slice only if a single row has more matches than a chunk holds.
            for left, place in Pairing(rows, first[rows], counts[rows]).slices(max_rows):
                left, right = self._equal(columns, left, self._positions[place])
                self._is_matched[right] = True
                if len(alone):
                    alone = np.setdiff1d(alone, left)
                if stop - start > 1 and len(alone):
                    left, right = _with_unmatched(left, right, alone)
                    alone = alone[:0]
                yield self._joined.rows(batch, left, self._rows, right)
            if len(alone):
                yield self._joined.rows(batch, alone, self._rows, np.full(len(alone), -1))

    def unmatched(self, probe: pa.Schema, room: Room) -> Iterator[pa.RecordBatch]:
        """Yields the build rows without a match, if the join keeps them; call after all of `probe`."""
        if not self._how.keeps_right:
            return
        places = np.flatnonzero(~self._is_matched)
        nothing, max_rows = no_rows(probe), room.rows_of(self._row_bytes)
        for start in range(0, len(places), max_rows):
            some = places[start : start + max_rows]
            yield self._joined.rows(nothing, np.full(len(some), -1), self._rows, some)

    def _chosen(
        self, batch: pa.RecordBatch, columns: Sequence[pa.Array], first: I64, counts: I64
    ) -> pa.RecordBatch:
        """Returns the rows of a semi or anti join. Keys are there once, so few have equal hashes."""
        is_there = np.zeros(batch.num_rows, dtype=np.bool_)
        rows = np.flatnonzero(counts)
        for left, place in Pairing(rows, first[rows], counts[rows]).slices(batch.num_rows):
            is_there[self._equal(columns, left, self._positions[place])[0]] = True
        return take_rows(batch, np.flatnonzero(is_there == (self._how is How.SEMI)))

    def _equal(self, columns: Sequence[pa.Array], left: I64, right: I64) -> tuple[I64, I64]:
        """Filters pairs with equal hashes to those with equal keys."""
        same = np.ones(len(left), dtype=np.bool_)
        for ours, theirs in zip(columns, self._columns, strict=True):
            equal = pc.equal(take(plain(ours), left), take(plain(theirs), right))
            same &= equal.to_numpy(zero_copy_only=False).astype(np.bool_)
        return left[same], right[same]


def _with_unmatched(left: I64, right: I64, alone: I64) -> tuple[I64, I64]:
    """Inserts unmatched left rows at their places."""
    every = np.concatenate([left, alone])
    order = np.argsort(every, kind="stable")
    return every[order], np.concatenate([right, np.full(len(alone), -1)])[order]


def _first_of_equal(columns: Sequence[pa.Array]) -> I64:
    """Returns the places of the first rows of equal keys."""
    names = [SortColumn(str(number)) for number in range(len(columns))]
    keys = sort_keys(columns, tuple(names))
    order = stable_order(keys)
    return np.sort(order[~same_as_previous(keys, order)])


def _all_valid(columns: Sequence[pa.Array]) -> Flags:
    valid: npt.NDArray[np.bool_] = np.ones(len(columns[0]), dtype=np.bool_)
    for column in columns:
        valid &= np.asarray(column.is_valid())
    return valid
