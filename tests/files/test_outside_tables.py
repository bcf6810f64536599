"""Tables of arrays as others make them: appended twice, compacted, scanned, exported, and taken in again from
their own exports, bit by bit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from compactor import Policy, Strategy, Table
from compactor.errors import InputError
from tests.support.bits import bits_of, rows_of
from tests.support.outside import any_array, any_type

SEEDS = 40
ENDINGS = ("parquet", "arrow", "frag")


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Executor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


def check_table(rows: pa.Table) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = Table.create(folder / "t", rows, "row")
        table.append(rows)
        twice = rows_of(pa.concat_tables([rows, rows]), "row")
        nulls = 2 * bits_of(rows["v"]).count(None)
        for _ in range(2):
            assert rows_of(table.scan().to_table(), "row") == twice
            assert table.scan(["row"], where="v IS NULL").to_table().num_rows == nulls
            assert table.verify().faults == []
            table.compact(policy=Policy(strategy=Strategy.FULL))
        for ending in ENDINGS:
            path = folder / f"rows.{ending}"
            try:
                table.scan().to_file(path)
            except InputError as error:
                assert ending == "parquet"
                assert "column 'v'" in str(error)
                continue
            again = Table.create(folder / ending, path)
            assert again.schema == table.schema
            assert rows_of(again.scan().to_table(), "row") == twice
            again.append(path)
            assert rows_of(again.scan().to_table(), "row") == rows_of(
                pa.concat_tables([rows] * 4), "row"
            )


def check_seed(seed: int) -> None:
    random = np.random.default_rng(seed)
    dtype = any_type(random)
    counts = [int(count) for count in random.integers(0, 7, 3)]
    chunks = [any_array(random, dtype, count) for count in counts]
    values = pa.chunked_array(chunks, dtype)
    check_table(pa.table({"row": pa.array(range(sum(counts)), pa.int64()), "v": values}))


@pytest.mark.long
def test_tables_of_any_type_come_back_bit_by_bit(elsewhere: Executor) -> None:
    for seed in range(SEEDS):
        try:
            elsewhere.submit(check_seed, seed).result()
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


def coded(values: pa.Array, index: pa.DataType | None = None) -> pa.Array:
    indices = pa.array([0, 1, None, 1], index or pa.int8())
    return pa.DictionaryArray.from_arrays(indices, values)


VALUES = [
    pa.array([1, 2], pa.duration("s")),
    pa.array([1, 2], pa.timestamp("us", "Europe/Berlin")),
    pa.array([1, 2], pa.timestamp("s", "Europe/Berlin")),
    pa.array(["a", "b"], pa.string_view()),
    pa.array([b"a", b"b"], pa.binary_view()),
    *(pa.array([Decimal("1.5"), Decimal("2.5")], dtype)
      for dtype in (pa.decimal32(5, 1), pa.decimal64(15, 1), pa.decimal128(30, 1), pa.decimal256(60, 1))),
    pa.array([{"a": 1}, {"a": None}]),
    pa.array([[1], [None, 2]]),
    pa.array([[1, 2], [None, 3]], pa.list_(pa.int8(), 2)),
    pa.array([[("a", 1)], []], pa.map_(pa.field("k", pa.string(), False), pa.field("v", pa.int8()))),
    pa.array(np.array([0.0, -0.0], np.float16)),
    pa.array(["a", "b"]).dictionary_encode(),
    pa.array(["a", None]),
]  # fmt: skip


def check_value(place: int) -> None:
    array = coded(VALUES[place])
    beside = pa.StructArray.from_arrays(
        [pa.array([{}] * 4, pa.struct([])), array], names=["nothing", "v"]
    )
    shapes = {
        "alone": array,
        "in a list": pa.ListArray.from_arrays([0, 1, 4], array),
        "in a list view": pa.ListViewArray.from_arrays([1, 0], [3, 2], array),
        "in a fixed list": pa.FixedSizeListArray.from_arrays(array, 2),
        "beside nothing": beside,
    }
    for shape, values in shapes.items():
        try:
            check_table(pa.table({"row": range(len(values)), "v": values}))
        except BaseException as error:
            raise AssertionError(shape) from error


@pytest.mark.long
@pytest.mark.parametrize("place", range(len(VALUES)), ids=[str(v.type) for v in VALUES])
def test_dictionaries_of_any_values_come_back_in_any_place(elsewhere: Executor, place: int) -> None:
    elsewhere.submit(check_value, place).result()


def test_a_sort_key_whose_dictionary_has_a_null_value_is_sorted_as_null(tmp_path: Path) -> None:
    key = pa.array(["b", None, "a"]).dictionary_encode(null_encoding="encode")
    table = Table.create(tmp_path / "t", pa.table({"k": key}), "k:desc:nulls_first")
    assert table.scan().to_table()["k"].to_pylist() == [None, "b", "a"]
    assert table.verify().faults == []
