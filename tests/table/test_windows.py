"""Tables with time windows: no fragment holds rows of two, and whole windows are dropped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from compactor.errors import TableExistsError, UsageError
from compactor.read.verify import verify
from compactor.settings.compaction import CompactionSettings, Strategy
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TimeWindows
from compactor.table.version import Changes, Operation
from compactor.table.windows import rows_by_window
from compactor.write.ingest import IngestOptions, ingest_file
from tests.support.fragments import sort_schema
from tests.support.tables import compact_table, table_rows
from tests.support.wording import refuses

HOURLY = TimeWindows("ts", 3600)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ingest(
    store: LocalStore,
    tmp_path: Path,
    ts: pa.Array,
    windows: TimeWindows | None = HOURLY,
    rows_per_fragment: int = 1000,
) -> CommitLog:
    log = CommitLog(store)
    table = pa.table({"ts": ts, "id": pa.array(range(len(ts)))})
    path = tmp_path / "in.parquet"
    pq.write_table(table, path)
    sort = None if log.refresh().version else sort_schema("ts")
    options = IngestOptions(rows_per_fragment=rows_per_fragment, windows=windows)
    ingest_file(store, log, str(path), sort, options)
    return log


@pytest.mark.parametrize(
    ("dtype", "per_hour"),
    [
        (pa.timestamp("s"), 3600),
        (pa.timestamp("ms", "UTC"), 3_600_000),
        (pa.timestamp("us", "Europe/Berlin"), 3_600_000_000),
        (pa.timestamp("ns"), 3_600_000_000_000),
        (pa.date64(), 3_600_000),
    ],
)
def test_rows_are_divided_by_window_whatever_the_unit(dtype: pa.DataType, per_hour: int) -> None:
    numbers = [0, per_hour - 1, per_hour, -1, -per_hour, -per_hour - 1, None, 7 * per_hour, None, 1]
    ts = pa.array(numbers, pa.int64()).view(dtype)
    batch = pa.record_batch({"ts": ts, "n": pa.array(range(10))})
    rows = {window: rows.tolist() for window, rows in rows_by_window(batch, HOURLY)}
    assert rows == {0: [0, 1, 9], 1: [2], -1: [3, 4], -2: [5], None: [6, 8], 7: [7]}


def test_days_may_be_shorter_or_longer_than_windows() -> None:
    batch = pa.record_batch({"ts": pa.array([0, 1, 2, 9], pa.int32()).view(pa.date32())})
    assert {window for window, _ in rows_by_window(batch, HOURLY)} == {0, 24, 48, 216}
    assert {window for window, _ in rows_by_window(batch, TimeWindows("ts", 7 * 86_400))} == {0, 1}


def test_no_fragment_holds_rows_of_two_windows_through_ingest_and_compaction(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path / "t")
    minutes = [(n * 37) % 300 for n in range(500)]
    ts = pa.array(
        [EPOCH + timedelta(minutes=m) for m in minutes] + [None], pa.timestamp("ms", "UTC")
    )
    for _ in range(3):
        log = ingest(store, tmp_path, ts, rows_per_fragment=200)
    snapshot = log.current()
    assert {e.window for e in snapshot.fragments.values()} == {0, 1, 2, 3, 4, None}
    assert sum(e.rows for e in snapshot.fragments.values()) == 3 * 501
    assert verify(store, snapshot).faults == []
    report = compact_table(store, CompactionSettings(), strategy=Strategy.FULL)
    assert len(report.done) == 6
    after = CommitLog(store).current()
    assert sorted(e.window for e in after.fragments.values() if e.window is not None) == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert verify(store, after).faults == []
    rows = table_rows(store)
    times = [row["ts"] for row in rows if row["ts"] is not None]
    assert times == sorted(times)
    assert len(rows) == 3 * 501


def test_windows_past_retention_are_dropped_by_the_next_compaction(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    now = datetime.now(UTC)
    windows = TimeWindows("ts", 3600, retention_seconds=86_400)
    times = [now - timedelta(days=3), now - timedelta(days=3), now, now]
    ingest(store, tmp_path, pa.array(times, pa.timestamp("us", "UTC")), windows)
    ingest(store, tmp_path, pa.array(times, pa.timestamp("us", "UTC")), None)
    compact_table(store)
    assert [row["id"] for row in table_rows(store)] == [2, 3, 2, 3]


def test_the_time_column_must_be_a_sort_column_of_a_time_type(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    ts = pa.array([1], pa.timestamp("s"))
    with refuses(UsageError):
        ingest(store, tmp_path, ts, TimeWindows("id", 60))
    with refuses(UsageError):
        ingest(store, tmp_path, pa.array([1]), HOURLY)
    assert CommitLog(store).refresh().version == 0


def test_other_windows_than_the_tables_are_refused(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    ts = pa.array([1], pa.timestamp("s"))
    ingest(store, tmp_path, ts)
    with refuses(UsageError):
        ingest(store, tmp_path, ts, TimeWindows("ts", 60))
    assert ingest(store, tmp_path, ts, None).current().table.windows == HOURLY


def test_of_two_creations_with_different_windows_the_second_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "t")
    ts = pa.array([1], pa.timestamp("s"))
    original = CommitLog.commit
    calls = []

    def overtaken(self, prepare):
        calls.append(1)
        if len(calls) == 1:
            ingest(store, tmp_path, ts, TimeWindows("ts", 60))
        return original(self, prepare)

    monkeypatch.setattr(CommitLog, "commit", overtaken)
    with refuses(TableExistsError):
        ingest(store, tmp_path, ts, HOURLY)


def test_a_fragment_whose_entry_lies_about_its_window_is_found(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    log = ingest(store, tmp_path, pa.array([10, 20], pa.timestamp("s")))
    (entry,) = log.current().fragments.values()
    for window in (1, None):
        moved = structs.replace(entry, window=window)
        changes = Changes(operation=Operation.TRIVIAL_MOVE, adds=(moved,), removes=(moved.key,))
        log.commit(lambda _, changes=changes: changes)  # type: ignore[misc]
        (fault,) = verify(store, log.latest).faults
        assert f"row 0 of row group 0 is not in time window {window}" in fault


LONGEST = (2**63 - 1) // 10**9
"""Seconds of the longest window, whose nanoseconds are counted in 64 bits."""


@pytest.mark.parametrize(
    "dtype", [pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.date32(), pa.date64()]
)  # fmt: skip
def test_the_longest_window_holds_its_rows_and_a_longer_one_is_refused(
    tmp_path: Path, dtype: pa.DataType
) -> None:
    bits = pa.int32() if dtype.bit_width == 32 else pa.int64()
    rows = pa.array([-1, 0, 1, None], bits).view(dtype)
    if dtype == pa.date64():
        rows = pa.array([-86_400_000, 0, 86_400_000, None]).view(dtype)
    store = LocalStore(tmp_path / "t")
    for seconds in (LONGEST + 1, 10**12, 0):
        with refuses(UsageError, seconds):
            ingest(store, tmp_path, rows, TimeWindows("ts", seconds))
        assert not CommitLog(store).refresh().version
    log = ingest(store, tmp_path, rows, TimeWindows("ts", LONGEST))
    log = ingest(store, tmp_path, rows, None)
    assert {entry.window for entry in log.current().fragments.all()} == {-1, 0, None}
    assert not compact_table(store, strategy=Strategy.FULL).failed
    assert len(CommitLog(store).refresh().fragments.all()) == 3
    assert verify(store, CommitLog(store).current()).faults == []
