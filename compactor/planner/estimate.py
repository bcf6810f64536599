"""What a compaction will cost, said before it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from compactor.config import CompactionSettings
from compactor.planner.limits import MIN_WINDOW_BYTES
from compactor.planner.spec import CompactionSpec
from compactor.planner.tree import Item, sorted_runs
from compactor.table.snapshot import Totals

DEFAULT_RAW_BYTES_PER_SECOND: Final = 150 << 20
"""Decoded bytes one task goes through in a second, until the table has compactions of its own to go by."""
_BASE_BYTES: Final = 220 << 20
"""Resident memory of a task's process with its libraries, before it reads anything."""
_UPLOAD_BYTES: Final = 24 << 20
"""Parts of one output on their way to S3."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Figures of one compaction, or of several."""

    gets: int = 0
    puts: int = 0
    """Objects written."""
    rows: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    memory_bytes: int = 0
    """Peak of the largest task."""
    task_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "task_seconds": round(self.task_seconds, 3)}


def estimate(spec: CompactionSpec, settings: CompactionSettings, totals: Totals) -> Estimate:
    """By the inputs' statistics, and by how fast the table's compactions went so far."""
    items = [Item(entry, (), ()) for entry in spec.inputs]
    size_bytes = spec.size_bytes
    puts = max(1, round(size_bytes / settings.target_fragment_bytes))
    speed = totals.raw_bytes_per_task_second or DEFAULT_RAW_BYTES_PER_SECOND
    windows = max(settings.prefetch_bytes, len(items) * MIN_WINDOW_BYTES)
    chunks = sum(run.peak_chunk_bytes for run in sorted_runs(items))
    return Estimate(
        gets=len(items),
        puts=puts,
        rows=spec.rows,
        bytes_in=size_bytes,
        bytes_out=size_bytes,
        memory_bytes=_BASE_BYTES
        + min(windows, size_bytes)
        + 2 * chunks
        + min(settings.scratch_memory_bytes, 16 * spec.rows)
        + puts * min(_UPLOAD_BYTES, size_bytes),
        task_seconds=sum(entry.raw_bytes for entry in spec.inputs) / speed,
    )


def total(estimates: Iterable[Estimate]) -> Estimate:
    """Sums; of the memory, the greatest."""
    estimates = list(estimates)
    return Estimate(
        gets=sum(e.gets for e in estimates),
        puts=sum(e.puts for e in estimates),
        rows=sum(e.rows for e in estimates),
        bytes_in=sum(e.bytes_in for e in estimates),
        bytes_out=sum(e.bytes_out for e in estimates),
        memory_bytes=max((e.memory_bytes for e in estimates), default=0),
        task_seconds=sum(e.task_seconds for e in estimates),
    )
