"""Users' files: every type into every format, and text back with the types it had."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import InputError
from compactor.files import ndjson
from compactor.files.jsontext import json_lines
from compactor.files.read import open_table_file
from compactor.files.write import open_table_sink
from tests.support.samples import SAMPLES, sample_array

PARQUET_CANNOT = {"interval", "duration", "float16"}


def read_back(path: Path, known: pa.Schema | None = None) -> pa.Table:
    with open_table_file(str(path), known) as file:
        return pa.Table.from_batches(list(file), file.schema)


def write(path: Path, table: pa.Table, rows: int = 3) -> None:
    with open_table_sink(str(path), table.schema) as sink:
        for batch in table.to_batches(max_chunksize=rows):
            sink.write(batch)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_columnar_files_keep_every_type_they_can_hold(
    name: str, ending: str, tmp_path: Path
) -> None:
    array = sample_array(name, 3)
    table = pa.table({"v": array})
    path = tmp_path / f"f.{ending}"
    try:
        write(path, table)
    except InputError as error:
        assert "cannot hold the data" in str(error)
        assert ending == "parquet"
        assert name in PARQUET_CANNOT
        assert list(tmp_path.iterdir()) == []
        return
    assert repr(read_back(path)["v"].to_pylist()) == repr(table["v"].to_pylist())


@pytest.mark.parametrize("name", SAMPLES)
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


@pytest.mark.parametrize("name", SAMPLES)
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


def test_types_of_ndjson_come_from_all_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ndjson, "BLOCK_BYTES", 64)
    rows = [{"k": n, "late": None} for n in range(20)] + [
        {"k": 0.5, "late": {"x": 1}, "new": ["a"]}
    ]
    path = tmp_path / "f.ndjson"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = read_back(path)
    assert table.schema.types == [
        pa.float64(),
        pa.struct([("x", pa.int64())]),
        pa.list_(pa.string()),
    ]
    assert table.num_rows == 21
    assert table["k"].to_pylist()[-1] == 0.5


def test_a_conflict_between_blocks_names_lines_and_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ndjson, "BLOCK_BYTES", 32)
    path = tmp_path / "f.ndjson"
    path.write_text('{"k":1}\n' * 20 + '{"k":"text"}\n' * 20)
    with pytest.raises(InputError, match=r"f\.ndjson: line.*'k'|f\.ndjson: line"):
        read_back(path)


def test_a_line_longer_than_a_block_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ndjson, "BLOCK_BYTES", 100)
    path = tmp_path / "f.ndjson"
    path.write_text('{"k":"' + "x" * 5_000 + '"}\n{"k":"y"}')
    assert [len(value) for value in read_back(path)["k"].to_pylist()] == [5_000, 1]


@pytest.mark.parametrize(
    ("texts", "dtype"),
    [
        (["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.123456Z"], pa.timestamp("us", "UTC")),
        (["2024-01-01 00:00:00+02:00", "2024-01-01T00:00:00Z"], pa.timestamp("us", "UTC")),
        (["2024-01-01T00:00:00", "2024-01-01 10:00:00.5"], pa.timestamp("us")),
        (["2024-01-01T00:00:00Z", "2024-01-01T00:00:00"], pa.string()),
        (["2024-01-01T00:00:00Z", "soon"], pa.string()),
        (["2024-13-01T00:00:00Z"], pa.string()),
        (["2024-01-01T00:00:00.123456789Z"], pa.string()),
    ],
)
@pytest.mark.parametrize("ending", ["ndjson", "csv"])
def test_text_is_a_time_only_if_all_of_it_is(
    texts: list[str], dtype: pa.DataType, ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"f.{ending}"
    if ending == "csv":
        path.write_text("t,x\n" + "".join(f"{text},1\n" for text in texts))
    else:
        path.write_text("".join(json.dumps({"t": text}) + "\n" for text in texts))
    assert read_back(path).schema.field("t").type == dtype


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("old")
    with (
        pytest.raises(RuntimeError),
        open_table_sink(str(path), pa.schema([("k", pa.int8())])) as sink,
    ):
        sink.write(pa.record_batch({"k": pa.array([1], pa.int8())}))
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_small_batches_do_not_become_small_parquet_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    write(path, pa.table({"k": list(range(1_000))}), rows=7)
    assert pq.ParquetFile(path).num_row_groups == 1
