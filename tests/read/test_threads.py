"""Threads change how soon rows come, and nothing else."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.api.scan import Scan
from compactor.errors import StoreUnreachableError
from compactor.predicate.skipping.spec import SkipKind, SkipSpec
from compactor.read.export import export_file
from compactor.read.read_reports import ScanReport
from compactor.read.scan import scan
from compactor.read.scan_tasks import read_parts, tasks_of
from compactor.read.verify import verify
from compactor.rows.policy import RowFunction, RowKind, RowPolicy
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.snapshot import Snapshot
from compactor.write.delete import DeleteReport, delete_rows
from compactor.write.ingest import IngestOptions
from lsm_fragment.errors import FormatError
from tests.faults import Drop, Stall, calls
from tests.support.fragments import sort_schema
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, ingest_tables, log_rows

WHERES = [None, "value > 0.7", "service = 'service-1'", "id LIKE '%9' AND value IS NULL"]
DELETED = "ts BETWEEN '1970-01-01 00:00:00.010' AND '1970-01-01 00:00:00.015'"
POLICIES = [
    None,
    RowPolicy(RowKind.LAST),
    RowPolicy(RowKind.AGGREGATE, aggregates=(("value", RowFunction.SUM), ("id", RowFunction.MAX))),
]
SKIPS = SkipSpec((("id", SkipKind.BLOOM),), 64)
MODULES = (
    "read.scan",
    "read.row_groups_ahead",
    "read.verify",
    "read.fragment_check",
    "write.search",
)
"""Where the bound of what is read ahead is asked."""
ROWS = pa.table({"k": range(4_000), "v": [f"value {n % 37}" for n in range(4_000)]})


def reading_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pool")]


@pytest.fixture(params=["small ones", "ordinary ones", "large ones"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets row groups be so small that threads read several, or so large that threads read their columns."""
    if request.param == "ordinary ones":
        monkeypatch.setattr("compactor.read.steps._BUNDLE_BYTES", 1)
    if request.param == "large ones":
        for module in MODULES:
            monkeypatch.setattr(f"compactor.{module}.AHEAD_BYTES", 1)
        monkeypatch.setattr("compactor.read.merged_rows._MIN_ROWS_FOR_THREADS", 1)


def delete_once(store: MemoryStore, where: str) -> DeleteReport:
    log = CommitLog(store)
    report = delete_rows(store, log, where)
    return replace(report, waiting=())


def rows_of_store(store: MemoryStore) -> list[dict[str, Any]]:
    return [row for batch in scan(store, CommitLog(store).current()) for row in batch.to_pylist()]


@pytest.mark.usefixtures("sizes")
@settings(max_examples=8)
@given(
    policy=st.sampled_from(POLICIES),
    seeds=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    where=st.sampled_from(WHERES),
    columns=st.sampled_from([None, [], ["id"], ["value", "service"]]),
    deletes=st.booleans(),
    threads=st.integers(2, 4),
)
def test_batches_and_reports_are_those_of_one_thread(
    policy: RowPolicy | None,
    seeds: list[int],
    where: str | None,
    columns: list[str] | None,
    deletes: bool,
    threads: int,
) -> None:
    store = MemoryStore()
    for place, seed in enumerate(seeds):
        options = IngestOptions(rows_per_fragment=150, rows=None if place else policy, skips=SKIPS)
        sort_by = None if place else "service,ts:desc"
        log = append_table(store, log_rows(100 + 90 * seed, seed), sort_by, options, max_rows=16)
    if deletes:
        copy = MemoryStore(dict(store.objects))
        report = delete_rows(store, log, DELETED, threads=threads)
        assert replace(report, waiting=()) == delete_once(copy, DELETED)
        assert rows_of_store(store) == rows_of_store(copy)
    snapshot = log.current()
    condition = None if where is None else condition_on(snapshot.table, where)
    reports = ScanReport(), ScanReport()
    one, several = (
        list(scan(store, snapshot, columns, condition, report, threads=count))
        for report, count in zip(reports, (1, threads), strict=True)
    )
    assert [batch.to_pydict() for batch in several] == [batch.to_pydict() for batch in one]
    assert [batch.num_rows for batch in several] == [batch.num_rows for batch in one]
    assert reports[0] == reports[1]
    names = snapshot.table.schema.names if columns is None else columns
    for parts in tasks_of(snapshot, condition, 2_000, ScanReport()):
        tables = [
            list(
                read_parts(
                    store, snapshot.table, parts, names, condition, ScanReport(), threads=count
                )
            )
            for count in (1, threads)
        ]
        assert tables[0] == tables[1]
    assert verify(store, snapshot, threads=threads) == verify(store, snapshot)
    assert not reading_threads()


def of_one_run(tmp_path: Path) -> tuple[MemoryStore, Snapshot]:
    """Returns a table of four fragments with disjoint keys, of sixteen row groups each."""
    store = MemoryStore()
    parts = [ROWS.slice(start, 1_000) for start in range(0, 4_000, 1_000)]
    log = ingest_tables(store, parts, tmp_path, sort=sort_schema("k"))
    return store, log.latest


def of_overlapping_runs(tmp_path: Path) -> tuple[MemoryStore, Snapshot]:
    store = MemoryStore()
    parts = [ROWS.take(pa.array(range(start, 4_000, 3))) for start in range(3)]
    log = ingest_tables(store, parts, tmp_path, sort=sort_schema("k"))
    return store, log.latest


TABLES = [of_one_run, of_overlapping_runs]
Tables = Callable[[Path], tuple[MemoryStore, Snapshot]]


def read_until_error(batches: Iterator[pa.RecordBatch]) -> tuple[list[Any], str]:
    rows: list[Any] = []
    try:
        for batch in batches:
            rows += batch["k"].to_pylist()
    except (FormatError, StoreUnreachableError) as error:
        return rows, str(error)
    return rows, ""


@pytest.mark.parametrize("make", TABLES)
@pytest.mark.parametrize("share", [0.1, 0.45, 0.8])
def test_damage_is_told_after_the_rows_before_it(
    make: Tables, share: float, tmp_path: Path
) -> None:
    store, snapshot = make(tmp_path)
    for entry in snapshot.fragments.all():
        data = bytearray(store.objects[entry.key])
        data[int(share * len(data))] ^= 0x20
        store.objects[entry.key] = bytes(data)
    expected = read_until_error(scan(store, snapshot))
    assert expected[1]
    for threads in (2, 4):
        assert read_until_error(scan(store, snapshot, threads=threads)) == expected
    faults = verify(store, snapshot).faults
    assert len(faults) >= len(snapshot.fragments)
    assert verify(store, snapshot, threads=3).faults == faults


@pytest.mark.parametrize("make", TABLES)
def test_a_missing_fragment_is_told_after_the_rows_before_it(make: Tables, tmp_path: Path) -> None:
    store, snapshot = make(tmp_path)
    last = max(snapshot.fragments.all(), key=lambda entry: entry.first_key)
    store.faults.add(Drop(), at=calls(prefix=last.key))
    expected = read_until_error(scan(store, snapshot))
    assert expected[1]
    assert bool(expected[0]) == (make is of_one_run)
    assert read_until_error(scan(store, snapshot, threads=3)) == expected


@pytest.mark.parametrize("make", TABLES)
def test_the_first_batch_takes_the_same_requests_as_with_one_thread(
    make: Tables, tmp_path: Path
) -> None:
    store, snapshot = make(tmp_path)
    counts = []
    for threads in (1, 4):
        store.calls.clear()
        batches = iter(Scan(store, snapshot, None, None, threads))
        assert next(batches)["k"][0].as_py() == 0
        counts.append(len(store.calls))
        del batches
    if make is of_one_run:
        assert counts[0] == counts[1]
    assert counts[1] <= 2 * counts[0]


@pytest.mark.parametrize("make", TABLES)
@pytest.mark.parametrize("ends", ["close", "drop", "error", "arrow"])
def test_threads_end_with_the_reading(make: Tables, ends: str, tmp_path: Path) -> None:
    store, snapshot = make(tmp_path)
    rows = Scan(store, snapshot, None, None, 3)
    reading: Any = rows.to_reader() if ends == "arrow" else iter(rows)
    if ends == "arrow":
        assert reading.read_next_batch().num_rows
        reading.close()
    else:
        assert [next(reading).num_rows > 0 for _ in range(3)]
        assert reading_threads()
    if ends == "close":
        reading.close()
    elif ends == "error":
        with pytest.raises(ZeroDivisionError):
            reading.throw(ZeroDivisionError)
    del reading
    gc.collect()
    assert not reading_threads()


def test_row_groups_are_read_side_by_side_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, snapshot = of_one_run(tmp_path)
    together = threading.Barrier(2, timeout=10)
    meetings = itertools.count()
    seen = []

    def meet() -> None:
        seen.append(threading.current_thread().name)
        if next(meetings) < 2:
            together.wait()

    monkeypatch.setattr("compactor.read.steps._BUNDLE_BYTES", 1)
    batches = scan(store, snapshot, threads=2)
    rows = sum(next(batches).num_rows for _ in range(4))  # from now on steps are begun ahead
    store.faults.add(Stall(meet), at=calls("read_range"))
    assert rows + sum(batch.num_rows for batch in batches) == 4_000
    assert len(set(seen)) == 2
    # With room for one row group, no two are read at a time, but the columns of one are.
    reading, most = 0, 0
    lock = threading.Lock()

    def count() -> None:
        nonlocal reading, most
        with lock:
            reading += 1
            most = max(most, reading)
        with lock:
            reading -= 1

    store.faults.add(Stall(count), at=calls("read_range"))
    monkeypatch.setattr("compactor.read.scan.AHEAD_BYTES", 1)
    assert sum(batch.num_rows for batch in scan(store, snapshot, threads=4)) == 4_000
    assert most <= len(ROWS.schema)


@pytest.mark.parametrize("make", TABLES)
@pytest.mark.parametrize("ending", ["parquet", "arrow", "frag", "ndjson"])
def test_an_exported_file_has_the_same_bytes(make: Tables, ending: str, tmp_path: Path) -> None:
    store, snapshot = make(tmp_path)
    files = []
    for threads in (1, 3):
        path = tmp_path / f"{threads}.{ending}"
        report = export_file(store, snapshot, str(path), threads=threads)
        assert replace(report, path="") == replace(report, path="", rows=4_000)
        files.append(path.read_bytes())
    assert files[0] == files[1]


def test_fragments_whose_keys_have_changed_their_type_are_merged_in_threads() -> None:
    store = MemoryStore()
    narrow = ROWS.slice(0, 2_000).cast(pa.schema([("k", pa.int32()), ("v", pa.string())]))
    append_table(store, narrow, "k")
    append_table(store, ROWS.slice(1_000), None)
    snapshot = CommitLog(store).current()
    expected = [batch.to_pydict() for batch in scan(store, snapshot)]
    assert sum(len(batch["k"]) for batch in expected) == 5_000
    assert [batch.to_pydict() for batch in scan(store, snapshot, threads=3)] == expected
