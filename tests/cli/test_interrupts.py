"""A command that is told to stop tidies up first."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.cli.main import run
from compactor.common import interrupts
from compactor.compaction.engine import InProcessEngine
from compactor.errors import JobError
from compactor.files.sinks import ParquetSink
from compactor.files.write import StagedSink
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from tests.support.tables import log_rows


def test_a_compaction_that_is_terminated_gives_up_its_leases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / f"{number}.parquet") for number in range(3)]
    for number, file in enumerate(files):
        pq.write_table(log_rows(20, number), file)
    table = str(tmp_path / "t")
    for file in files:
        assert run(["ingest", table, file, "--sort-by", "service,ts"]) == 0
    log = CommitLog(open_store(table))
    leased = []

    def wait(_engine: InProcessEngine, _timeout_seconds: float) -> list[object]:
        leased.append(len(log.current().leases))
        os.kill(os.getpid(), signal.SIGTERM)
        return []

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(InProcessEngine, "wait", wait)
    capsys.readouterr()
    assert run(["compact", table, "--strategy", "full", "--master", "in-process"]) == 130
    assert capsys.readouterr().err.endswith("interrupted; nothing unfinished is visible\n")
    assert leased == [1]
    assert not log.current().leases
    assert len(log.current().fragments) == 3
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_fails_because_it_was_interrupted_was_interrupted(
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pq.write_table(log_rows(20, 1), tmp_path / "rows.parquet")
    table = str(tmp_path / "t")

    def write(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            # As calls to Spark do that are cut off, and what tidies up after them.
            raise JobError("Spark stopped during the task: an error while calling it") from None

    monkeypatch.setattr("compactor.cli.write.FilesIngest.add", write)
    before = signal.getsignal(signal.SIGINT)
    assert run(["ingest", table, str(tmp_path / "rows.parquet"), "--sort-by", "service,ts"]) == 130
    assert capsys.readouterr().err.endswith("interrupted; nothing unfinished is visible\n")
    assert signal.getsignal(signal.SIGINT) == before


def test_an_export_that_is_terminated_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(log_rows(20, 1), tmp_path / "rows.parquet")
    table = str(tmp_path / "t")
    assert run(["ingest", table, str(tmp_path / "rows.parquet"), "--sort-by", "service,ts"]) == 0
    folder = tmp_path / "out"
    folder.mkdir()
    seen: list[list[str]] = []

    def write(_sink: ParquetSink, _batch: pa.RecordBatch) -> None:
        seen.append([path.name for path in folder.iterdir()])
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(ParquetSink, "write", write)
    capsys.readouterr()
    assert run(["export", table, str(folder / "all.parquet")]) == 130
    assert capsys.readouterr().err.endswith("interrupted; nothing unfinished is visible\n")
    assert seen == [[]]
    assert not list(folder.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_while_spark_starts_takes_effect_once_it_has(number: int) -> None:
    steps: list[str] = []
    with interrupts.delivered() as was_interrupted:
        with pytest.raises(KeyboardInterrupt), interrupts.deferred():
            os.kill(os.getpid(), number)
            steps.append("started")
        assert was_interrupted()
        with pytest.raises(KeyboardInterrupt), interrupts.deferred():
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            steps.append("waited for although it was said twice")
    assert steps == ["started"]


class _Finalized:
    """Gets a signal while it is dropped, where Python ignores what a handler raises."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self._number)


def _pipeline(folder: Path, **given: object) -> str:
    (folder / "in.ndjson").write_text("".join(f'{{"n": {n}}}\n' for n in range(100)))
    nodes = {
        "a": {"source": {"path": str(folder / "in.ndjson")}},
        "o": {"output": {"input": "a", "path": str(folder / "o.csv")}},
        "p": {"output": {"input": "a", "path": str(folder / "p.ndjson")}},
    }
    spec = folder / "p.json"
    spec.write_text(json.dumps({"nodes": nodes, **given}))
    return str(spec)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_inside_a_finalizer_ends_a_pipeline(
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write = StagedSink.write

    def written(sink: StagedSink, batch: pa.RecordBatch) -> None:
        write(sink, batch)
        _Finalized(number)

    monkeypatch.setattr(StagedSink, "write", written)
    before = set(tmp_path.iterdir()) | {tmp_path / "in.ndjson", tmp_path / "p.json"}
    assert run(["run", _pipeline(tmp_path)]) == 130
    told = capsys.readouterr().err
    assert told.endswith("error: interrupted; nothing unfinished is visible\n")
    assert "ignored" not in told
    assert set(tmp_path.iterdir()) == before


def test_an_interruption_that_python_drops_is_raised_by_the_next_check_once() -> None:
    with interrupts.delivered() as was_interrupted:
        _Finalized(signal.SIGTERM)
        assert was_interrupted()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.check()
        with pytest.raises(KeyboardInterrupt), interrupts.deferred():
            pytest.fail("work that cannot be undone began after the signal")


def test_an_interruption_while_outputs_appear_takes_effect_when_all_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish = StagedSink.publish

    def published(sink: StagedSink) -> None:
        publish(sink)
        if sink._path.endswith("o.csv"):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(StagedSink, "publish", published)
    letters = tmp_path / "bad.ndjson"
    spec = _pipeline(tmp_path, on_error="continue", dead_letter=str(letters))
    assert run(["run", spec]) == 130
    assert capsys.readouterr().err.endswith("interrupted; nothing unfinished is visible\n")
    names = {"in.ndjson", "p.json", "o.csv", "p.ndjson", "bad.ndjson"}
    assert {path.name for path in tmp_path.iterdir()} == names
