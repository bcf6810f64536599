"""Datasets as files of every kind and as tables: the same entities, and mistakes in them."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.entities.datasets import locate
from compactor.entities.entities import Entities
from compactor.entities.pairs import read_pairs
from compactor.entities.reading import read_dataset
from compactor.entities.spec import EntityMergeSpec
from compactor.entities.texts import canonical, elements, from_arrow, members, quoted, unquoted
from compactor.errors import InputError, UsageError
from compactor.files.jsontext import json_lines
from compactor.files.plain_text import UnwritableError
from compactor.stores.open import open_store
from tests.entities.support import by_id, entities_in, rows, run, spec, write
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table
from tests.support.wording import refuses

PLAIN = [{"_id": "a", "n": 1, "x": "x", "f": 2.5}, {"_id": "b", "n": -7, "x": 'q"\\é', "f": 1e16}]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def read(chosen: EntityMergeSpec, folder: Path) -> list[Entities]:
    located = locate(chosen, str(folder))
    pairs = zip(located, chosen.datasets, strict=True)
    return [read_dataset(at, dataset.name) for at, dataset in pairs]


def plain(entities: Entities) -> list[dict[str, Any]]:
    columns = {name: column.to_pylist() for name, column in entities.properties.items()}
    return [
        {"_id": i, **{n: json.loads(c[row]) for n, c in columns.items() if c[row] is not None}}
        for row, i in enumerate(entities.ids.to_pylist())
    ]


def test_every_kind_of_file_and_a_table_hold_the_same_entities(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(PLAIN)
    write(tmp_path, {"lines": PLAIN})
    (tmp_path / "packed.jsonl.gz").write_bytes(
        gzip.compress((tmp_path / "lines.ndjson").read_bytes())
    )
    pq.write_table(table, tmp_path / "parquet.parquet")
    pa.feather.write_feather(table, str(tmp_path / "arrow.feather"))
    pa.csv.write_csv(table, tmp_path / "csv.csv")
    append_table(open_store(str(tmp_path / "table")), table, "n")
    names = ["lines", "packed", "parquet", "arrow", "csv", "table"]
    chosen = spec(*(f"{n} {n}" for n in names), types={"csv": {"n": "integer", "f": "double"}})
    for name, entities in zip(names, read(chosen, tmp_path), strict=True):
        assert plain(entities) == PLAIN, name


def test_typed_values_are_the_json_that_export_writes_of_them(tmp_path: Path) -> None:
    day = datetime.datetime(2026, 11, 21, 8, 30, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "_id": pa.array(["a", "b"]).dictionary_encode(),
            "when": pa.array([day, None], pa.timestamp("us", "UTC")),
            "amount": pa.array([decimal.Decimal("1.50"), None]),
            "whole": pa.array([2.0, float("nan")]),
            "tags": pa.array([["x", None], []]),
            "inside": pa.array([{"z": 1, "a": None}, None]),
            "_deleted": [False, True],
        }
    )
    pq.write_table(table, tmp_path / "T.parquet")
    [entities] = read(spec("T t"), tmp_path)
    assert entities.deleted.tolist() == [False, True]
    # Of a column with types a null is a property that is missing; NaN, which JSON has not, is null.
    assert {n: c.to_pylist() for n, c in entities.properties.items()} == {
        "when": ['"2026-11-21T08:30:00Z"', None],
        "amount": ['"1.50"', None],
        "whole": ["2.0", "null"],
        "tags": ['["x",null]', "[]"],
        "inside": ['{"a":null,"z":1}', None],
    }


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kolkata"])
@pytest.mark.parametrize("nested", [False, True])
def test_one_instant_is_one_value_in_every_unit(
    zone: str | None, nested: bool, tmp_path: Path
) -> None:
    moments = [datetime.datetime(2026, 11, 21, 8, 30), datetime.datetime(1901, 1, 1)]
    texts = []
    for unit in ("s", "ms", "us", "ns"):
        column = pa.array([*moments, None], pa.timestamp(unit, zone))
        if nested:
            lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), column)
            column = pa.StructArray.from_arrays([lists, column.dictionary_encode()], ["l", "d"])
        table = pa.table({"_id": ["a", "b", "c"], "t": column})
        pq.write_table(table, tmp_path / f"{unit}.parquet", store_schema=True)
        texts.append(from_arrow(table["t"].combine_chunks()).to_pylist())
    assert texts[0] == texts[1] == texts[2] == texts[3]
    chosen = spec("s s", "ms m", "us u", "ns n", equality_sets=[["s.t", "m.t", "u.t", "n.t"]])
    if not nested:
        store = MemoryStore()
        run(chosen, store, tmp_path)
        merged = ["0|a|1|a|2|a|3|a", "0|b|1|b|2|b|3|b"]
        assert list(by_id(rows(store))) == [*merged, "0|c", "1|c", "2|c", "3|c"]


def test_times_of_day_and_maps_have_texts_without_their_unit() -> None:
    day = datetime.time(8, 30, 0, 120_000)
    times = [
        pa.array([day], dtype) for dtype in (pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
    ]
    assert [from_arrow(array).to_pylist() for array in times] == [['"08:30:00.12"']] * 3
    pairs = [[("k", datetime.datetime(2026, 1, 1))], None, []]
    found = from_arrow(pa.array(pairs, pa.map_(pa.string(), pa.timestamp("ns"))))
    assert found.to_pylist() == ['[{"key":"k","value":"2026-01-01T00:00:00"}]', None, "[]"]


def test_nulls_of_json_are_kept_and_match_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"A": [{"_id": "a", "k": None}], "B": [{"_id": "b", "k": [None, []]}]})
    store = MemoryStore()
    run(spec("A a", "B b", equality=[["eq", "a.k", "b.k"]]), store, tmp_path)
    assert [e.get("k", "missing") for e in by_id(rows(store)).values()] == [None, [None, []]]


def test_wide_lines_with_few_properties_each_are_read_by_steps_as_many_as_their_values(
    tmp_path: Path,
) -> None:
    lines = [
        {"_id": f"a{n:03}", f"p{n % 331}": n, f"q{n % 11}": [n], "r": None} for n in range(600)
    ]
    write(tmp_path, {"A": lines})
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "c_call"

    sys.setprofile(count)
    try:
        [found] = read(spec("A a"), tmp_path)
    finally:
        sys.setprofile(None)
    assert plain(found) == lines
    assert calls < 40 * 4 * len(lines)  # a look-up of each property in each line is 343 for a line


def test_of_lines_with_one_id_the_last_counts(tmp_path: Path) -> None:
    write(tmp_path, {"A": [{"_id": "a", "x": 1}, {"_id": "b"}, {"_id": "a", "y": 2}]})
    [entities] = read(spec("A a"), tmp_path)
    assert plain(entities) == [{"_id": "a", "y": 2}, {"_id": "b"}]


def test_sources_name_files_and_tables(tmp_path: Path) -> None:
    write(tmp_path, {"other": PLAIN})
    append_table(open_store(str(tmp_path / "t")), pa.Table.from_pylist(PLAIN[:1]), "n")
    places = {
        "A": str(tmp_path / "other.ndjson"),
        "B": str(tmp_path / "t"),
        "C": str(tmp_path / "no"),
    }
    found = read(spec("A a", "B b", "C c", sources=places), tmp_path / "nowhere")
    assert [e.rows for e in found] == [2, 1, 0]


def test_a_name_that_may_be_two_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"A": PLAIN})
    (tmp_path / "A.csv").write_text("_id\na\n")
    with refuses(UsageError):
        read(spec("A a"), tmp_path)


def test_a_source_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("_id\na\n")
    with refuses(InputError):
        read(spec("A a", sources={"A": str(tmp_path / "a.txt")}), tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        '{"x": 1}',
        '{"_id": 5.5}',
        '{"_id": ""}',
        '{"_id": "b", "$ids": ["x", 1]}',
        '{"_id": "b"',
        '{"_id": "b"} {"_id": "c"}',
        '["b"]',
        '{"_id": "b", "n": 1e999}',
        '{"_id": "b", "n": "\\ud800"}',
        "[" * 99_999,
        '{"_id": "b", "n": ' + "[" * 99_999 + "]" * 99_999 + "}",
    ],
)  # fmt: skip
def test_a_line_that_is_no_entity_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "A.ndjson").write_text('{"_id": "a"}\n' + line + '\n{"_id": "z"}\n')
    with refuses(InputError):
        read(spec("A a"), tmp_path)


def test_a_line_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "A.ndjson").write_bytes(b'{"_id": "a"}\n\n{"_id": "\xff"}\n')
    with refuses(InputError):
        read(spec("A a"), tmp_path)


def test_an_arrow_json_column_with_no_json_is_refused(tmp_path: Path) -> None:
    column = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1 2", ""]))
    table = pa.table({"_id": ["a", "b"], "x": column})
    append_table(open_store(str(tmp_path / "A")), table, "_id")
    with refuses(InputError):
        read(spec("A a"), tmp_path)


FLAGS: dict[str, pa.Array] = {
    "int8": pa.array([None, 0, 1], pa.int8()),
    "uint64": pa.array([None, 1, 0], pa.uint64()),
    "double": pa.array([None, 1.0, 0.0]),
    "text": pa.array([None, "true", "False"]),
    "digits": pa.array([None, "1", "0"]),
    "dictionary": pa.array([None, "true", "false"]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", FLAGS)
def test_flags_of_formats_with_types_are_booleans_alone(kind: str, tmp_path: Path) -> None:
    table = pa.table({"_id": ["a", "b", "c"], "_deleted": FLAGS[kind]})
    pq.write_table(table, tmp_path / "parquet.parquet")
    pa.feather.write_feather(table, str(tmp_path / "arrow.feather"))
    write(tmp_path, {"lines": table.to_pylist()})
    append_table(open_store(str(tmp_path / "table")), table, "_id")
    for name, place in [
        ("parquet", "row 2"),
        ("arrow", "row 2"),
        ("lines", "line 2"),
        ("table", "row 2"),
    ]:
        with refuses(InputError, f"dataset {name} ", f"{place}: `_deleted` is"):
            read(spec(f"{name} a"), tmp_path)


@pytest.mark.parametrize("texts", ["true", "True", "TRUE"])
def test_flags_of_csv_are_texts_in_any_case(texts: str, tmp_path: Path) -> None:
    text = f'_id,_deleted,$replaced\na,{texts},false\nb,FALSE,\nc,,False\nd,,{texts}\ne,"",""\n'
    (tmp_path / "A.csv").write_text(text)
    [found] = read(spec("A a"), tmp_path)
    assert found.ids.to_pylist() == ["a", "b", "c", "e"]
    assert found.deleted.tolist() == [True, False, False, False]


def test_booleans_delete_in_every_format(tmp_path: Path) -> None:
    table = pa.table({"_id": ["a", "b", "c"], "_deleted": [True, False, None]})
    pq.write_table(table, tmp_path / "parquet.parquet")
    pa.feather.write_feather(table, str(tmp_path / "arrow.feather"))
    pa.csv.write_csv(table.cast(table.schema), tmp_path / "csv.csv")
    write(tmp_path, {"lines": table.to_pylist()})
    append_table(open_store(str(tmp_path / "table")), table, "_id")
    names = ["parquet", "arrow", "csv", "lines", "table"]
    for name, found in zip(names, read(spec(*(f"{n} {n}" for n in names)), tmp_path), strict=True):
        assert found.deleted.tolist() == [True, False, False], name


@pytest.mark.parametrize("flag", ["_deleted", "$replaced"])
@pytest.mark.parametrize("value", [1, 0, 1.0, 2, 0.5, "true", "0", "yes", "", [True], {"a": 1}])
def test_what_is_neither_true_nor_false_is_refused_with_its_place(
    flag: str, value: Any, tmp_path: Path
) -> None:
    write(tmp_path, {"A": [{"_id": "a", flag: True}, {"_id": "b", flag: value}]})
    shown = json.dumps(value, separators=(",", ":"))
    with refuses(InputError, f"A.ndjson), line 2: `{flag}` is {shown}: "):
        read(spec("A a"), tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("A.ndjson", '\n{"_id": "a"}\r\n \n{"_id": "b", "_deleted": 1}\n', "line 4"),
        ("A.csv", "_id,_deleted\na,true\nb,1\n", "row 2"),
    ],
)
def test_a_flag_that_is_none_is_named_with_its_place_in_the_file(
    name: str, text: str, place: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with refuses(InputError, name, place):
        read(spec("A a"), tmp_path)


def test_deep_json_of_a_column_is_refused(tmp_path: Path) -> None:
    column = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["[" * 9_999 + "]" * 9_999]))
    pq.write_table(pa.table({"_id": ["a"], "x": column}), tmp_path / "A.parquet")
    with refuses(InputError):
        read(spec("A a"), tmp_path)


def test_what_a_merge_replaced_is_no_entity(tmp_path: Path) -> None:
    gone = {"_id": "a", "_deleted": True, "$replaced": True}
    write(tmp_path, {"A": [{"_id": "a", "x": 1}, gone, {"_id": "b", "_deleted": True}]})
    [entities] = read(spec("A a"), tmp_path)
    assert entities.ids.to_pylist() == ["b"]
    assert entities.deleted.tolist() == [True]


def test_two_objects_on_a_line_are_refused_whatever_else_is_there(tmp_path: Path) -> None:
    for text in (
        '{"_id": "a"} {"_id": "b"}\n\n',
        '{"_id": "a"}{"_id": "b"}\n{"_id":\n"c"}\n',
        '{"_id": "a"}{"_id": "b"}\n{"_id": "c", "x": {\n}}\n',
    ):
        (tmp_path / "A.ndjson").write_text(text)
        with refuses(InputError):
            read(spec("A a"), tmp_path)
    (tmp_path / "A.ndjson").write_text('\n {"_id": "a"}\r\n\n{"_id": "b"} \n')
    assert read(spec("A a"), tmp_path)[0].rows == 2


def test_a_text_is_canonical_in_one_way_only() -> None:
    written = ["-0", "1.00", "1e2", "-0.50", '"\\u0041\\/"', '{"b":1, "a" : 2}', "[ 1 ]", "1e-7"]
    texts = canonical(pa.array(written, pa.large_string())).to_pylist()
    assert texts == ["0", "1.0", "100.0", "-0.5", '"A/"', '{"a":2,"b":1}', "[1]", "1e-7"]


@given(st.lists(JSON, max_size=5))
def test_equal_values_have_equal_texts_however_they_were_written(values: list[Any]) -> None:
    spread = [json.dumps(v, indent=2) for v in values]
    escaped = [json.dumps(v, sort_keys=True, ensure_ascii=True) for v in values]
    try:
        texts = canonical(pa.array(spread, pa.large_string()))
    except ValueError:
        assert any("\\ud" in text for text in escaped)
        return
    assert texts == canonical(pa.array(escaped, pa.large_string()))
    assert [json.loads(text) for text in texts.to_pylist()] == values
    assert canonical(texts) == texts
    alone = [canonical(pa.array([text], pa.large_string()))[0] for text in spread]
    assert texts.to_pylist() == [text.as_py() for text in alone]


@given(st.lists(JSON.filter(lambda v: "\\ud" not in json.dumps(v)), max_size=6))
def test_elements_are_those_of_lists_and_other_values_themselves(values: list[Any]) -> None:
    texts = canonical(pa.array([json.dumps(v) for v in values], pa.large_string()))
    counts, items = elements(texts)
    expected = [v if isinstance(v, list) else [v] for v in values]
    assert counts.tolist() == [len(v) for v in expected]
    assert [json.loads(i) for i in items.to_pylist()] == [v for vs in expected for v in vs]


def test_long_columns_are_decoded_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compactor.entities.texts._PART_TEXTS", 3)
    monkeypatch.setattr("compactor.entities.texts._PART_BYTES", 20)
    values = [[n, [str(n) + "\n"], {"n": n}][: n % 4] for n in range(20)]
    texts = canonical(pa.array([json.dumps(v, indent=1) for v in values], pa.large_string()))
    assert [json.loads(t) for t in texts.to_pylist()] == values
    counts, items = elements(texts)
    assert counts.tolist() == [len(v) for v in values]
    assert [json.loads(i) for i in items.to_pylist()] == [v for vs in values for v in vs]
    assert members(pa.array(['{"n":1}'] * 7, pa.large_string()), "n").to_pylist() == ["1"] * 7
    assert unquoted(quoted(pa.array(["\n"] * 7))).to_pylist() == ["\n"] * 7


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))))
def test_strings_come_back_from_their_texts(strings: list[str | None]) -> None:
    array = pa.array(strings, pa.large_string())
    assert unquoted(quoted(array)) == array


def test_what_json_has_no_form_of_is_refused() -> None:
    numbers = pa.array([0], pa.int8()), pa.array([0], pa.int32())
    with pytest.raises(UnwritableError):
        from_arrow(pa.UnionArray.from_dense(*numbers, [pa.array([1])]))


def test_export_writes_json_columns_as_json() -> None:
    column = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":\n[1, 2]}', None, ' "x"']))
    batch = pa.record_batch({"j": column, "s": pa.StructArray.from_arrays([column], ["j"])})
    assert [json.loads(line) for line in json_lines(batch).splitlines()] == [
        {"j": {"a": [1, 2]}, "s": {"j": {"a": [1, 2]}}},
        {"j": None, "s": {"j": None}},
        {"j": "x", "s": {"j": "x"}},
    ]


def test_an_entity_without_anything_is_a_line_all_the_same() -> None:
    column = pa.ExtensionArray.from_storage(pa.json_(), pa.array([None, '"x"', None]))
    assert entities_in(pa.record_batch({"j": column})) == [{}, {"j": "x"}, {}]


@pytest.mark.parametrize(
    "text",
    [b"_id;mail\na;b\n", "_id,mail\na,Zo\xe9\n".encode("latin-1"), b"_id,m\0il\na,b\n"],
    ids=["delimiter", "Latin-1", "NUL"],
)
def test_no_setting_is_advised_that_a_dataset_does_not_have(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "A.csv").write_bytes(text)
    with refuses(InputError, "save the file ") as caught:
        read(spec("A A"), tmp_path)
    assert "name" not in caught.value.message.split("save the file")[1]
    with refuses(InputError, "save the file ") as caught:
        read_pairs(spec("A A", always=str(tmp_path / "A.csv")))
    assert "name" not in caught.value.message.split("save the file")[1]
