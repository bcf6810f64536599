"""Pairs that must be one, and pairs that must not."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.cli.main import run as command
from compactor.errors import CompactorError, UsageError
from tests.entities.support import Entity, by_id, rows, run, spec, write
from tests.support.memory_store import MemoryStore
from tests.support.wording import refuses

PEOPLE: dict[str, Sequence[Entity]] = {
    "A": [{"_id": "a1", "x": 1, "y": 1}, {"_id": "a2", "y": 2}],
    "B": [{"_id": "b1", "x": 1, "y": 2}, {"_id": "b2", "y": 1}, {"_id": "b3"}],
}
RULES = [["eq", "a.x", "b.x"], ["eq", "a.y", "b.y"]]


def clusters(folder: Path, **chosen: Any) -> set[str]:
    write(folder, PEOPLE)
    store = MemoryStore()
    run(spec("A a", "B b", version=2, equality=RULES, **chosen), store, folder)
    return set(by_id(rows(store)))


def test_a_pair_of_always_becomes_one_with_all_that_rules_tie_to_it(tmp_path: Path) -> None:
    assert clusters(tmp_path) == {"0|a1|0|a2|1|b1|1|b2", "1|b3"}
    found = clusters(tmp_path, always=[["b3", "A/a2"]])
    assert found == {"0|a1|0|a2|1|b1|1|b2|1|b3"}


def test_what_would_tie_a_pair_of_never_is_refused_with_its_path(tmp_path: Path) -> None:
    with refuses(CompactorError):
        clusters(tmp_path, never=[["a1", "a2"]])


def test_a_cluster_with_a_pair_of_never_is_cut_at_the_weakest_rule(tmp_path: Path) -> None:
    write(tmp_path, PEOPLE)
    store = MemoryStore()
    chosen = spec("A a", "B b", version=2, equality=RULES, never=[["a1", "a2"]], on_never="cut")
    report = run(chosen, store, tmp_path)
    assert set(by_id(rows(store))) == {"0|a1|1|b1|1|b2", "0|a2", "1|b3"}
    assert (report.cuts.clusters, report.cuts.links) == (1, 1)
    [cut] = report.to_json()["cuts"]["first"]
    assert cut == {"rule": "[eq, a.y, b.y]", "value": "2", "entity": "A/a2", "other": "B/b1"}
    assert "never: 1 link cut in 1 cluster" in list(report.lines())


def test_a_link_of_a_rule_with_two_equal_sides_is_counted_once(tmp_path: Path) -> None:
    write(tmp_path, {"A": [{"_id": "a1", "x": 1}, {"_id": "a2", "x": 1}]})
    apart = {"never": [["a1", "a2"]], "on_never": "cut"}
    chosen = spec("A a", version=2, equality=[["eq", "a.x", "a.x"]], **apart)
    report = run(chosen, MemoryStore(), tmp_path)
    assert (report.clusters, report.cuts.links) == (2, 1)


def test_a_pair_that_becomes_apart_later_replaces_the_entity_that_was_one(tmp_path: Path) -> None:
    write(tmp_path, PEOPLE)
    store = MemoryStore()
    run(spec("A a", "B b", version=2, equality=RULES), store, tmp_path)
    apart = {"never": [["a1", "a2"]], "on_never": "cut"}
    report = run(spec("A a", "B b", version=2, equality=RULES, **apart), store, tmp_path)
    assert (report.new, report.replaced) == (2, 1)
    fresh = MemoryStore()
    run(spec("A a", "B b", version=2, equality=RULES, **apart), fresh, tmp_path)
    now = {name for name, row in by_id(rows(store)).items() if not row.get("$replaced")}
    assert now == set(by_id(rows(fresh)))


def test_pairs_may_be_rows_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text("one,other\nb3,a2\n")
    assert len(clusters(tmp_path, always=str(file))) == 1


@pytest.mark.parametrize("lines", ["one\nb3\n", "one,other\nb3,\n"])
def test_a_row_that_is_no_pair_is_refused(tmp_path: Path, lines: str) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text(lines)
    with refuses(CompactorError, file):
        clusters(tmp_path, always=str(file))


def test_pairs_of_entities_that_do_not_exist_have_no_effect_and_are_told(tmp_path: Path) -> None:
    write(tmp_path, PEOPLE)
    chosen = spec("A a", "B b", version=2, equality=RULES, never=[["a1", "z"], ["y", "z"]])
    report = run(chosen, MemoryStore(), tmp_path)
    assert report.warnings == [
        "never: no dataset has an entity 'z', and 1 more are unknown; such pairs have no effect"
    ]


@pytest.mark.parametrize(
    "pairs",
    [
        {"always": [["a1", "a1"]]},
        {"always": [["a2", "b3"]], "never": [["b3", "a2"]], "on_never": "cut"},
        {"always": [["a2", "b3"]], "never": [["b3", "a2"]]},
        {"always": [["b3", "a2"], ["b3", "a1"]], "never": [["a1", "a2"]], "on_never": "cut"},
        {"always": [["a1", "b2"]], "never": [["a1", "b2"]]},
        {"always": [["b3", "a2"], ["b3", "a1"]], "never": [["a1", "b1"], ["a1", "a2"]]},
    ],
    ids=[
        "itself",
        "both",
        "both of refuse",
        "through another",
        "and a rule",
        "and a rule elsewhere",
    ],
)
def test_pairs_that_contradict_each_other_are_refused(
    tmp_path: Path, pairs: dict[str, Any]
) -> None:
    with refuses(UsageError):
        clusters(tmp_path, **pairs)


@pytest.mark.parametrize("pairs", [7, ["a1"], [["a1"]], [["a1", None]], [["a1", "b1", "b2"]]])
def test_a_list_without_pairs_is_named_with_its_line(pairs: Any) -> None:
    with refuses(CompactorError):
        spec("A a", never=pairs)


def test_a_refused_pair_can_be_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, PEOPLE)
    chosen = {"version": 2, "datasets": ["A a", "B b"], "equality": RULES}
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(chosen | {"never": [["a1", "a2"]], "always": [["b3", "a2"]]}))
    line = ["entity-merge", str(path), "--datasets", str(tmp_path), "--explain", "a1", "b3"]
    assert command(line) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "A/a1 = B/b1 by [eq, a.x, b.x]: 1",
        "B/b1 = A/a2 by [eq, a.y, b.y]: 2",
        "A/a2 = B/b3 by always",
    ]


def test_two_entities_that_a_cut_keeps_apart_are_explained_by_the_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, PEOPLE)
    path = tmp_path / "spec.yaml"
    path.write_text(
        "version: 2\ndatasets: [A a, B b]\nequality: [[eq, a.x, b.x], [eq, a.y, b.y]]\n"
        "never: [[a1, a2]]\non_never: cut\n"
    )
    line = ["entity-merge", str(path), "--datasets", str(tmp_path)]
    assert command([*line, "--dry-run"]) == 0
    [cut] = [said for said in capsys.readouterr().out.splitlines() if said.startswith("cut ")]
    assert command([*line, "--explain", "a1", "a2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "not one: A/a1 is in 0|a1|1|b1|1|b2, A/a2 is in 0|a2",
        "cut B/b1 from A/a2: [eq, a.y, b.y]: 2",
    ]
    assert cut == "cut A/a2 from B/b1: [eq, a.y, b.y]: 2"
    assert command([*line, "--explain", "a1", "a2", "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)["cuts"]
    assert (told["rule"], told["value"], told["entity"]["id"]) == ("[eq, a.y, b.y]", 2, "b1")
    assert command([*line, "--explain", "a1", "b3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1, "nothing ties them"


VALUES = st.lists(st.integers(0, 3), max_size=2)
SIDES = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5)
NUMBERS = st.tuples(st.integers(0, 9), st.integers(0, 9))


def by_hand(
    sides: Sequence[Sequence[tuple[list[int], list[int]]]], never: set[tuple[str, str]]
) -> set[frozenset[str]]:
    """Joins link by link, strongest first, unless a pair of `never` would become one."""
    sets = {f"{'ab'[s]}{n}": {f"{'ab'[s]}{n}"} for s in (0, 1) for n in range(len(sides[s]))}

    def has_never(members: set[str]) -> bool:
        return any(one in members and other in members for one, other in never)

    for column in (0, 1):
        for value in range(4):
            for one in [f"a{n}" for n, row in enumerate(sides[0]) if value in row[column]]:
                for other in [f"b{n}" for n, row in enumerate(sides[1]) if value in row[column]]:
                    joint = sets[one] | sets[other]
                    if not has_never(joint):
                        for each in joint:
                            sets[each] = joint
    return {frozenset(members) for members in sets.values()}


@settings(deadline=None)
@given(SIDES, SIDES, st.lists(NUMBERS, max_size=5))
def test_cuts_are_those_of_joining_link_by_link(
    left: list[tuple[list[int], list[int]]],
    right: list[tuple[list[int], list[int]]],
    numbers: list[tuple[int, int]],
) -> None:
    ids = [*(f"a{n}" for n in range(len(left))), *(f"b{n}" for n in range(len(right)))]
    never = {
        (ids[one % len(ids)], ids[other % len(ids)])
        for one, other in numbers
        if one % len(ids) != other % len(ids)
    }
    with tempfile.TemporaryDirectory() as folder:
        datasets = {
            name.upper(): [{"_id": f"{name}{n}", "x": x, "y": y} for n, (x, y) in enumerate(side)]
            for name, side in (("a", left), ("b", right))
        }
        write(Path(folder), datasets)
        store = MemoryStore()
        chosen = spec(
            "A a", "B b", version=2, equality=RULES, never=[*map(list, never)], on_never="cut"
        )
        run(chosen, store, Path(folder))
        found = {frozenset(row["$ids"]) for row in rows(store)}
    assert found == by_hand((left, right), never)
