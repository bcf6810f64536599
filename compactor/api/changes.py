"""The rows that came, went and changed between two versions, as an Arrow stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from compactor.api.row_stream import RowStream
from compactor.predicate.tree import Predicate
from compactor.read.changes import changes_schema, read_changes
from compactor.read.read_reports import ScanReport
from compactor.stores.base import Store
from compactor.table.snapshot import Snapshot
from compactor.table.version import Operation, Version


class Changes(RowStream):
    """Changes of rows in the order of versions, read lazily; they may be read many times.

    The last two columns are `_change` (`insert`, `delete`, `update_before`, `update_after`) and `_version`.
    """

    def __init__(
        self,
        store: Store,
        between: tuple[Snapshot, Snapshot],
        versions: Sequence[Version],
        columns: Sequence[str] | None,
        where: Predicate | None,
        threads: int,
    ) -> None:
        """Use `Table.changes`. between: the first and the last snapshot. versions: those after the first."""
        self._store = store
        self._between = between
        self._versions = versions
        self._columns = columns
        self._where = where
        self._threads = threads
        self.schema = changes_schema(between[1].table, columns)
        """The Arrow schema of every batch."""
        self.report = ScanReport()
        """The counts of the last reading so far."""

    @property
    def since(self) -> int:
        """The version after which the changes begin."""
        return self._between[0].version

    @property
    def until(self) -> int:
        """The last version of the changes, which is also where those that follow begin."""
        return self._between[1].version

    @property
    def are_of_tags(self) -> bool:
        """Whether nothing was committed in between but tags, such as a reader's own moves."""
        return all(version.changes.operation is Operation.TAG for version in self._versions)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Reads batches from the beginning.

        Raises `UsageError` first of all if the changes of a version are not known; `DataError`,
        `FormatError`, `StoreError` while reading.
        """
        self.report = ScanReport()
        return read_changes(
            self._store,
            *self._between,
            self._versions,
            self._columns,
            self._where,
            self.report,
            threads=self._threads,
        )

    def __repr__(self) -> str:
        return f"<Changes {self._store.url} since version {self.since} until version {self.until}>"
