"""The lazy strategy: size-tiered while data is young, leveled by key range when it is older.

Level 0 holds sorted runs that overlap. Runs of similar size that are neighbours in age are merged into a
larger run (size-tiered). Where level 0 is large beside what it overlaps of level 1, it is merged into that
("push"). A level above its target gives fragments to the next, beginning with those that overlap least there.
Fragments that overlap nothing on the way down move without being rewritten (trivial move).

Ideas: size-tiered and leveled compaction of LSM trees (O'Neil et al. 1996; RocksDB's universal and leveled
styles, its smallest-overlap pick and its cuts at boundaries of the level below), lazy leveling (Dostoevsky,
Dayan and Idreos 2018).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from compactor.common.counts import counted
from compactor.planner.draft import Draft
from compactor.planner.limits import Limits
from compactor.planner.spec import CompactionPlan
from compactor.planner.tree import Item, KeyRange, SortedLevel, SortedRun, Tree, components
from compactor.settings.compaction import Policy, Strategy

_SMALL_RUN_DIVISOR = 16
"""A newest run stays young when the rest is pushed if this many times its size is less than level 0."""
_MIN_PUSH_DIVISOR = 4
"""A group smaller than a full fragment divided by this stays young: deeper levels have no small fragments."""


def plan_leveled(tree: Tree, policy: Policy, limits: Limits, now_unix_ms: int) -> CompactionPlan:
    """Returns what is due under the policy. Plans come to an end once writes to the tree stop."""
    draft = Draft(tree, limits)
    leveled = _Leveled(tree, policy, limits, draft)
    is_pushed = False
    if policy.strategy is Strategy.LEVELED:
        is_pushed = leveled.push_and_drain()
    if not is_pushed:
        leveled.merge_tiers()
    draft.rewrite_garbage(policy.max_deleted_share, now_unix_ms, policy.ttl_slack)
    return draft.plan()


class _Leveled:
    def __init__(self, tree: Tree, policy: Policy, limits: Limits, draft: Draft) -> None:
        self._tree = tree
        self._policy = policy
        self._limits = limits
        self._draft = draft
        self._runs = tree.runs()

    def push_and_drain(self) -> bool:
        """Serves the level most in need first. Returns whether anything of level 0 is pushed."""
        scores = {0: self._level0_score()}
        for level in range(1, self._tree.deepest + 1):
            score = self._tree.level_bytes(level) / self._policy.level_target_bytes(level)
            if score > 1:
                scores[level] = score
        is_pushed = False
        for level in sorted(scores, key=lambda level: -scores[level]):
            if level == 0:
                is_pushed = self._push_level0()
            else:
                self._drain(level, scores[level])
        return is_pushed

    # --- level 0 into level 1 ---

    def _level0_score(self) -> float:
        by_bytes = self._tree.level_bytes(0) / self._policy.level1_target_bytes
        return max(len(self._runs) / self._policy.level0_trigger_runs, by_bytes)

    def _push_level0(self) -> bool:
        score = self._level0_score()
        if score < 1:
            return False
        old = [item for run in self._old_runs() for item in run.items]
        if not old:
            return False
        is_pushed = False
        for group in _joined(components([*old, *self._tree.level(1).items]), self._limits):
            young_bytes = _size_bytes(item for item in group if item.entry.level == 0)
            old_bytes = _size_bytes(group) - young_bytes
            is_large = _size_bytes(group) * _MIN_PUSH_DIVISOR >= self._limits.target_fragment_bytes
            if not is_large or old_bytes > self._policy.push_ratio * young_bytes:
                continue
            is_pushed = True
            if len(group) == 1:
                self._draft.move(group, 1, reason="level 0: overlaps nothing of level 1")
                continue
            self._draft.merge_in_rounds(
                group,
                1,
                reason=f"level 0: {counted(len(group), 'fragment')} into level 1",
                priority=score,
            )
        return is_pushed

    def _old_runs(self) -> list[SortedRun]:
        """Returns the oldest consecutive free runs, without the small newest ones.

        Only the oldest may be pushed, because deeper levels must be older.
        """
        runs = list(itertools.takewhile(self._is_free, self._runs))
        total = sum(run.size_bytes for run in runs)
        while len(runs) > 1 and runs[-1].size_bytes * _SMALL_RUN_DIVISOR < total:
            total -= runs.pop().size_bytes
        return runs

    # --- a level into the next ---

    def _drain(self, level: int, score: float) -> None:
        """Pushes down the fragments with the least overlap, until the level is within its target."""
        # Bytes that are already on their way down do not count; otherwise every plan would send as much
        # again.
        bytes_here = self._tree.level_bytes(level) - self._tree.leaving_bytes(level)
        excess = bytes_here - self._policy.level_target_bytes(level)
        if excess <= 0:
            return
        here, below = self._tree.level(level), self._tree.level(level + 1)
        for ratio, item in self._tree.by_overlap(level):
            if excess <= 0 or 1 + ratio > self._policy.max_rewrite_ratio:
                return
            picked = here.items[self._with_co_pushed(here, below, item)]
            where = below.overlapping(KeyRange(item.lower, item.upper))
            if self._push_down(picked, below.items[where], level, score):
                excess -= _size_bytes(picked)

    def _with_co_pushed(self, here: SortedLevel, below: SortedLevel, item: Item) -> slice:
        """Returns the fragment with its co-pushed neighbours: those that overlap nothing that it does not."""
        index = here.index(item)
        where, first, last = below.overlapping(KeyRange(item.lower, item.upper)), index, index
        if where.start == where.stop:
            return slice(index, index + 1)

        def is_co_pushed(i: int) -> bool:
            other = here.items[i]
            theirs = below.overlapping(KeyRange(other.lower, other.upper))
            inside = where.start <= theirs.start and theirs.stop <= where.stop
            return inside and self._draft.is_free(other)

        while first > 0 and is_co_pushed(first - 1):
            first -= 1
        while last + 1 < len(here.items) and is_co_pushed(last + 1):
            last += 1
        return slice(first, last + 1)

    def _push_down(self, picked: list[Item], below: list[Item], level: int, score: float) -> bool:
        if not all(self._draft.is_free(item) for item in (*picked, *below)):
            return False
        target = level + 1
        if not below:
            return self._draft.move(picked, target, reason=f"level {level}: overlaps nothing below")
        overlapped = counted(len(below), "fragment")
        reason = f"level {level}: over its target, {overlapped} of level {target} in its range"
        return self._draft.merge([*picked, *below], target, reason=reason, priority=score)

    # --- within level 0: size-tiered ---

    def merge_tiers(self) -> None:
        """Merges neighbours of similar size, the smallest first, and no run twice."""
        merged: set[tuple[int, int]] = set()
        classes = [self._size_class(run) for run in self._runs]
        is_free = [self._is_free(run) for run in self._runs]
        for size_class in sorted(set(classes)):
            free = [
                run if free and number <= size_class and run.sequence not in merged else None
                for run, number, free in zip(self._runs, classes, is_free, strict=True)
            ]
            for stretch in _stretches(free):
                for part in _without_giants(stretch):
                    merged.update(self._merge_stretch(part))

    def _merge_stretch(self, stretch: list[SortedRun]) -> Iterator[tuple[int, int]]:
        """Yields the sequences of the runs that are merged: those of parts with enough runs."""
        trigger = self._policy.level0_trigger_runs
        if len(stretch) < trigger:
            return
        # Runs that are too large to be merged together are merged in pairs.
        enough = trigger if self._limits.fits(stretch[:trigger]) else 2
        for chunk in self._limits.chunks(stretch, max(trigger, self._policy.max_merge_runs)):
            if len(chunk) >= enough and self._draft.merge_runs(
                chunk,
                reason=f"level 0: {len(chunk)} neighbouring runs of like size",
                priority=self._level0_score(),
            ):
                yield from (run.sequence for run in chunk)

    def _size_class(self, run: SortedRun) -> int:
        return int(math.log(max(1, run.size_bytes), self._policy.level0_trigger_runs))

    def _is_free(self, run: SortedRun) -> bool:
        return all(self._draft.is_free(item) for item in run.items)


def _joined(groups: list[list[Item]], limits: Limits) -> Iterator[list[Item]]:
    """Yields groups with fragments of level 0, with small neighbours joined.

    Never joins across a group of level 1 alone, since the output would lie over its range.
    """
    joined: list[Item] = []
    for group in groups:
        has_young = any(item.entry.level == 0 for item in group)
        size = _size_bytes(joined) + _size_bytes(group)
        if joined and (not has_young or size > limits.target_fragment_bytes):
            yield joined
            joined = []
        if has_young:
            joined = [*joined, *group]
    if joined:
        yield joined


def _stretches(runs: Sequence[SortedRun | None]) -> Iterator[list[SortedRun]]:
    """Yields the consecutive runs between gaps (None)."""
    stretch: list[SortedRun] = []
    for run in [*runs, None]:
        if run is not None:
            stretch.append(run)
        elif stretch:
            yield stretch
            stretch = []


def _without_giants(stretch: list[SortedRun]) -> Iterator[list[SortedRun]]:
    """Divides the stretch at a run larger than all others together, which would be rewritten for little."""
    if len(stretch) < 2:
        return
    sizes = [run.size_bytes for run in stretch]
    giant = max(range(len(sizes)), key=sizes.__getitem__)
    if 2 * sizes[giant] <= sum(sizes):
        yield stretch
        return
    yield from _without_giants(stretch[:giant])
    yield from _without_giants(stretch[giant + 1 :])


def _size_bytes(items: Iterator[Item] | Sequence[Item]) -> int:
    return sum(item.entry.size_bytes for item in items)
