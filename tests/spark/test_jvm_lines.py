"""What the JVM writes on stderr is a log line where log lines are JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from compactor import Table

_STARTS_ANOTHER = """
import subprocess, sys
from compactor.common import logs
from compactor.spark.jvm_lines import jvm_lines_as_log_lines
logs.set_up(logs.LogSettings(logs.LogFormat(sys.argv[1]), "info"))
says = "echo plain >&2; echo '{\\"event\\": \\"of a task\\"}' >&2; sleep 0.2; echo late >&2"
with jvm_lines_as_log_lines():
    started = subprocess.Popen(["sh", "-c", says])
started.wait()
print("ours", file=sys.stderr)
"""


def said(log_format: str) -> list[str]:
    command = [sys.executable, "-c", _STARTS_ANOTHER, log_format]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


def test_lines_of_the_jvm_are_log_lines_and_those_of_tasks_stay_as_they_are() -> None:
    lines = said("json")
    lines.remove("ours")
    found = [json.loads(line) for line in lines]
    assert [line.get("reason") for line in found] == ["plain", None, "late"]
    assert found[1] == {"event": "of a task"}


def test_for_people_the_jvm_writes_as_it_likes() -> None:
    assert sorted(said("text")) == sorted(["plain", '{"event": "of a task"}', "late", "ours"])


@pytest.mark.spark
def test_all_lines_of_a_compaction_on_spark_are_json(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), pa.table({"k": [1]}), "k")
    table.append(pa.table({"k": [1]}))
    command = ["compact", str(tmp_path / "t"), "--strategy", "full", "--master", "local[1]"]
    done = subprocess.run(
        [sys.executable, "-m", "compactor", *command, "--log-format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert {"compacting", "attempt started", "attempt ended", "committed"} <= set(events)
