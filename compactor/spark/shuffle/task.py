"""The input and output of a task of a Spark job, and the conversion of output to packets.

A task yields rows for other tasks, keys to sample, and a summary. Its last packet is its report. A user error
goes into the report instead of being raised, because Spark would retry the task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct, field

from compactor.common.conversion import convertible
from compactor.common.message import Message
from compactor.common.plain_values import plain_dict
from compactor.errors import ConfigError, DataError, InputError, JobError, UsageError, message_of
from compactor.files.source import sliced
from compactor.resources.errors import MemoryLimitError
from compactor.spark.shuffle.exchange import KeySample, packet_bytes, to_bytes
from compactor.spark.shuffle.packets import REPORT, ROWS, SAMPLE, Packet
from lsm_fragment.errors import FormatError
from lsm_fragment.keys.sort_schema import SortSchema

_Numbers = TypeVar("_Numbers", int, npt.NDArray[np.int64])
PLACE_BITS: Final = 40
"""Low bits of a number, which count within a task; the high bits are the task number."""
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

TaskInput = Iterable[tuple[int, pa.RecordBatch]]
"""Batches sent to a task with the rank of their input, sorted by rank and position."""


class TaskRows(NamedTuple):
    """Rows that a task sends to other tasks."""

    batch: pa.RecordBatch
    feed: int = 0
    """Feed number; a task has a feed for each purpose."""


class SampledKeys(NamedTuple):
    """Rows whose keys to sample for ranges."""

    rows: pa.RecordBatch
    sort: SortSchema
    feed: int = 0


class TaskSummary(NamedTuple):
    """Figures that a task reports to Spark's driver."""

    values: Mapping[str, Any]
    """JSON-serialisable figures."""
    has_failed: bool = False
    """Whether the values describe a failure of the run. Then the summaries of later tasks are ignored."""


TaskOutput = Iterator[TaskRows | SampledKeys | TaskSummary]


def task_and_place(number: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Splits a number into task number and number within the task."""
    return number >> PLACE_BITS, number & ((1 << PLACE_BITS) - 1)


class FeedCounts(Struct):
    """Totals of one feed of a task."""

    rows: int = 0
    bytes: int = 0
    """Size of the row packets."""
    sampled: int = 0
    """Rows that the sample represents."""


@convertible
class TaskReport(Struct):
    """The report of one task."""

    summary: dict[str, Any] = field(default_factory=dict)
    has_failed: bool = False
    feeds: dict[int, FeedCounts] = field(default_factory=dict)
    """By feed number."""
    error: tuple[str, list[Any]] | None = None
    """Class and arguments of the error that ended the task."""

    def feed(self, number: int) -> FeedCounts:
        return self.feeds.setdefault(number, FeedCounts())

    def raise_error(self) -> None:
        """Raises the error that ended the task, if any."""
        if self.error is not None:
            name, message = self.error
            raise _CORRECTED_BY_USERS[name](Message.from_json(message))

    def to_json(self) -> str:
        return json.dumps(plain_dict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> TaskReport:
        # Not msgspec's decoder, which takes no halves of surrogates, as messages that name files may have.
        return msgspec.convert(json.loads(text), cls, str_keys=True)


def packets_of(task: int, output: TaskOutput, limit_bytes: int) -> Iterator[Packet]:
    """Yields the packets of a task: its rows, its samples, and last its report.

    task: its number. limit_bytes: the memory limit.
    """
    packing = _Packing(task, packet_bytes(limit_bytes))
    report = packing.report
    samples: dict[int, KeySample] = {}
    try:
        for item in output:
            match item:
                case TaskRows(batch, feed):
                    yield from packing.rows(batch, feed)
                case SampledKeys(rows, sort, feed):
                    samples.setdefault(feed, KeySample(sort)).add(rows)
                    report.feed(feed).sampled += rows.num_rows
                case TaskSummary(values, has_failed):
                    report.summary, report.has_failed = dict(values), has_failed
        yield from packing.waiting()
    except tuple(_CORRECTED_BY_USERS.values()) as error:
        names = (each.__name__ for each in type(error).__mro__)
        name = next(name for name in names if name in _CORRECTED_BY_USERS)
        report.error = name, message_of(error).to_json()
    for feed, sample in samples.items():
        if (keys := sample.keys()) is not None:
            yield packing.packet(SAMPLE, feed, to_bytes([keys]))
    yield packing.packet(REPORT, -1, pa.py_buffer(report.to_json().encode()))


class _Packing:
    """Joins and slices a task's rows into packets of similar size."""

    def __init__(self, task: int, max_bytes: int) -> None:
        self.report = TaskReport()
        self._max_bytes = max_bytes
        self._place = task << PLACE_BITS
        self._feed = 0
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def rows(self, batch: pa.RecordBatch, feed: int) -> Iterator[Packet]:
        if feed != self._feed:
            yield from self.waiting()
        self._feed = feed
        for some in sliced(batch, self._max_bytes):
            if self._bytes + some.nbytes > self._max_bytes:
                yield from self.waiting()
            self._batches.append(some)
            self._bytes += some.nbytes

    def waiting(self) -> Iterator[Packet]:
        """Yields a packet of the remaining rows, if any."""
        if not self._batches:
            return
        data = to_bytes(self._batches)
        counts = self.report.feed(self._feed)
        counts.rows += sum(batch.num_rows for batch in self._batches)
        counts.bytes += data.size
        yield self.packet(ROWS, self._feed, data)
        self._batches, self._bytes = [], 0

    def packet(self, kind: int, feed: int, data: pa.Buffer) -> Packet:
        self._place += 1
        return Packet(kind, feed, self._place, data)
