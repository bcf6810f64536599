"""What quarantine holds up: against the plan as it is, and as it would be after a release."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from compactor.planner.held import held_up
from compactor.planner.plan import plan_compactions
from compactor.planner.spec import CompactionPlan, TrivialMove
from compactor.report.page import page
from compactor.report.text import window_text
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.table.metadata import TimeWindows
from compactor.table.version import Operation
from tests.planner.model import ModelTable
from tests.report.support import METADATA, MadeUp

SMALL = CompactionSettings(target_fragment_bytes=1000)


def test_neighbours_that_wait_for_one_in_quarantine_are_named_with_bytes_and_level() -> None:
    made = MadeUp()
    entries = [made.ingest((n, n + 5))[0] for n in range(5)]
    made.quarantine(entries[2], "it lies")
    pending = made.report().pending
    assert pending.planned == ()
    (row,) = pending.held
    assert (row.what, row.output_level, row.levels, row.window) == ("compact", 0, (0,), None)
    assert row.quarantined == (entries[2].key,)
    others = [entry for entry in entries if entry is not entries[2]]
    assert [fragment.key for fragment in row.waiting] == [entry.key for entry in others]
    assert pending.held_bytes == row.waiting_bytes == sum(e.size_bytes for e in others)
    (quarantined,) = pending.quarantine
    assert (quarantined.held_fragments, quarantined.held_bytes) == (4, pending.held_bytes)


def test_what_is_merged_without_the_one_in_quarantine_does_not_wait() -> None:
    made = MadeUp()
    entries = [made.ingest((n, n + 5))[0] for n in range(9)]
    made.quarantine(entries[0], "it lies")
    pending = made.report().pending
    assert [row.fragments for row in pending.planned] == [8]
    (row,) = pending.held
    assert (row.waiting, row.quarantined) == ((), (entries[0].key,))
    assert pending.held_fragments == pending.quarantine[0].held_fragments == 0


def test_nothing_is_held_up_where_nothing_is_due_or_in_quarantine() -> None:
    made = MadeUp()
    entries = [made.ingest((10 * n, 10 * n + 5))[0] for n in range(3)]
    assert made.report().pending.held == ()
    made.quarantine(entries[0], "it lies")
    assert made.report().pending.held == ()


def test_one_window_does_not_wait_for_another() -> None:
    made = MadeUp(replace(METADATA, windows=TimeWindows("k", 86_400)))
    by_window = {
        window: [structs.replace(made.entry(n, n + 5), window=window) for n in range(5)]
        for window in (0, 1)
    }
    for entries in zip(*by_window.values(), strict=True):
        made.commit(Operation.INGEST, entries)
    made.quarantine(by_window[1][2], "it lies")
    report = made.report()
    assert [row.fragments for row in report.pending.planned] == [5]
    (row,) = report.pending.held
    assert row.window == "1970-01-02"
    assert {f.key for f in row.waiting} == {e.key for e in by_window[1]} - {by_window[1][2].key}
    assert report.headline.windows == 2
    html = page(report)
    assert "1970-01-02" in html
    assert "on 1 level in 2 time windows" in html
    assert "Fragments of the 2 time windows lie over one another here" in html


def test_what_waits_for_its_turn_waits_for_those_of_its_window() -> None:
    made = MadeUp()
    younger, older, elsewhere = (structs.replace(made.entry(0, 5), window=w) for w in (1, 1, 2))
    released = CompactionPlan(trivial_moves=(TrivialMove((younger,), 1, "overlaps nothing"),))
    (step,) = held_up(CompactionPlan(), released, [older, elsewhere])
    assert (step.what, step.waiting, step.quarantined) == ("trivial move", (younger,), (older,))
    assert held_up(released, released, [older, elsewhere]) == ()


@pytest.mark.parametrize(
    ("window", "seconds", "text"),
    [
        (20_000, 86_400, "2024-10-04"),
        (20_000 * 24 + 5, 3600, "2024-10-04 05:00:00 UTC"),
        (None, 3600, "no time"),
    ],
)
def test_windows_are_named_by_when_they_begin(window: int | None, seconds: int, text: str) -> None:
    assert window_text(window, seconds) == text


@settings(max_examples=60)
@given(
    ranges=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), min_size=2, max_size=14),
    finished=st.integers(0, 14),
    places=st.sets(st.integers(0, 30), min_size=1, max_size=3),
    strategy=st.sampled_from(Strategy),
)
def test_every_step_of_after_a_release_is_due_now_or_held_up(
    ranges: Sequence[tuple[int, int]], finished: int, places: set[int], strategy: Strategy
) -> None:
    policy = Policy(strategy=strategy, level0_trigger_runs=2, level1_target_bytes=2000)
    table = ModelTable(policy, SMALL)
    for number, (low, length) in enumerate(ranges):
        if number == finished:
            table.settle()
        table.ingest(range(low, low + length))
    keys = sorted(table.snapshot.fragments)
    bad = {keys[place % len(keys)] for place in places}
    for key in bad:
        table.quarantine(key)
    plan = table.plan()
    released = plan_compactions(replace(table.snapshot, quarantine={}), policy, SMALL, 0)
    held = held_up(plan, released, [table.snapshot.fragments[key] for key in bad])
    now = inputs_of(plan)
    waiting = [entry.key for step in held for entry in step.waiting]
    assert len(set(waiting)) == len(waiting)
    assert not {*waiting} & {*now, *bad}
    assert all({e.key for e in step.quarantined} <= bad and step.quarantined for step in held)
    # Whatever a release would set going either goes already, waits, or is in quarantine itself.
    assert set(inputs_of(released)) <= {*now, *waiting, *bad}
    assert {*waiting} <= set(inputs_of(released))


def inputs_of(plan: CompactionPlan) -> list[str]:
    merged = [entry.key for spec in plan.specs for entry in spec.inputs]
    return merged + [entry.key for move in plan.trivial_moves for entry in move.entries]
