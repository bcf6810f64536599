"""Runs one task of a Spark stage: passes the root's rows through the nodes after it, up to where they leave
the stage. The nodes are those of a local run, under the task's own memory limit.

Rows leave as packets to other stages, as a part in the staging store for a file, or as fragments for a table,
which Spark's driver commits. So retried and speculative attempts change nothing visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct, field

from compactor.common.clock import random_id
from compactor.common.conversion import convertible
from compactor.common.plain_values import plain_dict
from compactor.pipelines.batch_size import BatchSize
from compactor.pipelines.binding import fitted
from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.config import Aggregate, Combine, Merge, Output, Pipeline, Source
from compactor.pipelines.database import GIVEN, Database, Rows, database_stage
from compactor.pipelines.dead_letters import BadRecordError, DeadLetters
from compactor.pipelines.nodes import aggregate, source
from compactor.pipelines.nodes.output import written_schema
from compactor.pipelines.nodes.table_output import TableRows
from compactor.pipelines.pieces import SourcePart
from compactor.pipelines.provenance import ROW, Batches, full_schema
from compactor.pipelines.stages import Feed, SparkStage
from compactor.pipelines.task_rows import PathRows, rows_of_root
from compactor.pipelines.work import RunContext
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.stage import StagePlan
from compactor.spark.shuffle.task import (
    PLACE_BITS,
    SampledKeys,
    TaskInput,
    TaskOutput,
    TaskRows,
    TaskSummary,
)
from compactor.stores.open import open_store
from compactor.stores.parts import LazyPart
from compactor.write.ingest import IngestPlan, write_fragments
from lsm_fragment import compute as pc
from lsm_fragment.keys.sort_schema import SortSchema

_ORIGIN: Final = full_schema(pa.schema([]), has_groups=False)


class StageSpec(Struct, frozen=True, kw_only=True):
    """Input of every task of a stage. Picklable."""

    pipeline: Pipeline
    stage: SparkStage
    schemas: Mapping[str, pa.Schema]
    """Schemas by edge, without the hidden columns."""
    file_schemas: Mapping[str, pa.Schema]
    """Source schemas, as read."""
    sorts: Mapping[int, SortSchema]
    """Sort schemas of range-shuffled feeds, whose keys are sampled."""
    tables: Mapping[str, tuple[str, IngestPlan]]
    """Address and ingest plan of each output table."""
    counted: frozenset[str]
    """Outputs that a row may reach by several paths: their distinct rows are counted later."""
    staging: str | None
    """Address of the store for file parts; None if no task writes any."""
    run_id: str


class WrittenRows(Struct):
    """What a task wrote for an output, from one feed."""

    rows: int = 0
    """0 if counted later."""
    part: str | None = None
    """Key of the part, for a file."""
    entries: list[dict[str, Any]] = field(default_factory=list)
    """Entries of the written fragments, as JSON."""


@convertible
class StageTaskReport(Struct, kw_only=True):
    """The figures of a task."""

    root: str
    root_rows: int = 0
    """Rows that the root emitted."""
    written: dict[str, WrittenRows] = field(default_factory=dict)
    """By feed number."""
    records_read: int = 0
    records_without_time: int = 0
    dlq_count: int = 0
    dead_letters: str | None = None
    """Key of the dead-letter part; None if there is none."""
    spills: int = 0
    peak_bytes: int = 0
    node_seconds: dict[str, float] = field(default_factory=dict)
    bad_record: dict[str, Any] | None = None
    """`source`, `row`, `node` and `reason` of the bad record that ended the task."""


def run_piece(spec: StageSpec, task: int, piece: SourcePart) -> TaskOutput:
    """Runs a task of the source stage."""

    def root_rows(work: RunContext) -> Batches:
        schema = spec.file_schemas[piece.node]
        # Spark gives each task a core.
        reader = piece.open(schema, work.reading._replace(threads=1))
        yield from source.rows(work, piece.node, reader)

    return _Task(spec, task, piece.node).output(root_rows)


def run_part(spec: StageSpec, task: int, given: TaskInput) -> TaskOutput:
    """Runs a task of a later stage on its part of the shuffled rows."""
    [root] = spec.stage.roots
    return _Task(spec, task, root).output(lambda work: rows_of_root(work, root, spec.stage, given))


class _Task:
    def __init__(self, spec: StageSpec, task: int, root: str) -> None:
        self._spec = spec
        self._task = task
        self._root = root
        self._feeds = [feed for feed in spec.stage.gives if feed.root == root]
        self._report = StageTaskReport(root=root)
        self._first_row = task << PLACE_BITS
        """Number of the task's row 0 among all tasks' rows."""

    def output(self, root_rows: Callable[[RunContext], Batches]) -> TaskOutput:
        work = RunContext(self._spec.pipeline, _nothing_given)
        work.schemas = dict(self._spec.schemas)
        report = self._report
        try:
            with ExitStack() as stack:
                stack.enter_context(work.opened())
                is_tolerant = self._spec.pipeline.on_error == "continue"
                letters = self._part(stack) if is_tolerant else None
                work.dead_letters = DeadLetters(
                    list(work.nodes), work.report, letters, first_row=self._first_row
                )
                rows = work.clock.timed(self._root, self._numbered(root_rows(work)))
                paths = PathRows(work, rows, [feed.path for feed in self._feeds])
                for feed in self._feeds:
                    yield from self._leaving(work, feed, paths.stream(feed.path))
                report.dead_letters = None if letters is None else letters.key
        except BadRecordError as bad:
            report.bad_record = {n: getattr(bad, n) for n in ("source", "row", "node", "reason")}
        report.records_read = sum(work.report.records_read.values())
        report.records_without_time = sum(work.report.records_without_time.values())
        report.dlq_count = work.report.dlq_count
        report.spills = work.report.spills
        report.peak_bytes = work.budget.peak_bytes
        report.node_seconds = work.clock.seconds
        yield TaskSummary(plain_dict(report), has_failed=report.bad_record is not None)

    def _part(self, stack: ExitStack) -> LazyPart:
        assert self._spec.staging is not None
        prefix = f"{self._spec.run_id}/{self._task:07d}"
        return LazyPart(open_store(self._spec.staging), prefix, stack)

    def _numbered(self, rows: Batches) -> Batches:
        """Adds the task number to the row numbers, which start at 0 in each task.

        Drops document boundaries: Spark's driver derives the documents from the graph.
        """
        counts = isinstance(self._spec.pipeline.nodes[self._root], (Source, Aggregate, Combine))
        for batch in rows:
            if not batch.num_rows:
                continue
            self._report.root_rows += batch.num_rows
            if counts:
                place = batch.schema.get_field_index(ROW)
                numbers = pc.add(batch.column(place), self._first_row)
                batch = batch.set_column(place, _ORIGIN.field(ROW), numbers)
            yield batch

    # --- rows leaving the stage ---

    def _leaving(self, work: RunContext, feed: Feed, rows: Batches) -> TaskOutput:
        consumer = work.nodes[feed.consumer]
        if isinstance(consumer, Output):
            yield from self._written(work, feed, consumer, rows)
            return
        schema = work.schemas[feed.consumer if isinstance(consumer, Merge) else feed.path[-1]]
        if isinstance(consumer, Aggregate):
            schema = aggregate.needed_columns(consumer, schema)
        sort = self._spec.sorts.get(feed.number)
        for batch in rows:
            aligned = fitted(batch, work.full(schema))
            yield TaskRows(aligned, feed.number)
            if sort is not None:
                yield SampledKeys(aligned, sort, feed.number)

    def _written(self, work: RunContext, feed: Feed, node: Output, rows: Batches) -> TaskOutput:
        written = self._report.written[str(feed.number)] = WrittenRows()
        schema = written_schema(node, work.schemas[node.input])
        came = BatchBuffer(_ORIGIN, work.budget, feed.consumer, work.disk)
        counted = feed.consumer in self._spec.counted

        def shown() -> Batches:
            for batch in rows:
                if batch.num_rows:
                    if counted:
                        came.append(batch.select(_ORIGIN.names))
                        came.spill(batch.nbytes)
                    else:
                        written.rows += batch.num_rows
                    yield fitted(batch, schema)

        with closing(came):
            with work.clock.on(feed.consumer):
                if feed.consumer in self._spec.tables:
                    url, plan = self._spec.tables[feed.consumer]
                    file = TableRows(feed.consumer, schema, shown())
                    fragments = write_fragments(open_store(url), plan, file, random_id())
                    written.entries = [entry.to_json() for entry in fragments.entries]
                else:
                    with ExitStack() as stack:
                        part = self._part(stack)
                        for batch in shown():
                            part.write(batch)
                    written.part = part.key
            if counted:
                for batch in came.drain():
                    yield TaskRows(batch, feed.number)


def distinct_rows(given: TaskInput, limit_bytes: int) -> int:
    """Counts distinct source rows by their hidden columns, in bounded memory."""
    budget = MemoryBudget(StagePlan(limit_bytes, 0, (database_stage(limit_bytes),)))
    columns = ", ".join(f'"{name}"' for name in _ORIGIN.names)
    rows = Rows(_ORIGIN, (batch for _, batch in given))
    sql = f"SELECT count(*) FROM (SELECT DISTINCT {columns} FROM {GIVEN})"
    with closing(LocalDisk()) as disk, closing(Database(budget, disk)) as database:
        [found] = database.query("rows", sql, rows, BatchSize(1, 1))
        return int(found.column(0)[0].as_py())


def _nothing_given(edge: str) -> Batches:
    raise AssertionError(edge)
