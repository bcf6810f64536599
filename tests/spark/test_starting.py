"""A start of Spark can be interrupted; what the JVM writes is kept, shown, or made a log line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from compactor import Table

_STARTS_ANOTHER = """
import sys
from pyspark import java_gateway
from compactor.common import logs
from compactor.spark.starting import starting_jvm
logs.set_up(logs.LogSettings(logs.LogFormat(sys.argv[1]), "info"))
try:
    with starting_jvm():
        started = java_gateway.Popen(["sh", "-c", sys.argv[2]], stdin=-1, stdout=-1)
        started.stdout.readline()
        if "fail" in sys.argv:
            raise OSError
        if "interrupt" in sys.argv:
            raise KeyboardInterrupt
    started.stdin.close()
except OSError:
    started.stdin.close()
except KeyboardInterrupt:
    print("killed by", -started.returncode, file=sys.stderr)
started.wait()
"""
_SAYS = """echo plain >&2; echo '{"event": "of a task"}' >&2; sleep 0.5; echo up; read end; echo late >&2"""


def said(log_format: str, *how: str, script: str = _SAYS, **environment: str) -> list[str]:
    """Returns the lines on stderr of a process that starts another."""
    command = [sys.executable, "-c", _STARTS_ANOTHER, log_format, script, *how]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | environment
    )
    return done.stderr.splitlines()


def test_lines_of_the_jvm_are_log_lines_and_those_of_tasks_stay_as_they_are() -> None:
    found = [json.loads(line) for line in said("json")]
    assert [line.get("reason") for line in found] == ["plain", None, "late"]
    assert found[1] == {"event": "of a task"}


def test_what_the_jvm_writes_while_it_starts_is_not_shown() -> None:
    assert said("text") == ["late"]


def test_it_is_shown_to_whom_spark_s_own_log_is_shown() -> None:
    assert said("text", COMPACTOR_SPARK_LOG="warn") == ["plain", '{"event": "of a task"}', "late"]


def test_it_is_shown_if_spark_does_not_start() -> None:
    assert said("text", "fail") == ["plain", '{"event": "of a task"}', "late"]


_HANGS_UP = """echo up; read end; cat >&2 <<'END'
Traceback (most recent call last):
  File "/x/pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "/x/pyspark.zip/pyspark/serializers.py", line 602, in read_int
    length = stream.read(4)
ConnectionResetError: [Errno 104] Connection reset by peer
Traceback (most recent call last):
  File "/x/pyspark.zip/pyspark/daemon.py", line 264, in manager
MemoryError
Traceback (most recent call last):
  File "/x/ours.py", line 1, in call
ConnectionResetError: [Errno 104] Connection reset by peer
  indented
Traceback (most recent call last):
  File "/x/pyspark.zip/pyspark/daemon.py", line 264, in manager
END"""
_HUNG_UP_LINES = _HANGS_UP.splitlines()[1:-1]


def test_a_process_of_python_that_spark_hangs_up_on_says_nothing() -> None:
    """Spark does so to tasks of a stage that it gives up. All other errors are shown, one cut short too."""
    assert said("text", script=_HANGS_UP) == _HUNG_UP_LINES[5:]
    assert said("text", script=_HANGS_UP, COMPACTOR_SPARK_LOG="warn") == _HUNG_UP_LINES


@pytest.mark.parametrize(
    ("begins", "number"), [("", signal.SIGTERM), ("trap '' TERM; ", signal.SIGKILL)]
)
def test_an_interrupted_start_ends_the_jvm(begins: str, number: int) -> None:
    script = f"{begins}echo up; exec sleep 60"
    assert said("text", "interrupt", script=script) == [f"killed by {number}"]


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Returns the address of a table of two fragments."""
    Table.create(str(tmp_path / "t"), pa.table({"k": [1]}), "k").append(pa.table({"k": [1]}))
    return str(tmp_path / "t")


@pytest.mark.spark
def test_all_lines_of_a_compaction_on_spark_are_json(table: str) -> None:
    command = ["compact", table, "--strategy", "full", "--master", "local[1]"]
    done = subprocess.run(
        [sys.executable, "-m", "compactor", *command, "--log-format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert events[0] == "starting Spark on local[1] ..."
    assert {"compacting", "attempt started", "attempt ended", "committed"} <= set(events)


@pytest.mark.parametrize("command", ["compact", "watch"])
def test_a_command_that_is_interrupted_while_spark_starts_leaves_no_process(
    command: str, table: str, tmp_path: Path
) -> None:
    # A program that never answers takes the place of Spark's.
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    submit.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "compactor", command, table, "--strategy", "full", "--master", "local[1]"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"SPARK_HOME": str(tmp_path)},
    )  # fmt: skip
    pid = tmp_path / "pid"
    while not pid.exists() or not pid.read_text().endswith("\n"):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    began, *after = filter(None, err.splitlines())
    assert began == "starting Spark on local[1] ..."
    if command == "compact":
        assert after == ["compactor: error: interrupted; nothing unfinished is visible"]
        assert process.returncode == 130
    else:
        assert after == []
        assert out.splitlines()[-1].endswith("stopped done=0 void=0 failed=0")
        assert process.returncode == 0
