"""Deleted rows: gone for readers at once, from storage with the next compaction, and never back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from compactor.compaction.attempt import run_compaction
from compactor.compaction.driver import Driver, DriverSettings
from compactor.errors import CommitConflictError, DataError, StaleAttemptError, UsageError
from compactor.files.stream import StreamBatches
from compactor.read.scan import scan
from compactor.read.verify import verify
from compactor.resources import budget as budget_module
from compactor.rows.policy import RowKind, RowPolicy
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.settings.vacuum import VacuumSettings
from compactor.stores.base import Store
from compactor.table.checkpoint import checkpoint_bytes, read_checkpoint
from compactor.table.commit_log import CommitLog
from compactor.table.deletions import read_deletion, write_deletions
from compactor.table.object_names import deletions_key
from compactor.table.vacuum import vacuum
from compactor.table.version import Version
from compactor.write.delete import DeleteReport, delete_rows
from compactor.write.ingest import IngestOptions, ingest_batches
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.faults import Stall, calls
from tests.support.memory_store import MemoryStore
from tests.support.tables import compact_table, open_table
from tests.support.wording import refuses

SORT = parse_sort_schema("k,n:desc")
POSITIONS = calls("create", where=lambda call: call.key.endswith(".deletes"))
WORDS = ["a", "b", "c", None]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def rows_of(seed: int, count: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "k": rng.integers(0, 12, count),
            "n": rng.integers(0, 1000, count),
            "word": pa.array([WORDS[i] for i in rng.integers(0, 4, count)]),
            "tags": pa.array([[f"t{i % 3}"] * (i % 3) for i in rng.integers(0, 9, count)]),
            "id": [f"{seed}-{n}" for n in range(count)],
        }
    )


def add(store: Store, table: pa.Table, max_rows: int = 5) -> None:
    log = CommitLog(store)
    options = IngestOptions(rows_per_fragment=20, writer=WriterOptions(max_rows))
    with StreamBatches(table, 1 << 20) as batches:
        ingest_batches(store, log, log.refresh(), batches, SORT, options)


def delete(store: Store, condition: str, **options: Any) -> DeleteReport:
    log = CommitLog(store)
    return delete_rows(store, log, condition, **options)


def ids(store: Store, version: int | None = None) -> list[str]:
    snapshot = CommitLog(store).at(version)
    rows = [row for batch in scan(store, snapshot) for row in batch.to_pylist()]
    assert [(r["k"], -r["n"]) for r in rows] == sorted((r["k"], -r["n"]) for r in rows)
    assert sum(entry.live_rows for entry in snapshot.fragments.all()) == len(rows)
    return [row["id"] for row in rows]


CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "word = 'a'": lambda r: r["word"] == "a",
    "k BETWEEN 3 AND 5": lambda r: 3 <= r["k"] <= 5,
    "NOT (word = 'b') AND n < 500": lambda r: r["word"] not in ("b", None) and r["n"] < 500,
    "word IS NULL OR k = 11": lambda r: r["word"] is None or r["k"] == 11,
    "id LIKE '1-%'": lambda r: r["id"].startswith("1-"),
    "k >= 0": lambda r: True,
    "k > 100": lambda r: False,
}
STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 3), st.integers(1, 45)),
    st.tuples(st.just("delete"), st.sampled_from(sorted(CONDITIONS))),
    st.tuples(st.just("compact"), st.sampled_from(["full", "overlapping", "leveled"])),
)


@pytest.mark.long
@settings(max_examples=120, deadline=None)
@given(st.lists(STEPS, max_size=9), st.booleans())
def test_any_history_leaves_the_rows_that_a_list_would_have(
    steps: Sequence[tuple[Any, ...]], spills: bool
) -> None:
    store, model = MemoryStore(), rows_of(9, 30).to_pylist()
    add(store, rows_of(9, 30))
    with pytest.MonkeyPatch.context() as patch:
        if spills:
            patch.setattr(budget_module, "SOFT_RATIO", 0.0)
        for step in steps:
            match step:
                case ("add", seed, count):
                    add(store, rows_of(seed, count))
                    model += rows_of(seed, count).to_pylist()
                case ("delete", condition):
                    holds = CONDITIONS[condition]
                    report = delete(store, condition, threads=1 + len(model) % 3)
                    assert report.rows == sum(map(holds, model))
                    model = [row for row in model if not holds(row)]
                case ("compact", strategy):
                    before = ids(store)
                    done = compact_table(store, strategy=Strategy(strategy))
                    assert not done.failed
                    figures = done.to_json()
                    assert figures["rows_in"] == figures["rows_out"] + figures["dropped_rows"]
                    assert ids(store) == before
            assert sorted(ids(store)) == sorted(row["id"] for row in model)
    assert verify(store, CommitLog(store).current()).faults == []


def test_after_a_full_compaction_and_a_vacuum_no_object_has_the_rows(store: MemoryStore) -> None:
    add(store, rows_of(1, 60))
    add(store, rows_of(2, 60))
    secret = rows_of(3, 20).set_column(2, "word", pa.array(["tell-nobody"] * 20))
    add(store, secret, max_rows=50)
    report = delete(store, "word = 'tell-nobody'")
    assert (report.rows, report.fragments) == (20, 1)
    assert any(b"tell-nobody" in data for data in store.objects.values())
    compact_table(store, strategy=Strategy.FULL)
    log = CommitLog(store)
    assert all(entry.deletion is None for entry in log.current().fragments.all())
    vacuum(log, VacuumSettings(grace_seconds=0, retain_seconds=0))
    data = {key: value for key, value in store.objects.items() if key.startswith("data/")}
    assert data and not any(b"tell-nobody" in value for value in data.values())
    assert not any(key.endswith(".deletes") for key in store.objects)
    assert len(ids(store)) == 120


def test_a_fragment_with_many_deleted_rows_is_rewritten_without_a_merge(store: MemoryStore) -> None:
    add(store, rows_of(1, 20))
    delete(store, "n < 10")
    policy = Policy(strategy=Strategy.LEVELED, max_deleted_share=0.5)
    assert compact_table(store, policy=policy).to_json()["tasks"] == 0
    delete(store, "k <= 8")
    figures = compact_table(store, policy=policy).to_json()
    assert figures["tasks"] == 1 and figures["dropped_rows"] > 10
    assert compact_table(store, policy=policy).to_json()["tasks"] == 0


def test_when_all_rows_of_a_fragment_are_deleted_nothing_takes_its_place(
    store: MemoryStore,
) -> None:
    add(store, rows_of(1, 40))
    delete(store, "k >= 0")
    assert ids(store) == []
    compact_table(store, strategy=Strategy.FULL)
    assert len(CommitLog(store).current().fragments) == 0
    add(store, rows_of(2, 5))
    assert len(ids(store)) == 5


def test_row_groups_without_deleted_rows_are_passed_on_unread(store: MemoryStore) -> None:
    count = 4000
    table = pa.table(
        {"k": range(count), "n": range(count), "word": ["x"] * count, "id": ["i"] * count}
    )
    log = CommitLog(store)
    with StreamBatches(table, 1 << 20) as batches:
        options = IngestOptions(writer=WriterOptions(max_rows=500))
        ingest_batches(store, log, log.refresh(), batches, SORT, options)
    delete(store, "k = 1700")
    figures = compact_table(
        store, CompactionSettings(max_rows_per_row_group=500), strategy=Strategy.FULL
    ).to_json()
    assert (figures["dropped_rows"], figures["rows_out"]) == (1, count - 1)
    assert figures["copied_rows"] >= 5 * 500


def test_rows_deleted_while_they_are_compacted_do_not_come_back(store: MemoryStore) -> None:
    add(store, rows_of(1, 20))
    add(store, rows_of(2, 20))
    driver = Driver(CommitLog(store), DriverSettings(policy=Policy(strategy=Strategy.OVERLAPPING)))
    (compaction,) = driver.decide(1)
    outcome = run_compaction(compaction, store)
    delete(store, "word = 'a'")
    left = ids(store)
    (finished,) = driver.commit_outcomes([outcome])
    assert not finished.is_void
    assert ids(store) == left
    assert all(entry.level for entry in CommitLog(store).current().fragments.all())


def test_rows_committed_while_others_are_looked_at_are_looked_at_too(store: MemoryStore) -> None:
    add(store, rows_of(1, 40))
    added: list[int] = []

    def meanwhile(done: int) -> None:
        if not added:
            added.append(done)
            add(store, rows_of(2, 20))
            compact_table(store, strategy=Strategy.FULL)

    report = delete(store, "word = 'a'", on_progress=meanwhile)
    assert report.rows == sum(
        row["word"] == "a" for row in (*rows_of(1, 40).to_pylist(), *rows_of(2, 20).to_pylist())
    )
    assert delete(store, "word = 'a'").rows == 0


def test_a_text_is_bound_again_when_its_column_has_got_a_wider_type_meanwhile() -> None:
    store = MemoryStore()
    table = open_table(store)
    table._ingest(pa.table({"k": [1, 2], "n": pa.array([5, 6], pa.int32())}), "k", None)

    def meanwhile(done: int) -> None:
        if done and open_table(store).version == 1:
            open_table(store).append(pa.table({"k": [3, 4], "n": [5.5, 7.0]}))

    assert table.delete("n IN (5, 5.5)", on_progress=meanwhile).rows == 2
    assert table.scan().to_table().to_pydict() == {"k": [2, 4], "n": [6.0, 7.0]}


def test_a_text_whose_column_was_renamed_meanwhile_deletes_nothing() -> None:
    store = MemoryStore()
    table = open_table(store)
    table._ingest(pa.table({"k": [1, 2], "n": [5, 6]}), "k", None)

    def meanwhile(done: int) -> None:
        if done and open_table(store).version == 1:
            open_table(store).alter(renames={"n": "m"})

    with refuses(UsageError, "'n'"):
        table.delete("n = 5", on_progress=meanwhile)
    assert len(open_table(store)) == 2


def test_rows_that_somebody_else_deletes_and_compacts_away_meanwhile_are_gone_too(
    store: MemoryStore,
) -> None:
    add(store, rows_of(1, 10))
    add(store, rows_of(2, 15))

    def steal() -> None:
        delete(store, "id LIKE '1-%'")
        compact_table(store, policy=Policy(strategy=Strategy.LEVELED))

    busy = MemoryStore(store.objects)
    busy.faults.add(Stall(steal, answered=True), at=POSITIONS.first())
    assert delete(busy, "id LIKE '1-%'").rows == 0
    assert len(ids(store)) == 15


def test_what_deleted_rows_take_is_known_before_a_merge_begins(store: MemoryStore) -> None:
    count = 2_000_000
    table = pa.table({"k": np.arange(count), "n": np.zeros(count, np.int64)})
    log = CommitLog(store)
    with StreamBatches(table, 1 << 20) as batches:
        options = IngestOptions(rows_per_fragment=count)
        ingest_batches(store, log, log.refresh(), batches, SORT, options)
    delete(store, "k >= 200000")
    report = compact_table(
        store, CompactionSettings(memory_limit_bytes=16 << 20), strategy=Strategy.FULL
    )
    assert not report.failed
    assert report.to_json()["dropped_rows"] == 1_800_000


def test_whoever_never_comes_to_an_end_is_told_so(store: MemoryStore) -> None:
    add(store, rows_of(1, 5))

    def meanwhile(done: int) -> None:
        if done == len(CommitLog(store).current().fragments):
            add(store, rows_of(2, 1))

    with refuses(CommitConflictError):
        delete(store, "k >= 0", on_progress=meanwhile)
    assert len(ids(store)) == 5 + 50


def test_earlier_versions_still_have_the_rows(store: MemoryStore) -> None:
    add(store, rows_of(1, 30))
    before = ids(store)
    version = delete(store, "k < 6").version
    assert ids(store, version - 1) == before
    assert len(ids(store, version)) < len(before)
    vacuum(CommitLog(store), VacuumSettings(grace_seconds=0, retain_seconds=3600))
    assert ids(store, version - 1) == before and len(ids(store, version)) < len(before)


def test_a_dry_run_and_a_condition_that_nothing_fulfils_write_nothing(store: MemoryStore) -> None:
    add(store, rows_of(1, 30))
    before = dict(store.objects)
    assert delete(store, "k < 6", dry_run=True).rows > 0
    assert delete(store, "k > 50").rows == 0
    assert delete(store, "k > 50").fragments_read == 0
    assert store.objects == before


def test_of_a_table_that_merges_rows_those_that_readers_see_are_counted(store: MemoryStore) -> None:
    table = open_table(store)
    options = IngestOptions(rows=RowPolicy(RowKind.LAST))
    table._ingest(pa.table({"k": [1, 2, 3], "n": [5, 5, 5]}), "k", options)
    table.append(pa.table({"k": [1, 2], "n": [5, 6]}))
    for dry_run in (True, False):
        report = table.delete("n = 5", dry_run=dry_run)
        assert (report.rows, report.fragments) == (2, 2)
    assert table.scan().to_table().to_pylist() == [{"k": 2, "n": 6}]


def test_checkpoints_know_of_deletions_and_have_no_column_for_them_without(
    store: MemoryStore,
) -> None:
    add(store, rows_of(1, 30))
    log = CommitLog(store)
    plain = checkpoint_bytes(log.current())
    assert b"deletion" not in plain
    delete(store, "k < 6")
    snapshot = log.current()
    again = read_checkpoint(checkpoint_bytes(snapshot), name="c")
    assert again.fragments.all() == sorted(snapshot.fragments.all(), key=lambda e: e.key)
    assert any(entry.deletion for entry in again.fragments.all())


def test_a_version_says_which_fragments_have_deleted_rows(store: MemoryStore) -> None:
    add(store, rows_of(1, 30))
    delete(store, "k < 6")
    version = Version.from_bytes(store.objects["_log/00000000000000000002.json"], name="v")
    assert [entry.deletion is not None for entry in version.changes.adds] == [True] * len(
        version.changes.adds
    )


def test_damaged_positions_are_named_and_nothing_is_read_without_them(store: MemoryStore) -> None:
    add(store, rows_of(1, 20))
    delete(store, "k < 6")
    (key,) = [key for key in store.objects if key.endswith(".deletes")]
    good = store.objects[key]
    store.objects[key] = good[:-1] + bytes([good[-1] ^ 1])
    (entry,) = CommitLog(store).current().fragments.all()
    with refuses(DataError):
        read_deletion(store, entry)
    assert "the deleted rows of" in verify(store, CommitLog(store).current()).faults[0]
    with pytest.raises(DataError):
        ids(store)
    outcome = compact_table(store, strategy=Strategy.FULL)
    assert outcome.failed
    store.objects[key] = good
    assert entry.deletion is not None
    other = structs.replace(entry, deletion=replace(entry.deletion, rows=entry.deletion.rows + 1))
    with refuses(DataError):
        read_deletion(store, other)


def test_positions_of_another_deletion_under_the_name_are_refused(store: MemoryStore) -> None:
    add(store, rows_of(1, 20))
    delete(store, "k < 6")
    (entry,) = CommitLog(store).current().fragments.all()
    bits = read_deletion(store, entry)
    assert bits is not None and entry.deletion is not None
    others = pa.array(bits.to_pylist()[::-1])
    assert others != bits
    [twin] = write_deletions(store, deletions_key(1, "twin"), [(entry, others)])
    assert twin.deletion is not None
    assert (twin.deletion.rows, twin.deletion.length) == (
        entry.deletion.rows,
        entry.deletion.length,
    )
    store.objects[entry.deletion.key] = store.objects[twin.deletion.key]
    with refuses(DataError):
        ids(store)
    assert "other deleted rows" in verify(store, CommitLog(store).current()).faults[0]


def test_a_deletion_that_slept_through_a_vacuum_is_refused(store: MemoryStore) -> None:
    add(store, rows_of(1, 20))
    settings = VacuumSettings(grace_seconds=0, retain_seconds=0)
    sleepy = MemoryStore(store.objects)
    sleep = Stall(lambda: vacuum(CommitLog(store), settings), answered=True)
    sleepy.faults.add(sleep, at=POSITIONS.first())
    with pytest.raises(StaleAttemptError):
        delete(sleepy, "k < 6")
    assert len(ids(store)) == 20
