"""The largest changes, which a dry run shows."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.cli.main import run as command
from compactor.entities.entity_merge import EntityMerge
from compactor.entities.entity_report import EntityMergeReport
from compactor.entities.preview import Change
from compactor.entities.run import EntityRun
from compactor.entities.spec import EntityMergeSpec
from tests.entities.support import Entity, rows, run, spec, write
from tests.entities.test_against_model import DATASETS, EDITS, NAMES, edited
from tests.support.memory_store import MemoryStore

ON_K = [["eq", "a.k", "b.k"]]


def look(chosen: EntityMergeSpec, store: MemoryStore | None, folder: Path) -> EntityMergeReport:
    asked = EntityRun(spec=chosen, store=store, folder=str(folder), allow_changes=True)
    return EntityMerge(asked).look()[0]


def brief(report: EntityMergeReport) -> list[str]:
    return [str(change) for change in report.changes]


def test_what_came_and_what_went_is_shown_largest_first(tmp_path: Path) -> None:
    first = spec("A a", "B b", equality=ON_K, identity="first")
    a: list[Entity] = [{"_id": f"a{n}", "k": n} for n in range(3)]
    write(tmp_path, {"A": a, "B": [{"_id": "b0", "k": 0}, {"_id": "b1", "k": 1}]})
    store = MemoryStore()
    assert look(first, None, tmp_path).changes == look(first, store, tmp_path).changes
    run(first, store, tmp_path)
    assert brief(look(first, store, tmp_path)) == []
    b: list[Entity] = [{"_id": "b1", "k": 0}, {"_id": "b8", "k": 0}, {"_id": "b9", "k": 7}]
    write(tmp_path, {"A": [*a[:2], {"_id": "a3", "k": 4, "_deleted": True}], "B": b})
    report = look(first, store, tmp_path)
    assert brief(report) == [
        "changed a0: 2 -> 3 entities, with b1, b8, without b0",
        "changed a1: 2 -> 1 entities, without b1",
        "replaced a2: 1 -> 0 entities, without a2",
        "new a3: 0 -> 1 entities, with a3",
        "new b9: 0 -> 1 entities, with b9",
    ]


def test_an_entity_with_other_values_comes_last(tmp_path: Path) -> None:
    write(tmp_path, {"A": [{"_id": "a", "k": 1}, {"_id": "b", "k": 1}, {"_id": "c", "k": 2}]})
    chosen, store = spec("A a", equality=[["eq", "a.k", "a.k"]]), MemoryStore()
    run(chosen, store, tmp_path)
    write(tmp_path, {"A": [{"_id": "a", "k": 1}, {"_id": "b", "k": 1, "p": 1}, {"_id": "d"}]})
    assert brief(look(chosen, store, tmp_path))[2:] == [
        "changed 0|a|0|b: 2 -> 2 entities, the same ones"
    ]


def test_an_entity_that_lives_again_is_new(tmp_path: Path) -> None:
    chosen, store = spec("A a"), MemoryStore()
    write(tmp_path, {"A": [{"_id": "a", "_deleted": True}]})
    run(chosen, store, tmp_path)
    write(tmp_path, {"A": [{"_id": "a"}]})
    assert brief(look(chosen, store, tmp_path)) == ["new 0|a: 1 -> 1 entities, the same ones"]


def test_lines_are_cut_and_the_object_has_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = [{"_id": f"{'x' * 30}{n:03}", "k": n // 40} for n in range(1200)]
    write(tmp_path, {"A": many})
    (tmp_path / "s.json").write_text(
        json.dumps({"version": 2, "datasets": ["A a"], "equality": [["eq", "a.k", "a.k"]]})
    )
    call = ["entity-merge", str(tmp_path / "s.json"), "--datasets", str(tmp_path), "--dry-run"]
    assert command(call) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = lines[lines.index("largest changes:") + 1 :]
    assert len(shown) == 20
    assert all(line.endswith(" more") and len(line) <= 100 for line in shown)
    assert command([*call, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["changes"][0]
    assert (first["kind"], first["before"], first["after"], first["came"]) == ("new", 0, 40, 40)
    assert first["came_ids"] == [f"{'x' * 30}{n:03}" for n in range(10)]


@pytest.mark.parametrize("characters", [1, 40, 300])
def test_a_line_is_never_longer_than_a_page_is_wide(characters: int) -> None:
    ids = ["x" * characters] * 10
    change = Change(
        kind="replaced",
        key="k" * characters,
        before=50_000,
        after=50_000,
        came=49_999,
        went=49_999,
        came_ids=ids,
        went_ids=ids,
    )
    assert len(str(change)) <= 100
    assert str(change).count("49,99") == 2


def test_a_real_run_lists_no_changes(tmp_path: Path) -> None:
    write(tmp_path, {"A": [{"_id": "a"}]})
    assert run(spec("A a"), MemoryStore(), tmp_path).changes == []


def by_hand(before: list[Entity], after: list[Entity]) -> list[tuple[Any, ...]]:
    """Of the rows that differ: key, kind, sizes, what came and what went."""
    old = {row["_id"]: row for row in before}
    found = []
    for row in after:
        had, has = old.get(row["_id"], {}), row
        if had == row:
            continue
        was, now = had.get("$ids") or [], has.get("$ids") or []
        kind = "new" if not had or had.get("_deleted") else "changed"
        kind = "replaced" if row.get("$replaced") else kind
        came = [each for each in now if each not in was]
        went = [each for each in was if each not in now]
        key = -len(came) - len(went), -max(len(was), len(now)), row["_id"]
        found.append((*key, kind, len(was), len(now), came, went))
    return [each[2:] for each in sorted(found)[:20]]


@settings(max_examples=60, deadline=None)
@given(DATASETS, EDITS, st.sampled_from(["composite", "first"]))
def test_a_dry_run_shows_the_rows_that_a_run_then_writes(
    first: Any, edits: Any, identity: str
) -> None:
    if identity == "first":
        first = [[{**e, "_id": f"{n}{e['_id']}"} for e in d] for n, d in enumerate(first)]
    rules = [["eq", "a.k", "b.k"], ["eq", "b.l", "c.l"], ["eq", "a.k", "a.k"]]
    chosen, store = spec(*NAMES, equality=rules, identity=identity), MemoryStore()
    with tempfile.TemporaryDirectory() as folder:
        for datasets in (first, edited(first, edits)):
            write(Path(folder), dict(zip("ABC", datasets, strict=True)))
            before = rows(store)
            report = look(chosen, store, Path(folder))
            assert rows(store) == before
            run(chosen, store, Path(folder))
            shown = [
                (c.key, c.kind, c.before, c.after, c.came_ids, c.went_ids) for c in report.changes
            ]
            assert shown == by_hand(before, rows(store))
