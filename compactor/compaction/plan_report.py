"""Reports what would be compacted next to users and machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from compactor.common.plain_values import plain_dict
from compactor.planner.debt import Debt
from compactor.planner.estimate import Estimate, total


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCompaction:
    """A compaction that is due, with what it is expected to cost."""

    inputs: tuple[str, ...] = field(repr=False)
    """Keys of the fragments to merge, oldest first."""
    output_level: int
    reason: str
    priority: float
    """The compaction with the highest priority runs first."""
    window: int | None
    """Time window of the fragments; None in a table without windows."""
    rewrite_ratio: float
    """Bytes written per byte that gets to its level: what it adds to write amplification."""
    predicted: Estimate

    def to_json(self) -> dict[str, Any]:
        return {
            **plain_dict(self),
            "priority": round(self.priority, 3),
            "rewrite_ratio": round(self.rewrite_ratio, 3),
            "predicted": self.predicted.to_json(),
        }


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """Fragments that overlap nothing on the way down: only the log changes."""

    fragments: tuple[str, ...] = field(repr=False)
    output_level: int
    reason: str


class PlanReport(Struct, frozen=True, kw_only=True):
    """What is due in a table, and true if anything is; `to_json` is the CLI's `--json` object."""

    version: int
    debt: Debt
    compactions: tuple[PlannedCompaction, ...]
    """By priority."""
    trivial_moves: tuple[PlannedMove, ...]
    expired: tuple[str, ...]
    """Keys of the fragments of time windows past retention, which are dropped."""
    held_up: tuple[str, ...]
    """One line for each compaction that waits for another or for a fragment in quarantine, or that the memory
    limit does not allow."""

    def __bool__(self) -> bool:
        return bool(self.compactions or self.trivial_moves or self.expired)

    @property
    def predicted(self) -> Estimate:
        """Sums over the compactions; the memory is that of the largest."""
        return total(compaction.predicted for compaction in self.compactions)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "debt": self.debt.to_json(),
            "compactions": [compaction.to_json() for compaction in self.compactions],
            "trivial_moves": [plain_dict(move) for move in self.trivial_moves],
            "expired": list(self.expired),
            "held_up": list(self.held_up),
            "predicted": self.predicted.to_json(),
        }
