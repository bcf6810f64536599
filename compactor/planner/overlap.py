"""Groups of overlapping fragments, and what to merge of them. Pure: snapshot in, plan out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from compactor.planner.spec import CompactionPlan, CompactionSpec
from compactor.snapshot import FragmentEntry, Snapshot
from format.keys import KeyComparator

Group = list[FragmentEntry]

OUTPUT_LEVEL = 1


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """What one compaction may take on."""

    target_fragment_bytes: int
    max_fan_in: int
    merge_memory_bytes: int
    """Bound on the sum of the inputs' heaviest chunks."""


def plan_overlapping(snapshot: Snapshot, limits: PlanLimits) -> CompactionPlan:
    """Merges every group of overlapping fragments; leaves the rest alone."""
    if snapshot.version == 0:
        return CompactionPlan(())
    groups = overlap_groups(snapshot.fragments.values(), snapshot.table.comparator())
    return _plan([group for group in groups if len(group) > 1], limits)


def plan_full(snapshot: Snapshot, limits: PlanLimits) -> CompactionPlan:
    """Makes the table one sorted run: overlapping groups, and small neighbours together."""
    if snapshot.version == 0:
        return CompactionPlan(())
    groups = overlap_groups(snapshot.fragments.values(), snapshot.table.comparator())
    joined = join_small_neighbours(groups, limits.target_fragment_bytes)
    return _plan([group for group in joined if len(group) > 1], limits)


def overlap_groups(entries: Iterable[FragmentEntry], compare: KeyComparator) -> list[Group]:
    """Connected groups of fragments by overlap of key ranges, in key order; each ordered by key.

    Ranges that only touch in one key overlap: equal keys belong into one fragment.
    """
    ranges = sorted(
        ((compare.key(e.first_key), e) for e in entries if e.rows), key=lambda pair: pair[0]
    )
    groups: list[Group] = []
    reach: tuple[Any, ...] = ()
    for lower, entry in ranges:
        upper = compare.upper(entry.last_key)
        if groups and lower <= reach:
            groups[-1].append(entry)
            reach = max(reach, upper)
        else:
            groups.append([entry])
            reach = upper
    return groups


def overlapping_pairs(entries: Iterable[FragmentEntry], compare: KeyComparator) -> int:
    """Pairs of fragments whose key ranges overlap: 0 for one sorted run."""
    ends: list[tuple[Any, ...]] = []
    pairs = 0
    for lower, entry in sorted(
        ((compare.key(e.first_key), e) for e in entries if e.rows), key=lambda pair: pair[0]
    ):
        ends = [end for end in ends if end >= lower]
        pairs += len(ends)
        ends.append(compare.upper(entry.last_key))
    return pairs


def join_small_neighbours(groups: Sequence[Group], target_bytes: int) -> list[Group]:
    """Neighbouring groups put together while they stay within `target_bytes`."""
    joined: list[Group] = []
    size = 0
    for group in groups:
        group_bytes = sum(entry.size_bytes for entry in group)
        if joined and size + group_bytes <= target_bytes:
            joined[-1] = joined[-1] + group
            size += group_bytes
        else:
            joined.append(list(group))
            size = group_bytes
    return joined


def _plan(groups: Iterable[Group], limits: PlanLimits) -> CompactionPlan:
    specs = [
        CompactionSpec(tuple(part), OUTPUT_LEVEL, index)
        for group in groups
        for index, part in enumerate(_passes(group, limits))
        if len(part) > 1
    ]
    return CompactionPlan(tuple(specs))


def _passes(group: Group, limits: PlanLimits) -> list[Group]:
    """The group in one piece, or, if that is too much at once, in pieces of neighbouring age.

    Only neighbours in age may be merged first: rows of equal keys keep their order then.
    """
    by_age = sorted(group, key=lambda entry: (entry.sequence, entry.key))
    parts: list[Group] = []
    memory = 0
    for entry in by_age:
        full = parts and (
            len(parts[-1]) >= limits.max_fan_in
            or (len(parts[-1]) >= 2 and memory + entry.peak_chunk_bytes > limits.merge_memory_bytes)
        )
        if not parts or full:
            parts.append([])
            memory = 0
        parts[-1].append(entry)
        memory += entry.peak_chunk_bytes
    return parts
