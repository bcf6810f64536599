"""One compaction is undone: its inputs are back, later ingests stay, and what can't be mapped is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor import CompactionSettings, IngestOptions, Policy, Strategy, Table
from compactor.compaction.attempt import run_compaction
from compactor.compaction.driver import Driver, DriverSettings
from compactor.errors import RestoreError, UsageError, VersionNotFoundError
from compactor.rows.policy import RowFunction, RowKind, RowPolicy, Ttl
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.write.tags import set_tag
from tests.faults import Stall
from tests.support.memory_store import MemoryStore
from tests.support.tables import COMMITS, keys_in, open_table
from tests.support.wording import refuses

FULL = Policy(strategy=Strategy.FULL)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def rows_of(first: int) -> pa.Table:
    keys = list(range(first, first + 10))
    return pa.table({"k": keys, "n": pa.array(keys, pa.int32())})


def compacted(store: MemoryStore) -> tuple[Table, str]:
    """A table of two ingests that overlap, without a deleted row, and the id of their compaction."""
    table = open_table(store)
    table._ingest(rows_of(0), "k", None)
    table.append(rows_of(5))
    table.delete("k = 7")
    table.compact(policy=FULL)
    [entry] = table._snapshot.fragments.all()
    return table, entry.run


def test_inputs_are_back_with_their_deleted_rows_and_later_ingests_stay(store: MemoryStore) -> None:
    table, run = compacted(store)
    before = table.version
    inputs = CommitLog(store).at(3).fragments
    table.append(rows_of(3))
    keys = keys_in(table)
    dry = table.undo(run, dry_run=True)
    assert (dry.version, dry.fragments_added, dry.fragments_removed) == (before + 1, 2, 1)
    report = table.undo(run)
    assert (report.version, report.compacted) == (before + 2, before)
    assert keys_in(table) == keys
    assert len(table._snapshot.fragments) == 3
    assert all(table._snapshot.fragments[entry.key] == entry for entry in inputs.all())
    table.compact(policy=FULL)
    assert keys_in(table) == keys
    assert not table.verify(against=before).faults


def test_outputs_that_moved_to_another_level_leave_and_rows_deleted_there_stay_deleted(
    store: MemoryStore,
) -> None:
    table, run = compacted(store)
    inputs = CommitLog(store).at(3).fragments
    [entry] = table._snapshot.fragments.all()
    moved = replace(entry, level=entry.level + 2)
    operation = Operation.TRIVIAL_MOVE
    CommitLog(store).commit(
        lambda _: Changes(operation=operation, adds=(moved,), removes=(entry.key,))
    )
    table.refresh()
    table.delete("k = 2")
    table.append(rows_of(3))
    keys = keys_in(table)
    assert table.undo(run).rows_deleted == 1
    assert keys_in(table) == keys
    levels = {e.key: e.level for e in table._snapshot.fragments.all() if e.key in inputs}
    assert levels == {e.key: e.level for e in inputs.all()}
    table.compact(policy=FULL)
    assert keys_in(table) == keys


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (lambda t: (t.append(rows_of(3)), t.compact(policy=FULL)), "has been compacted"),
        (lambda t: t.alter(redacts=["n"]), "redacted values of n"),
        (lambda t: t.append(pa.table({"k": [1], "n": pa.array([1 << 40])})), "n got another type"),
    ],
    ids=["compact", "redact", "widen"],
)
def test_what_changed_since_is_named(
    store: MemoryStore, act: Callable[[Table], Any], reason: str
) -> None:
    table, run = compacted(store)
    act(table)
    version = table.version
    with refuses(RestoreError, reason, run):
        table.undo(run)
    assert open_table(store).version == version


# --- rows deleted since ---

POLICIES = {
    "append": RowPolicy(),
    "last": RowPolicy(RowKind.LAST, sequence="seq", delete_marker="gone"),
    "first": RowPolicy(RowKind.FIRST, delete_marker="gone"),
    "partial update": RowPolicy(RowKind.PARTIAL_UPDATE, delete_marker="gone"),
    "aggregate": RowPolicy(RowKind.AGGREGATE, aggregates=(("n", RowFunction.SUM),)),
}


def some_rows(data: st.DataObject) -> pa.Table:
    keys = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=12))
    return pa.table(
        {
            "k": keys,
            "seq": data.draw(_listed(keys, st.integers(0, 5))),
            "gone": data.draw(_listed(keys, st.sampled_from([False, False, True]))),
            "n": pa.array(data.draw(_listed(keys, st.integers(0, 3))), pa.int32()),
        }
    )


def _listed(keys: list[int], values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=len(keys), max_size=len(keys))


@settings(max_examples=15, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(POLICIES)))
def test_rows_deleted_since_are_those_that_a_table_lacks_which_never_was_compacted(
    data: st.DataObject, name: str
) -> None:
    """The oracle does the same without the compaction and its undo."""
    stores = [MemoryStore(), MemoryStore()]
    options = IngestOptions(rows=POLICIES[name], rows_per_fragment=5)
    ingests = [some_rows(data) for _ in range(data.draw(st.integers(2, 4)))]
    befores = data.draw(st.lists(st.integers(0, 9), max_size=2))
    afters = data.draw(
        st.lists(st.tuples(st.sampled_from(["k", "n", "seq"]), st.integers(0, 9)), max_size=3)
    )
    late = some_rows(data) if data.draw(st.booleans()) else None
    settings_ = CompactionSettings(
        target_fragment_bytes=data.draw(st.sampled_from([1, 1 << 30])), max_rows_per_row_group=3
    )
    tables = [open_table(store) for store in stores]
    runs: set[str] = set()
    for table in tables:
        table._ingest(ingests[0], "k", options)
        for rows in ingests[1:]:
            table.append(rows, options)
        for key in befores:
            table.delete(f"k = {key}")
        if table is tables[0]:
            table.compact(policy=FULL, settings=settings_)
            entries = table._snapshot.fragments.all()
            runs = {entry.run for entry in entries if entry.run != entry.key}
        for column, value in afters:
            table.delete(f"{column} = {value}")
        if late is not None:
            table.append(late, options)
    undone, never = tables
    shown = undone.scan().to_table()
    for run in runs:
        dry = undone.undo(run, dry_run=True)
        assert undone.undo(run).rows_deleted == dry.rows_deleted
        assert undone.scan().to_table() == shown
    assert sorted_rows(undone) == sorted_rows(never)


def sorted_rows(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_table().to_pylist())


def test_a_row_deleted_while_it_was_undone_stays_deleted(store: MemoryStore) -> None:
    table, run = compacted(store)
    table.delete("k = 8")
    slow = MemoryStore(store.objects)
    slow.faults.add(Stall(lambda: open_table(store).delete("k = 9")), at=COMMITS.first())
    report = open_table(slow).undo(run)
    assert report.rows_deleted == 4
    assert keys_in(open_table(store)) == [0, 1, 2, 3, 4, 5, 5, 6, 6, 10, 11, 12, 13, 14]


def test_deletions_that_a_vacuum_may_have_removed_are_written_again(store: MemoryStore) -> None:
    table, run = compacted(store)
    set_tag(table._log, "inputs", table._log.at(table.version - 1))
    table.delete("k = 8")
    slow = MemoryStore(store.objects)
    stall = Stall(lambda: open_table(store).vacuum(grace_seconds=0, retain_seconds=0))
    slow.faults.add(stall, at=COMMITS.first())
    open_table(slow).undo(run)
    assert 8 not in keys_in(open_table(store))
    assert not open_table(store).verify().faults


def expiring(store: MemoryStore) -> tuple[Table, str]:
    """A table whose compaction left out every second row, which had expired, and one row deleted since."""
    table = open_table(store)
    now = datetime.now(UTC)
    times = [now - timedelta(days=9 * (n % 2)) for n in range(10)]
    rows = pa.table({"k": range(10), "at": pa.array(times, pa.timestamp("us", "UTC"))})
    table._ingest(rows, "k,at", IngestOptions(ttl=Ttl("at", 86_400)))
    table.append(rows)
    table.compact(policy=FULL)
    table.delete("k = 4")
    [entry] = table._snapshot.fragments.all()
    return table, entry.run


def test_rows_that_had_expired_come_back_beside_those_deleted_since(store: MemoryStore) -> None:
    table, run = expiring(store)
    assert keys_in(table) == [0, 0, 2, 2, 6, 6, 8, 8]
    assert table.undo(run).rows_deleted == 2
    assert sorted({*range(10)} - {*keys_in(table)}) == [4]
    assert len(keys_in(table)) == 18


def test_an_order_that_can_not_be_made_again_is_told(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, run = expiring(store)
    at = CommitLog.at

    def with_another_time(log: CommitLog, *version: Any) -> Snapshot:
        before = at(log, *version)
        lease = replace(before.leases[run], began_unix_ms=0)
        return replace(before, leases={run: lease})

    monkeypatch.setattr(CommitLog, "at", with_another_time)
    with refuses(RestoreError, "deleted since", run):
        table.undo(run)


def test_a_compaction_between_its_inputs_is_in_the_way(store: MemoryStore) -> None:
    """Outputs leave a gap that an input spans; what was put there since can't be told from older rows."""
    table = open_table(store)
    table._ingest(pa.table({"k": [0, 100]}), "k", None)
    table.append(pa.table({"k": [0, 100]}))
    table.delete("k = 100")
    table.compact(policy=FULL)
    [entry] = table._snapshot.fragments.all()
    table.append(pa.table({"k": [50]}))
    table.append(pa.table({"k": [50]}))
    driver = Driver(table._log, DriverSettings(policy=Policy(strategy=Strategy.OVERLAPPING)))
    driver.commit_outcomes([run_compaction(c, store) for c in driver.decide(9)])
    table.refresh()
    assert len(table._snapshot.fragments) == 2
    with refuses(RestoreError, "overlap its inputs"):
        table.undo(entry.run)


def test_inputs_that_a_vacuum_removed_do_not_come_back(store: MemoryStore) -> None:
    table, run = compacted(store)
    table.append(rows_of(30))
    table.vacuum(grace_seconds=0, retain_seconds=0)
    with refuses(UsageError, run):
        table.undo(run)


def test_a_vacuum_that_overtakes_an_undo_wins(store: MemoryStore) -> None:
    table, run = compacted(store)
    slow = MemoryStore(store.objects)
    stall = Stall(lambda: table.vacuum(grace_seconds=0, retain_seconds=0))
    slow.faults.add(stall, at=COMMITS.first())
    with refuses(VersionNotFoundError, "no version"):
        open_table(slow).undo(run)
    assert keys_in(open_table(store)) == keys_in(table)


def test_an_input_that_is_gone_is_named(store: MemoryStore) -> None:
    table, run = compacted(store)
    gone = CommitLog(store).at(3).by_age()[0].key
    del store.objects[gone]
    with refuses(VersionNotFoundError, gone):
        table.undo(run)


def test_an_unknown_compaction_is_refused(store: MemoryStore) -> None:
    table, _ = compacted(store)
    with refuses(UsageError, "'nothing'"):
        table.undo("nothing")
