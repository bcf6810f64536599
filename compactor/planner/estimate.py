"""Estimates what a compaction will cost before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from compactor.common.plain_values import plain_dict
from compactor.planner.cost_model import BASE_BYTES, modelled_cost
from compactor.planner.experience import Experience
from compactor.planner.shape import memory_plan
from compactor.planner.spread import NOTHING, Spread, largest_of, sum_of
from compactor.resources.merge_plan import output_count
from compactor.settings.compaction import CompactionSettings
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot

_DIGITS: Final = 3


class Estimate(Struct, frozen=True, kw_only=True):
    """Predicted figures of one compaction, or of several."""

    gets: int = 0
    puts: int = 0
    """Objects written."""
    rows: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    resident_bytes: Spread = NOTHING
    """Peak of the resident memory of the largest task's process, with its libraries."""
    cpu_seconds: Spread = NOTHING
    """CPU time of all threads."""
    task_seconds: Spread = NOTHING

    def to_json(self) -> dict[str, Any]:
        return {
            **plain_dict(self),
            "resident_bytes": plain_dict(self.resident_bytes.rounded(0)),
            "cpu_seconds": plain_dict(self.cpu_seconds.rounded(_DIGITS)),
            "task_seconds": plain_dict(self.task_seconds.rounded(_DIGITS)),
        }


def estimate(
    inputs: Sequence[FragmentEntry],
    output_level: int,
    settings: CompactionSettings,
    snapshot: Snapshot,
    base_bytes: int = BASE_BYTES,
) -> Estimate:
    """Estimates by the statistics of the inputs, and by what the table's compactions cost so far.

    base_bytes: the resident set of the process when the compaction begins.
    """
    table = snapshot.table
    cost = modelled_cost(inputs, output_level, table, settings)
    experience = Experience.of(snapshot.measured, cost)
    rows = sum(entry.rows for entry in inputs)
    bytes_in = sum(entry.size_bytes for entry in inputs)
    outputs = output_count(rows, bytes_in, settings.target_fragment_bytes)
    plan = memory_plan(inputs, table, settings)
    bound = sum(stage.memory_bytes for stage in plan.stages)
    return Estimate(
        gets=len(inputs),
        puts=outputs + bool(table.skips.columns),
        rows=rows,
        bytes_in=bytes_in,
        bytes_out=experience.merged_bytes_out(cost, [entry.live_rows for entry in inputs])
        if table.rows.merges
        else experience.bytes_out(cost),
        resident_bytes=experience.resident_bytes(
            cost, base_bytes, min(settings.memory_limit_bytes, bound)
        ),
        cpu_seconds=experience.cpu_seconds(cost),
        task_seconds=experience.seconds(cost),
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
        resident_bytes=largest_of(e.resident_bytes for e in estimates),
        cpu_seconds=sum_of(e.cpu_seconds for e in estimates),
        task_seconds=sum_of(e.task_seconds for e in estimates),
    )
