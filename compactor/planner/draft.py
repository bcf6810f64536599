"""A plan in the making: tracks which fragments are taken, and turns groups of fragments into specs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from compactor.common.counts import counted
from compactor.common.message import Message
from compactor.planner.limits import Limits
from compactor.planner.spec import CompactionPlan, CompactionSpec, TrivialMove
from compactor.planner.tree import (
    DisjointRanges,
    Item,
    KeyRange,
    SortedRun,
    Tree,
    hull,
    sorted_runs,
)
from compactor.rows.flags import expires_before, unix_ms
from compactor.table.entry import FragmentEntry
from lsm_fragment.keys.bounds import Bound

MAX_CUT_KEYS: Final = 256


class Draft:
    """Specs, trivial moves and obstacles of one tree. A group that meets one waits for a later plan."""

    def __init__(self, tree: Tree, limits: Limits) -> None:
        self._tree = tree
        self._limits = limits
        self._specs: list[CompactionSpec] = []
        self._moves: list[TrivialMove] = []
        self._blocked: list[str] = []
        self._refused: list[Message] = []
        self._held: set[str] = set()
        self._taken: set[str] = set()
        self._ranges: dict[int, DisjointRanges] = {}

    def plan(self) -> CompactionPlan:
        return CompactionPlan(
            specs=tuple(self._specs),
            trivial_moves=tuple(self._moves),
            blocked=tuple(self._blocked),
            refused=tuple(self._refused),
            held=frozenset(self._held - self._taken),
        )

    def is_free(self, item: Item) -> bool:
        return self._tree.is_free(item) and item.entry.key not in self._taken

    def merge(
        self, items: Sequence[Item], output_level: int, *, reason: str, priority: float
    ) -> bool:
        """Adds one spec if no obstacle stands in its way. Returns whether it did.

        Inputs that ended workers together are divided.
        """
        if self._is_too_much(items):
            self._divide(items, reason, priority)
            self._hold(items)
            return False
        refusal = self._limits.refusal(sorted_runs(items))
        if refusal is not None:
            self._refused.append(Message(f"{reason}, {counted(len(items), 'fragment')}: ", refusal))
            self._hold(items)
            return False
        if not self._reserve(items, output_level, reason):
            return False
        inputs = sorted((item.entry for item in items), key=lambda entry: entry.age)
        cut_keys = self._cut_keys(hull(items), output_level)
        self._specs.append(
            CompactionSpec(
                inputs=tuple(inputs),
                output_level=output_level,
                reason=reason,
                priority=priority,
                cut_keys=cut_keys,
                is_bottom=self._tree.is_bottom(items),
            )
        )
        return True

    def _is_too_much(self, items: Sequence[Item]) -> bool:
        """Says whether workers ended over one of these with as many others."""
        suspects = self._tree.suspects
        if not suspects:
            return False
        found = [suspects[item.entry.key] for item in items if item.entry.key in suspects]
        bounds = [suspect.max_inputs for suspect in found]
        return any(most is not None and most < len(items) for most in bounds)

    def _divide(self, items: Sequence[Item], reason: str, priority: float) -> None:
        """Rewrites each suspect alone; if all came through that, merges fewer level-0 fragments at a time."""
        suspects = {i.entry.key: s for i in items if (s := self._tree.suspects.get(i.entry.key))}
        alone = [
            item
            for item in items
            if (suspect := suspects.get(item.entry.key)) is not None
            and suspect.max_inputs == 1
            and not suspect.is_cleared
        ]
        for item in alone:
            why = f"{reason}: one alone, since workers ended while they merged it"
            self.merge([item], item.entry.level, reason=why, priority=priority)
        if alone:
            return
        bounds = [s.max_inputs for s in suspects.values() if s.max_inputs is not None]
        young = [run for run in sorted_runs(items) if run.items[0].entry.level == 0]
        parts = list(_parts(young, min(bounds)))
        for part in parts:
            self.merge(part, 0, reason=f"{reason}, divided", priority=priority)
        if not parts:
            self.block(
                f"{reason}: workers ended while they merged {counted(len(items), 'fragment')}, "
                "which came through "
                "alone; give workers more memory, then run `compactor release`"
            )

    def move(self, items: Sequence[Item], output_level: int, *, reason: str) -> bool:
        """Adds a trivial move if no obstacle stands in its way. Returns whether it did."""
        if not self._reserve(items, output_level, reason):
            return False
        self._moves.append(TrivialMove(tuple(item.entry for item in items), output_level, reason))
        return True

    def merge_in_rounds(
        self, items: Sequence[Item], output_level: int, *, reason: str, priority: float
    ) -> None:
        """Adds one spec for all items; or, if they are too much for one task, merges within level 0 first.

        Only neighbours in age may be merged first, so that rows of equal keys keep their order. A run is
        never divided, for the same reason. Each part has at least two runs, so that every round leaves fewer.
        """
        runs = sorted_runs(items)
        # While a round runs, the next one waits: if it began early, it would merge unequal parts.
        taken = [item.entry.key for item in items if item.entry.key in self._tree.taken]
        if taken:
            self.block(f"{reason}: {taken[0]} is being compacted")
            self._hold(items)
            return
        if self._limits.fits(runs):
            self.merge(items, output_level, reason=reason, priority=priority)
            return
        young = [run for run in runs if run.items[0].entry.level == 0]
        chunks = [c for c in self._limits.chunks(young, self._limits.max_fan_in) if len(c) > 1]
        if not chunks:
            # At most one run of level 0 over many fragments: nothing would reduce it.
            self.merge(items, output_level, reason=reason, priority=priority)
        for chunk in chunks:
            part = [item for run in chunk for item in run.items]
            self.merge(part, 0, reason=f"{reason}, in rounds", priority=priority)

    def merge_runs(self, runs: Sequence[SortedRun], *, reason: str, priority: float) -> bool:
        """Adds a merge of level-0 runs into one run of level 0. Returns whether it did."""
        items = [item for run in runs for item in run.items]
        return self.merge(items, 0, reason=reason, priority=priority)

    def rewrite_garbage(self, max_deleted: float, now_unix_ms: int, ttl_slack: float) -> None:
        """Adds rewrites of fragments with too many deleted or expired rows, each alone in its level.

        max_deleted: share of rows that may be deleted or tombstones. ttl_slack: share of the time to live by
        which the oldest row may exceed it.
        """
        for item in self._tree.with_garbage():
            if self.is_free(item) and (
                reason := self.garbage(item, max_deleted, now_unix_ms, ttl_slack)
            ):
                self.merge([item], item.entry.level, reason=reason, priority=1.0)

    def all_garbage(self, item: Item, now_unix_ms: int) -> str | None:
        """Returns any reason to rewrite the fragment alone, however little there is to leave out.

        Includes dropped columns; elsewhere they wait for the next merge, since reading past them costs
        little.
        """
        if not self._tree.retired.isdisjoint(item.entry.columns):
            return "has columns that were dropped"
        indexed = {} if item.entry.skip_index is None else item.entry.skip_index.columns
        if not self._tree.indexed.issubset(indexed):
            return "has no skip index of a column"
        return self.garbage(item, 0.0, now_unix_ms)

    def garbage(
        self, item: Item, max_deleted: float, now_unix_ms: int, ttl_slack: float = 0.0
    ) -> str | None:
        """Returns what a rewrite of the fragment alone would leave out, in words; None if too little."""
        entry, rows = item.entry, self._tree.rows
        most = max_deleted * entry.rows
        if entry.deleted_rows > most:
            return f"{counted(entry.deleted_rows, 'row')} of a fragment deleted"
        is_old = self._has_expired(entry, now_unix_ms, ttl_slack)
        has_tombstones = entry.tombstones > most and rows.may_drop_tombstones
        if not (is_old or has_tombstones) or not self._tree.is_bottom([item]):
            return None
        return "rows of a fragment expired" if is_old else counted(entry.tombstones, "tombstone")

    def _has_expired(self, entry: FragmentEntry, now_unix_ms: int, ttl_slack: float) -> bool:
        """Says whether the oldest row has exceeded its time to live by the slack, and a merge leaves it out.

        What a merge keeps would be due again at once.
        """
        ttl, dtype = self._tree.ttl, self._tree.time_type
        if ttl is None or dtype is None or entry.oldest_unix_ms is None:
            return False
        merge_unix_ms = unix_ms(expires_before(ttl, dtype, now_unix_ms), dtype)
        slack_unix_ms = now_unix_ms - 1000 * ttl.seconds * (1 + ttl_slack)
        return entry.oldest_unix_ms < min(merge_unix_ms, slack_unix_ms)

    def block(self, line: str) -> None:
        self._blocked.append(line)

    def _hold(self, items: Sequence[Item]) -> None:
        self._held.update(item.entry.key for item in items)

    def _reserve(self, items: Sequence[Item], output_level: int, reason: str) -> bool:
        if self._has_room(items, output_level, reason):
            return True
        self._hold(items)
        return False

    def _has_room(self, items: Sequence[Item], output_level: int, reason: str) -> bool:
        keys = hull(items)
        for item in items:
            key = item.entry.key
            if key in self._tree.quarantined:
                self.block(f"{reason}: {key} is in quarantine, or has failed and is tried later")
                return False
            if key in self._tree.taken:
                self.block(f"{reason}: {key} is being compacted")
                return False
            if key in self._taken:
                return False
        ours = self._ranges.setdefault(output_level, DisjointRanges())
        if output_level and not ours.has_room(keys):
            return False
        if not self._tree.may_output(keys, output_level):
            self.block(f"{reason}: another compaction fills that range of level {output_level}")
            return False
        self._taken.update(item.entry.key for item in items)
        if output_level:
            ours.add(keys)
        return True

    def _cut_keys(self, keys: KeyRange, output_level: int) -> tuple[Bound, ...]:
        """Returns first keys of the fragments that outputs will have to be merged with later."""
        below = self._tree.level(output_level + 1)
        inside = below.items[below.overlapping(keys)][1:]
        step = -(-len(inside) // MAX_CUT_KEYS) or 1
        return tuple(item.entry.first_key for item in inside[::step])


def _parts(runs: Sequence[SortedRun], most: int) -> Iterator[list[Item]]:
    """Yields neighbouring runs of at most `most` fragments, and only parts of more than one run."""
    part: list[SortedRun] = []
    for run in runs:
        size = sum(len(each.items) for each in part)
        if part and size + len(run.items) > most:
            if len(part) > 1:
                yield [item for each in part for item in each.items]
            part = []
        part.append(run)
    if len(part) > 1:
        yield [item for each in part for item in each.items]
