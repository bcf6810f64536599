"""Reports what a driver would decide next to users and machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from compactor.compaction.driver import Driver
from compactor.planner.debt import Debt, debt_of
from compactor.planner.estimate import Estimate, estimate, total
from compactor.planner.shape import memory_plan
from compactor.planner.spec import CompactionPlan
from compactor.resources.merge_plan import MergePlan
from compactor.settings.compaction import CompactionSettings, Policy
from compactor.stores.local import is_on_local_disk
from compactor.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What is due in a table, and true if anything is; `to_json` is the CLI's `--json` object."""

    version: int
    debt: Debt
    plan: CompactionPlan = field(repr=False)
    estimates: tuple[Estimate, ...] = field(repr=False)
    """The predicted figures of each compaction of the plan."""
    snapshot: Snapshot = field(repr=False)
    policy: Policy = field(repr=False)
    settings: CompactionSettings = field(repr=False)
    lease_unix_ms: int = field(repr=False)
    """The time by which leases expire."""
    are_local: bool = field(repr=False)
    """Whether tasks can read inputs again from local disk without a request."""

    def __bool__(self) -> bool:
        return bool(self.plan)

    @property
    def predicted(self) -> Estimate:
        return total(self.estimates)

    def memory_plans(self) -> list[MergePlan]:
        """Returns how the task of each compaction will use memory, stage by stage."""
        return [
            memory_plan(spec.inputs, self.snapshot.table, self.settings, are_local=self.are_local)
            for spec in self.plan.specs
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "debt": self.debt.to_json(),
            "compactions": [
                {
                    "reason": spec.reason,
                    "priority": round(spec.priority, 3),
                    "window": spec.window,
                    "output_level": spec.output_level,
                    "rewrite_ratio": round(spec.rewrite_ratio, 3),
                    "inputs": [entry.key for entry in spec.inputs],
                    "predicted": predicted.to_json(),
                }
                for spec, predicted in zip(self.plan.specs, self.estimates, strict=True)
            ],
            "trivial_moves": [
                {
                    "reason": move.reason,
                    "output_level": move.output_level,
                    "fragments": [entry.key for entry in move.entries],
                }
                for move in self.plan.trivial_moves
            ],
            "expired": [entry.key for entry in self.plan.expiry.entries],
            "blocked": list(self.plan.blocked),
            "predicted": self.predicted.to_json(),
        }


def plan_report(driver: Driver, snapshot: Snapshot) -> PlanReport:
    """Returns what the driver would decide on that snapshot. Makes no request."""
    plan, settings = driver.plan(snapshot), driver.compaction_settings
    return PlanReport(
        snapshot.version,
        debt_of(snapshot, driver.policy),
        plan,
        tuple(estimate(spec, settings, snapshot.totals, snapshot.table) for spec in plan.specs),
        snapshot,
        driver.policy,
        settings,
        driver.log.lease_unix_ms(),
        is_on_local_disk(driver.log.store),
    )
