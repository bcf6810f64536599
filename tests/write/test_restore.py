"""Earlier versions come back whole in one commit, or are refused with the reason and a way out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from compactor import IngestOptions, Policy, SkipKind, SkipSpec, Strategy, Table
from compactor.compaction.attempt import run_compaction
from compactor.compaction.driver import Driver, DriverSettings
from compactor.errors import (
    CommitConflictError,
    RestoreError,
    UnknownOutcomeError,
    UsageError,
    VersionNotFoundError,
)
from compactor.settings.vacuum import VacuumSettings
from compactor.table.commit_log import CommitLog
from compactor.table.object_names import fragment_key, version_key
from compactor.table.snapshot import Snapshot
from compactor.table.vacuum import vacuum
from compactor.table.version import Changes, Operation
from compactor.write.restore import restore_version
from tests.faults import LoseAnswer, Stall, calls
from tests.support.memory_store import MemoryStore
from tests.support.tables import COMMITS, keys_in, open_table
from tests.support.wording import refuses

FULL = Policy(strategy=Strategy.FULL)
AGES_SECONDS = 4e9
"""Longer than the clock of the store in memory has run."""


def rows_of(first: int, count: int = 10, **more: Any) -> pa.Table:
    keys = list(range(first, first + count))
    columns = {"k": keys, "text": [f"row {k}" for k in keys]}
    return pa.table({**columns, **{name: [value] * count for name, value in more.items()}})


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def filled(store: MemoryStore) -> Table:
    """A table of three versions with ten rows each."""
    table = open_table(store)
    table._ingest(rows_of(0), "k", None)
    for first in (10, 20):
        table.append(rows_of(first))
    return table


def at(store: MemoryStore, version: int) -> Snapshot:
    return CommitLog(store).at(version)


def is_the_same(one: Snapshot, other: Snapshot) -> bool:
    fragments = dict(one.fragments) == dict(other.fragments)
    return fragments and one.table == other.table and dict(one.quarantine) == dict(other.quarantine)


# --- what comes back ---


def test_a_restore_is_a_new_version_with_the_fragments_of_the_old_one(store: MemoryStore) -> None:
    table = filled(store)
    objects = {key for key in store.objects if key.startswith("data/")}
    report = table.restore(version=2)
    assert (report.version, report.restored, table.version) == (4, 2, 4)
    assert (report.fragments_added, report.fragments_removed) == (0, 1)
    assert (report.rows_before, report.rows, report.columns_changed) == (30, 20, False)
    assert is_the_same(at(store, 4), at(store, 2))
    assert keys_in(open_table(store)) == list(range(20))
    assert {key for key in store.objects if key.startswith("data/")} == objects
    assert CommitLog(store).at(3).fragments.keys() > at(store, 4).fragments.keys()


def test_deleted_rows_come_back(store: MemoryStore) -> None:
    table = filled(store)
    table.delete("k < 15")
    assert keys_in(table) == list(range(15, 30))
    report = table.restore(version=3)
    assert (report.fragments_added, report.fragments_removed) == (2, 2)
    assert keys_in(table) == list(range(30))
    table.restore(version=4)
    assert keys_in(table) == list(range(15, 30))


def test_a_restore_goes_back_past_compactions_whose_outputs_leave(store: MemoryStore) -> None:
    table = filled(store)
    table.delete("k = 3")
    table.compact(policy=FULL)
    table.append(rows_of(30))
    table.restore(version=4)
    assert is_the_same(table._snapshot, at(store, 4))
    assert keys_in(table) == [k for k in range(30) if k != 3]
    table.append(rows_of(40))
    table.compact(policy=FULL)
    assert keys_in(table) == [*(k for k in range(30) if k != 3), *range(40, 50)]
    assert not table.verify().faults


def test_a_restore_can_be_restored_from(store: MemoryStore) -> None:
    table = filled(store)
    table.restore(version=1)
    table.append(rows_of(50))
    table.restore(version=3)
    assert keys_in(table) == list(range(30))
    table.restore(version=5)
    assert keys_in(table) == [*range(10), *range(50, 60)]
    assert table.history()["operation"].to_pylist()[:3] == ["restore", "restore", "ingest"]


def test_the_time_of_a_version_names_it_too(store: MemoryStore) -> None:
    table = filled(store)
    last = table.history()["committed_at"].to_pylist()[0]
    assert table.restore(as_of=last, dry_run=True).restored == 3
    with refuses(VersionNotFoundError):
        table.restore(as_of=datetime(2020, 1, 1, tzinfo=UTC))


def test_without_a_difference_nothing_is_committed(store: MemoryStore) -> None:
    table = filled(store)
    table.restore(version=2)
    report = table.restore(version=2)
    assert (report.version, report.fragments_added, report.fragments_removed) == (4, 0, 0)
    assert table.version == 4


def test_a_dry_run_says_what_would_change_and_changes_nothing(store: MemoryStore) -> None:
    table = filled(store)
    before = dict(store.objects)
    report = table.restore(version=1, dry_run=True)
    assert (report.version, report.fragments_removed, report.rows) == (3, 2, 10)
    assert store.objects == before


def test_columns_are_those_of_the_version_again(store: MemoryStore) -> None:
    table = filled(store)
    table.alter(renames={"text": "words"})
    table.append(
        rows_of(30).rename_columns(["k", "words"]).append_column("more", pa.array([7] * 10))
    )
    report = table.restore(version=3)
    assert report.columns_changed
    assert table.schema.names == ["k", "text"]
    assert table.scan(["text"]).to_table()["text"].to_pylist()[3] == "row 3"
    table.append(rows_of(30, more="a text this time"))
    assert table.schema.field("more").type == pa.string()
    assert not table.verify().faults


def test_a_dropped_column_comes_back_with_its_values(store: MemoryStore) -> None:
    table = filled(store)
    table.alter(drops=["text"])
    table.append(rows_of(30))
    assert set(table.scan(["text"], "k < 30").to_table()["text"].to_pylist()) == {None}
    table.restore(version=3)
    assert table.scan(["text"]).to_table()["text"].to_pylist() == [f"row {k}" for k in range(30)]
    table.compact(policy=FULL)
    assert table.scan(["text"]).to_table()["text"].to_pylist() == [f"row {k}" for k in range(30)]
    table.restore(version=5)
    assert table.scan(["text"]).to_table()["text"].to_pylist() == [None] * 30 + [
        f"row {k}" for k in range(30, 40)
    ]


def test_quarantine_comes_back_with_a_fragment_and_stays_with_one_that_stays(
    store: MemoryStore,
) -> None:
    table = filled(store)
    first, second, _ = table.fragments()["key"].to_pylist()
    whole = {key: store.objects[key] for key in (first, second)}
    store.objects.update(dict.fromkeys(whole, b"damaged"))
    table.quarantine([first])
    table.drop_fragment(first, lose_rows=True)
    table.quarantine([second])
    store.objects.update(whole)
    table.restore(version=4)
    assert set(table._snapshot.quarantine) == {first, second}
    table.release()
    assert keys_in(table) == list(range(30))


# --- others at work ---


def test_a_running_compaction_is_void_after_a_restore(store: MemoryStore) -> None:
    table = filled(store)
    log = CommitLog(store)
    driver = Driver(log, DriverSettings(policy=FULL))
    [compaction] = driver.decide(1)
    table.restore(version=2)
    assert not table._snapshot.leases
    [finished] = driver.commit_outcomes([run_compaction(compaction, store)])
    assert finished.is_void
    assert keys_in(open_table(store)) == list(range(20))


def test_a_compaction_of_inputs_that_all_stay_is_void_too(store: MemoryStore) -> None:
    """What comes back may lie where its outputs would."""
    table = filled(store)
    table.delete("k = 29")
    table.compact(policy=FULL)
    table.append(rows_of(30))
    log = CommitLog(store)
    driver = Driver(log, DriverSettings(policy=FULL))
    table.restore(version=table.version - 1)
    table.append(rows_of(30))
    [compaction] = driver.decide(1)
    table.restore(version=3)
    [finished] = driver.commit_outcomes([run_compaction(compaction, store)])
    assert finished.is_void
    assert is_the_same(CommitLog(store).current(), at(store, 3))


@pytest.mark.parametrize("rival", ["append", "delete", "alter", "restore"])
def test_rows_that_others_change_meanwhile_are_not_undone_unseen(
    store: MemoryStore, rival: str
) -> None:
    table = filled(store)
    other = open_table(store)
    acts = {
        "append": lambda: other.append(rows_of(30)),
        "delete": lambda: other.delete("k = 5"),
        "alter": lambda: other.alter(renames={"text": "words"}),
        "restore": lambda: other.restore(version=1),
    }
    slow = MemoryStore(store.objects)
    slow.faults.add(Stall(acts[rival]), at=calls("list", prefix="data/").first())
    log = CommitLog(slow)
    with refuses(CommitConflictError, "version 4"):
        restore_version(log, log.at(2))
    assert CommitLog(store).current().version == 4
    del table


def test_compactions_that_come_meanwhile_are_no_conflict(store: MemoryStore) -> None:
    table = filled(store)
    slow = MemoryStore(store.objects)
    slow.faults.add(
        Stall(lambda: table.compact(policy=FULL)), at=calls("list", prefix="data/").first()
    )
    log = CommitLog(slow)
    report = restore_version(log, log.at(2))
    assert report.fragments_added == 2
    assert is_the_same(CommitLog(store).current(), at(store, 2))


def test_properties_that_others_set_meanwhile_are_no_conflict_and_stay(store: MemoryStore) -> None:
    filled(store)
    other = open_table(store)
    slow = MemoryStore(store.objects)
    stall = Stall(lambda: other.alter(properties={"slow_runs": 30}))
    slow.faults.add(stall, at=calls("list", prefix="data/").first())
    log = CommitLog(slow)
    assert restore_version(log, log.at(2)).version == 5
    newest = CommitLog(store).current()
    assert dict(newest.properties) == {"slow_runs": 30}
    assert keys_in(open_table(store)) == list(range(20))


def test_a_deletion_that_a_restore_overtakes_searches_again(store: MemoryStore) -> None:
    table = filled(store)
    table.delete("k < 5")
    slow = MemoryStore(store.objects)
    stall = Stall(lambda: table.restore(version=3))
    slow.faults.add(stall, at=calls("create", prefix="data/").first())
    assert open_table(slow).delete("k < 12").rows == 12
    assert keys_in(open_table(store)) == list(range(12, 30))


def test_an_ingest_that_a_restore_overtakes_comes_on_top(store: MemoryStore) -> None:
    table = filled(store)
    slow = MemoryStore(store.objects)
    stall = Stall(lambda: table.restore(version=1))
    slow.faults.add(stall, at=COMMITS.first())
    open_table(slow).append(rows_of(40))
    assert keys_in(open_table(store)) == [*range(10), *range(40, 50)]


def test_a_restore_whose_answer_is_lost_is_not_done_twice(store: MemoryStore) -> None:
    filled(store)
    flaky = MemoryStore(store.objects)
    flaky.faults.add(LoseAnswer(), at=COMMITS.first())
    log = CommitLog(flaky)
    assert restore_version(log, log.at(2)).version == 4
    assert CommitLog(store).current().version == 4


def test_what_this_process_has_added_before_comes_back_although_an_answer_was_lost(
    store: MemoryStore,
) -> None:
    """A commit of unknown outcome is remembered, so as not to add its fragments twice."""
    table = filled(store)
    lost = COMMITS.first(8)
    store.faults.add(LoseAnswer(), at=lost)
    store.faults.add(LoseAnswer(), at=calls("read", prefix=version_key(4)))
    with pytest.raises(UnknownOutcomeError):
        table.append(rows_of(30))
    store.faults.clear()
    table.refresh()
    assert table.version == 4
    table.restore(version=3)
    table.restore(version=4)
    assert table.version == 6
    assert keys_in(table) == list(range(40))


# --- vacuums ---


def compacted(store: MemoryStore) -> Table:
    table = filled(store)
    table.compact(policy=FULL)
    return table


def test_a_version_that_a_vacuum_gave_up_is_refused(store: MemoryStore) -> None:
    table = compacted(store)
    table.vacuum(grace_seconds=0, retain_seconds=0)
    with refuses(VersionNotFoundError, "there is no version 3", "are kept"):
        table.restore(version=3)


def test_fragments_older_than_every_grace_come_back_while_their_version_is_kept(
    store: MemoryStore,
) -> None:
    table = compacted(store)
    store.objects[fragment_key(0, "garbage", 0)] = b"of an attempt that died"
    table.vacuum(grace_seconds=0, retain_seconds=AGES_SECONDS)
    assert table._snapshot.min_base_version > 3
    table.restore(version=3)
    assert is_the_same(table._snapshot, at(store, 3))
    table.vacuum(grace_seconds=0, retain_seconds=0, allow_shrinking=True)
    assert keys_in(table) == list(range(30))
    assert not table.verify().faults


def test_a_vacuum_that_listed_garbage_before_a_restore_removes_nothing_that_came_back(
    store: MemoryStore,
) -> None:
    """The restore comes between the vacuum's survey and its commit."""
    table = compacted(store)
    slow = MemoryStore(store.objects)
    stall = Stall(lambda: table.restore(version=3))
    slow.faults.add(stall, at=COMMITS.first())
    report = vacuum(CommitLog(slow), VacuumSettings(grace_seconds=0, retain_seconds=0))
    assert report.version > table.version
    assert is_the_same(table._snapshot, CommitLog(store).current())
    assert keys_in(open_table(store)) == list(range(30))


def test_a_restore_that_a_vacuum_overtakes_is_refused_before_its_commit(store: MemoryStore) -> None:
    """The vacuum comes between the restore's look at the objects and its commit."""
    table = compacted(store)
    slow = MemoryStore(store.objects)
    stall = Stall(lambda: table.vacuum(grace_seconds=0, retain_seconds=0))
    slow.faults.add(stall, at=COMMITS.first())
    log = CommitLog(slow)
    with refuses(VersionNotFoundError, "there is no version 3"):
        restore_version(log, log.at(3))
    assert keys_in(open_table(store)) == list(range(30))
    assert CommitLog(store).current().version == table.version


def test_a_vacuum_between_its_commit_and_its_removals_spares_what_comes_back(
    store: MemoryStore,
) -> None:
    """The restore comes after the vacuum's commit, before anything is removed."""
    table = compacted(store)
    slow = MemoryStore(store.objects)
    told: list[bool] = []

    def restore() -> None:
        try:
            table.restore(version=3)
        except VersionNotFoundError:
            told.append(True)

    slow.faults.add(Stall(restore), at=calls("delete", prefix="data/").first())
    assert vacuum(CommitLog(slow), VacuumSettings(grace_seconds=0, retain_seconds=0)).fragments == 3
    assert told == [True]
    assert keys_in(open_table(store)) == list(range(30))


def test_the_log_refuses_fragments_of_a_version_that_is_not_kept(store: MemoryStore) -> None:
    table = compacted(store)
    old = at(store, 3)
    table.vacuum(grace_seconds=0, retain_seconds=0)

    def prepare(latest: Snapshot) -> Changes:
        removes, adds = tuple(latest.fragments), tuple(old.fragments.all())
        return Changes(operation=Operation.RESTORE, removes=removes, adds=adds, returns_to=3)

    with refuses(VersionNotFoundError):
        CommitLog(store).commit(prepare)


# --- what stands between ---


def test_a_redaction_in_between_is_named_and_the_versions_from_it_on_come_back(
    store: MemoryStore,
) -> None:
    table = filled(store)
    table.alter(redacts=["text"])
    table.append(rows_of(30))
    with refuses(RestoreError, "values of text", "version 4"):
        table.restore(version=3)
    assert table.version == 5
    table.restore(version=4)
    assert set(table.scan(["text"]).to_table()["text"].to_pylist()) == {None}


def test_a_redaction_is_remembered_through_restores_and_checkpoints(store: MemoryStore) -> None:
    table = filled(store)
    table.alter(renames={"text": "words"})
    table.alter(redacts=["words"])
    table.restore(version=5)
    table.append(rows_of(40))
    log = CommitLog(store)
    assert log.write_checkpoint(log.refresh())
    table = open_table(store)
    with refuses(RestoreError, "words"):
        table.restore(version=4)
    with refuses(RestoreError, "text"):
        table.restore(version=1)


def test_a_version_from_before_the_redacted_column_comes_back(store: MemoryStore) -> None:
    table = filled(store)
    table.append(rows_of(30, secret="s3cr3t"))
    table.alter(redacts=["secret"])
    table.restore(version=3)
    assert table.schema.names == ["k", "text"]
    with refuses(RestoreError, "secret"):
        table.restore(version=4)


def test_a_column_that_is_only_dropped_is_no_redaction(store: MemoryStore) -> None:
    table = filled(store)
    table.alter(drops=["text"])
    assert table.restore(version=3).columns_changed


def test_objects_that_are_gone_are_named_with_the_oldest_version_that_is_whole(
    store: MemoryStore,
) -> None:
    table = filled(store)
    table.delete("k = 25")
    table.compact(policy=FULL)
    compacted_at = table.version
    table.append(rows_of(30))
    gone = at(store, 2).by_age()[1].key
    whole = store.objects.pop(gone)
    with refuses(VersionNotFoundError, gone, f"is {compacted_at}"):
        table.restore(version=2)
    with refuses(VersionNotFoundError, gone):
        table.restore(version=3)
    table.restore(version=1)
    store.objects[gone] = whole
    table.restore(version=2)
    assert keys_in(table) == list(range(20))


def test_what_a_vacuum_took_after_the_version_was_read_is_not_called_lost(
    store: MemoryStore,
) -> None:
    table = compacted(store)
    target = at(store, 1)
    table.vacuum(grace_seconds=0, retain_seconds=0)
    with refuses(VersionNotFoundError, "no version 1 to read"):
        restore_version(CommitLog(store), target)


def test_where_no_later_version_is_whole_that_is_said(store: MemoryStore) -> None:
    table = filled(store)
    for fragment in table.fragments()["key"].to_pylist():
        del store.objects[fragment]
    with refuses(VersionNotFoundError, "no later version"):
        table.restore(version=1)


def test_the_object_of_deleted_rows_is_asked_for_too(store: MemoryStore) -> None:
    table = filled(store)
    table.delete("k = 5")
    table.delete("k = 6")
    [deletes] = {e.deletion.key for e in at(store, 4).fragments.all() if e.deletion}
    del store.objects[deletes]
    with refuses(VersionNotFoundError, deletes):
        table.restore(version=4)
    assert table.restore(version=3).rows == 30


def test_a_lost_skip_index_neither_keeps_a_version_from_coming_back_nor_from_a_tag(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    table = open_table(store)
    skips = SkipSpec((("text", SkipKind.BLOOM),))
    table._ingest(rows_of(0), "k", IngestOptions(skips=skips))
    table.append(rows_of(10))
    lost = [key for key in store.objects if key.endswith(".skips")]
    assert len(lost) == 2
    for key in lost:
        del store.objects[key]
    for act, version in ((lambda: table.tag("good"), 2), (lambda: table.restore(version=1), 1)):
        caplog.clear()
        act()
        [warning] = [record.getMessage() for record in caplog.records]
        assert lost[0] in warning and f"version {version}" in warning
        assert "`compactor compact --strategy full`" in warning
    assert keys_in(table, where="text = 'row 3'") == [3]
    table.append(rows_of(20))
    table.compact(policy=FULL)
    assert all(set(e.objects) <= store.objects.keys() for e in table._snapshot.fragments.all())


def test_one_of_version_and_time_is_named(store: MemoryStore) -> None:
    table = filled(store)
    with refuses(UsageError):
        table.restore()
    with refuses(UsageError):
        table.restore(version=1, as_of=datetime(2026, 1, 1, tzinfo=UTC))
    with refuses(VersionNotFoundError, "versions 1 to 3 are kept"):
        table.restore(version=9)
