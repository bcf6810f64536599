"""Tables from Python: open, append, scan, delete, alter. Rows come and go by Arrow's stream interface.

    from compactor import Table

    table = Table.open("s3://bucket/logs")
    table.append(pa.table({...}))
    errors = table.scan(["timestamp", "message"], where="level = 'ERROR' AND service LIKE 'api%'")
    polars.DataFrame(errors)
    duckdb.sql("SELECT count(*) FROM errors")

A `Table` stays at the version at which it was opened, or of its last append, until `refresh`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from os import PathLike, fspath
from typing import Any, Self

import pyarrow as pa

from compactor.alter import Alteration, alter_table
from compactor.delete import DeleteReport, delete_rows
from compactor.errors import TableExistsError, UsageError
from compactor.files.read import DEFAULT_BATCH_BYTES
from compactor.files.stream import StreamBatches
from compactor.ingest import IngestOptions, IngestReport, ingest_batches
from compactor.predicate import condition_on
from compactor.predicate.tree import Predicate
from compactor.scan import ScanReport, scan, scan_schema
from compactor.stores.base import Store
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from format.errors import SchemaError
from format.schema import parse_sort_schema


class Scan:
    """Rows of a table in sort order, read as they are asked for; may be read many times.

    Has Arrow's stream interface, so whatever reads that reads this.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        columns: Sequence[str] | None,
        where: Predicate | None,
    ) -> None:
        self._store = store
        self._snapshot = snapshot
        self._columns = columns
        self._where = where
        self.schema = scan_schema(snapshot.table, columns)
        self.report = ScanReport()
        """Of the last reading, so far."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self.report = ScanReport()
        return scan(self._store, self._snapshot, self._columns, self._where, self.report)

    def to_reader(self) -> pa.RecordBatchReader:
        """A stream from the beginning."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """All rows, in memory."""
        return self.to_reader().read_all()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()


class Table:
    """One table, at one version."""

    def __init__(self, store: Store, log: CommitLog, snapshot: Snapshot) -> None:
        """Use `open` or `create`."""
        self._store = store
        self._log = log
        self._snapshot = snapshot

    @classmethod
    def open(
        cls, url: str | PathLike[str], *, version: int | None = None, as_of: datetime | None = None
    ) -> Self:
        """The table in a folder or at s3://bucket/prefix: newest, at a version, or as it was at a time.

        as_of: UTC if it names no zone.
        Raises `TableNotFoundError`, `VersionNotFoundError`, `StoreError`, `UsageError` if asked for both.
        """
        if version is not None and as_of is not None:
            raise UsageError("version and as_of: give one of the two")
        if as_of is not None and not isinstance(as_of, datetime):
            raise UsageError(f"as_of: {as_of!r} is no datetime")
        store = open_store(_address(url))
        log = CommitLog(store)
        return cls(store, log, log.at(version, None if as_of is None else _unix_ms(as_of)))

    @classmethod
    def create(
        cls, url: str | PathLike[str], rows: Any, sort_by: str, options: IngestOptions | None = None
    ) -> Self:
        """A new table of some rows. sort_by: such as `service,host,timestamp:desc`.

        rows: anything with Arrow's stream interface.
        Raises `TableExistsError` where there is one, and as `append`.
        """
        store = open_store(_address(url))
        log = CommitLog(store)
        snapshot = log.refresh()
        if snapshot.metadata is not None:
            raise TableExistsError(f"{url}: there is a table already: open it")
        table = cls(store, log, snapshot)
        table._ingest(rows, sort_by, options)
        return table

    def append(self, rows: Any, options: IngestOptions | None = None) -> IngestReport:
        """Adds rows in one commit, and moves on to its version.

        rows: anything with Arrow's stream interface. Columns the table has not are added to it.
        Raises `InputError` naming the column for what does not fit; nothing is added then.
        """
        return self._ingest(rows, None, options)

    def _ingest(
        self, rows: Any, sort_by: str | None, options: IngestOptions | None
    ) -> IngestReport:
        latest = self._log.refresh()
        try:
            sort = None if sort_by is None else parse_sort_schema(sort_by)
        except SchemaError as error:
            raise UsageError(f"sort_by: {error}") from error
        with StreamBatches(rows, DEFAULT_BATCH_BYTES) as batches:
            report = ingest_batches(
                self._store, self._log, latest, batches, sort, options or IngestOptions()
            )
        self._snapshot = self._log.latest
        return report

    def scan(self, columns: Sequence[str] | None = None, where: str | None = None) -> Scan:
        """Rows in sort order: all or some columns, all rows or those of which the SQL condition holds.

        Nothing is read yet. Raises `UsageError` for an unknown column or a wrong condition.
        """
        return Scan(self._store, self._snapshot, columns, self._condition(where))

    def delete(self, where: str) -> DeleteReport:
        """Deletes all rows of which the SQL condition holds, in one commit, and moves on to its version.

        Readers of that version see them no more; storage is free of them once their fragments are compacted
        and the old ones vacuumed. Raises as `scan`, and `CommitConflictError`.
        """
        self.refresh()
        condition = self._condition(where)
        if condition is None:
            raise UsageError("where: say which rows are to be deleted")
        report = delete_rows(self._store, self._log, condition)
        self._snapshot = self._log.latest
        return report

    def alter(
        self,
        *,
        renames: Mapping[str, str] | None = None,
        drops: Sequence[str] = (),
        redacts: Sequence[str] = (),
        order: Sequence[str] = (),
    ) -> None:
        """Renames, drops, redacts and reorders columns in one commit, and moves on to its version.

        See `compactor.alter.Alteration`. No fragment is rewritten; earlier versions show what they had.
        Raises `UsageError` naming the column that does not allow it, `CommitConflictError`.
        """
        self._snapshot = alter_table(self._log, Alteration(renames or {}, drops, redacts, order))

    def _condition(self, where: str | None) -> Predicate | None:
        if where is None:
            return None
        if not isinstance(where, str):
            raise UsageError(f"where: {where!r} is no text")
        return condition_on(self._snapshot.table, where)

    def refresh(self) -> None:
        """Moves on to the newest version."""
        self._snapshot = self._log.current()

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def version(self) -> int:
        return self._snapshot.version

    @property
    def schema(self) -> pa.Schema:
        """At this version."""
        return self._snapshot.table.shown_schema

    @property
    def rows(self) -> int:
        return sum(entry.live_rows for entry in self._snapshot.fragments.all())

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"<Table {self.url} version {self.version}: {self.rows:,} rows>"


def _address(url: str | PathLike[str]) -> str:
    """Raises `UsageError` for what is none."""
    try:
        return fspath(url)
    except TypeError:
        raise UsageError(f"{url!r} is no folder and no address") from None


def _unix_ms(moment: datetime) -> int:
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
