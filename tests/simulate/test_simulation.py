"""What every simulation keeps at every step, and what policies and workers make of it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import ConfigError
from compactor.planner.debt import Pressure
from compactor.planner.draft import Draft
from compactor.planner.spec import CompactionSpec, TrivialMove
from compactor.planner.tree import Item, KeyRange, Tree
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.simulate.fragments import fragment, merged
from compactor.simulate.result import Result
from compactor.simulate.settings import Locality, SimulationSettings, Spread, shards_for
from compactor.simulate.simulation import Observer, Simulation, runs_at_random_key
from compactor.table.entry import FragmentEntry
from tests.support.wording import refuses

# The longest take some seconds, and minutes on a busy machine.
pytestmark = pytest.mark.timeout(1_200)
KEYS = 48
"""So few that every key of every fragment can be followed."""
FLUSH = 1 << 20
COMPACTION = CompactionSettings(target_fragment_bytes=2 * FLUSH)
LEVELED = Policy(level1_target_bytes=6 * FLUSH, level_multiplier=3, level0_trigger_runs=3)
TIERED = LEVELED.model_copy(update={"strategy": Strategy.TIERED})
OVERLAPPING = Policy(strategy=Strategy.OVERLAPPING)
FULL = Policy(strategy=Strategy.FULL)


def changed(settings: SimulationSettings, **changes: Any) -> SimulationSettings:
    return SimulationSettings(**{**dict(settings), **changes})


SMALL = SimulationSettings(
    ingest_bytes_per_second=FLUSH,
    duration_seconds=150,
    flush_bytes=FLUSH,
    workers=3,
    task_bytes_per_second=10 * FLUSH,
    samples=20,
    key_space=KEYS,
)
WINDOWS = changed(SMALL, window_seconds=30, retention_seconds=45, late_share=0.2)


class Follower(Observer):
    """Checks the invariants after every step, key by key: which flushes are where."""

    def __init__(self) -> None:
        self.flushes: dict[str, dict[int, tuple[int, int]]] = {}
        """By fragment and key: the first and the last flush whose rows are there."""
        self.pressures: set[Pressure] = set()
        self.steps = 0
        self.waste = 0
        self.expired_keys: set[str] = set()

    def flushed(self, entry: FragmentEntry) -> None:
        number = entry.sequence[0]
        self.flushes[entry.key] = dict.fromkeys(keys_of(entry), (number, number))

    def compacted(self, spec: CompactionSpec, outputs: Sequence[FragmentEntry]) -> None:
        assert sum(e.size_bytes for e in outputs) == spec.size_bytes
        spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for entry in spec.inputs:
            for key, span in self.flushes.pop(entry.key).items():
                spans[key].append(span)
        for a, b in itertools.pairwise(sorted(outputs, key=lambda e: e.first_key)):
            assert a.last_key < b.first_key
        filled: set[int] = set()
        for output in outputs:
            assert output.size_bytes > 0
            self.flushes[output.key] = {
                key: (min(s[0] for s in spans[key]), max(s[1] for s in spans[key]))
                for key in keys_of(output)
                if key in spans
            }
            filled |= self.flushes[output.key].keys()
        assert filled == spans.keys(), "keys are lost"

    def moved(self, move: TrivialMove) -> None:
        assert move.entries

    def expired(self, entries: Sequence[FragmentEntry]) -> None:
        assert len({entry.window for entry in entries}) <= 1
        for entry in entries:
            del self.flushes[entry.key]

    def stepped(self, simulation: Simulation) -> None:
        self.steps += 1
        live = 0
        for tree in simulation.trees.values():
            live += sum(item.entry.size_bytes for item in tree.items())
            check_levels(tree)
            self._check_age(tree)
            if tree.items():
                assert runs_at_random_key(tree) == pytest.approx(mean_runs(tree))
        assert simulation.ingested_bytes == live + simulation.expired_bytes
        assert len(self.flushes) == sum(len(tree.items()) for tree in simulation.trees.values())
        self.pressures.add(simulation.debt().pressure)

    def _check_age(self, tree: Tree) -> None:
        """Of two fragments that share a key, the one deeper, or of the earlier run, holds older rows."""
        newest: dict[int, tuple[int, str]] = {}
        for item in sorted(tree.items(), key=lambda item: item.entry.age):
            entry = item.entry
            for key, (first, last) in self.flushes[entry.key].items():
                if key in newest and newest[key][1] != entry.sorted_run:
                    assert newest[key][0] < first, (entry, newest[key])
                newest[key] = last, entry.sorted_run


def keys_of(entry: FragmentEntry) -> range:
    return range(entry.first_key[0], entry.last_key[0] + 1)


def mean_runs(tree: Tree) -> float:
    """The level-0 fragments at each key, in the mean over all keys, and a run for each other level."""
    entries = [item.entry for item in tree.items()]
    held = [keys_of(entry) for entry in entries]
    keys = range(min(held, key=lambda h: h.start).start, max(held, key=lambda h: h.stop).stop)
    young = [keys_of(entry) for entry in entries if entry.level == 0]
    levels = {entry.level for entry in entries} - {0}
    return len(levels) + sum(key in each for key in keys for each in young) / len(keys)


def check_levels(tree: Tree) -> None:
    deepest = tree.deepest
    for level in range(deepest + 1):
        assert tree.level_bytes(level) == sum(
            item.entry.size_bytes for item in tree.items() if item.entry.level == level
        )
    for level in range(1, deepest + 1):
        fresh = sorted(
            (item for item in tree.items() if item.entry.level == level), key=lambda i: i.lower
        )
        assert [i.entry.key for i in tree.level(level).items] == [i.entry.key for i in fresh]
        for a, b in itertools.pairwise(fresh):
            assert a.upper < b.lower, (a, b)
        assert [i.entry.key for _, i in tree.by_overlap(level)] == least_overlap_first(tree, level)
    runs = [run.items for run in tree.runs()]
    assert {i.entry.key for run in runs for i in run} == {
        i.entry.key for i in tree.items() if i.entry.level == 0
    }
    for items in runs:
        for a, b in itertools.pairwise(sorted(items, key=lambda i: i.lower)):
            assert a.upper < b.lower, (a, b)


def least_overlap_first(tree: Tree, level: int) -> list[str]:
    below = [item for item in tree.items() if item.entry.level == level + 1]

    def rank(item):
        keys = KeyRange(item.lower, item.upper)
        overlapped = [o for o in below if keys.overlaps(KeyRange(o.lower, o.upper))]
        return sum(o.entry.size_bytes for o in overlapped) / item.entry.size_bytes, item.lower

    here = [item for item in tree.items() if item.entry.level == level]
    return [item.entry.key for item in sorted(here, key=rank)]


@pytest.mark.long
@given(
    policy=st.sampled_from([LEVELED, TIERED, OVERLAPPING, FULL]),
    base=st.sampled_from([SMALL, WINDOWS]),
    locality=st.sampled_from(["whole", "random:0.3", "random:0.03", "append"]),
    seed=st.integers(0, 1000),
    workers=st.integers(1, 6),
    speed=st.sampled_from([2, 10, 50]),
)
@settings(max_examples=60, deadline=None)
def test_every_step_keeps_bytes_levels_and_order_of_age(
    policy: Policy, base: SimulationSettings, locality: str, seed: int, workers: int, speed: int
) -> None:
    follower = Follower()
    where = Locality.parse(locality)
    given_settings = changed(
        base,
        locality=where,
        seed=seed,
        workers=workers,
        task_bytes_per_second=speed * FLUSH,
        key_space=KEYS << 20 if where.spread is Spread.APPEND else KEYS,
        flush_bytes=FLUSH,
    )
    simulation = Simulation(given_settings, policy, COMPACTION, _follower(follower, where))
    result = simulation.run()
    assert follower.steps > 100 or result.gave_up
    assert (
        result.last.ingested_bytes
        == sum(result.last.level_bytes.values()) + result.last.expired_bytes
    )


def _follower(follower: Follower, locality: Locality) -> Observer:
    """Keys that only grow are too many to be followed one by one."""
    return _Bytes(follower) if locality.spread is Spread.APPEND else follower


class _Bytes(Observer):
    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def stepped(self, simulation: Simulation) -> None:
        self._follower.steps += 1
        live = sum(i.entry.size_bytes for tree in simulation.trees.values() for i in tree.items())
        assert simulation.ingested_bytes == live + simulation.expired_bytes
        for tree in simulation.trees.values():
            check_levels(tree)


def run(policy: Policy, values: SimulationSettings = SMALL, **changes) -> Result:
    values = changed(values, **{"key_space": 1 << 40, "duration_seconds": 1500.0, **changes})
    return Simulation(values, policy, COMPACTION).run()


@pytest.mark.long
def test_enough_workers_keep_a_steady_ingest_healthy() -> None:
    result = run(LEVELED, workers=4)
    assert result.has_kept_up
    assert not result.peaks.slow
    assert {sample.debt.pressure for sample in result.samples} == {Pressure.HEALTHY}
    assert result.worker_use < 0.9


def test_too_few_workers_make_writers_stop() -> None:
    result = run(LEVELED, workers=1, task_bytes_per_second=2 * FLUSH)
    assert not result.has_kept_up
    assert result.peaks.stop
    assert result.worker_use > 0.95


def test_what_can_never_keep_up_ends_early() -> None:
    result = run(OVERLAPPING, workers=1, task_bytes_per_second=FLUSH, duration_seconds=5000.0)
    assert result.gave_up
    assert result.last.seconds < 5000
    assert result.peaks.level0_runs == 10 * OVERLAPPING.stop_runs


@pytest.mark.long
def test_write_amplification_of_levels_is_bounded_and_steady() -> None:
    result = run(LEVELED, workers=8, duration_seconds=2000.0, samples=40)
    start, end = result.second_half
    assert len(end.level_bytes) >= 5
    levels = max(end.level_bytes)
    assert end.write_amplification < 3 + levels * (2 + LEVELED.level_multiplier)
    assert end.write_amplification < 1.2 * start.write_amplification
    for level in range(1, levels):
        assert end.level_bytes[level] < 1.5 * LEVELED.level_target_bytes(level)


@pytest.mark.long
def test_tiered_writes_less_than_leveled() -> None:
    leveled, tiered = run(LEVELED, workers=8), run(TIERED, workers=8)
    assert tiered.last.write_amplification < leveled.last.write_amplification


@pytest.mark.long
def test_keys_that_only_grow_are_hardly_rewritten() -> None:
    result = run(LEVELED, locality=Locality(Spread.APPEND))
    assert result.last.write_amplification < 2
    assert result.peaks.trivial_moves


def test_the_same_seed_gives_the_same_result_and_another_one_another() -> None:
    first, again = run(LEVELED, WINDOWS, seed=7), run(LEVELED, WINDOWS, seed=7)
    assert first.to_json() == again.to_json()
    assert first.to_json() != run(LEVELED, WINDOWS, seed=8).to_json()


def test_windows_past_retention_are_dropped() -> None:
    result = run(LEVELED, WINDOWS, late_share=0.0)
    assert result.last.expired_bytes > 0.8 * result.last.ingested_bytes
    # The current window and those that ended less than 45 s ago.
    assert sum(result.last.level_bytes.values()) <= (30 + 45 + 30) * FLUSH * 1.1


def test_plans_do_not_look_through_the_whole_table_for_garbage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a simulation takes time by the square of its fragments."""

    def garbage(draft: Draft, item: Item, *_: Any) -> None:
        raise AssertionError(f"{item.entry.key} has none")

    monkeypatch.setattr(Draft, "garbage", garbage)
    assert run(LEVELED).peaks.compactions


@pytest.mark.long
def test_shards_share_the_rate_and_the_table_is_their_multiple() -> None:
    one = run(LEVELED, workers=4)
    four = run(LEVELED, workers=16, ingest_bytes_per_second=4 * FLUSH, shards=4)
    assert four.samples == one.samples
    assert four.to_json()["fragments"] == 4 * one.to_json()["fragments"]
    assert shards_for(10 << 30, 14 * 86_400, 256 << 20) == 2048
    assert shards_for(1 << 20, 3600, 256 << 20) == 1


def _entry(name: str, size: int, first: int, last: int) -> FragmentEntry:
    return fragment(
        name, size, (first, last), level=0, run=name, sequence=(1, 0), window=None,
        peak_chunk_bytes=1,
    )  # fmt: skip


def test_a_merge_cuts_at_the_target_and_at_keys_below_where_a_quarter_is_there() -> None:
    inputs = (_entry("a", 400, 0, 399), _entry("b", 400, 0, 399))
    limits = CompactionSettings(target_fragment_bytes=400)
    plain = merged(CompactionSpec(inputs=inputs, output_level=1), limits, run="c")
    assert [(e.first_key, e.last_key, e.size_bytes) for e in plain] == [
        ((0,), (199,), 400),
        ((200,), (399,), 400),
    ]
    cut = merged(
        CompactionSpec(inputs=inputs, output_level=1, cut_keys=((40,), (60,), (280,))),
        limits,
        run="c",
    )
    assert [e.first_key[0] for e in cut] == [0, 60, 260]


def test_a_merge_leaves_gaps_between_keys_empty() -> None:
    inputs = (_entry("a", 400, 0, 99), _entry("b", 400, 1000, 1099))
    outputs = merged(
        CompactionSpec(inputs=inputs, output_level=1),
        CompactionSettings(target_fragment_bytes=400),
        run="c",
    )
    assert [(e.first_key, e.last_key) for e in outputs] == [((0,), (99,)), ((1000,), (1099,))]


@pytest.mark.parametrize(
    "changes",
    [
        {"workers": 1, "shards": 2},
        {"retention_seconds": 5},
        {"late_share": 0.1},
        {"flush_bytes": 151 * FLUSH},
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict) -> None:
    with refuses(ConfigError):
        changed(SMALL, **changes)
