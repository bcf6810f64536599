"""Plans what a driver would decide next, and keeps what the plan was made of."""

from __future__ import annotations

from dataclasses import dataclass

from compactor.compaction.driver import Driver
from compactor.compaction.plan_report import PlannedCompaction, PlannedMove, PlanReport
from compactor.planner.debt import debt_of
from compactor.planner.estimate import estimate
from compactor.planner.shape import memory_plan
from compactor.planner.spec import CompactionPlan
from compactor.resources.merge_plan import MergePlan
from compactor.settings.compaction import CompactionSettings, Policy
from compactor.stores.local import is_on_local_disk
from compactor.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plan for a snapshot, and true if anything is due."""

    snapshot: Snapshot
    policy: Policy
    settings: CompactionSettings
    plan: CompactionPlan
    lease_unix_ms: int
    """The time by which leases expire."""
    are_local: bool
    """Whether tasks can read inputs again from local disk without a request."""

    def __bool__(self) -> bool:
        return bool(self.plan)

    def report(self) -> PlanReport:
        """Returns the plan for users, with what each compaction is expected to cost."""
        snapshot, plan = self.snapshot, self.plan
        return PlanReport(
            version=snapshot.version,
            debt=debt_of(snapshot, self.policy),
            compactions=tuple(
                PlannedCompaction(
                    inputs=tuple(entry.key for entry in spec.inputs),
                    output_level=spec.output_level,
                    reason=spec.reason,
                    priority=spec.priority,
                    window=spec.window,
                    rewrite_ratio=spec.rewrite_ratio,
                    predicted=estimate(spec.inputs, spec.output_level, self.settings, snapshot),
                )
                for spec in plan.specs
            ),
            trivial_moves=tuple(
                PlannedMove(tuple(e.key for e in move.entries), move.output_level, move.reason)
                for move in plan.trivial_moves
            ),
            expired=tuple(entry.key for entry in plan.expiry.entries),
            held_up=(*plan.blocked, *plan.refused),
        )

    def memory_plans(self) -> list[MergePlan]:
        """Returns how the task of each compaction will use memory, stage by stage."""
        return [
            memory_plan(spec.inputs, self.snapshot.table, self.settings, are_local=self.are_local)
            for spec in self.plan.specs
        ]


def plan_next(driver: Driver, snapshot: Snapshot) -> Planned:
    """Returns what the driver would decide on that snapshot. Makes no request."""
    return Planned(
        snapshot=snapshot,
        policy=driver.policy_for(snapshot),
        settings=driver.settings_for(snapshot),
        plan=driver.plan(snapshot),
        lease_unix_ms=driver.log.lease_unix_ms(),
        are_local=is_on_local_disk(driver.log.store),
    )
