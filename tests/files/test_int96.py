"""INT96 timestamps of Parquet: the true value always, in the unit that the values need."""

from __future__ import annotations

import json
import random
import struct
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor import Policy, Strategy, Table
from compactor.errors import InputError
from compactor.files.parquet_codes import ANY_CODES
from compactor.pipelines.config.load import parse_pipeline
from compactor.pipelines.pipeline_run import PipelineRun
from tests.files.reading import refusal, table_of
from tests.generated.bits import values_of
from tests.support.wording import refuses

FAR = [datetime(9999, 12, 31), None, datetime(1, 1, 1), datetime(1600, 2, 29, 23, 59, 59, 5)]
NANOSECONDS = [1, 1_577_836_800_000_000_123, None, -1]
JULIAN_DAYS = 2_440_588
DAY = 86_400 * 10**9


def nested(times: pa.Array) -> pa.Table:
    """The times as a column, and within others."""
    rows = len(times)
    ones = pa.array(range(rows + 1), pa.int32())
    return pa.table(
        {
            "k": range(rows),
            "t": times,
            "list": pa.ListArray.from_arrays(ones, times),
            "struct": pa.StructArray.from_arrays([times, pa.array(["x"] * rows)], ["a.b", "c"]),
            "map": pa.MapArray.from_arrays(ones, pa.array(range(rows)), times),
            "text": ["coded"] * rows,
        }
    )


def write(path: Path, table: pa.Table, **options: object) -> str:
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, **options)
    return str(path)


def forged(path: Path, times: list[tuple[int, int]], **options: Any) -> str:
    """A file of days since 1970 and nanoseconds, which the bytes of INT96 are set to."""
    marks = pa.array([place * 1000 for place in range(len(times))], pa.timestamp("ns"))
    table = pa.table({"k": range(len(times)), "t": marks})
    table = table.replace_schema_metadata(options.pop("metadata", None))
    write(path, table, use_dictionary=False, compression="none", **options)
    data = path.read_bytes()
    for place, (days, nanoseconds) in enumerate(times):
        mark = struct.pack("<QI", place * 1000, JULIAN_DAYS)
        assert data.count(mark) == 1
        data = data.replace(mark, struct.pack("<QI", nanoseconds, (days + JULIAN_DAYS) % 2**32))
    path.write_bytes(data)
    return str(path)


def by_spark(micros: int) -> tuple[int, int]:
    """The days since 1970, and nanoseconds without a sign, that Spark makes of microseconds: its sums wrap,
    and its divisions round to zero (`DateTimeUtils.toJulianDay`)."""
    count = (micros + JULIAN_DAYS * DAY // 1000 + 2**63) % 2**64 - 2**63
    days = abs(count) // (DAY // 1000) * (1 if count >= 0 else -1)
    return days - JULIAN_DAYS, (count - days * (DAY // 1000)) * 1000 % 2**64


def numbers(column: pa.ChunkedArray) -> list[int | None]:
    return list(column.cast(pa.int64()).to_pylist())


@pytest.mark.parametrize("row_group_size", [1, 3, 100])
def test_times_beyond_nanoseconds_are_read_in_microseconds(
    tmp_path: Path, row_group_size: int
) -> None:
    rows = nested(pa.array(FAR, pa.timestamp("us")))
    path = write(tmp_path / "a.parquet", rows, row_group_size=row_group_size)
    for max_codes in (0, ANY_CODES):
        found = table_of(path, max_codes=max_codes)
        assert found.schema.field("t").type == pa.timestamp("us")
        assert found.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("row_group_size", [1, 3, 100])
def test_nanoseconds_are_read_where_they_are_used(tmp_path: Path, row_group_size: int) -> None:
    rows = nested(pa.array(NANOSECONDS, pa.timestamp("ns")))
    path = write(tmp_path / "a.parquet", rows, row_group_size=row_group_size)
    for max_codes in (0, ANY_CODES):
        found = table_of(path, max_codes=max_codes)
        assert numbers(found["t"]) == NANOSECONDS
        assert found.to_pylist() == rows.to_pylist()


def test_whole_microseconds_are_read_in_microseconds(tmp_path: Path) -> None:
    times = pa.array([-1_000, 1_577_836_800_000_001_000], pa.timestamp("ns"))
    found = table_of(write(tmp_path / "a.parquet", pa.table({"t": times})))
    assert found.schema.field("t").type == pa.timestamp("us")
    assert numbers(found["t"]) == [-1, 1_577_836_800_000_001]


@pytest.mark.parametrize("row_group_size", [1, 2, 100])
def test_each_column_has_its_own_unit(tmp_path: Path, row_group_size: int) -> None:
    rows = pa.table(
        {
            "far": pa.array(FAR, pa.timestamp("us")),
            "fine": pa.array(NANOSECONDS, pa.timestamp("ns")),
            "list": [[NANOSECONDS[0]], [], None, NANOSECONDS],
            "text": ["x"] * 4,
        }
    )
    rows = rows.set_column(2, "list", rows["list"].cast(pa.list_(pa.timestamp("ns"))))
    path = write(tmp_path / "a.parquet", rows, row_group_size=row_group_size)
    found = table_of(path, max_codes=ANY_CODES)
    assert found.schema.types[:2] == [pa.timestamp("us"), pa.timestamp("ns")]
    assert found.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_far_times_sort_rows_as_they_are(tmp_path: Path, order: str) -> None:
    rows = pa.table({"t": pa.array(FAR, pa.timestamp("us")), "k": range(4)})
    path = write(tmp_path / "a.parquet", rows)
    table = Table.create(tmp_path / "t", path, f"t:{order}:nulls_last")
    table.append(path)
    expected = sorted([time for time in FAR if time] * 2, reverse=order == "desc")
    for _ in range(2):
        assert table.scan().to_table()["t"].to_pylist() == [*expected, None, None]
        assert len(table.scan(where="t < '1900-01-01'").to_table()) == 4
        table.compact(policy=Policy(strategy=Strategy.FULL))
        table.refresh()
    assert table.verify().faults == []


def test_a_file_fits_a_column_of_microseconds_if_every_value_does(tmp_path: Path) -> None:
    sort = pa.table({"t": pa.array([datetime(2000, 1, 1)], pa.timestamp("us")), "k": [9]})
    table = Table.create(tmp_path / "t", sort, "t")
    rows = pa.table({"t": pa.array(FAR, pa.timestamp("us")), "k": range(4)})
    table.append(write(tmp_path / "far.parquet", rows))
    assert table.scan().to_table()["t"].to_pylist()[:3] == [FAR[2], FAR[3], datetime(2000, 1, 1)]
    fine = pa.table({"t": pa.array(NANOSECONDS, pa.timestamp("ns")), "k": range(4)})
    with refuses(InputError, "'t'", "timestamp[ns]"):
        table.append(write(tmp_path / "fine.parquet", fine))
    assert len(table) == 5


def test_far_times_do_not_fit_a_column_of_nanoseconds(tmp_path: Path) -> None:
    table = Table.create(
        tmp_path / "t", pa.table({"k": [0], "t": pa.array([1], pa.timestamp("ns"))}), "k"
    )
    near = pa.table({"k": [1], "t": pa.array([datetime(2020, 1, 1)], pa.timestamp("us"))})
    table.append(write(tmp_path / "near.parquet", near))
    assert numbers(table.scan().to_table()["t"]) == [1, 1_577_836_800 * 10**9]
    far = pa.table({"k": [2], "t": pa.array([datetime(9999, 12, 31)], pa.timestamp("us"))})
    with refuses(InputError, "'t'"):
        table.append(write(tmp_path / "far.parquet", far))
    assert len(table) == 2


@pytest.mark.parametrize(
    ("times", "dtype"),
    [
        ([2**63 - 1, -(2**63)], pa.timestamp("ns")),
        ([(2**63 - 1) * 1000], pa.timestamp("us")),
        ([(1 - JULIAN_DAYS) * DAY, 2**63], pa.timestamp("us")),
        ([-(2**63) - 808, 2**63 // 1000 * 1000 + 1000], pa.timestamp("us")),
    ],
)
def test_times_at_the_ends_of_a_unit_are_exact(
    tmp_path: Path, times: list[int], dtype: pa.TimestampType
) -> None:
    if dtype.unit == "us":
        times = [time // 1000 * 1000 for time in times]
    path = forged(tmp_path / "a.parquet", [divmod(time, DAY) for time in times])
    found = table_of(path)
    assert found.schema.field("t").type == dtype
    per_unit = 1 if dtype.unit == "ns" else 1000
    assert [number * per_unit for number in numbers(found["t"]) if number is not None] == times


@pytest.mark.parametrize("time", [2**63 * 1000, (-JULIAN_DAYS - 1) * DAY, (2**31) * DAY])
def test_a_time_that_microseconds_do_not_hold_is_refused_by_its_place(
    tmp_path: Path, time: int
) -> None:
    path = forged(tmp_path / "a.parquet", [(0, 0), (1, 0), divmod(time, DAY)], row_group_size=2)
    message = refusal(path)
    assert "column 't': row 0 of row group 1" in message
    with refuses(InputError):
        Table.create(tmp_path / "t", path, "k")
    assert not Table.exists(tmp_path / "t")


def test_times_that_no_unit_holds_together_are_refused_by_their_places(tmp_path: Path) -> None:
    times = [(0, 0), (2_932_896, 0), (1, 7)]
    message = refusal(forged(tmp_path / "a.parquet", times, row_group_size=2))
    for part in ("column 't'", "row 1 of row group 0", "row 0 of row group 1"):
        assert part in message


EVERY_YEAR = [
    9_089_380_393_200_000_000, 2**63 - 1, -(2**63), -400_000_000_000_000_000, 0, -1, 253_402_214_400_000_000,
    (-JULIAN_DAYS - 5) * DAY // 1000, (-JULIAN_DAYS - 5) * DAY // 1000 + 1, (2**31) * 10**6,
    *(random.Random(96).randrange(-(2**63), 2**63) for _ in range(200)),
]  # fmt: skip


@pytest.mark.parametrize("row_group_size", [7, 1000])
def test_every_time_of_spark_is_read(tmp_path: Path, row_group_size: int) -> None:
    path = tmp_path / "a.parquet"
    times = list(map(by_spark, EVERY_YEAR))
    forged(
        path, times, row_group_size=row_group_size, metadata={"org.apache.spark.version": "4.1.0"}
    )
    found = table_of(str(path))
    assert found.schema.field("t").type == pa.timestamp("us")
    assert numbers(found["t"]) == EVERY_YEAR
    alone = pq.read_table(path, coerce_int96_timestamp_unit="us")
    assert numbers(alone["t"]) != EVERY_YEAR


def test_every_time_of_spark_is_read_within_other_values(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    times = EVERY_YEAR[:10]
    marks = pa.array([place * 1000 for place in range(len(times))], pa.timestamp("ns"))
    lists = pa.ListArray.from_arrays([0, 0, 3, 3, 10], marks)
    table = pa.table(
        {"list": lists, "struct": pa.StructArray.from_arrays([lists, range(4)], ["a.b", "n"])}
    )
    spark = table.replace_schema_metadata({"org.apache.spark.version": "4.1.0"})
    write(path, spark, use_dictionary=False, compression="none")
    data = path.read_bytes()
    for place, (days, nanoseconds) in enumerate(map(by_spark, times)):
        mark = struct.pack("<QI", place * 1000, JULIAN_DAYS)
        assert data.count(mark) == 2
        data = data.replace(mark, struct.pack("<QI", nanoseconds, (days + JULIAN_DAYS) % 2**32))
    path.write_bytes(data)
    found = table_of(str(path))
    for lists in (found["list"], found["struct"].combine_chunks().field("a.b")):
        assert values_of(lists) == [
            (),
            tuple(t * 1000 for t in times[:3]),
            (),
            tuple(t * 1000 for t in times[3:]),
        ]
    assert found["struct"].combine_chunks().field("n").to_pylist() == [0, 1, 2, 3]


def test_a_pipeline_reads_far_times(tmp_path: Path) -> None:
    rows = pa.table({"k": range(4), "t": pa.array(FAR, pa.timestamp("us"))})
    path, out = write(tmp_path / "a.parquet", rows), tmp_path / "o.ndjson"
    nodes = (
        f"nodes:\n  a: {{source: {{path: {path}}}}}\n  o: {{output: {{input: a, path: {out}}}}}\n"
    )
    PipelineRun(parse_pipeline(nodes, "a.yaml")).run()
    found = [json.loads(line)["t"] for line in out.read_text().splitlines()]
    assert found == [time and time.isoformat(timespec="microseconds") for time in FAR]
