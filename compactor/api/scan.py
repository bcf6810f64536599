"""The rows of a table, as an Arrow stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from os import PathLike, fspath

import pyarrow as pa

from compactor.api.row_stream import RowStream
from compactor.predicate.tree import Predicate
from compactor.read.pruning import without_unreadable
from compactor.read.read_reports import ExportReport, ScanReport
from compactor.read.scan import scan
from compactor.read.wanted import scan_schema
from compactor.settings.arguments import checked
from compactor.stores.base import Store
from compactor.table.snapshot import Snapshot
from lsm_fragment.names import names_text


def _ignore(_done: int) -> None: ...


class Scan(RowStream):
    """The rows of a table in sort order, read lazily; it may be read many times.

    It implements Arrow's stream interface, so any library that reads Arrow streams can read it. Readings are
    independent of one another, also in threads; a reading that is dropped half way ends its threads and
    releases all resources. An error is raised in the reader: as our own exception in this package's methods,
    as the other library's exception with our message elsewhere.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        columns: Sequence[str] | None,
        where: Predicate | None,
        threads: int,
        *,
        limit: int | None = None,
        skip_missing: bool = False,
    ) -> None:
        """Use `Table.scan`."""
        self._limit = limit
        self._store = store
        self._snapshot = snapshot
        self._columns = columns
        self._where = where
        self._threads = threads
        self._skip_missing = skip_missing
        self.schema = scan_schema(snapshot.table, columns)
        """The Arrow schema of every batch."""
        self.report = ScanReport()
        """The counts of the last reading so far."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Reads batches from the beginning. Raises `DataError`, `FormatError`, `StoreError` while reading."""
        return scan(
            self._store,
            self._begun(),
            self._columns,
            self._where,
            self.report,
            limit=self._limit,
            threads=self._threads,
        )

    def _begun(self) -> Snapshot:
        """Starts a new report and returns the snapshot to read."""
        self.report = ScanReport()
        if not self._skip_missing:
            return self._snapshot
        return without_unreadable(self._store, self._snapshot, self._where, self.report)

    @checked
    def to_file(
        self, path: str | PathLike[str], *, on_progress: Callable[[int], None] | None = None
    ) -> ExportReport:
        """Writes all rows to a .parquet, .arrow, .frag, .ndjson, .csv or .xml file, like `compactor export`.

        The file appears whole or not at all. Parquet and Arrow files record how their rows are sorted.
        on_progress: called with the number of rows read so far.
        Raises `UsageError` for another ending, or a path that cannot be written.
        """
        # Imported here, since reading batches needs none of the file formats.
        from compactor.read.export import export_file

        return export_file(
            self._store,
            self._begun(),
            fspath(path),
            self._columns,
            self._where,
            self.report,
            limit=self._limit,
            threads=self._threads,
            on_progress=on_progress or _ignore,
        )

    def __repr__(self) -> str:
        columns = names_text(self.schema.names)
        some = "" if self._where is None else ", some rows"
        return f"<Scan {self._store.url} version {self._snapshot.version}: {columns}{some}>"
