"""A pipeline on Spark: its stages one after the other, each a job of tasks by `mapInArrow`.

Spark starts the tasks, keeps what a stage gives until the next one has it, and does the shuffle between them;
rows are in our hands only, as Arrow batches that travel as one binary value each, so that no type is lost
and no row is an object. The driver sees reports and samples of keys; rows only of files, part by part, since
a file is written in one place. Works on Spark Connect too, since it uses no RDD.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compactor.common.clock import random_id
from compactor.errors import ConfigError, DataError, InputError, UsageError
from compactor.files.write import StagedSink
from compactor.pipelines import dead_letters
from compactor.pipelines.binding import sort_schema
from compactor.pipelines.config import Aggregate, Merge, Output, Pipeline, Route, Source, Transform
from compactor.pipelines.dead_letters import BadRecordError
from compactor.pipelines.nodes.aggregate import needed_columns
from compactor.pipelines.nodes.output import may_repeat, open_sink, written_schema
from compactor.pipelines.pieces import SourceParts
from compactor.pipelines.provenance import ROW, SOURCE
from compactor.pipelines.report import OutputReport, RunReport
from compactor.pipelines.run import PipelineRun
from compactor.pipelines.stages import Feed, ShuffleKind, SparkStage, plan_stages
from compactor.pipelines.task import (
    StageSpec,
    TaskReport,
    distinct_rows,
    run_part,
    run_piece,
    task_and_row,
)
from compactor.resources.errors import MemoryLimitError
from compactor.spark.session import (
    SparkOptions,
    as_job_error,
    check_shuffles,
    staging_place,
    task_slots,
)
from compactor.spark.shuffle.exchange import from_bytes, splitters
from compactor.spark.shuffle.packets import (
    PACKET_SCHEMA,
    PACKETS,
    REPORT,
    ROWS,
    SAMPLE,
    SENT,
    SMALL_BATCHES,
    Batches,
    Divider,
    as_rows,
    chained,
    configured,
    received,
    send,
    values_of,
)
from compactor.stores.base import Store
from compactor.stores.open import open_store
from compactor.stores.parts import part_rows
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot
from compactor.write.ingest import IngestOptions, IngestPlan, commit_fragments, plan_ingest
from format.schema import SortSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PART_SHARE: Final = 8
"""Tasks get so much of the memory limit as rows, where keys can be divided: they sort without spilling."""
_WORTH_A_TASK_BYTES: Final = 4 << 20
_MOST_PARTS: Final = 10_000
_ERRORS: Final = {
    error.__name__: error
    for error in (UsageError, ConfigError, InputError, DataError, MemoryLimitError)
}


@dataclass(slots=True)
class _Done:
    """A stage that has run."""

    packets: DataFrame | None
    """None: nobody takes any."""
    reports: list[TaskReport]
    """By task."""
    samples: dict[int, list[tuple[pa.RecordBatch, int]]]
    """Of keys, and how many rows they stand for, by feed; a task each."""


@dataclass(frozen=True, slots=True)
class _OutputTable:
    log: CommitLog
    snapshot: Snapshot
    plan: IngestPlan


class SparkRun:
    """One execution of a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Opens sources for their schemas, and binds everything to them, without Spark. Raises
        `CompactorError`."""
        self._pipeline = pipeline
        self._nodes = pipeline.nodes
        self._stages = plan_stages(pipeline)
        self._pieces = SourceParts()
        self._schemas = dict(PipelineRun(pipeline, self._pieces.open_source).schemas)
        self._outputs = {n: node for n, node in self._nodes.items() if isinstance(node, Output)}
        self._counted = frozenset(n for n in self._outputs if may_repeat(n, self._nodes))
        self._sorts = {
            feed.number: self._sort_of(stage)
            for stage in self._stages
            if stage.shuffle is not None and stage.shuffle.kind is ShuffleKind.RANGE
            for feed in stage.takes
        }
        self._tables = {n: self._table(n) for n, o in self._outputs.items() if o.table is not None}
        self._run_id = f"pipeline-{random_id()}"
        self._done: dict[int, _Done] = {}
        """By the feeds that stages give."""
        self._bases: dict[str, npt.NDArray[np.int64]] = {}
        """Of nodes that number rows: how many come before those of each task."""
        self.report = RunReport()

    def run(self, spark: SparkSession, options: SparkOptions | None = None) -> RunReport:
        """Raises `CompactorError`; then no output has anything of this run."""
        check_shuffles(spark, "pipelines")
        options = options or SparkOptions()
        started = time.perf_counter()
        with ExitStack() as stack:
            staging = self._staging(spark, options, stack)
            stack.enter_context(configured(spark, SMALL_BATCHES))
            for stage in self._stages:
                done = self._run_stage(spark, options, stage, staging)
                if done.packets is not None:
                    stack.callback(done.packets.unpersist)
                self._done.update(dict.fromkeys((feed.number for feed in stage.gives), done))
                self._take_stock(stage, done)
            for name in self._outputs:
                self._count(spark, options, name)
            self._write(None if staging is None else open_store(staging))
        self.report.seconds = time.perf_counter() - started
        return self.report

    # --- before ---

    def _sort_of(self, stage: SparkStage) -> SortSchema:
        assert stage.shuffle is not None
        assert stage.shuffle.by is not None
        feed = stage.takes[0]
        return sort_schema(stage.shuffle.by, self._schema_of(feed), f"node {feed.taker!r}")

    def _schema_of(self, feed: Feed) -> pa.Schema:
        """Of the rows that its taker gets."""
        is_merge = isinstance(self._nodes[feed.taker], Merge)
        return self._schemas[feed.taker if is_merge else feed.path[-1]]

    def _table(self, name: str) -> _OutputTable:
        node, what = self._outputs[name], f"node {name!r}"
        assert node.table is not None
        store = open_store(node.table)
        log = CommitLog(store)
        snapshot = log.refresh()
        schema = written_schema(node, self._schemas[node.input])
        sort = None if node.sort_by is None else sort_schema(node.sort_by, schema, what)
        return _OutputTable(
            log, snapshot, plan_ingest(store, snapshot, schema, what, sort, IngestOptions())
        )

    def _staging(self, spark: SparkSession, options: SparkOptions, stack: ExitStack) -> str | None:
        if self._pipeline.on_error != "continue" and len(self._tables) == len(self._outputs):
            return None
        what = "rows of files wait to be written"
        return staging_place(spark, options.staging, self._run_id, what, stack)

    # --- stages ---

    def _run_stage(
        self, spark: SparkSession, options: SparkOptions, stage: SparkStage, staging: str | None
    ) -> _Done:
        spec = StageSpec(
            pipeline=self._pipeline,
            stage=stage,
            schemas=self._schemas | self._narrowed(stage),
            file_schemas=self._pieces.schemas,
            sorts={n: s for n, s in self._sorts.items() if n in {f.number for f in stage.gives}},
            tables={n: (t.log.store.url, t.plan) for n, t in self._tables.items()},
            counted=self._counted,
            staging=staging,
            run_id=self._run_id,
        )
        with as_job_error("the task"):
            packets = (
                self._from_sources(spark, spec)
                if stage.shuffle is None
                else self._shuffled(spark, options, spec)
            )
            if packets is None:
                return _Done(None, [], {})
            takers = {feed.taker for feed in stage.gives}
            if is_kept := bool(takers - (set(self._outputs) - self._counted)):
                packets = packets.persist()
            found = packets.where(f"kind <> {ROWS}").toArrow()
        return _done(packets if is_kept else None, found)

    def _narrowed(self, stage: SparkStage) -> dict[str, pa.Schema]:
        """What a stage is sent of its root's input, where that is not all columns."""
        node = self._nodes[stage.roots[0]] if stage.roots else None
        if not isinstance(node, Aggregate):
            return {}
        what = f"node {stage.roots[0]!r}"
        return {node.input: needed_columns(node, self._schemas[node.input], what)}

    def _from_sources(self, spark: SparkSession, spec: StageSpec) -> DataFrame | None:
        pieces = [piece for root in spec.stage.roots for piece in self._pieces.of[root]]
        if not pieces:
            return None

        def read(batches: Batches) -> Batches:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from as_rows(run_piece(spec, number, pieces[number]))

        return spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(read, PACKETS)

    def _shuffled(
        self, spark: SparkSession, options: SparkOptions, spec: StageSpec
    ) -> DataFrame | None:
        stage = spec.stage
        parts = self._parts(spark, options, stage)
        sent = self._sent(stage.takes, self._parts_of(stage, parts), parts)
        if sent is None:
            return None

        def run(batches: Batches) -> Batches:
            found = received(batches)
            first = next(found, None)
            if first is not None:
                part, feed, batch = first
                given = ((number, more) for _, number, more in found)
                yield from as_rows(run_part(spec, part, chained((feed, batch), given)))

        return sent.mapInArrow(run, PACKETS)

    def _parts(self, spark: SparkSession, options: SparkOptions, stage: SparkStage) -> int:
        """Tasks for a stage."""
        if stage.shuffle is None or stage.shuffle.kind is ShuffleKind.ONE:
            return 1
        if options.shuffle_partitions is not None:
            return options.shuffle_partitions
        size = sum(self._sizes(feed)[1] for feed in stage.takes)
        by_memory = math.ceil(size / (self._pipeline.memory.limit / _PART_SHARE))
        by_slots = min(task_slots(spark), size // _WORTH_A_TASK_BYTES)
        return max(1, min(_MOST_PARTS, max(by_memory, by_slots)))

    def _sizes(self, feed: Feed) -> tuple[int, int]:
        """Rows and bytes that came by a feed."""
        found = [
            report.feeds[str(feed.number)]
            for report in self._done[feed.number].reports
            if str(feed.number) in report.feeds
        ]
        return sum(each.rows for each in found), sum(each.bytes for each in found)

    def _parts_of(self, stage: SparkStage, parts: int) -> Sequence[Divider | None]:
        """How the rows of each feed are divided; None: they all go to the first task."""
        assert stage.shuffle is not None
        if parts == 1:
            return [None] * len(stage.takes)
        if stage.shuffle.kind is ShuffleKind.HASH:
            return [Divider(parts, keys=stage.shuffle.keys[feed.input]) for feed in stage.takes]
        sort = self._sorts[stage.takes[0].number]
        samples = [
            sample
            for feed in stage.takes
            for sample in self._done[feed.number].samples.get(feed.number, ())
        ]
        bounds = splitters(samples, sort, parts)
        return [None if bounds is None else Divider(parts, bounds, sort)] * len(stage.takes)

    def _sent(
        self, feeds: Sequence[Feed], dividers: Sequence[Divider | None], parts: int
    ) -> DataFrame | None:
        """Rows of feeds, each where its task is, in the order of the feeds; None if there are none."""
        frames: dict[int, DataFrame] = {}
        numbers: dict[int, list[int]] = {}
        for feed in feeds:
            packets = self._done[feed.number].packets
            if packets is not None and self._sizes(feed)[0]:
                frames[id(packets)] = packets
                numbers.setdefault(id(packets), []).append(feed.number)
        if not frames:
            return None
        rank_of = {feed.number: rank for rank, feed in enumerate(feeds)}
        limit = self._pipeline.memory.limit

        def divide(batches: Batches) -> Batches:
            yield from send(batches, rank_of, dividers, limit)

        united: DataFrame | None = None
        for key, frame in frames.items():
            wanted = ", ".join(map(str, numbers[key]))
            some = frame.where(f"kind = {ROWS} AND feed IN ({wanted})")
            united = some if united is None else united.unionAll(some)
        assert united is not None
        sent = united.mapInArrow(divide, SENT)
        return sent.repartitionById(parts, "part").sortWithinPartitions("feed", "place")

    # --- after ---

    def _take_stock(self, stage: SparkStage, done: _Done) -> None:
        """Adds to the report. Raises what the first task that failed has said."""
        for root in stage.roots:
            counts = np.zeros(done.reports[-1].task + 2 if done.reports else 1, dtype=np.int64)
            for report in done.reports:
                if report.root == root:
                    # What a source left out has a number too.
                    numbered = max(report.records_read, report.root_rows)
                    counts[report.task + 1] = numbered
            self._bases[root] = np.cumsum(counts)
            if isinstance(self._nodes[root], Source):
                self.report.records_read[root] = sum(
                    report.records_read for report in done.reports if report.root == root
                )
            node = self._nodes[root]
            if isinstance(node, Aggregate) and node.window is not None:
                missing = sum(report.records_without_time for report in done.reports)
                self.report.records_without_time[root] = missing
        for report in done.reports:
            if report.error is not None:
                raise self._error(report.error)
            self.report.dlq_count += report.dlq_count
            self.report.spills += report.spills
            self.report.peak_bytes = max(self.report.peak_bytes, report.peak_bytes)
            seconds = self.report.stage_seconds
            for name, spent in report.stage_seconds.items():
                seconds[name] = seconds.get(name, 0.0) + spent

    def _error(self, error: dict[str, Any]) -> Exception:
        if "kind" in error:
            return _ERRORS.get(error["kind"], DataError)(error["message"])
        task, row = task_and_row(error["row"] - 1)
        number = int(self._bases[error["source"]][task]) + row + 1
        return BadRecordError(error["source"], number, error["node"], error["reason"])

    def _feeds_of(self, output: str) -> list[Feed]:
        return sorted(
            (f for stage in self._stages for f in stage.gives if f.taker == output),
            key=lambda feed: feed.number,
        )

    def _count(self, spark: SparkSession, options: SparkOptions, output: str) -> None:
        feeds = self._feeds_of(output)
        rows = sum(self._sizes(feed)[0] for feed in feeds)
        different = rows
        if output in self._counted:
            parts = options.shuffle_partitions or task_slots(spark)
            sent = self._sent(feeds, [Divider(parts, keys=(SOURCE, ROW))] * len(feeds), parts)
            limit = self._pipeline.memory.limit

            def count(batches: Batches) -> Batches:
                found = (batch for _, _, batch in received(batches))
                yield pa.RecordBatch.from_pydict({"rows": [distinct_rows(found, limit)]})

            if sent is not None:
                with as_job_error("the task"):
                    counts = sent.mapInArrow(count, "rows bigint").toArrow()
                different = sum(counts.column("rows").to_pylist())
        documents = self._documents(self._outputs[output].input)
        self.report.outputs[output] = OutputReport(rows, different, documents)

    def _documents(self, edge: str) -> int:
        """Files, as far as rows have only been looked at one by one since; else one."""
        node = self._nodes[edge.split(".")[0]]
        if isinstance(node, Source) and node.path is not None:
            return len(self._pieces.of[edge])
        if isinstance(node, Route) or (isinstance(node, Transform) and node.window is None):
            return self._documents(node.input)
        return 1

    def _write(self, staging: Store | None) -> None:
        """Files take their places when all is written and committed."""
        written: list[StagedSink] = []
        with ExitStack() as files:
            sink = files.enter_context(dead_letters.opened_dead_letters(self._pipeline))
            if sink is not None:
                self._write_letters(sink, staging)
            for name, node in self._outputs.items():
                if node.path is not None:
                    schema = written_schema(node, self._schemas[node.input])
                    file = files.enter_context(closing(open_sink(node.path, schema)))
                    for key in self._left_by(name, "parts"):
                        assert staging is not None
                        for batch in part_rows(staging, key):
                            file.write(batch)
                    file.finish()
                    written.append(file)
            for name, table in self._tables.items():
                entries = [
                    FragmentEntry.from_json(entry) for entry in self._left_by(name, "entries")
                ]
                commit_fragments(table.log, table.snapshot, table.plan, entries)
            for file in written:
                file.publish()

    def _left_by(self, output: str, what: str) -> Iterator[Any]:
        """Parts or fragments of an output, in the order of its rows."""
        for feed in self._feeds_of(output):
            for report in self._done[feed.number].reports:
                if (left := report.feeds.get(str(feed.number))) is not None:
                    yield from getattr(left, what)

    def _write_letters(self, sink: Any, staging: Store | None) -> None:
        stages = {id(done): done for done in self._done.values()}
        for done in stages.values():
            for report in done.reports:
                if report.dead_letters is not None:
                    assert staging is not None
                    for batch in part_rows(staging, report.dead_letters):
                        sink.write(self._with_whole_numbers(batch))

    def _with_whole_numbers(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Dead letters with the numbers that their rows have in the whole source."""
        sources = np.asarray(batch.column("source"))
        tasks, rows = task_and_row(batch.column("row").to_numpy() - 1)
        whole = rows + 1
        for source in np.unique(sources).tolist():
            mine = sources == source
            whole[mine] += self._bases[source][tasks[mine]]
        place = batch.schema.get_field_index("row")
        return batch.set_column(place, dead_letters.SCHEMA.field("row"), pa.array(whole))


def _done(packets: DataFrame | None, found: pa.Table) -> _Done:
    """found: packets that are not rows."""
    of_kind = {
        kind: found.filter(pc.equal(found.column("kind"), kind)) for kind in (REPORT, SAMPLE)
    }
    reports = [TaskReport.from_json(data.as_py()) for data in of_kind[REPORT].column("batch")]
    reports.sort(key=lambda report: report.task)
    by_task = {report.task: report for report in reports}
    samples: dict[int, list[tuple[pa.RecordBatch, int]]] = {}
    for _, feed, place, data in values_of(of_kind[SAMPLE].to_batches(), PACKET_SCHEMA.names):
        rows = by_task[task_and_row(place.as_py())[0]].feeds[str(feed.as_py())].rows
        samples.setdefault(feed.as_py(), []).append((from_bytes(data.as_buffer()), rows))
    return _Done(packets, reports, samples)
