"""What a run did, in numbers: the same on every path."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from compactor.pipeline.provenance import ROW, SOURCE, Batches, without_hidden


@dataclass(slots=True)
class OutputReport:
    records_written: int = 0
    ok_count: int = 0
    """Different rows of sources that reached the output."""
    live: bool = False


@dataclass(slots=True)
class RunReport:
    outputs: dict[str, OutputReport] = field(default_factory=dict)
    records_read: dict[str, int] = field(default_factory=dict)
    """By source."""
    dlq_count: int = 0
    """Bad records, put aside."""
    spills: int = 0
    peak_bytes: int = 0
    """Most that was charged at a time."""
    peak_waiting: dict[str, int] = field(default_factory=dict)
    """Most records that waited behind a source."""
    stage_seconds: dict[str, float] = field(default_factory=dict)
    """By node, without those before it; of all threads together."""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "outputs": {
                name: {"records_written": o.records_written, "ok_count": o.ok_count, "live": o.live}
                for name, o in self.outputs.items()
            },
            "records_read": self.records_read,
            "dlq_count": self.dlq_count,
            "spills": self.spills,
            "peak_charged_bytes": self.peak_bytes,
            "peak_waiting_records": self.peak_waiting,
            "stage_seconds": {name: round(s, 4) for name, s in self.stage_seconds.items()},
            "seconds": round(self.seconds, 3),
        }


class Clock:
    """Seconds by node, each counted once: what runs within another's time is its own."""

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
    """Which rows of which sources were seen: a bit for each."""

    def __init__(self) -> None:
        self._bits: dict[int, Any] = {}

    def add(self, batch: pa.RecordBatch) -> int:
        """How many of these rows were not seen before."""
        sources, rows = (batch.column(name).to_numpy() for name in (SOURCE, ROW))
        new = 0
        for source in np.unique(sources).tolist():
            mine = np.unique(rows[sources == source])
            bits = self._bits.get(source, np.zeros(0, dtype=np.uint8))
            if int(mine[-1]) // 8 >= len(bits):
                bits = np.concatenate([bits, np.zeros(int(mine[-1]) // 8 + 1, dtype=np.uint8)])
            flags = np.uint8(1) << (mine % 8).astype(np.uint8)
            new += int(np.count_nonzero((bits[mine // 8] & flags) == 0))
            np.bitwise_or.at(bits, mine // 8, flags)
            self._bits[source] = bits
        return new


class Counted:
    """Counts the rows that reach an output, and takes off what people are not shown."""

    def __init__(self, report: OutputReport, *, may_repeat: bool) -> None:
        self._report = report
        self._seen = SeenRows() if may_repeat else None

    def shown(self, batches: Batches) -> Batches:
        for batch in batches:
            if batch.num_rows:
                yield self.one(batch)

    def one(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._report.records_written += batch.num_rows
        self._report.ok_count += batch.num_rows if self._seen is None else self._seen.add(batch)
        return without_hidden(batch)
