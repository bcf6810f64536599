"""The types that columns of canonical texts get, and the values that they then have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor import Table
from compactor.cli.main import run as command
from compactor.entities.column_types import JSON, column_type, kinds_in, type_in, typed
from compactor.entities.texts import TEXT, from_arrow
from compactor.stores.local import LocalStore
from tests.entities.support import by_id, rows, run, spec, types, write
from tests.support.memory_store import MemoryStore

SAMPLES = [
    0, 1, -(2**63), 2**63, 1.0, -0.0, 1e16, 0.1, "a", "é\n\"\\'", "", '","', "null", True, False, None,
    [], [1], [1, None], [2**63], [1.5], ["a", "b"], ['","', "null"], [None], [True], [[1]], {"a": 1},
]  # fmt: skip


def texts_of(values: list[Any]) -> pa.Array:
    texts = [json.dumps(v, separators=(",", ":"), ensure_ascii=False) for v in values]
    return pa.array([t.replace("1e+16", "1e16") for t in texts], TEXT)


@given(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=4), st.booleans())
def test_values_come_back_as_the_texts_that_they_were(values: list[Any], has_null: bool) -> None:
    texts = texts_of(values)
    dtype = column_type(kinds_in(texts))
    if has_null:
        texts = pa.concat_arrays([pa.nulls(1, TEXT), texts])
    assert from_arrow(typed(texts, dtype)) == texts


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, -(2**63)], pa.int64()),
        ([2**63], JSON),
        ([1, 1.0], JSON),
        ([1.5, 1e300], pa.float64()),
        (["a", ""], pa.string()),
        (["a", None], JSON),
        ([True, False], pa.bool_()),
        ([[], [None], ["a", None]], pa.list_(pa.string())),
        ([[], [None]], pa.list_(pa.null())),
        ([[1], [1.0]], JSON),
        ([[1], 1], JSON),
        ([[[1]]], JSON),
        ([{"a": 1}], JSON),
        (["2026-01-01", "2026-01-01T00:00:00Z"], pa.string()),
    ],
)
def test_a_column_has_the_type_that_all_its_values_have(
    values: list[Any], expected: pa.DataType
) -> None:
    assert column_type(kinds_in(texts_of(values))) == expected


@pytest.mark.parametrize(
    ("known", "values", "expected"),
    [
        (pa.int64(), [1], pa.int64()),
        (pa.int64(), ["1"], JSON),
        (pa.int64(), [1.0], JSON),
        (pa.string(), [["a"]], JSON),
        (pa.list_(pa.null()), [[1]], pa.list_(pa.int64())),
        (pa.list_(pa.int64()), [[]], pa.list_(pa.int64())),
        (pa.null(), ["a"], pa.string()),
        (JSON, ["a"], JSON),
    ],
)
def test_a_type_that_the_table_has_is_kept_or_becomes_json(
    known: pa.DataType, values: list[Any], expected: pa.DataType
) -> None:
    table = pa.schema([("x", known)])
    assert type_in(table, "x", kinds_in(texts_of(values))) == expected


def test_a_run_with_other_types_changes_the_columns_and_rewrites_nothing(tmp_path: Path) -> None:
    chosen, store = spec("A a"), MemoryStore()
    first = {"_id": "a1", "n": 1, "s": "x", "f": 1.0, "l": [], "m": ["é"], "b": True}
    write(tmp_path, {"A": [first]})
    run(chosen, store, tmp_path)
    assert types(store) == {"n": "int64", "s": "string", "f": "double", "l": "list<null>",
                            "m": "list<string>", "b": "bool"}  # fmt: skip
    other = {"_id": "a2", "n": "1", "s": 2, "f": 1, "l": [1], "m": [True], "b": None}
    write(tmp_path, {"A": [first, other]})
    report = run(chosen, store, tmp_path)
    assert (report.new, report.changed, report.unchanged) == (1, 0, 1)
    assert types(store) == {**dict.fromkeys("nsfmb", "json"), "l": "list<int64>"}
    found = by_id(rows(store))
    assert {k: v for k, v in found["0|a1"].items() if k in first and k != "_id"} == {
        k: v for k, v in first.items() if k != "_id"
    }
    assert rows(store)[0]["_updated"] == 0
    write(tmp_path, {"A": [first]})
    assert run(chosen, store, tmp_path).replaced == 1
    assert by_id(rows(store))["0|a1"] == found["0|a1"]


def test_conditions_find_values_before_and_after_the_column_becomes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = LocalStore(str(tmp_path / "t"))
    write(tmp_path, {"A": [{"_id": "a1", "city": "Rome"}, {"_id": "a2", "city": "Oslo"}]})
    run(spec("A a"), store, tmp_path)
    write(tmp_path, {"B": [{"_id": "b1", "city": ["Rome", "Oslo"]}, {"_id": "b2", "city": 5}]})
    for datasets, of_lists in ((["A a"], 0), (["A a", "B b"], 1)):
        run(spec(*datasets), store, tmp_path)
        assert command(["query", store.url, "--where", "city = 'Rome'"]) == 0
        assert '"0|a1"' in capsys.readouterr().out
        table = Table.open(store.url)
        assert table.scan(where="city = 'Rome'").to_table().num_rows == 1
        if of_lists:
            assert table.scan(where="list_contains(city, 'Rome')").to_table().num_rows == 2
            assert table.scan(where="city > 4").to_table().num_rows == 1
