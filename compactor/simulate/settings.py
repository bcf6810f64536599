"""What is simulated: an ingest rate, its keys and time windows, and the workers behind it."""

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
"""As many flushes of one shard are simulated in a minute or two."""


class Spread(StrEnum):
    WHOLE = "whole"
    """Every flush covers all keys."""
    RANDOM = "random"
    """Every flush covers a part of the keys, somewhere."""
    APPEND = "append"
    """Every flush has greater keys than the one before."""


@dataclass(frozen=True, slots=True)
class Locality:
    """Which keys a flush covers."""

    spread: Spread = Spread.WHOLE
    share: float = 1.0
    """Of the key space, for `Spread.RANDOM`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """`whole`, `random:0.01` or `append`. Raises `ConfigError`."""
        name, colon, share = text.partition(":")
        if name in set(map(str, Spread)) and bool(colon) == (name == Spread.RANDOM):
            try:
                part = float(share) if colon else 1.0
            except ValueError:
                part = math.nan
            if 0 < part <= 1:
                return cls(Spread(name), part)
        raise ConfigError(
            f"{text!r} is no locality: write whole, random:0.01 (a share of the keys, above 0 and at "
            "most 1) or append"
        )

    def __str__(self) -> str:
        return f"random:{self.share:g}" if self.spread is Spread.RANDOM else str(self.spread)


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Rates and workers are those of all shards together; one shard is simulated."""

    ingest_bytes_per_second: int = 10 << 30
    duration_seconds: float = 14 * DAY_SECONDS
    flush_bytes: int = 256 * MIB
    shards: int = 1
    workers: int = DEFAULT_WORKERS_PER_SHARD
    task_bytes_per_second: int = 60 * MIB
    """Stored bytes that one compaction goes through in a second: an assumption, `make bench` measures it."""
    locality: Locality = Locality()
    window_seconds: int | None = None
    retention_seconds: int | None = None
    late_share: float = 0.0
    """Of every flush, for the time window before the current one."""
    seed: int = 0
    samples: int = 480
    give_up_factor: int = 10
    """Times as many level-0 runs as should stop writers, at which the simulation ends early: it would
    not recover, and takes ever longer."""
    key_space: int = 1 << 40

    def __post_init__(self) -> None:
        if self.workers < self.shards:
            raise ConfigError(
                f"{self.workers} workers for {self.shards} shards: give at least one a shard"
            )
        if self.retention_seconds is not None and self.window_seconds is None:
            raise ConfigError("a retention needs a time window: whole windows are dropped")
        if self.late_share and self.window_seconds is None:
            raise ConfigError("a late share needs a time window to be late for")
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
    """A power of two, so that one shard has no more flushes than are simulated quickly."""
    flushes = bytes_per_second * duration_seconds / flush_bytes
    return int(2 ** max(0, math.ceil(math.log2(max(1.0, flushes / FLUSHES_PER_SHARD)))))
