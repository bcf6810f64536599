"""The examples that say what an entity merge is, word for word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compactor.cli.main import run as command
from tests.entities.support import by_id, rows, run, spec, write
from tests.support.memory_store import MemoryStore

A = [{"_id": "a1", "f1": 1}, {"_id": "a2", "f1": 2}]
B = [{"_id": "b1", "f1": 1, "f2": "x"}, {"_id": "b2", "f1": 3}]
C: list[dict[str, Any]] = [
    {"_id": "c1", "f3": "X"},
    {"_id": "c2", "_deleted": True, "f3": "Y"},
    {"_id": "c3", "_deleted": True, "f3": "X"},
]
WORKED = """\
{"$ids":["a1","b1","c1"],"_id":"0|a1|1|b1|2|c1","_updated":0,"f1":[1,1],"f2":"x","f3":"X"}
{"$ids":["a2"],"_id":"0|a2","_updated":1,"f1":2}
{"$ids":["b2"],"_id":"1|b2","_updated":2,"f1":3}
{"$ids":["c2"],"_deleted":true,"_id":"2|c2","_updated":3,"f3":"Y"}
{"$ids":["c3"],"_deleted":true,"_id":"2|c3","_updated":4,"f3":"X"}
"""
ON_K = [["eq", "a.k", "b.k"]]


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_the_worked_example_comes_out_of_the_command_byte_for_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    write(tmp_path, {"A": A, "B": B, "C": C})
    document = {
        "datasets": ["A a", "B b", "C c"],
        "equality": [["eq", "a.f1", "b.f1"], ["eq", "b.f2", ["lower", "c.f3"]]],
    }
    (tmp_path / f"spec.{ending}").write_text(
        json.dumps(document, indent="\t" if ending == "json" else 1)
    )
    arguments = ["--output", str(tmp_path / "out"), "--datasets", str(tmp_path)]
    call = ["entity-merge", str(tmp_path / f"spec.{ending}"), *arguments, "--ndjson", "-"]
    assert command(call) == 0
    said = capsys.readouterr()
    assert said.out == WORKED
    assert "7 entities read, 5 after merging; 5 new" in said.err


def merged(tmp_path: Path, datasets: dict[str, list[dict[str, Any]]], **settings: Any) -> Any:
    store = MemoryStore()
    write(tmp_path, datasets)
    names = [f"{name} {name.lower()}" for name in datasets]
    run(spec(*names, **settings), store, tmp_path)
    return by_id(rows(store))


def test_a_list_matches_by_any_of_its_values(tmp_path: Path) -> None:
    found = merged(
        tmp_path,
        {
            "A": [{"_id": "a1", "k": [1, 2, 4, 5]}],
            "B": [{"_id": "b1", "k": [9, 4]}, {"_id": "b2", "k": 5}, {"_id": "b3", "k": 7}],
        },
        equality=ON_K,
    )
    assert found == {
        "0|a1|1|b1|1|b2": {
            "_id": "0|a1|1|b1|1|b2", "$ids": ["a1", "b1", "b2"], "k": [1, 2, 4, 5, 9, 4, 5],
        },
        "1|b3": {"_id": "1|b3", "$ids": ["b3"], "k": 7},
    }  # fmt: skip


def test_entities_of_one_dataset_merge_only_through_others(tmp_path: Path) -> None:
    b = [{"_id": "b1", "k": 1}, {"_id": "b2", "k": 1}]
    assert list(merged(tmp_path, {"A": [], "B": b}, equality=ON_K)) == ["1|b1", "1|b2"]
    found = merged(tmp_path, {"A": [{"_id": "a9", "k": 1}], "B": b}, equality=ON_K)
    assert list(found) == ["0|a9|1|b1|1|b2"]


def test_duplicates_inside_one_dataset_are_found_by_a_rule_of_it(tmp_path: Path) -> None:
    a = [
        {"_id": "a1", "x": 1, "y": 7},
        {"_id": "a2", "x": 1},
        {"_id": "a3", "x": 7},
        {"_id": "a4", "x": 8, "y": 8},
    ]
    store = MemoryStore()
    write(tmp_path, {"A": a})
    report = run(spec("A a", equality=[["eq", "a.x", "a.x"]]), store, tmp_path)
    assert list(by_id(rows(store))) == ["0|a1|0|a2", "0|a3", "0|a4"]
    # Every value is on both sides; what counts is that it ties two.
    assert report.rules[0].matches == 1
    assert merged(tmp_path, {"A": [a[1]]}, equality=[["eq", "a.x", "a.x"]])
    two = merged(tmp_path, {"A": a}, equality=[["eq", "a.x", "a.y"]])
    assert list(two) == ["0|a1|0|a3", "0|a2", "0|a4"]


def test_an_empty_list_of_original_ids_adds_none(tmp_path: Path) -> None:
    datasets = {
        "A": [{"_id": "a1", "k": 1, "$ids": []}, {"_id": "a2", "k": 2, "$ids": []}],
        "B": [{"_id": "b1", "k": 1}, {"_id": "b2", "k": 3, "$ids": None}],
    }
    found = merged(tmp_path, datasets, equality=[*ON_K, ["eq", "a.$ids", "b._id"]])
    assert {i: e["$ids"] for i, e in found.items()} == {
        "0|a1|1|b1": ["b1"], "0|a2": [], "1|b2": ["b2"],
    }  # fmt: skip
    lists = merged(tmp_path, datasets, equality=ON_K, strategy="list")
    assert lists["0|a2"]["$merged"] == [{"_id": "a2", "k": 2, "$ids": []}]


@pytest.fixture
def linked(tmp_path: Path) -> MemoryStore:
    """After the run in which a1 and b1 became one."""
    store = MemoryStore()
    write(tmp_path, {"A": [{"_id": "a1", "k": 1}], "B": [{"_id": "b1", "k": 2}]})
    run(spec("A a", "B b", equality=ON_K), store, tmp_path)
    assert [e["_id"] for e in rows(store)] == ["0|a1", "1|b1"]
    write(tmp_path, {"B": [{"_id": "b1", "k": 1}]})
    run(spec("A a", "B b", equality=ON_K), store, tmp_path)
    return store


def test_a_link_that_appears_fuses_and_replaces(linked: MemoryStore) -> None:
    assert by_id(rows(linked, since=1)) == {
        "0|a1|1|b1": {"_id": "0|a1|1|b1", "$ids": ["a1", "b1"], "k": [1, 1]},
        "0|a1": {"_id": "0|a1", "_deleted": True, "$replaced": True},
        "1|b1": {"_id": "1|b1", "_deleted": True, "$replaced": True},
    }


def test_a_link_that_disappears_splits(linked: MemoryStore, tmp_path: Path) -> None:
    write(tmp_path, {"B": [{"_id": "b1", "k": 9}]})
    run(spec("A a", "B b", equality=ON_K), linked, tmp_path)
    assert by_id(rows(linked, since=4)) == {
        "0|a1": {"_id": "0|a1", "$ids": ["a1"], "k": 1},
        "1|b1": {"_id": "1|b1", "$ids": ["b1"], "k": 9},
        "0|a1|1|b1": {"_id": "0|a1|1|b1", "_deleted": True, "$replaced": True},
    }


def test_what_is_really_deleted_is_not_replaced(linked: MemoryStore, tmp_path: Path) -> None:
    write(tmp_path, {"B": [{"_id": "b1", "k": 1, "_deleted": True}]})
    run(spec("A a", "B b", equality=ON_K), linked, tmp_path)
    assert by_id(rows(linked, since=4)) == {
        "0|a1": {"_id": "0|a1", "$ids": ["a1"], "k": 1},
        "1|b1": {"_id": "1|b1", "$ids": ["b1"], "k": 1, "_deleted": True},
        "0|a1|1|b1": {"_id": "0|a1|1|b1", "_deleted": True, "$replaced": True},
    }


def test_a_deleted_entity_that_lives_again_in_another_is_replaced(
    linked: MemoryStore, tmp_path: Path
) -> None:
    chosen = spec("A a", "B b", equality=ON_K)
    for b in ({"_deleted": True}, {}):
        write(tmp_path, {"B": [{"_id": "b1", "k": 1, **b}]})
        run(chosen, linked, tmp_path)
    assert by_id(rows(linked))["1|b1"] == {"_id": "1|b1", "_deleted": True, "$replaced": True}


def test_a_deleted_entity_that_its_dataset_no_longer_has_is_replaced(tmp_path: Path) -> None:
    store = MemoryStore()
    for a in ([{"_id": "x", "_deleted": True}], []):
        write(tmp_path, {"A": a})
        report = run(spec("A a"), store, tmp_path)
    assert report.replaced == 1
    assert by_id(rows(store)) == {"0|x": {"_id": "0|x", "_deleted": True, "$replaced": True}}
    assert run(spec("A a"), store, tmp_path).replaced == 0


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("default", {"x": 1, "y": [2, 1, 2], "z": [3, 3]}),
        ("compact", {"x": 1, "y": [2, 1], "z": 3}),
        ("list", {"$merged": [{"_id": "a", "x": 1}, {"_id": "b", "y": [2, 1]},
                              {"_id": "c", "y": 2, "z": [3, 3]}]}),
    ],
)  # fmt: skip
def test_strategies(tmp_path: Path, strategy: str, expected: Any) -> None:
    found = merged(
        tmp_path,
        {
            "A": [{"_id": "a", "x": 1}],
            "B": [{"_id": "b", "y": [2, 1]}],
            "C": [{"_id": "c", "y": 2, "z": [3, 3]}],
        },
        equality_sets=[[["concat", "a._id", ["literal", "="]], "b.s"], ["b.y", "c.y"]],
        strategy=strategy,
    )
    assert list(found) == ["0|a", "1|b|2|c"]
    one = merged(
        tmp_path,
        {
            "A": [{"_id": "a", "x": 1}],
            "B": [{"_id": "b", "y": [2, 1]}],
            "C": [{"_id": "c", "y": 2, "z": [3, 3]}],
        },
        equality_sets=[["b.y", "c.y"], ["a.x", "b.y"]],
        strategy=strategy,
    )
    assert one == {"0|a|1|b|2|c": {"_id": "0|a|1|b|2|c", "$ids": ["a", "b", "c"], **expected}}
