"""A version of a table, divided among the tasks of an engine, which may run on other machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct

from compactor.errors import UsageError
from compactor.predicate.foreign import arrow_filter
from compactor.predicate.tree import Predicate
from compactor.read.read_reports import ScanReport
from compactor.read.scan_tasks import TASK_BYTES, Part, read_parts, tasks_of
from compactor.stores.open import open_store
from compactor.table.conditions import condition_on
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.arrays.types import storage_type


class RowsOfTask(Struct, frozen=True):
    """The rows that one task reads, at the version at which they were planned. It can be pickled."""

    url: str
    table: TableMetadata
    parts: tuple[Part, ...]
    schema: pa.Schema
    """The columns to be read, as `DividedTable.schema` has them."""
    where: Predicate | None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Reads the rows in one thread. Raises what `Table.scan` raises."""
        store, names = open_store(self.url), self.schema.names
        for batch in read_parts(store, self.table, self.parts, names, self.where, ScanReport()):
            arrays = [plain(to_storage(column)) for column in batch.columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class DividedTable(Struct, frozen=True):
    """A version that an engine plans to read."""

    url: str
    snapshot: Snapshot

    @property
    def schema(self) -> pa.Schema:
        """The columns in the types in which they are stored, without dictionaries, views and extension types,
        which not all engines have."""
        shown = self.snapshot.table.shown_schema
        return pa.schema([pa.field(field.name, storage_type(field.type)) for field in shown])

    @property
    def raw_bytes(self) -> int:
        """Decoded size of all columns of all stored rows."""
        return sum(entry.raw_bytes for entry in self.snapshot.fragments.all())

    def tasks(self, columns: Sequence[str], filter: Any, min_tasks: int) -> list[RowsOfTask]:
        """Returns tasks in sort order, none for an empty table.

        columns: names of at least one. filter: an expression of PyArrow, or None; tasks leave out some of the
        rows that do not satisfy it, so it has to be applied to what they return. min_tasks: as many if rows
        can be divided.
        """
        table = self.snapshot.table
        # By the types that are shown: JSON compares by value, and as text in an engine.
        where = None if filter is None else arrow_filter.condition_of(filter, table.shown_schema)
        try:
            condition = None if where is None else condition_on(table, where)
        except UsageError:
            condition = None  # as ours does not take it
        divided = tasks_of(
            self.snapshot,
            condition,
            TASK_BYTES,
            ScanReport(),
            columns=columns,
            min_tasks=min_tasks,
        )
        schema = self.schema_of(columns)
        return [RowsOfTask(self.url, table, parts, schema, condition) for parts in divided]

    def schema_of(self, columns: Sequence[str]) -> pa.Schema:
        """Returns some columns of the schema."""
        schema = self.schema
        return pa.schema([schema.field(name) for name in columns])
