"""Readers and deletions that take longer than a vacuum lets them, and those whose fragments are lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compactor.errors import (
    FragmentMissingError,
    ObjectNotFoundError,
    OvertakenError,
    PermissionDeniedError,
)
from compactor.read.scan import scan
from compactor.read.verify import verify
from compactor.settings.vacuum import VacuumSettings
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.vacuum import vacuum
from compactor.write.delete import delete_rows
from compactor.write.tags import set_tag
from tests.faults import Refuse, Stall, calls
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, compact_table, log_rows
from tests.support.wording import refuses

Read = Callable[[MemoryStore, Snapshot], object]


def read_all(store: MemoryStore, snapshot: Snapshot) -> object:
    return list(scan(store, snapshot))


READERS: dict[str, Read] = {"scan": read_all, "verify": verify}


def overtaken(store: MemoryStore) -> Snapshot:
    """A snapshot whose fragments have been compacted away and vacuumed."""
    for seed in range(3):
        append_table(store, log_rows(100, seed), "service,ts:desc")
    snapshot = CommitLog(store).current()
    compact_table(store)
    assert (
        vacuum(CommitLog(store), VacuumSettings(grace_seconds=0, retain_seconds=0)).fragments == 3
    )
    return snapshot


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("denied", [False, True])
def test_a_reader_that_a_vacuum_overtakes_is_told_what_to_do(reader: str, denied: bool) -> None:
    store = MemoryStore()
    snapshot = overtaken(store)
    slow = MemoryStore(store.objects)
    if denied:
        # S3 says so to those who may list a prefix and not the bucket.
        gone = calls("read_range", "open_stream", where=lambda call: call.key not in store.objects)
        slow.faults.add(Refuse(PermissionDeniedError), at=gone)
    with refuses(OvertakenError) as caught:
        READERS[reader](slow, snapshot)
    assert caught.value.exit_code == 5


def test_a_deletion_that_a_vacuum_overtakes_is_told_what_to_do() -> None:
    store = MemoryStore()
    for seed in range(3):
        append_table(store, log_rows(100, seed), "service,ts:desc")
    slow = MemoryStore(store.objects)
    log = CommitLog(slow)

    def compact_and_vacuum() -> None:
        compact_table(store)
        vacuum(CommitLog(store), VacuumSettings(grace_seconds=0, retain_seconds=0))

    slow.faults.add(Stall(compact_and_vacuum), at=calls("read_range").first())
    with pytest.raises(OvertakenError):
        delete_rows(slow, log, "value < 0.5")


@pytest.mark.parametrize("error", [ObjectNotFoundError, PermissionDeniedError])
def test_a_fragment_that_is_live_and_gone_is_no_vacuums_work(error: type[Exception]) -> None:
    store = MemoryStore()
    append_table(store, log_rows(100, 0), "service,ts:desc")
    snapshot = CommitLog(store).current()
    (key,) = snapshot.fragments
    del store.objects[key]
    store.faults.add(Refuse(error), at=calls("read_range"))
    with pytest.raises(error):
        read_all(store, snapshot)


@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("reads_deletions", [False, True])
def test_an_object_of_a_version_that_is_kept_is_no_vacuums_work(
    reads_deletions: bool, tags: bool
) -> None:
    store = MemoryStore()
    log = CommitLog(store)
    for seed in range(3):
        append_table(store, log_rows(100, seed), "service,ts:desc")
    compact_table(store)
    append_table(store, log_rows(100, 3), None)
    delete_rows(store, log, "value < 0.5")
    snapshot = log.current()
    compact_table(store)
    if tags:
        set_tag(log, "keep", snapshot)
        vacuum(CommitLog(store), VacuumSettings(grace_seconds=0, retain_seconds=0))
        assert log.current().oldest > snapshot.version
    entry = snapshot.by_age()[0]
    assert entry.deletion is not None
    del store.objects[entry.deletion.key if reads_deletions else entry.key]
    with refuses(FragmentMissingError, "which is kept"):
        read_all(store, snapshot)
