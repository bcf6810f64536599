"""Reading a table in sort order, streaming: overlapping fragments are merged on the way.

Row-wise counterpart of the compaction's merge: the same key merge, but all wanted columns of a
window at once, by range requests. Disjoint groups of fragments follow one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.errors import UsageError
from compactor.flow.budget import MemoryBudget
from compactor.flow.disk import LocalDisk
from compactor.flow.stage import Buffer, Stage, StagePlan
from compactor.merge.decoded import STAGE as CHUNKS
from compactor.merge.decoded import DecodedRows
from compactor.merge.key_merge import (
    LoadedGroup,
    MergeWindow,
    WholeGroup,
    loaded_group,
    merge_keys,
)
from compactor.planner.tree import all_items, components
from compactor.stores.base import Store
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from format.arrays import concat_storage
from format.reader import FragmentReader
from format.types import storage_type, to_logical

_MEMORY_BYTES: Final = 512 << 20
_MIN_SLICE_BYTES: Final = 16 << 10
_BATCH_ROWS: Final = 262_144
_PLAN: Final = StagePlan(
    1 << 62,  # a reader spills, but is not refused
    0,
    (
        Stage(
            CHUNKS,
            "decoded rows, a row group for each fragment",
            Buffer.STREAMING,
            _MEMORY_BYTES,
            spill_priority=0,
        ),
    ),
)


class StoredObject:
    """One object of a store, for `FragmentReader`."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key

    def read_range(self, start: int, length: int) -> bytes:
        return self._store.read_range(self._key, start, length)


def open_fragment(store: Store, key: str, size_bytes: int) -> FragmentReader:
    """Random access to one fragment. Raises `FormatError`, `ObjectNotFoundError`."""
    return FragmentReader(StoredObject(store, key), size_bytes, f"{store.url}/{key}")


def scan(
    store: Store, snapshot: Snapshot, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows of a snapshot in sort order, all or some columns.

    Raises `UsageError` for a column the table does not have, `FormatError` for damaged fragments.
    """
    schema = scan_schema(snapshot.table, columns)
    for group in components(all_items(snapshot)):
        by_age = sorted((item.entry for item in group), key=lambda entry: entry.age)
        yield from _merge_group(store, snapshot.table, by_age, schema)


def scan_schema(table: TableMetadata, columns: Sequence[str] | None) -> pa.Schema:
    """Schema of a scan. Raises `UsageError` for an unknown column."""
    if columns is None:
        return table.schema
    for name in columns:
        if name not in table.schema.names:
            raise UsageError(
                f"no column {name!r}; columns are: {', '.join(table.schema.names[:50])}"
            )
    return pa.schema([table.schema.field(name) for name in columns])


def _merge_group(
    store: Store, table: TableMetadata, group: Sequence[FragmentEntry], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    with closing(LocalDisk()) as disk:
        budget = MemoryBudget(_PLAN, soft_bytes=_MEMORY_BYTES)
        slice_bytes = max(_MIN_SLICE_BYTES, _MEMORY_BYTES // 16 // len(group))
        sources = [
            _ScanInput(store, table, entry, schema, lambda: DecodedRows(budget, disk, slice_bytes))
            for entry in group
        ]
        budget.spill_by(CHUNKS, lambda _: sum(source.spill() for source in sources))
        for window in merge_keys(
            sources, table.comparator(), table.sort, _BATCH_ROWS, _MEMORY_BYTES // 8
        ):
            rows = window.as_window() if isinstance(window, WholeGroup) else window
            yield _batch(sources, rows, schema)


def _batch(sources: Sequence[_ScanInput], window: MergeWindow, schema: pa.Schema) -> pa.RecordBatch:
    counts = np.bincount(window.inputs, minlength=len(sources))
    order = np.argsort(window.inputs, kind="stable")
    positions = np.empty_like(order)
    positions[order] = np.arange(len(order))
    taken = [
        piece
        for source, n in zip(sources, counts, strict=True)
        if n
        for piece in source.take(int(n))
    ]
    columns = [
        to_logical(
            concat_storage([piece[index] for piece in taken]).take(pa.array(positions)), field.type
        )
        for index, field in enumerate(schema)
    ]
    for source in sources:
        source.settle()
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _ScanInput:
    """A `KeySource` that also hands out the other columns of the rows merged."""

    def __init__(
        self,
        store: Store,
        table: TableMetadata,
        entry: FragmentEntry,
        schema: pa.Schema,
        new_rows: Callable[[], DecodedRows],
    ) -> None:
        self._reader = open_fragment(store, entry.key, entry.size_bytes)
        self._sort_names = [column.column for column in table.sort]
        self._sort_types = [table.schema.field(name).type for name in self._sort_names]
        self._schema = schema
        self._next_group = 0
        self.keys = new_rows()
        self._rows = new_rows()

    @property
    def name(self) -> str:
        return self._reader.name

    def load_keys(self) -> LoadedGroup | None:
        if self._next_group == self._reader.row_groups:
            return None
        group = self._next_group
        self._next_group += 1
        wanted = [*self._schema.names, *self._sort_names]
        present = [n for n in dict.fromkeys(wanted) if n in self._reader.schema.names]
        arrays = dict(zip(present, self._reader.read_storage(present, [group])[0], strict=True))
        rows = self._reader.footer.row_groups[group].rows
        if self._schema.names:
            self._rows.push([_typed(arrays.get(f.name), rows, f.type) for f in self._schema])
        keys = [
            _typed(arrays[name], rows, dtype)
            for name, dtype in zip(self._sort_names, self._sort_types, strict=True)
        ]
        loaded = loaded_group(keys)
        self.keys.push(keys)
        return loaded

    def row_bytes(self, group_rows: int) -> int:  # noqa: ARG002 - a scan writes no row groups
        return 0

    def take(self, rows: int) -> list[list[pa.Array]]:
        """The next `rows` rows in pieces, each of all columns."""
        return self._rows.take(rows) if self._schema.names else []

    def settle(self) -> None:
        self._rows.settle()

    def spill(self) -> int:
        return self.keys.spill() + self._rows.spill()


def _typed(array: pa.Array | None, rows: int, dtype: pa.DataType) -> pa.Array:
    """`array`, or nulls of the table's type where the fragment has no values of the column."""
    if array is None or pa.types.is_null(array.type):
        return pa.nulls(rows, storage_type(dtype))
    return array
