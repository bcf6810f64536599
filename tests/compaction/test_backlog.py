"""How far compactions are: what is due by the planner itself, whatever runs or stands in its way."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor import Table
from compactor.compaction.backlog import Backlog, backlog
from compactor.errors import ConfigError
from compactor.planner.spread import NOTHING
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from tests.planner.model import ROW_BYTES, ModelTable
from tests.planner.test_planner import FULL, OVERLAPPING, POLICIES, SMALL, key_lists
from tests.support.wording import refuses

MIB = 1 << 20


def of(table: ModelTable, chosen: CompactionSettings = SMALL, now_unix_ms: int = 1) -> Backlog:
    return backlog(table.snapshot, table.policy, chosen, table.plan(), now_unix_ms)


def made(policy: Policy, *ingests: list[int]) -> ModelTable:
    table = ModelTable(policy, SMALL)
    for keys in ingests:
        table.ingest(keys)
    return table


def test_a_plan_that_holds_nothing_back_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(FULL, [1, 2], [2, 3])
    plan = table.plan()
    whole = of(table)
    monkeypatch.delattr("compactor.compaction.backlog.plan_compactions")
    assert backlog(table.snapshot, table.policy, SMALL, plan, 1, is_plan_whole=True) == whole
    assert whole.waiting_compactions == 1


@settings(max_examples=100, deadline=None)
@given(
    policy=st.sampled_from(POLICIES),
    ingests=st.lists(key_lists, max_size=8),
    rounds=st.integers(0, 3),
)
def test_all_is_compacted_when_the_planner_has_nothing_left(
    policy: Policy, ingests: list[list[int]], rounds: int
) -> None:
    table = made(policy, *ingests)
    for _ in range(rounds):
        plan = table.plan()
        table.move_and_expire(plan)
        for spec in plan.specs:
            table.run(spec)
    assert of(table).is_caught_up == (not table.plan())
    table.settle()
    found = of(table)
    assert found.is_caught_up
    assert found.reaches(table.snapshot.version)
    assert (found.due_fragments, found.due_bytes, found.seconds_left) == (0, 0, NOTHING)


@settings(max_examples=100, deadline=None)
@given(policy=st.sampled_from(POLICIES), ingests=st.lists(key_lists, min_size=1, max_size=8))
def test_leases_and_quarantine_hide_nothing_that_is_due(
    policy: Policy, ingests: list[list[int]]
) -> None:
    table = made(policy, *ingests)
    before = of(table)
    for spec in table.plan().specs[:1]:
        table.lease(spec)
    for spec in table.plan().specs[:1]:
        table.quarantine(spec.inputs[0].key)
    after = of(table)
    assert after.compacted_through == before.compacted_through or before.is_caught_up
    assert (after.due_fragments, after.due_bytes) == (before.due_fragments, before.due_bytes)


def test_compacted_through_is_the_version_before_the_oldest_rows_that_are_due() -> None:
    table = made(OVERLAPPING, [1, 2], [11, 12], [21, 22], [12, 13], [22, 23])
    assert table.snapshot.version == 6
    found = of(table)
    # Version 2 brought the keys 1 and 2, which overlap nothing; version 3 those of 11 and 12.
    assert found.compacted_through == 2
    assert (found.due_fragments, found.waiting_compactions) == (4, 2)
    assert found.due_bytes == 8 * ROW_BYTES
    assert found.reaches(2)
    assert not found.reaches(3)


def test_a_version_that_is_to_come_is_not_reached() -> None:
    table = made(OVERLAPPING, [1, 2])
    assert of(table).is_caught_up
    assert not of(table).reaches(table.snapshot.version + 1)


def test_a_running_compaction_has_done_what_its_age_and_the_usual_speed_say() -> None:
    table = made(FULL, [1, 2], [2, 3])
    table.lease(table.plan().specs[0])
    [running] = of(table, now_unix_ms=1).running
    assert (running.fragments, running.bytes, running.done_bytes) == (2, 4 * ROW_BYTES, 0)
    assert running.seconds_left.low > 0
    [running] = of(table, now_unix_ms=3_600_001).running
    assert (running.seconds, running.seconds_left) == (3_600, NOTHING)
    assert running.done_bytes == running.bytes
    found = of(table)
    assert found.waiting_compactions == 0
    assert not found.is_caught_up
    assert len(found.held_up) == 1


def test_what_the_memory_limit_refuses_is_due(tmp_path: Path) -> None:
    rows = [pa.table({"k": [n, n + 2], "v": ["x" * (8 * MIB)] * 2}) for n in range(4)]
    table = Table.create(tmp_path / "t", rows[0], "k")
    for more in rows[1:]:
        table.append(more)
    policy, tight = Policy(strategy=Strategy.FULL), CompactionSettings(memory_limit_bytes=16 * MIB)
    found = table.backlog(policy=policy, settings=tight)
    assert (found.due_fragments, found.compacted_through, found.waiting_compactions) == (4, 0, 0)
    assert "raise" in found.held_up[0]
    with refuses(ConfigError):
        table.compact(policy=policy, settings=tight)
    assert table.backlog(policy=policy, settings=tight) == found


def test_a_table_is_caught_up_after_its_compaction(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.table({"k": [1, 2]}), "k")
    table.append(pa.table({"k": [2, 3]}))
    full = Policy(strategy=Strategy.FULL)
    assert not table.backlog(policy=full).is_caught_up
    assert table.backlog().is_caught_up  # two runs of level 0 are no reason by the usual policy
    table.compact(policy=full)
    assert table.backlog(policy=full).is_caught_up


def test_a_quarantine_that_parts_neighbours_is_said_to_hold_them_up(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.table({"k": [0]}), "k")
    for first in range(1, 6):
        table.append(pa.table({"k": [first]}))
    Path(table.url, key := table.fragments()["key"][3].as_py()).unlink()
    table.quarantine([key])
    backlog = table.backlog()
    assert backlog.waiting_compactions == 1
    [line] = backlog.held_up
    assert line.startswith(
        "level 0: 6 neighbouring runs of like size: 1 fragment is in quarantine; "
    )
