"""Compaction of whole tables: result, requests, passes, and a crash at every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.commit_log import CommitLog
from compactor.compact import compact
from compactor.config import CompactionSettings
from compactor.errors import CompactionVoidError, JobError
from compactor.job import Compaction, Outcome, _Attempt, run_compaction, run_in_process
from compactor.planner.overlap import overlapping_pairs
from compactor.planner.spec import CompactionSpec
from compactor.stores.local import LocalStore
from compactor.stores.open import open_store
from compactor.verify import verify
from tests.support.memory_store import MemoryStore
from tests.support.oracle import stable_sorted
from tests.support.tables import SORT, ingest_tables, log_rows, table_rows


def on_store(store):
    """A runner that executes on a store that no address leads to."""

    def run(compactions) -> list[Outcome]:
        return [_Attempt(compaction, store).run() for compaction in compactions]

    return run


def expected_rows(tables) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = stable_sorted(pa.concat_tables(tables), SORT).to_pylist()
    return rows


@pytest.mark.parametrize("full", [False, True])
def test_a_compacted_table_equals_the_oracle_and_is_one_disjoint_run(
    table_url: str, tmp_path: Path, full: bool
) -> None:
    store = open_store(table_url)
    tables = [log_rows(2_000, seed) for seed in range(6)]
    log = ingest_tables(store, tables, tmp_path, rows_per_fragment=1_500)
    assert table_rows(store) == expected_rows(tables)
    settings = CompactionSettings(target_fragment_bytes=20_000)
    report = compact(store, log, run_in_process, settings, full=full)
    snapshot = CommitLog(store).current()
    assert (report.totals["rows_in"], report.totals["rows_out"]) == (12_000, 12_000)
    assert report.output_fragments == len(snapshot.fragments) > 2
    assert len({entry.run for entry in snapshot.fragments.values()}) == 1
    assert overlapping_pairs(snapshot.fragments.values(), snapshot.table.comparator()) == 0
    assert table_rows(store) == expected_rows(tables)
    assert verify(store, snapshot).faults == []


@pytest.mark.parametrize("inputs", [1, 2, 16, 200])
def test_exactly_one_get_per_input_fragment_is_counted_at_the_server(
    s3_server, s3_bucket: str, tmp_path: Path, inputs: int
) -> None:
    store = open_store(f"s3://{s3_bucket}/t")
    tables = [log_rows(30, seed) for seed in range(inputs)]
    log = ingest_tables(store, tables, tmp_path)
    keys = sorted(f"t/{key}" for key in log.current().fragments)
    s3_server.reset()
    snapshot = log.current()
    if inputs == 1:
        spec = CompactionSpec(tuple(snapshot.by_age()), 1)
        compaction = Compaction("c", "r", store.url, snapshot.table, spec, CompactionSettings())
        outcome = run_compaction(compaction)
        assert outcome.failure is None
    else:
        report = compact(store, log, run_in_process, CompactionSettings())
        assert report.totals["gets"] == inputs
        assert report.totals["resumed_gets"] == 0
    gets = s3_server.requests("GET", "t/data/")
    assert sorted(request.key for request in gets) == keys
    assert all(request.range is None for request in gets)


def test_equal_keys_keep_their_order_through_passes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(40, seed) for seed in range(13)]
    log = ingest_tables(store, tables, tmp_path)
    report = compact(store, log, run_in_process, CompactionSettings(max_fan_in=3))
    assert report.tasks > 1
    assert table_rows(store) == expected_rows(tables)
    assert len(CommitLog(store).current().fragments) == 1


def test_passes_over_runs_of_many_fragments_end_and_keep_equal_keys_in_order(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(1_000, seed) for seed in range(7)]
    log = ingest_tables(store, tables, tmp_path)
    settings = CompactionSettings(max_fan_in=2, target_fragment_bytes=6_000)
    report = compact(store, log, run_in_process, settings)
    snapshot = CommitLog(store).current()
    # 7 runs, then 4, 2 and 1: three passes, each over all rows but those of an odd one out.
    assert snapshot.version == 7 + 3
    assert report.totals["rows_in"] <= 3 * 7_000
    assert len(snapshot.fragments) > 4
    assert len({entry.run for entry in snapshot.fragments.values()}) == 1
    assert table_rows(store) == expected_rows(tables)
    assert compact(store, log, run_in_process, settings).tasks == 0


def test_keys_that_differ_only_past_what_bounds_keep_are_compacted_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    prefix = "https://example.net/" + "x" * 100
    tables = [
        pa.table({"service": [f"{prefix}/{n:06d}" for n in range(seed, 4_000, 2)],
                  "ts": pa.array([0] * 2_000, pa.timestamp("ms", "UTC"))})
        for seed in range(2)
    ]  # fmt: skip
    log = ingest_tables(store, tables, tmp_path)
    settings = CompactionSettings(target_fragment_bytes=5_000)
    for full in (False, True):
        compact(store, log, run_in_process, settings, full=full)
        snapshot = CommitLog(store).current()
        assert snapshot.version == 3
        assert len(snapshot.fragments) > 2
        assert overlapping_pairs(snapshot.fragments.values(), snapshot.table.comparator()) == 0
        assert table_rows(store) == expected_rows(tables)
    log = ingest_tables(store, [tables[0].slice(10, 20)], tmp_path)
    compact(store, log, run_in_process, settings)
    assert table_rows(store) == expected_rows([*tables, tables[0].slice(10, 20)])
    assert CommitLog(store).current().version == 5


def test_later_rows_come_after_compacted_ones_of_equal_keys(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(40, seed) for seed in range(6)]
    log = ingest_tables(store, tables[:3], tmp_path)
    compact(store, log, run_in_process, CompactionSettings())
    log = ingest_tables(store, tables[3:], tmp_path)
    assert table_rows(store) == expected_rows(tables)
    compact(store, log, run_in_process, CompactionSettings())
    assert table_rows(store) == expected_rows(tables)


@pytest.mark.parametrize("full", [False, True])
def test_a_second_compaction_finds_nothing_to_do(tmp_path: Path, full: bool) -> None:
    store = LocalStore(tmp_path / "t")
    log = ingest_tables(store, [log_rows(500, seed) for seed in range(6)], tmp_path)
    settings = CompactionSettings(target_fragment_bytes=10_000)
    first = compact(store, log, run_in_process, settings, full=full)
    second = compact(store, log, run_in_process, settings, full=full)
    assert (second.tasks, second.version) == (0, first.version)


def test_disjoint_fragments_are_left_alone_unless_small_and_full(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [
        pa.table({"service": [f"s{n}"], "ts": pa.array([n], pa.timestamp("ms", "UTC"))})
        for n in range(5)
    ]
    log = ingest_tables(store, tables, tmp_path)
    assert compact(store, log, run_in_process, CompactionSettings()).tasks == 0
    report = compact(store, log, run_in_process, CompactionSettings(), full=True)
    assert (report.input_fragments, report.output_fragments) == (5, 1)


def test_an_overshoot_restarts_with_fewer_rows_and_is_counted(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    # Heavy rows are scattered over the inputs and neighbours only in the merged order.
    tables = [
        pa.table({"service": ["b"] * 500 + ["a"] * 5,
                  "ts": pa.array(range(505), pa.timestamp("ms", "UTC")),
                  "text": ["x"] * 500 + [f"{seed}{n}" * 400 for n in range(5)]})
        for seed in range(20)
    ]  # fmt: skip
    log = ingest_tables(store, tables, tmp_path, max_rows=1000)
    settings = CompactionSettings(target_row_group_bytes=4_000)
    report = compact(store, log, run_in_process, settings)
    assert report.totals["restarts"] >= 1
    assert report.totals["gets"] == 20 * (1 + report.totals["restarts"])
    assert verify(store, CommitLog(store).current()).faults == []
    assert len(table_rows(store)) == 20 * 505


class Crash(BaseException):
    """The process dies here."""


def steps_of_a_compaction(tmp_path: Path) -> int:
    store = MemoryStore()
    log = ingest_tables(store, TABLES, tmp_path)
    store.calls.clear()
    compact(store, log, on_store(store), SMALL_OUTPUTS)
    return len(store.calls)


TABLES = [log_rows(60, seed) for seed in range(3)]
SMALL_OUTPUTS = CompactionSettings(target_fragment_bytes=3_000)


def test_a_crash_at_any_step_loses_nothing_and_shows_nothing_unfinished(tmp_path: Path) -> None:
    expected = expected_rows(TABLES)
    steps = steps_of_a_compaction(tmp_path)
    assert steps > 20
    finished = 0
    for step in range(steps):
        store = MemoryStore()
        log = ingest_tables(store, TABLES, tmp_path)
        before = log.current()
        remaining = [step]

        def crash(operation: str, key: str, remaining=remaining) -> None:
            remaining[0] -= 1
            if remaining[0] < 0:
                raise Crash

        store.fault = crash
        with pytest.raises(Crash):
            compact(store, log, on_store(store), SMALL_OUTPUTS)
        survivor = MemoryStore(store.objects)
        after = CommitLog(survivor).current()
        if after.version == before.version:
            assert after.fragments == before.fragments
        else:
            finished += 1
            assert not set(after.fragments) & set(before.fragments)
        assert table_rows(survivor) == expected
        assert verify(survivor, after).faults == []
        compact(survivor, CommitLog(survivor), on_store(survivor), SMALL_OUTPUTS)
        assert table_rows(survivor) == expected
    assert finished  # the crash right after the commit


def test_a_failed_compaction_changes_nothing_and_says_why(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    log = ingest_tables(store, [log_rows(60, seed) for seed in range(3)], tmp_path)
    before = log.current()
    victim = tmp_path / "t" / sorted(before.fragments)[1]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    with pytest.raises(JobError, match=f"the table is as it was.*{victim.name}"):
        compact(store, log, run_in_process, CompactionSettings())
    assert CommitLog(store).current() == before
    assert list((tmp_path / "t" / ".tmp").iterdir()) == []


def test_of_two_compactions_of_the_same_fragments_one_is_void(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(60, seed) for seed in range(3)]
    log = ingest_tables(store, tables, tmp_path)

    def overtaken(compactions) -> list[Outcome]:
        outcomes = run_in_process(compactions)
        compact(store, CommitLog(store), run_in_process, CompactionSettings())
        return outcomes

    with pytest.raises(CompactionVoidError, match="somebody else"):
        compact(store, log, overtaken, CompactionSettings())
    assert table_rows(store) == expected_rows(tables)


def test_rows_ingested_while_a_compaction_runs_are_kept(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(60, seed) for seed in range(4)]
    log = ingest_tables(store, tables[:3], tmp_path)

    def with_company(compactions) -> list[Outcome]:
        if len(CommitLog(store).current().fragments) == 3:
            ingest_tables(store, tables[3:], tmp_path)
        return run_in_process(compactions)

    compact(store, log, with_company, CompactionSettings())
    assert table_rows(store) == expected_rows(tables)


def test_duplicate_outcomes_of_a_speculative_attempt_count_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(60, seed) for seed in range(3)]
    log = ingest_tables(store, tables, tmp_path)

    def twice(compactions) -> list[Outcome]:
        return run_in_process(compactions) + run_in_process(compactions)

    compact(store, log, twice, CompactionSettings())
    assert table_rows(store) == expected_rows(tables)
    assert len(CommitLog(store).current().fragments) == 1


def test_compactions_and_outcomes_survive_their_json(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    log = ingest_tables(store, [log_rows(60, seed) for seed in range(2)], tmp_path)
    seen: list[Compaction] = []

    def record(compactions) -> list[Outcome]:
        seen.extend(compactions)
        return run_in_process(compactions)

    compact(store, log, record, CompactionSettings())
    (compaction,) = seen
    assert Compaction.from_json(compaction.to_json()) == compaction
    failure = Outcome("c", failure="why")
    assert Outcome.from_json(failure.to_json()) == failure
