"""Plans what should be done to a snapshot. Pure: the caller brings time and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from compactor.planner.eager import plan_full, plan_overlapping
from compactor.planner.leveled import plan_leveled
from compactor.planner.limits import Limits
from compactor.planner.shape import key_widths
from compactor.planner.spec import CompactionPlan, CompactionSpec, Expiry
from compactor.planner.tree import Tree, forest
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.table.snapshot import Snapshot


def plan_compactions(
    snapshot: Snapshot, policy: Policy, settings: CompactionSettings, now_unix_ms: int
) -> CompactionPlan:
    """Returns what is due on this snapshot; falsy if nothing is.

    Leases of the snapshot count as compactions in flight, expired or not. No fragment is taken twice, and
    none in quarantine. Fragments of a time window past retention are dropped instead. Each time window is
    planned for itself, so nothing is merged across windows.
    """
    if snapshot.version == 0:
        return CompactionPlan()
    windows = snapshot.table.windows
    trees = forest(snapshot)
    expired = {window for window in trees if windows and windows.is_expired(window, now_unix_ms)}
    expiry = Expiry(tuple(i.entry for w in expired for i in trees.pop(w).items()))
    limits = Limits.of(settings, key_widths(snapshot.table))
    return replace(plan_trees(trees, policy, limits, now_unix_ms), expiry=expiry)


def plan_trees(
    trees: Mapping[int | None, Tree], policy: Policy, limits: Limits, now_unix_ms: int
) -> CompactionPlan:
    """Returns what is due in each of the trees, by priority over all of them."""
    plans = [_plan_tree(tree, policy, limits, now_unix_ms) for tree in trees.values()]
    return CompactionPlan(
        specs=by_priority(plans),
        trivial_moves=tuple(move for plan in plans for move in plan.trivial_moves),
        blocked=tuple(line for plan in plans for line in plan.blocked),
        refused=tuple(line for plan in plans for line in plan.refused),
        held=frozenset(key for plan in plans for key in plan.held),
    )


def by_priority(plans: Iterable[CompactionPlan]) -> tuple[CompactionSpec, ...]:
    """Returns the specs of several trees in the order in which they should begin."""
    specs = [spec for plan in plans for spec in plan.specs]
    # Small ones come first: they are the quickest way to fewer runs.
    return tuple(sorted(specs, key=lambda spec: (-spec.priority, spec.size_bytes)))


def _plan_tree(tree: Tree, policy: Policy, limits: Limits, now_unix_ms: int) -> CompactionPlan:
    match policy.strategy:
        case Strategy.FULL:
            return plan_full(tree, limits, now_unix_ms)
        case Strategy.OVERLAPPING:
            return plan_overlapping(tree, policy, limits, now_unix_ms)
        case Strategy.LEVELED | Strategy.TIERED:
            return plan_leveled(tree, policy, limits, now_unix_ms)
