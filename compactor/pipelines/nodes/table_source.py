"""Reads the rows of a table."""

from __future__ import annotations

import pyarrow as pa

from compactor.files.source import wanted_names
from compactor.pipelines.binding import check_widened
from compactor.pipelines.config import Source
from compactor.pipelines.provenance import Batches
from compactor.read.scan import scan
from compactor.read.wanted import scan_schema
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from lsm_fragment.arrays.cast import as_schema
from lsm_fragment.arrays.types import table_schema


class TableScan:
    """A scan of the latest version of a table."""

    def __init__(self, name: str, table: str, source: Source) -> None:
        self._store = open_store(table)
        self._snapshot = CommitLog(self._store).current()
        self._where = (
            None if source.where is None else condition_on(self._snapshot.table, source.where)
        )
        self._columns = source.columns
        if source.used is not None:
            names = scan_schema(self._snapshot.table, self._columns).names
            self._columns = tuple(wanted_names(names, source.used))
        # Nodes may add nulls.
        self.schema: pa.Schema = table_schema(scan_schema(self._snapshot.table, self._columns))
        check_widened(self.schema.names, f"node {name!r}")

    def rows(self) -> Batches:
        batches = scan(self._store, self._snapshot, self._columns, self._where)
        return (as_schema(batch, self.schema) for batch in batches)
