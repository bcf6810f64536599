"""The figures of a run, on one process or Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct, field

from compactor.common.plain_values import plain_dict
from compactor.pipelines.provenance import ROW, SOURCE, Batches, Boundary

_Number = TypeVar("_Number", int, float)


class OutputReport(Struct):
    """The figures of one output."""

    records_written: int = 0
    ok_count: int = 0
    """Distinct source rows that reached the output."""
    documents: int = 0
    """Documents opened and closed."""
    live: bool = False


class RunReport(Struct, kw_only=True):
    """The figures of one run."""

    outputs: dict[str, OutputReport] = field(default_factory=dict)
    records_read: dict[str, int] = field(default_factory=dict)
    """Rows read, by source."""
    records_without_time: dict[str, int] = field(default_factory=dict)
    """Rows outside all time windows, by aggregate."""
    dlq_count: int = 0
    """Bad records set aside."""
    restarts: int = 0
    """1 if the run began again, because a later value was not of a type guessed from its file's beginning."""
    spills: int = 0
    peak_bytes: int = 0
    """Peak of the charged bytes."""
    peak_waiting: dict[str, int] = field(default_factory=dict)
    """Peak number of queued records, by source."""
    scan_seconds: dict[str, float] = field(default_factory=dict)
    """Seconds spent in opening each source, and in reading its files for their types."""
    node_seconds: dict[str, float] = field(default_factory=dict)
    """Seconds spent in each node itself, once all sources are open, summed over threads."""
    seconds: float = 0.0
    """Seconds of the run, from the opening of the first source on."""

    def add(self, later: RunReport) -> None:
        """Adds the figures of a later run."""
        self.outputs |= later.outputs
        self.records_read = _summed(self.records_read, later.records_read)
        self.scan_seconds = _summed(self.scan_seconds, later.scan_seconds)
        self.node_seconds = _summed(self.node_seconds, later.node_seconds)
        self.peak_waiting |= later.peak_waiting
        self.dlq_count += later.dlq_count
        self.records_without_time = _summed(self.records_without_time, later.records_without_time)
        self.spills += later.spills
        self.peak_bytes = max(self.peak_bytes, later.peak_bytes)
        self.seconds += later.seconds

    @property
    def stage_seconds(self) -> dict[str, dict[str, float]]:
        """Seconds by stage of the run and node."""
        written = {n: s for n, s in self.node_seconds.items() if n in self.outputs}
        made = {n: s for n, s in self.node_seconds.items() if n not in self.outputs}
        return {"schema_scan": self.scan_seconds, "projection": made, "write": written}

    def to_json(self) -> dict[str, Any]:
        return {
            "outputs": {name: plain_dict(output) for name, output in self.outputs.items()},
            "records_read": self.records_read,
            "records_without_time": self.records_without_time,
            "dlq_count": self.dlq_count,
            "restarts": self.restarts,
            "spills": self.spills,
            "peak_charged_bytes": self.peak_bytes,
            "peak_waiting_records": self.peak_waiting,
            "stage_seconds": {
                stage: {name: round(s, 4) for name, s in of_nodes.items()}
                for stage, of_nodes in self.stage_seconds.items()
            },
            "seconds": round(self.seconds, 3),
        }


def _summed(one: Mapping[str, _Number], other: Mapping[str, _Number]) -> dict[str, _Number]:
    return {**one, **{name: one.get(name, 0) + count for name, count in other.items()}}


class NodeClock:
    """A clock that attributes each second to one node: the caller's clock stops while a nested node runs."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._local = threading.local()
        self._lock = threading.Lock()

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        stack = self._local.__dict__.setdefault("inner", [])
        stack.append(0.0)
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            own = spent - stack.pop()
            if stack:
                stack[-1] += spent
            with self._lock:
                self.seconds[name] = self.seconds.get(name, 0.0) + own

    def timed(self, name: str, batches: Batches) -> Batches:
        while True:
            with self.on(name):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


class SeenRows:
    """A set of source rows, as bitmaps."""

    def __init__(self) -> None:
        self._bits: dict[int, npt.NDArray[np.uint8]] = {}

    def new(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Adds a batch's rows. Returns which of them are new to the set and not repeated in the batch. Shape
        (rows,)."""
        sources, rows = (batch.column(name).to_numpy() for name in (SOURCE, ROW))
        found = np.zeros(batch.num_rows, dtype=np.bool_)
        for source in np.unique(sources).tolist():
            places = np.flatnonzero(sources == source)
            mine, first = np.unique(rows[places], return_index=True)
            bits = self._bits.get(source, np.zeros(0, dtype=np.uint8))
            if int(mine[-1]) // 8 >= len(bits):
                bits = np.concatenate([bits, np.zeros(int(mine[-1]) // 8 + 1, dtype=np.uint8)])
            flags = np.uint8(1) << (mine % 8).astype(np.uint8)
            found[places[first[(bits[mine // 8] & flags) == 0]]] = True
            np.bitwise_or.at(bits, mine // 8, flags)
            self._bits[source] = bits
        return found


class Counted:
    """Counts the rows of an output, and drops the columns that it does not show."""

    def __init__(self, report: OutputReport, names: Sequence[str], *, may_repeat: bool) -> None:
        """names: the columns shown. may_repeat: a source row may reach the output more than once."""
        self._report = report
        self._names = list(names)
        self._seen = SeenRows() if may_repeat else None

    def boundary(self, boundary: Boundary) -> None:
        self._report.documents += boundary.is_open

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._report.records_written += batch.num_rows
        self._report.ok_count += (
            batch.num_rows if self._seen is None else int(np.count_nonzero(self._seen.new(batch)))
        )
        return batch.select(self._names)
