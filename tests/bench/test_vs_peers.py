"""The bench beside other engines, at a size that takes seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import vs_peers


def run(tmp_path: Path, *arguments: str) -> int:
    work, out = tmp_path / "work", tmp_path / "result.json"
    size = ["--rows", "6000", "--inputs", "4", "--rounds", "1", "--cores", "1", "--core", "0"]
    return vs_peers.main([*size, "--work", str(work), "--out", str(out), *arguments])


@pytest.mark.long
def test_engines_that_did_the_same_work_are_shown_side_by_side(tmp_path: Path, capsys) -> None:
    code = run(tmp_path, "--engines", "floor,ours,pyarrow", "--plot", str(tmp_path / "p.png"))
    assert code == 0
    printed = capsys.readouterr().out
    for name in ("lsm-compactor", "PyArrow", "codec floor", "interleaved", "mostly-disjoint"):
        assert name in printed
    assert "FAILED" not in printed
    document = json.loads((tmp_path / "result.json").read_text())
    assert len(document["runs"]) == 9
    assert all(run["failure"] is None for run in document["runs"])
    assert (tmp_path / "p.png").stat().st_size > 1000
    assert not any(path.name.startswith("output") for path in (tmp_path / "work").rglob("runs/*/*"))


def test_an_engine_that_loses_rows_is_shown_as_failed(tmp_path: Path, monkeypatch, capsys) -> None:
    from bench.peers import session

    honest = session._fault
    monkeypatch.setattr(session, "_fault", lambda found, rows: honest(found, rows + 1))
    code = run(tmp_path, "--engines", "ours", "--workloads", "interleaved")
    assert code == 1
    assert "FAILED" in capsys.readouterr().out
