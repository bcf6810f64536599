"""The command: what it prints, its picture, and wrong calls."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from compactor import Table
from compactor.cli.main import cli, run
from compactor.cli.simulate import simulate_command
from tests.support.wording import says

QUICK = ["--ingest", "20MiB/s", "--duration", "1h", "--workers", "4"]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.commands, "simulate", simulate_command)


def test_strategies_are_compared_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", *QUICK, "--strategy", "leveled", "--strategy", "tiered"]) == 0
    out = capsys.readouterr().out
    assert "21.0 MB/s for 1 h into 1 table" in out
    lines = out.splitlines()
    assert lines.index("leveled") < lines.index("tiered")
    assert len([line for line in lines if "healthy" in line]) == 24
    assert lines[-3].startswith("summary")
    assert "yes" in lines[-2]


def test_json_has_the_same_result_for_the_same_seed(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for seed in ("1", "1", "2"):
        assert run(["simulate", *QUICK, "--json", "--seed", seed]) == 0
        outputs.append(json.loads(capsys.readouterr().out)["leveled"])
    assert outputs[0] == outputs[1] != outputs[2]
    assert outputs[0]["kept_up"] and len(outputs[0]["samples_of_one_shard"]) == 481


@pytest.mark.parametrize("name", ["out.png", "out.svg"])
def test_a_picture(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / name
    assert run(["simulate", *QUICK, "--plot", str(path)]) == 0
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_without_matplotlib_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["simulate", *QUICK, "--plot", str(tmp_path / "a.png")]) == 2
    says(capsys.readouterr().err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--ingest", "fast"],
        ["--ingest", "-1"],
        ["--ingest", "0"],
        ["--flush-bytes", "256 parsecs"],
        ["--duration", "long"],
        ["--duration", "0"],
        ["--ingest", "1MiB/s", "--duration", "1s"],
        ["--time-window", "0"],
        ["--retention", "7d"],
        ["--late", "0.5"],
        ["--locality", "random"],
        ["--locality", "random:0"],
        ["--locality", "whole:1"],
        ["--shards", "8", "--workers", "4"],
        ["--level-multiplier", "1"],
        ["--push-ratio", "nan"],
        ["--strategy", "hope"],
        ["--plot", "out.txt"],
        ["--plot", "/nowhere/out.png"],
    ],
    ids=" ".join,
)
def test_bad_options_are_one_line_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", *arguments]) == 2
    captured = capsys.readouterr()
    (error,) = [line for line in captured.err.splitlines() if "rror: " in line]
    says(error)
    assert not captured.out


def test_a_table_brings_its_policy_and_options_override_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table.create(tmp_path / "t", pa.table({"k": [1]}), "k")
    table.alter(properties={"strategy": "tiered", "level0_trigger_runs": 8})
    assert run(["simulate", *QUICK, "--strategy", "tiered", "--level0-trigger-runs", "8"]) == 0
    told = capsys.readouterr().out
    assert run(["simulate", table.url, *QUICK]) == 0
    assert capsys.readouterr().out == told
    assert run(["simulate", table.url, *QUICK, "--level0-trigger-runs", "4"]) == 0
    said = capsys.readouterr()
    assert "--level0-trigger-runs 4 overrides the table's 8 for this run" in said.err
    assert said.out != told
    assert run(["simulate", str(tmp_path / "none"), *QUICK]) == 5
