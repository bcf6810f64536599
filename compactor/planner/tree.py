"""The LSM tree of one time window, as planners look at it: runs of level 0, and sorted levels below.

Invariants that every plan keeps:
- fragments of one level below 0 are disjoint, as those of one run of level 0 are;
- of rows with equal keys, the deeper are the older; in level 0 runs are ordered by ingestion.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from compactor.planner.debt import Shape
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot
from format.keys import KeyComparator

Comparable = tuple[Any, ...]


class Item(NamedTuple):
    """A fragment with its key range in comparable form."""

    entry: FragmentEntry
    lower: Comparable
    upper: Comparable


class Range(NamedTuple):
    """A closed range of keys."""

    lower: Comparable
    upper: Comparable

    def overlaps(self, other: Range) -> bool:
        return self.lower <= other.upper and other.lower <= self.upper


def hull(items: Iterable[Item]) -> Range:
    """The least range around all items, which must not be none."""
    items = list(items)
    return Range(min(item.lower for item in items), max(item.upper for item in items))


@dataclass(frozen=True, slots=True)
class Run:
    """A sorted run of level 0: one ingest, or the outputs of one compaction."""

    items: tuple[Item, ...]

    @property
    def sequence(self) -> tuple[int, int]:
        return min(item.entry.sequence for item in self.items)

    @property
    def size_bytes(self) -> int:
        return sum(item.entry.size_bytes for item in self.items)

    @property
    def peak_chunk_bytes(self) -> int:
        # Fragments of one run are read one after the other: one chunk of the run at a time.
        return max(item.entry.peak_chunk_bytes for item in self.items)


class SortedLevel:
    """The disjoint fragments of one level, in key order."""

    def __init__(self, items: Iterable[Item]) -> None:
        # Parts of one run whose bounds were shortened to the same: names end in the part's number.
        self.items = sorted(items, key=lambda item: (item.lower, item.entry.key))
        self._lowers = [item.lower for item in self.items]
        self._uppers = [item.upper for item in self.items]
        sizes = (item.entry.size_bytes for item in self.items)
        self._bytes_before: list[int] = list(itertools.accumulate(sizes, initial=0))

    def overlapping(self, keys: Range) -> slice:
        """Where the fragments are that overlap the range."""
        start = bisect.bisect_left(self._uppers, keys.lower)
        return slice(start, max(start, bisect.bisect_right(self._lowers, keys.upper)))

    def size_bytes(self, where: slice) -> int:
        before = self._bytes_before
        return int(before[where.stop] - before[where.start])


class DisjointRanges:
    """Ranges of keys of which no two overlap."""

    def __init__(self) -> None:
        self._lowers: list[Comparable] = []
        self._uppers: list[Comparable] = []

    def has_room(self, keys: Range) -> bool:
        index = bisect.bisect_right(self._lowers, keys.upper)
        return index == 0 or self._uppers[index - 1] < keys.lower

    def add(self, keys: Range) -> None:
        index = bisect.bisect_right(self._lowers, keys.lower)
        self._lowers.insert(index, keys.lower)
        self._uppers.insert(index, keys.upper)


@dataclass(frozen=True, slots=True)
class InFlight:
    """A compaction that stands claimed: its inputs are taken, and its outputs will fill a range."""

    keys: Range
    output_level: int


@dataclass(slots=True)
class Tree:
    """One time window of a table. Mutable, so that a simulation need not build it anew."""

    window: int | None
    compare: KeyComparator
    taken: set[str] = field(default_factory=set)
    """Keys of inputs of compactions in flight."""
    quarantined: set[str] = field(default_factory=set)
    in_flight: list[InFlight] = field(default_factory=list)
    _items: dict[int, dict[str, Item]] = field(default_factory=dict)
    _sorted: dict[int, SortedLevel] = field(default_factory=dict)
    _bytes: dict[int, int] = field(default_factory=dict)

    def add(self, entry: FragmentEntry) -> None:
        item = Item(entry, self.compare.key(entry.first_key), self.compare.upper(entry.last_key))
        self._items.setdefault(entry.level, {})[entry.key] = item
        self._bytes[entry.level] = self._bytes.get(entry.level, 0) + entry.size_bytes
        self._sorted.pop(entry.level, None)

    def remove(self, entry: FragmentEntry) -> None:
        del self._items[entry.level][entry.key]
        self._bytes[entry.level] -= entry.size_bytes
        self._sorted.pop(entry.level, None)

    def item(self, entry: FragmentEntry) -> Item:
        return self._items[entry.level][entry.key]

    def items(self) -> list[Item]:
        return [item for level in self._items.values() for item in level.values()]

    def level(self, level: int) -> SortedLevel:
        if level not in self._sorted:
            self._sorted[level] = SortedLevel(self._items.get(level, {}).values())
        return self._sorted[level]

    def level_bytes(self, level: int) -> int:
        return self._bytes.get(level, 0)

    def shape(self) -> Shape:
        """What compaction debt depends on."""
        return Shape(len({i.entry.run for i in self._items.get(0, {}).values()}), self._bytes)

    @property
    def deepest(self) -> int:
        """The deepest level that holds anything; 0 for an empty tree."""
        return max((level for level, items in self._items.items() if items), default=0)

    def runs(self) -> list[Run]:
        """Of level 0, oldest first."""
        runs: dict[str, list[Item]] = {}
        for item in self._items.get(0, {}).values():
            runs.setdefault(item.entry.run, []).append(item)
        return sorted((Run(tuple(items)) for items in runs.values()), key=lambda r: r.sequence)

    def is_free(self, item: Item) -> bool:
        return item.entry.key not in self.taken and item.entry.key not in self.quarantined

    def may_output(self, keys: Range, level: int) -> bool:
        """Whether outputs over that range keep the level disjoint, whatever is in flight."""
        return level == 0 or not any(
            other.output_level == level and other.keys.overlaps(keys) for other in self.in_flight
        )


def forest(snapshot: Snapshot) -> dict[int | None, Tree]:
    """The trees of a snapshot, by window. Fragments without rows are in none."""
    compare = snapshot.table.comparator()
    trees: dict[int | None, Tree] = {}
    for entry in snapshot.fragments.all():
        if entry.rows:
            tree = trees.get(entry.window)
            if tree is None:
                tree = trees[entry.window] = Tree(entry.window, compare)
            tree.add(entry)
    for key in snapshot.quarantine:
        entry = snapshot.fragments[key]
        if entry.rows:
            trees[entry.window].quarantined.add(key)
    _mark_claims(snapshot, trees)
    return trees


def _mark_claims(snapshot: Snapshot, trees: Mapping[int | None, Tree]) -> None:
    for claim in snapshot.claims.values():
        entries = [snapshot.fragments[key] for key in claim.inputs]
        entries = [entry for entry in entries if entry.rows]
        if entries:
            tree = trees[entries[0].window]
            items = [tree.item(entry) for entry in entries]
            tree.taken.update(claim.inputs)
            tree.in_flight.append(InFlight(hull(items), claim.output_level))


def all_items(snapshot: Snapshot) -> list[Item]:
    """All fragments with rows, whatever their window."""
    return [item for tree in forest(snapshot).values() for item in tree.items()]


def components(items: Iterable[Item]) -> list[list[Item]]:
    """Connected groups by overlap of key ranges, in key order; each ordered by key.

    Ranges that only touch in one key overlap: equal keys belong into one fragment. Fragments of one
    sorted run are disjoint whatever their bounds say, which may be shortened.
    """
    open_groups: list[_OpenGroup] = []
    finished: list[_OpenGroup] = []
    for item in sorted(items, key=_position):
        mine = _OpenGroup([item], item.entry.sorted_run, item.upper)
        rest = []
        for group in open_groups:
            if group.overlaps(item.lower, item.entry.sorted_run):
                mine = group.united(mine)
            elif group.reach < item.lower:
                finished.append(group)
            else:
                rest.append(group)
        open_groups = [*rest, mine]
    groups = sorted(finished + open_groups, key=lambda group: _position(group.members[0]))
    return [sorted(group.members, key=_position) for group in groups]


class _OpenGroup:
    """A group the sweep may still add to. Knows how far it reaches, and how far without its run
    that reaches farthest: enough to tell whether another run's fragment would overlap."""

    def __init__(self, members: list[Item], run: str, reach: Comparable) -> None:
        self.members = members
        self.run = run
        self.reach = reach
        self.other_reach: Comparable = ()

    def overlaps(self, lower: Comparable, run: str) -> bool:
        return lower <= (self.reach if run != self.run else self.other_reach)

    def united(self, other: _OpenGroup) -> _OpenGroup:
        first, second = sorted((self, other), key=lambda group: group.reach, reverse=True)
        small, large = sorted((self.members, other.members), key=len)
        large.extend(small)
        merged = _OpenGroup(large, first.run, first.reach)
        others = [first.other_reach, second.other_reach]
        merged.other_reach = max(*others, () if second.run == first.run else second.reach)
        return merged


def _position(item: Item) -> tuple[Comparable, str]:
    # Parts of one run whose bounds were shortened to the same: their names end in the part's number.
    return item.lower, item.entry.key


def sorted_runs(items: Sequence[Item]) -> list[Run]:
    """Oldest first."""
    runs: dict[str, list[Item]] = {}
    for item in sorted(items, key=lambda item: item.entry.age):
        runs.setdefault(item.entry.sorted_run, []).append(item)
    return [Run(tuple(members)) for members in runs.values()]


def overlapping_pairs(trees: Iterable[Tree]) -> int:
    """Pairs of fragments of one window, of different runs, whose key ranges overlap."""
    return sum(_pairs(tree.items()) for tree in trees)


def _pairs(items: list[Item]) -> int:
    reaching: list[tuple[Comparable, str]] = []
    pairs = 0
    for item in sorted(items, key=_position):
        run = item.entry.sorted_run
        reaching = [(end, other) for end, other in reaching if end >= item.lower]
        pairs += sum(other != run for _, other in reaching)
        reaching.append((item.upper, run))
    return pairs
