"""Tables from Python, and the libraries that read them with no glue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import compactor
from compactor import Policy, Strategy, Table
from compactor.errors import (
    InputError,
    TableExistsError,
    TableNotFoundError,
    UsageError,
    VersionNotFoundError,
)
from compactor.write.ingest import IngestOptions
from lsm_fragment.container.writer import WriterOptions
from tests.support.wording import refuses

ROWS = pa.table({"host": ["b", "a", "c"], "n": [3, 1, 2], "note": ["x", None, "é"]})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "t"), ROWS, "host,n:desc")
    made.append(pa.table({"host": ["a", "d"], "n": [9, 4], "extra": [1.5, None]}))
    return made


EXPECTED = {
    "host": ["a", "a", "b", "c", "d"],
    "n": [9, 1, 3, 2, 4],
    "note": [None, None, "x", "é", None],
    "extra": [1.5, None, None, None, None],
}


def test_rows_come_in_sort_order_with_the_columns_of_all_appends(table: Table) -> None:
    assert table.scan().to_table().to_pydict() == EXPECTED
    assert (len(table), table.version, table.schema.names) == (5, 2, list(EXPECTED))
    assert table.scan(["n"], "host = 'a'").to_table().to_pydict() == {"n": [9, 1]}
    assert "5 rows" in repr(table)


def test_a_scan_can_be_read_again_and_counts_anew(table: Table) -> None:
    scan = table.scan(["n"], where="n > 2")
    for _ in range(2):
        assert scan.to_table()["n"].to_pylist() == [9, 3, 4]
        assert (scan.report.rows, scan.report.fragments) == (3, 2)


def test_polars_reads_a_scan(table: Table) -> None:
    frame = pl.DataFrame(table.scan())
    assert frame.to_dict(as_series=False) == EXPECTED


def test_duckdb_reads_a_scan(table: Table) -> None:
    rows = table.scan(where="n >= 2")
    with duckdb.connect() as connection:
        asked = connection.execute("SELECT host, sum(n) FROM rows GROUP BY host ORDER BY host")
        found = asked.fetchall()
    assert found == [("a", 9), ("b", 3), ("c", 2), ("d", 4)]
    assert len(rows.to_table()) == 4


def test_pandas_reads_a_scan(table: Table) -> None:
    frame = pa.table(table.scan()).to_pandas()
    assert frame["host"].tolist() == EXPECTED["host"]
    assert frame["n"].tolist() == EXPECTED["n"]


@pytest.mark.parametrize(
    "rows",
    [
        pl.DataFrame({"host": ["z"], "n": [7]}),
        pd.DataFrame({"host": ["z"], "n": [7]}),
        pa.RecordBatch.from_pydict({"host": ["z"], "n": [7]}),
        pa.table({"host": ["z"], "n": [7]}).to_reader(),
        duckdb.sql("SELECT 'z' AS host, 7::BIGINT AS n"),
    ],
    ids=lambda rows: type(rows).__module__.split(".")[0] + "." + type(rows).__name__,
)
def test_whatever_has_an_arrow_stream_can_be_appended(table: Table, rows: object) -> None:
    report = table.append(rows)
    assert (report.rows, report.version) == (1, table.version)
    assert table.scan(["n"], "host = 'z'").to_table()["n"].to_pylist() == [7]


def test_a_table_stays_at_its_version_until_it_is_refreshed(table: Table) -> None:
    other = Table.open(table.url)
    table.append(ROWS)
    assert (len(other), len(table)) == (5, 8)
    other.refresh()
    assert len(other) == 8


def test_earlier_versions_have_their_rows_and_their_schema(table: Table) -> None:
    first = Table.open(table.url, version=1)
    assert first.schema.names == ["host", "n", "note"]
    assert first.scan().to_table()["n"].to_pylist() == [1, 3, 2]
    assert Table.open(table.url, as_of=datetime.now(UTC)).version == 2
    with pytest.raises(VersionNotFoundError):
        Table.open(table.url, version=9)
    with pytest.raises(VersionNotFoundError):
        Table.open(table.url, as_of=datetime(2001, 1, 1))
    with refuses(VersionNotFoundError):
        Table.open(table.url, as_of=datetime.min)
    with refuses(UsageError):
        Table.open(table.url, as_of=datetime.min.replace(tzinfo=timezone(timedelta(hours=14))))
    with refuses(VersionNotFoundError):
        Table.open(table.url, version=10**5000)
    with pytest.raises(UsageError):
        Table.open(table.url, version=1, as_of=datetime.now(UTC))


def test_what_does_not_fit_is_refused_by_name_and_nothing_is_added(table: Table) -> None:
    with refuses(InputError):
        table.append(pa.table({"host": ["a"], "n": ["many"]}))
    with refuses(InputError):
        table.append(pa.table({"host": ["a"]}))
    with refuses(InputError):
        table.append({"host": ["a"], "n": [1]})
    with refuses(UsageError):
        table.scan(["nn"])
    with refuses(UsageError):
        table.scan(where="nn = 1")
    with pytest.raises(TableExistsError):
        Table.create(table.url, ROWS, "n")
    with refuses(UsageError, "sort_by"):
        Table.create(table.url + "-new", ROWS, "n:sideways")
    with pytest.raises(TableNotFoundError):
        Table.open(table.url + "-none")
    assert Table.open(table.url).version == 2


def test_rows_without_columns_are_rows(table: Table) -> None:
    assert table.scan([]).to_table().num_rows == 5
    assert table.scan([], "host = 'a'").to_table().num_rows == 2


def test_streams_are_checked_before_anything_reads_them(table: Table) -> None:
    offsets = pa.py_buffer(np.array([0, 2_000_000_000, 3], np.int32))
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])
    codes = pa.DictionaryArray.from_arrays(
        pa.array([0, 7], pa.int32()), pa.array(["a"]), safe=False
    )
    text = pa.Array.from_buffers(
        pa.string(),
        2,
        [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"\xff\xfe")],
    )
    for damaged in (broken, codes, text):
        with refuses(InputError):
            table.append(pa.table({"host": damaged, "n": [1, 2]}))
    assert len(Table.open(table.url)) == 5


def test_what_is_no_condition_and_no_address_is_said(table: Table, tmp_path: Path) -> None:
    assert len(Table.open(tmp_path / "t")) == 5
    for wrong in (
        lambda: table.delete(None),  # type: ignore[arg-type]
        lambda: table.delete(5),  # type: ignore[arg-type]
        lambda: Table.open(5),  # type: ignore[arg-type]
        lambda: Table.open(table.url, as_of="15 moons"),
    ):
        with pytest.raises(UsageError):
            wrong()


def test_row_groups_that_a_condition_rules_out_are_not_read(tmp_path: Path) -> None:
    rows = pa.table({"k": range(10_000), "text": ["x" * 100] * 10_000})
    options = IngestOptions(writer=WriterOptions(max_rows=500))
    table = Table.create(str(tmp_path / "t"), rows, "k", options)
    (scan := table.scan(["k"], "k >= 4000 AND k < 4100")).to_table()
    assert (scan.report.row_groups, scan.report.row_groups_skipped) == (20, 19)
    assert (scan.report.rows_read, scan.report.rows) == (500, 100)


def test_the_package_has_no_name_that_is_none() -> None:
    assert compactor.Table is Table
    with pytest.raises(AttributeError, match="no attribute 'Tabel'"):
        compactor.Tabel  # noqa: B018


def test_a_long_value_in_all_rows_can_be_merged_and_read(tmp_path: Path) -> None:
    """Coded it takes 10 kB in a row group, expanded some 650 MB."""
    value, rows = pa.array(["x" * 10_000]), 30_000
    for part in range(3):
        ids = pa.array(np.arange(rows, dtype=np.int64) * 3 + part)
        codes = pa.array(np.zeros(rows, dtype=np.int32))
        batch = pa.table({"id": ids, "text": pa.DictionaryArray.from_arrays(codes, value)})
        if part:
            Table.open(tmp_path).append(batch)
        else:
            Table.create(tmp_path, batch, "id")
    table = Table.open(tmp_path)
    table.compact(policy=Policy(strategy=Strategy.FULL))
    assert table.verify().faults == []
    found = 0
    for read in table.scan():
        assert pc.all(pc.equal(read.column("text").cast(pa.string()), value[0])).as_py()
        found += read.num_rows
    assert found == 3 * rows


def test_a_text_in_place_of_names_is_not_taken_for_its_letters(table: Table) -> None:
    for call in (
        lambda: table.scan("n"),
        lambda: table.alter(drops="n"),
        lambda: table.alter(redacts="n"),
        lambda: table.alter(order="n"),
    ):
        with refuses(UsageError):
            call()
    assert "n" in table.schema.names
