"""The stages of a task, stated once: the executor, `--explain` and reports use the same plan."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from msgspec import Struct


class Buffer(StrEnum):
    """The way in which a stage buffers data."""

    STREAMING = "streaming"
    """Bounded by settings, whatever the size of the input, because data soon leaves again."""
    MATERIALIZED = "materialized"
    """Grows with the input, because later stages need all of it; it spills."""


class MemoryStage(Struct, frozen=True, kw_only=True):
    """A stage and its limits."""

    name: str
    holds: str
    """What it holds, in words."""
    buffer: Buffer
    memory_bytes: int
    """The most memory that it is expected to reserve; together, stages stay below the limit by spilling."""
    disk_bytes: int = 0
    """The most bytes that it may put on local disk."""
    spill_priority: int | None = None
    """Lower priorities spill earlier; None means that it can't spill."""
    applies_back_pressure: bool = False
    """Whether it makes earlier stages wait while it is full."""

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": self.name,
            "buffer": str(self.buffer),
            "holds": self.holds,
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
            "spill_priority": self.spill_priority,
            "applies_back_pressure": self.applies_back_pressure,
        }


class StagePlan(Struct, frozen=True):
    """The stages of a task under one memory limit."""

    limit_bytes: int
    need_bytes: int
    """Least limit with which the task can do its work by spilling all it can."""
    stages: tuple[MemoryStage, ...]

    def __iter__(self) -> Iterator[MemoryStage]:
        return iter(self.stages)

    def __getitem__(self, name: str) -> MemoryStage:
        return next(stage for stage in self.stages if stage.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)
