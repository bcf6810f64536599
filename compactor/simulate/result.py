"""Results of a simulation: periodic samples, and figures derived from them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from compactor.common.plain_values import plain_dict
from compactor.planner.debt import SLOW_SCORE, Debt, Pressure


class ShardSample(Struct, frozen=True, kw_only=True):
    """The state of one shard at a point in time."""

    seconds: float
    fragments: int
    level_bytes: Mapping[int, int]
    debt: Debt
    read_amplification: float
    """Sorted runs that contain a given key."""
    busy_seconds: float
    """Busy seconds of all workers so far."""
    ingested_bytes: int
    compacted_bytes: int
    """Bytes written by compactions so far."""
    expired_bytes: int

    @property
    def write_amplification(self) -> float:
        """Write amplification since the start."""
        return 1 + self.compacted_bytes / max(1, self.ingested_bytes)


class Peaks(Struct, kw_only=True):
    """Peaks over all flushes, not just samples."""

    flushes: int = 0
    slow: int = 0
    """Flushes at which writers should slow down."""
    stop: int = 0
    """Flushes at which writers should stop."""
    level0_runs: int = 0
    score: float = 0.0
    pending_bytes: int = 0
    compactions: int = 0
    trivial_moves: int = 0
    largest_compaction_bytes: int = 0

    def flushed(self, debt: Debt) -> None:
        self.flushes += 1
        self.slow += debt.score >= SLOW_SCORE
        self.stop += debt.pressure is Pressure.STOP
        self.level0_runs = max(self.level0_runs, debt.level0_runs)
        self.score = max(self.score, debt.score)
        self.pending_bytes = max(self.pending_bytes, debt.pending_bytes)


class Result(Struct, frozen=True, kw_only=True):
    """One simulated shard; figures of the table are multiples of it."""

    shards: int
    workers: int
    """Workers of the shard."""
    samples: Sequence[ShardSample]
    peaks: Peaks
    gave_up: bool
    """Whether the simulation ended early because of excessive debt."""

    @property
    def last(self) -> ShardSample:
        return self.samples[-1]

    @property
    def has_kept_up(self) -> bool:
        """Whether no writer had to wait."""
        return not self.peaks.stop and not self.gave_up

    @property
    def read_amplification(self) -> tuple[float, float]:
        """Mean and maximum read amplification over all samples."""
        values = [sample.read_amplification for sample in self.samples[1:]]
        return sum(values) / len(values), max(values)

    @property
    def second_half(self) -> tuple[ShardSample, ShardSample]:
        """First and last sample of the second half."""
        half = self.last.seconds / 2
        return min(self.samples, key=lambda sample: abs(sample.seconds - half)), self.last

    @property
    def late_write_amplification(self) -> float:
        """Write amplification of the second half, past the cheap start of a new table."""
        return write_amplification(*self.second_half)

    @property
    def compaction_bytes_per_second(self) -> float:
        """Compaction write rate of the second half; the read rate is the same."""
        start, end = self.second_half
        return (end.compacted_bytes - start.compacted_bytes) / (end.seconds - start.seconds)

    @property
    def worker_use(self) -> float:
        """Fraction of the second half in which workers were busy."""
        return worker_use(*self.second_half, self.workers)

    def points(self, count: int) -> list[tuple[ShardSample, ShardSample]]:
        """Returns `count` evenly spread samples, each with its predecessor."""
        last = len(self.samples) - 1
        picked = sorted({round(last * i / count) for i in range(count + 1)})
        return [(self.samples[a], self.samples[b]) for a, b in itertools.pairwise(picked)]

    def to_json(self) -> dict[str, Any]:
        mean_read, max_read = self.read_amplification
        return {
            "kept_up": self.has_kept_up,
            "gave_up": self.gave_up,
            "seconds": round(self.last.seconds, 3),
            "write_amplification": round(self.last.write_amplification, 3),
            "late_write_amplification": round(self.late_write_amplification, 3),
            "mean_read_amplification": round(mean_read, 3),
            "max_read_amplification": round(max_read, 3),
            "max_level0_runs": self.peaks.level0_runs,
            "max_debt_score": round(self.peaks.score, 3),
            "max_pending_bytes": self.peaks.pending_bytes * self.shards,
            "slow_share": round(self.peaks.slow / max(1, self.peaks.flushes), 4),
            "stop_share": round(self.peaks.stop / max(1, self.peaks.flushes), 4),
            "worker_use": round(self.worker_use, 4),
            "compaction_bytes_per_second": round(self.compaction_bytes_per_second * self.shards),
            "fragments": self.last.fragments * self.shards,
            "compactions": self.peaks.compactions * self.shards,
            "trivial_moves": self.peaks.trivial_moves * self.shards,
            "largest_compaction_bytes": self.peaks.largest_compaction_bytes,
            "shards": self.shards,
            "samples_of_one_shard": [_sample_json(sample) for sample in self.samples],
        }


def write_amplification(start: ShardSample, end: ShardSample) -> float:
    """Returns the bytes written per byte ingested between two samples."""
    ingested = end.ingested_bytes - start.ingested_bytes
    return 1 + (end.compacted_bytes - start.compacted_bytes) / max(1, ingested)


def worker_use(start: ShardSample, end: ShardSample, workers: int) -> float:
    """Returns the fraction of time between two samples in which workers were busy."""
    seconds = (end.seconds - start.seconds) * workers
    return (end.busy_seconds - start.busy_seconds) / seconds if seconds else 0.0


def _sample_json(sample: ShardSample) -> dict[str, Any]:
    return {
        **plain_dict(sample),
        "level_bytes": {str(level): size for level, size in sorted(sample.level_bytes.items())},
        "debt": sample.debt.to_json(),
        "write_amplification": round(sample.write_amplification, 3),
    }
