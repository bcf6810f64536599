"""Types that Arrow lacks: the column is named, and nothing is said of damage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.errors import InputError
from compactor.files import columnar
from compactor.files.foreign_types import refuse_dropped_types
from tests.files.reading import refusal, table_of
from tests.support.wording import refuses

FRAMES = {
    "column": pl.DataFrame({"k": [1], "v": pl.Series([1], dtype=pl.Int128)}),
    "list": pl.DataFrame({"k": [1], "v": pl.Series([[1]], dtype=pl.List(pl.Int128))}),
    "struct": pl.DataFrame({"k": [1], "v": pl.Series([{"a.b": 1}], dtype=pl.Struct({"a.b": pl.Int128}))}),
    "long name": pl.DataFrame({"x" * 300: [1], "v": pl.Series([1], dtype=pl.Int128)}),
}  # fmt: skip


def write(frame: pl.DataFrame, path: Path) -> str:
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.name.startswith("stream"):
        frame.write_ipc_stream(path)
    else:
        frame.write_ipc(path)
    return str(path)


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
@pytest.mark.parametrize("kind", FRAMES)
def test_integers_of_128_bits_are_refused_by_their_column(
    tmp_path: Path, kind: str, name: str
) -> None:
    message = refusal(write(FRAMES[kind], tmp_path / name))
    assert "column 'v' has integers of 128 bits" in message
    assert "damaged" not in message


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_a_damaged_schema_is_refused_all_the_same(tmp_path: Path, name: str) -> None:
    path = Path(write(FRAMES["struct"], tmp_path / name))
    data, rng = path.read_bytes(), random.Random(name)
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 4))):
            damaged[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            table_of(str(path))
        except InputError as error:
            assert "\n" not in str(error)


def test_columns_beside_can_be_read_once_the_column_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    FRAMES["column"].drop("v").write_parquet(path)
    assert table_of(str(path)).to_pylist() == [{"k": 1}]
    assert pq.read_schema(path).names == ["k"]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("INTERVAL 1 DAY", "INTERVAL"),
        ("{'a.b': [INTERVAL 1 DAY]}", "INTERVAL"),
        ("MAP {'a': INTERVAL 1 DAY}", "INTERVAL"),
        ("42::VARIANT", "VARIANT"),
        ("'x'::VARIANT", "VARIANT"),
    ],
)
def test_types_of_parquet_that_arrow_drops_are_refused_by_their_column(
    tmp_path: Path, value: str, dtype: str
) -> None:
    path = str(tmp_path / "a.parquet")
    duckdb.sql(f"COPY (SELECT 1 AS k, {value} AS v) TO '{path}'")
    assert f"column 'v' has the type {dtype} of Parquet" in refusal(path)
    assert table_of(path, columns=["k"]).to_pylist() == [{"k": 1}]


def test_a_field_of_the_same_name_in_another_column_is_no_hindrance() -> None:
    """Only the text of the schema is made up: no writer at hand makes both kinds of such fields."""

    class Schema:
        def to_arrow_schema(self) -> pa.Schema:
            return pa.schema({"p": pa.struct([("x", pa.binary(12))]), "x": pa.binary(12)})

        def __str__(self) -> str:
            return (
                "required group field_id=-1 schema {\n"
                "  optional group field_id=-1 p {\n"
                "    optional fixed_len_byte_array(12) field_id=-1 x;\n"
                "  }\n"
                "  optional fixed_len_byte_array(12) field_id=-1 x (Interval);\n"
                "}\n"
            )

    schema = cast(Any, Schema())
    columns = schema.to_arrow_schema()
    refuse_dropped_types("a", schema, columns.remove(1))
    with refuses(InputError, "column 'x' has the type INTERVAL"):
        refuse_dropped_types("a", schema, columns)


def test_columns_that_only_look_like_such_types_are_taken(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "bytes": pa.array([b"123456789012"], pa.binary(12)),
            "parts": [{"metadata": b"m", "value": b"v"}],
        }
    )
    pq.write_table(rows, tmp_path / "a.parquet")
    assert table_of(str(tmp_path / "a.parquet")).to_pylist() == rows.to_pylist()


def test_a_column_that_arrow_cannot_decode_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"k": [1], "v": [2]}), tmp_path / "a.parquet")
    decoded = columnar._row_group

    def row_group(*arguments: Any) -> Iterator[pa.RecordBatch]:
        columns = arguments[3] if len(arguments) > 3 else None
        if columns is None or "v" in columns:
            raise pa.ArrowNotImplementedError("Nested data conversions not implemented")
        return decoded(*arguments)

    monkeypatch.setattr(columnar, "_row_group", row_group)
    message = refusal(str(tmp_path / "a.parquet"))
    assert "row group 0, column 'v': Arrow lacks a reader for it" in message
    assert "damaged" not in message
