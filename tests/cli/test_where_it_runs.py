"""`compact` and `watch` choose where compactions run, and say so in a line."""

from __future__ import annotations

import importlib.util
import json
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from compactor.cli.main import run
from compactor.compaction.engine import Engine, InProcessEngine
from compactor.planner import place
from compactor.spark import masters
from tests.support.tables import log_rows


@pytest.fixture
def table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Returns the address of a table with two fragments."""
    for number in range(2):
        pq.write_table(log_rows(20, number), tmp_path / "rows.parquet")
        ingest = ["ingest", str(tmp_path / "t"), str(tmp_path / "rows.parquet")]
        assert run([*ingest, "--sort-by", "service,ts"]) == 0
    capsys.readouterr()
    return str(tmp_path / "t")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Returns the masters for which engines were opened; in truth all run in this process."""
    masters_asked: list[str | None] = []

    def open_engine(master: str | None, _max_tasks: int | None, _on_read: object = None) -> Engine:
        masters_asked.append(master)
        return InProcessEngine()

    for command in ("compact", "watch"):
        monkeypatch.setattr(f"compactor.cli.{command}.open_engine", open_engine)
    monkeypatch.setattr("compactor.cli.engine_options.usable_cores", lambda: 4)
    monkeypatch.setattr("compactor.cli.engine_options.lacking", lambda: None)
    return masters_asked


def test_a_small_plan_runs_in_this_process(
    table: str, asked: list[str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compact", table, "--strategy", "full", "--json"]) == 0
    said = capsys.readouterr()
    assert asked == ["in-process"]
    assert said.err.startswith("in this process: 1 compaction, less than 1 s of work")
    assert json.loads(said.out)["rows_in"] == 40


def test_a_plan_that_pays_for_its_start_runs_on_spark(
    table: str,
    asked: list[str | None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(place, "SPARK_START_SECONDS", -100.0)
    assert run(["compact", table, "--strategy", "full"]) == 0
    assert asked == ["local[*]"]
    assert capsys.readouterr().err.startswith("on Spark, 4 at a time: 1 compaction")


@pytest.mark.parametrize("master", ["in-process", "local[3]", "spark://host:7077"])
def test_what_is_asked_for_is_done_without_a_word(
    master: str, table: str, asked: list[str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compact", table, "--strategy", "full", "--master", master]) == 0
    assert asked == [master]
    assert capsys.readouterr().err == ""


def test_under_spark_submit_its_session_is_used(
    table: str, asked: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert run(["compact", table, "--strategy", "full"]) == 0
    assert asked == [None]


def test_where_nothing_is_due_nothing_is_opened(
    table: str, asked: list[str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compact", table]) == 0
    assert (asked, capsys.readouterr().err) == ([], "")


def test_without_spark_a_worker_runs_in_its_own_process(
    tmp_path: Path,
    asked: list[str | None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("compactor.cli.watch._stop_on_signals", lambda stop: stop.set())
    before = signal.getsignal(signal.SIGTERM)
    assert run(["watch", str(tmp_path / "t")]) == 0
    monkeypatch.setattr("compactor.cli.engine_options.lacking", lambda: "there is no Java")
    capsys.readouterr()
    assert run(["watch", str(tmp_path / "t")]) == 0
    assert asked == ["local[*]", "in-process"]
    assert capsys.readouterr().err == "in this process, since there is no Java\n"
    assert signal.getsignal(signal.SIGTERM) == before


def test_what_spark_lacks_is_seen_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert masters.lacking() == "there is no Java"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    assert masters.lacking() is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert masters.lacking() == "PySpark is not installed"
