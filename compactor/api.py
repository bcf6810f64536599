"""Tables from Python. Rows come and go by Arrow's stream interface; what they do is what the commands do.

    from compactor import Table

    table = Table.open("s3://bucket/logs")
    table.append(pa.table({...}))
    errors = table.scan(["timestamp", "message"], where="level = 'ERROR' AND service LIKE 'api%'")
    polars.DataFrame(errors)
    duckdb.sql("SELECT count(*) FROM errors")

A `Table` stays at the version at which it was opened, or of its last append, until `refresh`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from os import PathLike, fspath
from typing import Any, Self

import pyarrow as pa
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from compactor.compaction.attempt import run_compaction
from compactor.compaction.driver import (
    IN_PROCESS_LEASE_SECONDS,
    LEASE_SECONDS,
    Driver,
    DriverSettings,
)
from compactor.compaction.engine import Engine, InProcessEngine
from compactor.compaction.report import CompactReport, explain_lost, refuse
from compactor.compaction.worker import check_quarantine, compact
from compactor.errors import JobError, TableExistsError, UsageError
from compactor.files.read import DEFAULT_BATCH_BYTES
from compactor.files.stream import StreamBatches
from compactor.predicate.tree import Predicate
from compactor.read.export import ExportReport, export_file
from compactor.read.report import ScanReport
from compactor.read.scan import scan, scan_schema
from compactor.read.verify import VerifyReport, verify
from compactor.rows.policy import RowPolicy
from compactor.settings.arguments import checked
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.settings.units import unix_ms
from compactor.spark.engine import SparkEngine
from compactor.spark.session import task_slots
from compactor.stores.base import Store
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.describe import fragments_table, history_table
from compactor.table.snapshot import Snapshot
from compactor.table.vacuum import VacuumReport, VacuumSettings, vacuum
from compactor.write.alter import Alteration, alter_table
from compactor.write.delete import DeleteReport, delete_rows
from compactor.write.ingest import IngestOptions, IngestReport, ingest_batches, ingest_file
from format.errors import SchemaError
from format.open import OpenFragment
from format.schema import ordering, parse_sort_schema


class Scan:
    """Rows of a table in sort order, read as they are asked for; may be read many times.

    Has Arrow's stream interface, so whatever reads that reads this. Readings are independent of one
    another, in threads, too; one that is dropped half way lets go of all it holds. What goes wrong on the
    way is raised by whoever reads: our errors by us, theirs with our message by others.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        columns: Sequence[str] | None,
        where: Predicate | None,
    ) -> None:
        """Use `Table.scan`."""
        self._store = store
        self._snapshot = snapshot
        self._columns = columns
        self._where = where
        self.schema = scan_schema(snapshot.table, columns)
        """Of every batch."""
        self.report = ScanReport()
        """Of the last reading, so far."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches from the beginning. Raises `DataError`, `FormatError`, `StoreError` where it meets them."""
        self.report = ScanReport()
        return scan(self._store, self._snapshot, self._columns, self._where, self.report)

    def to_reader(self) -> pa.RecordBatchReader:
        """A stream from the beginning."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """All rows, in memory."""
        return self.to_reader().read_all()

    @checked
    def to_file(self, path: str | PathLike[str]) -> ExportReport:
        """Writes all rows to a .parquet, .arrow, .frag, .ndjson, .csv or .xml file, as `compactor export`.

        The file appears whole, or not at all; Parquet and Arrow files say how their rows are sorted.
        Raises `UsageError` for another ending, `InputError` for a place that can't be written.
        """
        self.report = ScanReport()
        return export_file(
            self._store, self._snapshot, fspath(path), self._columns, self._where, self.report
        )

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A stream from the beginning, of the types asked for where rows can be cast to them."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        columns = ", ".join(self.schema.names)
        some = "" if self._where is None else ", some rows"
        return f"<Scan {self._store.url} version {self._snapshot.version}: {columns}{some}>"


class Table:
    """One table, at one version."""

    def __init__(self, store: Store, log: CommitLog, snapshot: Snapshot) -> None:
        """Use `open` or `create`."""
        self._store = store
        self._log = log
        self._snapshot = snapshot

    @classmethod
    @checked
    def open(
        cls, url: str | PathLike[str], *, version: int | None = None, as_of: datetime | None = None
    ) -> Self:
        """The table in a folder or at s3://bucket/prefix: newest, at a version, or as it was at a time.

        as_of: UTC if it names no zone.
        Raises `TableNotFoundError`, `VersionNotFoundError`, `StoreError`, `UsageError` if asked for both or
        for a time before the year 1.
        """
        if version is not None and as_of is not None:
            raise UsageError("version and as_of: give one of the two")
        try:
            as_of_unix_ms = None if as_of is None else unix_ms(as_of)
        except ValueError as error:
            raise UsageError(f"as_of: {error}") from error
        store = open_store(fspath(url))
        log = CommitLog(store)
        return cls(store, log, log.at(version, as_of_unix_ms))

    @classmethod
    @checked
    def exists(cls, url: str | PathLike[str]) -> bool:
        """Whether there is a table. Raises `StoreError`, `UsageError`."""
        return CommitLog(open_store(fspath(url))).refresh().metadata is not None

    @classmethod
    @checked
    def create(
        cls,
        url: str | PathLike[str],
        rows: Any,
        sort_by: str | None = None,
        options: IngestOptions | None = None,
    ) -> Self:
        """A new table of some rows.

        rows: anything with Arrow's stream interface, or the path of a file that `compactor ingest` reads.
        sort_by: such as `service,host,timestamp:desc:nulls_first`; not needed where a Parquet, Arrow or
        fragment file says how it is sorted, as exported ones do.
        Raises `TableExistsError` where there is one, and as `append`.
        """
        store = open_store(fspath(url))
        log = CommitLog(store)
        snapshot = log.refresh()
        if snapshot.metadata is not None:
            raise TableExistsError(f"{url}: there is a table already: open it")
        table = cls(store, log, snapshot)
        table._ingest(rows, sort_by, options)
        return table

    @checked
    def append(self, rows: Any, options: IngestOptions | None = None) -> IngestReport:
        """Adds rows in one commit, and moves on to its version.

        rows: anything with Arrow's stream interface, or the path of a file that `compactor ingest` reads.
        Columns the table has not are added to it.
        Levels of a pandas index that have no name are left out.
        Raises `InputError` naming the column for what does not fit, and what a reader of PyArrow raises on
        the way, such as a generator's own exception; nothing is added then.
        """
        return self._ingest(rows, None, options)

    def _ingest(
        self, rows: Any, sort_by: str | None, options: IngestOptions | None
    ) -> IngestReport:
        latest = self._log.refresh()
        options = options or IngestOptions()
        try:
            sort = None if sort_by is None else parse_sort_schema(sort_by)
        except SchemaError as error:
            raise UsageError(f"sort_by: {error}") from error
        if isinstance(rows, (Scan, OpenFragment)):
            rows = rows.to_reader()  # not through C, which has no exceptions
        if isinstance(rows, (str, PathLike)):
            report = ingest_file(self._store, self._log, fspath(rows), sort, options)
        elif options.promotes:
            raise UsageError("options.promotes: only of files, which are read twice for it")
        else:
            with StreamBatches(rows, DEFAULT_BATCH_BYTES) as batches:
                if latest.metadata is None and (sort or batches.sort) is None:
                    raise UsageError(
                        "sort_by: say by which columns the new table is sorted, such as 'service,time:desc'"
                    )
                report = ingest_batches(self._store, self._log, latest, batches, sort, options)
        self._snapshot = self._log.latest
        return report

    @checked
    def scan(self, columns: Iterable[str] | None = None, where: str | None = None) -> Scan:
        """Rows in sort order: all or some columns, all rows or those of which the SQL condition holds.

        columns: names in any order; of a set, in alphabetical order.
        Nothing is read yet. Raises `UsageError` for an unknown column or a wrong condition.
        """
        names = None if columns is None else tuple(columns)
        return Scan(self._store, self._snapshot, names, self._condition(where))

    @checked
    def delete(self, where: str) -> DeleteReport:
        """Deletes all rows of which the SQL condition holds, in one commit, and moves on to its version.

        Readers of that version see them no more; storage is free of them once their fragments are compacted
        and the old ones vacuumed. Raises as `scan`, and `CommitConflictError`.
        """
        self.refresh()
        report = delete_rows(self._store, self._log, condition_on(self._snapshot.table, where))
        self._snapshot = self._log.latest
        return report

    @checked
    def alter(
        self,
        *,
        renames: Mapping[str, str] | None = None,
        drops: Iterable[str] = (),
        redacts: Iterable[str] = (),
        order: Iterable[str] = (),
    ) -> None:
        """Renames, drops, redacts and reorders columns in one commit, and moves on to its version.

        See `compactor.write.alter.Alteration`. No fragment is rewritten; earlier versions show what they had.
        Raises `UsageError` naming the column that does not allow it, `CommitConflictError`.
        """
        change = Alteration(renames or {}, tuple(drops), tuple(redacts), tuple(order))
        self._snapshot = alter_table(self._log, change)

    @checked
    def compact(
        self,
        *,
        full: bool = False,
        policy: Policy | None = None,
        settings: CompactionSettings | None = None,
        spark: Any = None,
        max_tasks: PositiveInt | None = None,
    ) -> CompactReport:
        """Merges fragments as far as it is due, and moves on to the version after. Readers see the same rows.

        full: everything into one sorted run. policy, settings: when to compact what, and how.
        spark: a `SparkSession`, whose tasks do the merging, max_tasks at a time (all cores by default);
        without one they run one after the other in this process.
        Raises `JobError` if a compaction failed for good (the others are committed) or a fragment is in
        quarantine, `ConfigError` for what `memory_limit_bytes` does not allow, `UsageError` for both `full`
        and `policy`.
        """
        if full and policy is not None:
            raise UsageError("full and policy: give one of the two")
        policy = Policy(strategy=Strategy.FULL) if full else policy or Policy()
        if spark is not None and not hasattr(spark, "createDataFrame"):
            raise UsageError(f"spark: {spark!r} is no SparkSession")
        engine: Engine
        if spark is None:
            engine = InProcessEngine(lambda compaction: run_compaction(compaction, self._store))
        else:
            engine = SparkEngine(spark, max_tasks or task_slots(spark))
        lease_seconds = IN_PROCESS_LEASE_SECONDS if spark is None else LEASE_SECONDS
        driver = Driver(
            self._log,
            DriverSettings(
                policy,
                settings or CompactionSettings(),
                gives_up=True,
                lease_seconds=lease_seconds,
            ),
        )
        report = compact(driver, engine)
        self._snapshot = self._log.latest
        if report.lost:
            raise JobError(explain_lost(report))
        refuse(driver.plan(self._log.latest))
        check_quarantine(self._log.latest)
        return report

    @checked
    def vacuum(
        self,
        *,
        grace_seconds: NonNegativeFloat = 86_400.0,
        retain_seconds: NonNegativeFloat = 86_400.0,
        dry_run: bool = False,
        allow_shrinking: bool = False,
    ) -> VacuumReport:
        """Removes objects that no version of the last `retain_seconds` needs, safely beside everything.

        grace_seconds: attempts that began longer ago and are not committed are taken for dead.
        dry_run: counts, and removes nothing.
        allow_shrinking: removes older versions although most of their rows are in none of the newer ones.
        Having removed nothing, raises `TableError` for these without it, `DataError` for a damaged log.
        Raises `StoreError`; what is left is for the next time.
        """
        self._log.current()
        settings = VacuumSettings(grace_seconds, retain_seconds, dry_run, allow_shrinking)
        report = vacuum(self._log, settings)
        self.refresh()
        return report

    def verify(self) -> VerifyReport:
        """Reads everything of this version; `faults` says what is damaged, a line each.

        Raises `StoreError` only where the store itself can't be reached.
        """
        return verify(self._store, self._snapshot)

    def fragments(self) -> pa.Table:
        """The fragments of this version, oldest first, with sizes, key ranges and levels."""
        return fragments_table(self._snapshot)

    @checked
    def history(self, limit: NonNegativeInt | None = None) -> pa.Table:
        """The versions up to this one that are kept, newest first: when they came, and what they changed.

        limit: so many at most; each takes one GET. Raises `DataError` if a vacuum removes them meanwhile.
        """
        newest, history = self._snapshot, self._log.history
        before = newest.oldest if newest.oldest > 1 else 0
        if limit is not None:
            before = max(before, newest.version - limit)
        start = Snapshot.empty() if before == 0 else self._log.at(before)
        return history_table(history.versions_after(start, newest.version))

    def _condition(self, where: str | None) -> Predicate | None:
        return None if where is None else condition_on(self._snapshot.table, where)

    def refresh(self) -> None:
        """Moves on to the newest version."""
        self._snapshot = self._log.current()

    @property
    def url(self) -> str:
        """Where it is."""
        return self._store.url

    @property
    def version(self) -> int:
        """Counts commits, from 1."""
        return self._snapshot.version

    @property
    def sort_by(self) -> str:
        """By which columns rows are sorted, as `create` takes it."""
        table = self._snapshot.table
        shown = [replace(c, column=table.shown_name(c.column)) for c in ordering(table.sort)]
        return ",".join(map(str, shown))

    @property
    def row_policy(self) -> RowPolicy:
        """What rows of equal key mean."""
        return self._snapshot.table.shown_rows

    @property
    def schema(self) -> pa.Schema:
        """At this version."""
        return self._snapshot.table.shown_schema

    @property
    def rows(self) -> int:
        """Stored and not deleted, before those of equal key are merged by the row policy."""
        return sum(entry.live_rows for entry in self._snapshot.fragments.all())

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"<Table {self.url} version {self.version}: {self.rows:,} rows>"
