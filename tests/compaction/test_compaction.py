"""Compaction of whole tables: result, requests, rounds, and a crash at every step."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.compaction.attempt import run_compaction
from compactor.compaction.compact_report import CompactReport
from compactor.compaction.compaction import Compaction, Outcome, failed
from compactor.compaction.engine import InProcessEngine
from compactor.errors import (
    ObjectChangedError,
    ObjectNotFoundError,
    PermissionDeniedError,
    StoreError,
)
from compactor.planner.spec import CompactionSpec
from compactor.planner.tree import forest, overlapping_pairs
from compactor.read.verify import verify
from compactor.resources.errors import LocalDiskError, MemoryLimitError
from compactor.settings.compaction import CompactionSettings, Strategy
from compactor.stores.local import LocalStore
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.write.delete import delete_rows
from compactor.write.lost_fragments import release
from tests.faults import Crash, Kill, Refuse, calls, flipped
from tests.faults.store import PUBLISHING
from tests.support.memory_store import MemoryStore
from tests.support.oracle import stable_sorted
from tests.support.tables import (
    SORT,
    append_table,
    compact_table,
    ingest_tables,
    log_rows,
    table_rows,
)

OVERLAPPING, FULL = Strategy.OVERLAPPING, Strategy.FULL


def expected_rows(tables) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = stable_sorted(pa.concat_tables(tables), SORT).to_pylist()
    return rows


@pytest.mark.parametrize("strategy", [OVERLAPPING, pytest.param(FULL, marks=pytest.mark.long)])
def test_a_compacted_table_equals_the_oracle_and_is_one_disjoint_run(
    table_url: str, tmp_path: Path, strategy: Strategy
) -> None:
    store = open_store(table_url)
    tables = [log_rows(2_000, seed) for seed in range(6)]
    ingest_tables(store, tables, tmp_path, rows_per_fragment=1_500)
    assert table_rows(store) == expected_rows(tables)
    settings = CompactionSettings(target_fragment_bytes=20_000)
    report = compact_table(store, settings, strategy=strategy)
    snapshot = CommitLog(store).current()
    assert (report.to_json()["rows_in"], report.to_json()["rows_out"]) == (12_000, 12_000)
    assert report.to_json()["output_fragments"] == len(snapshot.fragments) > 2
    assert len({entry.sorted_run for entry in snapshot.fragments.values()}) == 1
    assert overlapping_pairs(forest(snapshot).values()) == 0
    assert table_rows(store) == expected_rows(tables)
    assert verify(store, snapshot).faults == []


@pytest.mark.parametrize("inputs", [1, 2, 16, pytest.param(200, marks=pytest.mark.long)])
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
        spec = CompactionSpec(inputs=tuple(snapshot.by_age()), output_level=1)
        compaction = Compaction(
            compaction_id="c",
            base_version=1,
            table_url=store.url,
            metadata=snapshot.table,
            spec=spec,
            settings=CompactionSettings(),
        )
        outcome = run_compaction(compaction)
        assert outcome.failure is None
    else:
        report = compact_table(store, CompactionSettings())
        assert report.to_json()["gets"] == inputs
        assert report.to_json()["resumed_gets"] == 0
    gets = s3_server.requests("GET", "t/data/")
    assert sorted(request.key for request in gets) == keys
    assert all(request.range is None for request in gets)


def test_equal_keys_keep_their_order_through_passes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(40, seed) for seed in range(13)]
    ingest_tables(store, tables, tmp_path)
    report = compact_table(store, CompactionSettings(max_fan_in=3))
    assert report.to_json()["tasks"] > 1
    assert table_rows(store) == expected_rows(tables)
    assert len(CommitLog(store).current().fragments) == 1


def test_passes_over_runs_of_many_fragments_end_and_keep_equal_keys_in_order(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(1_000, seed) for seed in range(7)]
    ingest_tables(store, tables, tmp_path)
    settings = CompactionSettings(max_fan_in=2, target_fragment_bytes=6_000)
    figures = compact_table(store, settings).to_json()
    snapshot = CommitLog(store).current()
    # 7 runs, then 4, 2 and 1: three rounds, each over all rows but those of an odd one out.
    assert figures["tasks"] >= 3 + 2 + 1
    assert figures["rows_in"] <= 3 * 7_000
    assert len(snapshot.fragments) > 4
    assert len({entry.sorted_run for entry in snapshot.fragments.values()}) == 1
    assert table_rows(store) == expected_rows(tables)
    assert compact_table(store, settings).to_json()["tasks"] == 0


def test_keys_that_differ_only_past_what_bounds_keep_are_compacted_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    prefix = "https://example.net/" + "x" * 100
    tables = [
        pa.table({"service": [f"{prefix}/{n:06d}" for n in range(seed, 4_000, 2)],
                  "ts": pa.array([0] * 2_000, pa.timestamp("ms", "UTC"))})
        for seed in range(2)
    ]  # fmt: skip
    ingest_tables(store, tables, tmp_path)
    settings = CompactionSettings(target_fragment_bytes=5_000)
    for strategy, tasks in ((OVERLAPPING, 1), (FULL, 0)):
        assert len(compact_table(store, settings, strategy=strategy).done) == tasks
        snapshot = CommitLog(store).current()
        assert len(snapshot.fragments) > 2
        assert overlapping_pairs(forest(snapshot).values()) == 0
        assert table_rows(store) == expected_rows(tables)
    ingest_tables(store, [tables[0].slice(10, 20)], tmp_path)
    assert len(compact_table(store, settings).done) == 1
    assert table_rows(store) == expected_rows([*tables, tables[0].slice(10, 20)])


def test_later_rows_come_after_compacted_ones_of_equal_keys(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(40, seed) for seed in range(6)]
    ingest_tables(store, tables[:3], tmp_path)
    compact_table(store, CompactionSettings())
    ingest_tables(store, tables[3:], tmp_path)
    assert table_rows(store) == expected_rows(tables)
    compact_table(store, CompactionSettings())
    assert table_rows(store) == expected_rows(tables)


@pytest.mark.parametrize("strategy", [OVERLAPPING, FULL])
def test_a_second_compaction_finds_nothing_to_do(tmp_path: Path, strategy: Strategy) -> None:
    store = LocalStore(tmp_path / "t")
    ingest_tables(store, [log_rows(500, seed) for seed in range(6)], tmp_path)
    settings = CompactionSettings(target_fragment_bytes=10_000)
    first = compact_table(store, settings, strategy=strategy)
    second = compact_table(store, settings, strategy=strategy)
    assert first.done
    assert (second.done, second.version) == ([], first.version)


def test_disjoint_fragments_are_left_alone_unless_small_and_full(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [
        pa.table({"service": [f"s{n}"], "ts": pa.array([n], pa.timestamp("ms", "UTC"))})
        for n in range(5)
    ]
    ingest_tables(store, tables, tmp_path)
    assert compact_table(store, CompactionSettings()).to_json()["tasks"] == 0
    report = compact_table(store, CompactionSettings(), strategy=FULL)
    assert (report.to_json()["input_fragments"], report.to_json()["output_fragments"]) == (5, 1)


def test_an_overshoot_restarts_with_fewer_rows_and_is_counted(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    # Heavy rows are scattered over the inputs and neighbours only in the merged order.
    tables = [
        pa.table({"service": ["b"] * 500 + ["a"] * 5,
                  "ts": pa.array(range(505), pa.timestamp("ms", "UTC")),
                  "text": ["x"] * 500 + [f"{seed}{n}" * 400 for n in range(5)]})
        for seed in range(20)
    ]  # fmt: skip
    ingest_tables(store, tables, tmp_path, max_rows=1000)
    settings = CompactionSettings(target_row_group_bytes=4_000)
    report = compact_table(store, settings)
    assert report.to_json()["restarts"] >= 1
    assert report.to_json()["gets"] == report.to_json()["replayed_inputs"] == 20
    assert verify(store, CommitLog(store).current()).faults == []
    assert len(table_rows(store)) == 20 * 505


def steps_of_a_compaction(tmp_path: Path) -> list[tuple[int, Kill]]:
    """Returns the number of each call, with a death before it, and one after it if it publishes."""
    store = MemoryStore()
    ingest_tables(store, TABLES, tmp_path)
    store.calls.clear()
    compact_table(store, SMALL_OUTPUTS)
    operations = [operation for operation, _ in store.calls]
    before = [(number, Kill()) for number, _ in enumerate(operations, 1)]
    after = [(n, Kill(after=True)) for n, what in enumerate(operations, 1) if what in PUBLISHING]
    return before + after


TABLES = [log_rows(60, seed) for seed in range(3)]
SMALL_OUTPUTS = CompactionSettings(target_fragment_bytes=3_000)


def test_a_crash_at_any_step_loses_nothing_and_shows_nothing_unfinished(tmp_path: Path) -> None:
    expected = expected_rows(TABLES)
    steps = steps_of_a_compaction(tmp_path)
    assert len(steps) > 20
    finished = 0
    for step, kill in steps:
        store = MemoryStore()
        log = ingest_tables(store, TABLES, tmp_path)
        before = log.current()
        store.faults.add(kill, at=calls().nth(step))
        with pytest.raises(Crash):
            compact_table(store, SMALL_OUTPUTS)
        survivor = MemoryStore(store.objects)
        after = CommitLog(survivor).current()
        if set(after.fragments) == set(before.fragments):
            assert after.fragments == before.fragments
        else:
            finished += 1
            assert not set(after.fragments) & set(before.fragments)
        assert table_rows(survivor) == expected
        assert verify(survivor, after).faults == []
        compact_table(survivor, SMALL_OUTPUTS, takes_over=True)
        assert table_rows(survivor) == expected
    assert finished  # the crash right after the commit


def damage(store: LocalStore, tmp_path: Path, number: int) -> Path:
    victim = tmp_path / "t" / sorted(CommitLog(store).current().fragments)[number]
    victim.write_bytes(flipped(victim.read_bytes()))
    return victim


def test_a_damaged_input_is_put_in_quarantine_and_the_rest_is_compacted(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    ingest_tables(store, [log_rows(60, seed) for seed in range(3)], tmp_path)
    before = CommitLog(store).current()
    victim = damage(store, tmp_path, 1)
    key = f"data/{victim.name}"
    report = compact_table(store, max_attempts=2)
    after = CommitLog(store).current()
    assert after.fragments == before.fragments
    assert after.leases == {}
    assert list(after.quarantine) == [key]
    assert victim.name in after.quarantine[key].reason
    assert [s.attempt for s in report.failed] == [1, 2]
    assert [s.quarantined for s in report.lost] == [(key,)]
    assert list((tmp_path / "t" / ".tmp").iterdir()) == []


def apart(tables: list[pa.Table], services: list[str]) -> list[pa.Table]:
    """Each table's rows under a service of its own."""
    return [
        table.set_column(0, "service", pa.array([service] * table.num_rows))
        for table, service in zip(tables, services, strict=True)
    ]


def test_a_failed_compaction_does_not_lose_the_others(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = apart([log_rows(60, seed) for seed in range(6)], ["a", "a", "b", "b", "c", "c"])
    ingest_tables(store, tables, tmp_path)
    damage(store, tmp_path, 2)
    report = compact_table(store)
    assert (len(report.done), len(report.lost), len(report.failed)) == (2, 1, 3)
    after = CommitLog(store).current()
    assert len(after.fragments) == 2 + 2
    assert len(after.quarantine) == 1
    assert compact_table(store).finished == []


def test_a_failure_that_passes_is_tried_again_and_told(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(60, seed) for seed in range(3)]
    ingest_tables(store, tables, tmp_path)
    failures = iter([True, False])

    def fail_once(compaction: Compaction) -> Outcome:
        if next(failures):
            return Outcome(compaction_id=compaction.compaction_id, failure="out of luck")
        return run_compaction(compaction)

    report = compact_table(store, engine=InProcessEngine(fail_once))
    assert (len(report.failed), len(report.done), report.lost) == (1, 1, [])
    assert CommitLog(store).current().quarantine == {}
    assert table_rows(store) == expected_rows(tables)


def test_an_unreachable_store_puts_nothing_in_quarantine(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    ingest_tables(store, [log_rows(60, seed) for seed in range(3)], tmp_path)

    def unreachable(compaction: Compaction) -> Outcome:
        return Outcome(compaction_id=compaction.compaction_id, failure="no answer")

    report = compact_table(store, engine=InProcessEngine(unreachable), max_attempts=2)
    assert (len(report.failed), len(report.lost)) == (2, 1)
    assert CommitLog(store).current().quarantine == {}
    assert len(compact_table(store).done) == 1


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (lambda key: StoreError(f"s3://b/{key}: refused: the key is disabled (KMS.Disabled)"), 4),
        (lambda key: ObjectNotFoundError(f"s3://b/{key}: no such object"), 4),
        (lambda key: ObjectChangedError(f"s3://b/{key}: the object was replaced"), 4),
        (lambda key: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), key), 4),
        (lambda key: LocalDiskError(f"cannot put 5 bytes aside: disk full at {key}"), 4),
        (lambda key: EOFError(key), 4),
        (lambda key: MemoryError(key), 1),
    ],
)
@pytest.mark.parametrize("operation", ["open_stream", "start_upload"])
def test_what_is_no_damage_puts_nothing_in_quarantine(
    tmp_path: Path, error: Callable[[str], Exception], attempts: int, operation: str
) -> None:
    store = MemoryStore()
    tables = [log_rows(60, seed) for seed in range(3)]
    keys = list(ingest_tables(store, tables, tmp_path).current().fragments)

    failing = MemoryStore(store.objects)
    of_one = calls(operation, where=lambda call: call.key == keys[1] or call.key not in keys)
    failing.faults.add(Refuse(lambda _: error(keys[1])), at=of_one)
    engine = InProcessEngine(lambda compaction: run_compaction(compaction, failing))
    report = compact_table(store, engine=engine, max_attempts=4)
    assert (len(report.failed), len(report.lost), report.done) == (attempts, 1, [])
    assert CommitLog(store).current().quarantine == {}
    assert len(compact_table(store).done) == 1
    assert table_rows(store) == expected_rows(tables)


def test_damage_to_the_note_of_deleted_rows_is_damage_to_their_fragment(tmp_path: Path) -> None:
    store = MemoryStore()
    log = ingest_tables(store, [log_rows(60, seed) for seed in range(3)], tmp_path)
    delete_rows(store, log, "id = '1-7'")
    (hit,) = [e for e in log.current().fragments.values() if e.deletion]
    assert hit.deletion is not None
    store.objects[hit.deletion.key] = flipped(store.objects[hit.deletion.key], -1)
    report = compact_table(store)
    assert [s.quarantined for s in report.lost] == [(hit.key,)]
    assert list(CommitLog(store).current().quarantine) == [hit.key]


@pytest.mark.parametrize("lost", ["fragment", "deleted rows"])
def test_an_input_that_is_gone_is_put_in_quarantine_and_costs_no_version_any_more(
    tmp_path: Path, lost: str
) -> None:
    store = MemoryStore()
    tables = [log_rows(60, seed) for seed in range(3)]
    log = ingest_tables(store, tables, tmp_path)
    delete_rows(store, log, "id = '1-7'")
    (hit,) = [e for e in log.current().fragments.values() if e.deletion]
    assert hit.deletion is not None
    object_key = hit.key if lost == "fragment" else hit.deletion.key
    data = store.objects.pop(object_key)
    report = compact_table(store, strategy=FULL)
    assert [s.quarantined for s in report.failed] == [(), (), (hit.key,)]
    after = CommitLog(store).current()
    assert list(after.quarantine) == [hit.key]
    assert object_key in after.quarantine[hit.key].reason
    for _ in range(3):
        assert compact_table(store, strategy=FULL).finished == []
    assert CommitLog(store).current().version == after.version
    store.objects[object_key] = data
    release(CommitLog(store))
    assert len(compact_table(store, strategy=FULL).done) == 1
    rest = [row for row in expected_rows(tables) if row["id"] != "1-7"]
    assert table_rows(store) == rest


@pytest.mark.parametrize("answer", ["listed all the same", "not listed to us", "no more needed"])
def test_an_input_is_gone_only_if_all_say_so(tmp_path: Path, answer: str) -> None:
    store = MemoryStore()
    ingest_tables(store, [log_rows(60, seed) for seed in range(3)], tmp_path)
    (key, *_) = CommitLog(store).current().fragments
    failing = MemoryStore(store.objects)
    failing.faults.add(Refuse(ObjectNotFoundError), at=calls("open_stream", prefix=key))
    if answer == "not listed to us":
        failing.faults.add(Refuse(PermissionDeniedError), at=calls("list", prefix=key))
        store.objects.pop(key)
    elif answer == "no more needed":
        store.objects.pop(key)
        CommitLog(store).commit(lambda _: Changes(operation=Operation.DROP, removes=(key,)))
    compaction_of_all = InProcessEngine(lambda compaction: run_compaction(compaction, failing))
    report = compact_table(store, engine=compaction_of_all, strategy=FULL)
    assert not any(s.outcome.is_damage for s in report.finished)
    assert CommitLog(store).current().quarantine == {}


def test_a_defect_in_one_compaction_is_an_outcome_like_others(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    ingest_tables(store, [log_rows(60, seed) for seed in range(2)], tmp_path)

    def broken(_: Compaction) -> Outcome:
        raise ZeroDivisionError("oops")

    report = compact_table(store, engine=InProcessEngine(broken), max_attempts=1)
    assert [s.outcome.failure for s in report.lost] == ["ZeroDivisionError"]
    assert CommitLog(store).current().quarantine == {}


def test_what_others_compact_is_left_alone_unless_taken_over(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(60, seed) for seed in range(3)]
    ingest_tables(store, tables, tmp_path)
    seen: list[CompactReport] = []

    def overtaken(compaction: Compaction) -> Outcome:
        outcome = run_compaction(compaction)
        if not seen:
            seen.append(compact_table(store))
            seen.append(compact_table(store, takes_over=True))
        return outcome

    report = compact_table(store, engine=InProcessEngine(overtaken))
    assert seen[0].finished == []
    assert len(seen[1].done) == 1
    assert (len(report.void), report.done, report.failed) == (1, [], [])
    assert table_rows(store) == expected_rows(tables)
    assert verify(store, CommitLog(store).current()).faults == []


def test_rows_ingested_while_a_compaction_runs_are_kept(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(60, seed) for seed in range(4)]
    ingest_tables(store, tables[:3], tmp_path)

    def with_company(compaction: Compaction) -> Outcome:
        if len(CommitLog(store).current().fragments) == 3:
            ingest_tables(store, tables[3:], tmp_path)
        return run_compaction(compaction)

    compact_table(store, engine=InProcessEngine(with_company))
    assert table_rows(store) == expected_rows(tables)


class SpeculativeEngine(InProcessEngine):
    """Every compaction has a twin that ends as well."""

    def wait(self, timeout_seconds: float):
        if not self._queue:
            return ()
        compaction = self._queue.popleft()
        return [run_compaction(compaction), run_compaction(compaction)]


def test_duplicate_outcomes_of_a_speculative_attempt_count_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(60, seed) for seed in range(3)]
    ingest_tables(store, tables, tmp_path)
    compact_table(store, engine=SpeculativeEngine())
    assert table_rows(store) == expected_rows(tables)
    assert len(CommitLog(store).current().fragments) == 1


def test_compactions_and_outcomes_survive_their_json(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    ingest_tables(store, [log_rows(60, seed) for seed in range(2)], tmp_path)
    seen: list[Compaction] = []

    def record(compaction: Compaction) -> Outcome:
        seen.append(compaction)
        return run_compaction(compaction)

    compact_table(store, engine=InProcessEngine(record))
    (compaction,) = seen
    again = Compaction.from_json(compaction.to_json())
    assert again.to_json() == compaction.to_json()
    assert again.spec.inputs == compaction.spec.inputs
    failure = Outcome(compaction_id="c", failure="why", culprit="data/x.frag", is_damage=True)
    assert Outcome.from_json(failure.to_json()) == failure


def test_every_compaction_is_leased_and_then_committed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    log = ingest_tables(store, [log_rows(60, seed) for seed in range(2)], tmp_path)
    compact_table(store)
    versions = log.history.versions_after(Snapshot.empty(), log.current().version)
    operations = [version.changes.operation for version in versions]
    assert operations == [Operation.INGEST] * 2 + [Operation.LEASE, Operation.COMPACT]
    assert log.latest.leases == {}
    totals = log.latest.totals
    assert totals.ingested_rows == 120
    assert totals.write_amplification > 1.5
    [measured] = log.latest.measured
    assert measured.model_cpu_seconds > 0


def test_more_inputs_than_memory_allows_are_merged_in_rounds(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(3, seed) for seed in range(150)]
    ingest_tables(store, tables, tmp_path)
    report = compact_table(store, CompactionSettings(memory_limit_bytes=16 << 20))
    assert report.to_json()["tasks"] >= 3
    assert len(CommitLog(store).refresh().fragments) == 1
    assert table_rows(store) == stable_sorted(pa.concat_tables(tables), SORT).to_pylist()


def test_rows_that_share_a_large_string_are_charged_for_it_once() -> None:
    store, text = MemoryStore(), os.urandom(100_000).hex()
    for number in range(16):
        texts = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), [text])
        rows = pa.table({"k": [16 * n + number for n in range(200)], "v": texts})
        append_table(store, rows, None if number else "k", max_rows=65_536)
    settings = CompactionSettings(memory_limit_bytes=64 << 20)
    report = compact_table(store, settings, strategy=Strategy.FULL)
    assert not report.failed
    assert len(CommitLog(store).current().fragments) == 1
    found = table_rows(store)
    assert [row["k"] for row in found] == list(range(3_200))
    assert {row["v"] for row in found} == {text}


def test_a_merge_for_which_there_is_no_memory_is_tried_once(tmp_path: Path) -> None:
    store = MemoryStore()
    ingest_tables(store, [log_rows(60, seed) for seed in range(3)], tmp_path)

    def short_of_memory(compaction: Compaction) -> Outcome:
        return failed(compaction, MemoryLimitError("stage encode needs more"))

    version = CommitLog(store).current().version
    report = compact_table(store, engine=InProcessEngine(short_of_memory))
    assert [finished.attempt for finished in report.failed] == [1]
    assert CommitLog(store).current().version == version + 2  # a lease, and its end
