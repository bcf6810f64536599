"""Jobs of tasks that say what they have made: rows for other tasks, a sample of keys, and a report.

A job's packets are persisted until the next have them; its reports come back with it, so that the next job is
planned by what there is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from compactor.common.message import Message
from compactor.entities.memory import COPIES
from compactor.entities.target import SORT
from compactor.entities.tasks.context import (
    PLACE_BITS,
    SampledKeys,
    TaskInput,
    TaskOutput,
    TaskRows,
    TaskSummary,
)
from compactor.errors import ConfigError, DataError, InputError, JobError, UsageError, message_of
from compactor.files.source import sliced
from compactor.resources.errors import MemoryLimitError
from compactor.spark.session import SparkOptions, as_job_error, task_slots
from compactor.spark.shuffle.exchange import KeySample, PartOf, from_bytes, packet_bytes, to_bytes
from compactor.spark.shuffle.packets import (
    PACKETS,
    REPORT,
    ROWS,
    SAMPLE,
    SENT,
    Batches,
    Divider,
    Dividing,
    Packet,
    as_rows,
    received,
    send,
    values_of,
)
from format.errors import FormatError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARROW_BATCHES: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
}
"""Of what Spark hands to Python at a time: packets are large, edges are not."""
_PART_SHARE: Final = 2
"""Tasks get so much of the memory limit to work on: parts are not of the same size."""
_WORTH_A_TASK_BYTES: Final = 4 << 20
_MOST_PARTS: Final = 10_000
_CORRECTED_BY_USERS: Final = {
    error.__name__: error
    for error in (
        UsageError,
        ConfigError,
        InputError,
        DataError,
        JobError,
        MemoryLimitError,
        FormatError,
    )
}
Task = Callable[[int, TaskInput], TaskOutput]
"""Called with the number of a part and its rows."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows on their way to the tasks of a job, and by what they go: one of keys, owner and column."""

    frame: DataFrame
    rank: int
    """Which of the task's inputs they are."""
    input: int = 0
    """Of the packets, which ones."""
    keys: tuple[str, ...] = ()
    """By the hash of these columns."""
    owner: str | None = None
    """To the part that gave the numbers in this column."""
    column: str | None = None
    """To the part in this column."""
    prepare: Callable[[Batches], Iterator[Packet]] | None = None
    """Makes other packets of those, numbered `input` too; None: they stay."""
    is_plain: bool = False
    """Whether the frame has rows of another kind, of which `prepare` makes packets."""

    def divider(self, parts: int) -> Dividing:
        if self.keys:
            return Divider(parts, keys=self.keys)
        if self.owner is not None:
            return _ByNumber(self.owner, PLACE_BITS)
        assert self.column is not None
        return _ByNumber(self.column, 0)


@dataclass(frozen=True, slots=True)
class _ByNumber:
    """A divider: the upper bits of a column are the part."""

    column: str
    lower_bits: int

    def part_of(self) -> PartOf:
        return lambda batch: np.asarray(batch.column(self.column)) >> self.lower_bits


@dataclass(slots=True)
class Done:
    """A job that has run."""

    packets: DataFrame
    said: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By task."""
    rows: int = 0
    bytes: int = 0
    samples: list[tuple[pa.RecordBatch, int]] = field(default_factory=list)

    def total(self, name: str) -> int:
        return sum(said[name] for said in self.said.values())


class Jobs:
    def __init__(
        self, spark: SparkSession, options: SparkOptions, limit_bytes: int, stack: ExitStack
    ) -> None:
        self.spark = spark
        self._options, self._limit, self._stack = options, limit_bytes, stack

    def run_pieces(self, count: int, task: Callable[[int], TaskOutput]) -> Done:
        """A task for each of so many numbers."""
        limit = self._limit

        def run(batches: Batches) -> Batches:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from as_rows(_packets(number, task(number), limit, samples=False))

        return self._done(self.spark.range(0, count, 1, count).mapInArrow(run, PACKETS))

    def run(
        self,
        flows: Sequence[Flow],
        size_bytes: int,
        task: Task,
        *,
        parts: int | None = None,
        samples: bool = False,
    ) -> Done:
        """A task for each part that rows go to. size_bytes: of them; parts: at most, if that is known."""
        limit = self._limit
        sent = self.sent(flows, self.parts(size_bytes) if parts is None else parts)

        def run(batches: Batches) -> Batches:
            for part, given in of_part(batches):
                yield from as_rows(_packets(part, task(part, given), limit, samples=samples))

        return self._done(sent.mapInArrow(run, PACKETS))

    def parts(self, size_bytes: int) -> int:
        if self._options.shuffle_partitions is not None:
            return self._options.shuffle_partitions
        by_memory = math.ceil(size_bytes * COPIES * _PART_SHARE / self._limit)
        by_slots = min(task_slots(self.spark), size_bytes // _WORTH_A_TASK_BYTES)
        return max(1, min(_MOST_PARTS, max(by_memory, by_slots)))

    def sent(self, flows: Sequence[Flow], parts: int) -> DataFrame:
        """Rows where their tasks are, by the ranks of flows and in order."""
        united: DataFrame | None = None
        for flow in flows:
            some = self._sent(flow, parts)
            united = some if united is None else united.unionAll(some)
        assert united is not None
        return united.repartitionById(parts, "part").sortWithinPartitions("feed", "place")

    def counted(self, flow: Flow, parts: int) -> Any:
        """How many rows go to each part. Shape (parts,)."""

        def count(batches: Batches) -> Batches:
            for part, _, batch in received(batches):
                yield pa.RecordBatch.from_pydict({"part": [part], "rows": [batch.num_rows]})

        with as_job_error("the task"):
            found = self._sent(flow, parts).mapInArrow(count, "part bigint, rows bigint").toArrow()
        return np.bincount(
            np.asarray(found.column("part")), np.asarray(found.column("rows")), parts
        ).astype(np.int64)

    def _sent(self, flow: Flow, parts: int) -> DataFrame:
        limit, number, rank = self._limit, flow.input, flow.rank
        divider, prepare = flow.divider(parts), flow.prepare

        def divide(batches: Batches) -> Batches:
            packets = batches if prepare is None else as_rows(prepare(batches))
            # The place of a divider in the list is the rank that its rows get.
            yield from send(packets, {number: rank}, [divider] * (rank + 1), limit)

        frame = flow.frame
        if not flow.is_plain:
            frame = frame.where(f"kind = {ROWS} AND feed = {number}")
        return frame.mapInArrow(divide, SENT)

    def _done(self, packets: DataFrame) -> Done:
        """Raises what the first task that failed has said."""
        with as_job_error("the task"):
            packets = packets.persist()
            self._stack.callback(packets.unpersist)
            found = packets.where(f"kind <> {ROWS}").toArrow()
        done = Done(packets)
        reports = {
            place.as_py() >> PLACE_BITS: json.loads(data.as_py())
            for kind, place, data in values_of(found.to_batches(), ["kind", "place", "batch"])
            if kind.as_py() == REPORT
        }
        for number, report in sorted(reports.items()):
            if "error" in report:
                raise _CORRECTED_BY_USERS[report["error"]](Message.from_json(report["message"]))
            done.said[number] = report["said"]
            done.rows += report["rows"]
            done.bytes += report["bytes"]
        for kind, place, data in values_of(found.to_batches(), ["kind", "place", "batch"]):
            if kind.as_py() == SAMPLE:
                weight = reports[place.as_py() >> PLACE_BITS]["sampled"]
                done.samples.append((from_bytes(data.as_buffer()), weight))
        return done


def _packets(number: int, made: TaskOutput, limit_bytes: int, *, samples: bool) -> Iterator[Packet]:
    """What a task gives, and at last what it said, or the mistake of the user's that ended it: Spark would
    try again what it takes for a failure."""
    most = packet_bytes(limit_bytes)
    place = number << PLACE_BITS
    report: dict[str, Any] = {"said": {}, "rows": 0, "bytes": 0, "sampled": 0}
    sample = KeySample(SORT) if samples else None
    try:
        for each in made:
            match each:
                case TaskRows(batch, to) if batch.num_rows:
                    for some in sliced(batch, most):
                        data = to_bytes([some])
                        report["rows"] += some.num_rows
                        report["bytes"] += some.nbytes
                        yield Packet(ROWS, to, place, data)
                        place += 1
                case SampledKeys(keys) if sample is not None:
                    sample.add(keys)
                    report["sampled"] += keys.num_rows
                case TaskSummary(values):
                    report["said"] = dict(values)
    except tuple(_CORRECTED_BY_USERS.values()) as error:
        kind = next(e.__name__ for e in type(error).__mro__ if e.__name__ in _CORRECTED_BY_USERS)
        report |= {"error": kind, "message": message_of(error).to_json()}
    if sample is not None and (keys := sample.keys()) is not None:
        yield Packet(SAMPLE, -1, place, to_bytes([keys]))
    yield Packet(REPORT, -1, place, pa.py_buffer(json.dumps(report).encode()))


def of_part(batches: Batches) -> Iterator[tuple[int, TaskInput]]:
    """The part of a task and its rows; nothing if there are none."""
    found = received(batches)
    first = next(found, None)
    if first is not None:
        part, rank, batch = first

        def given() -> Iterator[tuple[int, pa.RecordBatch]]:
            yield rank, batch
            for _, number, more in found:
                yield number, more

        yield part, given()
