"""Merges by entity within pipelines."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.cli.main import run as command
from compactor.errors import CompactorError, ConfigError
from compactor.resources.errors import MemoryLimitError
from tests.pipelines.support import lines_of, run_of, sources
from tests.support.wording import refuses, says

EXAMPLE = {
    "A": pa.table({"_id": ["a1", "a2"], "f1": [1, 2]}),
    "B": pa.table({"_id": ["b1", "b2"], "f1": [1, 3], "f2": ["x", None]}),
    "C": pa.table(
        {"_id": ["c1", "c2", "c3"], "_deleted": [None, True, True], "f3": ["X", "Y", "X"]}
    ),
}
RULES = {"equality": [["eq", "A.f1", "B.f1"], ["eq", "B.f2", ["lower", "C.f3"]]]}


def nodes_of(tmp_path: Path, entity: Any = None, **more: Any) -> dict[str, Any]:
    merge = {"inputs": ["A", "B", "C"], "mode": "entity", "entity": entity or RULES, **more}
    return {
        **sources("A", "B", "C"),
        "m": {"merge": merge},
        "o": {"output": {"input": "m", "path": str(tmp_path / "o.ndjson")}},
    }


@pytest.mark.parametrize("batch_size", [1, 2048])
def test_the_worked_example_comes_out_of_a_pipeline(tmp_path: Path, batch_size: int) -> None:
    run_of(nodes_of(tmp_path), EXAMPLE, batch_size=batch_size).run()
    found = [
        {k: v for k, v in row.items() if v is not None} for row in lines_of(tmp_path / "o.ndjson")
    ]
    for row in found:
        if not row["_deleted"]:
            del row["_deleted"]
    assert found == [
        {"$ids": ["a1", "b1", "c1"], "_id": "0|a1|1|b1|2|c1", "_updated": 0, "f1": [1, 1], "f2": "x",
         "f3": "X"},
        {"$ids": ["a2"], "_id": "0|a2", "_updated": 1, "f1": 2},
        {"$ids": ["b2"], "_id": "1|b2", "_updated": 2, "f1": 3},
        {"$ids": ["c2"], "_deleted": True, "_id": "2|c2", "_updated": 3, "f3": "Y"},
        {"$ids": ["c3"], "_deleted": True, "_id": "2|c3", "_updated": 4, "f3": "X"},
    ]  # fmt: skip


def test_its_inputs_may_be_any_nodes_and_its_rows_go_to_any(tmp_path: Path) -> None:
    rng = random.Random(5)
    table = pa.table(
        {"_id": [f"{n:04d}" for n in range(2000)], "k": [rng.randrange(500) for _ in range(2000)]}
    )
    nodes = {
        **sources("s"),
        "r": {"route": {"input": "s", "branches": {"low": "_id < '1000'"}, "otherwise": "high"}},
        "m": {
            "merge": {
                "inputs": ["r.low", "r.high"],
                "mode": "entity",
                "entity": {"equality": [["eq", "r_low.k", "r_high.k"]], "identity": "first"},
            }
        },
        "t": {"transform": {"input": "m", "filter": "_id < '1000'", "columns": ["_id", "$ids"]}},
        "o": {"output": {"input": "t", "path": str(tmp_path / "o.ndjson")}},
    }
    run_of(nodes, {"s": table}).run()
    low, high = table.slice(0, 1000).to_pylist(), table.slice(1000).to_pylist()
    expected = {}
    for row in low:
        same = [h["_id"] for h in high if h["k"] == row["k"]]
        mates = [mate["_id"] for mate in low if mate["k"] == row["k"]]
        if not same:
            expected[row["_id"]] = [row["_id"]]
        elif mates[0] == row["_id"]:
            expected[row["_id"]] = [*mates, *same]
    assert {row["_id"]: row["$ids"] for row in lines_of(tmp_path / "o.ndjson")} == expected


def test_more_than_memory_allows_is_an_error_that_names_the_node(tmp_path: Path) -> None:
    big = pa.table({"_id": [f"{n:0100d}" for n in range(20_000)]})
    run = run_of(nodes_of(tmp_path), {**EXAMPLE, "A": big.append_column("f1", big.column("_id"))},
                 memory={"limit": "2MiB"})  # fmt: skip
    with refuses(MemoryLimitError):
        run.run()
    assert not (tmp_path / "o.ndjson").exists()


@pytest.mark.parametrize(
    ("entity", "more"),
    [
        ({"equality": [["eq", "A.f1", "Q.f1"]]}, {}),
        ({**RULES, "sources": {"A": "x"}}, {}),
        ({**RULES, "max_ended_percent": 50}, {}),
        ({**RULES, "min_ended": 5}, {}),
        ({"datasets": ["B b", "A a", "C c"]}, {}),
        ({**RULES, "equal": []}, {}),
        ([1], {}),
        (RULES, {"mode": "concat"}),
        (RULES, {"sort_by": "x"}),
    ],
)  # fmt: skip
def test_mistakes_of_rules_are_named(tmp_path: Path, entity: Any, more: dict[str, Any]) -> None:
    with refuses(ConfigError):
        run_of(nodes_of(tmp_path, entity, **more), EXAMPLE)


def test_an_input_without_ids_is_named(tmp_path: Path) -> None:
    tables = {**EXAMPLE, "B": EXAMPLE["B"].drop_columns(["_id"])}
    with refuses(ConfigError):
        run_of(nodes_of(tmp_path), tables)


def test_aliases_of_ones_own_may_be_given(tmp_path: Path) -> None:
    rules = {"datasets": ["A x", "B y", "C z"], "equality_sets": [["x.f1", "y.f1"]]}
    run_of(nodes_of(tmp_path, rules), EXAMPLE).run()
    assert len(lines_of(tmp_path / "o.ndjson")) == 6
    assert json.loads((tmp_path / "o.ndjson").read_text().splitlines()[0])["_id"] == "0|a1|1|b1"


@pytest.mark.parametrize(
    ("a", "rules"),
    [
        ({"_id": ["a", None]}, {}),
        ({"_id": ["b1"]}, {"identity": "first"}),
        (
            {"_id": ["a", "b"], "f1": [1, 1]},
            {**RULES, "max_merged": 2},
        ),
    ],
)
def test_what_goes_wrong_in_a_merge_names_its_node(
    tmp_path: Path, a: dict[str, Any], rules: dict[str, Any]
) -> None:
    run = run_of(nodes_of(tmp_path, {"equality": [], **rules}), {**EXAMPLE, "A": pa.table(a)})
    with refuses(CompactorError):
        run.run()


def test_version_1_is_said_to_be_deprecated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = {
        "A": {"source": {"path": str(tmp_path / "A.ndjson")}},
        "m": {"merge": {"inputs": ["A"], "mode": "entity", "entity": {"version": 1}}},
        "o": {"output": {"input": "m", "path": str(tmp_path / "o.ndjson")}},
    }
    (tmp_path / "A.ndjson").write_text('{"_id": "a"}\n')
    (tmp_path / "p.yaml").write_text(json.dumps({"nodes": nodes}))
    command(["run", str(tmp_path / "p.yaml"), "--explain"])
    says(capsys.readouterr().err)
