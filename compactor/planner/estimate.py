"""Estimates what a compaction will cost before it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from compactor.planner.shape import memory_plan
from compactor.planner.spec import CompactionSpec
from compactor.settings.compaction import CompactionSettings
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Totals

DEFAULT_RAW_BYTES_PER_SECOND: Final = 150 << 20
"""Decoded bytes that one task processes per second, until the table has compactions to measure."""
_BASE_BYTES: Final = 220 << 20
"""Resident memory of a task's process with its libraries, before it reads anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Predicted figures of one compaction, or of several."""

    gets: int = 0
    puts: int = 0
    """Objects written."""
    rows: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    max_rss_bytes: int = 0
    """Bound on the resident memory of the largest task's process: libraries and budget."""
    task_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "task_seconds": round(self.task_seconds, 3)}


def estimate(
    spec: CompactionSpec, settings: CompactionSettings, totals: Totals, metadata: TableMetadata
) -> Estimate:
    """Estimates from the inputs' statistics and the speed of the table's compactions so far."""
    plan = memory_plan(spec.inputs, metadata, settings)
    size_bytes = spec.size_bytes
    puts = max(1, round(size_bytes / settings.target_fragment_bytes))
    speed = totals.raw_bytes_per_task_second or DEFAULT_RAW_BYTES_PER_SECOND
    return Estimate(
        gets=len(spec.inputs),
        puts=puts,
        rows=spec.rows,
        bytes_in=size_bytes,
        bytes_out=size_bytes,
        max_rss_bytes=_BASE_BYTES
        + min(settings.memory_limit_bytes, sum(stage.memory_bytes for stage in plan.stages)),
        task_seconds=sum(entry.raw_bytes for entry in spec.inputs) / speed,
    )


def total(estimates: Iterable[Estimate]) -> Estimate:
    """Returns the sums; for memory, the largest."""
    estimates = list(estimates)
    return Estimate(
        gets=sum(e.gets for e in estimates),
        puts=sum(e.puts for e in estimates),
        rows=sum(e.rows for e in estimates),
        bytes_in=sum(e.bytes_in for e in estimates),
        bytes_out=sum(e.bytes_out for e in estimates),
        max_rss_bytes=max((e.max_rss_bytes for e in estimates), default=0),
        task_seconds=sum(e.task_seconds for e in estimates),
    )
