"""Every type of the format into every kind of file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import InputError
from compactor.files.jsontext import json_lines
from compactor.files.read import open_table_file
from compactor.files.write import open_table_sink
from tests.support.loops import loops
from tests.support.samples import SAMPLES, sample_array

PARQUET_CANNOT = {"interval", "duration", "float16"}


def read_back(path: Path, known: pa.Schema | None = None) -> pa.Table:
    with open_table_file(str(path), known) as file:
        return pa.Table.from_batches(list(file), file.schema)


def write(path: Path, table: pa.Table, rows: int = 3) -> None:
    with open_table_sink(str(path), table.schema) as sink:
        for batch in table.to_batches(max_chunksize=rows):
            sink.write(batch)


@loops("name", SAMPLES)
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_columnar_files_keep_every_type_they_can_hold(
    name: str, ending: str, tmp_path: Path
) -> None:
    array = sample_array(name, 3)
    table = pa.table({"v": array})
    folder = tmp_path / name
    folder.mkdir()
    path = folder / f"f.{ending}"
    try:
        write(path, table)
    except InputError as error:
        assert "Parquet can't hold" in str(error)
        assert ending == "parquet"
        assert name in PARQUET_CANNOT
        assert list(folder.iterdir()) == []
        return
    assert repr(read_back(path)["v"].to_pylist()) == repr(table["v"].to_pylist())


@loops("name", SAMPLES)
def test_every_type_becomes_one_json_value_a_row(name: str) -> None:
    array = sample_array(name, 2)
    lines = json_lines(pa.record_batch({"v": array})).decode().split("\n")
    assert lines.pop() == ""
    values = [json.loads(line)["v"] for line in lines]
    nan_or_null = {
        i
        for i, v in enumerate(array.to_pylist())
        if v is None or v in (float("inf"), float("-inf"))
    }
    assert {i for i, value in enumerate(values) if value is None} == nan_or_null


@loops("name", SAMPLES)
def test_every_type_goes_into_csv(name: str, tmp_path: Path) -> None:
    array = sample_array(name, 2)
    write(tmp_path / "f.csv", pa.table({"v": array, "end": ["x"] * len(array)}))
    back = read_back(tmp_path / "f.csv")
    assert back["end"].to_pylist() == ["x"] * len(array)
    assert back["v"].null_count == array.null_count


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.text(), min_size=1, max_size=8))
def test_any_text_survives_ndjson(
    tmp_path_factory: pytest.TempPathFactory, values: list[str | None]
) -> None:
    path = tmp_path_factory.mktemp("t") / "f.ndjson"
    schema = pa.schema([("row", pa.int64()), ("v", pa.string())])
    write(path, pa.table([list(range(len(values))), values], schema=schema))
    assert [json.loads(line)["v"] for line in path.read_text().split("\n")[:-1]] == values
    assert read_back(path, schema)["v"].to_pylist() == values
