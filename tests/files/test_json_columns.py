"""Columns of the type arrow.json, from text: what an export writes comes back, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compactor import Table
from compactor.errors import InputError
from compactor.files.jsontext import cells_of_json, json_of_cells
from compactor.files.read import open_table_file
from compactor.files.text_values import from_json_texts
from tests.support.wording import refuses

JSON = pa.json_()
TEXTS = [
    '{"a": 1}', "[1, 2.50, 1e400]", '"text"', "123456789012345678901234567890", "-0.0", "true", None,
    '{"b": [{"c": null}], "é": "\\u00e9"}', '"{\\"a\\": 1}"', "[]", '""', '"null"', '" n"',
]  # fmt: skip
STRUCT = pa.struct([("x", JSON), ("in", pa.struct([("y", JSON), ("z", pa.string())]))])
SCHEMA = pa.schema(
    [("k", pa.int64()), ("jsn", JSON), ("plain", pa.string()), ("s", STRUCT), ("l", pa.list_(JSON))]
)


def made_of(texts: list[str | None]) -> pa.Table:
    storage = pa.array(texts, pa.string())
    column = pa.ExtensionArray.from_storage(JSON, storage)
    inner = pa.StructArray.from_arrays([column, storage], fields=[*STRUCT.field("in").type])
    struct = pa.StructArray.from_arrays([column, inner], fields=[*STRUCT])
    offsets = pa.array(range(len(texts) + 1), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, column, type=pa.list_(JSON))
    columns = [pa.array(range(len(texts)), pa.int64()), column, storage, struct, lists]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


@pytest.mark.parametrize("ending", ["ndjson", "ndjson.zst", "csv"])
def test_an_export_comes_back_as_it_was(tmp_path: Path, ending: str) -> None:
    rows = made_of(TEXTS)
    path = tmp_path / f"rows.{ending}"
    table = Table.create(tmp_path / "t", rows, "k")
    table.scan().to_file(path)
    empty = Table.create(tmp_path / "again", rows.slice(0, 0), "k")
    empty.append(path)
    assert empty.scan().to_table() == table.scan().to_table() == rows


def test_a_text_in_a_cell_has_no_quotes_of_json_unless_it_looks_like_json(tmp_path: Path) -> None:
    texts = [
        '"Rome"',
        '"12"',
        "12",
        '"12 km"',
        '"[x"',
        '"true"',
        '""',
        "null",
        '"caf\\u00e9"',
        None,
    ]
    column = pa.ExtensionArray.from_storage(JSON, pa.array(texts, pa.string()))
    path = tmp_path / "rows.csv"
    rows = pa.table({"k": [*range(len(texts))], "v": column})
    Table.create(tmp_path / "t", rows, "k").scan().to_file(path)
    assert path.read_text().splitlines()[1:] == [
        '0,"Rome"', '1,"""12"""', '2,"12"', '3,"12 km"', '4,"""[x"""', '5,"""true"""', '6,""', '7,"null"',
        '8,"""caf\\u00e9"""', "9,",
    ]  # fmt: skip


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(st.text(), inside, max_size=2),
)


@given(st.lists(JSON_VALUES | st.sampled_from(["1", " 1", "null ", '"', "-", "1.", "[", "{"])))
def test_cells_are_read_as_the_json_that_they_were_written_for(values: list[Any]) -> None:
    texts = pa.array([json.dumps(value) for value in values], pa.large_string())
    assert json_of_cells(cells_of_json(texts)) == texts


def test_values_of_rows_that_are_left_out_are_kept_as_json() -> None:
    texts = pa.array(['{"a": 1}', '"x"', "null", None, "[1]"])
    found = from_json_texts(texts, JSON).to_pylist()
    assert found == ['{"a": 1}', '"x"', None, None, "[1]"]


def read(path: Path, lines: str, **options: Any) -> list[dict[str, Any]]:
    path.write_text(lines)
    schema = pa.schema([("k", pa.int64()), ("jsn", JSON)])
    with open_table_file(str(path), schema, **options) as file:
        return [row for batch in file for row in batch.to_pylist()]


def test_every_kind_of_value_in_one_column_beside_new_ones(tmp_path: Path) -> None:
    lines = '{"k":1,"jsn": [1,\t2] ,"new":"2026-01-01"}\r\n\n{"jsn":{"k":"}"},"k":2}\n{"k":3}\n{"jsn":null}'
    rows = read(tmp_path / "r.ndjson", lines, batch_bytes=10)
    assert [row["jsn"] for row in rows] == ["[1,\t2]", '{"k":"}"}', None, None]
    assert [row["k"] for row in rows] == [1, 2, 3, None]
    assert str(rows[0]["new"]) == "2026-01-01"


@pytest.mark.parametrize(
    "bad",
    [
        '{"k":"x","jsn":{}}',
        '{"k":1,"jsn":{}',
        '{"k":1,"jsn":tru}',
        "[1]",
        "5",
        '{"jsn":1}{"jsn":2}',
        '{"jsn":"a","jsn":"b"}',
        '{"jsn":' + "[" * 9999 + "]" * 9999 + "}",
    ],
)
def test_a_mistake_beside_it_is_named_with_its_line(tmp_path: Path, bad: str) -> None:
    good = '{"k":1,"jsn":[{}]}\n'
    with refuses(InputError):
        read(tmp_path / "r.ndjson", good + bad + "\n" + good)
    left = read(tmp_path / "r.ndjson", good + bad + "\n" + good, leaves_out_bad_rows=True)
    assert left == [{"k": 1, "jsn": "[{}]"}] * 2


def test_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    path.write_bytes(b'{"jsn":1}\n{"jsn":"\xff"}\n')
    with refuses(InputError):
        open_table_file(str(path), pa.schema([("jsn", JSON)]))


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=8,
)
OBJECTS = st.lists(
    st.fixed_dictionaries(
        {}, optional={"jsn": ANY, "s": st.none() | st.fixed_dictionaries({}, optional={"x": ANY}), "o": ANY}
    ),
    max_size=6,
)  # fmt: skip


NAMES = st.sampled_from(["jsn", 'quo"ted', "back\\slash", "tab\t", "é"])


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(objects=OBJECTS, ascii_only=st.booleans(), name=NAMES, inner=NAMES)
def test_values_of_json_are_read_as_their_text(
    tmp_path: Path, objects: list[dict[str, Any]], ascii_only: bool, name: str, inner: str
) -> None:
    def text_of(value: object) -> str:
        return json.dumps(value, ensure_ascii=ascii_only)

    def expected(row: dict[str, Any]) -> dict[str, Any]:
        found = row.get("s")
        text = None if row.get("jsn") is None else text_of(row["jsn"])
        within = None if not found or found.get("x") is None else text_of(found["x"])
        return {name: text, "s": None if found is None else {inner: within}}

    def named(row: dict[str, Any]) -> dict[str, Any]:
        renamed: dict[str, Any] = {"o": text_of(row.get("o"))}
        if "jsn" in row:
            renamed[name] = row["jsn"]
        if "s" in row:
            renamed["s"] = row["s"] and dict.fromkeys([inner] * len(row["s"]), row["s"].get("x"))
        return renamed

    lines = "".join(text_of(named(row)) + "\n" for row in [*objects, {}])
    path = tmp_path / "r.ndjson"
    path.write_text(lines, "utf-8", "replace")
    schema = pa.schema([("o", pa.string()), ("s", pa.struct([(inner, JSON)])), (name, JSON)])
    with open_table_file(str(path), schema) as file:
        found = [row for batch in file for row in batch.to_pylist()]
    wanted = [expected(row) for row in [*objects, {}]]
    assert [{key: row.get(key) for key in (name, "s")} for row in found] == wanted
