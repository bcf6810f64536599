"""Finds the stored rows behind merged rows that satisfy a condition.

If rows of one key are merged, a condition applies to the merged row. Deleting it means deleting all its
stored rows: otherwise an older one would reappear.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec.structs import replace

from compactor.predicate.holding import holding
from compactor.predicate.prune import may_match
from compactor.predicate.tree import Predicate
from compactor.read.merged_rows import MERGED_ROW, columns_of_batch, merged_batches
from compactor.read.pruning import bounds_by_keys, overlapping_fragments
from compactor.read.read_reports import ScanReport
from compactor.read.row_group_reader import RowGroupReader
from compactor.read.stretches import whole_fragments
from compactor.read.wanted import wanted_rows
from compactor.rows.flags import KEPT
from compactor.stores.base import Store
from compactor.table.deletions import Deleted, read_deletion
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot
from lsm_fragment.threads import ThreadPool

_Bits = npt.NDArray[np.bool_]


class RowsBehind(NamedTuple):
    """The rows of one fragment that are behind merged rows."""

    entry: FragmentEntry
    bits: Deleted
    """A bit per row of the fragment: set if the merged row of its key satisfies the condition."""
    merged_rows: int
    """Number of merged rows that satisfy it and are kept as rows of this fragment."""


def rows_behind(
    store: Store, snapshot: Snapshot, where: Predicate, pool: ThreadPool
) -> Iterator[RowsBehind]:
    """Yields each fragment read, with its rows whose merged row satisfies `where`.

    Bits of already deleted rows are not set. Raises what `compactor.read.scan.scan` raises.
    """
    table = snapshot.table
    wanted = wanted_rows(table, pa.schema([]), where, ScanReport())
    of_key = wanted.where
    # All rows must be read, so that their positions in the fragments are known.
    wanted = replace(wanted, where=None)
    report = wanted.report
    for entries in overlapping_fragments(snapshot):
        if of_key is not None and not any(
            may_match(of_key, bounds_by_keys(entry, table)) for entry in entries
        ):
            continue
        found: list[list[_Bits]] = [[] for _ in entries]
        merged_rows = np.zeros(len(entries), dtype=np.int64)
        readers = [RowGroupReader(store, table, entry, None, {}, report) for entry in entries]
        whole = whole_fragments([reader.row_groups for reader in readers])
        for sources, batch in merged_batches(table, readers, whole, wanted, pool):
            arrays, rows = columns_of_batch(table, sources, batch, wanted, pool)
            holds = holding(where, arrays, rows, lambda _: MERGED_ROW)
            matches = _spread(holds.to_numpy(zero_copy_only=False), batch.starts_key, batch.flags)
            kept = matches if batch.flags is None else matches & ((batch.flags & KEPT) != 0)
            merged_rows += np.bincount(batch.inputs[kept], minlength=len(entries))
            for index, parts in enumerate(found):
                parts.append(matches[batch.inputs == index])
        for entry, parts, count in zip(entries, found, merged_rows.tolist(), strict=True):
            deleted = read_deletion(store, entry)
            bits = np.zeros(entry.rows, dtype=np.bool_)
            live = slice(None) if deleted is None else ~deleted.to_numpy(zero_copy_only=False)
            bits[live] = np.concatenate([np.zeros(0, dtype=np.bool_), *parts])
            yield RowsBehind(entry, pa.array(bits), count)


def _spread(holds: _Bits, starts: _Bits, flags: npt.NDArray[np.uint8] | None) -> _Bits:
    """Copies the flag of each merged row to all rows of its key. Returns shape (rows,).

    Shapes: holds (rows kept,), starts (rows,), flags (rows,).
    """
    run = np.cumsum(starts) - int(starts[0])
    kept = run if flags is None else run[(flags & KEPT).astype(np.bool_)]
    matched = np.zeros(int(run[-1]) + 1, dtype=np.bool_)
    matched[kept[holds]] = True
    of_rows: _Bits = matched[run]
    return of_rows
