"""A version is held against an earlier one: what came, what went, and that compactions changed nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from compactor import Policy, Strategy, Table
from compactor.errors import UsageError, VersionNotFoundError
from compactor.predicate.skipping.spec import SkipKind
from compactor.rows.policy import RowKind, RowPolicy
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.write.ingest import IngestOptions
from tests.support.memory_store import MemoryStore
from tests.support.wording import refuses

FULL = Policy(strategy=Strategy.FULL)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def rows_of(first: int, **more: Any) -> pa.Table:
    keys = list(range(first, first + 10))
    return pa.table({"k": keys, "n": pa.array(keys, pa.int32()), **more})


def filled(store: MemoryStore, options: IngestOptions | None = None) -> Table:
    log = CommitLog(store)
    table = Table(log, log.refresh())
    table._ingest(rows_of(0), "k", options)
    for first in (5, 20):
        table.append(rows_of(first))
    return table


def commit(store: MemoryStore, operation: Operation, **changes: Any) -> Table:
    """Commits what no program of ours would."""
    log = CommitLog(store)
    return Table(log, log.commit(lambda _: Changes(operation=operation, **changes)))


def test_compactions_are_proved_by_the_hash_of_all_rows(store: MemoryStore) -> None:
    table = filled(store)
    table.compact(policy=FULL)
    table.append(rows_of(40))
    table.compact(policy=FULL)
    report = table.verify(against=3)
    assert not report.faults
    against = report.against
    assert against is not None
    assert (against.version, against.rows_before, against.rows_after) == (3, 30, 40)
    assert (against.proved, against.counted, against.appended, against.deleted) == (2, 0, 10, 0)
    assert against.others == []
    assert report.to_json()["against"]["proved"] == 2


def test_deletions_are_stated_and_their_removal_from_storage_is_counted(
    store: MemoryStore,
) -> None:
    table = filled(store)
    table.delete("k < 7")
    table.compact(policy=FULL)
    report = table.verify(against=1)
    assert not report.faults
    assert report.against is not None
    assert (report.against.deleted, report.against.counted, report.against.proved) == (9, 1, 0)
    assert (report.against.rows_before, report.against.appended) == (10, 20)
    assert report.against.rows_after == 10 + 20 - 9 == len(table)


def test_rows_that_a_row_policy_merges_are_counted_apart(store: MemoryStore) -> None:
    table = filled(store, IngestOptions(rows=RowPolicy(RowKind.LAST)))
    table.compact(policy=FULL)
    report = table.verify(against=3)
    assert not report.faults
    assert report.against is not None
    assert (report.against.left_out, report.against.counted) == (5, 1)


def test_columns_dropped_or_widened_make_hashes_incomparable(store: MemoryStore) -> None:
    table = filled(store)
    table.append(pa.table({"k": [50], "n": pa.array([1 << 40])}))
    table.compact(policy=FULL)
    report = table.verify(against=3)
    assert not report.faults
    assert report.against is not None
    assert report.against.counted + report.against.proved == 1
    version = table.version
    table.alter(drops=["n"])
    table.compact(policy=FULL)
    report = table.verify(against=version)
    assert not report.faults
    assert report.against is not None
    assert report.against.counted == 1
    assert report.against.others == [f"version {version + 1} (alter)"]


def test_the_first_version_that_changes_rows_otherwise_is_named(store: MemoryStore) -> None:
    table = filled(store)
    table.tag("start")
    table.restore(version=1)
    table.restore(version=3)
    report = table.verify(against="start")
    assert not report.faults
    assert report.against is not None
    assert report.against.others == ["version 5 (restore)", "version 6 (restore)"]
    assert "first otherwise changed by version 5 (restore)" in str(report.against)


def test_properties_and_skip_indexes_change_no_rows(store: MemoryStore) -> None:
    table = filled(store)
    table.tag("start")
    table.alter(properties={"level0_trigger_runs": 8})
    table.alter(skips={"n": SkipKind.BLOOM})
    table.alter(renames={"n": "m"})
    report = table.verify(against="start")
    assert report.against is not None
    assert report.against.others == ["version 7 (alter)"]


def moved(snapshot: Snapshot, **wrong: Any) -> dict[str, Any]:
    """A change of all fragments' level, with a mistake in the first."""
    first, *rest = snapshot.by_age()
    adds = (structs.replace(first, **wrong), *rest)
    return {"removes": tuple(snapshot.fragments), "adds": adds}


@pytest.mark.parametrize("wrong", [{"row_hash": 7}, {"rows": 9}, {"rows": 11}], ids=str)
def test_a_compaction_that_changed_rows_is_a_fault_at_its_version(
    store: MemoryStore, wrong: dict[str, int]
) -> None:
    table = filled(store)
    commit(store, Operation.TRIVIAL_MOVE, **moved(table._snapshot, **wrong))
    table = commit(store, Operation.TRIVIAL_MOVE, **moved(CommitLog(store).refresh()))
    faults = [f for f in table.verify(against=3).faults if "version 4 (trivial_move) took 30" in f]
    assert len(faults) == 1
    assert not any("version 5" in fault for fault in table.verify(against=3).faults)
    assert not [f for f in table.verify(against=4).faults if "trivial_move" in f]


def test_a_compaction_that_lost_a_fragment_is_a_fault(store: MemoryStore) -> None:
    table = filled(store)
    [first, *_] = table._snapshot.by_age()
    table = commit(store, Operation.COMPACT, removes=(first.key,))
    faults = table.verify(against=2).faults
    assert faults == ["memory://table: version 4 (compact) took 10 rows and gave 0"]
    assert table.verify().faults == []


def test_a_deletion_that_changed_more_than_deleted_rows_is_a_fault(store: MemoryStore) -> None:
    table = filled(store)
    change = moved(table._snapshot, row_hash=7)
    table = commit(store, Operation.DELETE, **change)
    assert any("version 4 (delete)" in fault for fault in table.verify(against=3).faults)


def test_only_earlier_versions_that_are_kept_are_compared(store: MemoryStore) -> None:
    table = filled(store)
    assert table.verify(against=3).against is not None
    with refuses(UsageError, "version 3", "version 2"):
        log = CommitLog(store)
        Table(log, log.at(2)).verify(against=3)
    with refuses(VersionNotFoundError):
        table.verify(against=9)
    with refuses(VersionNotFoundError, "no tag"):
        table.verify(against="x")
