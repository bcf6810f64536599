"""What tasks of the Spark data source read, and what Spark's filters mean: without Spark."""

from __future__ import annotations

import datetime
import decimal
import math
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as ds
from pyspark.sql.types import LongType, StructField, StructType

from compactor import Table
from compactor.errors import DataError, FragmentMissingError, UsageError
from compactor.read.read_reports import ScanReport
from compactor.read.scan import scan
from compactor.read.scan_tasks import RowGroups, read_parts, tasks_of
from compactor.read.wanted import scan_schema
from compactor.rows.policy import RowFunction, RowKind, RowPolicy
from compactor.spark.source.filters import condition_of, with_filters
from compactor.spark.source.read import FragmentsReader, SingleUseReader
from compactor.spark.source.source import FragmentsDataSource
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.write.delete import delete_rows
from compactor.write.ingest import IngestOptions
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, log_rows
from tests.support.wording import refuses

WHERES = [
    None,
    "value > 0.7",
    "service = 'service-1'",
    "ts < '1970-01-01 00:00:00.005' AND value IS NULL",
]
DELETED = "ts BETWEEN '1970-01-01 00:00:00.010' AND '1970-01-01 00:00:00.015'"


def as_rows(batches: Any, names: Sequence[str]) -> list[str]:
    return sorted(str(row) for batch in batches for row in batch.select(names).to_pylist())


def arrow_condition(where: str | None, pushed: list[ds.Filter]) -> pc.Expression:
    """The same as by Arrow."""
    ms = lambda n: pa.scalar(n, pa.timestamp("ms", "UTC"))  # noqa: E731
    value, service, ts, text = map(pc.field, ("value", "service", "ts", "id"))
    by_where = [
        pc.scalar(True),
        value > 0.7,
        service == "service-1",
        (ts < ms(5)) & value.is_null(),
    ]
    by_filter = [
        value > 0.7,
        service == "service-1",
        value.is_null(),
        ~pc.starts_with(text, "3-1"),
        ts < ms(20),
    ]
    condition = by_where[WHERES.index(where)]
    for each in pushed:
        condition = condition & by_filter[PUSHED.index(each)]
    return condition


POLICIES = {
    "append": None,
    "last": RowPolicy(RowKind.LAST),
    "first": RowPolicy(RowKind.FIRST),
    "partial-update": RowPolicy(RowKind.PARTIAL_UPDATE),
    "aggregate": RowPolicy(
        RowKind.AGGREGATE, aggregates=(("value", RowFunction.SUM), ("id", RowFunction.MAX))
    ),
}
PUSHED: list[ds.Filter] = [
    ds.GreaterThan(("value",), 0.7),
    ds.EqualTo(("service",), "service-1"),
    ds.IsNull(("value",)),
    ds.Not(ds.StringStartsWith(("id",), "3-1")),
    ds.LessThan(("ts",), datetime.datetime(1970, 1, 1, 0, 0, 0, 20_000, datetime.UTC)),
]


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15)
@given(
    seeds=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    task_bytes=st.sampled_from([1, 500, 5_000, 1 << 30]),
    min_tasks=st.sampled_from([1, 2, 5]),
    where=st.sampled_from(WHERES),
    pushed=st.lists(st.sampled_from(PUSHED), max_size=2),
    columns=st.sampled_from([["id"], ["value", "service"], ["ts", "id", "value", "service"]]),
    deletes=st.booleans(),
)
def test_tasks_read_together_what_a_scan_reads(
    policy: str,
    seeds: list[int],
    task_bytes: int,
    min_tasks: int,
    where: str | None,
    pushed: list[ds.Filter],
    columns: list[str],
    deletes: bool,
) -> None:
    store = MemoryStore()
    for place, seed in enumerate(seeds):
        rows = None if place else POLICIES[policy]
        options = IngestOptions(rows_per_fragment=150, rows=rows)
        sort_by = None if place else "service,ts:desc"
        log = append_table(store, log_rows(100 + 90 * seed, seed), sort_by, options, max_rows=16)
    if deletes:
        delete_rows(store, log, DELETED)
    snapshot = log.current()
    condition = None if where is None else condition_on(snapshot.table, where)
    taken = [condition_of(each, snapshot.table) for each in pushed]
    condition = with_filters(condition, [each for each in taken if each is not None])
    assert None not in taken
    report = ScanReport()
    with patch("compactor.read.scan_tasks._MIN_SHARED_BYTES", 1):
        tasks = tasks_of(snapshot, condition, task_bytes, report, min_tasks=min_tasks)
    assert report.fragments == len(snapshot.fragments)
    found = [
        batch
        for parts in pickle.loads(pickle.dumps(tasks))
        for batch in read_parts(store, snapshot.table, parts, columns, condition, report)
    ]
    everything = pa.Table.from_batches(scan(store, snapshot), scan_schema(snapshot.table, None))
    expected = everything.filter(arrow_condition(where, pushed)).to_batches()
    assert as_rows(found, columns) == as_rows(expected, columns)
    if policy == "append":
        assert report.rows == sum(batch.num_rows for batch in found)


def test_large_fragments_are_cut_at_row_groups_and_small_ones_share_a_task() -> None:
    store = MemoryStore()
    log = append_table(store, log_rows(1000, 0), "service,ts", max_rows=16)
    [entry] = log.current().fragments.all()
    tasks = tasks_of(log.current(), None, entry.raw_bytes // 3 + 1, ScanReport())
    bounds = [(part.start, part.stop) for [part] in tasks if isinstance(part, RowGroups)]
    assert bounds == [(0, 21), (21, 42), (42, 63)]
    for seed in range(3):
        append_table(store, log_rows(100, seed), None)
    assert [len(parts) for parts in tasks_of(log.current(), None, 1 << 30, ScanReport())] == [4]


def test_few_bytes_are_divided_among_the_tasks_that_are_wanted_but_not_below_a_mib() -> None:
    store = MemoryStore()
    rows = pa.table({"k": range(400_000), "text": [f"{n:09}" for n in range(400_000)]})
    log = append_table(store, rows, "k", max_rows=1_000)
    [entry] = log.current().fragments.all()
    assert 3 << 20 < entry.raw_bytes < 4 << 20
    counts = [
        len(tasks_of(log.current(), None, 128 << 20, ScanReport(), min_tasks=wanted))
        for wanted in (1, 2, 3, 1_000)
    ]
    assert counts == [1, 2, 3, 4]


def test_many_bytes_are_divided_among_a_multiple_of_the_tasks_that_are_wanted() -> None:
    store = MemoryStore()
    rows = pa.table({"k": range(400_000), "text": [f"{n:09}" * 3 for n in range(400_000)]})
    log = append_table(store, rows, "k", max_rows=1_000)
    [entry] = log.current().fragments.all()
    at_most = entry.raw_bytes // 3 + 1
    assert entry.raw_bytes > 8 << 20

    def sizes(wanted: int, task_bytes: int) -> list[int]:
        tasks = tasks_of(log.current(), None, task_bytes, ScanReport(), min_tasks=wanted)
        return [part.stop - part.start for [part] in tasks if isinstance(part, RowGroups)]

    assert sizes(1, at_most) == [133, 133, 134]
    assert sizes(2, at_most) == [100] * 4
    assert sorted(sizes(2, entry.raw_bytes // 5 + 1)) == [66, 66, 67, 67, 67, 67]
    assert sizes(4, at_most) == [100] * 4


@pytest.mark.parametrize(
    ("fragments", "wanted", "mib", "tasks"),
    [(3, 2, 40, 2), (5, 4, 3, 16), (9, 8, 40, 8), (1, 8, 2, 8)],
)
def test_several_fragments_are_cut_at_even_places(
    fragments: int, wanted: int, mib: int, tasks: int
) -> None:
    store = MemoryStore()
    for first in range(0, fragments * 200_000, 200_000):
        k = range(first, first + 200_000)
        rows = pa.table({"k": k, "text": [f"{n:09}" * 5 for n in k]})
        log = append_table(store, rows, None if first else "k", max_rows=1_000)
    found = tasks_of(log.current(), None, mib << 20, ScanReport(), min_tasks=wanted)
    sizes = [sum(p.stop - p.start for p in parts if isinstance(p, RowGroups)) for parts in found]
    assert (len(sizes), sum(sizes)) == (tasks, 200 * fragments)
    assert max(sizes) - min(sizes) <= 2


def test_only_fragments_that_may_match_are_divided_among_the_tasks_that_are_wanted() -> None:
    store = MemoryStore()
    for first in range(0, 1_600_000, 400_000):
        k = range(first, first + 400_000)
        rows = pa.table({"k": k, "text": [f"{n:09}" * 3 for n in k]})
        log = append_table(store, rows, None if first else "k", max_rows=1_000)
    where = condition_on(log.current().table, "k < 400000")
    tasks = tasks_of(log.current(), where, 1 << 30, ScanReport(), min_tasks=4)
    sizes = [part.stop - part.start for [part] in tasks if isinstance(part, RowGroups)]
    assert sizes == [100] * 4


def test_tasks_that_read_few_columns_read_more_rows() -> None:
    store = MemoryStore()
    rows = pa.table({"k": range(400_000), "text": [f"{n:09}" * 4 for n in range(400_000)]})
    log = append_table(store, rows, "k", max_rows=1_000)
    [entry] = log.current().fragments.all()
    assert 12 << 20 < entry.raw_bytes < 16 << 20

    def tasks(columns: list[str] | None, where: str | None = None, wanted: int = 1) -> int:
        condition = None if where is None else condition_on(log.current().table, where)
        task_bytes = 4 << 20 if wanted == 1 else 128 << 20
        report = ScanReport()
        return len(
            tasks_of(
                log.current(), condition, task_bytes, report, columns=columns, min_tasks=wanted
            )
        )

    assert tasks(None) == tasks(["k", "text"]) == 4
    assert tasks(["k"]) == 1  # 8 bytes for each row, however few are stored
    assert tasks(["k"], "text LIKE '0%'") == 4
    assert tasks([]) == 1
    assert tasks(["k"], wanted=2) == 2
    assert tasks(["k"], wanted=1_000) == 4


def test_many_small_fragments_are_divided_however_little_is_read_of_each() -> None:
    store = MemoryStore()
    log = append_table(store, log_rows(2_000, 0), "service,ts", max_rows=100)
    for seed in range(1, 100):
        log = append_table(store, log_rows(2_000, seed), None)
    assert all(entry.raw_bytes < 128 << 10 for entry in log.current().fragments.all())
    few = tasks_of(log.current(), None, 128 << 10, ScanReport(), columns=["service"])
    every = tasks_of(log.current(), None, 128 << 10, ScanReport())
    assert len(few) == len(every) > 5
    assert sum(map(len, few)) == 100


def spark_compares(row: Any, value: Any) -> int | None:
    """Spark's order: NaN is greater than all, zeros of both signs are equal; None: unknown."""
    if row is None:
        return None
    is_nan = isinstance(row, float) and math.isnan(row)
    return 1 if is_nan else (row > value) - (row < value)


HOLDS: dict[type, Callable[[int], bool]] = {
    ds.EqualTo: lambda order: order == 0,
    ds.LessThan: lambda order: order < 0,
    ds.LessThanOrEqual: lambda order: order <= 0,
    ds.GreaterThan: lambda order: order > 0,
    ds.GreaterThanOrEqual: lambda order: order >= 0,
}


def spark_keeps(each: ds.Filter, row: Any) -> bool | None:
    match each:
        case ds.Not(child):
            inner = spark_keeps(child, row)
            return None if inner is None else not inner
        case ds.IsNull():
            return row is None
        case ds.IsNotNull():
            return row is not None
        case ds.EqualNullSafe(_, value):
            return row is not None and spark_compares(row, value) == 0
        case ds.In(_, values):
            return None if row is None else any(spark_compares(row, v) == 0 for v in values)
        case ds.StringStartsWith(_, value):
            return None if row is None else row.startswith(value)
    order = spark_compares(row, each.value)  # type: ignore[attr-defined]
    return None if order is None else HOLDS[type(each)](order)


D = decimal.Decimal
EPOCH = datetime.datetime(1970, 1, 1)
MS = datetime.timedelta(milliseconds=1)
DOUBLES = [math.nan, -math.inf, -1.5, -0.0, 0.0, 2.5, math.inf]
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), st.integers(-5, 5)),
    "unsigned": (pa.uint64(), st.integers(0, 5)),
    "double": (pa.float64(), st.sampled_from(DOUBLES)),
    "float": (pa.float32(), st.sampled_from(DOUBLES)),
    "text": (pa.string(), st.text("a%_\\b\n", max_size=3)),
    "coded": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["", "a", "ab", "é"])),
    "decimal": (pa.decimal128(5, 2), st.sampled_from([D("-1.50"), D("0.00"), D("2.25")])),
    "date": (pa.date32(), st.dates(datetime.date(1969, 12, 1), datetime.date(1970, 2, 1))),
    "ms": (
        pa.timestamp("ms", "UTC"),
        st.integers(-5, 5).map(lambda n: (EPOCH + n * MS).replace(tzinfo=datetime.UTC)),
    ),
    "ns": (pa.timestamp("ns"), st.integers(-5, 5).map(lambda n: EPOCH + n * MS)),
    "flag": (pa.bool_(), st.booleans()),
}


@st.composite
def filters(draw: st.DrawFn, values: st.SearchStrategy[Any], is_text: bool) -> ds.Filter:
    kinds = [*HOLDS, ds.EqualNullSafe, ds.In, ds.IsNull, ds.IsNotNull]
    kind: Any = draw(st.sampled_from([*kinds, ds.StringStartsWith] if is_text else kinds))
    if kind in (ds.IsNull, ds.IsNotNull):
        made = kind(("x",))
    elif kind is ds.In:
        made = ds.In(("x",), tuple(draw(st.lists(values, min_size=1, max_size=3))))
    else:
        made = kind(("X",), draw(values))
    return ds.Not(made) if draw(st.booleans()) else made


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=40)
@given(data=st.data())
def test_a_filter_that_is_taken_keeps_just_the_rows_that_spark_would_keep(
    name: str, data: st.DataObject
) -> None:
    dtype, values = TYPES[name]
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=12))
    each = data.draw(filters(values, name in ("text", "coded")))
    store = MemoryStore()
    table = pa.table({"n": range(len(rows)), "x": pa.array(rows, dtype)})
    snapshot = append_table(store, table, "n", max_rows=2).current()
    condition = condition_of(each, snapshot.table)
    if condition is None:
        value = getattr(each.child if isinstance(each, ds.Not) else each, "value", None)
        asked = value if isinstance(value, tuple) else [value]
        assert any(each != each for each in asked), "only NaN is left to Spark here"
        return
    tasks = tasks_of(snapshot, condition, 1, ScanReport())
    found = [
        number
        for parts in tasks
        for batch in read_parts(store, snapshot.table, parts, ["n"], condition, ScanReport())
        for number in batch.column("n").to_pylist()
    ]
    assert found == [n for n, row in enumerate(rows) if spark_keeps(each, row)]


@pytest.mark.parametrize(
    "each",
    [
        ds.EqualTo(("l",), [1]),
        ds.EqualTo(("s", "a"), 1),
        ds.IsNull(("s", "a")),
        ds.EqualTo(("b",), b"x"),
        ds.EqualTo(("n",), "1"),
        ds.EqualTo(("n",), True),
        ds.EqualTo(("n",), 1 << 70),
        ds.EqualTo(("ms",), EPOCH + datetime.timedelta(microseconds=1)),
        ds.EqualTo(("ms",), EPOCH.replace(tzinfo=datetime.UTC)),
        ds.EqualTo(("half",), 0.1),
        ds.StringStartsWith(("n",), "1"),
        ds.StringContains(("t",), "x"),
        ds.In(("n",), (1, None)),
        ds.IsNull(("nix",)),
    ],
    ids=str,
)
def test_filters_of_another_meaning_are_left_to_spark(each: ds.Filter) -> None:
    table = pa.table(
        {
            "n": pa.array([1], pa.int32()),
            "l": [[1]],
            "s": [{"a": 1}],
            "b": [b"x"],
            "t": ["x"],
            "ms": pa.array([0], pa.timestamp("ms")),
            "half": pa.array([0.5], pa.float32()),
        }
    )
    metadata = append_table(MemoryStore(), table, "n").current().table
    assert condition_of(each, metadata) is None
    assert condition_of(ds.Not(each), metadata) is None


def read_all(url: str, **options: str) -> list[dict[str, Any]]:
    """As Spark goes about it."""
    source = FragmentsDataSource({"path": url, **options})
    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    assert isinstance(reader, FragmentsReader)
    partitions = reader.partitions()
    reader = pickle.loads(pickle.dumps(reader))
    return [row for part in partitions for b in reader.read(part) for row in b.to_pylist()]


def test_filters_that_rule_out_everything_leave_a_task_without_rows(tmp_path: Path) -> None:
    Table.create(tmp_path / "t", pa.table({"n": range(5)}), sort_by="n")
    source = FragmentsDataSource({"path": str(tmp_path / "t"), "single_use": "true"})
    reader = source.reader(source.schema())
    assert isinstance(reader, SingleUseReader)
    left = ds.EqualTo(("n",), 1.5)
    assert reader.pushFilters([ds.GreaterThan(("n",), 10), left]) == [left]
    [partition] = reader.partitions()
    assert reader.planned.fragments_skipped == 1
    assert list(reader.read(partition)) == []


def test_what_is_gone_is_left_out_only_if_told_and_the_driver_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = Table.create(tmp_path / "t", pa.table({"n": range(5)}), sort_by="n")
    table.append(pa.table({"n": range(5, 10)}))
    gone = table.fragments()["key"][1].as_py()
    (tmp_path / "t" / gone).unlink()
    with refuses(FragmentMissingError, gone):
        read_all(table.url)
    assert read_all(table.url, skip_missing="true") == [{"n": n} for n in range(5)]
    table.quarantine([gone])
    with pytest.raises(FragmentMissingError):
        read_all(table.url)
    caplog.clear()
    assert read_all(table.url, skip_missing="true") == [{"n": n} for n in range(5)]
    assert "left out 1 fragment, gone or in quarantine, with 5 rows" in caplog.text
    caplog.clear()
    assert read_all(table.url, skip_missing="true", where="n < 3") == [{"n": n} for n in range(3)]
    assert caplog.text == ""


def test_columns_that_were_renamed_are_read_and_asked_by_their_new_names(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.table({"n": range(5), "a": list("vwxyz")}), sort_by="n")
    table.alter(renames={"a": "b"})
    table.append(pa.table({"n": [5], "a": [7]}))
    assert read_all(table.url, where="b > 'x'") == [
        {"n": 3, "b": "y", "a": None},
        {"n": 4, "b": "z", "a": None},
    ]
    assert read_all(table.url, where="a = 7", columns="a,n") == [{"a": 7, "n": 5}]
    metadata = CommitLog(LocalStore(table.url)).current().table
    condition = condition_of(ds.EqualTo(("a",), 7), metadata)
    assert condition is not None
    assert condition.column == "a#2"  # type: ignore[union-attr]


def test_times_finer_than_microseconds_are_an_error_or_cut(tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    times = pa.array([1_000, 2_001], pa.timestamp("ns"))
    Table.create(url, pa.table({"n": [1, 2], "at": times}), sort_by="n")
    with refuses(DataError):
        read_all(url)
    assert [row["at"].microsecond for row in read_all(url, nanoseconds="cut")] == [1, 2]
    source = FragmentsDataSource({"path": url, "single_use": "true", "nanoseconds": "cut"})
    reader = source.reader(source.schema())
    asked = ds.EqualTo(("at",), EPOCH + datetime.timedelta(microseconds=2))
    assert reader.pushFilters([asked]) == [asked]


@pytest.mark.parametrize(
    ("far", "shown"),
    [
        (2**62, "+146138514283-06-19T07:45:04"),
        (10**14, "+3170843-11-07T09:46:40"),
        (-(10**14), "-3166904-02-24T14:13:20"),
    ],
    ids=str,
)
def test_cutting_nanoseconds_leaves_the_times_beside_them_as_they_are(
    tmp_path: Path, far: int, shown: str
) -> None:
    near = pa.array([7], pa.timestamp("s"))
    fine = pa.array([2_001], pa.timestamp("ns"))
    for place, seconds in enumerate([near, pa.array([far], pa.timestamp("s"))]):
        both = pa.StructArray.from_arrays([fine, seconds], ["fine", "s"])
        rows = pa.table({"n": [1], "at": pa.ListArray.from_arrays([0, 1], both)})
        url = Table.create(tmp_path / str(place), rows, sort_by="n").url
        if place == 0:
            assert read_all(url, nanoseconds="cut")[0]["at"] == [
                {"fine": EPOCH.replace(tzinfo=None) + datetime.timedelta(microseconds=2),
                 "s": EPOCH.replace(tzinfo=None) + datetime.timedelta(seconds=7)}
            ]  # fmt: skip
            continue
        with refuses(DataError, shown):
            read_all(url, nanoseconds="cut")


def test_columns_that_spark_has_no_type_for_can_be_left_out(tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    spans = pa.array([pa.MonthDayNano([1, 2, 3])], pa.month_day_nano_interval())
    Table.create(url, pa.table({"n": [1], "span": spans, "t": ["x"]}), sort_by="n")
    with refuses(UsageError):
        read_all(url)
    assert read_all(url, columns="n,t") == [{"n": 1, "t": "x"}]


MISTAKES: list[dict[str, str]] = [
    {"path": ""},
    {"versoin": "1"},
    {"version": "x"},
    {"as_of": "x"},
    {"as_of": "9" * 400 + "d"},
    {"as_of": "0001-01-01T00:00:00+14:00"},
    {"version": "9" * 400},
    {"version": "1", "as_of": "1h"},
    {"nanoseconds": "round"},
    {"task_bytes": "x"},
    {"columns": "N"},
    {"columns": "n,n"},
    {"columns": " ,"},
    {"version": "1.5"},
    {"version": "0"},
    {"single_use": "maybe"},
    {"paths": '["a","b"]'},
    {"owner": "me"},
    {"sort_by": "n"},
    {"where": "n ~ 1"},
]


@pytest.mark.parametrize("options", MISTAKES)
def test_mistakes_in_options_of_reads_are_one_line(options: dict[str, str], tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    Table.create(url, pa.table({"n": [1]}), sort_by="n")
    given = {"path": url, **options}
    with refuses(UsageError) as caught:
        FragmentsDataSource({name: text for name, text in given.items() if text}).schema()
    assert "\n" not in str(caught.value)


def test_a_schema_that_is_given_names_columns_of_the_table_each_once(tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    Table.create(url, pa.table({"n": [1], "size": [2]}), sort_by="n")
    source = FragmentsDataSource({"path": url})
    for name in ("N", "n"):
        with refuses(UsageError, f"'{name}'"):
            source.reader(StructType([StructField(name, LongType()), StructField("n", LongType())]))


OLD = datetime.datetime(1582, 10, 16, 23, 59, 59)


@pytest.mark.parametrize("make", [ds.EqualTo, ds.LessThan, ds.GreaterThanOrEqual, ds.In])
def test_filters_by_days_that_javas_old_calendar_lacks_or_may_stand_for_are_left_to_spark(
    make: Any,
) -> None:
    store = MemoryStore()
    at = pa.array([OLD], pa.timestamp("us", "UTC"))
    table = pa.table(
        {"n": [0], "at": at, "local": at.cast(pa.timestamp("us")), "day": [OLD.date()]}
    )
    metadata = append_table(store, table, "n").current().table
    for name, value in (
        ("day", OLD.date()),
        ("local", OLD),
        ("at", OLD.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-5)))),
    ):
        second, days = datetime.timedelta(seconds=1), datetime.timedelta(days=1)
        earlier = value - 1000 * days
        later = value + (days if name == "day" else second)
        if name == "at":
            later, value = value, OLD.replace(tzinfo=datetime.UTC)
        as_list = (lambda v: (v,)) if make is ds.In else (lambda v: v)
        for old in (value, earlier):
            assert condition_of(make((name,), as_list(old)), metadata) is None
            assert condition_of(ds.Not(make((name,), as_list(old))), metadata) is None
        assert condition_of(make((name,), as_list(later)), metadata) is not None


@pytest.mark.parametrize("options", [{}, {"as_of": "0s"}], ids=str)
def test_all_queries_of_what_was_loaded_by_a_schema_have_one_version(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = Table.create(tmp_path / "t", pa.table({"n": [1, 2, 3]}), sort_by="n")
    schema = StructType([StructField("n", LongType())])
    source = pickle.dumps(FragmentsDataSource({"path": table.url, **options}))
    table.append(pa.table({"n": [4]}))
    for _ in range(2):
        reader = pickle.loads(source).reader(schema)
        [partition] = reader.partitions()
        assert sum(batch.num_rows for batch in reader.read(partition)) == 3


def test_a_task_reads_in_as_many_threads_as_it_has_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.create(tmp_path / "t", pa.table({"n": range(1_000)}), "n")
    expected = read_all(table.url)
    asked = []

    def reading(*arguments: Any, threads: int) -> Any:
        asked.append(threads)
        return read_parts(*arguments, threads=threads)

    monkeypatch.setattr("compactor.spark.source.read.read_parts", reading)
    assert read_all(table.url) == expected
    context = SimpleNamespace(get=lambda: SimpleNamespace(cpus=lambda: 3))
    monkeypatch.setattr("pyspark.TaskContext", context)
    assert read_all(table.url) == expected
    assert asked == [1, 3]
