"""Values that more entities share than may become one, put aside by `on_too_many: ignore_value`."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.cli.main import run as command
from compactor.entities.entity_merge import EntityMerge, merged_batches
from compactor.entities.run import EntityRun
from compactor.errors import ConfigError, JobError
from tests.entities.support import Entity, entities_in, rows, run, spec, write
from tests.support.memory_store import MemoryStore
from tests.support.wording import refuses

RULES = [["eq", "a.x", "b.x"], ["eq", "a.y", "b.y"]]
ASIDE: dict[str, Any] = {
    "version": 2,
    "equality": RULES,
    "max_merged": 4,
    "on_too_many": "ignore_value",
}
PEOPLE: dict[str, list[Entity]] = {
    "A": [{"_id": f"a{n}", "x": ["n/a", n], "y": n // 2} for n in range(4)],
    "B": [{"_id": f"b{n}", "x": ["n/a", n]} for n in range(3)],
}
LINE = '[eq, a.x, b.x]: 1 value put aside, of 7 entities; most shared is "n/a", by 7 entities'


def ids(store: MemoryStore) -> set[str]:
    return {row["_id"] for row in rows(store)}


def test_a_value_put_aside_links_nothing_and_others_do(tmp_path: Path) -> None:
    write(tmp_path, PEOPLE)
    store = MemoryStore()
    report = run(spec("A a", "B b", **ASIDE), store, tmp_path)
    assert ids(store) == {"0|a0|1|b0", "0|a1|1|b1", "0|a2|1|b2", "0|a3"}
    assert LINE in list(report.lines())
    rule, other = report.to_json()["rules"]
    assert rule["put_aside"] == {
        "values": 1,
        "entities": 7,
        "most_shared": {"value": '"n/a"', "entities": 7},
    }
    assert rule["matches"] == 3
    assert other["put_aside"] == {"values": 0, "entities": 0, "most_shared": None}
    assert all("n/a" not in value.value for each in report.largest for value in each.values)


def test_as_many_as_may_become_one_do(tmp_path: Path) -> None:
    write(tmp_path, PEOPLE)
    store = MemoryStore()
    run(spec("A a", "B b", **ASIDE | {"max_merged": 7}), store, tmp_path)
    assert len(ids(store)) == 1


def test_a_value_of_one_side_alone_is_not_put_aside(tmp_path: Path) -> None:
    write(tmp_path, {"A": [{"_id": f"a{n}", "x": 1} for n in range(9)], "B": []})
    report = run(spec("A a", "B b", **ASIDE), MemoryStore(), tmp_path)
    assert report.rules[0].put_aside.values == 0


def test_a_cluster_that_several_values_make_too_large_is_refused(tmp_path: Path) -> None:
    write(tmp_path, PEOPLE | {"B": [{"_id": "b", "x": ["n/a", 0, 1, 2], "y": [0, 1]}]})
    with refuses(JobError, "5 entities", "[eq, a.y, b.y]"):
        run(spec("A a", "B b", **ASIDE), MemoryStore(), tmp_path)


def test_the_refusal_of_one_value_says_that_it_can_be_put_aside(tmp_path: Path) -> None:
    write(tmp_path, PEOPLE)
    chosen = spec("A a", "B b", **ASIDE | {"on_too_many": "refuse"})
    with refuses(JobError, '"n/a" by [eq, a.x, b.x] (7 entities)', "on_too_many: ignore_value"):
        run(chosen, MemoryStore(), tmp_path)


def test_another_word_is_refused() -> None:
    with refuses(ConfigError, "on_too_many"):
        spec("A a", on_too_many="ignore")


def test_a_rule_without_a_value_left_is_warned_of(tmp_path: Path) -> None:
    write(
        tmp_path, {"A": [{"_id": f"a{n}", "x": 1} for n in range(9)], "B": [{"_id": "b", "x": 1}]}
    )
    report = run(spec("A a", "B b", **ASIDE | {"equality": RULES[:1]}), MemoryStore(), tmp_path)
    assert report.warnings == [
        "rule [eq, a.x, b.x] matches nothing: all values that both sides have are put aside; correct the "
        "values, or raise max_merged"
    ]


def test_values_put_aside_tie_no_pair_that_is_to_be_kept_apart(tmp_path: Path) -> None:
    """A cluster that is cut is built anew from its values, and those put aside are none of them."""
    write(tmp_path, PEOPLE | {"B": [{**e, "y": 0} for e in PEOPLE["B"]]})
    never: dict[str, Any] = {"never": [["a0", "a1"]], "on_never": "cut", "max_merged": 6}
    store = MemoryStore()
    report = run(spec("A a", "B b", **ASIDE | never), store, tmp_path)
    assert ids(store) == {"0|a0|0|a2|1|b0|1|b2", "0|a1|1|b1", "0|a3"}
    assert {cut.rule for cut in report.cuts.first} == {"[eq, a.y, b.y]"}


def test_pairs_of_always_are_one_by_a_value_put_aside_too(tmp_path: Path) -> None:
    write(tmp_path, PEOPLE)
    store = MemoryStore()
    run(spec("A a", "B b", **ASIDE, always=[["a0", "a3"]]), store, tmp_path)
    assert "0|a0|0|a3|1|b0" in ids(store)


def test_links_leave_out_values_put_aside(tmp_path: Path) -> None:
    write(tmp_path, PEOPLE)
    merge = EntityMerge(
        EntityRun(spec=spec("A a", "B b", **ASIDE), store=None, folder=str(tmp_path))
    )
    merge.look()
    found = pa.Table.from_batches(merge.links())["value"].to_pylist()
    assert sorted(found) == ["0", "1", "2"]


def test_an_explanation_says_that_a_value_was_put_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, PEOPLE)
    path = tmp_path / "s.json"
    path.write_text(json.dumps(ASIDE | {"datasets": ["A a", "B b"]}))
    call = ["entity-merge", str(path), "--datasets", str(tmp_path), "--explain", "a0"]
    assert command([*call, "b1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "not one: A/a0 is in 0|a0|1|b0, B/b1 is in 0|a1|1|b1",
        'put aside: A/a0 has "n/a" by [eq, a.x, b.x], shared by 7 entities',
        'put aside: B/b1 has "n/a" by [eq, a.x, b.x], shared by 7 entities',
    ]
    assert command([*call, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [link["value"] for link in said["links"]] == [0]
    assert said["put_aside"] == [
        {
            "rule": "[eq, a.x, b.x]",
            "value": "n/a",
            "entity": {"dataset": "A", "id": "a0"},
            "entities": 7,
        }
    ]


def test_rows_of_a_pipeline_are_merged_alike() -> None:
    inputs = [
        [pa.RecordBatch.from_pylist([{"_id": e["_id"], "x": e["x"][0]} for e in PEOPLE[name]])]
        for name in "AB"
    ]
    settings_of_all = ASIDE | {"equality": RULES[:1]}
    batches = merged_batches(spec("A a", "B b", **settings_of_all), inputs)
    assert sum(len(entities_in(batch)) for batch in batches) == 7


VALUES = st.lists(st.integers(0, 4), max_size=3)
SIDES = st.lists(st.tuples(VALUES, VALUES), max_size=6)


def by_hand(left: Any, right: Any, most: int) -> tuple[set[frozenset[str]], list[tuple[int, int]]]:
    """Joins the entities of each value that at most `most` have. Returns the number of values put aside by
    each rule too, and of their entities."""
    sets = {
        f"{name}{n}": {f"{name}{n}"}
        for name, side in (("a", left), ("b", right))
        for n in range(len(side))
    }
    aside = []
    for column in (0, 1):
        having: list[dict[int, set[str]]] = [defaultdict(set), defaultdict(set)]
        for name, side, has in (("a", left, having[0]), ("b", right, having[1])):
            for n, row in enumerate(side):
                for value in row[column]:
                    has[value].add(f"{name}{n}")
        large = []
        for value in set(having[0]) & set(having[1]):
            sharing = having[0][value] | having[1][value]
            if len(sharing) > most:
                large.append(len(sharing))
                continue
            joint = set().union(*(sets[each] for each in sharing))
            for each in joint:
                sets[each] = joint
        aside.append((len(large), sum(large)))
    return {frozenset(members) for members in sets.values()}, aside


@settings(deadline=None)
@given(SIDES, SIDES, st.integers(1, 5))
def test_clusters_are_those_of_the_values_that_few_share(left: Any, right: Any, most: int) -> None:
    expected, aside = by_hand(left, right, most)
    with tempfile.TemporaryDirectory() as folder:
        datasets = {
            name.upper(): [{"_id": f"{name}{n}", "x": x, "y": y} for n, (x, y) in enumerate(side)]
            for name, side in (("a", left), ("b", right))
        }
        write(Path(folder), datasets)
        chosen, store = spec("A a", "B b", **ASIDE | {"max_merged": most}), MemoryStore()
        largest = max(map(len, expected), default=0)
        if largest > most:
            with pytest.raises(JobError, match=f"{largest} entities would become one"):
                run(chosen, store, Path(folder))
            assert not rows(store)
            return
        report = run(chosen, store, Path(folder))
    assert {frozenset(row["$ids"]) for row in rows(store)} == expected
    assert [(r.put_aside.values, r.put_aside.entities) for r in report.rules] == aside
