"""A table for Python programs to read, write and maintain."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import datetime
from os import PathLike, fspath
from typing import Annotated, Any, Literal, Self

from msgspec.structs import replace
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt, Strict

from compactor.api.scan import Scan
from compactor.api.view import TableView, moment_of
from compactor.common.setting_keys import SORT_BY
from compactor.compaction.attempt import run_compaction
from compactor.compaction.backlog import Backlog, backlog_of
from compactor.compaction.compact_report import CompactReport
from compactor.compaction.driver import (
    IN_PROCESS_LEASE_SECONDS,
    LEASE_SECONDS,
    Driver,
    DriverSettings,
    FinishedCompaction,
)
from compactor.compaction.engine import Engine, InProcessEngine
from compactor.compaction.listener import Listener
from compactor.compaction.plan_report import PlanReport
from compactor.compaction.planned import plan_next
from compactor.compaction.worker import check_done, compact
from compactor.errors import TableExistsError, UsageError
from compactor.files.read import DEFAULT_BATCH_BYTES
from compactor.files.stream import StreamBatches
from compactor.lakes.lake import LakeKind
from compactor.lakes.publish_report import PublishReport
from compactor.planner.debt import Debt, debt_of
from compactor.predicate.skipping.spec import SkipKind
from compactor.resources.cores import usable_cores
from compactor.settings.arguments import checked
from compactor.settings.compaction import CompactionSettings, Policy
from compactor.settings.fields import Threads
from compactor.settings.vacuum import VacuumSettings
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.vacuum import VacuumReport, vacuum
from compactor.write.alter import Alteration, AlterReport, alter_report, alter_table
from compactor.write.back_pressure import BackPressure, DebtWarning
from compactor.write.delete import DeleteReport, delete_rows
from compactor.write.ingest import (
    Adding,
    IngestOptions,
    IngestReport,
    ingest_batches,
    ingest_file,
)
from compactor.write.lost_fragments import DropReport, drop_fragment, quarantine, release
from compactor.write.overwrite import Overwrite
from compactor.write.restore import RestoreReport, restore_version
from compactor.write.tags import end_tag, set_tag
from compactor.write.undo import UndoReport, undo_compaction
from compactor.write.update import UpdateReport, update_rows
from compactor.write.upsert import Upsert
from lsm_fragment.container.open import OpenFragment
from lsm_fragment.errors import SchemaError
from lsm_fragment.keys.sort_schema import parse_sort_schema
from lsm_fragment.threads import ThreadPool


def _ignore(_done: int) -> None: ...


def _without_total(on_progress: Callable[[int], None] | None) -> Callable[[int, int], None]:
    told = on_progress or _ignore
    return lambda done, _total: told(done)


class _Counting(Listener):
    """Counts the compactions that end."""

    def __init__(self, on_progress: Callable[[int], None]) -> None:
        self._on_progress = on_progress
        self._ended = 0

    def finished(self, driver: Driver, finished: FinishedCompaction) -> None:  # noqa: ARG002
        self._ended += 1
        self._on_progress(self._ended)


class Table(TableView):
    """One table at one version."""

    def __init__(self, log: CommitLog, snapshot: Snapshot) -> None:
        super().__init__(log, snapshot)
        self._on_debt = DebtWarning()

    @classmethod
    @checked
    def exists(cls, url: str | PathLike[str]) -> bool:
        """Returns whether there is a table at this address. Raises `StoreError`, `UsageError`."""
        return CommitLog(open_store(fspath(url))).refresh().metadata is not None

    @classmethod
    @checked
    def create(
        cls,
        url: str | PathLike[str],
        rows: Any,
        sort_by: str | None = None,
        options: IngestOptions | None = None,
        properties: Mapping[str, str | int | float] | None = None,
    ) -> Self:
        """Creates a table from these rows.

        rows: any object with Arrow's stream interface, or the path of a file that `compactor ingest` reads.
        sort_by: the sort key, such as `service,host,timestamp:desc:nulls_first`; optional for a Parquet,
        Arrow or fragment file that records its order, as exported files do.
        properties: settings that the table stores, as `alter` takes them; those of `options` are stored too.
        Raises `TableExistsError` if there is a table already, `ConfigError` with a property, and what
        `append` raises.
        """
        log = CommitLog(open_store(fspath(url)))
        snapshot = log.refresh()
        if snapshot.metadata is not None:
            raise TableExistsError(f"{url}: there is a table already; open it with Table.open")
        table = cls(log, snapshot)
        if properties:
            options = options or IngestOptions()
            options = dataclasses.replace(options, properties={**options.properties, **properties})
        table._ingest(rows, sort_by, options)
        return table

    @checked
    def append(
        self,
        rows: Any,
        options: IngestOptions | None = None,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> IngestReport:
        """Adds rows in one commit and moves to the new version.

        rows: any object with Arrow's stream interface, or the path of a file that `compactor ingest` reads.
        on_progress: called with the number of rows read so far.
        Columns that the table lacks are added to it. Unnamed levels of a pandas index are left out. Raises
        `InputError` with the column for values that do not fit, and any exception of the stream itself, such
        as a generator's; then nothing is added.

        While compactions lag behind, `options.back_pressure`, or else the table's property of this name,
        decides: "warn" (default) logs a warning, "wait" pauses, and raises `BackPressureError` if they have
        not caught up after ten minutes.
        """
        return self._ingest(rows, None, options, Adding(on_progress or _ignore))

    @checked
    def overwrite(
        self,
        rows: Any,
        where: str | None = None,
        options: IngestOptions | None = None,
        *,
        threads: Threads | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> IngestReport:
        """Puts rows in the place of those that satisfy the SQL condition, in one commit, and moves to it.

        Readers see the rows before or after it, never both or neither. Columns and settings of the table
        stay. Rows that others commit meanwhile are replaced too, if they satisfy the condition; storage is
        freed as after `delete`. `replaced_rows` of the report counts the rows that went.

        rows, options, on_progress: as for `append`.
        where: rows to replace, None for all. All new rows have to satisfy it.
        threads: number that search; None means one per core of this process.
        Raises `InputError` with the first new row that does not satisfy the condition, and what `append` and
        `delete` raise; then nothing is changed.
        """
        adding = Overwrite(where, on_progress or _ignore, threads=threads)
        report = self._ingest(rows, None, options, adding)
        return replace(report, replaced_rows=adding.replaced_rows)

    @checked
    def upsert(
        self,
        rows: Any,
        options: IngestOptions | None = None,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> IngestReport:
        """Adds rows that are new and replaces those of the same key, in one commit, and moves to it.

        It is `append` to a table that has row policy `last`, or `partial-update`, under which nulls leave
        values as they are. Of several rows of a key the newest counts: by the sequence, then by their order.
        rows, options, on_progress: as for `append`.
        Raises `UsageError` for a table of another row policy, `InputError` for a row without a sequence where
        the policy has one, and what `append` raises; then nothing is changed.
        """
        return self._ingest(rows, None, options, Upsert(on_progress or _ignore))

    def _ingest(
        self,
        rows: Any,
        sort_by: str | None,
        options: IngestOptions | None,
        adding: Adding | None = None,
    ) -> IngestReport:
        options = options or IngestOptions()
        adding = adding or Adding()
        try:
            sort = None if sort_by is None else parse_sort_schema(sort_by)
        except SchemaError as error:
            raise UsageError(SORT_BY, f": {error}") from error
        if isinstance(rows, TableView):
            rows = rows.scan()
        if isinstance(rows, (Scan, OpenFragment)):
            rows = rows.to_reader()  # the C interface would lose exceptions
        if isinstance(rows, (str, PathLike)):
            report = ingest_file(
                self._store,
                self._log,
                fspath(rows),
                sort,
                options,
                adding=adding,
                on_debt=self._on_debt,
            )
        elif options.promotes:
            raise UsageError(
                "options.promotes: works for files only, because it reads the rows twice"
            )
        else:
            with (
                StreamBatches(rows, DEFAULT_BATCH_BYTES) as batches,
                closing(ThreadPool(options.threads)) as pool,
            ):
                pressure = BackPressure(options.told, on_debt=self._on_debt)
                latest = adding.admitted(self._log, pressure)
                if latest.metadata is None and (sort or batches.sort) is None:
                    raise UsageError(
                        "sort_by: name the columns that sort the new table, such as 'service,time:desc'"
                    )
                report = ingest_batches(
                    self._store,
                    self._log,
                    latest,
                    batches,
                    sort,
                    options,
                    adding=adding,
                    pool=pool,
                )
        self._snapshot = self._log.latest
        return report

    @checked
    def delete(
        self,
        where: str,
        *,
        dry_run: bool = False,
        threads: Threads | None = None,
        skip_missing: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> DeleteReport:
        """Deletes all rows that satisfy the SQL condition, in one commit, and moves to the new version.

        Readers of that version no longer see the rows. Storage is freed once their fragments have been
        compacted and the old fragments vacuumed.

        dry_run: counts the rows, and deletes nothing.
        threads: number that search; None means one per core of this process.
        skip_missing: ignores fragments that are gone or in quarantine, and reports how many rows they have.
        Matching rows in them are not deleted, and reappear if the fragment is restored and released.
        on_progress: called with the number of fragments searched so far.
        Raises what `scan` raises, and `CommitConflictError`.
        """
        report = delete_rows(
            self._store,
            self._log,
            where,
            dry_run=dry_run,
            threads=threads or usable_cores(),
            skip_missing=skip_missing,
            on_progress=on_progress or _ignore,
        )
        self._snapshot = self._log.latest
        return report

    @checked
    def update(
        self,
        where: str,
        set: Mapping[str, Any],
        *,
        dry_run: bool = False,
        threads: Threads | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> UpdateReport:
        """Changes columns of all rows that satisfy the SQL condition, in one commit, and moves to it.

        Readers see the rows as they were or all of them changed. Rows that others add meanwhile are updated
        too, if they satisfy the condition. If rows of a key are merged, the merged row is changed.

        set: new values by column: a text is an expression, such as "upper(city)" or "'Bern'", which sees the
        row as it was; any other value is taken as it is, and None is null.
        dry_run: computes the new rows, and writes nothing.
        threads: number that search and read; None means one per core of this process.
        on_progress: called with the number of rows changed so far.
        Raises `UsageError` for an unknown column or a type that does not fit, `DataError` or `InputError` for
        a value that its column can't take, and what `delete` raises; then nothing is updated.
        """
        report = update_rows(
            self._store,
            self._log,
            where,
            set,
            dry_run=dry_run,
            threads=threads or usable_cores(),
            on_progress=_without_total(on_progress),
        )
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
        skips: Mapping[str, Annotated[SkipKind, Strict(False)] | None] | None = None,
        skip_bytes: PositiveInt | None = None,
        properties: Mapping[str, str | int | float | None] | None = None,
    ) -> AlterReport:
        """Renames, drops, redacts, reorders and indexes columns, and sets properties, in one commit; moves to
        the new version.

        The arguments are the fields of `compactor.write.alter.Alteration`. No fragment is rewritten, and
        earlier versions keep their columns. A property is a field of `Policy` or `CompactionSettings`, a
        duration of `vacuum`, or the `retention` of time windows, by name; None unsets it. Raises `UsageError`
        with the column that does not allow the change, `ConfigError` with the property, and
        `CommitConflictError`.
        """
        change = Alteration(
            renames=renames or {},
            drops=tuple(drops),
            redacts=tuple(redacts),
            order=tuple(order),
            skips=skips or {},
            skip_bytes=skip_bytes,
            properties=properties or {},
        )
        self._snapshot = alter_table(self._log, change)
        return alter_report(self._snapshot)

    @checked
    def restore(
        self,
        *,
        version: int | None = None,
        as_of: datetime | str | None = None,
        tag: str | None = None,
        dry_run: bool = False,
    ) -> RestoreReport:
        """Makes the table what it was at an earlier version, in one commit, and moves to the new version.

        Rows, deleted rows and columns are those of that version again. No fragment is rewritten, and the
        versions in between stay readable, so that a restore can be undone by another one.
        version, as_of, tag: as in `open`; give one of them.
        dry_run: returns what would change, and commits nothing.
        Raises `VersionNotFoundError` if the version or an object of it is gone, `RestoreError` if values of
        it were redacted since, and `CommitConflictError` if others change rows meanwhile.
        """
        moment = moment_of(version, as_of, tag)
        if moment.is_newest:
            raise UsageError("version, as_of or tag: name the version to restore")
        target = self._log.at(*moment)
        report = restore_version(self._log, target, dry_run=dry_run)
        self._snapshot = self._log.latest
        return report

    @checked
    def undo(self, compaction: str, *, dry_run: bool = False) -> UndoReport:
        """Puts the inputs of a compaction in the place of its outputs, in one commit; later ingests stay.

        Rows deleted since stay deleted; then the keys of the inputs are read.
        compaction: its id, as in the records of reports and the events of workers.
        dry_run: returns what would change, and commits nothing.
        Raises `UsageError` for an unknown compaction, `VersionNotFoundError` if its inputs are no longer
        kept, and `RestoreError` if its outputs, or fragments that overlap its inputs, changed since.
        """
        report = undo_compaction(self._log, compaction, dry_run=dry_run)
        self._snapshot = self._log.latest
        return report

    @checked
    def tag(
        self,
        name: str,
        *,
        keep_seconds: NonNegativeFloat | None = None,
        move: bool = False,
        keep_later: bool = False,
    ) -> None:
        """Names the version that is open here, so that vacuums keep it; moves to the new version.

        name: up to 100 letters, digits, dots, hyphens and underscores.
        keep_seconds: a vacuum ends the tag after that time; None keeps it until `untag`.
        move: takes the name from the version that has it.
        keep_later: makes vacuums keep all versions after it, too, for a reader of `changes` that moves the
        tag to where it has read.
        Raises `UsageError` for an invalid name, one that is taken without `move`, or a time of 0, and
        `VersionNotFoundError` if the version, or an object of it, is gone.
        """
        set_tag(
            self._log,
            name,
            self._snapshot,
            keep_seconds=keep_seconds,
            move=move,
            keeps_later=keep_later,
        )
        self._snapshot = self._log.latest

    @checked
    def untag(self, name: str) -> None:
        """Ends a tag, in one commit, and moves to the new version. Raises `VersionNotFoundError`."""
        end_tag(self._log, name)
        self._snapshot = self._log.latest

    @checked
    def plan(
        self,
        *,
        policy: Policy | None = None,
        settings: CompactionSettings | None = None,
        take_over: bool = False,
    ) -> PlanReport:
        """Returns the first compactions that `compact` would run, with reasons and costs. Reads no data.

        The plan is for this version of the table, and changes nothing.
        """
        driver = self._driver(policy, settings, take_over=take_over)
        return plan_next(driver, self._snapshot).report()

    @checked
    def debt(self, policy: Policy | None = None) -> Debt:
        """Returns how much compactions lag behind at this version, by which writers slow down. Reads no data.

        policy: when to compact which fragments; what it does not say is taken from the table's properties.
        """
        return debt_of(self._snapshot, policy or Policy())

    @checked
    def compact(
        self,
        *,
        policy: Policy | None = None,
        settings: CompactionSettings | None = None,
        take_over: bool = False,
        spark: Any = None,
        max_tasks: PositiveInt | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> CompactReport:
        """Runs all due compactions, and moves to the new version. Rows stay the same.

        policy, settings: when to compact which fragments, and how; what they do not set is as the table's
        properties say. Policy(strategy=Strategy.FULL) merges everything into one sorted run.
        take_over: ignores the leases of others.
        spark: a `SparkSession` whose tasks do the merging, max_tasks at a time (all cores by default);
        without it, compactions run sequentially in this process.
        on_progress: called with the number of compactions that have ended so far.
        Raises `JobError` if a compaction failed for good (the others are committed) or a fragment is in
        quarantine, `ConfigError` for a compaction that `memory_limit_bytes` does not allow.
        """
        lease_seconds = IN_PROCESS_LEASE_SECONDS if spark is None else LEASE_SECONDS
        driver = self._driver(policy, settings, take_over=take_over, lease_seconds=lease_seconds)
        engine: Engine
        if spark is None:
            engine = InProcessEngine(lambda compaction: run_compaction(compaction, self._store))
        else:
            # Imported here, since compactions in this process do not need it.
            from compactor.spark.engine import SparkEngine
            from compactor.spark.session import task_slots

            if not hasattr(spark, "createDataFrame"):
                raise UsageError(f"spark: {spark!r} is not a SparkSession")
            engine = SparkEngine(spark, max_tasks or task_slots(spark))
        report = compact(driver, engine, listener=_Counting(on_progress or _ignore))
        self._snapshot = self._log.latest
        check_done(driver, report)
        return report

    @checked
    def backlog(
        self, *, policy: Policy | None = None, settings: CompactionSettings | None = None
    ) -> Backlog:
        """Returns up to which version this version is compacted, what is due, what runs, and what waits.

        policy, settings: by which something is due, as for `compact`.
        """
        return backlog_of(self._driver(policy, settings, take_over=False), self._snapshot)

    def _driver(
        self,
        policy: Policy | None,
        settings: CompactionSettings | None,
        *,
        take_over: bool,
        lease_seconds: float = LEASE_SECONDS,
    ) -> Driver:
        return Driver(
            self._log,
            DriverSettings(
                policy=policy or Policy(),
                compaction=settings or CompactionSettings(),
                gives_up=True,
                lease_seconds=lease_seconds,
                takes_over=take_over,
            ),
        )

    @checked
    def release(self, fragments: Iterable[str] | None = None) -> tuple[str, ...]:
        """Releases fragments from quarantine, so that compactions try them again, in one commit.

        fragments: their keys, as in `fragments()`, or short ids; None means all.
        Returns the released keys. Restore a damaged fragment from a backup first. Raises `UsageError` for a
        fragment that is not in quarantine.
        """
        released = release(self._log, None if fragments is None else tuple(fragments))
        self._snapshot = self._log.latest
        return released

    @checked
    def quarantine(self, fragments: Iterable[str]) -> tuple[str, ...]:
        """Quarantines fragments that are damaged or gone, in one commit, and moves to the new version.

        Then `scan` and `delete` can skip them. Compactions quarantine the damaged fragments among their
        inputs.
        fragments: their keys, as in `fragments()`, or short ids; each is read and checked first.
        Returns the keys of those that were not quarantined yet. Raises `UsageError` for an intact or unknown
        fragment, and `StoreError` if one cannot be checked.
        """
        held = quarantine(self._log, tuple(fragments))
        self._snapshot = self._log.latest
        return held

    @checked
    def drop_fragment(self, fragment: str, *, lose_rows: bool = False) -> DropReport:
        """Drops a fragment that is in quarantine, damaged or gone, in one commit; moves to the new version.

        Earlier versions keep it until they are vacuumed. If rows of one key are merged, older rows of its
        keys may reappear.
        lose_rows: must be True; otherwise the error says how many rows would be lost.
        Raises `UsageError` for an unknown fragment, or an intact one that is not in quarantine.
        """
        report = drop_fragment(self._log, fragment, lose_rows=lose_rows)
        self._snapshot = self._log.latest
        return report

    @checked
    def publish(
        self,
        destination: str | PathLike[str],
        kind: LakeKind | Literal["parquet", "delta", "iceberg"],
        *,
        catalog: str | None = None,
        name: str | None = None,
        min_level: NonNegativeInt = 0,
        threads: Threads | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> PublishReport:
        """Keeps a copy of the newest version up to date that other engines read, as `compactor publish` does.

        destination: a folder or address of the copy's own; what has not changed since the last call stays.
        kind: a folder of Parquet files, a Delta table or an Iceberg table.
        catalog, name: the Iceberg catalog of pyiceberg's configuration (default: `catalog.db` in the
        destination), and the name of the table in it.
        min_level: leaves fragments of lower levels out.
        threads: how many read the table; as many as there are cores by default.
        on_progress: called with the number of rows written so far.
        Raises `UsageError` for a destination that holds something else or overlaps the table, or without the
        package for this kind; `InputError` for a column or value that has no place there;
        `CommitConflictError` if other publishers keep winning.
        """
        # Imported here, since it needs PyArrow's Parquet.
        from compactor.lakes.open import open_publisher

        publisher = open_publisher(
            CommitLog(self._store),
            fspath(destination),
            LakeKind(kind),
            catalog=catalog,
            name=name,
            min_level=min_level,
            threads=threads or usable_cores(),
            on_progress=_without_total(on_progress),
        )
        return publisher.publish()

    @checked
    def vacuum(
        self,
        *,
        grace_seconds: NonNegativeFloat | None = None,
        retain_seconds: NonNegativeFloat | None = None,
        dry_run: bool = False,
        allow_shrinking: bool = False,
    ) -> VacuumReport:
        """Removes objects that no version of the last `retain_seconds` needs. Safe beside all other work.

        grace_seconds: uncommitted attempts that began longer ago count as dead. None means the table's
        property of this name, a day if it is not set; so does it for `retain_seconds`.
        dry_run: counts, and removes nothing.
        allow_shrinking: removes older versions even if the newer ones have lost most of their rows.
        Raises `TableError` for such a loss without `allow_shrinking` and `DataError` for a damaged log, both
        before anything is removed. After a `StoreError`, the next vacuum removes the rest.
        """
        self._log.current()
        told: dict[str, Any] = {
            "grace_seconds": grace_seconds,
            "retain_seconds": retain_seconds,
            "dry_run": dry_run,
            "allow_shrinking": allow_shrinking,
        }
        settings = VacuumSettings(
            **{name: value for name, value in told.items() if value is not None}
        )
        report = vacuum(self._log, settings)
        self.refresh()
        return report
