"""Reading a table in sort order, streaming: overlapping fragments are merged on the way.

Row-wise counterpart of the compaction's merge: the same key merge, but all wanted columns of a
window at once, by range requests. Disjoint groups of fragments follow one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from compactor.errors import UsageError
from compactor.merge.key_merge import merge_keys
from compactor.planner.tree import all_items, components
from compactor.stores.base import Store
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from format.arrays import concat_storage
from format.reader import FragmentReader
from format.types import storage_type, to_logical


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
    sources = [_ScanInput(store, table, entry, schema) for entry in group]
    for window in merge_keys(sources, table.comparator(), table.sort):
        counts = np.bincount(window.inputs, minlength=len(sources))
        order = np.argsort(window.inputs, kind="stable")
        positions = np.empty_like(order)
        positions[order] = np.arange(len(order))
        taken = [source.take(int(n)) for source, n in zip(sources, counts, strict=True) if n]
        arrays = [
            concat_storage([piece for pieces in taken for piece in pieces[index]])
            for index in range(len(schema))
        ]
        columns = [
            to_logical(array.take(pa.array(positions)), field.type)
            for array, field in zip(arrays, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


class _ScanInput:
    """A `KeySource` that also hands out the other columns of the rows merged."""

    def __init__(
        self, store: Store, table: TableMetadata, entry: FragmentEntry, schema: pa.Schema
    ) -> None:
        self._reader = open_fragment(store, entry.key, entry.size_bytes)
        self._sort_names = [column.column for column in table.sort]
        self._sort_types = [table.schema.field(name).type for name in self._sort_names]
        self._schema = schema
        self._next_group = 0
        self._rows: list[list[pa.Array]] = []

    @property
    def name(self) -> str:
        return self._reader.name

    def next_keys(self) -> list[pa.Array] | None:
        if self._next_group == self._reader.row_groups:
            return None
        group = self._next_group
        self._next_group += 1
        wanted = [*self._schema.names, *self._sort_names]
        present = [n for n in dict.fromkeys(wanted) if n in self._reader.schema.names]
        arrays = dict(zip(present, self._reader.read_storage(present, [group])[0], strict=True))
        rows = self._reader.footer.row_groups[group].rows
        self._rows.append([_typed(arrays.get(f.name), rows, f.type) for f in self._schema])
        return [
            _typed(arrays[name], rows, dtype)
            for name, dtype in zip(self._sort_names, self._sort_types, strict=True)
        ]

    def take(self, rows: int) -> list[list[pa.Array]]:
        """Pieces [column][piece] of the next `rows` rows."""
        taken: list[list[pa.Array]] = [[] for _ in self._schema]
        while rows and self._schema.names:
            available = len(self._rows[0][0])
            count = min(rows, available)
            for pieces, array in zip(taken, self._rows[0], strict=True):
                pieces.append(array.slice(0, count))
            rest = [array.slice(count) for array in self._rows[0]]
            if count == available:
                self._rows.pop(0)
            else:
                self._rows[0] = rest
            rows -= count
        return taken


def _typed(array: pa.Array | None, rows: int, dtype: pa.DataType) -> pa.Array:
    """`array`, or nulls of the table's type where the fragment has no values of the column."""
    if array is None or pa.types.is_null(array.type):
        return pa.nulls(rows, storage_type(dtype))
    return array
