"""Compaction debt: how far compactions lag behind writers, and what writers should do about it.

The model follows RocksDB's write stall conditions: runs at level 0, and bytes waiting for compaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from compactor.planner.tree_shape import TreeShape, shapes
from compactor.settings.compaction import Policy, Strategy
from compactor.settings.properties import tuned
from compactor.table.snapshot import Snapshot

SLOW_SCORE: Final = 0.5


class Pressure(StrEnum):
    HEALTHY = "healthy"
    SLOW = "slow"
    """Writers should pause between commits."""
    STOP = "stop"
    """Writers should wait."""


class Debt(Struct, frozen=True):
    """The debt of a table: from `SLOW_SCORE` writers should slow down, from a score of 1 they should stop."""

    score: float
    level0_runs: int
    """Sorted runs of the time window that has most."""
    pending_bytes: int
    """Bytes to write until every level is within its target."""

    @property
    def pressure(self) -> Pressure:
        if self.score >= 1:
            return Pressure.STOP
        return Pressure.SLOW if self.score >= SLOW_SCORE else Pressure.HEALTHY

    def to_json(self) -> dict[str, Any]:
        return {
            "pressure": str(self.pressure),
            "score": round(self.score, 4),
            "level0_runs": self.level0_runs,
            "pending_bytes": self.pending_bytes,
        }


def compaction_debt(shapes: Iterable[TreeShape], policy: Policy) -> Debt:
    """Returns the debt of a table over all its time windows."""
    shapes = list(shapes)
    runs = max((shape.level0_runs for shape in shapes), default=0)
    pending = sum(_pending_bytes(shape, policy) for shape in shapes)
    return Debt(_score(runs, pending, policy), runs, pending)


def debt_of(snapshot: Snapshot, policy: Policy) -> Debt:
    """Returns the debt of a table at one version.

    What the policy was not told is taken from the table's properties. Raises `ConfigError` if they
    contradict it.
    """
    return compaction_debt(shapes(snapshot), tuned(policy, snapshot.properties))


def _score(runs: int, pending: int, policy: Policy) -> float:
    # The score is linear on both sides of `slow_runs`, where it is SLOW_SCORE.
    slow, stop = policy.slow_runs, policy.stop_runs
    if runs < slow:
        by_runs = SLOW_SCORE * runs / slow
    else:
        by_runs = SLOW_SCORE + (1 - SLOW_SCORE) * (runs - slow) / max(1, stop - slow)
    return max(by_runs, pending / policy.stop_pending_bytes)


def _pending_bytes(shape: TreeShape, policy: Policy) -> int:
    size = shape.level_bytes
    pending = 0
    stays = policy.strategy is Strategy.TIERED  # tiered data stays at level 0 for good
    if shape.level0_runs >= policy.level0_trigger_runs and not stays:
        pending += size[0] + min(size.get(1, 0), size[0])
    for level in sorted(size):
        excess = size[level] - policy.level_target_bytes(level) if level else 0
        if excess > 0:
            fan_out = size.get(level + 1, 0) / size[level]
            pending += round(excess * (1 + fan_out))
    return pending
