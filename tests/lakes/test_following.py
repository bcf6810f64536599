"""A worker's table is published in a thread whenever it has a new version."""

from __future__ import annotations

import queue
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from compactor import Table
from compactor.compaction.driver import Driver
from compactor.errors import StoreUnreachableError
from compactor.lakes import following
from compactor.lakes.following import Following
from compactor.lakes.lake import LakeKind
from compactor.lakes.publish import Publisher
from tests.read.test_changes import created
from tests.support.lakes import Copy, scanned

WAIT_SECONDS = 60.0


def seen(table: Table) -> Driver:
    """A driver whose log was just read."""
    return cast(Driver, SimpleNamespace(log=SimpleNamespace(latest=table._log.latest)))


def test_each_new_version_is_published_once(tmp_path: Path) -> None:
    table = created(pa.table({"k": [1, 2]}))
    copy = Copy(table._log, tmp_path / "copy", LakeKind.PARQUET)
    done: queue.Queue[Any] = queue.Queue()
    copying = Following(copy.publisher, done.put, lambda *failure: done.put(failure))
    copying.looked(seen(table))
    assert done.get(timeout=WAIT_SECONDS).rows == 2
    copying.looked(seen(table))
    table.append(pa.table({"k": [3]}))
    copying.looked(seen(table))
    assert done.get(timeout=WAIT_SECONDS).rows == 3
    assert copy.rows() == scanned(table._store, table._log.latest)
    copying.close()
    copying._thread.join(WAIT_SECONDS)
    assert not copying._thread.is_alive()
    assert done.empty()


def test_what_fails_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_MAX_PAUSE_SECONDS", 0.0)
    table = created(pa.table({"k": [1, 2]}))
    copy = Copy(table._log, tmp_path / "copy", LakeKind.PARQUET)
    heard: queue.Queue[Any] = queue.Queue()
    failures = [StoreUnreachableError("no answer"), ValueError("of a library, with a secret")]

    def open_publisher() -> Publisher:
        if failures:
            raise failures.pop(0)
        return copy.publisher()

    copying = Following(open_publisher, heard.put, lambda error, _seconds: heard.put(str(error)))
    copying.looked(seen(table))
    told = [heard.get(timeout=WAIT_SECONDS) for _ in range(3)]
    assert told[:2] == ["no answer", "ValueError"]
    assert told[2].rows == 2
    copying.close()


def test_2_000_failures_in_a_row_give_the_longest_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 1e-6
    monkeypatch.setattr(following, "_MAX_PAUSE_SECONDS", longest)
    table = created(pa.table({"k": [1, 2]}))
    done: queue.Queue[Any] = queue.Queue()
    pauses: queue.Queue[float] = queue.Queue()

    def open_publisher() -> Publisher:
        raise StoreUnreachableError("no answer")

    publishing = Following(open_publisher, done.put, lambda _error, seconds: pauses.put(seconds))
    publishing.looked(seen(table))
    assert {pauses.get(timeout=WAIT_SECONDS) for _ in range(2000)} == {longest}
    publishing.close()
