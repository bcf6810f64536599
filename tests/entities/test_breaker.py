"""What a run refuses because an input is probably incomplete, and rules that it warns of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compactor.cli.main import run as command
from compactor.errors import UsageError
from tests.entities.support import run, spec, write
from tests.support.memory_store import MemoryStore
from tests.support.wording import refuses

ON_K = [["eq", "a.k", "b.k"]]
B: list[dict[str, Any]] = [{"_id": f"b{n}", "k": n} for n in range(8)]


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """After a first run, which leaves ten living entities."""
    write(tmp_path, {"A": [{"_id": "a1", "k": 11}, {"_id": "a2", "k": 12}], "B": B})
    store = MemoryStore()
    run(spec("A a", "B b", equality=ON_K), store, tmp_path)
    return store


def careful(store: MemoryStore, folder: Path, *names: str, **settings: Any) -> Any:
    full = settings.pop("full", False)
    settings = {"min_ended": 1, **settings}
    chosen = spec(*(names or ("A a", "B b")), equality=ON_K, **settings)
    return run(chosen, store, folder, full=full, allow_changes=False)


@pytest.mark.parametrize(
    "b",
    [
        pytest.param(B[3:], id="left out"),
        pytest.param([{**e, "_deleted": e["_id"] < "b3"} for e in B], id="deleted"),
        pytest.param([*B[2:], {"_id": "b9", "k": 11}], id="merged with others"),
    ],
)
def test_more_than_a_fifth_replaced_or_deleted_is_refused(
    b: list[dict[str, Any]], store: MemoryStore, tmp_path: Path
) -> None:
    objects = dict(store.objects)
    write(tmp_path, {"B": b})
    for full in (False, True):
        with refuses(UsageError, "3 of the table's 10", "30.0 %", "--allow-changes"):
            careful(store, tmp_path, full=full)
    assert store.objects == objects
    assert careful(MemoryStore(objects), tmp_path, max_ended_percent=30).ended == 3
    assert run(spec("A a", "B b", equality=ON_K), store, tmp_path).ended == 3


def test_a_fifth_replaced_or_deleted_is_written(store: MemoryStore, tmp_path: Path) -> None:
    write(tmp_path, {"B": B[2:]})
    assert careful(store, tmp_path).ended == 2
    assert careful(store, tmp_path).living_before == 8


def test_fewer_than_ten_may_always_be_replaced_or_deleted(tmp_path: Path) -> None:
    entities = [{"_id": f"a{n:02}"} for n in range(12)]
    for left, is_refused in ((3, False), (2, True)):
        store = MemoryStore()
        write(tmp_path, {"A": entities})
        run(spec("A a"), store, tmp_path)
        write(tmp_path, {"A": entities[:left]})
        if is_refused:
            with refuses(UsageError, "10 of the table's 12"):
                run(spec("A a"), store, tmp_path, allow_changes=False)
        else:
            assert run(spec("A a"), store, tmp_path, allow_changes=False).ended == 9


def test_entities_deleted_earlier_do_not_count(store: MemoryStore, tmp_path: Path) -> None:
    write(tmp_path, {"B": [{**e, "_deleted": e["_id"] < "b2"} for e in B]})
    careful(store, tmp_path)
    write(tmp_path, {"B": B[2:]})
    report = careful(store, tmp_path)
    assert (report.living_before, report.ended, report.replaced) == (8, 0, 2)


def test_a_dataset_that_has_gone_is_refused_even_if_it_was_empty(
    store: MemoryStore, tmp_path: Path
) -> None:
    write(tmp_path, {"B": []})
    run(spec("A a", "B b", equality=ON_K), store, tmp_path)
    (tmp_path / "B.ndjson").unlink()
    with refuses(UsageError, "dataset B"):
        careful(store, tmp_path)
    with refuses(UsageError, "dataset C"):
        run(spec("A a", "C b", equality=ON_K), store, tmp_path, allow_changes=False)
    run(spec("A a", "B b", equality=ON_K), store, tmp_path)
    assert careful(store, tmp_path).missing_datasets == ("B",)


def test_a_dataset_that_is_no_longer_of_the_spec_may_go_with_a_full_run(
    store: MemoryStore, tmp_path: Path
) -> None:
    write(tmp_path, {"A": [{"_id": "a1", "k": 11}, {"_id": "a2", "k": 12}]})
    (tmp_path / "B.ndjson").unlink()
    chosen = spec("A a", max_ended_percent=80)
    assert run(chosen, store, tmp_path, full=True, allow_changes=False).ended == 8


def test_the_command_allows_changes_if_it_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.yaml").write_text("version: 2\ndatasets: [A a]\n")
    call = ["entity-merge", str(tmp_path / "s.yaml"), "--datasets", str(tmp_path)]
    call += ["--output", str(tmp_path / "t")]
    write(tmp_path, {"A": [{"_id": "x"}, {"_id": "y"}]})
    assert command(call) == 0
    (tmp_path / "A.ndjson").unlink()
    assert command(call) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert command([*call, "--allow-changes"]) == 0


def test_rules_that_match_nothing_are_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = {"_id": "a1", "k": 1, "l": 1, "blank": " "}
    write(tmp_path, {"A": [first], "B": [{"_id": "b1", "k": "1", "l": 1}]})
    pairs = ("a.l b.l", "a.kk b.k", "a.k b.k", "a.x a.x", "a.k a.k", "a.blank b.k")
    rules = [["eq", *sides.split()] for sides in pairs]
    (tmp_path / "s.json").write_text(
        json.dumps({"version": 2, "datasets": ["A a", "B b"], "equality": rules})
    )
    call = ["entity-merge", str(tmp_path / "s.json"), "--datasets", str(tmp_path), "--dry-run"]
    assert command([*call, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["warnings"] == [
        "rule [eq, a.kk, b.k] matches nothing: no entity has a.kk; correct the name, or leave the rule out",
        "rule [eq, a.k, b.k] matches nothing: 1 value of a.k and 1 value of b.k have none in common; "
        "compare types and forms of the values",
        "rule [eq, a.x, a.x] matches nothing: no entity has a.x; correct the name, or leave the rule out",
        "rule [eq, a.k, a.k] matches nothing: 1 value of a.k, each of one entity; "
        "compare forms of the values",
        "rule [eq, a.blank, b.k] matches nothing: all values of a.blank are left out, as blank ones are, and "
        "those that a function does not take; correct the values",
    ]
    assert said.err.count("\n") == 5
