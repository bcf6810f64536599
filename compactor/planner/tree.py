"""The LSM tree of one time window, as planners see it: runs of level 0, and sorted levels below.

Every plan keeps these invariants:
- fragments of one level below 0 are disjoint, and so are those of one run of level 0;
- of rows with equal keys, the deeper ones are older; in level 0, runs are ordered by ingestion.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
from msgspec import Struct, field

from compactor.planner.tree_shape import TreeShape
from compactor.rows.policy import APPEND, RowKind, RowPolicy, Ttl
from compactor.table.entry import FragmentEntry, key_range
from compactor.table.snapshot import Snapshot
from compactor.table.suspects import Suspect
from lsm_fragment.keys.comparator import ComparableKey, KeyComparator


class Item(NamedTuple):
    """A fragment with its key range in comparable form."""

    entry: FragmentEntry
    lower: ComparableKey
    upper: ComparableKey


class KeyRange(NamedTuple):
    """A closed range of keys."""

    lower: ComparableKey
    upper: ComparableKey

    def overlaps(self, other: KeyRange) -> bool:
        return self.lower <= other.upper and other.lower <= self.upper


def hull(items: Iterable[Item]) -> KeyRange:
    """Returns the smallest range around all items; there must be at least one."""
    items = list(items)
    return KeyRange(min(item.lower for item in items), max(item.upper for item in items))


class SortedRun(Struct, frozen=True, dict=True):
    """A sorted run: on level 0 one ingest or the outputs of one compaction."""

    items: tuple[Item, ...]

    @cached_property
    def sequence(self) -> tuple[int, int]:
        return min(item.entry.sequence for item in self.items)

    @cached_property
    def size_bytes(self) -> int:
        return sum(item.entry.size_bytes for item in self.items)

    @cached_property
    def peak_chunk_bytes(self) -> int:
        # Fragments of one run are read one after the other: one chunk of the run at a time.
        return max(item.entry.peak_chunk_bytes for item in self.items)

    @cached_property
    def column_bytes(self) -> int:
        """An upper bound of the raw bytes of its largest column."""
        return sum(item.entry.peak_chunk_bytes * item.entry.row_groups for item in self.items)

    @cached_property
    def rows(self) -> int:
        return sum(item.entry.rows for item in self.items)

    @cached_property
    def group_rows(self) -> int:
        """The rows of a row group, of the fragment with the largest on average."""
        return max(-(-item.entry.rows // max(1, item.entry.row_groups)) for item in self.items)

    @cached_property
    def raw_bytes(self) -> Mapping[str, int]:
        """The raw bytes of each column."""
        totals: Counter[str] = Counter()
        for item in self.items:
            totals.update({name: column.raw for name, column in item.entry.columns.items()})
        return totals

    @cached_property
    def heaviest_row_bytes(self) -> int:
        """The raw bytes of a row in the heaviest column."""
        return max(self.raw_bytes.values(), default=0) // max(1, self.rows)

    @cached_property
    def deleted_bytes(self) -> int:
        """The size of the bitmaps of deleted rows."""
        entries = (item.entry for item in self.items)
        return sum(entry.rows // 8 + 64 for entry in entries if entry.deletion)


class SortedLevel:
    """The disjoint fragments of one level, in key order."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.items = sorted(items, key=_position)
        self._lowers = [item.lower for item in self.items]
        self._uppers = [item.upper for item in self.items]

    def overlapping(self, keys: KeyRange) -> slice:
        """Returns the positions of the fragments that overlap the range."""
        start = bisect.bisect_left(self._uppers, keys.lower)
        return slice(start, max(start, bisect.bisect_right(self._lowers, keys.upper)))

    def overlap_bytes(self, item: Item) -> int:
        """Returns the bytes of the fragments that overlap a fragment of another level."""
        found = self.items[self.overlapping(KeyRange(item.lower, item.upper))]
        return sum(other.entry.size_bytes for other in found)

    def index(self, item: Item) -> int:
        """Returns the position at which the fragment is, or belongs."""
        index = bisect.bisect_left(self._lowers, item.lower)
        while index < len(self.items) and _position(self.items[index]) < _position(item):
            index += 1
        return index

    def add(self, item: Item) -> None:
        index = self.index(item)
        self.items.insert(index, item)
        self._lowers.insert(index, item.lower)
        self._uppers.insert(index, item.upper)

    def remove(self, item: Item) -> None:
        index = self.index(item)
        del self.items[index], self._lowers[index], self._uppers[index]


class OverlapOrder:
    """The fragments of one level by the bytes of the next level that they overlap per byte of their own.

    It is updated by what changes, since a simulation asks for it after every compaction.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._stale = {item.entry.key: item for item in items}
        self._ranks: dict[str, _Rank] = {}
        self._order: list[_Rank] = []

    def touch(self, item: Item) -> None:
        """Marks a fragment that is new, or whose overlap has changed."""
        self._stale[item.entry.key] = item

    def remove(self, item: Item) -> None:
        self._stale.pop(item.entry.key, None)
        rank = self._ranks.pop(item.entry.key, None)
        if rank is not None:
            del self._order[bisect.bisect_left(self._order, rank)]

    def least_first(self, below: SortedLevel) -> list[_Rank]:
        if len(self._stale) * 4 > len(self._order):
            self._ranks.update((key, _rank(item, below)) for key, item in self._stale.items())
            self._order = sorted(self._ranks.values())
        else:
            for key, item in list(self._stale.items()):
                self.remove(item)
                rank = self._ranks[key] = _rank(item, below)
                bisect.insort(self._order, rank)
        self._stale.clear()
        return self._order


class _Rank(NamedTuple):
    ratio: float
    lower: ComparableKey
    key: str


def _rank(item: Item, below: SortedLevel) -> _Rank:
    ratio = below.overlap_bytes(item) / max(1, item.entry.size_bytes)
    return _Rank(ratio, item.lower, item.entry.key)


class DisjointRanges:
    """Disjoint key ranges."""

    def __init__(self) -> None:
        self._lowers: list[ComparableKey] = []
        self._uppers: list[ComparableKey] = []

    def has_room(self, keys: KeyRange) -> bool:
        index = bisect.bisect_right(self._lowers, keys.upper)
        return index == 0 or self._uppers[index - 1] < keys.lower

    def add(self, keys: KeyRange) -> None:
        index = bisect.bisect_right(self._lowers, keys.lower)
        self._lowers.insert(index, keys.lower)
        self._uppers.insert(index, keys.upper)


class InFlight(Struct, frozen=True):
    """A leased compaction: its inputs are taken, and its outputs will fill a range."""

    keys: KeyRange
    output_level: int


class Tree(Struct, kw_only=True):
    """One time window of a table. Mutable, so that a simulation need not build it anew."""

    window: int | None
    compare: KeyComparator
    """The comparator by which ranges overlap."""
    rows: RowPolicy = APPEND
    ttl: Ttl | None = None
    time_type: pa.DataType | None = None
    """Type of the column that the time to live measures."""
    retired: frozenset[str] = frozenset()
    """Columns that the table has dropped."""
    indexed: frozenset[str] = frozenset()
    """Columns with a skip index."""
    taken: set[str] = field(default_factory=set)
    """Keys of inputs of compactions in flight."""
    quarantined: set[str] = field(default_factory=set)
    suspects: dict[str, Suspect] = field(default_factory=dict)
    """Fragments whose compactions were abandoned, by key."""
    in_flight: list[InFlight] = field(default_factory=list)
    _items: dict[int, dict[str, Item]] = field(default_factory=dict)
    _sorted: dict[int, SortedLevel] = field(default_factory=dict)
    _overlaps: dict[int, OverlapOrder] = field(default_factory=dict)
    _bytes: dict[int, int] = field(default_factory=dict)
    _run_items: dict[tuple[int, int], dict[str, Item]] = field(default_factory=dict)
    _runs: dict[tuple[int, int], SortedRun] = field(default_factory=dict)
    """Runs of level 0 that have not changed since they were asked for."""
    _garbage: dict[str, Item] = field(default_factory=dict)
    """Fragments with deleted rows, tombstones or rows that expire, by key."""

    def add(self, entry: FragmentEntry) -> None:
        item = Item(entry, *key_range(entry, self.compare))
        expires = self.ttl is not None and entry.oldest_unix_ms is not None
        if expires or entry.deleted_rows or entry.tombstones:
            self._garbage[entry.key] = item
        self._items.setdefault(entry.level, {})[entry.key] = item
        self._bytes[entry.level] = self._bytes.get(entry.level, 0) + entry.size_bytes
        if entry.level == 0:
            self._run_items.setdefault(entry.sequence, {})[entry.key] = item
            self._runs.pop(entry.sequence, None)
        if entry.level in self._sorted:
            self._sorted[entry.level].add(item)
        if entry.level in self._overlaps:
            self._overlaps[entry.level].touch(item)
        self._touch_above(item)

    def remove(self, entry: FragmentEntry) -> None:
        item = self._items[entry.level].pop(entry.key)
        self._garbage.pop(entry.key, None)
        self._bytes[entry.level] -= entry.size_bytes
        if entry.level == 0:
            del self._run_items[entry.sequence][entry.key]
            self._runs.pop(entry.sequence, None)
            if not self._run_items[entry.sequence]:
                del self._run_items[entry.sequence]
        if entry.level in self._sorted:
            self._sorted[entry.level].remove(item)
        if entry.level in self._overlaps:
            self._overlaps[entry.level].remove(item)
        self._touch_above(item)

    def _touch_above(self, item: Item) -> None:
        above = item.entry.level - 1
        if above in self._overlaps:
            level = self.level(above)
            for other in level.items[level.overlapping(KeyRange(item.lower, item.upper))]:
                self._overlaps[above].touch(other)

    def item(self, entry: FragmentEntry) -> Item:
        return self._items[entry.level][entry.key]

    def items(self) -> list[Item]:
        return [item for level in self._items.values() for item in level.values()]

    def with_garbage(self) -> list[Item]:
        """Returns the fragments with deleted rows, tombstones or rows that expire.

        All others need not be looked at for each plan, which a simulation makes after every compaction.
        """
        return list(self._garbage.values())

    def level(self, level: int) -> SortedLevel:
        if level not in self._sorted:
            self._sorted[level] = SortedLevel(self._items.get(level, {}).values())
        return self._sorted[level]

    def by_overlap(self, level: int) -> Iterator[tuple[float, Item]]:
        """Yields the fragments of a level, least overlap first.

        Each comes with the bytes of the next level that it overlaps per byte of its own.
        """
        if level not in self._overlaps:
            self._overlaps[level] = OverlapOrder(self._items.get(level, {}).values())
        items = self._items.get(level, {})
        for rank in self._overlaps[level].least_first(self.level(level + 1)):
            yield rank.ratio, items[rank.key]

    def level_bytes(self, level: int) -> int:
        return self._bytes.get(level, 0)

    def leaving_bytes(self, level: int) -> int:
        """Returns the bytes that compactions in flight are moving from this level to the next."""
        going = [other.keys for other in self.in_flight if other.output_level == level + 1]
        if not going:
            return 0
        items = self._items.get(level, {})
        taken = (items[key] for key in self.taken if key in items)
        return sum(
            item.entry.size_bytes
            for item in taken
            if any(keys.overlaps(KeyRange(item.lower, item.upper)) for keys in going)
        )

    def shape(self) -> TreeShape:
        """Returns the figures on which compaction debt depends."""
        return TreeShape(len(self._run_items), self._bytes)

    @property
    def deepest(self) -> int:
        """The deepest level that holds anything; 0 for an empty tree."""
        return max((level for level, items in self._items.items() if items), default=0)

    def runs(self) -> list[SortedRun]:
        """Returns the runs of level 0, oldest first."""
        for name, items in self._run_items.items():
            if name not in self._runs:
                self._runs[name] = SortedRun(tuple(items.values()))
        return sorted(self._runs.values(), key=lambda run: run.sequence)

    def is_bottom(self, items: Sequence[Item]) -> bool:
        """Says whether a merge of these includes every fragment that may have older rows of their keys.

        If so, a tombstone or an expired row hides nothing outside the merge. With a sequence column, a
        fragment that came later may also have older rows; and with the policy `first`, the first row hides
        those that came later.
        """
        if not self.rows.merges:
            return True
        by_age = self.rows.sequence is None and self.rows.kind is not RowKind.FIRST
        keys, inputs = hull(items), {item.entry.key for item in items}
        youngest = max(item.entry.age for item in items)
        return not any(
            item.entry.key not in inputs
            and keys.overlaps(KeyRange(item.lower, item.upper))
            and not (by_age and item.entry.age > youngest)
            for item in self.items()
        )

    def is_free(self, item: Item) -> bool:
        return item.entry.key not in self.taken and item.entry.key not in self.quarantined

    def may_output(self, keys: KeyRange, level: int) -> bool:
        """Says whether outputs over that range keep the level disjoint, whatever is in flight."""
        return level == 0 or not any(
            other.output_level == level and other.keys.overlaps(keys) for other in self.in_flight
        )


def forest(snapshot: Snapshot) -> dict[int | None, Tree]:
    """Returns the trees of a snapshot by window. Fragments without rows are in none."""
    table, compare = snapshot.table, snapshot.table.key_comparator()
    trees: dict[int | None, Tree] = {}
    for entry in snapshot.fragments.all():
        if entry.rows:
            tree = trees.get(entry.window)
            if tree is None:
                tree = trees[entry.window] = Tree(
                    window=entry.window,
                    compare=compare,
                    rows=table.rows,
                    ttl=table.ttl,
                    time_type=None
                    if table.ttl is None
                    else table.schema.field(table.ttl.column).type,
                    retired=frozenset(table.retired),
                    indexed=frozenset(name for name, _ in table.skips.columns),
                )
            tree.add(entry)
    for key, suspect in snapshot.suspects.items():
        entry = snapshot.fragments[key]
        if entry.rows:
            trees[entry.window].suspects[key] = suspect
    for key in snapshot.quarantine:
        entry = snapshot.fragments[key]
        if entry.rows:
            trees[entry.window].quarantined.add(key)
    _mark_leases(snapshot, trees)
    return trees


def _mark_leases(snapshot: Snapshot, trees: Mapping[int | None, Tree]) -> None:
    for lease in snapshot.leases.values():
        entries = [snapshot.fragments[key] for key in lease.inputs]
        entries = [entry for entry in entries if entry.rows]
        if entries:
            tree = trees[entries[0].window]
            items = [tree.item(entry) for entry in entries]
            tree.taken.update(lease.inputs)
            tree.in_flight.append(InFlight(hull(items), lease.output_level))


def all_items(snapshot: Snapshot) -> list[Item]:
    """Returns all fragments with rows, whatever their window."""
    return [item for tree in forest(snapshot).values() for item in tree.items()]


def components(items: Iterable[Item]) -> list[list[Item]]:
    """Returns the groups connected by overlapping key ranges, in key order; each ordered by key.

    Ranges that only share one key overlap: equal keys belong into one fragment.
    """
    groups: list[list[Item]] = []
    reach: ComparableKey = b""
    for item in sorted(items, key=_position):
        if groups and item.lower <= reach:
            groups[-1].append(item)
            reach = max(reach, item.upper)
        else:
            groups.append([item])
            reach = item.upper
    return groups


def _position(item: Item) -> tuple[ComparableKey, str]:
    # Overlapping fragments may begin with the same key; any fixed order of these will do.
    return item.lower, item.entry.key


def sorted_runs(items: Sequence[Item]) -> list[SortedRun]:
    """Returns the runs of the items, oldest first."""
    runs: dict[str, list[Item]] = {}
    for item in sorted(items, key=lambda item: item.entry.age):
        runs.setdefault(item.entry.sorted_run, []).append(item)
    return [SortedRun(tuple(members)) for members in runs.values()]


def overlapping_pairs(trees: Iterable[Tree]) -> int:
    """Returns the number of pairs of fragments of one window whose key ranges overlap."""
    return sum(_pairs(tree.items()) for tree in trees)


def _pairs(items: list[Item]) -> int:
    reaching: list[ComparableKey] = []
    pairs = 0
    for item in sorted(items, key=_position):
        del reaching[: bisect.bisect_left(reaching, item.lower)]
        pairs += len(reaching)
        bisect.insort(reaching, item.upper)
    return pairs
