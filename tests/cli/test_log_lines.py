"""With `--log-format json` every line on stderr is JSON, and Python's own warnings are on no terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor import IngestOptions, RowFunction, RowKind, RowPolicy, Table
from compactor.cli.commands import COMMANDS
from compactor.cli.main import cli, run

_WARNS = """
import sys, threading, warnings
from compactor.cli import main, tables
def troubled(*_arguments, **_options):
    warnings.warn("two\\nlines", RuntimeWarning)
    thread = threading.Thread(target=lambda: 1 // 0)
    thread.start()
    thread.join()
    raise ValueError("not\\nforeseen")
tables.open_log = tables.open_view = troubled
main.main(sys.argv[1:])
"""


def with_log_format() -> list[str]:
    commands = {name: cli.commands[name] for name in COMMANDS}
    return [n for n, c in commands.items() if any("--log-format" in p.opts for p in c.params)]


def lines_of(err: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in err.splitlines()]


@pytest.mark.parametrize("command", with_log_format())
@pytest.mark.parametrize("asked", [["--log-format", "json"], ["--log-format=json"]])
def test_errors_of_usage_are_lines_of_json(
    command: str, asked: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    for mistake in (["--no-such-option"], ["--log-level", "loud"]):
        assert run([command, *asked, *mistake]) == 2
        out, err = capfd.readouterr()
        assert not out
        [line] = lines_of(err)
        assert line["level"] == "error"
        assert line["reason"].startswith(f"{command}: ")


@pytest.mark.parametrize("level", ["warning", "debug"])
@pytest.mark.parametrize("where", ["", "COMPACTOR_DEBUG"])
def test_what_nobody_foresaw_is_told_in_lines_of_json(level: str, where: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WARNS, "verify", "t", "--log-format", "json", "--log-level", level],
        capture_output=True,
        text=True,
        check=False,
        env={where: "1"} if where else {},
    )
    assert done.returncode == 1
    lines = lines_of(done.stderr)
    assert {line["level"] for line in lines} >= {"error"}
    assert any("internal error: ValueError (" in str(line.get("reason")) for line in lines)
    assert any("ZeroDivisionError" in str(line.get("exc_info")) for line in lines)
    warned = [line for line in lines if line.get("category") == "RuntimeWarning"]
    assert bool(warned) == (level == "debug")


def test_a_warning_of_python_is_no_line_for_people() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WARNS, "verify", "t"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "RuntimeWarning" not in done.stderr
    assert "internal error: ValueError (" in done.stderr


def test_infinities_that_cancel_out_warn_of_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    policy = RowPolicy(RowKind.AGGREGATE, aggregates=(("v", RowFunction.SUM),))
    rows = pa.table({"k": [1, 2], "v": [float("inf"), 1.7e308]})
    table = Table.create(str(tmp_path / "t"), rows, "k", IngestOptions(rows=policy))
    table.append(pa.table({"k": [1, 2], "v": [float("-inf"), 1.7e308]}))
    capfd.readouterr()
    log = ["--log-format", "json", "--log-level", "debug"]
    assert (
        run(["compact", str(tmp_path / "t"), "--strategy", "full", "--master", "in-process", *log])
        == 0
    )
    err = capfd.readouterr().err
    assert lines_of(err)
    assert "Warning" not in err
    assert run(["head", str(tmp_path / "t")]) == 0
    assert capfd.readouterr().out == '{"k":1,"v":null}\n{"k":2,"v":null}\n'
