"""A memo is what the writer of rows remembers of them: it stays as long as it is true."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor.errors import DataError, StaleAttemptError
from compactor.settings.vacuum import VacuumSettings
from compactor.stores.base import create_own
from compactor.table.checkpoint import checkpoint_bytes
from compactor.table.commit_log import CommitLog
from compactor.table.object_names import memo_key, parse_checkpoint, version_key
from compactor.table.snapshot import Snapshot
from compactor.table.vacuum import vacuum
from compactor.table.version import Changes, Operation, Version
from compactor.write.alter import Alteration, alter_table
from compactor.write.delete import delete_rows
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, compact_table
from tests.support.wording import refuses

ROWS = pa.table({"k": [1, 2, 3]})


def with_memo(store: MemoryStore, name: str = "one") -> tuple[CommitLog, str]:
    """Returns a table of two fragments that has a memo."""
    append_table(store, ROWS, "k")
    log = append_table(store, ROWS, "k")
    key = memo_key(log.current().version, name)
    create_own(store, key, b"memo")
    log.commit(lambda _latest: Changes(operation=Operation.INGEST, memo=key))
    return log, key


def test_it_outlives_what_changes_no_rows() -> None:
    store = MemoryStore()
    log, key = with_memo(store)
    compact_table(store)
    alter_table(CommitLog(store), Alteration(renames={"k": "key"}))
    assert log.current().memo == key


def test_others_that_change_rows_end_it() -> None:
    store = MemoryStore()
    with_memo(store)
    append_table(store, ROWS, None)
    assert CommitLog(store).current().memo is None
    store = MemoryStore()
    log, _key = with_memo(store)
    delete_rows(store, log, "k = 1")
    assert CommitLog(store).current().memo is None


def test_a_checkpoint_has_it() -> None:
    store = MemoryStore()
    log, key = with_memo(store)
    assert log.write_checkpoint(log.current())
    [name] = [k for k in store.objects if parse_checkpoint(k) is not None]
    assert CommitLog(store).history.checkpoint(parse_checkpoint(name) or 0).memo == key
    without = replace(log.current(), memo=None)
    assert b"memo" not in checkpoint_bytes(without)


def test_a_vacuum_keeps_the_one_of_the_last_version_and_removes_all_others() -> None:
    store = MemoryStore()
    log, first = with_memo(store)
    second, unused = (memo_key(log.current().version, name) for name in ("two", "unused"))
    for key in (second, unused):
        create_own(store, key, b"memo")
    log.commit(lambda _latest: Changes(operation=Operation.INGEST, memo=second))
    vacuum(log, VacuumSettings(grace_seconds=0, retain_seconds=0, deleters=1))
    assert {key for key in store.objects if key.endswith(".memo")} == {second}
    assert first != second


def test_one_of_before_a_vacuum_cannot_be_committed() -> None:
    store = MemoryStore()
    log, _key = with_memo(store)
    late = memo_key(log.current().version, "late")
    create_own(store, late, b"memo")
    vacuum(log, VacuumSettings(grace_seconds=0, retain_seconds=0, deleters=1))
    with refuses(StaleAttemptError):
        log.commit(lambda _latest: Changes(operation=Operation.INGEST, memo=late))


@pytest.mark.parametrize("name", ["data/x.memo", "../secret", 7])
def test_a_version_that_names_another_object_is_damaged(name: object) -> None:
    store = MemoryStore()
    log, _key = with_memo(store)
    newest = log.current()
    forged = Changes(operation=Operation.INGEST, memo=name)  # type: ignore[arg-type]
    version = Version(
        number=newest.version + 1,
        commit_id="c",
        committed_unix_ms=newest.committed_unix_ms,
        changes=forged,
        table_id=newest.table_id,
    )
    store.objects[version_key(version.number)] = version.to_bytes()
    with refuses(DataError):
        CommitLog(store).current()


def test_a_table_without_one_is_stored_as_before() -> None:
    assert "memo" not in Changes(operation=Operation.LEASE).to_json()
    assert Snapshot.empty().memo is None
