"""The figures of a run: when its seconds begin, which stage they belong to, and what is charged."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.cli.main import run
from compactor.errors import CompactorError
from compactor.files.write import StagedSink
from compactor.pipelines.config import Source, parse_pipeline
from compactor.pipelines.nodes.source import SourceReader, open_source
from compactor.pipelines.phases import run_pipeline
from compactor.pipelines.pipeline_run import PipelineRun
from compactor.pipelines.run_report import RunReport
from compactor.pipelines.work import Reading
from tests.pipelines.support import numbered, run_of, sources
from tests.pipelines.test_documents import write_lines
from tests.support.open_files import open_files_in

STAGES = ["schema_scan", "projection", "write"]


def nodes_of(folder: Path, **columns: str) -> dict[str, Any]:
    return {
        "a": {"source": {"path": str(folder / "in.ndjson")}},
        "t": {"transform": {"input": "a", "columns": {"n": "n", **columns}}},
        "o": {"output": {"input": "t", "path": str(folder / "o.csv")}},
    }


def test_seconds_count_from_the_opening_of_the_first_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def slow(name: str, source: Source, how: Reading, /) -> SourceReader:
        now[0] += 60
        return open_source(name, source, how)

    write_lines(tmp_path / "in.ndjson", 10)
    pipeline = parse_pipeline(json.dumps({"nodes": nodes_of(tmp_path)}), "p.yaml")
    first = PipelineRun(pipeline, slow)
    now[0] += 1000  # another phase runs
    report = first.run()
    assert report.seconds == 60
    assert report.stage_seconds == {
        "schema_scan": {"a": 60},
        "projection": {"a": 0, "t": 0},
        "write": {"o": 0},
    }


def test_the_report_tells_the_schema_scan_the_projection_and_the_write_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lines(tmp_path / "in.ndjson", 10)
    (tmp_path / "p.json").write_text(json.dumps({"nodes": nodes_of(tmp_path)}))
    assert run(["run", str(tmp_path / "p.json"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["stage_seconds"]
    assert {stage: sorted(of_nodes) for stage, of_nodes in told.items()} == {
        "schema_scan": ["a"],
        "projection": ["a", "t"],
        "write": ["o"],
    }
    assert run(["run", str(tmp_path / "p.json")]) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    positions = [told.index(stage.replace("_", " ")) for stage in STAGES]
    assert positions == sorted(positions)


def test_seconds_of_two_phases_add_up() -> None:
    one = RunReport(scan_seconds={"a": 1.0}, node_seconds={"a": 2.0}, seconds=3.0)
    one.add(RunReport(scan_seconds={"a": 1.0, "b": 5.0}, node_seconds={"b": 1.0}, seconds=7.0))
    assert (one.scan_seconds, one.node_seconds) == ({"a": 2.0, "b": 5.0}, {"a": 2.0, "b": 1.0})
    assert one.seconds == 10.0


def test_each_node_holds_the_charge_of_the_batch_that_it_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = {
        **sources("a"),
        "t": {"transform": {"input": "a", "columns": {"n": "n + 1"}}},
        "o": {"output": {"input": "t", "path": str(tmp_path / "o.csv")}},
    }
    given = run_of(nodes, {"a": numbered("a", 1000)}, batch_size=100)
    budget, held = given._work.budget, list[bool]()

    def write(_sink: StagedSink, batch: pa.RecordBatch) -> None:
        held.append(budget.held_bytes("a") > batch.nbytes and budget.held_bytes("t") > batch.nbytes)

    monkeypatch.setattr(StagedSink, "write", write)
    report = given.run()
    assert held == [True] * 10
    assert report.peak_bytes > 0
    assert budget.used_bytes == 0


def test_batches_get_smaller_in_a_long_graph_so_that_they_fit_together() -> None:
    def batch_rows(length: int) -> int:
        chain = {
            f"t{n}": {"transform": {"input": f"t{n - 1}" if n else "a"}} for n in range(length)
        }
        output = {"output": {"input": f"t{length - 1}", "path": "o.csv"}}
        nodes = {**sources("a"), **chain, "o": output}
        return run_of(
            nodes, {"a": numbered("a", 1)}, memory={"limit": "1MiB"}
        )._work.batch_size.rows

    assert batch_rows(1) == batch_rows(10) == (1 << 20) // 64 // 64
    assert batch_rows(62) == (1 << 20) // (4 * 64) // 64


@pytest.mark.parametrize("kind", ["refused", "fails in the middle", "ends"])
@pytest.mark.parametrize("ending", ["csv", "ndjson", "parquet", "arrow"])
def test_no_file_is_open_and_no_thread_reads_after_a_run(
    ending: str, kind: str, tmp_path: Path
) -> None:
    columns = {"refused": "nonsense(n)", "fails in the middle": "1 / (n - 50)", "ends": "n"}
    folder = tmp_path / "in"
    folder.mkdir()
    write_lines(folder / "in.ndjson", 100)
    whole = nodes_of(folder)
    whole["o"]["output"]["path"] = str(folder / f"in.{ending}")
    if ending != "ndjson":
        run_pipeline(parse_pipeline(json.dumps({"nodes": whole}), "p.yaml"))
    nodes = {
        **{name: {"source": {"path": str(folder / f"in.{ending}")}} for name in ("a", "b")},
        "m": {"merge": {"inputs": ["a", "b"]}},
        "t": {"transform": {"input": "m", "columns": {"q": columns[kind]}}},
        "o": {"output": {"input": "t", "path": str(tmp_path / "o.csv")}},
    }
    before = set(threading.enumerate())
    error: CompactorError | None = None
    try:
        run_pipeline(parse_pipeline(json.dumps({"nodes": nodes}), "p.yaml"))
    except CompactorError as found:
        error = found  # keeps the frames of the run, as a caller may
    assert (error is None) == (kind == "ends")
    assert not open_files_in(folder)
    assert set(threading.enumerate()) <= before
