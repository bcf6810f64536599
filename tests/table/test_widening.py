"""Columns whose type becomes wider: old fragments stay as they are, and are read as the new type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor import Table
from compactor.config import CompactionSettings, Strategy
from compactor.errors import InputError
from compactor.ingest import IngestOptions
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.verify import verify
from format.hashing import column_contributions
from format.types import widened, widens_to
from format.writer import WriterOptions
from tests.support.samples import SAMPLES, sample_array
from tests.support.tables import compact_table

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
    with pytest.raises(InputError, match=f"column 'v' is {file.replace('float64', 'double')}"):
        made.append(other)
    assert len(Table.open(made.url)) == 1


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


@pytest.mark.parametrize("name", SAMPLES)
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
            for version in (1, 2):
                one = column_contributions("c", array, version)
                assert column_contributions("c", other, version).tolist() == one.tolist(), target


def test_writers_that_widen_at_one_time_agree_on_the_widest(tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    Table.create(url, pa.table({"k": [1], "v": pa.array([1], pa.int8())}), "k")
    one, other = Table.open(url), Table.open(url)
    one.append(pa.table({"k": [2], "v": pa.array([300], pa.int16())}))
    other.append(pa.table({"k": [3], "v": pa.array([70_000], pa.int32())}))
    one.append(pa.table({"k": [4], "v": pa.array([5], pa.int8())}))
    assert one.schema.field("v").type == pa.int32()
    assert one.scan().to_table()["v"].to_pylist() == [1, 300, 70_000, 5]
