"""Simulates the real planner on a synthetic table, without data: flushes arrive, and compactions take time.

A heap yields events in time order. When an event has changed a tree and a worker is free, `plan_trees`
replans the changed trees, and the first specs of the plan start.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, structs

from compactor.planner.debt import Debt, compaction_debt
from compactor.planner.limits import Limits
from compactor.planner.plan import by_priority, plan_trees
from compactor.planner.spec import CompactionPlan, CompactionSpec, TrivialMove
from compactor.planner.tree import InFlight, Item, KeyRange, Tree, hull
from compactor.settings.compaction import CompactionSettings, Policy
from compactor.simulate.fragments import Flushes, IntegerKeys, fragment, merged
from compactor.simulate.result import Peaks, Result, ShardSample
from compactor.simulate.settings import SimulationSettings
from compactor.table.entry import FragmentEntry

Window = int | None

_MAX_ROUNDS: Final = 10_000
"""Maximum planning rounds at one moment; beyond, the planner would never finish."""


class Observer:
    """A listener to all events, for tests; does nothing by default."""

    def flushed(self, entry: FragmentEntry) -> None: ...

    def compacted(self, spec: CompactionSpec, outputs: Sequence[FragmentEntry]) -> None: ...

    def moved(self, move: TrivialMove) -> None: ...

    def expired(self, entries: Sequence[FragmentEntry]) -> None: ...

    def stepped(self, simulation: Simulation) -> None: ...


class _RunningCompaction(Struct, frozen=True):
    """A running compaction."""

    spec: CompactionSpec
    run: str
    in_flight: InFlight


class Simulation:
    """A simulation of one shard under one policy. Call `run` at most once."""

    def __init__(
        self,
        settings: SimulationSettings,
        policy: Policy,
        compaction: CompactionSettings,
        observer: Observer | None = None,
    ) -> None:
        self.trees: dict[Window, Tree] = {}
        self.ingested_bytes = self.compacted_bytes = self.expired_bytes = 0
        self.now = 0.0
        self._settings = settings
        self._policy = policy
        self._compaction = compaction
        # Simulated fragments have no columns to weigh keys by.
        self._limits = Limits.of(compaction, {})
        self._observer = observer or Observer()
        mean_seconds = settings.flush_bytes / settings.shard_bytes_per_second
        rng = random.Random(settings.seed)
        self._flushes = Flushes(settings.locality, settings.key_space, mean_seconds, rng)
        self._flushed_at = 0.0
        self._ids = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._plans: dict[Window, CompactionPlan] = {}
        self._changed: set[Window] = set()
        self._fragments = 0
        self._busy = 0
        self._busy_seconds = 0.0
        self._samples: list[ShardSample] = []
        self._peaks = Peaks()
        self._has_given_up = False

    def run(self, on_progress: Callable[[float], None] | None = None) -> Result:
        settings = self._settings
        for number in range(settings.samples + 1):
            self._at(settings.duration_seconds * number / settings.samples, self._sample)
        self._at(self._flushes.next_seconds(), self._flush)
        while self._events and not self._has_given_up:
            time, _, act = heapq.heappop(self._events)
            if time > settings.duration_seconds:
                break
            self._busy_seconds += self._busy * (time - self.now)
            self.now = time
            act()
            if self._changed and self._busy < settings.shard_workers:
                self._decide()
            self._observer.stepped(self)
            if on_progress and act == self._sample:
                on_progress(time / settings.duration_seconds)
        if self._has_given_up:
            self._sample()
        return Result(
            shards=settings.shards,
            workers=settings.shard_workers,
            samples=self._samples,
            peaks=self._peaks,
            gave_up=self._has_given_up,
        )

    def debt(self) -> Debt:
        return compaction_debt((tree.shape() for tree in self.trees.values()), self._policy)

    def _at(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (seconds, next(self._ids), act))

    # --- writers ---

    def _flush(self) -> None:
        """Adds the data since the last flush: most to the current time window, a fraction to the previous
        one."""
        size = round((self.now - self._flushed_at) * self._settings.shard_bytes_per_second)
        self._flushed_at = self.now
        number, keys, window = next(self._ids), self._flushes.next_keys(), self._window()
        late = round(size * self._settings.late_share) if window else 0
        for position, (part, where) in enumerate(
            [(size - late, window)] + ([(late, window - 1)] if late and window else [])
        ):
            name = f"f{number:09d}-{position}"
            entry = fragment(
                name,
                part,
                keys,
                level=0,
                run=name,
                sequence=(number, position),
                window=where,
                peak_chunk_bytes=self._compaction.row_group_bytes,
            )
            self._add(entry)
            self._observer.flushed(entry)
        self.ingested_bytes += size
        debt = self.debt()
        self._peaks.flushed(debt)
        hopeless = self._policy.stop_runs * self._settings.give_up_factor
        self._has_given_up = debt.level0_runs >= hopeless
        self._at(self.now + self._flushes.next_seconds(), self._flush)

    def _window(self) -> Window:
        windows = self._settings.windows
        return None if windows is None else int(self.now // windows.window_seconds)

    # --- the table ---

    def _add(self, entry: FragmentEntry) -> None:
        tree = self.trees.get(entry.window)
        if tree is None:
            tree = self.trees[entry.window] = Tree(window=entry.window, compare=IntegerKeys())
            self._expire_in_time(entry.window)
        tree.add(entry)
        self._fragments += 1
        self._changed.add(entry.window)

    def _remove(self, entry: FragmentEntry) -> None:
        self.trees[entry.window].remove(entry)
        self._fragments -= 1
        self._changed.add(entry.window)

    def _expire_in_time(self, window: Window) -> None:
        windows = self._settings.windows
        if windows and windows.retention_seconds is not None and window is not None:
            end = (window + 1) * windows.window_seconds + windows.retention_seconds
            self._at(max(self.now, float(end)), lambda: self._expire(window))

    def _expire(self, window: Window) -> None:
        """Drops a time window with all its fragments; voids running compactions in it."""
        entries = [item.entry for item in self.trees.pop(window).items()]
        self._plans.pop(window, None)
        self._changed.discard(window)
        self._fragments -= len(entries)
        self.expired_bytes += sum(entry.size_bytes for entry in entries)
        self._observer.expired(entries)

    # --- workers ---

    def _decide(self) -> None:
        """Acts as the driver: moves first, then one spec per free worker, until none is due."""
        for _ in range(_MAX_ROUNDS):
            self._plan()
            if self._move():
                continue
            specs = by_priority(self._plans.values())[: self._settings.shard_workers - self._busy]
            for spec in specs:
                self._begin(spec)
            if not specs or self._busy == self._settings.shard_workers:
                return
        raise AssertionError("plans do not run out")

    def _plan(self) -> None:
        for window in sorted(self._changed, key=lambda window: -1 if window is None else window):
            tree = self.trees[window]
            self._plans[window] = plan_trees(
                {window: tree}, self._policy, self._limits, now_unix_ms=0
            )
        self._changed.clear()

    def _move(self) -> bool:
        moves = [move for plan in self._plans.values() for move in plan.trivial_moves]
        for move in moves:
            for entry in move.entries:
                self._remove(entry)
                self._add(structs.replace(entry, level=move.output_level))
            self._peaks.trivial_moves += 1
            self._observer.moved(move)
        return bool(moves)

    def _begin(self, spec: CompactionSpec) -> None:
        tree = self.trees[spec.window]
        items = [tree.item(entry) for entry in spec.inputs]
        task = _RunningCompaction(
            spec, f"c{next(self._ids):09d}", InFlight(hull(items), spec.output_level)
        )
        tree.taken.update(entry.key for entry in spec.inputs)
        tree.in_flight.append(task.in_flight)
        self._changed.add(spec.window)
        self._busy += 1
        seconds = spec.size_bytes / self._settings.task_bytes_per_second
        self._at(self.now + seconds, lambda: self._finish(task))

    def _finish(self, task: _RunningCompaction) -> None:
        spec = task.spec
        self._busy -= 1
        self.compacted_bytes += spec.size_bytes
        self._peaks.compactions += 1
        self._peaks.largest_compaction_bytes = max(
            self._peaks.largest_compaction_bytes, spec.size_bytes
        )
        tree = self.trees.get(spec.window)
        if tree is None:
            # Its time window has expired. Mark any other tree, so that planning runs for the free worker.
            self._changed.update(itertools.islice(self.trees, 1))
            return
        for entry in spec.inputs:
            self._remove(entry)
            tree.taken.discard(entry.key)
        tree.in_flight.remove(task.in_flight)
        outputs = merged(spec, self._compaction, run=task.run)
        for entry in outputs:
            self._add(entry)
        self._observer.compacted(spec, outputs)

    # --- figures ---

    def _sample(self) -> None:
        shapes = [tree.shape().level_bytes for tree in self.trees.values()]
        levels = sorted({level for shape in shapes for level, size in shape.items() if size})
        self._samples.append(
            ShardSample(
                seconds=self.now,
                fragments=self._fragments,
                level_bytes={n: sum(shape.get(n, 0) for shape in shapes) for n in levels},
                debt=self.debt(),
                read_amplification=self._read_amplification(),
                busy_seconds=self._busy_seconds,
                ingested_bytes=self.ingested_bytes,
                compacted_bytes=self.compacted_bytes,
                expired_bytes=self.expired_bytes,
            )
        )

    def _read_amplification(self) -> float:
        """Returns the sorted runs at a random key of its time window, chosen by a random byte."""
        total = weighted = 0.0
        for tree in self.trees.values():
            size = sum(tree.shape().level_bytes.values())
            total += size
            weighted += size * runs_at_random_key(tree)
        return weighted / total if total else 0.0


def runs_at_random_key(tree: Tree) -> float:
    """Returns the mean number of level-0 runs at a random key, plus the number of non-empty levels."""
    levels = [n for n, size in tree.shape().level_bytes.items() if n and size]
    young = [item for run in tree.runs() for item in run.items]
    edges = [*young]
    for n in levels:
        items = tree.level(n).items
        edges += [items[0], items[-1]]
    return len(levels) + sum(map(_width, young)) / _width(hull(edges))


def _width(keys: KeyRange | Item) -> int:
    """Returns the number of keys in a range. Normalised keys are numbers of equally many bytes."""
    lower, upper = (int.from_bytes(key) for key in (keys.lower, keys.upper))
    return upper - lower + 1
