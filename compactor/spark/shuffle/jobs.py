"""Runs Spark jobs whose tasks exchange rows in packets, for pipelines and entity merges.

A job's packets are persisted until later jobs have read them. Task reports return at once, so that the next
job is planned by real sizes. No RDD is used, so this works on Spark Connect too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import Struct, field

from compactor.spark.session import SparkOptions, as_job_error, task_slots, unless_lost
from compactor.spark.shuffle.exchange import Divider, from_bytes, packet_bytes
from compactor.spark.shuffle.packets import (
    PACKET_SCHEMA,
    PACKETS,
    REPORT,
    ROWS,
    SENT,
    Batches,
    Packet,
    as_rows,
    received,
    send,
    values_of,
)
from compactor.spark.shuffle.task import (
    TaskInput,
    TaskOutput,
    TaskReport,
    packets_of,
    task_and_place,
)
from compactor.spark.workers import freeze_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WORTH_A_TASK_BYTES: Final = 4 << 20
_MAX_PARTS: Final = 10_000
_PLAN_CHARACTERS: Final = 1 << 14
"""Of a plan as Spark's user interface keeps it: it has the plans of all jobs before, some of them twice."""
_PACKETS_AT_A_TIME: Final = 16
"""Packets per Arrow batch from Spark to Python."""

Prepare = Callable[[Batches], Iterator[Packet]]


class Flow(Struct, frozen=True, kw_only=True):
    """An input of a job's tasks: a feed of an earlier job, and the rule that partitions it."""

    frame: DataFrame
    rank: int
    """Input number. Tasks read their inputs in ascending rank."""
    divider: Divider
    feed: int = 0
    """Number of the feed in the earlier job."""
    prepare: Prepare | None = None
    """Makes the packets to send, under the same feed number; None to send the frame's packets."""
    is_plain: bool = False
    """Whether the frame holds plain rows, from which `prepare` makes packets."""


class FeedTotals(Struct):
    """Totals of one feed over all tasks of a job."""

    rows: int = 0
    bytes: int = 0
    samples: list[tuple[pa.RecordBatch, int]] = field(default_factory=list)
    """Per task, its sampled keys and the number of rows they represent."""


class Done(Struct):
    """The result of a finished job."""

    packets: DataFrame | None = None
    """None if the job made no packets, or they are released."""
    summaries: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By task number, ascending, up to the first failed task."""
    feeds: dict[int, FeedTotals] = field(default_factory=lambda: defaultdict(FeedTotals))

    @property
    def rows(self) -> int:
        return sum(feed.rows for feed in self.feeds.values())

    @property
    def bytes(self) -> int:
        return sum(feed.bytes for feed in self.feeds.values())

    def total(self, name: str) -> int:
        """Sums a value over all summaries."""
        return sum(summary[name] for summary in self.summaries.values())

    def flow(
        self, rank: int, divider: Divider, feed: int = 0, prepare: Prepare | None = None
    ) -> Flow:
        assert self.packets is not None
        return Flow(frame=self.packets, rank=rank, divider=divider, feed=feed, prepare=prepare)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows on Spark's driver, in the order of the tasks, which it reads one at a time."""
        assert self.packets is not None
        with as_job_error("the task"):
            for row in self.packets.where(f"kind = {ROWS}").toLocalIterator():
                yield from_bytes(pa.py_buffer(row["batch"]))

    def release(self) -> None:
        """Releases the packets once no later job reads them."""
        if self.packets is not None:
            with unless_lost(self.packets.sparkSession):
                self.packets.unpersist()
            self.packets = None


class Jobs:
    """Runs the jobs of one run in sequence."""

    def __init__(
        self,
        spark: SparkSession,
        options: SparkOptions,
        limit_bytes: int,
        memory_factor: int,
        stack: ExitStack,
    ) -> None:
        """Applies the settings that jobs need to the session.

        limit_bytes: memory limit per task. memory_factor: bytes of memory that a task needs per byte of its
        rows. stack: closing it releases packets and restores the session's settings.
        """
        self.spark = spark
        self._options, self._limit, self._stack = options, limit_bytes, stack
        self._memory_factor = memory_factor
        max_bytes = _PACKETS_AT_A_TIME * packet_bytes(limit_bytes)
        settings = {
            "spark.sql.execution.arrow.maxBytesPerBatch": f"{max_bytes}b",
            "spark.sql.maxPlanStringLength": str(_PLAN_CHARACTERS),
            # Java's serializer holds a hundred of the batches that go to disk; by default each has 4 MiB.
            "spark.sql.inMemoryColumnarStorage.batchSize": "1",
        }
        stack.enter_context(_configured(spark, settings))

    def parts(self, size_bytes: int) -> int:
        """Returns the number of tasks for rows of this size."""
        if self._options.shuffle_partitions is not None:
            return self._options.shuffle_partitions
        by_memory = math.ceil(size_bytes * self._memory_factor / self._limit)
        by_slots = min(task_slots(self.spark), size_bytes // _WORTH_A_TASK_BYTES)
        return max(1, min(_MAX_PARTS, max(by_memory, by_slots)))

    def run_pieces(self, count: int, task: Callable[[int], TaskOutput]) -> Done:
        """Runs a task for each number below `count`. Raises as `run`."""
        limit = self._limit

        def run(batches: Batches) -> Batches:
            freeze_worker()
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from as_rows(packets_of(number, task(number), limit))

        return self._done(self.spark.range(0, count, 1, count).mapInArrow(run, PACKETS))

    def run(
        self, flows: Sequence[Flow], parts: int, task: Callable[[int, TaskInput], TaskOutput]
    ) -> Done:
        """Runs a task for each part that receives rows, with the part's number and rows.

        flows: at least one. Raises `JobError` if Spark fails, else the first error reported by a task.
        """
        limit = self._limit

        def run(part: int, given: TaskInput) -> Batches:
            return as_rows(packets_of(part, task(part, given), limit))

        return self._done(self.mapped(flows, parts, run, PACKETS))

    def mapped(
        self,
        flows: Sequence[Flow],
        parts: int,
        task: Callable[[int, TaskInput], Batches],
        schema: str,
    ) -> DataFrame:
        """Returns the rows of `schema` that the tasks yield, one task for each part that receives rows."""

        def run(batches: Batches) -> Batches:
            freeze_worker()
            found = received(batches)
            first = next(found, None)
            if first is not None:
                yield from task(first[0], ((rank, rows) for _, rank, rows in chain([first], found)))

        return self._sent(flows, parts).mapInArrow(run, schema)

    def _sent(self, flows: Sequence[Flow], parts: int) -> DataFrame:
        """Returns the packets of the flows with their parts, sorted by rank and position."""
        groups: dict[tuple[int, int], list[Flow]] = {}
        for flow in flows:
            groups.setdefault((id(flow.frame), id(flow.prepare)), []).append(flow)
        frames = [self._divided(group, parts) for group in groups.values()]
        united = reduce(lambda some, more: some.unionAll(more), frames)
        return united.repartitionById(parts, "part").sortWithinPartitions("feed", "place")

    def _divided(self, flows: Sequence[Flow], parts: int) -> DataFrame:
        """Returns the packets of flows with a common frame, which is read once."""
        limit, prepare = self._limit, flows[0].prepare
        ways = {flow.feed: (flow.rank, flow.divider) for flow in flows}

        def divide(batches: Batches) -> Batches:
            freeze_worker()
            yield from send(
                batches if prepare is None else as_rows(prepare(batches)), ways, parts, limit
            )

        frame = flows[0].frame
        if not flows[0].is_plain:
            frame = frame.where(f"kind = {ROWS} AND feed IN ({', '.join(map(str, ways))})")
        return frame.mapInArrow(divide, SENT)

    def _done(self, packets: DataFrame) -> Done:
        """Runs a job and collects its task reports."""
        with as_job_error("the task"):
            done = Done(packets.persist())
            self._stack.callback(done.release)
            found = packets.where(f"kind <> {ROWS}").toArrow()
        reports: dict[int, TaskReport] = {}
        samples: list[tuple[int, int, pa.RecordBatch]] = []
        for kind, feed, place, data in values_of(found.to_batches(), PACKET_SCHEMA.names):
            if kind.as_py() == REPORT:
                task, _ = task_and_place(place.as_py())
                reports[task] = TaskReport.from_json(data.as_py())
            else:
                samples.append((place.as_py(), feed.as_py(), from_bytes(data.as_buffer())))
        for task, report in sorted(reports.items()):
            report.raise_error()
            done.summaries[task] = report.summary
            if report.has_failed:
                return done
            for number, counts in report.feeds.items():
                done.feeds[number].rows += counts.rows
                done.feeds[number].bytes += counts.bytes
        for place, number, keys in sorted(samples, key=lambda sample: sample[0]):
            task, _ = task_and_place(place)
            done.feeds[number].samples.append((keys, reports[task].feeds[number].sampled))
        return done


@contextmanager
def _configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Applies settings to the session; restores the old ones on exit."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        with unless_lost(spark):
            for name, old in before.items():
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)
