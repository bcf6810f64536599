"""Runs guess types from the beginnings of files, and give what they would if the types had been known."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compactor.errors import CompactorError
from compactor.files import csv, ndjson
from compactor.pipelines import work
from compactor.pipelines.config import Pipeline, parse_pipeline
from compactor.pipelines.nodes import source
from compactor.pipelines.phases import run_pipeline
from compactor.pipelines.pipeline_run import PipelineRun
from compactor.pipelines.run_report import RunReport

BLOCK = 256
LETTERS = "out.letters.ndjson"


@pytest.fixture(autouse=True)
def guesses_from_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "MAX_ROW_BYTES", BLOCK)
    monkeypatch.setattr(ndjson, "_BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(source, "_MIN_GUESSED", 1)
    monkeypatch.setattr(work, "_MAX_HELD", BLOCK)


class Runs:
    """Runs graphs over the files of a folder, with guesses and without."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, *lines: str) -> None:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))

    def by_guesses(
        self, nodes: dict[str, Any], **settings: Any
    ) -> tuple[RunReport, dict[str, str]]:
        """Returns the report and what was written, which is what a run with known types writes."""
        report, written = self.alike(nodes, **settings)
        assert isinstance(report, RunReport)
        return report, written

    def refused(self, nodes: dict[str, Any], **settings: Any) -> str:
        """Returns the message of a run, which is that of a run with known types."""
        message, written = self.alike(nodes, **settings)
        assert isinstance(message, str) and not written
        return message

    def alike(
        self, nodes: dict[str, Any], **settings: Any
    ) -> tuple[RunReport | str, dict[str, str]]:
        """Returns the report or message of a run, and what it wrote."""
        text = json.dumps({"nodes": nodes, **settings})
        known, known_files = self._result(lambda p: PipelineRun(p).run(), text)
        found, files = self._result(run_pipeline, text)
        assert files == known_files
        if isinstance(found, str) or isinstance(known, str):
            assert found == known
        else:
            assert found.records_read == known.records_read
            assert found.dlq_count == known.dlq_count
        return found, files

    def _result(
        self, run: Callable[[Pipeline], RunReport], text: str
    ) -> tuple[RunReport | str, dict[str, str]]:
        try:
            found: RunReport | str = run(parse_pipeline(text, str(self.folder / "p.json")))
        except CompactorError as error:
            found = str(error.message)
        return found, self._written()

    def _written(self) -> dict[str, str]:
        found = {path.name: path.read_text() for path in self.folder.glob("out*")}
        if letters := found.get(LETTERS):
            # Those of the file's bad rows come as they are read.
            found[LETTERS] = "".join(sorted(letters.splitlines(keepends=True)))
        for path in self.folder.glob("out*"):
            path.unlink()
        return found


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def chain(path: str, out: str = "out.csv", **transform: Any) -> dict[str, Any]:
    return {
        "rows": {"source": {"path": path}},
        "made": {"transform": {"input": "rows", **transform}},
        "out": {"output": {"input": "made", "path": out}},
    }


def numbers(last: str = "500,6") -> list[str]:
    return ["a,b", *(f"{n},{n % 7}" for n in range(500)), last]


def test_types_that_hold_take_one_pass(runs: Runs) -> None:
    runs.write("rows.csv", *numbers())
    report, written = runs.by_guesses(chain("rows.csv", columns={"c": "a + b"}))
    assert report.restarts == 0 and written["out.csv"].count("\n") == 502


@pytest.mark.parametrize(
    "last", ["x,1", "500.5,1", "18446744073709551615,1", "-0,0.5", "2026-01-01,1"]
)
def test_a_later_value_of_another_type_makes_the_run_begin_again(runs: Runs, last: str) -> None:
    runs.write("rows.csv", *numbers(last))
    nodes = {
        "rows": {"source": {"path": "rows.csv"}},
        "out": {"output": {"input": "rows", "path": "out.csv"}},
    }
    report, written = runs.by_guesses(nodes)
    assert report.restarts == 1
    assert report.records_read == {"rows": 501}
    assert written["out.csv"].count("\n") == 502


def test_a_value_in_a_column_that_nothing_reads_changes_nothing(runs: Runs) -> None:
    runs.write("rows.csv", *numbers("500,x"))
    assert runs.by_guesses(chain("rows.csv", columns={"c": "a + 1"}))[0].restarts == 0


def test_a_column_without_a_value_so_far_is_not_guessed(runs: Runs) -> None:
    runs.write("rows.csv", "a,b", *(f"{n}," for n in range(500)), "500,x")
    report, _ = runs.by_guesses(chain("rows.csv", columns={"c": "coalesce(b, 'none')"}))
    assert report.restarts == 0


def test_nodes_that_fit_only_the_types_of_the_whole_file_are_bound_to_these(runs: Runs) -> None:
    runs.write("rows.csv", *numbers("x,1"))
    runs.by_guesses(chain("rows.csv", columns={"c": "upper(a)"}))


def test_nodes_that_fit_only_the_guess_are_refused(runs: Runs) -> None:
    runs.write("rows.csv", *numbers("x,1"))
    assert "'made'" in runs.refused(chain("rows.csv", columns={"c": "a + 1"}))


def test_a_row_that_only_the_guess_cannot_compute_is_computed(runs: Runs) -> None:
    runs.write("rows.csv", *numbers("0.5,1"))
    times = "a * 9000000000000000000"
    assert runs.by_guesses(chain("rows.csv", columns={"c": times}))[0].restarts == 1


def test_a_mistake_in_the_file_comes_before_that_of_a_row(runs: Runs) -> None:
    runs.write("rows.csv", *numbers("1,2,3"))
    assert "row 501" in runs.refused(chain("rows.csv", columns={"c": "1 % (a - 400)"}))
    runs.write("rows.csv", *numbers())
    assert "row 401" in runs.refused(chain("rows.csv", columns={"c": "1 % (a - 400)"}))


def test_bad_rows_of_both_runs_are_put_aside_once(runs: Runs) -> None:
    lines = numbers("x,1")
    lines[3], lines[400] = "1,2,3", "1,2,3,4"
    runs.write("rows.csv", *lines)
    letters = {"on_error": "continue", "dead_letter": LETTERS}
    report, written = runs.by_guesses(chain("rows.csv", filter="1 % b < 5"), **letters)
    assert report.restarts == 1
    assert written[LETTERS].count("\n") == report.dlq_count == 71 + 2


def test_a_field_that_appears_later_makes_the_run_begin_again(runs: Runs) -> None:
    rows = [json.dumps({"a": n}) for n in range(500)]
    runs.write("rows.ndjson", *rows, '{"a": 1, "b": {"c": null}}')
    nodes = {
        "rows": {"source": {"path": "rows.ndjson"}},
        "out": {"output": {"input": "rows", "path": "out.ndjson"}},
    }
    report, written = runs.by_guesses(nodes)
    assert report.restarts == 1 and '"b"' in written["out.ndjson"]


def test_files_of_a_pattern_and_other_sources_are_read_again_too(runs: Runs) -> None:
    for name in "bc":
        runs.write(f"rows-{name}.csv", *numbers("500,1" if name == "b" else "500,1.5"))
    runs.write("others.csv", "a,city", *(f"{n},city-{n}" for n in range(600)))
    nodes = {
        "rows": {"source": {"path": "rows-*.csv"}},
        "others": {"source": {"path": "others.csv"}},
        "joined": {
            "combine": {"probe": "rows", "build": "others", "on": ["a"], "method": "sort_merge"}
        },
        "out": {"output": {"input": "joined", "path": "out.csv"}},
    }
    assert runs.by_guesses(nodes)[0].restarts == 1


def test_a_source_that_a_run_does_not_read_to_its_end_is_settled(runs: Runs) -> None:
    runs.write("rows.csv", *numbers())
    runs.write("others.csv", "a,c", *numbers("500,0.5")[1:])
    nodes = {
        "rows": {"source": {"path": "rows.csv"}},
        "some": {"transform": {"input": "rows", "filter": "a < 3"}},
        "others": {"source": {"path": "others.csv"}},
        "joined": {
            "combine": {"probe": "some", "build": "others", "on": ["a"], "method": "sort_merge"}
        },
        "out": {"output": {"input": "joined", "path": "out.csv"}},
    }
    assert runs.by_guesses(nodes)[0].restarts == 1


@pytest.mark.parametrize("seed", range(30))
def test_random_files_give_what_known_types_give(runs: Runs, seed: int) -> None:
    rng = random.Random(f"guesses {seed}")
    kinds: list[Callable[[], str]] = [
        lambda: str(rng.randrange(-3, 4)),
        lambda: str(rng.randrange(1 << 62)),
        lambda: f"{rng.random():.2f}",
        lambda: f"2026-01-{rng.randrange(1, 29):02}",
        lambda: rng.choice(("true", "false")),
        lambda: "",
        lambda: rng.choice("xy"),
    ]
    names = ["a", "b", "c"]
    lines, kind = [",".join(names)], {name: rng.choice(kinds) for name in names}
    for _ in range(rng.randrange(400)):
        if rng.random() < 0.005:
            kind[rng.choice(names)] = rng.choice(kinds)
        cells = [kind[name]() for name in names]
        lines.append(",".join(cells if rng.random() < 0.998 else [*cells, "odd"]))
    runs.write("rows.csv", *lines)
    columns = {name: name for name in names} | {"d": rng.choice(("1 % a", "a * 5", "concat(a, b)"))}
    letters = {"on_error": "continue", "dead_letter": LETTERS}
    nodes = chain("rows.csv", columns=dict(rng.sample(sorted(columns.items()), 3)))
    runs.alike(nodes, **(letters if rng.random() < 0.5 else {}))
