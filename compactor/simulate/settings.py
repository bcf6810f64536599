"""Settings of a simulation: ingest rate, keys, time windows and workers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from compactor.errors import ConfigError
from compactor.table.metadata import TimeWindows

MIB: Final = 1 << 20
DAY_SECONDS: Final = 86_400
DEFAULT_WORKERS_PER_SHARD: Final = 8
FLUSHES_PER_SHARD: Final = 25_000
"""Number of flushes of one shard that a minute or two simulates."""


class Spread(StrEnum):
    """The spread of the flushes' keys over the key space."""

    WHOLE = "whole"
    """Every flush covers all keys."""
    RANDOM = "random"
    """Every flush covers a range of keys at a random place."""
    APPEND = "append"
    """Every flush has greater keys than the previous one."""


@dataclass(frozen=True, slots=True)
class Locality:
    """The keys that a flush covers."""

    spread: Spread = Spread.WHOLE
    share: float = 1.0
    """Share of the key space, for `Spread.RANDOM`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses `whole`, `random:0.01` or `append`. Raises `ConfigError`."""
        name, colon, share = text.partition(":")
        if name in set(map(str, Spread)) and bool(colon) == (name == Spread.RANDOM):
            try:
                part = float(share) if colon else 1.0
            except ValueError:
                part = math.nan
            if 0 < part <= 1:
                return cls(Spread(name), part)
        raise ConfigError(
            f"{text!r} is not a locality: use whole, random:0.01 (a share of the keys, above 0 and at "
            "most 1) or append"
        )

    def __str__(self) -> str:
        return f"random:{self.share:g}" if self.spread is Spread.RANDOM else str(self.spread)


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Settings of a simulation. Rates and workers are those of all shards; one shard is simulated."""

    ingest_bytes_per_second: int = 10 << 30
    duration_seconds: float = 14 * DAY_SECONDS
    flush_bytes: int = 256 * MIB
    shards: int = 1
    workers: int = DEFAULT_WORKERS_PER_SHARD
    task_bytes_per_second: int = 60 * MIB
    """Stored bytes that one compaction processes in a second: an assumption, which `make bench` measures."""
    locality: Locality = Locality()
    window_seconds: int | None = None
    retention_seconds: int | None = None
    late_share: float = 0.0
    """Share of every flush that belongs to the previous time window."""
    seed: int = 0
    samples: int = 480
    give_up_factor: int = 10
    """The simulation ends early at this many times the level-0 runs at which writers stop: it would not
    recover, and take ever longer."""
    key_space: int = 1 << 40

    def __post_init__(self) -> None:
        if self.workers < self.shards:
            raise ConfigError(
                f"{self.workers} workers for {self.shards} shards: give at least one for each shard"
            )
        if self.retention_seconds is not None and self.window_seconds is None:
            raise ConfigError("a retention drops whole time windows: name their length too")
        if self.late_share and self.window_seconds is None:
            raise ConfigError(
                "a late share belongs to the previous time window: name their length too"
            )
        if not 0 <= self.late_share < 1:
            raise ConfigError(
                f"the late share must be at least 0 and below 1, not {self.late_share}"
            )
        if self.duration_seconds * self.shard_bytes_per_second < self.flush_bytes:
            raise ConfigError("not a single flush in that time: simulate longer, or flush less")

    @property
    def shard_bytes_per_second(self) -> float:
        return self.ingest_bytes_per_second / self.shards

    @property
    def shard_workers(self) -> int:
        return self.workers // self.shards

    @property
    def windows(self) -> TimeWindows | None:
        if self.window_seconds is None:
            return None
        return TimeWindows("time", self.window_seconds, self.retention_seconds)


def shards_for(bytes_per_second: int, duration_seconds: float, flush_bytes: int) -> int:
    """Returns a power of two such that one shard has at most `FLUSHES_PER_SHARD` flushes."""
    flushes = bytes_per_second * duration_seconds / flush_bytes
    return int(2 ** max(0, math.ceil(math.log2(max(1.0, flushes / FLUSHES_PER_SHARD)))))
