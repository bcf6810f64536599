"""Reads a table as a stream: the rows of one version first, then what each later version changed.

One reader lives in a process of Spark's driver as long as the query, and plans batches. Another is pickled to
the tasks, which read what a partition describes: the two share nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from compactor.common.clock import SystemClock
from compactor.errors import UsageError
from compactor.files.source import sliced
from compactor.predicate.tree import Predicate
from compactor.read.change_plan import Change, VersionChange, planned_changes
from compactor.read.change_tasks import tasks_of_changes
from compactor.read.changes import (
    CHANGE,
    VERSION,
    changed_rows,
    changes_schema,
    check_since,
    first_of,
    stored_names,
    with_kinds,
)
from compactor.read.read_reports import ScanReport
from compactor.read.scan_pieces import of_fragments
from compactor.read.scan_tasks import Part, read_parts, tasks_of
from compactor.spark.source.offsets import BEGINNING, Offset
from compactor.spark.source.read import BATCH_BYTES
from compactor.spark.source.source_options import ReadOptions
from compactor.spark.source.stream_plan import appended_rows, end_of, parts_of, taken
from compactor.spark.source.types import as_spark, check_streamed
from compactor.spark.source.versions_ahead import VersionsAhead
from compactor.spark.workers import freeze_worker, task_cores
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from compactor.table.tags import named_in
from compactor.table.version import Operation, Version
from compactor.write.tags import set_tag


class StreamTask(Struct, frozen=True, kw_only=True):
    """What one task reads."""

    table: TableMetadata
    """In whose schema rows are read: that of the newest version."""
    where: Predicate | None
    version: int = 0
    """The version whose rows `parts` has."""
    parts: tuple[Part, ...] = ()
    changes: tuple[VersionChange, ...] = ()


class FragmentsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of one query. Pickled without the log."""

    def __init__(
        self, url: str, options: ReadOptions, schema: StructType, known: Sequence[str]
    ) -> None:
        """schema: of the stream. known: the columns that the table had when the stream was loaded."""
        store = open_store(url)
        self._url = store.url
        self._options = options
        self._schema = schema
        added = (CHANGE, VERSION) if options.changes else ()
        self._names = [name for name in schema.fieldNames() if name not in added]
        self._reads_all = options.columns is None and set(known).issubset(self._names)
        self._log = CommitLog(store)
        self._ahead = VersionsAhead(self._log)
        self._last: int | None = None
        """The last version to read; None for all that come."""
        self._planned: tuple[int, int, tuple[VersionChange, ...]] | None = None
        """The changes of the next batch, after which version and until which."""
        self._first: tuple[Snapshot, list[tuple[FragmentEntry, ...]]] | None = None
        """The version whose rows come first, and its parts."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_log": None, "_ahead": None, "_planned": None, "_first": None}

    # --- offsets, in a process of the driver ---

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return BEGINNING

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Makes the newest version the last one that is read."""
        self._last = self._log.current().version

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Returns how far the next batch reads; `start` if there is nothing to read.

        Raises `UsageError` if the table's columns are no longer those of the stream, or at a version that
        cannot be read; `VersionNotFoundError` if a vacuum has taken what is to be read.
        """
        newest = self._log.current()
        table = self._checked(newest)
        last = newest.version if self._last is None else self._last
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if start == BEGINNING:
            return self._begin(newest, last, max_bytes).stored()
        at = Offset.parsed(start)
        at.check(newest, self._url)
        check_since(self._log, at.version, newest)
        if self._options.reader is not None and newest.tag(self._options.reader) is None:
            self._keep(at.version)
        if at.parts is not None:
            return self._next_parts(at, max_bytes).stored()
        end = self._end_of_batch(table, at.version, last, max_bytes)
        return start if end == at.version else Offset(table=at.table, version=end).stored()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Returns the partitions of a batch, one per task: the same rows whenever it is planned.

        Raises what `latestOffset` raises.
        """
        if start == end:
            return []
        until, newest = Offset.parsed(end), self._log.current()
        until.check(newest, self._url)
        table = self._checked(newest)
        task = StreamTask(table=table, where=self._condition(table))
        if until.since is None and (start == BEGINNING or "parts" in start):
            tasks = self._tasks_of_parts(task, start.get("parts", 0), until)
        else:
            first = until.since if start == BEGINNING else Offset.parsed(start).version
            assert first is not None, "the first offset says where changes begin"
            check_since(self._log, first, newest)
            tasks = self._tasks_of_changes(task, first, until.version)
        return [InputPartition(task) for task in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Moves the reader's tag forward, so that vacuums may take what is before it.

        Raises `StoreError`, `CommitConflictError`.
        """
        if self._options.reader is None:
            return
        version = Offset.parsed(end).version
        tag = self._log.current().tag(self._options.reader)
        if tag is None or tag.version < version:
            self._keep(version)

    def _begin(self, newest: Snapshot, last: int, max_bytes: int | None) -> Offset:
        """Returns the end of the first batch."""
        named = self._options.since
        if named is None:
            self._keep(last)
            return self._next_parts(Offset(table=newest.table_id, version=last, parts=0), max_bytes)
        try:
            place = named_in(named, {tag.name for tag in newest.tags}, SystemClock())
        except ValueError as error:
            raise UsageError(f"fragments: since: {error}") from None
        first = first_of(self._log, place).version
        self._keep(first)
        last = max(first, last)
        end = self._end_of_batch(self._checked(newest), first, last, max_bytes)
        return Offset(table=newest.table_id, version=end, since=first)

    def _keep(self, version: int) -> None:
        """Makes vacuums keep what is after a version, if the query has the name of a reader."""
        if self._options.reader is not None:
            # Version 0 has no log file; its successor keeps the same.
            kept = self._log.named(max(1, version))
            set_tag(self._log, self._options.reader, kept, move=True, keeps_later=True)

    def _next_parts(self, at: Offset, max_bytes: int | None) -> Offset:
        """Returns the end of a batch of the first snapshot."""
        _, parts = self._first_rows(at.version)
        return replace(at, parts=end_of(parts, at.parts or 0, max_bytes))

    def _first_rows(self, version: int) -> tuple[Snapshot, list[tuple[FragmentEntry, ...]]]:
        if self._first is None or self._first[0].version != version:
            snapshot = self._log.at(version)
            self._first = snapshot, parts_of(snapshot)
        return self._first

    def _end_of_batch(
        self, table: TableMetadata, first: int, last: int, max_bytes: int | None
    ) -> int:
        """Plans a batch of changes after version `first`, and returns its last version.

        It is `first` if nothing happened but that tags moved: else the move of a reader's tag, which is a
        version, would be a reason for the next batch.
        """
        self._first = None
        reach = self._ahead.reach(first, last)
        since, versions = self._ahead.after(first, reach)
        planned = self._changes(since, versions, table)
        changes, is_all = taken(planned, max_bytes)
        if not changes and all(v.changes.operation is Operation.TAG for v in versions):
            return first if reach == last else reach
        end = reach if is_all else changes[-1].version
        self._planned = first, end, changes
        return end

    def _changes(
        self, since: Snapshot, versions: Sequence[Version], table: TableMetadata
    ) -> Iterator[VersionChange]:
        asked = stored_names(table, self._names, self._condition(table))
        if self._options.changes:
            return planned_changes(since, versions, table, asked)
        skips = self._options.skip_change_commits
        return appended_rows(since, versions, table, asked, skips_others=skips, url=self._url)

    def _condition(self, table: TableMetadata) -> Predicate | None:
        where = self._options.where
        return None if where is None else condition_on(table, where)

    def _tasks_of_changes(self, task: StreamTask, first: int, until: int) -> list[StreamTask]:
        if self._planned is None or self._planned[:2] != (first, until):
            planned = self._changes(*self._ahead.after(first, until), task.table)
            self._planned = first, until, tuple(planned)
        changes = tasks_of_changes(self._planned[2], task.table, self._options.task_bytes)
        return [replace(task, changes=part) for part in changes]

    def _tasks_of_parts(self, task: StreamTask, start: int, until: Offset) -> list[StreamTask]:
        snapshot, parts = self._first_rows(until.version)
        entries = [entry for part in parts[start : until.parts] for entry in part]
        some = replace(of_fragments(snapshot, entries), metadata=task.table)
        found = tasks_of(
            some, task.where, self._options.task_bytes, ScanReport(), columns=self._names
        )
        return [replace(task, version=until.version, parts=part) for part in found]

    def _checked(self, newest: Snapshot) -> TableMetadata:
        """Returns the newest metadata if the stream has its columns. Raises `UsageError`."""
        table = newest.table
        if table.rows.merges and not self._options.changes:
            raise UsageError(
                f"{self._url}: row policy {table.rows.kind} merges rows of one key, so new rows replace "
                "others: read all changes by option changes=true"
            )
        place = f"{self._url}: version {newest.version}"
        check_streamed(self._schema, self._names, table.shown_schema, place, is_all=self._reads_all)
        return table

    # --- rows, in tasks ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a partition, unordered.

        Raises `DataError`, `FormatError`, `StoreError`.
        """
        freeze_worker()
        schema = to_arrow_schema(self._schema, timezone="UTC")
        cuts = self._options.nanoseconds == "cut"
        for batch in self._rows(partition.value):
            converted = as_spark(
                batch.select(schema.names), schema, self._url, cuts_nanoseconds=cuts
            )
            yield from sliced(converted, BATCH_BYTES)

    def _rows(self, task: StreamTask) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a task with the columns of the stream, in any order."""
        store, threads, report = open_store(self._url), task_cores(), ScanReport()
        shown = changes_schema(task.table, self._names) if self._options.changes else None
        for batch in read_parts(
            store, task.table, task.parts, self._names, task.where, report, threads=threads
        ):
            kinds = pa.repeat(str(Change.INSERT), batch.num_rows)
            yield batch if shown is None else with_kinds(batch, kinds, task.version, shown)
        for change in task.changes:
            for kinds, batch in changed_rows(
                store, task.table, change, self._names, task.where, report, threads=threads
            ):
                yield batch if shown is None else with_kinds(batch, kinds, change.version, shown)
