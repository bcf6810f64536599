"""Opens tables from Python. Rows come and go by Arrow's stream interface.

    from compactor import Table

    table = Table.open("s3://bucket/logs")
    table.append(pa.table({...}))
    errors = table.scan(["timestamp", "message"], where="level = 'ERROR' AND service LIKE 'api%'")
    polars.DataFrame(errors)
    duckdb.sql("SELECT count(*) FROM errors")

A `Table` stays at the version at which it was opened until its own next commit or `refresh`. Each method does
what the command of its name does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from os import PathLike, fspath
from typing import Any, Final, Self

import pyarrow as pa
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from compactor.common.setting_keys import SORT_BY
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

_VACUUM: Final = VacuumSettings()


class Scan:
    """The rows of a table in sort order, read lazily; it may be read many times.

    It has Arrow's stream interface, so any library that reads Arrow streams reads it. Readings are
    independent of one another, in threads too; a reading that is dropped half way releases everything it
    holds. An error on the way is raised in the reader: as our own exception where we read, as the other
    library's exception with our message where it reads.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        columns: Sequence[str] | None,
        where: Predicate | None,
    ) -> None:
        """Is called by `Table.scan`."""
        self._store = store
        self._snapshot = snapshot
        self._columns = columns
        self._where = where
        self.schema = scan_schema(snapshot.table, columns)
        """The Arrow schema of every batch."""
        self.report = ScanReport()
        """The counts of the last reading, as far as it has come."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Reads batches from the beginning. Raises `DataError`, `FormatError`, `StoreError` on the way."""
        self.report = ScanReport()
        return scan(self._store, self._snapshot, self._columns, self._where, self.report)

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns a stream of batches from the beginning."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """Reads all rows into memory."""
        return self.to_reader().read_all()

    @checked
    def to_file(self, path: str | PathLike[str]) -> ExportReport:
        """Writes all rows to a .parquet, .arrow, .frag, .ndjson, .csv or .xml file, as `compactor export`.

        The file appears whole or not at all. Parquet and Arrow files state how their rows are sorted. Raises
        `UsageError` for another ending, `InputError` for a path that cannot be written.
        """
        self.report = ScanReport()
        return export_file(
            self._store, self._snapshot, fspath(path), self._columns, self._where, self.report
        )

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns a stream from the beginning, cast to the requested types where rows can be cast to them."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        columns = ", ".join(self.schema.names)
        some = "" if self._where is None else ", some rows"
        return f"<Scan {self._store.url} version {self._snapshot.version}: {columns}{some}>"


class Table:
    """One table at one version."""

    def __init__(self, store: Store, log: CommitLog, snapshot: Snapshot) -> None:
        """Is called by `open` and `create`."""
        self._store = store
        self._log = log
        self._snapshot = snapshot

    @classmethod
    @checked
    def open(
        cls, url: str | PathLike[str], *, version: int | None = None, as_of: datetime | None = None
    ) -> Self:
        """Opens the table in a folder or at s3://bucket/prefix: its newest version, or an earlier one.

        version: opens this version.
        as_of: opens the version that was current at this time; a time without a zone is UTC.
        Raises `TableNotFoundError`, `VersionNotFoundError`, `StoreError`, and `UsageError` if both are given
        or the time is before the year 1.
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
        """Says whether a table is at this address. Raises `StoreError`, `UsageError`."""
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
        """Creates a table of these rows.

        rows: any object with Arrow's stream interface, or the path of a file that `compactor ingest` reads.
        sort_by: the sort key, such as `service,host,timestamp:desc:nulls_first`; may be left out where a
        Parquet, Arrow or fragment file states its order, as exported files do.
        Raises `TableExistsError` if a table is there, and what `append` raises.
        """
        store = open_store(fspath(url))
        log = CommitLog(store)
        snapshot = log.refresh()
        if snapshot.metadata is not None:
            raise TableExistsError(f"{url}: there is a table already; open it with Table.open")
        table = cls(store, log, snapshot)
        table._ingest(rows, sort_by, options)
        return table

    @checked
    def append(self, rows: Any, options: IngestOptions | None = None) -> IngestReport:
        """Adds rows in one commit and moves on to its version.

        rows: any object with Arrow's stream interface, or the path of a file that `compactor ingest` reads.
        Columns that the table lacks are added to it. Unnamed levels of a pandas index are left out.
        Raises `InputError`, naming the column, for values that do not fit, and whatever the stream itself
        raises, such as a generator's own exception; then nothing is added.
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
            raise UsageError(SORT_BY, f": {error}") from error
        if isinstance(rows, (Scan, OpenFragment)):
            rows = rows.to_reader()  # not through the C interface, which loses exceptions
        if isinstance(rows, (str, PathLike)):
            report = ingest_file(self._store, self._log, fspath(rows), sort, options)
        elif options.promotes:
            raise UsageError(
                "options.promotes: works for files only, because it reads the rows twice"
            )
        else:
            with StreamBatches(rows, DEFAULT_BATCH_BYTES) as batches:
                if latest.metadata is None and (sort or batches.sort) is None:
                    raise UsageError(
                        "sort_by: name the columns that sort the new table, such as 'service,time:desc'"
                    )
                report = ingest_batches(self._store, self._log, latest, batches, sort, options)
        self._snapshot = self._log.latest
        return report

    @checked
    def scan(self, columns: Iterable[str] | None = None, where: str | None = None) -> Scan:
        """Returns the rows in sort order: the given columns of the rows that fulfil the SQL condition.

        columns: names in the order wanted, or a set, which is taken in alphabetical order; None stands for
        all.
        Reads nothing yet. Raises `UsageError` for an unknown column or an invalid condition.
        """
        names = None if columns is None else tuple(columns)
        return Scan(self._store, self._snapshot, names, self._condition(where))

    @checked
    def delete(self, where: str) -> DeleteReport:
        """Deletes all rows that fulfil the SQL condition, in one commit, and moves on to its version.

        Readers of that version no longer see the rows. They leave storage when their fragments have been
        compacted and the old fragments vacuumed. Raises what `scan` raises, and `CommitConflictError`.
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

        The arguments are those of `compactor.write.alter.Alteration`. No fragment is rewritten, and earlier
        versions keep their columns. Raises `UsageError`, naming the column that does not allow the change,
        and `CommitConflictError`.
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
        """Merges fragments as far as it is due, and moves on to the new version. Rows stay the same.

        full: merges everything into one sorted run.
        policy, settings: when to compact which fragments, and how.
        spark: a `SparkSession` whose tasks do the merging, max_tasks at a time (all cores by default);
        without it, compactions run one after the other in this process.
        Raises `JobError` if a compaction failed for good (the others are committed) or a fragment is in
        quarantine, `ConfigError` for a compaction that `memory_limit_bytes` does not allow, `UsageError` for
        both `full` and `policy`.
        """
        if full and policy is not None:
            raise UsageError("full and policy: give one of the two")
        policy = Policy(strategy=Strategy.FULL) if full else policy or Policy()
        if spark is not None and not hasattr(spark, "createDataFrame"):
            raise UsageError(f"spark: {spark!r} is not a SparkSession")
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
        grace_seconds: NonNegativeFloat = _VACUUM.grace_seconds,
        retain_seconds: NonNegativeFloat = _VACUUM.retain_seconds,
        dry_run: bool = False,
        allow_shrinking: bool = False,
    ) -> VacuumReport:
        """Removes objects that no version of the last `retain_seconds` needs; is safe beside all other work.

        grace_seconds: uncommitted attempts that began longer ago count as dead.
        dry_run: counts, and removes nothing.
        allow_shrinking: removes older versions although the newer ones have lost most of their rows.
        Raises `TableError` for such a loss without `allow_shrinking` and `DataError` for a damaged log, both
        before anything is removed. Raises `StoreError` half way; the next vacuum removes the rest.
        """
        self._log.current()
        settings = VacuumSettings(
            grace_seconds=grace_seconds,
            retain_seconds=retain_seconds,
            dry_run=dry_run,
            allow_shrinking=allow_shrinking,
        )
        report = vacuum(self._log, settings)
        self.refresh()
        return report

    def verify(self) -> VerifyReport:
        """Reads all data of this version; `faults` of the report has one line for each damage found.

        Raises `StoreError` only if the store itself cannot be reached.
        """
        return verify(self._store, self._snapshot)

    def fragments(self) -> pa.Table:
        """Returns the fragments of this version, oldest first, with sizes, key ranges and levels."""
        return fragments_table(self._snapshot)

    @checked
    def history(self, limit: NonNegativeInt | None = None) -> pa.Table:
        """Returns the retained versions up to this one, newest first: when each came, and what it changed.

        limit: the most versions to return; each takes one GET. Raises `DataError` if a vacuum removes them
        meanwhile.
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
        """The address of the table."""
        return self._store.url

    @property
    def version(self) -> int:
        """The version number, which counts commits from 1."""
        return self._snapshot.version

    @property
    def sort_by(self) -> str:
        """The sort key, written as `create` takes it."""
        table = self._snapshot.table
        shown = [replace(c, column=table.shown_name(c.column)) for c in ordering(table.sort)]
        return ",".join(map(str, shown))

    @property
    def row_policy(self) -> RowPolicy:
        """The row policy, which says what rows of equal key become."""
        return self._snapshot.table.shown_rows

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema at this version."""
        return self._snapshot.table.shown_schema

    @property
    def rows(self) -> int:
        """The stored rows that are not deleted, before the row policy merges rows of equal key."""
        return sum(entry.live_rows for entry in self._snapshot.fragments.all())

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"<Table {self.url} version {self.version}: {self.rows:,} rows>"
