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
    """Sorted runs merged at once."""
    merge_memory_bytes: int
    """Bound on the sum of the runs' heaviest chunks."""


def plan_overlapping(snapshot: Snapshot, limits: PlanLimits) -> CompactionPlan:
    """Merges every group of overlapping fragments; leaves the rest alone.

    The outputs of a plan overlap nothing, or are fewer runs than before: plans run out.
    """
    if snapshot.version == 0:
        return CompactionPlan(())
    groups = overlap_groups(snapshot.fragments.values(), snapshot.table.comparator())
    return _plan(groups, limits)


def plan_full(snapshot: Snapshot, limits: PlanLimits) -> CompactionPlan:
    """Makes the table one sorted run: overlapping groups, and small neighbours together."""
    if snapshot.version == 0:
        return CompactionPlan(())
    groups = overlap_groups(snapshot.fragments.values(), snapshot.table.comparator())
    joined = join_small_neighbours(groups, limits.target_fragment_bytes)
    return _plan(joined, limits)


def overlap_groups(entries: Iterable[FragmentEntry], compare: KeyComparator) -> list[Group]:
    """Connected groups of fragments by overlap of key ranges, in key order; each ordered by key.

    Ranges that only touch in one key overlap: equal keys belong into one fragment. Fragments of one
    sorted run are disjoint whatever their bounds say, which may be shortened.
    """
    open_groups: list[_OpenGroup] = []
    finished: list[_OpenGroup] = []
    for lower, entry in _by_lower_bound(entries, compare):
        upper = compare.upper(entry.last_key)
        mine = _OpenGroup([(lower, entry)], entry.run, upper)
        rest = []
        for group in open_groups:
            if group.overlaps(lower, entry.run):
                mine = group.united(mine)
            elif group.reach < lower:
                finished.append(group)
            else:
                rest.append(group)
        open_groups = [*rest, mine]
    groups = sorted(finished + open_groups, key=lambda group: _position(group.members[0]))
    return [[entry for _, entry in sorted(g.members, key=_position)] for g in groups]


Comparable = tuple[Any, ...]
_Member = tuple[Comparable, FragmentEntry]


class _OpenGroup:
    """A group the sweep may still add to. Knows how far it reaches, and how far without its run
    that reaches farthest: enough to tell whether another run's fragment would overlap."""

    def __init__(self, members: list[_Member], run: str, reach: Comparable) -> None:
        self.members = members
        self.run = run
        self.reach = reach
        self.other_reach: Comparable = ()

    def overlaps(self, lower: Comparable, run: str) -> bool:
        return lower <= (self.reach if run != self.run else self.other_reach)

    def united(self, other: _OpenGroup) -> _OpenGroup:
        first, second = sorted((self, other), key=lambda group: group.reach, reverse=True)
        merged = _OpenGroup(self.members + other.members, first.run, first.reach)
        others = [first.other_reach, second.other_reach]
        merged.other_reach = max(*others, () if second.run == first.run else second.reach)
        return merged


def _by_lower_bound(entries: Iterable[FragmentEntry], compare: KeyComparator) -> list[_Member]:
    return sorted(((compare.key(e.first_key), e) for e in entries if e.rows), key=_position)


def _position(member: _Member) -> tuple[Comparable, str]:
    # Parts of one run whose bounds were shortened to the same: their names end in the part's number.
    return member[0], member[1].key


def overlapping_pairs(entries: Iterable[FragmentEntry], compare: KeyComparator) -> int:
    """Pairs of fragments of different runs whose key ranges overlap: 0 for one sorted run."""
    reaching: list[tuple[Comparable, str]] = []
    pairs = 0
    for lower, entry in _by_lower_bound(entries, compare):
        reaching = [(end, run) for end, run in reaching if end >= lower]
        pairs += sum(run != entry.run for _, run in reaching)
        reaching.append((compare.upper(entry.last_key), entry.run))
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
        CompactionSpec(tuple(entry for run in part for entry in run), OUTPUT_LEVEL, index)
        for group in groups
        for index, part in enumerate(_passes(group, limits))
        if len(part) > 1
    ]
    return CompactionPlan(tuple(specs))


def _passes(group: Group, limits: PlanLimits) -> list[list[Group]]:
    """The group's runs in one part, or, if that is too much at once, in parts of neighbouring age.

    Only neighbours in age may be merged first: rows of equal keys keep their order then. A run is never
    divided, for the same reason; a part takes at least two, so that every pass leaves fewer.
    """
    parts: list[list[Group]] = []
    memory = 0
    for run in _runs_by_age(group):
        # Fragments of one run are read one after the other: one chunk of the run at a time.
        need = max(entry.peak_chunk_bytes for entry in run)
        full = parts and (
            len(parts[-1]) >= limits.max_fan_in
            or (len(parts[-1]) >= 2 and memory + need > limits.merge_memory_bytes)
        )
        if not parts or full:
            parts.append([])
            memory = 0
        parts[-1].append(run)
        memory += need
    return parts


def _runs_by_age(group: Group) -> list[Group]:
    runs: dict[str, Group] = {}
    for entry in sorted(group, key=lambda entry: (entry.sequence, entry.key)):
        runs.setdefault(entry.run, []).append(entry)
    return list(runs.values())
