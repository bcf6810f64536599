"""Merges rows of overlapping fragments, and rows of equal key as the table's row policy demands.

It uses the key merge of compactions, but reads all wanted columns of a row group at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.merge.inputs.decoded import DecodedRows
from compactor.merge.inputs.loaded_rows import LoadedGroup, loaded_group
from compactor.merge.order.key_merge import MergedBatch, merge_rows
from compactor.merge.order.keys_in_order import borrowed
from compactor.predicate.holding import holding
from compactor.read.limits import AHEAD_BYTES, BATCH_BYTES, BATCH_ROWS, MEMORY_BYTES
from compactor.read.row_group_reader import RowGroupReader, WantedRows
from compactor.read.row_groups_ahead import RowGroupsAhead
from compactor.read.stretches import Part
from compactor.read.wanted import Wanted
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.merge_stages import CHUNKS
from compactor.resources.reservation import Pins
from compactor.resources.stage import Buffer, MemoryStage, StagePlan
from compactor.rows.flags import KEPT
from compactor.rows.fold import FoldError
from compactor.rows.fold import merged_rows as merged_by_key
from compactor.table.key_text import with_key
from compactor.table.metadata import TableMetadata
from lsm_fragment.arrays.joining import batch_of
from lsm_fragment.arrays.moves import keep
from lsm_fragment.arrays.storage import to_logical
from lsm_fragment.gather.columns import gather, gather_arrays
from lsm_fragment.gather.origins import Origins
from lsm_fragment.threads import ALONE, ThreadPool

MERGED_ROW: Final = "a row merged of several fragments"
"""How messages call a row that no fragment has as it is."""
_MIN_SLICE_BYTES: Final = 16 << 10
_MIN_ROWS_FOR_THREADS: Final = 4096
"""Gather smaller batches in the calling thread: handing them over would take longer."""
_MIN_BATCH_ROWS: Final = 4096
"""Merge at least this many rows at a time, even if the reader wants fewer: tombstones may hide most."""
_PLAN: Final = StagePlan(
    1 << 62,  # Readers spill, but are never refused.
    0,
    (
        MemoryStage(
            name=CHUNKS,
            holds="decoded rows, a row group for each fragment",
            buffer=Buffer.STREAMING,
            memory_bytes=MEMORY_BYTES,
            spill_priority=0,
        ),
    ),
)


def merged_rows(
    table: TableMetadata,
    readers: Sequence[RowGroupReader],
    parts: Sequence[Part],
    wanted: Wanted,
    pool: ThreadPool,
) -> Iterator[pa.RecordBatch]:
    """Yields the merged rows of the parts in order."""
    for sources, batch in merged_batches(table, readers, parts, wanted, pool):
        yield _batch(table, sources, batch, wanted, pool)


def merged_batches(
    table: TableMetadata,
    readers: Sequence[RowGroupReader],
    parts: Sequence[Part],
    wanted: Wanted,
    pool: ThreadPool,
) -> Iterator[tuple[Sequence[MergedPart], MergedBatch]]:
    """Yields batches of the parts' merged rows, with the row rule's decisions.

    The caller takes the columns of each batch from the sources, one per part.
    """
    with closing(LocalDisk()) as disk:
        ahead_bytes = AHEAD_BYTES if pool.threads > 1 else 0
        budget = MemoryBudget(_PLAN, soft_bytes=MEMORY_BYTES - ahead_bytes)
        slice_bytes = max(_MIN_SLICE_BYTES, MEMORY_BYTES // 16 // len(parts))
        names = [*(column.column for column in table.sort), *wanted.columns]
        limit = wanted.limit_before_merging
        groups = RowGroupsAhead(readers, parts, names, table.key_comparator(), pool, limit)
        batch_rows = min(BATCH_ROWS, max(_MIN_BATCH_ROWS, limit or BATCH_ROWS))
        sources = [
            MergedPart(
                readers[part.fragment].name,
                partial(groups.next, place),
                len(table.sort),
                lambda: DecodedRows(budget, disk, slice_bytes),
            )
            for place, part in enumerate(parts)
        ]
        budget.spill_by(CHUNKS, lambda _: sum(source.spill() for source in sources))
        for batch in merge_rows(
            sources, table.comparator(), table.sort, batch_rows, BATCH_BYTES, wanted.rule
        ):
            yield sources, batch


def _batch(
    table: TableMetadata,
    sources: Sequence[MergedPart],
    batch: MergedBatch,
    wanted: Wanted,
    pool: ThreadPool,
) -> pa.RecordBatch:
    arrays, rows = columns_of_batch(table, sources, batch, wanted, pool)
    if wanted.where_merged is not None:
        holds = holding(wanted.where_merged, arrays, rows, lambda _: MERGED_ROW)
        rows = holds.true_count
        kept = np.asarray(holds)
        arrays = {name: keep(array, kept) for name, array in arrays.items()}
    columns = [to_logical(arrays[f.name], f.type) for f in wanted.schema]
    return batch_of(columns, wanted.schema, rows)


def columns_of_batch(
    table: TableMetadata,
    sources: Sequence[MergedPart],
    batch: MergedBatch,
    wanted: Wanted,
    pool: ThreadPool,
) -> tuple[dict[str, pa.Array], int]:
    """Returns the wanted columns of a batch, ordered and merged, and the number of rows.

    Raises `FoldError` for a sum that overflows.
    """
    origins = Origins.of(batch.inputs, len(sources))
    counts, pins = origins.counts.tolist(), Pins()
    taken = [source.take(n, pins) for source, n in zip(sources, counts, strict=True)]
    flags = batch.flags

    def gathered(column: tuple[int, str]) -> pa.Array:
        index, name = column
        pieces = [[piece[index] for piece in of_source] for of_source in taken]
        array = gather_arrays(pieces, origins)
        return array if flags is None else merged_by_key(array, flags, name, wanted.rule)

    names = wanted.columns
    pool = pool if batch.rows >= _MIN_ROWS_FOR_THREADS else ALONE
    try:
        with pins:
            arrays = pool.each(gathered, enumerate(names))
    except FoldError as error:
        raise with_key(error, _keys_of(sources, batch), table) from None
    rows = batch.rows if flags is None else int(np.count_nonzero(flags & KEPT))
    return dict(zip(names, arrays, strict=True)), rows


def _keys_of(sources: Sequence[MergedPart], batch: MergedBatch) -> list[pa.Array]:
    """Returns the sort columns of a batch's rows in order."""
    keys = [source.keys for source in sources]
    found = borrowed(keys, batch.inputs, np.zeros(len(keys), dtype=np.int64))
    with found.pins:
        return [gather(pieces, found.origins) for pieces in found.columns]


class MergedPart:
    """A `KeySource` that also holds the other columns of its rows."""

    def __init__(
        self,
        name: str,
        next_group: Callable[[], WantedRows | None],
        key_columns: int,
        new_rows: Callable[[], DecodedRows],
    ) -> None:
        """name: the fragment's. next_group: returns the next rows; its first `key_columns` columns are sort
        columns."""
        self.name = name
        self._next_group = next_group
        self._key_columns = key_columns
        self.keys = new_rows()
        self._rows = new_rows()

    def load_keys(self) -> LoadedGroup | None:
        """Loads the next row group with wanted rows; returns None after the last."""
        found = self._next_group()
        if found is None:
            return None
        keys, others = found.arrays[: self._key_columns], found.arrays[self._key_columns :]
        if others:
            self._rows.push(others)
        loaded = loaded_group(keys)
        self.keys.push(keys)
        return loaded

    def row_bytes(self, group_rows: int) -> int:  # noqa: ARG002 - scans write no row groups
        return 0

    def take(self, rows: int, pins: Pins) -> list[list[pa.Array]]:
        """Returns the next `rows` rows in pieces, each a list of the columns after the sort columns."""
        return self._rows.take(rows, pins) if self._rows.rows else []

    def spill(self) -> int:
        return self.keys.spill() + self._rows.spill()
