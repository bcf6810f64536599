"""The rows of a table, as Arrow's stream interface gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from os import PathLike, fspath

import pyarrow as pa

from compactor.predicate.tree import Predicate
from compactor.read.pruning import without_quarantined
from compactor.read.read_reports import ExportReport, ScanReport
from compactor.read.scan import scan
from compactor.read.wanted import scan_schema
from compactor.settings.arguments import checked
from compactor.stores.base import Store
from compactor.table.snapshot import Snapshot
from lsm_fragment.names import names_text


def _ignore(_done: int) -> None: ...


class Scan:
    """The rows of a table in sort order, read lazily; it may be read many times.

    It has Arrow's stream interface, so any library that reads Arrow streams reads it. Readings are
    independent of one another, in threads too; a reading that is dropped half way ends its threads and
    releases everything it holds. An error on the way is raised in the reader: as our own exception where we
    read, as the other library's exception with our message where it reads.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        columns: Sequence[str] | None,
        where: Predicate | None,
        threads: int,
        *,
        skip_quarantined: bool = False,
    ) -> None:
        """Use `Table.scan`."""
        self._store = store
        self._snapshot = snapshot
        self._columns = columns
        self._where = where
        self._threads = threads
        self._skip_quarantined = skip_quarantined
        self.schema = scan_schema(snapshot.table, columns)
        """The Arrow schema of every batch."""
        self.report = ScanReport()
        """The counts of the last reading, as far as it has come."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Reads batches from the beginning. Raises `DataError`, `FormatError`, `StoreError` on the way."""
        return scan(
            self._store,
            self._begun(),
            self._columns,
            self._where,
            self.report,
            threads=self._threads,
        )

    def _begun(self) -> Snapshot:
        """Begins a new report, and returns the snapshot to read."""
        self.report = ScanReport()
        if not self._skip_quarantined:
            return self._snapshot
        return without_quarantined(self._snapshot, self._where, self.report)

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns a stream of batches from the beginning."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """Reads all rows into memory."""
        return self.to_reader().read_all()

    @checked
    def to_file(
        self, path: str | PathLike[str], *, on_progress: Callable[[int], None] | None = None
    ) -> ExportReport:
        """Writes all rows to a .parquet, .arrow, .frag, .ndjson, .csv or .xml file, as `compactor export`.

        The file appears whole or not at all. Parquet and Arrow files state how their rows are sorted.
        on_progress: is called with the number of rows read so far.
        Raises `UsageError` for another ending, or a path that cannot be written.
        """
        # Imported late: who reads batches needs no library of files.
        from compactor.read.export import export_file

        return export_file(
            self._store,
            self._begun(),
            fspath(path),
            self._columns,
            self._where,
            self.report,
            threads=self._threads,
            on_progress=on_progress or _ignore,
        )

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns a stream from the beginning, cast to the requested types where rows can be cast to them."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        columns = names_text(self.schema.names)
        some = "" if self._where is None else ", some rows"
        return f"<Scan {self._store.url} version {self._snapshot.version}: {columns}{some}>"
