"""What ties entities: rules inside one dataset, paths, and the links of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.cli.main import run as command
from compactor.entities.entity_merge import EntityMerge
from compactor.entities.run import EntityRun
from tests.entities.support import Entity, by_id, rows, run, spec, write
from tests.support.memory_store import MemoryStore
from tests.support.wording import says


def test_duplicates_inside_one_dataset_become_one(tmp_path: Path) -> None:
    entities: list[Entity] = [
        {"_id": "1", "mail": "a@x"},
        {"_id": "2", "mail": ["A@x", "b@x"]},
        {"_id": "3", "mail": "b@x"},
        {"_id": "4", "mail": "c@x"},
        {"_id": "5", "mail": "c@x", "_deleted": True},
    ]
    write(tmp_path, {"A": entities})
    chosen = spec("A a", equality=[["eq", ["lower", "a.mail"], ["lower", "a.mail"]]])
    store = MemoryStore()
    run(chosen, store, tmp_path)
    assert set(by_id(rows(store))) == {"0|1|0|2|0|3", "0|4", "0|5"}


EXAMPLE: dict[str, list[Entity]] = {
    "A": [{"_id": "a1", "f1": 1}, {"_id": "a2", "f1": 2}, {"_id": "x"}],
    "B": [{"_id": "b1", "f1": [1, 1], "f2": "x"}, {"_id": "b2", "f1": 3}, {"_id": "x"}],
    "C": [{"_id": "c1", "f3": "X"}, {"_id": "c2", "f3": "x"}, {"_id": "c3", "_deleted": True}],
}
SPEC: dict[str, Any] = {
    "version": 2,
    "datasets": ["A a", "B b", "C c"],
    "equality": [["eq", "a.f1", "b.f1"], ["eq", "b.f2", ["lower", "c.f3"]]],
}


@pytest.fixture
def example(tmp_path: Path) -> Path:
    write(tmp_path, EXAMPLE)
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    return tmp_path


def merge(folder: Path, *options: str) -> int:
    return command(["entity-merge", str(folder / "spec.json"), "--datasets", str(folder), *options])


def test_an_explanation_has_the_links_that_tie_an_entity_to_its_cluster(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert merge(example, "--explain", "a1") == 0
    assert capsys.readouterr().out.splitlines() == [
        "0|a1|1|b1|2|c1|2|c2: 4 entities",
        "A/a1 = B/b1 by [eq, a.f1, b.f1]: 1",
        'B/b1 = C/c1 by [eq, b.f2, [lower, c.f3]]: "x"',
        'B/b1 = C/c2 by [eq, b.f2, [lower, c.f3]]: "x"',
    ]


def test_the_path_between_two_entities_is_the_shortest(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert merge(example, "--explain", "c2", "0|a1|1|b1|2|c1|2|c2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(k["entity"]["id"], k["value"], k["other"]["id"]) for k in found["links"]] == [
        ("c2", "x", "b1"),
        ("b1", 1, "a1"),
    ]
    assert merge(example, "--explain", "a1", "b/x") == 0
    assert capsys.readouterr().out == "not one: A/a1 is in 0|a1|1|b1|2|c1|2|c2, B/x is in 1|x\n"
    assert merge(example, "--explain", "c3") == 0
    assert capsys.readouterr().out == "2|c3: 1 entity\n"


@pytest.mark.parametrize("other", ["a1", "A/a1", "0|a1|1|b1|2|c1|2|c2"])
def test_one_entity_named_twice_is_explained_like_one(
    other: str, example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert merge(example, "--explain", "a1") == 0
    once = capsys.readouterr().out
    assert merge(example, "--explain", "a1", other) == 0
    assert capsys.readouterr().out == once


@pytest.mark.parametrize(
    "options",
    [
        ["--explain", "nothing"],
        ["--explain", "9|a1"],
        ["--explain", "x"],
        ["a1"],
        ["--explain", "a1", "--edges", "e.csv"],
        ["--explain", "a1", "--output", "t", "--ndjson", "x.ndjson"],
        ["--explain", "a1", "--since", "0"],
        ["--explain", "a1", "--full"],
        ["--explain", "a1", "--dry-run"],
        ["--explain", "a1", "--allow-changes"],
        ["--explain", "a1", "--tombstone-retention", "forever"],
        ["--edges", "e.txt", "--dry-run"],
    ],
)
def test_what_cannot_be_explained_is_one_line(
    options: list[str], example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert merge(example, *options) == 2
    [line] = capsys.readouterr().err.splitlines()
    says(line)


def test_a_cluster_that_is_too_large_is_explained(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (example / "spec.json").write_text(json.dumps(SPEC | {"max_merged": 2}))
    assert merge(example, "--explain", "a1") == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_all_links_are_written(example: Path) -> None:
    path = example / "edges.ndjson"
    assert merge(example, "--dry-run", "--edges", str(path)) == 0
    [first, second, third] = map(json.loads, path.read_text().splitlines())
    assert first == {
        "rule": "[eq, a.f1, b.f1]", "value": "1",
        "dataset": "A", "id": "a1", "other_dataset": "B", "other_id": "b1",
    }  # fmt: skip
    assert (second["id"], second["other_id"]) == ("b1", "c1")
    assert (third["id"], third["other_id"], third["value"]) == ("b1", "c2", '"x"')
    assert merge(example, "--dry-run", "--edges", str(example / "A.ndjson")) == 2
    assert merge(example, "--output", str(example / "t"), "--edges", str(path)) == 0
    assert len(path.read_text().splitlines()) == 3


def test_links_tie_what_the_clusters_have_in_linear_size(tmp_path: Path) -> None:
    entities: list[Entity] = [{"_id": str(n), "k": n % 3, "l": n % 2} for n in range(30)]
    write(tmp_path, {"A": entities, "B": entities})
    rules = [["eq", "a.k", "b.k"], ["eq", "a.k", "a.l"], ["eq", "b.l", "b.l"]]
    merge_ = EntityMerge(
        EntityRun(spec=spec("A a", "B b", equality=rules), store=None, folder=str(tmp_path))
    )
    report, _ = merge_.look()
    assert report.clusters == 1
    links = pa.Table.from_batches(merge_.links())
    assert 59 <= len(links) <= 180
    pairs = {
        (row["id"], row["other_id"]) for row in links.to_pylist() if row["rule"] == "[eq, a.k, b.k]"
    }
    assert all(int(one) % 3 == int(other) % 3 for one, other in pairs)


def test_a_run_reports_the_values_of_rules_and_the_largest_clusters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = [{"_id": f"a{n}", "k": [n, 7, 7], "l": "x"} for n in range(4)]
    b = [{"_id": f"b{n}", "k": 7, "l": "xy"[n]} for n in range(2)]
    write(tmp_path, {"A": a, "B": [*b, {"_id": "b9", "k": 8, "l": "z"}]})
    rules = [["eq", "a.k", "b.k"], ["eq", "a.l", "b.l"]]
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"datasets": ["A a", "B b"], "equality": rules}))
    assert merge(tmp_path, "--dry-run", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    first = found["rules"][0]
    assert (first["left"]["values"], first["left"]["distinct"]) == (12, 5)
    assert (first["right"]["distinct"], first["matches"]) == (2, 1)
    assert first["most_shared"] == {"value": "7", "entities": 6}
    assert found["sizes"] == {"1": 1, "6": 1}
    assert found["merged"] == 6
    [largest] = found["largest"]
    assert largest["entities"] == 6
    assert [(v["rule"], v["value"], v["entities"]) for v in largest["values"]] == [
        ("[eq, a.k, b.k]", "7", 6),
        ("[eq, a.l, b.l]", '"x"', 5),
    ]
    assert merge(tmp_path, "--output", str(tmp_path / "t")) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "[eq, a.k, b.k]: 12 (5 distinct) and 3 (2 distinct) values, 1 in common; most shared is 7, by "
        "6 entities",
        '[eq, a.l, b.l]: 4 (1 distinct) and 3 (3 distinct) values, 1 in common; most shared is "x", by '
        "5 entities",
        "clusters by number of entities: 1 of 1, 1 of 6",
        "0|a0|0|a1|0|a2|0|a3|1|b0|1|b1 has 6 entities: 7 by [eq, a.k, b.k] (6 entities), "
        '"x" by [eq, a.l, b.l] (5 entities)',
    ]


def test_the_page_of_the_table_has_the_figures_of_the_last_run(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, page = str(example / "t"), example / "r.html"
    assert merge(example, "--output", table) == 0
    printed = capsys.readouterr().out.splitlines()
    assert command(["report", table, "-o", str(page)]) == 0
    assert "clusters by number of entities: 4 of 1, 1 of 4" in page.read_text()
    capsys.readouterr()
    assert command(["report", table, "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["entity_merge"]
    assert lines[1:] == printed[1:]
    assert printed[0].startswith(lines[0])
