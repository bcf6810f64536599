"""Survivorship: which of several values of a property stays. Random ones: test_against_model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.entities.support import Entity, rows, run, spec, write
from tests.support.memory_store import MemoryStore

A: list[Entity] = [
    {"_id": "1", "k": 1, "name": "Ada", "tel": ["1", "22"], "at": "2026-01-02"},
    {"_id": "2", "k": 1, "name": "Ada L.", "tel": "22", "at": "2026-01-02T00:30:00+01:00"},
    {"_id": "3", "k": 1, "name": "  ", "at": "2026-01-02T00:00:00.5Z"},
]
B: list[Entity] = [{"_id": "1", "k": 1, "name": "Lovelace", "tel": None, "at": 5}, {"_id": "2"}]


def merged(folder: Path, survivors: Any, **settings: Any) -> list[Entity]:
    write(folder, {"A": A, "B": B})
    store = MemoryStore()
    chosen = spec("A a", "B b", equality=[["eq", "a.k", "b.k"]], survivors=survivors, **settings)
    run(chosen, store, folder)
    return rows(store)


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ("first", "Ada"),
        ("longest", "Lovelace"),
        ("most_frequent", "Ada"),
        ({"newest": "at"}, "Ada"),
        ({"newest": "nothing"}, "Ada"),
        ("list", ["Ada", "Ada L.", "Lovelace"]),
    ],
)
def test_one_value_survives(how: Any, name: Any, tmp_path: Path) -> None:
    first, other = merged(tmp_path, {"name": how, "tel": "most_frequent"})
    assert (first["name"], first["tel"], first["k"]) == (name, "22", [1, 1, 1, 1])
    assert "name" not in other


@pytest.mark.parametrize(
    ("how", "value"),
    [("first", " "), ("longest", " \t\n"), ("most_frequent", "\t"), ({"newest": "at"}, "\n")],
)
def test_of_texts_that_are_all_white_space_the_best_survives(
    how: Any, value: str, tmp_path: Path
) -> None:
    texts = [(" ", 1), ("\t", 2), (" \t\n", 3), ("\t", 4), ("\n", 5)]
    write(tmp_path, {"A": [{"_id": str(n), "k": 1, "t": t, "at": n} for t, n in texts]})
    store = MemoryStore()
    run(spec("A a", equality=[["eq", "a.k", "a.k"]], survivors={"t": how}), store, tmp_path)
    (found,) = rows(store)
    assert found["t"] == value


@pytest.mark.parametrize("how", ["first", "longest", "most_frequent", "list", {"newest": "at"}])
@pytest.mark.parametrize("blank", ["\u00a0" * 5, "\u3000 \t\n\x0b", "\u200b\ufeff\x00"])
def test_no_blank_text_survives_a_text_that_shows(how: Any, blank: str, tmp_path: Path) -> None:
    texts = [(blank, 2), ("Bob", 1), (blank, 3)]
    write(tmp_path, {"A": [{"_id": str(n), "k": 1, "t": t, "at": n} for t, n in texts]})
    store = MemoryStore()
    run(spec("A a", equality=[["eq", "a.k", "a.k"]], survivors={"t": how}), store, tmp_path)
    assert [entity["t"] for entity in rows(store)] == [["Bob"] if how == "list" else "Bob"]


def test_originals_stay_under_list_beside_the_values_that_survive(tmp_path: Path) -> None:
    first, _ = merged(tmp_path, {"name": "longest"}, strategy="list")
    assert first["name"] == "Lovelace"
    assert [e["name"] for e in first["$merged"]] == ["Ada", "Ada L.", "  ", "Lovelace"]
    assert "tel" not in first


def test_another_choice_writes_all_anew(tmp_path: Path) -> None:
    write(tmp_path, {"A": A, "B": B})
    store = MemoryStore()
    for how, changed in (("first", 0), ("longest", 2), ("longest", 0)):
        chosen = spec("A a", "B b", equality=[["eq", "a.k", "b.k"]], survivors={"name": how})
        assert run(chosen, store, tmp_path).changed == changed


def test_a_column_of_empty_lists_makes_no_entity_newer(tmp_path: Path) -> None:
    entities: list[Entity] = [{"_id": str(n), "k": 1, "name": f"n{n}", "at": []} for n in (1, 2)]
    write(tmp_path, {"A": entities})
    store = MemoryStore()
    chosen = spec("A a", equality=[["eq", "a.k", "a.k"]], survivors={"name": {"newest": "at"}})
    run(chosen, store, tmp_path)
    assert [entity["name"] for entity in rows(store)] == ["n1"]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (9007199254740992, 9007199254740993),
        (-(10**30) - 1, -(10**30)),
        (9007199254740992.0, 9007199254740993),
        (9007199254740992, 2.0**60),
        (0.5, 1),
        ("-0045-03-15", "-0044-03-15"),
        ("-0044-03-15", "0000-01-01"),
        ("9999-12-31", "+10000-01-01"),
        ("+99999-01-01", "+100000-01-01"),
        ("2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.51Z"),
        ("2026-01-02", "9999-12-31T23:59:59.9999999Z"),
        ("9999-12-31T23:59:59.9999998Z", "9999-12-31T23:59:59.9999999Z"),
        ("2026-01-02 some day", "0001-01-01"),
    ],
)
def test_the_newest_is_by_exact_numbers_and_in_the_order_of_time(
    older: Any, newer: Any, tmp_path: Path
) -> None:
    pairs: list[Entity] = [
        {"_id": "1", "k": 1, "name": "older", "at": older},
        {"_id": "2", "k": 1, "name": "newer", "at": newer},
        {"_id": "3", "k": 2, "name": "newer", "at": newer},
        {"_id": "4", "k": 2, "name": "older", "at": older},
    ]
    write(tmp_path, {"A": pairs})
    store = MemoryStore()
    chosen = spec("A a", equality=[["eq", "a.k", "a.k"]], survivors={"name": {"newest": "at"}})
    run(chosen, store, tmp_path)
    assert [entity["name"] for entity in rows(store)] == ["newer", "newer"]
