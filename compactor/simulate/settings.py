"""Settings of a simulation: ingest rate, keys, time windows and workers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from compactor.common.counts import counted
from compactor.errors import ConfigError
from compactor.settings.fields import Bytes, Rate, Seconds, WindowSeconds, Written
from compactor.settings.model import Settings
from compactor.table.metadata import TimeWindows

_WORKERS_PER_SHARD: Final = 8
FLUSHES_PER_SHARD: Final = 25_000
"""Flushes of a shard that simulate in a minute or two."""


class Spread(StrEnum):
    """How flushes spread over the key space."""

    WHOLE = "whole"
    """Each flush covers all keys."""
    RANDOM = "random"
    """Each flush covers a randomly placed key range."""
    APPEND = "append"
    """Each flush has greater keys than the one before."""


@dataclass(frozen=True, slots=True)
class Locality:
    """The key range of a flush."""

    spread: Spread = Spread.WHOLE
    share: float = 1.0
    """Fraction of the key space, for `Spread.RANDOM`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses `whole`, `random:0.01` or `append`. Raises `ValueError` with advice."""
        name, colon, share = text.partition(":")
        if name in set(map(str, Spread)) and bool(colon) == (name == Spread.RANDOM):
            try:
                part = float(share) if colon else 1.0
            except ValueError:
                part = math.nan
            if 0 < part <= 1:
                return cls(Spread(name), part)
        raise ValueError(
            f"{text!r} is not a locality: use whole, random:0.01 (a share of the keys, above 0 and at "
            "most 1) or append"
        )

    def __str__(self) -> str:
        return f"random:{self.share:g}" if self.spread is Spread.RANDOM else str(self.spread)


def _locality(given: object) -> object:
    return Locality.parse(given) if isinstance(given, str) else given


class SimulationSettings(Settings):
    """Settings of a simulation. Rates and workers are for all shards; one shard is simulated."""

    ingest_bytes_per_second: Rate = Field(
        default=10 << 30, ge=1, description="Stored bytes written by all writers of all shards."
    )
    duration_seconds: Seconds = Field(default=14 * 86_400.0, description="Time to simulate.")
    flush_bytes: Bytes = Field(
        default=256 << 20,
        ge=1,
        description="Size of a flush, which is one level-0 fragment; varies by a tenth.",
    )
    locality: Annotated[Locality, BeforeValidator(_locality), Written("WHERE")] = Field(
        default=Locality(),
        description="Keys of a flush. whole: all keys. random:FRACTION: a randomly placed range. append: "
        "greater than all before, as with time first in the key.",
    )
    window_seconds: WindowSeconds | None = Field(
        default=None,
        description="Length of time windows; a fragment has rows of one window only. Default: no windows.",
    )
    retention_seconds: Seconds | None = Field(
        default=None, description="Drop windows that ended longer ago. Default: keep all."
    )
    late_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Fraction of each flush that belongs to the previous window.",
    )
    shards: int = Field(
        default_factory=lambda given: shards_for(
            given["ingest_bytes_per_second"], given["duration_seconds"], given["flush_bytes"]
        ),
        ge=1,
        description="Tables that share rate and workers equally; one of them is simulated. By default there "
        f"are enough that one has at most {FLUSHES_PER_SHARD:,} flushes.",
    )
    workers: int = Field(
        default_factory=lambda given: _WORKERS_PER_SHARD * given["shards"],
        ge=1,
        description="Most compactions at a time, all shards together. By default there are "
        f"{_WORKERS_PER_SHARD} a shard.",
    )
    task_bytes_per_second: Rate = Field(
        default=60 << 20,
        ge=1,
        description="Stored bytes that one compaction processes in a second. An assumption: `make bench` "
        "measures it (bytes of its fragments by seconds).",
    )
    seed: int = Field(
        default=0, description="Seed of the random numbers; the same seed gives the same result."
    )
    samples: int = 480
    give_up_factor: int = 10
    """End early at this many times the level-0 runs at which writers stop: the table would not recover, and
    the simulation would slow down."""
    key_space: int = 1 << 40

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.workers < self.shards:
            raise ConfigError(
                f"{counted(self.workers, 'worker')} for {counted(self.shards, 'shard')}: give at "
                "least one for each shard"
            )
        if self.retention_seconds is not None and self.window_seconds is None:
            raise ConfigError("a retention drops whole time windows: name their length too")
        if self.late_share and self.window_seconds is None:
            raise ConfigError(
                "a late share belongs to the previous time window: name their length too"
            )
        if self.duration_seconds * self.shard_bytes_per_second < self.flush_bytes:
            raise ConfigError("not a single flush in that time: simulate longer, or flush less")
        return self

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
        kept = self.retention_seconds
        return TimeWindows(
            "time", round(self.window_seconds), None if kept is None else round(kept)
        )


def shards_for(bytes_per_second: int, duration_seconds: float, flush_bytes: int) -> int:
    """Returns a power of two, so that a shard has at most `FLUSHES_PER_SHARD` flushes."""
    flushes = bytes_per_second * duration_seconds / flush_bytes
    return int(2 ** max(0, math.ceil(math.log2(max(1.0, flushes / FLUSHES_PER_SHARD)))))
