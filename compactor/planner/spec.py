"""What a planner decides: compactions to run. Pure values that travel to the tasks as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compactor.snapshot import FragmentEntry

_ROW_GROUPS_PER_FRAGMENT: Final = 4


@dataclass(frozen=True, slots=True)
class CompactionSpec:
    """Fragments to merge into disjoint ones. A wish: a compaction once it has an id."""

    inputs: tuple[FragmentEntry, ...]
    """Oldest first: the order among equal keys."""
    output_level: int
    part: int = 0
    """Specs of one plan with the same part give disjoint outputs: one sorted run."""

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.inputs)

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.inputs)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    specs: tuple[CompactionSpec, ...]

    def __bool__(self) -> bool:
        return bool(self.specs)


def rows_per_group(
    entries: Sequence[FragmentEntry],
    *,
    target_bytes: int,
    target_fragment_bytes: int,
    max_rows: int,
    overshoot_factor: int,
) -> int:
    """Rows per output row group that keep the heaviest column's chunk near `target_bytes`.

    By the inputs' statistics: the average of each column over all inputs, but no more than the
    densest chunk of any input allows without an overshoot; and no more than a quarter
    of a fragment of `target_fragment_bytes`, since fragments end where row groups do.
    """
    rows = max(1, sum(entry.rows for entry in entries))
    names = {name for entry in entries for name in entry.columns}
    heaviest = max(
        (sum(e.columns[n].raw for e in entries if n in e.columns) for n in names), default=0
    )
    average = max(1.0, heaviest / rows)
    peak = max((entry.peak_row_bytes for entry in entries), default=0)
    by_average = int(target_bytes / average)
    by_peak = overshoot_factor * target_bytes // max(1, peak)
    stored = max(1, sum(entry.size_bytes for entry in entries))
    by_fragment = target_fragment_bytes * rows // (stored * _ROW_GROUPS_PER_FRAGMENT)
    return max(1, min(max_rows, by_average, by_peak, by_fragment))
