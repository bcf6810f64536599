"""Tables do not keep the order of a dictionary's values, so none of their columns says that it is ordered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor import Policy, Strategy, Table
from lsm_fragment import open_fragment

ORDERED: Final = pa.dictionary(pa.int8(), pa.string(), ordered=True)
TYPE: Final = pa.dictionary(pa.int32(), pa.string())
LEVELS: Final = ["warm", "low", "high", None, "low"]


def rows(start: int) -> pa.Table:
    """Returns rows whose levels are ordered as they were declared, which is not the order of their texts."""
    indices = pa.array([1, 0, 2, None, 0], pa.int8())
    level = pa.DictionaryArray.from_arrays(indices, ["low", "warm", "high"], ordered=True)
    assert level.type == ORDERED
    within = pa.ListArray.from_arrays(pa.array(range(6), pa.int32()), level)
    keys = pa.array(range(start, start + 5), pa.int64())
    return pa.table({"k": keys, "level": level, "within": within})


def from_memory(_: Path) -> pa.Table:
    return rows(0)


def from_arrow(folder: Path) -> str:
    with pa.ipc.new_file(folder / "in.arrow", rows(0).schema) as sink:
        sink.write_table(rows(0))
    return str(folder / "in.arrow")


def from_parquet(folder: Path) -> str:
    pq.write_table(rows(0), folder / "in.parquet")
    return str(folder / "in.parquet")


@pytest.mark.parametrize("source", [from_memory, from_arrow, from_parquet])
def test_a_table_drops_the_flag_wherever_rows_come_from(
    tmp_path: Path, source: Callable[[Path], pa.Table | str]
) -> None:
    table = Table.create(str(tmp_path / "t"), source(tmp_path), "k")
    assert table.schema.field("level").type == TYPE
    assert table.schema.field("within").type.value_type == TYPE
    table.append(rows(5))
    for _ in range(2):
        found = table.scan().to_table()
        assert found.schema.field("level").type == TYPE
        assert not any(chunk.type.ordered for chunk in found["level"].chunks)
        assert found["level"].to_pylist() == LEVELS * 2
        assert found["within"].to_pylist() == [[level] for level in LEVELS * 2]
        table.compact(policy=Policy(strategy=Strategy.FULL))


@pytest.mark.parametrize("ending", ["arrow", "parquet", "frag"])
def test_exports_and_what_is_made_of_them_have_no_flag(tmp_path: Path, ending: str) -> None:
    table = Table.create(str(tmp_path / "t"), rows(0), "k")
    file = str(tmp_path / f"out.{ending}")
    table.scan().to_file(file)
    again = Table.create(str(tmp_path / "again"), file, "k")
    assert again.schema.field("level").type == TYPE
    assert again.scan(["level"]).to_table()["level"].to_pylist() == LEVELS
    if ending == "frag":
        assert open_fragment(file).schema.field("level").type == TYPE
