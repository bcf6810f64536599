"""A command that is told to stop tidies up first."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.cli.main import run, terminated_as_interrupted
from compactor.compaction.engine import InProcessEngine
from compactor.errors import JobError
from compactor.files.sinks import ParquetSink
from compactor.spark.session import interrupted_afterwards
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
    assert run(["ingest", table, *files, "--sort-by", "service,ts"]) == 0
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
    with terminated_as_interrupted() as was_interrupted:
        with pytest.raises(KeyboardInterrupt), interrupted_afterwards():
            os.kill(os.getpid(), number)
            steps.append("started")
        assert was_interrupted()
        with pytest.raises(KeyboardInterrupt), interrupted_afterwards():
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            steps.append("waited for although it was said twice")
    assert steps == ["started"]
