"""What the stages of a run are, said once: the executor, `--explain` and reports read the same plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Buffer(StrEnum):
    """How a stage holds data."""

    STREAMING = "streaming"
    """Bounded by settings, whatever the size of the input: what comes in leaves again soon."""
    MATERIALIZED = "materialized"
    """Grows with the input, since all of it is needed before what follows can end: it spills."""


@dataclass(frozen=True, slots=True)
class MemoryStage:
    """One stage of a run and what it may hold."""

    name: str
    holds: str
    """For people."""
    buffer: Buffer
    memory_bytes: int
    """Most it is expected to be charged for; together the stages stay below the limit by spilling."""
    disk_bytes: int = 0
    """Most it may put on local disk."""
    spill_priority: int | None = None
    """Lower spills earlier; None: what it holds can't be spilled."""
    applies_back_pressure: bool = False
    """Whether it makes what comes before it wait while it is full."""

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


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The stages of a run under one memory limit."""

    limit_bytes: int
    need_bytes: int
    """The least limit with which the run can do its work, everything spilled that can be."""
    stages: tuple[MemoryStage, ...]

    def __iter__(self) -> Iterator[MemoryStage]:
        return iter(self.stages)

    def __getitem__(self, name: str) -> MemoryStage:
        return next(stage for stage in self.stages if stage.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)
