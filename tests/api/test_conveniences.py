"""What makes a table pleasant to use from Python."""

from __future__ import annotations

import importlib
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from compactor import Policy, Strategy, Table
from compactor.common.clock import SystemClock
from compactor.errors import UsageError
from compactor.planner.debt import debt_of
from compactor.settings.units import duration_seconds, moment_unix_ms
from compactor.table.commit_log import CommitLog
from compactor.write.ingest import IngestOptions
from lsm_fragment.container.writer import WriterOptions
from tests.faults import Stall, calls
from tests.support.memory_store import MemoryStore
from tests.support.wording import refuses

SMALL = IngestOptions(rows_per_fragment=50, writer=WriterOptions(10))


def rows_of(first: int, count: int = 100) -> pa.Table:
    keys = range(first, first + count)
    return pa.table({"k": keys, "v": [f"value {k}" for k in keys]})


def in_memory() -> tuple[MemoryStore, Table]:
    store = MemoryStore()
    log = CommitLog(store)
    table = Table(log, log.refresh())
    table._ingest(rows_of(0), "k", SMALL)
    return store, table


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("limit", [0, 1, 10, 11, 1000, 2**64])
def test_a_limit_ends_a_scan_and_nothing_after_it_is_read(
    limit: int, overlaps: bool, threads: int
) -> None:
    store, table = in_memory()
    if overlaps:
        table.append(rows_of(0), SMALL)
    whole = table.scan(["v"], "k >= 5", threads=threads).to_table()
    reading = store.faults.add(Stall(lambda: None), at=calls("read_range", "open_stream"))
    scan = table.scan(["v"], "k >= 5", limit=limit, threads=threads)
    assert scan.to_table() == whole.slice(0, min(limit, whole.num_rows))
    assert scan.report.rows == min(limit, whole.num_rows)
    if limit == 0:
        assert not reading.hits
    if limit == 1:
        assert scan.report.row_groups <= (1 + overlaps) * 5


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("where", [None, "v % 2 = 0"])
def test_a_small_limit_reads_one_row_group_of_each_overlapping_run(
    where: str | None, threads: int
) -> None:
    log = CommitLog(MemoryStore())
    table = Table(log, log.refresh())
    rng = random.Random(1)
    for _ in range(4):
        rows = pa.table({"k": [rng.random() for _ in range(60_000)], "v": range(60_000)})
        table._ingest(rows, "k", IngestOptions(writer=WriterOptions(6000)))
    scan = table.scan(where=where, limit=1, threads=threads)
    first = table.scan(where=where).to_table().slice(0, 1)
    assert scan.to_table() == first
    assert scan.report.rows_read == 4 * 6000


def test_a_file_has_the_rows_up_to_the_limit(tmp_path: Path) -> None:
    _, table = in_memory()
    out = tmp_path / "few.parquet"
    assert table.scan(limit=7).to_file(out).rows == 7
    assert pl.read_parquet(out)["k"].to_list() == list(range(7))


@pytest.mark.parametrize("scheme", ["s3", "http", "file"])
def test_only_local_files_are_appended_and_written(scheme: str) -> None:
    importlib.import_module("compactor.pipelines")  # whose files may be in stores
    _, table = in_memory()
    for call in (table.append, table.overwrite, table.scan().to_file):
        with refuses(UsageError, f"{scheme}://...: ", "local file"):
            call(f"{scheme}://bucket/a.parquet")


def test_times_are_texts_and_durations_too(tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    Table.create(url, rows_of(0), "k")
    soon = datetime.now(UTC) + timedelta(hours=1)
    for as_of in (soon, soon.isoformat(), "0s"):
        assert Table.open(url, as_of=as_of).version == 1
    for wrong, named in (("soon", "'soon'"), ("3 months", "'3 months'"), ("2h ago", "'2h ago'")):
        with refuses(UsageError, "as_of", named):
            Table.open(url, as_of=wrong)
    with pytest.raises(Exception, match="no version from"):
        Table.open(url, as_of="3 days")


def test_units_of_durations_may_be_written_out() -> None:
    for text, seconds in {
        "2h": 7200, "2 hours": 7200, "1 hour": 3600, "3 days": 259_200, "90 seconds": 90, "5 min": 300,
        "1.5 minutes": 90, "1week": 604_800,
    }.items():  # fmt: skip
        assert duration_seconds(text) == seconds
        assert moment_unix_ms(text, SystemClock()) < SystemClock().now_unix_ms()
    for wrong in ("2  hours", "2 months", "hours", "2 hour s", "٢h"):
        with pytest.raises(ValueError, match="is not a duration"):
            duration_seconds(wrong)


def test_a_table_is_a_stream_of_its_rows(tmp_path: Path) -> None:
    _, table = in_memory()
    assert pa.table(table) == rows_of(0)
    assert pl.DataFrame(table)["k"].sum() == sum(range(100))
    assert pa.schema(table) == table.schema
    copy = Table.create(str(tmp_path / "copy"), table, "k")
    copy.append(table)
    assert len(copy) == 200


def test_a_notebook_shows_a_table_without_reading_rows() -> None:
    store, table = in_memory()
    table.alter(renames={"v": "<v>"})
    reading = store.faults.add(Stall(lambda: None), at=calls("read_range", "open_stream"))
    html = table._repr_html_()
    assert "100 rows" in html and "&lt;v&gt;" in html and "<v>" not in html
    assert "sorted by k" in html and not reading.hits


def test_debt_is_what_writers_look_at() -> None:
    store, table = in_memory()
    for first in range(8):
        table.append(rows_of(first), SMALL)
    policy = Policy(level0_trigger_runs=2, slow_runs=3, stop_runs=6)
    assert table.debt(policy) == debt_of(CommitLog(store).current(), policy)
    assert table.debt().level0_runs == 18
    assert table.debt(policy).score > table.debt().score


def test_progress_is_told_while_rows_are_read_and_compactions_end() -> None:
    _, table = in_memory()
    told: list[int] = []
    table.append(rows_of(0), SMALL, on_progress=told.append)
    table.overwrite(rows_of(0), "k < 100", SMALL, on_progress=told.append)
    assert told == [100, 100]
    told.clear()
    table.compact(policy=Policy(strategy=Strategy.FULL), on_progress=told.append)
    assert told == list(range(1, len(told) + 1)) and told


def test_debt_goes_by_the_properties_of_the_table() -> None:
    _, table = in_memory()
    before = table.debt().score
    table.alter(properties={"level0_trigger_runs": 2, "slow_runs": 2, "stop_runs": 4})
    assert table.debt().score > before
    table.refresh()
    assert table.debt(Policy(slow_runs=40, stop_runs=80)).score < table.debt().score
