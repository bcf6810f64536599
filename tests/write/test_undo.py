"""One compaction is undone: its inputs are back, later ingests stay, and what can't be mapped is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from compactor import Policy, Strategy, Table
from compactor.compaction.attempt import run_compaction
from compactor.compaction.driver import Driver, DriverSettings
from compactor.errors import RestoreError, UsageError, VersionNotFoundError
from compactor.table.commit_log import CommitLog
from tests.faults import Stall, calls
from tests.support.memory_store import MemoryStore
from tests.support.wording import refuses

FULL = Policy(strategy=Strategy.FULL)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def rows_of(first: int) -> pa.Table:
    keys = list(range(first, first + 10))
    return pa.table({"k": keys, "n": pa.array(keys, pa.int32())})


def open_table(store: MemoryStore) -> Table:
    log = CommitLog(store)
    return Table(log, log.refresh())


def compacted(store: MemoryStore) -> tuple[Table, str]:
    """A table of two ingests that overlap, without a deleted row, and the id of their compaction."""
    table = open_table(store)
    table._ingest(rows_of(0), "k", None)
    table.append(rows_of(5))
    table.delete("k = 7")
    table.compact(policy=FULL)
    [entry] = table._snapshot.fragments.all()
    return table, entry.run


def keys_in(table: Table) -> list[int]:
    keys: list[int] = table.scan(["k"]).to_table()["k"].to_pylist()
    return keys


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


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (lambda t: t.delete("k = 8"), "were deleted since"),
        (lambda t: (t.append(rows_of(3)), t.compact(policy=FULL)), "has been compacted"),
        (lambda t: t.alter(redacts=["n"]), "redacted values of n"),
        (lambda t: t.append(pa.table({"k": [1], "n": pa.array([1 << 40])})), "n got another type"),
    ],
    ids=["delete", "compact", "redact", "widen"],
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
    at = calls("create", prefix="_log/", where=lambda call: str(call.key).endswith(".json"))
    slow.faults.add(stall, at=at.first())
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
