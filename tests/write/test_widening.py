"""Columns whose type becomes wider: old fragments stay as they are, and are read as the new type."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor import Table
from compactor.errors import InputError
from compactor.files.stream import StreamBatches
from compactor.read.verify import verify
from compactor.settings.compaction import CompactionSettings, Strategy
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.write.file_schema import OnConflict
from compactor.write.ingest import IngestOptions, commit_fragments, plan_ingest, write_fragments
from lsm_fragment.arrays.cast import widened
from lsm_fragment.arrays.hashing import column_contributions
from lsm_fragment.arrays.widening import widens_to
from lsm_fragment.container.writer import WriterOptions
from tests.support.loops import loops
from tests.support.samples import SAMPLES, sample_array
from tests.support.tables import compact_table
from tests.support.wording import refuses

INTS = [f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")]
OPTIONS = IngestOptions(writer=WriterOptions(max_rows=4))


def wide(name: str) -> pa.DataType:
    return getattr(pa, name)()


@pytest.mark.parametrize(
    ("table", "file", "expected"),
    [
        ("int32", "int64", "int64"),
        ("int64", "int32", "int64"),
        ("int8", "uint8", "int16"),
        ("uint32", "int8", "int64"),
        ("float32", "float64", "float64"),
        ("float16", "float32", "float32"),
        ("string", "large_string", "string"),
        ("binary", "large_binary", "binary"),
    ],
)
def test_a_column_takes_the_narrowest_type_that_holds_both(
    tmp_path: Path, table: str, file: str, expected: str
) -> None:
    def rows(dtype: str) -> pa.Table:
        values: list[Any] = ["a", "b", None] if "string" in dtype else [b"x", b"", None]
        values = [1, 0, None] if "int" in dtype or "float" in dtype else values
        return pa.table({"k": [3, 1, 2], "v": pa.array(values, wide(dtype))})

    made = Table.create(str(tmp_path / "t"), rows(table), "k")
    made.append(rows(file))
    assert made.schema.field("v").type == wide(expected)
    assert made.scan().to_table()["v"].type == wide(expected)


@pytest.mark.parametrize(
    ("table", "file"),
    [("int64", "uint64"), ("int64", "float64"), ("float64", "int64"), ("int32", "string")],
)
def test_types_that_no_type_holds_both_of_are_refused(
    tmp_path: Path, table: str, file: str
) -> None:
    one = pa.table({"k": [1], "v": pa.array([1], wide(table))})
    other = pa.table({"k": [1], "v": pa.array([1 if file != "string" else "1"], wide(file))})
    made = Table.create(str(tmp_path / "t"), one, "k")
    with refuses(InputError, file.replace("float64", "double")):
        made.append(other)
    assert len(Table.open(made.url)) == 1


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["int8", "int16", "uint8", "int32"]), min_size=2, max_size=5),
    st.integers(0, 9),
)
def test_fragments_of_many_widths_are_merged_and_read_as_the_widest(
    tmp_path_factory: pytest.TempPathFactory, types: list[str], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    url = str(tmp_path_factory.mktemp("widths") / "t")
    expected: list[tuple[Any, ...]] = []
    for number, dtype in enumerate(types):
        info = np.iinfo(dtype)
        keys = pa.array(rng.integers(max(info.min, -50), min(50, info.max), 12), wide(dtype))
        values = rng.choice([info.min, info.max, 0, 7], 12).astype(dtype)
        rows = pa.table(
            {
                "k": keys,
                "v": pa.array(values, wide(dtype), mask=rng.random(12) < 0.2),
                "x": pa.array(
                    [n / 4 for n in range(12)], pa.float64() if number % 2 else pa.float32()
                ),
                "word": pa.array(
                    ["a", "b", "c"] * 4, pa.large_string() if number == 1 else pa.string()
                ),
            }
        )
        table = Table.open(url) if number else None
        if table is None:
            Table.create(url, rows, "k", OPTIONS)
        else:
            table.append(rows, OPTIONS)
        expected += list(zip(*rows.to_pydict().values(), strict=True))
    table = Table.open(url)
    before = table.scan().to_table()
    found = [tuple(row.values()) for row in before.to_pylist()]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert [row[0] for row in found] == sorted(row[0] for row in found)
    assert table.scan(where="v = 7").to_table().num_rows == sum(row[1] == 7 for row in expected)
    gone = table.delete("v = 0").rows
    assert gone == sum(row[1] == 0 for row in expected)
    left = table.scan().to_table()
    store = LocalStore(Path(url))
    report = compact_table(
        store, CompactionSettings(max_rows_per_row_group=5), strategy=Strategy.FULL
    )
    assert not report.failed
    table.refresh()
    assert table.scan().to_table().to_pylist() == left.to_pylist()
    assert verify(store, CommitLog(store).current()).faults == []
    assert Table.open(url, version=1).schema.field("v").type == wide(types[0])


@loops("name", SAMPLES)
def test_a_wider_type_has_the_same_row_hash(name: str) -> None:
    array = sample_array(name, 50)
    targets = [
        *(wide(i) for i in INTS), pa.float32(), pa.float64(), pa.large_string(), pa.large_binary(),
        *(pa.decimal128(38, s) for s in range(10)), *(pa.decimal256(76, s) for s in range(10)),
    ]  # fmt: skip
    for target in targets:
        if widens_to(array.type, target):
            other = widened(array, target)
            assert other.type == target
            one = column_contributions("c", array)
            assert column_contributions("c", other).tolist() == one.tolist(), target


def test_writers_that_widen_at_one_time_agree_on_the_widest(tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    Table.create(url, pa.table({"k": [1], "v": pa.array([1], pa.int8())}), "k")
    one, other = Table.open(url), Table.open(url)
    one.append(pa.table({"k": [2], "v": pa.array([300], pa.int16())}))
    other.append(pa.table({"k": [3], "v": pa.array([70_000], pa.int32())}))
    one.append(pa.table({"k": [4], "v": pa.array([5], pa.int8())}))
    assert one.schema.field("v").type == pa.int32()
    assert one.scan().to_table()["v"].to_pylist() == [1, 300, 70_000, 5]


FAR = 2**62
"""Milliseconds for which microseconds have no place."""


def times(unit: str, *values: int | None, first: int = 1) -> pa.Table:
    keys = range(first, first + len(values))
    return pa.table({"k": keys, "at": pa.array(values, pa.timestamp(unit))})


def numbers(table: Table) -> list[int | None]:
    return list(Table.open(table.url).scan().to_table()["at"].cast(pa.int64()).to_pylist())


def test_a_finer_unit_is_refused_while_a_value_has_no_place_in_it(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", times("ms", 5, FAR, None), "k")
    finer = times("us", 1, first=10)
    with refuses(InputError, "column 'at'", FAR):
        table.append(finer)
    assert numbers(table) == [5, FAR, None]
    table.append(times("ms", 7, first=4))
    table.append(times("s", 2, first=5))
    assert numbers(table) == [5, FAR, None, 7, 2000]
    table.delete("k = 2")
    with pytest.raises(InputError):
        table.append(finer)  # the row is still in its fragment
    store = LocalStore(tmp_path / "t")
    assert not compact_table(store, strategy=Strategy.FULL).failed
    table.append(finer)
    assert numbers(table) == [5000, None, 7000, 2_000_000, 1]
    assert (
        Table.open(table.url, version=1).scan().to_table()["at"].cast(pa.int64())[1].as_py() == FAR
    )
    assert verify(store, CommitLog(store).current()).faults == []


@pytest.mark.parametrize("value", [FAR, -FAR])
@pytest.mark.parametrize(("planned", "meanwhile"), [("us", "ms"), ("ms", "us")])
def test_a_value_that_comes_between_plan_and_commit_of_a_finer_unit_is_not_lost(
    tmp_path: Path, planned: str, meanwhile: str, value: int
) -> None:
    """Whoever commits first, the other is refused: by the fragments that are there then."""
    table = Table.create(tmp_path / "t", times("ms", 5), "k")
    store = LocalStore(tmp_path / "t")
    log = CommitLog(store)
    snapshot = log.refresh()
    rows = {"ms": times("ms", value, first=10), "us": times("us", 1, first=20)}
    with StreamBatches(rows[planned], 1 << 20) as batches:
        plan = plan_ingest(log, snapshot, batches.schema, batches.path, None, OPTIONS)
        written = write_fragments(store, plan, batches, "a" * 32)
    table.append(rows[meanwhile])
    before = numbers(table)
    with refuses(InputError, value):
        commit_fragments(log, snapshot, plan, written.entries)
    assert numbers(table) == before
    assert len(Table.open(table.url)) == 2


def test_rows_that_replace_all_others_may_have_a_finer_unit(tmp_path: Path) -> None:
    Table.create(tmp_path / "t", times("ms", FAR), "k")
    store = LocalStore(tmp_path / "t")
    log = CommitLog(store)
    snapshot = log.refresh()
    with StreamBatches(times("us", 1), 1 << 20) as batches:
        plan = plan_ingest(log, snapshot, batches.schema, batches.path, None, OPTIONS)
        written = write_fragments(store, plan, batches, "a" * 32)
    commit_fragments(
        log,
        snapshot,
        plan,
        written.entries,
        amend=lambda latest, changes: replace(
            changes, removes=tuple(entry.key for entry in latest.fragments.all())
        ),
    )
    assert Table.open(tmp_path / "t").scan().to_table()["at"].cast(pa.int64()).to_pylist() == [1]


@pytest.mark.parametrize(
    ("dtype", "number", "text"),
    [
        (pa.timestamp("s"), -62_167_219_201, "-0001-12-31T23:59:59"),
        (pa.timestamp("s"), -62_167_219_200, "0000-01-01T00:00:00"),
        (pa.timestamp("s"), 253_402_300_800, "+10000-01-01T00:00:00"),
        (pa.timestamp("us", "UTC"), 253_402_300_800_000_000, "+10000-01-01T00:00:00.000000Z"),
        (pa.timestamp("us", "Europe/Vienna"), -(2**63), "-290308-12-21T19:59:05.224192Z"),
        (pa.timestamp("ns", "Asia/Kolkata"), 2**63 - 1, "2262-04-11T23:47:16.854775807Z"),
        (pa.date32(), -719_529, "-0001-12-31"),
        (pa.date64(), 2_932_897 * 86_400_000, "+10000-01-01"),
    ],
)
def test_a_date_of_any_year_becomes_text_with_its_column(
    tmp_path: Path, dtype: pa.DataType, number: int, text: str
) -> None:
    options = dataclasses.replace(OPTIONS, on_conflict=OnConflict.STRING)
    bits = pa.int32() if dtype.bit_width == 32 else pa.int64()
    rows = pa.table({"k": [1], "at": pa.array([number], bits).view(dtype)})
    other = pa.table({"k": [2], "at": ["x"]})
    for first, second in ((rows, other), (other, rows)):
        table = Table.create(tmp_path / f"{first is rows}", first, "k")
        table.append(second, options)
        assert Table.open(table.url).scan().to_table()["at"].to_pylist() == [text, "x"]


@pytest.mark.parametrize("key", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (pa.decimal128(10, 2), pa.decimal128(5, 2), pa.decimal128(10, 2)),
        (pa.decimal128(5, 2), pa.decimal128(10, 2), pa.decimal128(10, 2)),
        (pa.decimal64(15, 2), pa.decimal128(10, 2), pa.decimal128(15, 2)),
        (pa.decimal128(10, 2), pa.decimal32(5, 2), pa.decimal128(10, 2)),
        (pa.decimal32(9, 2), pa.decimal256(9, 2), pa.decimal256(9, 2)),
        (pa.float32(), pa.int32(), pa.float64()),
        (pa.float16(), pa.int16(), pa.float32()),
    ],
)
def test_the_order_of_two_writers_does_not_decide_whether_both_fit(
    tmp_path: Path, first: pa.DataType, second: pa.DataType, both: pa.DataType, *, key: bool
) -> None:
    parts = [pa.table({"k": [n], "v": pa.array([n], pa.int8()).cast(dtype)})
             for n, dtype in ((1, first), (2, second), (3, first), (4, second))]  # fmt: skip
    table = Table.create(tmp_path / "t", parts[0], "v" if key else "k")
    for part in parts[1:]:
        table.append(part)
    found = Table.open(table.url).scan().to_table()["v"]
    assert found.type == both
    assert [float(value) for value in found.to_pylist()] == [1, 2, 3, 4]
