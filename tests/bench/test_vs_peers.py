"""The bench beside other engines, at a size that takes seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import vs_peers
from bench.real_logs import read_lines, real_log_rows


def run(tmp_path: Path, *arguments: str) -> int:
    work, out = tmp_path / "work", tmp_path / "result.json"
    size = ["--rows", "6000", "--inputs", "4", "--rounds", "1", "--cores", "1", "--core", "0"]
    return vs_peers.main([*size, "--work", str(work), "--out", str(out), *arguments])


@pytest.mark.long
def test_engines_that_did_the_same_work_are_shown_side_by_side(tmp_path: Path, capsys) -> None:
    logs = "grouped,interleaved,mostly-disjoint"
    code = run(tmp_path, "--engines", "floor,ours,pyarrow", "--workloads", logs)
    assert code == 0
    printed = capsys.readouterr().out
    for name in ("lsm-compactor", "PyArrow", "codec floor", "interleaved", "mostly-disjoint"):
        assert name in printed
    for measure in (
        "merge",
        "ingest",
        "ingest-ndjson",
        "scan-all",
        "scan-string of",
        "scan-numbers of",
    ):
        assert f"interleaved, {measure}" in printed
    assert "ingest-csv" not in printed  # they have nested columns
    assert "FAILED" not in printed
    document = json.loads((tmp_path / "result.json").read_text())
    assert len(document["runs"]) == 3 * (3 + 2 + 3 * 2)
    assert all(run["failure"] is None for run in document["runs"])
    assert not any(path.name.startswith("output") for path in (tmp_path / "work").rglob("runs/*/*"))


@pytest.mark.long
def test_rows_of_other_kinds_are_workloads(tmp_path: Path, capsys) -> None:
    kinds = ["lines", "requests", "accounts", "trips", "samples"]
    assert run(tmp_path, "--engines", "ours,pyarrow", "--workloads", ",".join(kinds)) == 0
    printed = capsys.readouterr().out
    for kind in kinds:
        for measure in ("merge", "ingest", "scan-all", "scan-string of", "scan-numbers of"):
            assert f"{kind}, {measure}" in printed


@pytest.mark.long
def test_files_of_text_are_ingested_side_by_side(tmp_path: Path, capsys) -> None:
    measures = "ingest-csv,ingest-ndjson"
    engines = ("--engines", "ours,duckdb", "--workloads", "names,counters")
    assert run(tmp_path, *engines, "--measures", measures) == 0
    document = json.loads((tmp_path / "result.json").read_text())
    assert {(run["engine"], run["measure"]) for run in document["runs"]} == {
        (engine, measure) for engine in ("ours", "duckdb") for measure in measures.split(",")
    }
    assert all((run["failure"], run["output_rows"]) == (None, 6000) for run in document["runs"])


@pytest.mark.long
def test_an_engine_that_loses_rows_is_shown_as_failed(tmp_path: Path, monkeypatch, capsys) -> None:
    from bench.peers import session

    honest = session._fault
    monkeypatch.setattr(session, "_fault", lambda found, rows: honest(found, rows + 1))
    code = run(
        tmp_path, "--engines", "ours", "--workloads", "interleaved", "--measures", "merge,scan"
    )
    assert code == 1
    assert "FAILED" in capsys.readouterr().out


@pytest.mark.long
def test_files_of_ones_own_and_lines_of_ones_own_are_workloads(tmp_path: Path, capsys) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "Web_2k.log").write_text("GET /a/17 in 3 ms\nGET /b in 25 ms\n")
    (logs / "Db.log").write_text("slow query 99\n")
    tables = [t.sort_by("timestamp") for t in real_log_rows(
        read_lines(logs), 900, 3, has_disjoint_times=False, seed=3)]  # fmt: skip
    assert [t.num_rows for t in tables] == [300, 300, 300]
    assert {text[:4] for t in tables for text in t["message"].to_pylist()} <= {"GET ", "slow"}
    files = tmp_path / "mine"
    files.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, files / f"{number}.parquet")
    mine = ("--files", str(files), "--sort-by", "timestamp")
    real = ("--lines", str(logs), "--workloads", "real-logs-grouped")
    assert run(tmp_path, "--engines", "ours", "--measures", "merge,ingest", *mine, *real) == 0
    printed = capsys.readouterr().out
    for name in ("mine, merge", "mine, ingest", "real-logs-grouped, merge"):
        assert f"{name}, one core" in printed
    assert "mine, merge, one core: 900 rows, 3 inputs" in printed


@pytest.mark.long
def test_every_engine_takes_nested_columns(tmp_path: Path, capsys) -> None:
    pytest.importorskip("chdb")
    files = tmp_path / "mine"
    files.mkdir()
    for number in range(2):
        info = [{"id": n, "parts": [{"name": "a", "size": n}]} for n in range(300)]
        table = pa.table({"k": range(number, 300 + number), "info": info})
        pq.write_table(table, files / f"{number}.parquet")
    mine = ("--files", str(files), "--sort-by", "k")
    engines = ("--engines", "ours,clickhouse,polars-sort")
    assert run(tmp_path, *engines, "--measures", "merge", *mine) == 0
    assert "FAILED" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--files", "{folder}"),
        ("--files", "{folder}", "--sort-by", "nothing"),
        ("--files", "{folder}", "--sort-by", "n"),
        ("--files", "{folder}/none", "--sort-by", "k"),
        ("--lines", "{folder}"),
        ("--measures", "speed"),
        ("--workloads", "easy"),
    ],
)
def test_what_cannot_be_measured_is_a_wrong_call(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"k": [1, 2], "n": [1, None]}), tmp_path / "a.parquet")
    with pytest.raises(SystemExit) as ended:
        run(tmp_path, *(argument.format(folder=tmp_path) for argument in arguments))
    assert ended.value.code == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert any(option in told for option in arguments[::2])
