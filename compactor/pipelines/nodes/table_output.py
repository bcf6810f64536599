"""Writes rows to a table, as one commit."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

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


def planned(
    log: CommitLog,
    snapshot: Snapshot,
    schema: pa.Schema,
    what: str,
    sort: SortSchema | None,
    options: IngestOptions,
) -> IngestPlan:
    """Plans an output's rows as `plan_ingest` does. what: subject of messages. Raises what that raises."""
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
        store = open_store(table)
        self._log = CommitLog(store)
        self._snapshot = self._log.refresh()
        options = IngestOptions(buffer_bytes=part_bytes, threads=1)
        self._plan = planned(self._log, self._snapshot, rows.schema, rows.path, sort, options)
        self._rows = rows
        self._fragments = FragmentsOfFiles(store, self._plan, random_id())
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
            commit_fragments(self._log, self._snapshot, self._plan, self._entries)
        except (InputError, TableError):
            self._may_be_live = False  # after errors of a store, the outcome may be unknown
            raise

    def close(self) -> None:
        if not self._may_be_live:
            with suppress(StoreError):  # the run's own error counts
                self._fragments.discard()
        self._fragments.close()
