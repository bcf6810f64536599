"""`compactor entity-merge --master`, on Spark itself; what tasks do is in test_entity_tasks."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from compactor.cli.main import run as command
from compactor.entities.spark_components import SparkConnector
from compactor.entities.tasks import connecting
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from tests.entities.support import rows, write
from tests.entities.test_reference import DATASETS, OUTPUT, PIPE

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SPEC = {
    "datasets": ["A a", "B b", "C c"],
    "equality": [["eq", "a.k", "b.k"], ["eq", "b.m", ["lower", "c.m"]]],
    "max_merged": 400,
}


def entities(seed: int, count: int) -> dict[str, list[dict[str, Any]]]:
    """With a value that 150 of them have."""
    chance = random.Random(seed)

    def entity(name: str, number: int) -> dict[str, Any]:
        shared = number < 50
        found = {
            "_id": f"{name}{number}",
            "k": 0 if shared else [chance.randrange(1, count), chance.randrange(1, count)],
            "m": chance.choice("xyz") + str(chance.randrange(count)),
        }
        return found | ({"_deleted": True} if chance.random() < 0.1 else {})

    return {n: [entity(n, i) for i in range(count)] for n in "ABC"}


def test_two_runs_on_spark_leave_the_table_that_two_in_one_process_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first connects in one task, the second in rounds."""
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(SPEC))
    in_rounds: list[Any] = []
    components = SparkConnector.components

    def noted(self: SparkConnector, edges: Any, url: str, on_round: Any) -> Any:
        in_rounds.append(edges)
        return components(self, edges, url, on_round)

    monkeypatch.setattr(SparkConnector, "components", noted)

    def merged(table: str, *options: str) -> Any:
        arguments = ["entity-merge", str(path), "--output", str(tmp_path / table)]
        given = [*arguments, "--datasets", str(tmp_path), "--allow-changes", "--json", *options]
        assert command(given) == 0
        return json.loads(capsys.readouterr().out)

    spark = ("--master", "local[2]", "--shuffle-partitions", "3")
    write(tmp_path, entities(1, 200))
    assert merged("one") == merged("many", *spark)
    assert not in_rounds
    monkeypatch.setattr(connecting, "fits_one_task", lambda *_: False)
    changed = entities(1, 200)
    changed["A"] = changed["A"][:-20]
    changed["B"][60]["k"] = 0
    write(tmp_path, changed)
    second = merged("one")
    assert second == merged("many", *spark)
    assert len(in_rounds) == 1
    assert second["replaced"] > 0
    tables = [LocalStore(str(tmp_path / name)) for name in ("one", "many")]
    assert rows(tables[0]) == rows(tables[1])
    assert CommitLog(tables[1]).refresh().version == 2


def test_too_many_that_would_be_one_are_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(SPEC | {"max_merged": 99}))
    write(tmp_path, entities(1, 60))
    arguments = ["entity-merge", str(path), "--output", str(tmp_path / "t")]
    code = command([*arguments, "--datasets", str(tmp_path), "--master", "local[2]"])
    lines = [line for line in capsys.readouterr().err.splitlines() if "would become" in line]
    assert code
    assert len(lines) == 1
    assert "max_merged is 99: nothing was written" in lines[0]
    assert CommitLog(LocalStore(str(tmp_path / "t"))).refresh().version == 0


def test_the_example_of_the_reference_runs_as_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {**DATASETS, "pipe": PIPE}.items():
        (tmp_path / f"{name}.json").write_text(text)
    arguments = ["entity-merge", str(tmp_path / "pipe.json"), "--output", str(tmp_path / "t")]
    given = [*arguments, "--datasets", str(tmp_path), "--ndjson", "-", "--master", "local[2]"]
    assert command(given) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == json.loads(OUTPUT)


def test_spark_keeps_few_and_short_plans_of_a_merge(tmp_path: Path, spark: Any) -> None:
    """The plan of a job has those of all jobs before it."""
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(SPEC))
    write(tmp_path, entities(2, 60))
    arguments = ["entity-merge", str(path), "--output", str(tmp_path / "t"), "--json"]
    assert command([*arguments, "--datasets", str(tmp_path), "--master", "local[2]"]) == 0
    kept = spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [kept.apply(n).physicalPlanDescription() for n in range(kept.size())]
    assert 0 < len(plans) <= 20
    assert max(map(len, plans)) < 40_000
