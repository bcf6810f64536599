"""Rows deleted while their fragments are compacted stay deleted, and the compaction is committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.compaction import driver as drivers
from compactor.compaction.attempt import run_compaction
from compactor.compaction.compaction import Compaction, Outcome
from compactor.compaction.driver import Driver, DriverSettings, FinishedCompaction
from compactor.errors import StoreUnreachableError
from compactor.files.stream import StreamBatches
from compactor.read.verify import verify
from compactor.rows.policy import RowFunction, RowKind, RowPolicy
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.settings.vacuum import VacuumSettings
from compactor.stores.base import Store
from compactor.stores.local import LocalStore
from compactor.stores.s3 import S3Store
from compactor.table.commit_log import CommitLog
from compactor.table.deletions import write_deletions
from compactor.table.object_names import deletions_key
from compactor.table.vacuum import vacuum
from compactor.table.version import Changes, Operation
from compactor.write.delete import delete_rows
from compactor.write.ingest import IngestOptions, ingest_batches
from compactor.write.undo import undo_compaction
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.faults import Crash, Drop, Kill, Stall, calls
from tests.support.memory_store import MemoryStore
from tests.support.tables import table_rows

DELETIONS = calls("create", where=lambda call: call.key.endswith(".deletes"))
INPUTS, ROWS = 3, 200


@pytest.fixture(params=["memory", "folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "folder":
            return LocalStore(tmp_path / "table")
        case "s3":
            return S3Store(request.getfixturevalue("s3_bucket"), "table")
        case _:
            return MemoryStore()


def add(store: Store, number: int, rows: RowPolicy | None = None) -> None:
    """One fragment, whose keys lie among those of the others."""
    ids = [number + INPUTS * row for row in range(ROWS)]
    table = pa.table({"k": [i // 2 for i in ids], "id": ids, "text": [f"row {i}" for i in ids]})
    if rows is not None:
        table = table.group_by("k").aggregate([("id", "max"), ("text", "max")])
        table = table.rename_columns(["k", "id", "text"])
    log = CommitLog(store)
    options = IngestOptions(writer=WriterOptions(30), rows=rows or RowPolicy())
    with StreamBatches(table, 1 << 20) as batches:
        ingest_batches(store, log, log.refresh(), batches, parse_sort_schema("k"), options)


def filled(store: Store, rows: RowPolicy | None = None) -> None:
    for number in range(INPUTS):
        add(store, number, rows)


def delete(store: Store, condition: str) -> int:
    log = CommitLog(store)
    return delete_rows(store, log, condition).rows


def decided(store: Store) -> tuple[Driver, Compaction, Outcome]:
    """A compaction that ran and is not committed, into several outputs."""
    settings = CompactionSettings(target_fragment_bytes=2_500, max_rows_per_row_group=40)
    policy = Policy(strategy=Strategy.OVERLAPPING)
    driver = Driver(CommitLog(store), DriverSettings(policy=policy, compaction=settings))
    (compaction,) = driver.decide(1)
    outcome = run_compaction(compaction, store)
    assert len(outcome.outputs) > 1
    return driver, compaction, outcome


def committed(driver: Driver, *outcomes: Outcome) -> FinishedCompaction:
    (finished,) = driver.commit_outcomes(outcomes)
    assert not finished.is_void, finished.void_reason
    return finished


def check_compacted(store: Store, outcome: Outcome, expected: list[dict[str, Any]]) -> None:
    assert table_rows(store) == expected
    live = set(CommitLog(store).current().fragments)
    assert live == {entry.key for entry in outcome.outputs}
    assert not verify(store, CommitLog(store).current()).faults


CONDITIONS = ["id % 7 = 3", "id = 0", "k BETWEEN 40 AND 200", "id < 400 AND id >= 100", "id >= 0"]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_deleted_during_a_compaction_are_deleted_in_its_outputs(
    store: Store, condition: str
) -> None:
    filled(store)
    delete(store, "id % 11 = 5")
    driver, _, outcome = decided(store)
    assert delete(store, condition)
    left = table_rows(store)
    committed(driver, outcome)
    check_compacted(store, outcome, left)
    assert not delete(store, condition)


def test_several_deletes_during_a_compaction_are_all_carried(store: Store) -> None:
    filled(store)
    driver, _, outcome = decided(store)
    for condition in CONDITIONS[:4]:
        delete(store, condition)
    left = table_rows(store)
    committed(driver, outcome)
    check_compacted(store, outcome, left)


@pytest.mark.parametrize(
    "policy",
    [
        RowPolicy(RowKind.LAST),
        RowPolicy(RowKind.FIRST),
        RowPolicy(RowKind.PARTIAL_UPDATE),
        RowPolicy(RowKind.AGGREGATE, aggregates=(("id", RowFunction.SUM),)),
    ],
    ids=lambda policy: str(policy.kind),
)
def test_keys_deleted_during_a_compaction_go_with_the_row_that_they_were_merged_into(
    policy: RowPolicy,
) -> None:
    store = MemoryStore()
    filled(store, policy)
    driver, _, outcome = decided(store)
    assert delete(store, "k BETWEEN 40 AND 90 OR text = 'row 9'")
    left = table_rows(store)
    committed(driver, outcome)
    check_compacted(store, outcome, left)


def test_a_key_deleted_in_part_voids_the_compaction_that_merged_its_rows() -> None:
    store = MemoryStore()
    filled(store, RowPolicy(RowKind.LAST))
    driver, compaction, outcome = decided(store)
    log = CommitLog(store)
    entry = log.current().fragments[compaction.spec.inputs[-1].key]
    bits = pa.array([n == 10 for n in range(entry.rows)])
    key = deletions_key(log.latest.version, "some")
    deleted = write_deletions(store, key, [(entry, bits)])
    log.commit(
        lambda _: Changes(operation=Operation.DELETE, adds=tuple(deleted), removes=(entry.key,))
    )
    left = table_rows(store)
    (finished,) = driver.commit_outcomes([outcome])
    assert finished.is_void and "only some of the rows" in finished.void_reason
    assert table_rows(store) == left
    assert not CommitLog(store).current().leases, "its inputs are free at once"


# --- the commit ---


@pytest.mark.parametrize("deletes", [1, 2, pytest.param(60, marks=pytest.mark.long)])
def test_a_delete_between_all_attempts_to_commit_voids_nothing(deletes: int) -> None:
    """A soak without a clock: each time the outputs' deletions are written, other rows are deleted."""
    store = MemoryStore()
    filled(store)
    driver, _, outcome = decided(store)
    others = MemoryStore(store.objects)
    left = iter(range(deletes))

    def meanwhile() -> None:
        if (number := next(left, None)) is not None:
            assert delete(others, f"id = {7 * number + 1}")

    store.faults.add(Stall(meanwhile, answered=True), at=DELETIONS)
    delete(others, "id = 0")
    committed(driver, outcome)
    assert next(left, None) is None
    expected = [
        row for row in range(INPUTS * ROWS) if row not in {0, *(7 * n + 1 for n in range(deletes))}
    ]
    assert sorted(row["id"] for row in table_rows(store)) == expected
    check_compacted(store, outcome, table_rows(store))


def test_deletes_without_end_void_the_compaction_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "_MAX_CARRIES", 3)
    store = MemoryStore()
    filled(store)
    driver, _, outcome = decided(store)
    others = MemoryStore(store.objects)
    ids = iter(range(1, 100))
    store.faults.add(
        Stall(lambda: delete(others, f"id = {next(ids)}"), answered=True), at=DELETIONS
    )
    delete(others, "id = 0")
    (finished,) = driver.commit_outcomes([outcome])
    assert finished.is_void and "3 times" in finished.void_reason
    assert not CommitLog(store).current().leases


def test_without_a_delete_the_order_is_not_made_and_nothing_more_is_written() -> None:
    store = MemoryStore()
    filled(store)
    driver, _, outcome = decided(store)
    seen = store.faults.add(Stall(lambda: None), at=calls())
    committed(driver, outcome)
    operations = [key for operation, key in seen.hits if operation == "create"]
    assert operations == ["_log/00000000000000000005.json"]
    assert not [key for _, key in seen.hits if key.startswith("data/")]


def test_twins_of_one_attempt_are_committed_once_with_the_deleted_rows() -> None:
    store = MemoryStore()
    filled(store)
    driver, compaction, outcome = decided(store)
    twin = run_compaction(compaction, store)
    delete(store, CONDITIONS[0])
    left = table_rows(store)
    committed(driver, outcome, twin)
    check_compacted(store, twin, left)
    assert driver.commit_outcomes([outcome]) == []


def test_a_store_that_cannot_be_reached_only_delays_the_commit() -> None:
    store = MemoryStore()
    filled(store)
    driver, _, outcome = decided(store)
    delete(MemoryStore(store.objects), CONDITIONS[0])
    left = table_rows(store)
    store.faults.add(Drop(), at=DELETIONS)
    with pytest.raises(StoreUnreachableError):
        driver.commit_outcomes([outcome])
    store.faults.clear()
    committed(driver, outcome)
    check_compacted(store, outcome, left)


def test_a_process_killed_between_deletions_and_commit_leaves_garbage_only() -> None:
    store = MemoryStore()
    filled(store)
    driver, _, outcome = decided(store)
    others = MemoryStore(store.objects)
    delete(others, CONDITIONS[0])
    left = table_rows(others)
    store.faults.add(Kill(), at=calls("create", prefix="_log/"))
    with pytest.raises(Crash):
        driver.commit_outcomes([outcome])
    assert table_rows(others) == left
    orphans = {key for key in store.objects if key.endswith(".deletes")}
    live = {e.deletion.key for e in CommitLog(others).current().fragments.all() if e.deletion}
    assert len(orphans - live) == 1
    for _ in range(2):
        vacuum(CommitLog(others), VacuumSettings(grace_seconds=0, retain_seconds=0))
    assert {key for key in others.objects if key.endswith(".deletes")} == live
    assert table_rows(others) == left


def test_an_undone_compaction_keeps_the_rows_deleted_that_it_had_carried() -> None:
    store = MemoryStore()
    filled(store)
    driver, compaction, outcome = decided(store)
    delete(store, CONDITIONS[0])
    left = table_rows(store)
    committed(driver, outcome)
    undo_compaction(CommitLog(store), compaction.compaction_id)
    assert table_rows(store) == left
    assert set(CommitLog(store).current().fragments) == {e.key for e in compaction.spec.inputs}
