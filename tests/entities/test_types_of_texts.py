"""Values of files of texts: texts, unless their spec declares a type; functions of other values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compactor.cli.main import run as command
from compactor.entities.spec import EntityMergeSpec
from compactor.errors import ConfigError, InputError
from tests.entities.support import by_id, rows, run, spec, write
from tests.support.memory_store import MemoryStore
from tests.support.wording import refuses

SAME_DIGITS = [["eq", ["digits", "b.tel"], ["digits", "c.tel"]]]
C = [{"_id": "c1", "tel": "+49-111"}, {"_id": "c2", "tel": "49 222"}]
CELLS = ["1", "1.5", "-0", "007", "+7", "1e3", "true", "2024-01-31", "x", '"a, b"', "9" * 30, " 1 "]


def merge(folder: Path, chosen: EntityMergeSpec, store: MemoryStore, **files: str) -> Any:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return run(chosen, store, folder)


def test_one_cell_does_not_change_what_the_others_of_its_column_match(tmp_path: Path) -> None:
    write(tmp_path, {"C": C})
    chosen, store = spec("B b", "C c", equality=SAME_DIGITS), MemoryStore()
    merge(tmp_path, chosen, store, B="_id,tel\nb1,49111\nb2,+49222\n")
    report = merge(tmp_path, chosen, store, B="_id,tel\nb1,49111\nb2,49222\n")
    assert (report.changed, report.unchanged, report.replaced) == (1, 1, 0)
    assert by_id(rows(store))["0|b2|1|c2"]["tel"] == ["49222", "49 222"]


@pytest.mark.parametrize("added", CELLS)
def test_a_cell_stands_for_its_text_whatever_stands_beside_it(added: str, tmp_path: Path) -> None:
    store = MemoryStore()
    cells = [*CELLS, added]
    text = "".join(f"a{n:02},{cell}\n" for n, cell in enumerate(cells))
    merge(tmp_path, spec("A a"), store, A=f"_id,x\n{text}")
    assert [e["x"] for e in rows(store)] == [cell.strip('"') for cell in cells]


def test_codes_with_leading_zeros_match_by_their_texts(tmp_path: Path) -> None:
    chosen, store = spec("A a", "B b", equality=[["eq", "a.zip", "b.zip"]]), MemoryStore()
    merge(tmp_path, chosen, store, A="_id,zip\na1,01234\na2,10115\n", B="_id,zip\n5,10115\n")
    assert list(by_id(rows(store))) == ["0|a1", "0|a2|1|5"]


def test_a_declared_type_is_that_of_the_column(tmp_path: Path) -> None:
    store = MemoryStore()
    types = {"A": {"n": "integer", "f": "double", "b": "boolean"}}
    text = "_id,n,f,b,t\n1,3000000000,2,TRUE,5\n2,,,,\n"
    merge(tmp_path, spec("A a", types=types), store, A=text)
    values = {"n": 3_000_000_000, "f": 2.0, "b": True, "t": "5"}
    assert by_id(rows(store)) == {
        "0|1": {"_id": "0|1", "$ids": ["1"], **values},
        "0|2": {"_id": "0|2", "$ids": ["2"]},
    }


def test_xml_values_are_texts_too(tmp_path: Path) -> None:
    (tmp_path / "A.xml").write_text(
        '<rows><row><_id>1</_id><n>7</n><p q="1">2</p></row>'
        '<row><_id>2</_id><n>8</n><p q="3">4</p></row></rows>'
    )
    store = MemoryStore()
    run(spec("A a", types={"A": {"n": "BIGINT"}}), store, tmp_path)
    assert [(e["n"], e["p"]) for e in rows(store)] == [
        (7, {"q": "1", "#text": "2"}),
        (8, {"q": "3", "#text": "4"}),
    ]


def test_a_cell_that_is_not_of_its_declared_type_is_named(tmp_path: Path) -> None:
    chosen = spec("A a", types={"A": {"n": "integer"}})
    with refuses(InputError, "A.csv, row 2", "'1x'"):
        merge(tmp_path, chosen, MemoryStore(), A="_id,n\na,1\nb,1x\n")
    with refuses(InputError, "A.csv", "'n'"):
        merge(tmp_path, chosen, MemoryStore(), A="_id,m\na,1\n")


def test_a_header_alone_is_an_empty_dataset_and_no_header_is_an_error(tmp_path: Path) -> None:
    assert merge(tmp_path, spec("A a"), MemoryStore(), A="_id,n\n").entities_read == 0
    for text, why in (("", "is empty: the first line must name the columns"), ("n\n1\n", "'_id'")):
        with refuses(InputError, "A.csv", why):
            merge(tmp_path, spec("A a"), MemoryStore(), A=text)


def test_types_are_only_for_texts_and_known_names(tmp_path: Path) -> None:
    write(tmp_path, {"A": [{"_id": "a"}]})
    with refuses(InputError, "A.ndjson"):
        run(spec("A a", types={"A": {"n": "integer"}}), MemoryStore(), tmp_path)
    for types in ({"B": {"n": "integer"}}, {"A": {"n": "number"}}, {"A": {"_id": "integer"}}):
        with refuses(ConfigError):
            spec("A a", types=types)


def test_functions_of_text_take_numbers_by_their_shortest_text(tmp_path: Path) -> None:
    a = [{"_id": "a1", "n": 49111}, {"_id": "a2", "n": 49222.0}, {"_id": "a3", "n": 1.5}]
    b = [{"_id": "b1", "n": "49111"}, {"_id": "b2", "n": "49222"}, {"_id": "b3", "n": "1.5"}]
    write(tmp_path, {"A": a, "B": b})
    for function in ("lower", "upper", "trim", "normalize"):
        store = MemoryStore()
        run(spec("A a", "B b", equality=[["eq", [function, "a.n"], "b.n"]]), store, tmp_path)
        assert list(by_id(rows(store))) == ["0|a1|1|b1", "0|a2|1|b2", "0|a3|1|b3"]
    store = MemoryStore()
    joined = ["concat", ["literal", ""], "a.n"]
    run(spec("A a", "B b", equality=[["eq", joined, "b.n"]]), store, tmp_path)
    assert list(by_id(rows(store))) == ["0|a1|1|b1", "0|a2|1|b2", "0|a3|1|b3"]


def test_what_functions_leave_out_is_counted_of_living_entities(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a: list[dict[str, Any]] = [
        {"_id": "a1", "tel": [True, "none", "1"]},
        {"_id": "a2", "tel": [{"x": 1}, 2]},
        {"_id": "a3", "tel": True, "_deleted": True},
    ]
    write(tmp_path, {"A": a, "B": [{"_id": "b1", "tel": "1"}, {"_id": "b2", "tel": "3"}]})
    rule = ["eq", ["digits", ["trim", "a.tel"]], "b.tel"]
    (tmp_path / "s.json").write_text(json.dumps({"datasets": ["A a", "B b"], "equality": [rule]}))
    call = ["entity-merge", str(tmp_path / "s.json"), "--datasets", str(tmp_path), "--dry-run"]
    assert command([*call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"] == [
        {
            "left": {
                "expression": "[digits, [trim, a.tel]]",
                "values": 2,
                "distinct": 2,
                "dropped": 3,
            },
            "right": {"expression": "b.tel", "values": 2, "distinct": 2, "dropped": 0},
            "matches": 1,
            "most_shared": {"value": '"1"', "entities": 2},
            "put_aside": {"values": 0, "entities": 0, "most_shared": None},
        }
    ]
    assert command(call) == 0
    assert "[digits, [trim, a.tel]] left out 3 values\n" in capsys.readouterr().out
    assert command(["entity-merge", *call[1:-1], "--output", str(tmp_path / "t")]) == 0
    capsys.readouterr()
    assert command(["report", str(tmp_path / "t"), "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["entity_merge"]
    assert "[digits, [trim, a.tel]] left out 3 values" in lines, "the page has it as well"
