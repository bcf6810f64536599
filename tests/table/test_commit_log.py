"""Commits: all or nothing, one winner a version, unknown outcomes resolved, inputs revalidated."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import (
    CommitConflictError,
    CompactionVoidError,
    DataError,
    ObjectExistsError,
    PermissionDeniedError,
    StoreError,
    StoreUnreachableError,
    TableError,
    TableNotFoundError,
    UnknownOutcomeError,
)
from compactor.predicate.skipping.spec import SkipKind, SkipSpec
from compactor.stores import base
from compactor.stores.local import LocalStore
from compactor.table import commit_log
from compactor.table.checkpoint import checkpoint_bytes
from compactor.table.commit_log import CommitLog, Prepare
from compactor.table.compaction_record import CompactionRecord
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.object_names import PROBE_KEY, parse_version, version_key
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Lease, Operation, Quarantine, Version
from compactor.write.alter import Alteration, alter_table
from compactor.write.delete import delete_rows
from compactor.write.ingest import IngestOptions
from tests.faults import (
    Call,
    DeliverTwice,
    Drop,
    Effect,
    IgnoreConditions,
    LoseAnswer,
    Refuse,
    Stall,
    calls,
)
from tests.support.clocks import StillClock
from tests.support.entries import made_up_entry
from tests.support.fragments import sort_schema
from tests.support.memory_store import MemoryStore
from tests.support.tables import COMMITS, append_table, compact_table, table_rows
from tests.support.wording import refuses

METADATA = TableMetadata(schema=pa.schema([("k", pa.int64())]), sort=sort_schema("k"))


def entry(key: str) -> FragmentEntry:
    return made_up_entry(f"data/{key}.frag", (1,), (2,), rows=1, size_bytes=100)


def names(snapshot: Snapshot) -> list[str]:
    return sorted(key.removeprefix("data/").removesuffix(".frag") for key in snapshot.fragments)


def add(*keys: str) -> Prepare:
    def prepare(snapshot: Snapshot) -> Changes:
        metadata = METADATA if snapshot.version == 0 else None
        return Changes(operation=Operation.INGEST, adds=tuple(map(entry, keys)), metadata=metadata)

    return prepare


def swap(old: str, new: str) -> Prepare:
    def prepare(snapshot: Snapshot) -> Changes:
        removed = entry(old).key
        if removed not in snapshot.fragments:
            raise CompactionVoidError(old)
        return Changes(operation=Operation.COMPACT, adds=(entry(new),), removes=(removed,))

    return prepare


def log_on(store) -> CommitLog:
    return CommitLog(store, StillClock())


def test_versions_are_numbered_from_one_and_replayed_by_others() -> None:
    store = MemoryStore()
    log = log_on(store)
    assert log.refresh().version == 0
    log.commit(add("a"))
    assert log.commit(add("b")).version == 2
    seen = log_on(MemoryStore(store.objects)).current()
    assert (seen.version, names(seen)) == (2, ["a", "b"])
    assert seen.metadata == METADATA


def test_a_missing_table_is_said_with_what_to_do() -> None:
    with refuses(TableNotFoundError):
        log_on(MemoryStore()).current()


def test_a_swap_removes_and_adds_in_one_version() -> None:
    store = MemoryStore()
    log = log_on(store)
    log.commit(add("a", "b"))
    snapshot = log.commit(swap("a", "c"))
    assert names(snapshot) == ["b", "c"]


def test_a_commit_that_loses_the_race_is_prepared_again_on_the_new_version() -> None:
    store = MemoryStore()
    ours, theirs = log_on(store), log_on(MemoryStore(store.objects))
    ours.commit(add("a"))
    seen: list[int] = []

    def prepare(snapshot: Snapshot) -> Changes:
        seen.append(snapshot.version)
        if len(seen) == 1:
            theirs.commit(add("b"))
        return add("c")(snapshot)

    assert names(ours.commit(prepare)) == ["a", "b", "c"]
    assert seen == [1, 2]


def test_inputs_are_revalidated_inside_each_retry() -> None:
    store = MemoryStore()
    ours, theirs = log_on(store), log_on(MemoryStore(store.objects))
    ours.commit(add("a"))
    tries: list[int] = []

    def prepare(snapshot: Snapshot) -> Changes:
        changes = swap("a", "ours")(snapshot)
        tries.append(snapshot.version)
        if len(tries) == 1:
            theirs.commit(swap("a", "theirs"))
        return changes

    with pytest.raises(CompactionVoidError):
        ours.commit(prepare)
    assert names(log_on(store).current()) == ["theirs"]


def test_an_unknown_outcome_that_did_land_is_success() -> None:
    store = MemoryStore()
    log = log_on(store)
    log.commit(add("a"))
    store.faults.add(LoseAnswer(), at=COMMITS.first())
    assert log.commit(add("b")).version == 2
    assert log_on(MemoryStore(store.objects)).current().version == 2


def behind_such_a_network() -> MemoryStore:
    """Returns a store whose network delivers every conditional PUT twice, and passes on the second answer."""
    store = MemoryStore()
    store.faults.add(DeliverTwice(), at=calls("create"))
    return store


def test_a_commit_that_the_network_delivers_twice_is_ours_and_happens_once() -> None:
    store = behind_such_a_network()
    log = log_on(store)
    assert names(log.commit(add("a"))) == ["a"]
    assert names(log.commit(add("b"))) == ["a", "b"]
    assert log_on(MemoryStore(store.objects)).current().version == 2


def test_a_commit_delivered_twice_stays_ours_where_another_has_consumed_it_meanwhile() -> None:
    store = MemoryStore()
    ours, theirs = log_on(store), log_on(MemoryStore(store.objects))
    ours.commit(add("a"))
    merge = DeliverTwice(meanwhile=lambda: theirs.commit(swap("b", "merged")))
    store.faults.add(merge, at=COMMITS.first())
    ours.commit(add("b"))
    assert names(log_on(MemoryStore(store.objects)).current()) == ["a", "merged"]


def test_a_version_that_is_there_and_cannot_be_read_is_an_unknown_outcome() -> None:
    store = behind_such_a_network()
    log = log_on(store)
    store.faults.add(Refuse(lambda _: PermissionDeniedError("not you")), at=calls("read"))
    with refuses(UnknownOutcomeError):
        log.commit(add("a"))


@pytest.mark.parametrize("landed", [True, False])
def test_what_a_commit_of_unknown_outcome_added_is_not_added_again_though_it_was_consumed(
    landed: bool,
) -> None:
    store = MemoryStore()
    ours, theirs = log_on(store), log_on(MemoryStore(store.objects))
    ours.commit(add("a"))
    store.faults.add(LoseAnswer(landed=landed), at=COMMITS)
    store.faults.add(Drop(), at=calls("read", prefix=version_key(2)))
    with pytest.raises(UnknownOutcomeError):
        ours.commit(add("b"))
    store.faults.clear()
    if landed:
        theirs.commit(swap("b", "merged"))
    snapshot = ours.commit(add("b"))
    assert names(snapshot) == (["a", "merged"] if landed else ["a", "b"])
    assert names(log_on(MemoryStore(store.objects)).current()) == names(snapshot)
    with refuses(TableError) if landed else contextlib.nullcontext():
        ours.commit(add("b", "c")) if landed else ours.commit(add("c"))


class LoseUntilLater:
    """Loses requests that can still be carried out later."""

    def __init__(self) -> None:
        self.sent: list[Effect] = []

    def around(self, call: Call, effect: Effect) -> object:
        self.sent.append(effect)
        raise call.unanswered()


def test_a_commit_that_lands_long_after_its_sender_gave_up_and_tried_again_happens_once() -> None:
    store = MemoryStore()
    ours, theirs = log_on(store), log_on(MemoryStore(store.objects))
    ours.commit(add("a"))
    late = LoseUntilLater()
    store.faults.add(late, at=COMMITS)
    with pytest.raises(UnknownOutcomeError):
        ours.commit(add("b"))

    def arrive() -> None:
        # The old request arrives right before the new one, and what it added is merged at once.
        late.sent[0]()
        theirs.commit(swap("b", "merged"))

    store.faults.clear()
    store.faults.add(Stall(arrive), at=COMMITS.first())
    assert names(ours.commit(add("b"))) == ["a", "merged"]
    assert log_on(MemoryStore(store.objects)).current().version == 3


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(["append", "delete", "compact", "alter"]), max_size=6))
def test_a_table_behind_such_a_network_has_the_rows_of_one_behind_another(steps: list[str]) -> None:
    def rows_after(store: MemoryStore) -> list[dict[str, object]]:
        rows = pa.table({"k": range(6), "v": list("abcdef")})
        options = IngestOptions(skips=SkipSpec((("v", SkipKind.VALUES),)))
        append_table(store, rows, "k", options)
        for number, step in enumerate(steps):
            if step == "append":
                append_table(store, rows, None)
            elif step == "delete":
                expected = sum(row["k"] == number for row in table_rows(store))
                report = delete_rows(store, CommitLog(store), f"k = {number}")
                assert report.rows == expected
            elif step == "compact":
                compact_table(store)
            else:
                alter_table(CommitLog(store), Alteration(redacts=("v",)))
        return table_rows(store)

    assert rows_after(behind_such_a_network()) == rows_after(MemoryStore())


def test_an_unknown_outcome_that_did_not_land_is_tried_again() -> None:
    store = MemoryStore()
    log = log_on(store)
    store.faults.add(LoseAnswer(landed=False), at=COMMITS.first())
    assert names(log.commit(add("a"))) == ["a"]


def test_an_unknown_outcome_taken_by_another_writer_is_a_conflict_and_retried() -> None:
    store = MemoryStore()
    ours, theirs = log_on(store), log_on(MemoryStore(store.objects))
    ours.commit(add("a"))
    store.faults.add(Stall(lambda: theirs.commit(add("b"))), at=COMMITS.first())
    store.faults.add(LoseAnswer(landed=False), at=COMMITS.first())
    snapshot = ours.commit(add("c"))
    assert snapshot.version == 3
    assert names(snapshot) == ["a", "b", "c"]


def test_a_store_that_stays_silent_is_reported_as_unknown() -> None:
    store = MemoryStore()
    store.faults.add(LoseAnswer(landed=False), at=COMMITS)
    with pytest.raises(UnknownOutcomeError):
        log_on(store).commit(add("a"))


@pytest.mark.parametrize("later", [StoreUnreachableError, PermissionDeniedError])
def test_after_a_lost_answer_no_later_failure_is_taken_for_a_plain_one(
    later: type[StoreError],
) -> None:
    store = MemoryStore()
    log = log_on(store)
    log.commit(add("a"))
    store.faults.add(LoseAnswer(), at=COMMITS.first())
    store.faults.add(Refuse(lambda _: later("later failure")), at=COMMITS.from_nth(2))
    with refuses(UnknownOutcomeError):
        log.commit(add("b"))
    assert names(log_on(MemoryStore(store.objects)).current()) == ["a", "b"]


def test_a_store_that_is_not_reached_changes_nothing() -> None:
    store = MemoryStore()
    log_on(store).commit(add("a"))
    before = dict(store.objects)
    store.faults.add(Drop())
    with pytest.raises(StoreUnreachableError):
        log_on(store).commit(add("b"))
    assert store.objects == before


def test_a_writer_that_never_wins_gives_up_with_a_conflict() -> None:
    store = MemoryStore()
    ours, theirs = log_on(store), log_on(MemoryStore(store.objects))
    numbers = iter(range(1000))

    def always_late(snapshot: Snapshot) -> Changes:
        theirs.commit(add(f"t{next(numbers)}"))
        return add("o")(snapshot)

    with refuses(CommitConflictError):
        ours.commit(always_late)


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_many_writers_at_once_all_get_in_exactly_once(kind: str, tmp_path) -> None:
    objects: dict[str, bytes] = {}
    make = (lambda: MemoryStore(objects)) if kind == "memory" else (lambda: LocalStore(tmp_path))

    def write(writer: int) -> None:
        log = CommitLog(make())
        for number in range(5):
            log.commit(add(f"{writer}-{number}"))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    snapshot = CommitLog(make()).current()
    assert snapshot.version == 30
    assert len(snapshot.fragments) == 30


def test_a_damaged_log_file_is_named() -> None:
    store = MemoryStore()
    log_on(store).commit(add("a"))
    for data in (b"", b"{}", b"[]", b'{"protocol": 1, "version"', b"\xff\xfe"):
        store.objects[version_key(1)] = data
        with refuses(DataError, "_log/00000000000000000001.json"):
            log_on(store).current()


def test_a_gap_in_the_log_is_an_error_not_a_shorter_table() -> None:
    store = MemoryStore()
    log = log_on(store)
    for name in "abc":
        log.commit(add(name))
    del store.objects[version_key(2)]
    with refuses(DataError):
        log_on(store).current()


def test_a_log_of_a_newer_protocol_is_refused() -> None:
    store = MemoryStore()
    log_on(store).commit(add("a"))
    data = store.objects[version_key(1)]
    store.objects[version_key(1)] = data.replace(b'"protocol":1', b'"protocol":99')
    with refuses(DataError):
        log_on(store).current()


def test_a_version_survives_its_own_bytes() -> None:
    changes = Changes(
        operation=Operation.COMPACT,
        adds=(entry("a"),),
        removes=("b",),
        metadata=METADATA,
        leases=(
            Lease(
                compaction_id="c",
                owner="owner",
                inputs=("data/x.frag",),
                output_level=1,
                expires_unix_ms=7,
                began_unix_ms=1,
            ),
        ),
        ended_leases=("d",),
        quarantines=(Quarantine("data/q.frag", "why", 9),),
        released_fragments=("data/p.frag",),
        min_base_version=2,
        oldest=1,
        records=(CompactionRecord(compaction_id="c", seconds=0.5),),
    )
    version = Version(number=3, commit_id="id", committed_unix_ms=5, changes=changes)
    assert Version.from_bytes(version.to_bytes(), name="x") == version
    plain = Version(
        number=1, commit_id="id", committed_unix_ms=5, changes=Changes(operation=Operation.INGEST)
    )
    assert Version.from_bytes(plain.to_bytes(), name="x") == plain


def test_a_log_file_that_is_read_again_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store, parsed = MemoryStore(), list[str]()
    parse = Version.from_bytes

    def noted(data: bytes, *, name: str) -> Version:
        parsed.append(name)
        return parse(data, name=name)

    monkeypatch.setattr(Version, "from_bytes", noted)
    ours, theirs = log_on(store), log_on(store)
    for key in "abc":
        ours.commit(add(key))
    assert not parsed, "it has written them itself"
    theirs.commit(add("d"))
    assert len(parsed) == len(set(parsed)) == 3
    other = Version(
        number=4, commit_id="other", committed_unix_ms=9, changes=Changes(operation=Operation.LEASE)
    )
    store.objects[version_key(4)] = other.to_bytes()
    assert theirs.history.read(4) == other


def test_names_are_parsed_as_they_are_built() -> None:
    assert parse_version(version_key(12)) == 12
    assert parse_version("_log/12.json") is None
    assert parse_version("_log/00000000000000000012.json.tmp") is None


def test_a_change_whose_log_file_nobody_could_read_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The error says how large the file would be, and the name of this process is in it.
    monkeypatch.setattr(commit_log, "process_name", lambda: "host:1")
    store = MemoryStore()
    log = CommitLog(store, StillClock())
    log.commit(add("a"))
    size = len(store.objects[version_key(1)])
    for module in (base, commit_log):
        monkeypatch.setattr(module, "MAX_READ_BYTES", 2 * size)
    with refuses(TableError):
        log.commit(add(*(f"f{n}" for n in range(100))))
    assert names(log.commit(add("b"))) == ["a", "b"]
    assert names(CommitLog(store).current()) == ["a", "b"]


def test_no_checkpoint_is_written_that_nobody_could_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    log = CommitLog(store, StillClock())
    snapshot = log.commit(add("a"))
    size = len(checkpoint_bytes(snapshot))
    monkeypatch.setattr(commit_log, "MAX_READ_BYTES", size - 1)
    assert not log.write_checkpoint(snapshot)
    assert "no checkpoint at version 1: it would have" in caplog.text
    assert names(CommitLog(store).current()) == ["a"]
    monkeypatch.setattr(commit_log, "MAX_READ_BYTES", size)
    assert log.write_checkpoint(snapshot)


# --- stores without conditional writes ---


def test_a_store_without_conditional_writes_gets_no_commit() -> None:
    store = MemoryStore()
    store.faults.add(IgnoreConditions())
    with refuses(StoreError):
        log_on(store).commit(add("a"))
    assert set(store.objects) == {PROBE_KEY}


def test_a_log_proves_conditional_writes_once_and_by_one_request_where_another_has() -> None:
    store = MemoryStore()
    for _ in range(2):
        log = log_on(store)
        for name in ("a", "b"):
            log.commit(add(f"{name}{len(store.calls)}"))
    assert store.calls.count(("create", PROBE_KEY)) == 3


def test_a_log_that_is_read_asks_nothing_of_the_store() -> None:
    store = MemoryStore()
    log_on(store).commit(add("a"))
    reader = MemoryStore(store.objects)
    log_on(reader).current()
    assert not any(operation == "create" for operation, _ in reader.calls)


def test_an_unanswered_proof_is_tried_again_and_given_up_without_a_commit() -> None:
    store = MemoryStore()
    probes = calls("create", prefix=PROBE_KEY)
    store.faults.add(LoseAnswer(), at=probes.first())
    assert names(log_on(store).commit(add("a"))) == ["a"]
    store.objects.pop(PROBE_KEY)
    before = set(store.objects)
    store.faults.add(LoseAnswer(landed=False), at=probes)
    with refuses(StoreUnreachableError):
        log_on(store).commit(add("b"))
    assert set(store.objects) == before


def test_a_commit_that_another_has_replaced_is_no_success() -> None:
    store = MemoryStore()
    ours, theirs = log_on(store), log_on(store)
    ours.commit(add("a"))
    theirs.commit(add("b"))
    ours.refresh()
    key = version_key(3)

    def overtake() -> None:
        store.objects[key] = Version(
            number=3,
            commit_id="theirs",
            committed_unix_ms=9,
            changes=Changes(operation=Operation.LEASE),
        ).to_bytes()

    store.faults.add(IgnoreConditions())
    overtaken = calls("create", prefix=key).first()
    store.faults.add(Stall(overtake, answered=True), at=overtaken)
    with refuses(StoreError):
        ours.commit(add("c"))


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_a_commit_on_a_file_server_that_fails_midway_happens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, landed: bool
) -> None:
    log = CommitLog(LocalStore(tmp_path))
    log.commit(add("a"))
    link, failing = os.link, iter([True])

    def fail(source: Path, target: Path) -> None:
        fails = next(failing, False)
        if landed or not fails:
            link(source, target)
        if fails:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", fail)
    snapshot = log.commit(add("b"))
    assert (snapshot.version, names(snapshot)) == (2, ["a", "b"])
    assert names(log_on(LocalStore(tmp_path)).current()) == ["a", "b"]


def test_a_folder_tells_its_own_link_from_that_of_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS a link whose answer was lost is sent again and meets itself; `cp -al` links all files."""
    store = LocalStore(tmp_path)
    store.create("k", b"theirs")
    link = os.link

    def while_a_backup_is_made(source: Path, target: Path) -> None:
        link(source, tmp_path / "backup")
        link(source, target)

    monkeypatch.setattr(os, "link", while_a_backup_is_made)
    with pytest.raises(ObjectExistsError):
        store.create("k", b"ours")
    monkeypatch.setattr(os, "link", lambda source, target: [link(source, target) for _ in range(2)])
    store.create("new", b"ours")
    assert (store.read("k"), store.read("new")) == (b"theirs", b"ours")
