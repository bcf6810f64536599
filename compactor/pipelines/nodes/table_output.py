"""Writes rows to a table, as one commit."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Self

import pyarrow as pa
from msgspec import Struct

from compactor.common.clock import random_id
from compactor.errors import InputError, StoreError, TableError
from compactor.files.source import FileBatches
from compactor.pipelines.provenance import Batches
from compactor.rows.policy import with_result_types
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot
from compactor.write.file_schema import conflicting
from compactor.write.ingest import (
    IngestOptions,
    IngestPlan,
    commit_fragments,
    plan_ingest,
)
from compactor.write.ingest.columns import fixed_shown
from compactor.write.ingest.fragments import FragmentsOfFiles
from lsm_fragment.keys.sort_schema import SortSchema

_DEFAULTS: Final = IngestOptions()


class TableRows(FileBatches):
    """The rows of a node, as a file to ingest."""

    def __init__(self, name: str, schema: pa.Schema, batches: Batches) -> None:
        self.path = f"node {name!r}"
        self.schema = schema
        self._rows = batches

    def _batches(self) -> Batches:
        return self._rows

    def __iter__(self) -> Batches:
        return self._rows


class OutputTable(Struct, frozen=True):
    """An output table as of the start of the run, and the plan of the rows for it."""

    log: CommitLog
    snapshot: Snapshot
    plan: IngestPlan

    @classmethod
    def of(
        cls,
        address: str,
        schema: pa.Schema,
        what: str,
        sort: SortSchema | None,
        options: IngestOptions = _DEFAULTS,
    ) -> Self:
        """Opens a table that need not exist yet. Writes nothing.

        schema: of the rows. what: subject of messages. Raises `CompactorError` if the table can't take them.
        """
        log = CommitLog(open_store(address))
        snapshot = log.refresh()
        return cls(log, snapshot, _planned(log, snapshot, schema, what, sort, options))


def _planned(
    log: CommitLog,
    snapshot: Snapshot,
    schema: pa.Schema,
    what: str,
    sort: SortSchema | None,
    options: IngestOptions,
) -> IngestPlan:
    if (table := snapshot.metadata) is not None:
        given = with_result_types(schema, table.rows)
        for name, dtype in conflicting(table.shown_schema, given, fixed_shown(table)):
            known = table.shown_schema.field(name).type
            raise InputError(
                f"{what}: column {name!r} is {dtype}, the table's is {known}: convert it by a transform, or "
                "write to another table"
            )
    return plan_ingest(log, snapshot, schema, what, sort, options)


class StagedFragments:
    """Sorted fragments of a table, which `publish` makes visible; `close` removes them if it did not."""

    def __init__(
        self, table: str, rows: TableRows, sort: SortSchema | None, part_bytes: int
    ) -> None:
        """part_bytes: maximum bytes of rows per fragment."""
        options = IngestOptions(buffer_bytes=part_bytes, threads=1)
        self._table = OutputTable.of(table, rows.schema, rows.path, sort, options)
        self._rows = rows
        self._fragments = FragmentsOfFiles(self._table.log.store, self._table.plan, random_id())
        self._entries: list[FragmentEntry] = []
        self._may_be_live = False

    def write(self) -> None:
        """Writes all rows. Raises `InputError`, and `FoldError` for a sum that overflows."""
        self._fragments.add(self._rows)
        self._entries = self._fragments.finish().entries

    def publish(self) -> None:
        """Raises `CommitConflictError`."""
        self._may_be_live = True
        try:
            of = self._table
            commit_fragments(of.log, of.snapshot, of.plan, self._entries)
        except (InputError, TableError):
            self._may_be_live = False  # after errors of a store, the outcome may be unknown
            raise

    def close(self) -> None:
        if not self._may_be_live:
            with suppress(StoreError):  # the run's own error counts
                self._fragments.discard()
        self._fragments.close()
