"""Writes rows to a table, as one commit."""

from __future__ import annotations

import pyarrow as pa

from compactor.common.clock import random_id
from compactor.files.source import FileBatches
from compactor.pipelines.provenance import Batches
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.write.ingest import (
    IngestOptions,
    commit_fragments,
    plan_ingest,
    write_fragments,
)
from lsm_fragment.keys.sort_schema import SortSchema


class TableRows(FileBatches):
    """The rows of a node, as a file to ingest."""

    def __init__(self, name: str, schema: pa.Schema, batches: Batches) -> None:
        self.path = f"node {name!r}"
        self.schema = schema
        self.bytes_total = 0
        self._rows = batches

    @property
    def bytes_consumed(self) -> int:
        return 0

    def close(self) -> None:
        return

    def _batches(self) -> Batches:
        return self._rows

    def __iter__(self) -> Batches:
        return self._rows


class StagedFragments:
    """Sorted fragments of a table, which `publish` makes visible."""

    def __init__(
        self, table: str, rows: TableRows, sort: SortSchema | None, part_bytes: int
    ) -> None:
        """part_bytes: maximum bytes of rows per fragment. Writes all rows."""
        store = open_store(table)
        self._log = CommitLog(store)
        self._snapshot = self._log.refresh()
        options = IngestOptions(buffer_bytes=part_bytes, threads=1)
        self._plan = plan_ingest(self._log, self._snapshot, rows.schema, rows.path, sort, options)
        self._entries = write_fragments(store, self._plan, rows, random_id()).entries

    def publish(self) -> None:
        """Raises `CommitConflictError`."""
        commit_fragments(self._log, self._snapshot, self._plan, self._entries)
