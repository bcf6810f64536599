"""Writes for the Spark data source: tasks write fragments, Spark's driver commits all of them at once.

Nothing is visible before the commit, so failed, retried and speculative tasks leave at worst garbage, which a
vacuum removes. A task with few rows writes no fragment: it sends them to the commit, which writes one
fragment for adjacent tasks. An abort removes nothing: if the answer to a commit was lost, it would remove the
table's rows.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from compactor.common.clock import random_id
from compactor.common.ipc import READING, writing
from compactor.errors import (
    CompactorError,
    InputError,
    TableNotFoundError,
    UsageError,
)
from compactor.files.source import FileBatches
from compactor.spark.source.batches import Batch, is_taken, with_batch
from compactor.spark.source.origin import origins_of
from compactor.spark.source.source_options import CallOptions, named_as_options
from compactor.spark.source.stale import Base, Staleness, base_now, check_unchanged
from compactor.spark.source.types import check_written, from_spark, in_types_of
from compactor.spark.workers import freeze_worker
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.write.back_pressure import BackPressure
from compactor.write.ingest import IngestPlan, commit_fragments, plan_ingest, write_fragments
from lsm_fragment.arrays.canonical import canonical
from lsm_fragment.arrays.validity import check_whole
from lsm_fragment.value_errors import first_line

_BATCH_BYTES: Final = 8 << 20
_SENT_BYTES: Final = 16 << 10
"""Maximum rows that a task sends to the commit, in bytes: 160 MB for 10,000 tasks."""
_QUERY_ID: Final = "sql.streaming.queryId"
"""Local property of a stream's tasks: a query id that the checkpoint stores, so it survives restarts."""
_CORRECTED_BY_USERS: Final = (InputError, UsageError)


class WritePlan(Struct, frozen=True, kw_only=True):
    """The plan of tasks and commit. Picklable."""

    url: str
    schema: pa.Schema
    """Schema of the rows written."""
    ingest: IngestPlan
    overwrites: bool
    base: Base
    """Base of an overwrite, which must not revert later commits."""
    batch: Batch | None
    """Batch that a batch job writes, which makes retries of the job harmless."""
    app_id: str | None
    """Application id of a stream; None for its query id."""


@dataclass(frozen=True)
class WrittenFragments(WriterCommitMessage):
    """A task's message to the commit."""

    entries: tuple[FragmentEntry, ...] = ()
    """Fragments in row order."""
    rows: bytes | None = None
    """A few rows instead of a fragment: an Arrow stream in Spark's types."""
    error: CompactorError | None = None
    """A user error; raised, Spark would retry it."""
    plan: WritePlan | None = None
    """The plan used; sent by at least one task."""
    query_id: str | None = None


class _AlreadyTakenError(Exception):
    """The table already contains the batch."""


def plan_write(
    call: CallOptions, schema: StructType, overwrites: bool, *, is_stream: bool = False
) -> WritePlan:
    """Plans a write of rows of this schema.

    Raises `CommitConflictError` for an overwrite whose base has changed, and for columns that were dropped or
    redacted; and the errors of `compactor.write.ingest.plan_ingest`.
    """
    options = call.write()
    if options.base_version is not None and (is_stream or not overwrites):
        raise UsageError("fragments: base_version: goes with mode overwrite of a batch job only")
    store = open_store(call.path)
    log = CommitLog(store)
    snapshot = log.refresh()
    if snapshot.metadata is None and options.sort_by is None:
        raise TableNotFoundError(
            f"{store.url}: no table here yet: name its sort schema to create it, as in "
            '.option("sort_by", "service,timestamp:desc")'
        )
    known = None if snapshot.metadata is None else snapshot.metadata.shown_schema
    _check_case(known, schema, store.url)
    check_written(schema, _rows_for(store.url))
    arrow = in_types_of(known, schema, _arrow_schema(schema))
    with named_as_options():
        plan = plan_ingest(log, snapshot, arrow, _rows_for(store.url), options.sort, options.ingest)
    batch = None
    if options.app_id is not None and options.batch_id is not None:
        batch = Batch(options.app_id, options.batch_id)
    staleness = Staleness(log, snapshot, origins_of(schema))
    base = base_now(snapshot)
    if overwrites and not is_stream:
        base = staleness.base(options.base_version)
    if batch is None or not is_taken(batch, snapshot.metadata, store.url):
        if overwrites:
            check_unchanged(log, base, snapshot)
        staleness.check_columns()
    return WritePlan(
        url=store.url,
        schema=arrow,
        ingest=plan,
        overwrites=overwrites,
        base=base,
        batch=batch,
        app_id=options.app_id,
    )


def _check_case(known: pa.Schema | None, schema: StructType, url: str) -> None:
    """Raises `InputError` for a new column that differs from an existing one only by case."""
    names = {} if known is None else {name.casefold(): name for name in known.names}
    for name in schema.fieldNames():
        other = names.get(name.casefold(), name)
        if other != name and known is not None and name not in known.names:
            raise InputError(
                f"{_rows_for(url)}: column {name!r} differs from the table's {other!r} only by case, which "
                "Spark ignores: rename it"
            )


def wait_for_compactions(plan: WritePlan) -> None:
    """Holds a write back while compactions lag behind, as an ingest. Raises `BackPressureError`.

    An overwrite leaves nothing to compact.
    """
    if not plan.overwrites:
        with named_as_options():
            BackPressure(plan.ingest.options.told).admit(CommitLog(open_store(plan.url)))


def write_rows(plan: WritePlan, rows: Iterator[pa.RecordBatch]) -> WrittenFragments:
    """Runs one attempt of a task; its fragments get unique names."""
    freeze_worker()
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
    is_first = context is None or context.partitionId() == 0
    said = WrittenFragments(plan=plan if is_first else None, query_id=query_id)
    try:
        few, rows = _few(rows)
        if few is not None:
            return dataclasses.replace(said, rows=few)
        return dataclasses.replace(said, entries=_write(plan, rows))
    except _CORRECTED_BY_USERS as error:
        return dataclasses.replace(said, error=error)


def _write(plan: WritePlan, rows: Iterator[pa.RecordBatch]) -> tuple[FragmentEntry, ...]:
    batches = _TaskRows(rows, plan.schema, plan.url)
    return tuple(write_fragments(open_store(plan.url), plan.ingest, batches, random_id()).entries)


def _few(rows: Iterator[pa.RecordBatch]) -> tuple[bytes | None, Iterator[pa.RecordBatch]]:
    """Returns the rows as an Arrow stream if they are few, else None; and an iterator over all rows."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size > _SENT_BYTES:
            return None, itertools.chain(held, rows)
    if not any(batch.num_rows for batch in held):
        return None, iter(())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, held[0].schema, options=writing()) as stream:
        for batch in held:
            stream.write_batch(batch)
    return sink.getvalue().to_pybytes(), iter(held)


def _entries(plan: WritePlan, written: Sequence[WrittenFragments]) -> Iterator[FragmentEntry]:
    """Yields the fragments of all tasks in row order, writing rows sent by tasks."""
    nonempty = [message for message in written if message.entries or message.rows is not None]
    for is_sent, messages in itertools.groupby(nonempty, lambda message: message.rows is not None):
        if is_sent:
            streams = (pa.ipc.open_stream(message.rows, options=READING) for message in messages)
            yield from _write(plan, itertools.chain.from_iterable(streams))
        else:
            yield from (entry for message in messages for entry in message.entries)


def commit_rows(
    plan: WritePlan, messages: Sequence[WriterCommitMessage | None], batch: Batch | None
) -> Snapshot | None:
    """Commits all fragments as one version; returns None if the table already contains the batch.

    Raises the first user error of a task, `CommitConflictError` if others changed rows during an overwrite,
    and the errors of `compactor.write.ingest.commit_fragments`.
    """
    written = [message for message in messages if isinstance(message, WrittenFragments)]
    for error in (message.error for message in written if message.error is not None):
        raise error
    log = CommitLog(open_store(plan.url))
    latest = log.refresh()
    if batch is not None and is_taken(batch, latest.metadata, plan.url):
        return None
    entries = list(_entries(plan, written))
    planned_on = Snapshot.empty() if plan.ingest.base_version == 0 else latest

    def amend(latest: Snapshot, changes: Changes) -> Changes:
        if batch is not None and is_taken(batch, latest.metadata, plan.url):
            raise _AlreadyTakenError
        if plan.overwrites:
            check_unchanged(log, plan.base, latest)
            changes = replace(
                changes,
                operation=Operation.OVERWRITE,
                removes=tuple(e.key for e in latest.fragments.all()),
            )
        if batch is not None:
            metadata = with_batch(changes.metadata or latest.table, batch, plan.url)
            changes = replace(changes, metadata=metadata)
        return changes

    try:
        with named_as_options():
            return commit_fragments(log, planned_on, plan.ingest, entries, amend=amend)
    except _AlreadyTakenError:
        return None


class BatchWriter(DataSourceArrowWriter):
    """The writer of a batch job. Picklable: Spark sends it to tasks and to the committing process."""

    def __init__(self, call: CallOptions, schema: StructType, overwrites: bool) -> None:
        self._plan = plan_write(call, schema, overwrites)
        if self._plan.app_id is not None and self._plan.batch is None:
            raise UsageError("fragments: app_id: also number the batch by option batch_id")
        # Spark makes one writer of a batch job, before its tasks.
        wait_for_compactions(self._plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFragments:
        """Writes the rows of one task. Raises `StoreError`, `FormatError`."""
        return write_rows(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commits the fragments of all tasks. Raises as `commit_rows`."""
        commit_rows(self._plan, messages, self._plan.batch)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a stream. Spark creates one per batch, and another to commit it."""

    def __init__(self, call: CallOptions, schema: StructType, overwrites: bool) -> None:
        self._plan = plan_write(call, schema, overwrites, is_stream=True)
        if self._plan.batch is not None:
            raise UsageError("fragments: batch_id: a stream numbers its batches itself")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFragments:
        """Writes the rows of one task. Raises `StoreError`, `FormatError`."""
        return write_rows(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commits a batch, unless it is already committed and Spark lost track of that.

        Raises as `commit_rows`.
        """
        said = [message for message in messages if isinstance(message, WrittenFragments)]
        if not said:
            return
        # Use the tasks' plan: the table may have changed since.
        plan = next((message.plan for message in said if message.plan is not None), self._plan)
        app_id = plan.app_id or said[0].query_id
        if app_id is None:
            raise UsageError(
                "fragments: Spark does not tell which query this is: set option app_id, and never change it"
            )
        # Not before the tasks: Spark makes two writers of each batch, and does not tell them apart.
        wait_for_compactions(plan)
        commit_rows(plan, messages, Batch(app_id, batchId))


class _TaskRows(FileBatches):
    """The rows of a task, as a file."""

    is_checked = True

    def __init__(self, rows: Iterator[pa.RecordBatch], schema: pa.Schema, url: str) -> None:
        self.path = _rows_for(url)
        self.schema = schema
        self._batch_bytes = _BATCH_BYTES
        self._rows = rows

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for sent in self._rows:
            batch = canonical(sent, check_whole)
            pairs = zip(batch.columns, self.schema, strict=True)
            columns = [self._column(column, field) for column, field in pairs]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, column: pa.Array, field: pa.Field) -> pa.Array:
        try:
            return from_spark(column, field.type)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"{self.path}: column {field.name!r} of type {column.type} cannot become the table's "
                f"{field.type}: {first_line(error)}"
            ) from error


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the Arrow schema without Spark's own column metadata."""
    fields = to_arrow_schema(schema, timezone="UTC")
    return pa.schema([pa.field(field.name, field.type) for field in fields])


def _rows_for(url: str) -> str:
    """Returns the subject of errors, in place of a path."""
    return f"rows for {url}"
