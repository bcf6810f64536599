"""Fragments that are gone: what readers and deletions say of them, leave out, and what a person gives up."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from compactor import Policy, RowKind, RowPolicy, Strategy, Table
from compactor.compaction.driver import Driver, DriverSettings
from compactor.errors import (
    DamagedInputError,
    FragmentMissingError,
    JobError,
    OvertakenError,
    PermissionDeniedError,
    UsageError,
)
from compactor.read.read_reports import ScanReport
from compactor.read.scan_tasks import read_parts, tasks_of
from compactor.settings.compaction import CompactionSettings
from compactor.table.commit_log import CommitLog
from compactor.table.object_names import version_key
from compactor.table.version import Changes, Operation, Quarantine
from compactor.write.ingest import IngestOptions
from compactor.write.lost_fragments import drop_fragment
from lsm_fragment.errors import CorruptFragmentError, NotAFragmentError
from tests.faults import Refuse, Stall, calls
from tests.support.memory_store import MemoryStore
from tests.support.tables import keys_in, open_table
from tests.support.wording import refuses

FULL = Policy(strategy=Strategy.FULL)
Read = Callable[[Table], Any]
READERS: dict[str, Read] = {
    "scan": lambda t: t.scan().to_table(),
    "scan where": lambda t: t.scan(where="k < 30").to_table(),
    "templates": lambda t: t.templates("text"),
    "delete": lambda t: t.delete("text = 'row 3'"),
    "delete of a dry run": lambda t: t.delete("k >= 0", dry_run=True),
}
WAYS_OUT = ("backup", "`compactor quarantine`", "--skip-missing", "`compactor drop-fragment`")


def rows_of(first: int, count: int = 10) -> pa.Table:
    keys = list(range(first, first + count))
    return pa.table({"k": keys, "text": [f"row {k}" for k in keys]})


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def filled(store: MemoryStore, rows: RowPolicy | None = None) -> tuple[Table, list[str]]:
    """A table of three fragments with keys of their own, and their keys by age."""
    table = open_table(store)
    options = IngestOptions() if rows is None else IngestOptions(rows=rows)
    table._ingest(rows_of(0), "k", options)
    for first in (10, 20):
        table.append(rows_of(first))
    return table, table.fragments()["key"].to_pylist()


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_names_the_fragment_that_is_gone_and_both_ways_out(
    store: MemoryStore, reader: str
) -> None:
    table, (_, gone, _) = filled(store)
    del store.objects[gone]
    with refuses(FragmentMissingError, gone, "10 rows", "skip_missing", "drop-fragment") as told:
        READERS[reader](table)
    assert told.value.exit_code == 4


def test_what_does_not_need_the_fragment_goes_on(store: MemoryStore) -> None:
    table, (_, gone, _) = filled(store)
    del store.objects[gone]
    assert keys_in(table, where="k < 5") == [0, 1, 2, 3, 4]
    assert table.delete("k = 3").rows == 1
    table.append(rows_of(30))
    assert table.rows == 39


@pytest.mark.parametrize("is_known", [False, True])
def test_the_fragment_is_left_out_where_readers_are_told_to(
    store: MemoryStore, is_known: bool
) -> None:
    """Whether it is in quarantine already, or only found to be gone."""
    table, (_, gone, _) = filled(store)
    del store.objects[gone]
    if is_known:
        assert table.quarantine([gone, gone]) == (gone,)
        assert table.quarantine([gone]) == ()
    with pytest.raises(FragmentMissingError):
        keys_in(table)
    scan = table.scan(skip_missing=True)
    for _ in range(2):
        assert scan.to_table()["k"].to_pylist() == [*range(10), *range(20, 30)]
        assert (scan.report.fragments_left_out, scan.report.rows_left_out) == (1, 10)
        assert scan.report.fragments == 2
    # A condition that rules the fragment out leaves nothing out.
    scan = table.scan(where="k < 5", skip_missing=True)
    assert (len(scan.to_table()), scan.report.rows_left_out) == (5, 0)
    report = table.templates("text", skip_missing=True)
    assert (report.rows, report.fragments_left_out, report.rows_left_out) == (20, 1, 10)


def test_a_fragment_that_a_running_compaction_reads_is_left_out_like_others(
    store: MemoryStore,
) -> None:
    table, (_, gone, _) = filled(store)
    full = DriverSettings(policy=Policy(strategy=Strategy.FULL), compaction=CompactionSettings())
    [running] = Driver(table._log, full).decide(1)
    assert gone in {entry.key for entry in running.spec.inputs}
    del store.objects[gone]
    table.refresh()
    assert table.scan(skip_missing=True).to_table()["k"].to_pylist() == [*range(10), *range(20, 30)]


def test_a_fragment_without_its_deleted_rows_is_left_out_whole(store: MemoryStore) -> None:
    table, _ = filled(store)
    table.delete("text = 'row 13'")
    [deletion] = [key for key in store.objects if key.endswith(".deletes")]
    del store.objects[deletion]
    scan = table.scan(skip_missing=True)
    assert scan.to_table()["k"].to_pylist() == [*range(10), *range(20, 30)]
    assert (scan.report.fragments_left_out, scan.report.rows_left_out) == (1, 9)


def test_what_a_vacuum_removed_is_not_left_out(store: MemoryStore) -> None:
    table, _ = filled(store)
    old = open_table(store)
    table.compact(policy=FULL)
    table.vacuum(grace_seconds=0, retain_seconds=0)
    with pytest.raises(OvertakenError):
        keys_in(old, skip_missing=True)


def test_who_may_not_list_is_told(store: MemoryStore) -> None:
    filled(store)
    denied = MemoryStore(store.objects)
    table = open_table(denied)
    denied.faults.add(Refuse(PermissionDeniedError), at=calls("list", prefix="data/"))
    with pytest.raises(PermissionDeniedError):
        keys_in(table, skip_missing=True)


def test_a_deletion_past_it_says_so_and_does_not_delete_in_it(store: MemoryStore) -> None:
    table, (_, gone, _) = filled(store)
    whole = store.objects.pop(gone)
    table.quarantine([gone])
    report = table.delete("k >= 5 AND k < 25", skip_missing=True)
    assert (report.rows, report.fragments_left_out, report.rows_left_out) == (10, 1, 10)
    assert keys_in(table, skip_missing=True) == [0, 1, 2, 3, 4, 25, 26, 27, 28, 29]
    store.objects[gone] = whole
    table.release([gone])
    assert keys_in(table) == [*range(5), *range(10, 20), *range(25, 30)]


def test_a_deletion_of_merged_rows_goes_past_it_too(store: MemoryStore) -> None:
    table, (_, gone, _) = filled(store, RowPolicy(RowKind.LAST))
    table.append(rows_of(5))
    del store.objects[gone]
    table.quarantine([gone])
    report = table.delete("text = 'row 6'", skip_missing=True)
    assert (report.rows, report.rows_left_out) == (1, 10)
    assert 6 not in keys_in(table, skip_missing=True)


def test_what_was_restored_and_released_is_there_again(store: MemoryStore) -> None:
    table, (_, gone, _) = filled(store)
    whole = store.objects.pop(gone)
    table.quarantine([gone])
    store.objects[gone] = whole
    assert table.release() == (gone,)
    table.compact(policy=FULL)
    assert keys_in(table) == [*range(30)]


def test_a_fragment_is_given_up_in_one_commit_that_history_and_totals_show(
    store: MemoryStore,
) -> None:
    table, (_, gone, _) = filled(store)
    table.delete("k = 12")
    before = table.version
    del store.objects[gone]
    with refuses(UsageError, "lose_rows", gone, "9 rows"):
        table.drop_fragment(gone)
    report = table.drop_fragment(gone, lose_rows=True)
    assert (report.version, report.fragment, report.rows) == (before + 1, gone, 9)
    assert (report.tombstones, report.may_revive) == (0, False)
    assert (report.first_key, report.last_key) == ("10", "19")
    (lost,) = CommitLog(store).history.read(report.version).changes.lost_fragments
    assert (lost.key, lost.live_rows, lost.first_key, lost.last_key) == (gone, 9, (10,), (19,))
    assert table.version == before + 1
    assert keys_in(table) == [*range(10), *range(20, 30)]
    newest = table.history(1).to_pylist()[0]
    assert (newest["operation"], newest["fragments_removed"]) == ("drop", 1)
    assert table._snapshot.totals.lost_rows == 9
    assert open_table(store)._snapshot.totals.lost_rows == 9
    with refuses(UsageError, gone):
        table.drop_fragment(gone, lose_rows=True)
    table.compact(policy=FULL)
    assert table.verify().faults == []
    earlier = Table(CommitLog(store), CommitLog(store).at(before))
    with refuses(OvertakenError, gone, str(report.version), "skip_missing"):
        earlier.scan().to_table()
    scan = earlier.scan(["k"], skip_missing=True)
    assert scan.to_table()["k"].to_pylist() == [*range(10), *range(20, 30)]
    assert (scan.report.fragments_left_out, scan.report.rows_left_out) == (1, 9)


def test_what_only_a_tag_keeps_is_left_out_by_readers_of_versions_that_are_not_kept(
    store: MemoryStore,
) -> None:
    table, (_, gone, _) = filled(store)
    table.tag("audit")
    table.append(rows_of(30))
    before = CommitLog(store).at(table.version)
    table.compact(policy=FULL)
    table.vacuum(retain_seconds=0, grace_seconds=0)
    newest = before.fragments.all()[-1].key
    assert gone in store.objects
    assert newest not in store.objects
    del store.objects[gone]
    old = Table(CommitLog(store), before)
    with refuses(FragmentMissingError, gone, "version 3", "skip_missing"):
        old.scan(where="k < 30").to_table()
    assert keys_in(old, where="k < 30", skip_missing=True) == [*range(10), *range(20, 30)]
    with refuses(OvertakenError, newest):
        keys_in(old, skip_missing=True)


def test_tags_from_before_an_object_was_made_are_not_looked_at(store: MemoryStore) -> None:
    table, _ = filled(store)
    for number in range(20):
        table.append(rows_of(1))
        table.tag(f"tag-{number}")
    table.append(rows_of(30))
    gone = CommitLog(store).current().by_age()[-1].key
    before = CommitLog(store).at(table.version)
    table.compact(policy=FULL)
    table.vacuum(retain_seconds=0, grace_seconds=0)
    assert gone not in store.objects
    store.calls.clear()
    with refuses(OvertakenError):
        keys_in(Table(CommitLog(store), before), skip_missing=True)
    assert len(store.calls) < 400  # and 1,200 with a look at each tag


@pytest.mark.parametrize("object_gone", ["fragment", "deleted rows"])
def test_what_a_vacuum_has_removed_of_an_earlier_version_is_not_left_out(
    store: MemoryStore, object_gone: str
) -> None:
    table, (first, _, _) = filled(store)
    table.delete("k = 3")
    before = CommitLog(store).at(table.version)
    deleted_rows = before.fragments[first].deletion
    assert deleted_rows is not None
    if object_gone == "fragment":
        table.compact(policy=FULL)
    else:
        table.delete("k = 4")
    table.vacuum(retain_seconds=0, grace_seconds=0)
    assert (first in store.objects) is (object_gone == "deleted rows")
    assert deleted_rows.key not in store.objects
    with refuses(OvertakenError, "vacuum"):
        Table(CommitLog(store), before).scan(skip_missing=True).to_table()


def test_a_dropped_fragment_that_was_only_damaged_is_in_earlier_versions(
    store: MemoryStore,
) -> None:
    table, (_, bad, _) = filled(store)
    whole = store.objects[bad]
    store.objects[bad] = whole[:-9]
    table.drop_fragment(bad, lose_rows=True)
    store.objects[bad] = whole
    earlier = CommitLog(store).at(table.version - 1)
    assert keys_in(Table(CommitLog(store), earlier)) == [*range(30)]


@pytest.mark.parametrize("act", ["drop", "quarantine"])
def test_a_whole_fragment_is_neither_given_up_nor_put_in_quarantine(
    store: MemoryStore, act: str
) -> None:
    table, (first, _, _) = filled(store)
    with refuses(UsageError, first, "delete"):
        if act == "drop":
            table.drop_fragment(first)
        else:
            table.quarantine([first])
    with refuses(UsageError, "data/none.frag"):
        if act == "drop":
            table.drop_fragment("data/none.frag", lose_rows=True)
        else:
            table.quarantine(["data/none.frag"])
    assert table.version == 3


@pytest.mark.parametrize("act", ["drop", "quarantine", "read"])
def test_a_refusal_is_no_proof_that_a_fragment_is_gone(store: MemoryStore, act: str) -> None:
    _, (_, gone, _) = filled(store)
    del store.objects[gone]
    denied = MemoryStore(store.objects)
    reads = calls("open_stream", "read_range", prefix=gone)
    denied.faults.add(Refuse(PermissionDeniedError), at=reads)
    table = open_table(denied)
    with pytest.raises(PermissionDeniedError):
        if act == "drop":
            table.drop_fragment(gone, lose_rows=True)
        elif act == "quarantine":
            table.quarantine([gone])
        else:
            keys_in(table)
    assert open_table(store).version == 3


def test_a_fragment_that_ends_workers_can_be_given_up_though_it_is_whole(
    store: MemoryStore,
) -> None:
    table, (first, _, _) = filled(store)
    held = Quarantine(first, "3 workers ended without a word", 1)
    CommitLog(store).commit(lambda _: Changes(operation=Operation.QUARANTINE, quarantines=(held,)))
    with pytest.raises(JobError, match="drop-fragment"):
        table.compact(policy=FULL)
    assert table.drop_fragment(first, lose_rows=True).rows == 10


def test_what_is_released_while_it_is_given_up_stays(store: MemoryStore) -> None:
    table, (first, _, _) = filled(store)
    held = Quarantine(first, "why", 1)
    CommitLog(store).commit(lambda _: Changes(operation=Operation.QUARANTINE, quarantines=(held,)))
    slow = MemoryStore(store.objects)
    commit = calls("create", prefix=version_key(5)).first()
    slow.faults.add(Stall(lambda: table.release([first])), at=commit)
    with refuses(UsageError, first, "released"):
        drop_fragment(CommitLog(slow), first, lose_rows=True)
    assert keys_in(open_table(store)) == [*range(30)]


def test_older_rows_show_again_without_the_newest_ones_and_without_tombstones(
    store: MemoryStore,
) -> None:
    table = open_table(store)
    policy = RowPolicy(RowKind.LAST, delete_marker="gone")
    rows = pa.table({"k": [1, 2, 3], "v": ["old"] * 3, "gone": [False] * 3})
    table._ingest(rows, "k", IngestOptions(rows=policy))
    table.append(pa.table({"k": [1, 2], "v": ["new", None], "gone": [False, True]}))
    newest = table.fragments()["key"].to_pylist()[-1]
    assert table.scan(["k", "v"]).to_table().to_pydict() == {"k": [1, 3], "v": ["new", "old"]}
    del store.objects[newest]
    table.quarantine([newest])
    old = {"k": [1, 2, 3], "v": ["old"] * 3}
    assert table.scan(["k", "v"], skip_missing=True).to_table().to_pydict() == old
    report = table.drop_fragment(newest, lose_rows=True)
    assert (report.rows, report.tombstones, report.may_revive) == (2, 1, True)
    assert table.scan(["k", "v"]).to_table().to_pydict() == old


def test_a_compaction_of_what_is_given_up_meanwhile_is_void(store: MemoryStore) -> None:
    table, keys = filled(store)
    whole = store.objects.copy()
    lagging = MemoryStore(store.objects)
    log = CommitLog(lagging)

    def give_up() -> None:
        del store.objects[keys[1]]
        table.refresh()
        table.drop_fragment(keys[1], lose_rows=True)

    lagging.faults.add(Stall(give_up), at=calls("start_upload").first())
    Table(log, log.refresh()).compact(policy=FULL)
    assert whole.keys() - store.objects.keys() == {keys[1]}
    assert keys_in(open_table(store)) == [*range(10), *range(20, 30)]


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_says_what_to_do_about_a_damaged_fragment(store: MemoryStore, reader: str) -> None:
    table, (_, bad, _) = filled(store)
    store.objects[bad] = b"another file".ljust(len(store.objects[bad]))
    with refuses(NotAFragmentError, bad, *WAYS_OUT):
        READERS[reader](table)


def test_a_merging_reader_says_what_to_do_about_a_damaged_fragment(store: MemoryStore) -> None:
    table, (_, bad, _) = filled(store, RowPolicy(RowKind.LAST))
    store.objects[bad] = store.objects[bad][:-9] + bytes(9)
    for reader in READERS.values():
        with refuses(CorruptFragmentError, bad, *WAYS_OUT) as told:
            reader(table)
        assert str(told.value).count("restore it") == 1


def test_what_to_do_about_damage_comes_through_a_process(store: MemoryStore) -> None:
    table, (_, bad, _) = filled(store)
    store.objects[bad] = store.objects[bad][:-9] + bytes(9)
    with refuses(CorruptFragmentError, *WAYS_OUT) as told:
        table.scan().to_table()
    copy = pickle.loads(pickle.dumps(told.value))
    assert str(copy) == str(told.value)


@pytest.mark.parametrize("reader", READERS)
def test_a_fragment_replaced_by_another_of_its_size_is_no_fragment_of_the_log(
    store: MemoryStore, reader: str
) -> None:
    """It is intact by its own checksums, so a reader that believed it would tell another fragment's rows."""
    table, (_, replaced, other) = filled(store)
    sizes = {entry["size_bytes"] for entry in table.fragments().to_pylist()[1:]}
    assert len(sizes) == 1, "the fragments differ in size, which tells them apart anyway"
    store.objects[replaced] = store.objects[other]
    cause = ("its footer says 10 rows", "the table's log")
    with refuses(DamagedInputError, replaced, *cause, *WAYS_OUT) as told:
        READERS[reader](table)
    assert told.value.exit_code == 3


def test_a_spark_task_tells_that_a_fragment_is_not_that_of_the_log(store: MemoryStore) -> None:
    table, (_, replaced, other) = filled(store)
    store.objects[replaced] = store.objects[other]
    snapshot = table._snapshot
    [parts] = tasks_of(snapshot, None, 1 << 30, ScanReport())
    with refuses(DamagedInputError, replaced):
        list(read_parts(store, snapshot.table, parts, ["k"], None, ScanReport()))
