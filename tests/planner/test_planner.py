"""What every plan keeps, on tables of any shape; and what each strategy is for."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.planner.debt import Pressure, compaction_debt, debt_of
from compactor.planner.estimate import estimate
from compactor.planner.limits import Limits
from compactor.planner.shape import key_widths
from compactor.planner.tree import forest, overlapping_pairs, sorted_runs
from compactor.planner.tree_shape import shapes
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.table.metadata import TimeWindows
from tests.planner.model import ROW_BYTES, ModelTable

SMALL = CompactionSettings(target_fragment_bytes=8 * ROW_BYTES)
LEVELED = Policy(level1_target_bytes=20 * ROW_BYTES, level_multiplier=2, level0_trigger_runs=3)
TIERED = LEVELED.model_copy(update={"strategy": Strategy.TIERED})
OVERLAPPING = Policy(strategy=Strategy.OVERLAPPING)
FULL = Policy(strategy=Strategy.FULL)
POLICIES = [LEVELED, TIERED, OVERLAPPING, FULL]

key_lists = st.lists(st.integers(0, 60), min_size=1, max_size=20)
narrow_keys = st.integers(0, 60).flatmap(
    lambda low: st.lists(st.integers(low, low + 4), min_size=1, max_size=20)
)


@given(
    policies=st.lists(st.sampled_from(POLICIES), min_size=1, max_size=3),
    steps=st.lists(st.one_of(key_lists, narrow_keys, st.integers(0, 5)), min_size=1, max_size=25),
    windows=st.booleans(),
    fan_in=st.sampled_from([2, 3, 1000]),
)
@settings(max_examples=150, deadline=None)
def test_any_mix_of_ingests_and_compactions_keeps_rows_order_and_disjoint_levels(
    policies: list[Policy], steps: list, windows: bool, fan_in: int
) -> None:
    """A number in `steps` runs that many specs of a plan and leaves one more in flight."""
    cut = SMALL.model_copy(update={"max_fan_in": fan_in})
    table = ModelTable(policies[0], cut, TimeWindows("k", 60) if windows else None)
    expected: Counter[int] = Counter()
    in_flight: list = []
    for number, step in enumerate(steps):
        if isinstance(step, list):
            table.ingest(step, number % 2 if windows else None)
            expected.update(step)
            continue
        table.policy = policies[number % len(policies)]
        plan = table.plan()
        check_plan(table, plan)
        table.move_and_expire(plan)
        in_flight += [(spec, table.lease(spec)) for spec in plan.specs[:step]]
        while len(in_flight) > 1:
            table.run(*in_flight.pop(0))
            table.check_invariants()
    for spec, compaction_id in in_flight:
        table.run(spec, compaction_id)
    table.check_invariants()
    for policy in policies:
        table.policy = policy
        table.settle()
        table.check_invariants()
    rows = [
        row for w in {e.window for e in table.snapshot.fragments.values()} for row in table.scan(w)
    ]
    assert Counter(key for key, _ in rows) == expected


def check_plan(table: ModelTable, plan) -> None:
    taken = [e.key for spec in plan.specs for e in spec.inputs]
    taken += [e.key for move in plan.trivial_moves for e in move.entries]
    assert len(taken) == len(set(taken)), "a fragment in two parts of a plan"
    leased = {key for lease in table.snapshot.leases.values() for key in lease.inputs}
    assert not leased.intersection(taken)
    trees = forest(table.snapshot)
    limits = Limits.of(table.settings, key_widths(table.snapshot.table))
    for spec in plan.specs:
        assert len({entry.window for entry in spec.inputs}) == 1
        assert [e.age for e in spec.inputs] == sorted(e.age for e in spec.inputs)
        runs = sorted_runs([trees[spec.window].item(entry) for entry in spec.inputs])
        assert limits.fits(runs) or sum(run.items[0].entry.level == 0 for run in runs) <= 1


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: str(policy.strategy))
def test_a_table_nobody_writes_to_comes_to_rest_and_stays(policy: Policy) -> None:
    table = ModelTable(policy, SMALL)
    for number in range(40):
        table.ingest(range(number % 7, 60, 3))
        if number % 5 == 0:
            table.settle()
    table.settle()
    version = table.snapshot.version
    assert not table.plan()
    assert table.settle() == 0
    assert table.snapshot.version == version


def test_lazily_nothing_is_due_below_the_trigger() -> None:
    table = ModelTable(LEVELED, SMALL)
    for _ in range(2):
        table.ingest(range(5))
    assert not table.plan()
    table.ingest(range(5))
    assert len(table.plan().specs[0].inputs) == 3


def test_overlapping_leaves_disjoint_fragments_alone_and_full_joins_small_ones() -> None:
    table = ModelTable(OVERLAPPING, SMALL)
    for low in range(0, 60, 10):
        table.ingest(range(low, low + 3))
    assert not table.plan()
    table.policy = FULL
    table.settle()
    assert sorted(e.rows for e in table.snapshot.fragments.values()) == [6, 6, 6]


def test_one_large_run_is_not_rewritten_for_a_few_small_ones() -> None:
    table = ModelTable(TIERED, SMALL)
    table.ingest(range(1000))
    for _ in range(20):
        table.ingest(range(3))
        table.settle()
    assert table.rewritten_rows < 200


def test_what_overlaps_nothing_moves_down_without_being_rewritten() -> None:
    table = ModelTable(LEVELED, SMALL)
    for low in range(0, 1000, 10):
        table.ingest(range(low, low + 8))
        table.settle()
    assert table.rewritten_rows == 0
    assert max(entry.level for entry in table.snapshot.fragments.values()) >= 2


def test_small_fragments_that_overlap_nothing_are_merged_before_they_move() -> None:
    table = ModelTable(LEVELED, CompactionSettings(target_fragment_bytes=64 * ROW_BYTES))
    for low in range(600):
        table.ingest([low])
        table.settle()
    assert len(table.snapshot.fragments) < 60
    assert table.rewritten_rows < 600 * 6


@pytest.mark.long
def test_levels_stay_within_their_targets_and_write_amplification_within_bounds() -> None:
    policy = LEVELED.model_copy(update={"level_multiplier": 4, "level1_target_bytes": 6400})
    table = ModelTable(policy, SMALL)
    ingested = 0
    for number in range(400):
        keys = [(number * 7919 + i * 104729) % 100_003 for i in range(16)]
        table.ingest(keys)
        ingested += len(keys)
        table.settle()
    (tree,) = forest(table.snapshot).values()
    for level in range(1, tree.deepest):
        assert tree.level_bytes(level) <= policy.level_target_bytes(level)
    assert tree.deepest >= 3
    levels = tree.deepest
    tiers = math.log(6400 / (16 * ROW_BYTES), 3)
    bound = 1 + tiers + (1 + policy.push_ratio) + levels * (2 + policy.level_multiplier)
    assert 1 + table.rewritten_rows / ingested < bound


def test_no_compaction_rewrites_more_than_the_cap_for_what_it_moves() -> None:
    policy = LEVELED.model_copy(update={"max_rewrite_ratio": 3.0, "level_multiplier": 8})
    table = ModelTable(policy, SMALL)
    for number in range(150):
        table.ingest([(number * 7919 + i * 104729) % 1009 for i in range(12)])
        plan = table.plan()
        for spec in plan.specs:
            if spec.output_level > 1:
                assert spec.rewrite_ratio <= 3.0
        table.settle()


def test_outputs_end_where_fragments_of_the_level_below_begin() -> None:
    table = ModelTable(OVERLAPPING, SMALL)
    table.ingest(range(64))
    table.ingest([0])
    table.settle()
    table.policy = TIERED
    for _ in range(3):
        table.ingest(range(64))
    (spec,) = table.plan().specs
    below = sorted(e.first_key for e in table.snapshot.fragments.values() if e.level == 1)
    assert list(spec.cut_keys) == below[1:]


def test_what_is_in_quarantine_is_never_taken_and_nothing_goes_past_it() -> None:
    table = ModelTable(FULL, SMALL)
    for low in (0, 0, 0, 30, 30):
        table.ingest(range(low, low + 10))
    bad = sorted(table.snapshot.fragments)[1]
    table.quarantine(bad)
    plan = table.plan()
    assert all(e.first_key == (30,) for spec in plan.specs for e in spec.inputs)
    assert any("quarantine" in line for line in plan.blocked)
    table.policy = LEVELED
    table.settle()
    assert bad in table.snapshot.fragments
    table.check_invariants()


def test_whole_windows_are_dropped_when_they_expire_and_none_is_merged_with_another() -> None:
    table = ModelTable(FULL, SMALL, TimeWindows("k", 60, retention_seconds=120))
    for window in (0, 1, None):
        for _ in range(3):
            table.ingest(range(10), window)
    table.now_unix_ms = 179_999
    assert not table.plan().expiry.entries
    table.now_unix_ms = 180_000
    plan = table.plan()
    assert {entry.window for entry in plan.expiry.entries} == {0}
    assert {spec.window for spec in plan.specs} == {1, None}
    table.settle()
    assert {entry.window for entry in table.snapshot.fragments.values()} == {1, None}


def test_a_backlog_is_merged_by_several_tasks_at_once() -> None:
    table = ModelTable(TIERED.model_copy(update={"max_merge_runs": 8}), SMALL)
    for _ in range(64):
        table.ingest(range(10))
    assert len(table.plan().specs) == 8


def test_debt_says_when_writers_should_slow_down_and_stop() -> None:
    policy = Policy(slow_runs=4, stop_runs=8)
    table = ModelTable(policy, SMALL)
    seen = []
    for _ in range(8):
        table.ingest(range(10))
        seen.append(debt_of(table.snapshot, policy).pressure)
    assert seen == [Pressure.HEALTHY] * 3 + [Pressure.SLOW] * 4 + [Pressure.STOP]
    table.settle()
    assert debt_of(table.snapshot, policy).pressure == Pressure.HEALTHY


def test_a_tree_and_a_snapshot_have_the_same_shape() -> None:
    table = ModelTable(LEVELED, SMALL, TimeWindows("k", 60))
    for number in range(12):
        table.ingest(range(number, number + 20), number % 3)
        for spec in table.plan().specs[:1]:
            table.run(spec)
    by_tree = [tree.shape() for tree in forest(table.snapshot).values()]
    by_snapshot = shapes(table.snapshot)
    assert len(by_tree) == 3
    for policy in (LEVELED, Policy()):
        assert compaction_debt(by_tree, policy) == compaction_debt(by_snapshot, policy)
    assert compaction_debt(by_tree, LEVELED).pending_bytes > 0


def test_bytes_waiting_for_compaction_are_debt_too() -> None:
    policy = LEVELED.model_copy(update={"stop_pending_bytes": 100 * ROW_BYTES})
    table = ModelTable(policy, SMALL)
    table.ingest(range(1000))
    table.ingest(range(1000))
    table.ingest(range(1000))
    assert debt_of(table.snapshot, policy).pressure == Pressure.STOP


def test_estimates_count_what_a_compaction_reads_and_writes() -> None:
    table = ModelTable(FULL, SMALL)
    for _ in range(4):
        table.ingest(range(10))
    (spec,) = table.plan().specs
    predicted = estimate(spec.inputs, spec.output_level, SMALL, table.snapshot)
    assert (predicted.gets, predicted.puts, predicted.rows) == (4, 5, 40)
    assert predicted.bytes_in == 40 * ROW_BYTES


def test_a_merge_of_everything_leaves_no_overlap() -> None:
    table = ModelTable(FULL, SMALL)
    for low in range(0, 50, 5):
        table.ingest(range(low, low + 20))
    table.settle()
    assert overlapping_pairs(forest(table.snapshot).values()) == 0
    assert len({entry.sorted_run for entry in table.snapshot.fragments.values()}) == 1
