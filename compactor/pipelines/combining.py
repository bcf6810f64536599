"""Hash join: a hash table of the complete build side, then look-ups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import ConfigError
from compactor.pipelines.pairing import Pairing
from compactor.pipelines.sorted_rows import I64, Room
from compactor.spark.shuffle.exchange import key_hashes
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import one_batch, take_rows
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.names import names_text


def joined_schema(
    probe: pa.Schema, build: pa.Schema, on: Sequence[tuple[str, str]], what: str
) -> pa.Schema:
    """Returns the probe side's columns, then the build side's without its keys.

    on: pairs of probe and build columns. Raises `ConfigError` naming the column.
    """
    for left, right in on:
        for name, schema, side in ((left, probe, "probe"), (right, build, "build")):
            if name not in schema.names:
                there = names_text(schema.names)
                raise ConfigError(
                    f"{what}: the {side} side has no column {name!r}; it has: {there}"
                )
        types = [storage_type(probe.field(left).type), storage_type(build.field(right).type)]
        for name, dtype in zip((left, right), types, strict=True):
            if (
                pt.is_null(dtype)
                or pt.is_nested(dtype)
                or pt.is_float16(dtype)
                or pt.is_interval(dtype)
            ):
                raise ConfigError(f"{what}: column {name!r} is {dtype}, which is equal to nothing")
        if types[0] != types[1]:
            raise ConfigError(
                f"{what}: {left!r} is {types[0]} on the probe side, {right!r} is {types[1]} on the build "
                "side: cast one in a transform"
            )
    keys = {right for _, right in on}
    added = [field for field in build if field.name not in keys]
    for field in added:
        if field.name in probe.names:
            raise ConfigError(
                f"{what}: both sides have a column {field.name!r}: rename or leave out one in a transform"
            )
    return pa.schema([*probe, *added])


class BuildTable:
    """The build side's rows, indexed by key hash."""

    def __init__(self, rows: pa.Table, keys: Sequence[str]) -> None:
        self._rows = one_batch(rows)
        self._keys = list(keys)
        columns = [to_storage(self._rows.column(name)) for name in keys]
        # Null never matches.
        known = np.flatnonzero(_all_valid(columns))
        hashes = key_hashes([take(column, known) for column in columns])
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._positions = known[order]
        self._columns = columns
        self._row_bytes = self._rows.nbytes / max(1, self._rows.num_rows)

    def probe(
        self, batch: pa.RecordBatch, keys: Sequence[str], room: Room, *, keeps_all: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yields the batch's rows once per match, at most a chunk of `room` at a time.

        keeps_all: keep unmatched rows, with nulls.
        """
        if not batch.num_rows:
            return
        columns = [to_storage(batch.column(name)) for name in keys]
        hashes = key_hashes(columns)
        first = np.searchsorted(self._hashes, hashes, "left")
        counts = np.searchsorted(self._hashes, hashes, "right") - first
        counts[~_all_valid(columns)] = 0
        max_rows = room.rows_of(batch.nbytes / batch.num_rows + self._row_bytes)
        running = np.cumsum(counts + int(keeps_all))
        start = 0
        while start < batch.num_rows:
            before = int(running[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(running, before + max_rows, "right")))
            rows = np.arange(start, stop)
            rows = rows[counts[rows] > 0]
            alone = np.arange(start, stop) if keeps_all else rows[:0]
            # More than one slice only if a single row has more matches than a chunk holds.
            for left, place in Pairing(rows, first[rows], counts[rows]).slices(max_rows):
                left, right = self._equal(columns, left, self._positions[place])
                alone = np.setdiff1d(alone, left)
                if stop - start > 1:
                    left, right = _with_unmatched(left, right, alone)
                    alone = alone[:0]
                yield self._joined(batch, left, right)
            if len(alone):
                yield self._joined(batch, alone, np.full(len(alone), -1))
            start = stop

    def _equal(self, columns: Sequence[pa.Array], left: I64, right: I64) -> tuple[I64, I64]:
        """Filters pairs with equal hashes to those with equal keys."""
        same = np.ones(len(left), dtype=np.bool_)
        for ours, theirs in zip(columns, self._columns, strict=True):
            equal = pc.equal(take(plain(ours), left), take(plain(theirs), right))
            same &= equal.to_numpy(zero_copy_only=False).astype(np.bool_)
        return left[same], right[same]

    def _joined(self, batch: pa.RecordBatch, left: I64, right: I64) -> pa.RecordBatch:
        """Returns joined rows; -1 in `right` means null."""
        others = [name for name in self._rows.schema.names if name not in self._keys]
        found = take_rows(self._rows.select(others), right)
        arrays = [*take_rows(batch, left).columns, *found.columns]
        return pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, *others])


def _with_unmatched(left: I64, right: I64, alone: I64) -> tuple[I64, I64]:
    """Inserts unmatched left rows at their places."""
    every = np.concatenate([left, alone])
    order = np.argsort(every, kind="stable")
    return every[order], np.concatenate([right, np.full(len(alone), -1)])[order]


def _all_valid(columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    valid = np.ones(len(columns[0]), dtype=np.bool_)
    for column in columns:
        valid &= np.asarray(column.is_valid())
    return valid
