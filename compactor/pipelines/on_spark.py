"""Runs a pipeline on Spark, one job per stage.

Rows stay Arrow batches and travel between stages in packets, so no type is lost and no row becomes a Python
object. Spark's driver handles only reports, key samples, and the rows of output files, which it writes part
by part.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from compactor.common.clock import random_id
from compactor.pipelines.binding import sort_schema
from compactor.pipelines.classify import passes_documents_on
from compactor.pipelines.config import (
    Aggregate,
    Combine,
    Merge,
    Output,
    Pipeline,
    Source,
    inputs_of,
    keys_of,
)
from compactor.pipelines.dead_letters import BadRecordError
from compactor.pipelines.join_keys import JoinKeys
from compactor.pipelines.located import at_node, locate
from compactor.pipelines.nodes.aggregate import needed_columns
from compactor.pipelines.nodes.output import may_repeat, written_schema
from compactor.pipelines.nodes.table_output import OutputTable
from compactor.pipelines.pieces import SourceParts
from compactor.pipelines.pipeline_run import PipelineRun
from compactor.pipelines.provenance import ROW, SOURCE
from compactor.pipelines.run_report import OutputReport, RunReport
from compactor.pipelines.spark_outputs import write_outputs
from compactor.pipelines.stage_results import StageResults
from compactor.pipelines.stages import (
    Feed,
    ShuffleKind,
    SparkStage,
    only_in_one_process,
    plan_stages,
)
from compactor.pipelines.task import StageSpec, distinct_rows, run_part, run_piece
from compactor.settings.names import in_pipeline, settings_named
from compactor.spark.session import SparkOptions, as_job_error, check_shuffles, staging_place
from compactor.spark.shuffle.exchange import ByKeys, ByRange, Divider, splitters
from compactor.spark.shuffle.jobs import Done, Flow, Jobs
from compactor.spark.shuffle.packets import Batches
from compactor.spark.shuffle.task import TaskInput
from compactor.stores.open import open_store
from compactor.write.ingest import IngestOptions
from lsm_fragment.keys.sort_schema import SortSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MEMORY_FACTOR: Final = 8
"""Where keys can be partitioned, give a task rows of at most 1/8 of its memory limit, so that it sorts
without spilling."""


class SparkRun:
    """One execution of a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Opens sources for their schemas and binds all nodes, without Spark. Raises `CompactorError`."""
        started = time.perf_counter()
        self._pipeline = pipeline
        self._nodes = pipeline.nodes
        self._stages = plan_stages(pipeline)
        self._pieces = SourceParts()
        with closing(PipelineRun(pipeline, self._pieces.open_source)) as bound:
            self._schemas = dict(bound.schemas)
        for name, node in self._nodes.items():
            if isinstance(node, Combine):
                self._check_keys(name, node)
        self._outputs = {n: node for n, node in self._nodes.items() if isinstance(node, Output)}
        self._counted = frozenset(n for n in self._outputs if may_repeat(n, self._nodes))
        self._sorts = {
            feed.number: self._sort_of(stage)
            for stage in self._stages
            if stage.shuffle is not None and stage.shuffle.kind is ShuffleKind.RANGE
            for feed in stage.takes
        }
        self._tables = {
            name: OutputTable.of(
                node.table,
                written_schema(node, self._schemas[node.input]),
                f"node {name!r}",
                node.sort,
                IngestOptions(threads=1),
            )
            for name, node in self._outputs.items()
            if node.table is not None
        }
        self._run_id = f"pipeline-{random_id()}"
        self._results = StageResults()
        self.report = RunReport(
            scan_seconds=bound.report.scan_seconds, seconds=time.perf_counter() - started
        )

    @settings_named(in_pipeline)
    def run(self, spark: SparkSession, options: SparkOptions | None = None) -> RunReport:
        """Runs the pipeline. On `CompactorError` no output contains anything of this run."""
        check_shuffles(spark, "pipelines")
        options = options or SparkOptions()
        started = time.perf_counter()
        with ExitStack() as stack:
            staging = self._staging(spark, options, stack)
            jobs = Jobs(spark, options, self._pipeline.memory.limit, _MEMORY_FACTOR, stack)
            for stage in self._stages:
                done = self._run_stage(jobs, stage, staging)
                try:
                    self._results.add(stage, done, self._nodes, self.report)
                except BadRecordError as bad:
                    locate(bad, self._pipeline, bad.node)
                    raise
            for name in self._outputs:
                self._count(jobs, name)
            write_outputs(
                self._pipeline,
                self._schemas,
                {name: self._feeds_to(name) for name in self._outputs},
                self._tables,
                self._results,
                None if staging is None else open_store(staging),
            )
        self.report.seconds += time.perf_counter() - started
        return self.report

    # --- before ---

    def _check_keys(self, name: str, node: Combine) -> None:
        """Rows are assigned to tasks by hashes of columns, which differ between types."""
        sides = self._schemas[node.probe], self._schemas[node.build]
        keys = JoinKeys(*sides, keys_of(node), f"node {name!r}")
        if keys.probe.is_computed or keys.build.is_computed:
            what = f"node {name!r}: `on` with expressions, or with columns of different types,"
            with at_node(self._pipeline, name):
                raise only_in_one_process(what)

    def _sort_of(self, stage: SparkStage) -> SortSchema:
        assert stage.shuffle is not None
        assert stage.shuffle.by is not None
        feed = stage.takes[0]
        return sort_schema(stage.shuffle.by, self._schema_of(feed), f"node {feed.consumer!r}")

    def _schema_of(self, feed: Feed) -> pa.Schema:
        """Returns the row schema at the consumer of a feed."""
        is_merge = isinstance(self._nodes[feed.consumer], Merge)
        return self._schemas[feed.consumer if is_merge else feed.path[-1]]

    def _staging(self, spark: SparkSession, options: SparkOptions, stack: ExitStack) -> str | None:
        if self._pipeline.on_error != "continue" and len(self._tables) == len(self._outputs):
            return None
        what = "rows of files wait to be written"
        return staging_place(spark, options.staging, self._run_id, what, stack)

    # --- stages ---

    def _run_stage(self, jobs: Jobs, stage: SparkStage, staging: str | None) -> Done:
        spec = StageSpec(
            pipeline=self._pipeline,
            stage=stage,
            schemas=self._schemas | self._narrowed(stage),
            file_schemas=self._pieces.schemas,
            sorts=self._sorts,
            tables={
                name: (table.log.store.url, table.plan) for name, table in self._tables.items()
            },
            counted=self._counted,
            staging=staging,
            run_id=self._run_id,
        )
        if stage.shuffle is None:
            pieces = [piece for root in stage.roots for piece in self._pieces.of[root]]
            if not pieces:
                return Done()
            return jobs.run_pieces(
                len(pieces), lambda number: run_piece(spec, number, pieces[number])
            )
        size = sum(self._results.size(feed).bytes for feed in stage.takes)
        parts = 1 if stage.shuffle.kind is ShuffleKind.ONE else jobs.parts(size)
        flows = self._flows(stage.takes, self._dividers(stage, parts))
        if not flows:
            return self._run_on_nothing(jobs, spec)
        return jobs.run(flows, parts, lambda part, given: run_part(spec, part, given))

    def _run_on_nothing(self, jobs: Jobs, spec: StageSpec) -> Done:
        """Runs a stage that receives no rows: only an aggregate without groups makes a row of them."""
        [root] = spec.stage.roots
        node = self._nodes[root]
        if not isinstance(node, Aggregate) or node.group_by or node.window is not None:
            return Done()
        return jobs.run_pieces(1, lambda number: run_part(spec, number, iter(())))

    def _narrowed(self, stage: SparkStage) -> dict[str, pa.Schema]:
        """Returns the schema of an aggregate's shuffled input, reduced to the columns it needs."""
        node = self._nodes[stage.roots[0]] if stage.roots else None
        if not isinstance(node, Aggregate):
            return {}
        return {node.input: needed_columns(node, self._schemas[node.input])}

    def _dividers(self, stage: SparkStage, parts: int) -> Sequence[Divider]:
        """Returns the partitioning of each feed that a stage consumes."""
        assert stage.shuffle is not None
        if stage.shuffle.kind is ShuffleKind.HASH:
            return [ByKeys(stage.shuffle.keys[feed.input]) for feed in stage.takes]
        if stage.shuffle.kind is ShuffleKind.ONE:
            return [ByKeys(())] * len(stage.takes)  # never called: there is one task
        sort = self._sorts[stage.takes[0].number]
        samples = [sample for feed in stage.takes for sample in self._results.size(feed).samples]
        return [ByRange(splitters(samples, sort, parts), sort)] * len(stage.takes)

    def _flows(self, feeds: Sequence[Feed], dividers: Sequence[Divider]) -> list[Flow]:
        """Returns the non-empty feeds, ranked by their position."""
        return [
            self._results.done(feed).flow(rank, divider, feed.number)
            for rank, (feed, divider) in enumerate(zip(feeds, dividers, strict=True))
            if self._results.size(feed).rows
        ]

    # --- outputs ---

    def _feeds_to(self, output: str) -> list[Feed]:
        """Returns the feeds of an output, in row order."""
        feeds = (feed for stage in self._stages for feed in stage.gives if feed.consumer == output)
        return sorted(feeds, key=lambda feed: feed.number)

    def _count(self, jobs: Jobs, output: str) -> None:
        """Reports how many rows, and how many distinct rows, reached an output."""
        feeds = self._feeds_to(output)
        rows = different = sum(self._results.rows(feed) for feed in feeds)
        if output in self._counted and rows:
            size = sum(self._results.size(feed).bytes for feed in feeds)
            limit = self._pipeline.memory.limit

            def count(_part: int, given: TaskInput) -> Batches:
                yield pa.RecordBatch.from_pydict({"rows": [distinct_rows(given, limit)]})

            flows = self._flows(feeds, [ByKeys((SOURCE, ROW))] * len(feeds))
            with as_job_error("the task"):
                counts = jobs.mapped(flows, jobs.parts(size), count, "rows bigint").toArrow()
            different = sum(counts.column("rows").to_pylist())
        documents = self._documents(self._outputs[output].input)
        self.report.outputs[output] = OutputReport(rows, different, documents)

    def _documents(self, edge: str) -> int:
        """Returns the number of source files behind nodes that pass documents on; 1 for each other node."""
        node = self._nodes[edge.split(".")[0]]
        if isinstance(node, Source) and node.path is not None:
            return len(self._pieces.of[edge])
        return sum(map(self._documents, inputs_of(node))) if passes_documents_on(node) else 1
