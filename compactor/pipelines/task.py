"""One task of a Spark stage: the rows of its root, through the nodes after it, to where they leave the stage.
Nodes are those of a run in one process, under a memory limit of the task's own.

Rows leave in **packets**: to other stages as bytes, with what restores their order; to a file as a part in
the staging place; to a table as fragments, which the driver commits. So an attempt that Spark retries or
doubles changes nothing that anybody sees. What the user is to correct is told in the last packet, the report:
Spark would try again what it takes for a failure.
"""

from __future__ import annotations

import copy
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compactor.common.clock import random_id
from compactor.errors import DataError, InputError, UsageError, message_of
from compactor.files.source import sliced
from compactor.pipelines.aggregating import Grouper
from compactor.pipelines.binding import fitted
from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.config import (
    Aggregate,
    Combine,
    Merge,
    MergeMode,
    Output,
    Pipeline,
    Route,
    Source,
    Transform,
    inputs_of,
)
from compactor.pipelines.dead_letters import SCHEMA as DEAD_LETTERS
from compactor.pipelines.dead_letters import BadRecordError, DeadLetters
from compactor.pipelines.nodes import aggregate, route, source
from compactor.pipelines.nodes.output import TableRows, written_schema
from compactor.pipelines.nodes.rows import rows_of
from compactor.pipelines.pieces import SourcePart
from compactor.pipelines.provenance import ROW, Batches, full_schema
from compactor.pipelines.stages import EdgePath, Feed, SparkStage
from compactor.pipelines.work import RunContext
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.errors import MemoryLimitError
from compactor.resources.stage import Buffer, MemoryStage, StagePlan
from compactor.settings.names import in_pipeline
from compactor.spark.shuffle.exchange import KeySample, packet_bytes, to_bytes
from compactor.spark.shuffle.packets import REPORT, ROWS, SAMPLE, Packet
from compactor.stores.open import open_store
from compactor.stores.parts import BatchSink, writing_part
from compactor.write.ingest import IngestPlan, write_fragments
from format.errors import FormatError
from format.schema import SortSchema

_Numbers = TypeVar("_Numbers", int, npt.NDArray[np.int64])
_ORIGIN: Final = full_schema(pa.schema([]), has_groups=False)
_ROW_BITS: Final = 40
"""Of a row's number, those that count within its task; above them is the task's."""
_CORRECTED_BY_USERS: Final = (UsageError, InputError, DataError, MemoryLimitError, FormatError)

TaskInput = Iterator[tuple[int, pa.RecordBatch]]
"""Batches that other stages gave, each with its place in the `takes` of the stage, in that order."""


@dataclass(frozen=True, slots=True)
class StageSpec:
    """What every task of a stage is told. Picklable."""

    pipeline: Pipeline
    stage: SparkStage
    schemas: Mapping[str, pa.Schema]
    """Of edges, without the hidden columns."""
    file_schemas: Mapping[str, pa.Schema]
    """Of sources, as they are read."""
    sorts: Mapping[int, SortSchema]
    """Of feeds that go by ranges: keys are sampled."""
    tables: Mapping[str, tuple[str, IngestPlan]]
    """Of outputs: the address of the table, and what rows become there."""
    counted: frozenset[str]
    """Outputs that a row may reach on several ways: who has come is counted later."""
    staging: str | None
    """Address of a store for parts of files; None: no task writes any."""
    run_id: str


@dataclass(slots=True)
class FeedReport:
    rows: int = 0
    bytes: int = 0
    parts: list[str] = field(default_factory=list)
    """Keys in the staging place."""
    entries: list[dict[str, Any]] = field(default_factory=list)
    """Of fragments."""


@dataclass(slots=True)
class TaskReport:
    task: int
    root: str
    root_rows: int = 0
    """That the root gave."""
    feeds: dict[str, FeedReport] = field(default_factory=dict)
    """By the feed's number."""
    records_read: int = 0
    records_without_time: int = 0
    dlq_count: int = 0
    dead_letters: str | None = None
    """Key of the part with the dead letters."""
    spills: int = 0
    peak_bytes: int = 0
    stage_seconds: dict[str, float] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    """What ended the task: `kind` and `message`, or a bad record's `source`, `row`, `node` and `reason`."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskReport:
        value = json.loads(text)
        feeds = {number: FeedReport(**report) for number, report in value.pop("feeds").items()}
        return cls(**value, feeds=feeds)


def task_and_row(number: _Numbers) -> tuple[_Numbers, _Numbers]:
    """The task that gave a row its number, and which of its rows that is."""
    return number >> _ROW_BITS, number & ((1 << _ROW_BITS) - 1)


def run_piece(spec: StageSpec, task: int, piece: SourcePart) -> Iterator[Packet]:
    """A task of the stage of the sources."""
    leaves_out = spec.pipeline.on_error == "continue"

    def root_rows(work: RunContext) -> Batches:
        schema = spec.file_schemas[piece.node]
        yield from source.rows(work, piece.node, piece.open(schema, leaves_out_bad_rows=leaves_out))

    return _Task(spec, task, piece.node).packets(root_rows)


def run_part(spec: StageSpec, task: int, given: TaskInput) -> Iterator[Packet]:
    """A task of a stage with a shuffle before it: its part of the rows."""
    [root] = spec.stage.roots
    return _Task(spec, task, root).packets(lambda work: _root_rows(work, root, spec.stage, given))


class _Task:
    def __init__(self, spec: StageSpec, task: int, root: str) -> None:
        self._spec = spec
        self._root = root
        self._node = spec.pipeline.nodes[root]
        self._feeds = [feed for feed in spec.stage.gives if feed.root == root]
        self._report = TaskReport(
            task, root, feeds={str(f.number): FeedReport() for f in self._feeds}
        )
        self._first_row = task << _ROW_BITS
        """The number of its row 0 among those of all tasks."""
        self._place = self._first_row

    def packets(self, root_rows: Callable[[RunContext], Batches]) -> Iterator[Packet]:
        work = RunContext(self._spec.pipeline, _nothing_given)
        work.schemas = dict(self._spec.schemas)
        report = self._report
        try:
            with ExitStack() as stack:
                stack.enter_context(work.begun())
                work.dead_letters = self._dead_letters(work, stack)
                rows = work.clock.timed(self._root, self._numbered(root_rows(work)))
                tree = _Tree(work, rows, [feed.path for feed in self._feeds])
                for feed in self._feeds:
                    yield from self._given_on(work, feed, tree.stream(feed.path))
        except BadRecordError as bad:
            report.error = {n: getattr(bad, n) for n in ("source", "row", "node", "reason")}
        except _CORRECTED_BY_USERS as error:
            told = message_of(error).named(in_pipeline)
            report.error = {"kind": type(error).__name__, "message": str(told)}
        report.records_read = sum(work.report.records_read.values())
        report.records_without_time = sum(work.report.records_without_time.values())
        report.dlq_count = work.report.dlq_count
        report.spills = work.report.spills
        report.peak_bytes = work.budget.peak_bytes
        report.stage_seconds = work.clock.seconds
        yield self._packet(REPORT, -1, pa.py_buffer(report.to_json().encode()))

    def _packet(self, kind: int, feed: int, data: pa.Buffer) -> Packet:
        self._place += 1
        return Packet(kind, feed, self._place, data)

    def _dead_letters(self, work: RunContext, stack: ExitStack) -> DeadLetters:
        puts_aside = self._spec.pipeline.on_error == "continue"
        sink = _DeadLettersPart(self, stack) if puts_aside else None
        return DeadLetters(list(work.nodes), work.report, sink, first_row=self._first_row)

    def new_part(self, stack: ExitStack, schema: pa.Schema) -> tuple[str, BatchSink]:
        """Its key, and where to put its rows."""
        assert self._spec.staging is not None
        key = f"{self._spec.run_id}/{self._report.task:07d}-{random_id()}.arrow"
        return key, stack.enter_context(writing_part(open_store(self._spec.staging), key, schema))

    def with_letters(self, key: str) -> None:
        self._report.dead_letters = key

    def _numbered(self, rows: Batches) -> Batches:
        """Nodes count their rows from 0 in each task: with the task's number, no two are the same.

        Where documents end is left out: what they are, the driver knows by the graph.
        """
        counts = isinstance(self._node, (Source, Aggregate, Combine))
        for batch in rows:
            if not batch.num_rows:
                continue
            self._report.root_rows += batch.num_rows
            if counts:
                place = batch.schema.get_field_index(ROW)
                numbers = pc.add(batch.column(place), self._first_row)
                batch = batch.set_column(place, _ORIGIN.field(ROW), numbers)
            yield batch

    # --- rows that leave ---

    def _given_on(self, work: RunContext, feed: Feed, rows: Batches) -> Iterator[Packet]:
        taker = work.nodes[feed.taker]
        if isinstance(taker, Output):
            yield from self._written(work, feed, taker, rows)
            return
        schema = work.schemas[feed.taker if isinstance(taker, Merge) else feed.path[-1]]
        if isinstance(taker, Aggregate):
            schema = aggregate.needed_columns(taker, schema, f"node {feed.taker!r}")
        aligned = (fitted(batch, work.full(schema)) for batch in rows)
        yield from self._packets_of(feed, aligned)

    def _packets_of(self, feed: Feed, rows: Batches) -> Iterator[Packet]:
        report = self._report.feeds[str(feed.number)]
        sort_by = self._spec.sorts.get(feed.number)
        sample = None if sort_by is None else KeySample(sort_by)
        for batches in _joined(rows, packet_bytes(self._spec.pipeline.memory.limit)):
            for batch in batches:
                report.rows += batch.num_rows
                if sample is not None:
                    sample.add(batch)
            data = to_bytes(batches)
            report.bytes += data.size
            yield self._packet(ROWS, feed.number, data)
        if sample is not None and (keys := sample.keys()) is not None:
            yield self._packet(SAMPLE, feed.number, to_bytes([keys]))

    def _written(
        self, work: RunContext, feed: Feed, node: Output, rows: Batches
    ) -> Iterator[Packet]:
        report = self._report.feeds[str(feed.number)]
        schema = written_schema(node, work.schemas[node.input])
        came = BatchBuffer(_ORIGIN, work.budget, feed.taker, work.disk)
        counted = feed.taker in self._spec.counted

        def shown() -> Batches:
            for batch in rows:
                if batch.num_rows:
                    if counted:
                        came.append(batch.select(_ORIGIN.names))
                        came.spill(batch.nbytes)
                    else:
                        report.rows += batch.num_rows
                    yield fitted(batch, schema)

        with closing(came):
            with work.clock.on(feed.taker):
                if feed.taker in self._spec.tables:
                    url, plan = self._spec.tables[feed.taker]
                    file = TableRows(feed.taker, schema, shown())
                    written = write_fragments(open_store(url), plan, file, random_id())
                    report.entries = [entry.to_json() for entry in written.entries]
                else:
                    report.parts = self._part(schema, shown())
            if counted:
                yield from self._packets_of(feed, came.drain())

    def _part(self, schema: pa.Schema, rows: Batches) -> list[str]:
        first = next(rows, None)
        if first is None:
            return []
        with ExitStack() as stack:
            key, part = self.new_part(stack, schema)
            part.write_batch(first)
            for batch in rows:
                part.write_batch(batch)
        return [key]


class _DeadLettersPart:
    """Begun with the first dead letter."""

    def __init__(self, task: _Task, stack: ExitStack) -> None:
        self._task = task
        self._stack = stack
        self._part: BatchSink | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._part is None:
            key, self._part = self._task.new_part(self._stack, DEAD_LETTERS)
            self._task.with_letters(key)
        self._part.write_batch(batch)


class _Tree:
    """Rows along the paths of a task; where paths part, held until all who go on have taken them."""

    def __init__(self, work: RunContext, root_rows: Batches, paths: Sequence[EdgePath]) -> None:
        self._work = work
        self._root_rows = root_rows
        ways = {path[:length] for path in paths for length in range(1, len(path) + 1)}
        # Of a node: those that go on from it, and those that end there.
        self._left = Counter(way[:-1] for way in ways if len(way) > 1) + Counter(paths)
        self._is_shared = {path for path, count in self._left.items() if count > 1}
        self._held: dict[EdgePath, BatchBuffer] = {}

    def stream(self, path: EdgePath) -> Batches:
        if path not in self._is_shared:
            return self._made(path)
        return self._shared(path)

    def _shared(self, path: EdgePath) -> Batches:
        if path not in self._held:
            name = path[-1].split(".")[0]
            self._held[path] = buffer = self._work.buffer(name, self._work.schemas[path[-1]])
            for batch in self._made(path):
                buffer.append(batch)
        yield from self._held[path]
        self._left[path] -= 1
        if self._left[path] == 0:
            self._held[path].close()

    def _made(self, path: EdgePath) -> Batches:
        if len(path) == 1:
            return self._root_rows
        return _through(self._work, path[-1], self.stream(path[:-1]))


def _through(work: RunContext, edge: str, given: Batches) -> Batches:
    """What a node that looks at one row at a time makes of these."""
    name = edge.split(".")[0]
    node = work.nodes[name]
    fed = _fed_by(work, lambda _edge: given)
    match node:
        case Transform():
            return work.clock.timed(name, rows_of(fed, name, node))
        case Merge():
            return (fitted(batch, work.full(work.schemas[name])) for batch in given)
        case Route() if edge == name:
            return given
        case Route():
            return (rows for to, rows in route.divided(fed, name, node) if to == edge)
    raise AssertionError(node)


def _root_rows(work: RunContext, name: str, stage: SparkStage, given: TaskInput) -> Batches:
    node = work.nodes[name]
    inputs = _Inputs(stage, inputs_of(node), given)
    if isinstance(node, Merge) and node.mode is MergeMode.KEY:
        fed = _fed_by(work, _held_apart(work, name, node, inputs))
    else:
        fed = _fed_by(work, inputs.stream)
    return rows_of(fed, name, node)


class _Inputs:
    """What was given, input by input, in the order in which the root asks for them."""

    def __init__(self, stage: SparkStage, edges: Sequence[str], given: TaskInput) -> None:
        self._input_of = [feed.input for feed in stage.takes]
        self._given = given
        self._next = next(given, None)
        self._asked: defaultdict[str, list[int]] = defaultdict(list)
        for index in dict.fromkeys(self._input_of):
            self._asked[edges[index]].append(index)

    def stream(self, edge: str) -> Batches:
        # Both sides of a join may be rows of the same node: who asks first gets what comes first.
        return self.rows(self._asked[edge].pop(0))

    def rows(self, index: int) -> Batches:
        while self._next is not None and self._input_of[self._next[0]] == index:
            _, batch = self._next
            self._next = None
            yield batch
            self._next = next(self._given, None)


def _held_apart(
    work: RunContext, name: str, node: Merge, inputs: _Inputs
) -> Callable[[str], Batches]:
    """A merge by key takes rows of all inputs by turns, and they come one input after the other."""
    buffers = {}
    for edge in node.inputs:
        buffers[edge] = work.buffer(name, work.schemas[name])
        for batch in inputs.stream(edge):
            buffers[edge].append(batch)
    return lambda edge: buffers[edge].drain()


def distinct_rows(batches: Batches, limit_bytes: int) -> int:
    """How many different rows of sources these are, in bounded memory. They have the hidden columns."""
    stage = MemoryStage(
        "rows", "rows that were seen", Buffer.MATERIALIZED, limit_bytes, spill_priority=0
    )
    budget = MemoryBudget(StagePlan(limit_bytes, 0, (stage,)))
    with closing(LocalDisk()) as disk:
        seen = Grouper(_ORIGIN.names, (), _ORIGIN, budget, "rows", disk)
        budget.spill_by("rows", seen.spill)
        with closing(seen):
            for batch in batches:
                seen.append(batch)
            return sum(table.num_rows for table in seen.results())


def _joined(rows: Batches, most_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches that make a packet together."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        for piece in sliced(batch, most_bytes):
            if pending and size + piece.nbytes > most_bytes:
                yield pending
                pending, size = [], 0
            pending.append(piece)
            size += piece.nbytes
    if pending:
        yield pending


def _fed_by(work: RunContext, stream: Callable[[str], Batches]) -> RunContext:
    """The same work, with rows from elsewhere."""
    fed = copy.copy(work)
    fed.stream = stream
    return fed


def _nothing_given(edge: str) -> Batches:
    raise AssertionError(edge)
