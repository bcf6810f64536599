"""Eager strategies, which leave nothing for later: merge all that overlaps, or make one sorted run."""

from __future__ import annotations

from collections.abc import Sequence

from compactor.common.counts import counted
from compactor.planner.draft import Draft
from compactor.planner.limits import Limits
from compactor.planner.spec import CompactionPlan
from compactor.planner.tree import Item, Tree, components, sorted_runs
from compactor.settings.compaction import Policy


def plan_overlapping(
    tree: Tree, policy: Policy, limits: Limits, now_unix_ms: int
) -> CompactionPlan:
    """Merges every group of overlapping fragments, and leaves the rest alone.

    Outputs overlap nothing, or are fewer runs than before, so the plans come to an end.
    """
    draft = Draft(tree, limits)
    for group in components(tree.items()):
        runs = len(sorted_runs(group))
        if runs > 1:
            draft.merge_in_rounds(
                group,
                max(1, *(item.entry.level for item in group)),
                reason=f"{counted(len(group), 'fragment')} of {counted(runs, 'run')} overlap",
                priority=float(runs),
            )
    draft.rewrite_garbage(policy.max_deleted_share, now_unix_ms, policy.ttl_slack)
    return draft.plan()


def plan_full(tree: Tree, limits: Limits, now_unix_ms: int) -> CompactionPlan:
    """Makes the tree one sorted run without deleted or expired rows.

    Merges overlapping groups, and small neighbours together.
    """
    draft = Draft(tree, limits)
    bottom = max(1, tree.deepest)
    groups = join_small_neighbours(components(tree.items()), limits.target_fragment_bytes)
    for group in groups:
        if len(group) > 1:
            draft.merge_in_rounds(
                group,
                bottom,
                reason=f"full: {counted(len(group), 'fragment')} into one sorted run",
                priority=float(len(group)),
            )
        elif (garbage := draft.all_garbage(group[0], now_unix_ms)) is not None:
            draft.merge(group, bottom, reason=f"full: {garbage}", priority=1.0)
        elif group[0].entry.level != bottom:
            draft.move(group, bottom, reason="full: overlaps nothing")
    return draft.plan()


def join_small_neighbours(groups: Sequence[Sequence[Item]], target_bytes: int) -> list[list[Item]]:
    """Returns the groups, with neighbours joined while they stay within `target_bytes`."""
    joined: list[list[Item]] = []
    size = 0
    for group in groups:
        group_bytes = sum(item.entry.size_bytes for item in group)
        if joined and size + group_bytes <= target_bytes:
            joined[-1].extend(group)
            size += group_bytes
        else:
            joined.append(list(group))
            size = group_bytes
    return joined
