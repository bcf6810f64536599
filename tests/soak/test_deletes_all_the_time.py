"""Threads delete rows all the time while one compaction of many row groups runs on a folder.

No clock decides: the merge writes its next part only after another delete, and after the merge there are
fewer deletes left than times that a compaction tries to commit.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from compactor.compaction import driver as drivers
from compactor.compaction.attempt import run_compaction
from compactor.compaction.driver import Driver, DriverSettings
from compactor.files.stream import StreamBatches
from compactor.read.verify import verify
from compactor.rows.policy import RowKind, RowPolicy
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.write.delete import delete_rows
from compactor.write.ingest import IngestOptions, ingest_batches
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.faults import Stall, calls
from tests.faults.store import FaultyStore
from tests.support.tables import table_rows

INPUTS, ROWS, GROUP_ROWS = 4, 20_000, 200
DELETERS = 2
PARTS = calls("write", prefix="data/").first(25)


class Deletes:
    """The deletes of some threads, of one key each, no key twice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn = threading.Condition()
        self._keys: Iterator[int] = iter(range(0, INPUTS * ROWS, 7))
        self.deleted: list[int] = []
        """Keys of the deletes that are committed."""
        self._threads = ThreadPoolExecutor(DELETERS)
        self._running: list[Future[None]] = []

    def start(self) -> None:
        self._running = [self._threads.submit(self._run) for _ in range(DELETERS)]
        for running in self._running:
            running.add_done_callback(lambda _: self._tell())

    def _run(self) -> None:
        store = LocalStore(self._folder)
        log = CommitLog(store)
        while (key := self._next()) is not None:
            delete_rows(store, log, f"k = {key}")
            self.deleted.append(key)
            self._tell()

    def _next(self) -> int | None:
        with self._turn:
            return next(self._keys, None)

    def _tell(self) -> None:
        with self._turn:
            self._turn.notify_all()

    def await_another(self) -> None:
        """Waits for a delete that ends after this; or for a thread that failed."""
        before = len(self.deleted)
        with self._turn:
            self._turn.wait_for(
                lambda: len(self.deleted) > before or any(each.done() for each in self._running)
            )

    def end_after(self, deletes: int) -> None:
        with self._turn:
            self._keys = itertools.islice(self._keys, deletes)

    def join(self) -> None:
        for running in self._running:
            running.result()
        self._threads.shutdown()


def fill(store: LocalStore, rows: RowPolicy) -> None:
    """Fragments whose keys lie among those of the others; where rows of a key merge, all have all keys."""
    for number in range(INPUTS):
        log = CommitLog(store)
        keys = range(ROWS) if rows.merges else range(number, INPUTS * ROWS, INPUTS)
        table = pa.table({"k": keys, "text": [f"row {key} of fragment {number}" for key in keys]})
        options = IngestOptions(writer=WriterOptions(GROUP_ROWS), rows=rows)
        with StreamBatches(table, 1 << 20) as batches:
            ingest_batches(store, log, log.refresh(), batches, parse_sort_schema("k"), options)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", [RowKind.APPEND, RowKind.LAST], ids=str)
def test_a_compaction_is_committed_at_its_first_attempt_and_no_deleted_row_comes_back(
    tmp_path: Path, kind: RowKind
) -> None:
    store = LocalStore(tmp_path)
    fill(store, RowPolicy(kind))
    before = {row["k"] for row in table_rows(store)}
    deletes = Deletes(tmp_path)
    watched = FaultyStore(store)
    watched.faults.add(Stall(deletes.await_another), at=PARTS)
    settings = CompactionSettings(target_fragment_bytes=100_000, max_rows_per_row_group=GROUP_ROWS)
    driver = Driver(
        CommitLog(store),
        DriverSettings(policy=Policy(strategy=Strategy.OVERLAPPING), compaction=settings),
    )
    (compaction,) = driver.decide(1)
    assert sum(entry.row_groups for entry in compaction.spec.inputs) == INPUTS * ROWS // GROUP_ROWS
    deletes.start()
    try:
        outcome = run_compaction(compaction, watched)
        during = len(deletes.deleted)
        deletes.end_after(drivers._MAX_CARRIES // 2)
        (finished,) = driver.commit_outcomes([outcome])
    finally:
        deletes.end_after(0)
        deletes.join()
    assert during >= 25
    assert not finished.is_void and finished.attempt == 1, finished.void_reason
    left = table_rows(store)
    assert {row["k"] for row in left} == before - set(deletes.deleted)
    assert len(left) == len(before) - len(set(deletes.deleted) & before)
    snapshot = CommitLog(store).current()
    assert set(snapshot.fragments) == {entry.key for entry in outcome.outputs}
    assert not snapshot.leases
    assert not verify(store, snapshot).faults
