"""Compactions as Spark tasks, on local folders and S3; the session starts once for the suite."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from compactor.compaction.compaction import Compaction
from compactor.read.verify import verify
from compactor.spark.engine import SparkEngine
from compactor.stores.local import LocalStore
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from tests.support.oracle import stable_sorted
from tests.support.tables import SORT, compact_table, ingest_tables, log_rows, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> SparkEngine:
    return SparkEngine(spark, slots=2)


def split_by_service(seed: int) -> list[pa.Table]:
    """Two tables whose key ranges do not meet, so that a plan has two groups."""
    rows = log_rows(400, seed).to_pylist()
    schema = log_rows(1, 0).schema
    low = [row for row in rows if row["service"] in ("service-0", "service-1")]
    high = [row for row in rows if row["service"] in ("service-2", "service-3")]
    return [pa.Table.from_pylist(part, schema) for part in (low, high)]


@pytest.mark.main_job
def test_groups_of_overlapping_fragments_run_as_tasks_with_one_get_an_input(
    engine: SparkEngine, s3_server, s3_bucket: str, tmp_path: Path
) -> None:
    store = open_store(f"s3://{s3_bucket}/t")
    tables = [part for seed in range(8) for part in split_by_service(seed)]
    log = ingest_tables(store, tables, tmp_path)
    inputs = sorted(f"t/{key}" for key in log.current().fragments)
    s3_server.reset()
    figures = compact_table(store, engine=engine).to_json()
    assert (figures["tasks"], figures["input_fragments"], figures["output_fragments"]) == (2, 16, 2)
    assert sorted(r.key for r in s3_server.requests("GET", "t/data/")) == inputs
    assert figures["gets"] == 16
    assert figures["peak_rss_bytes"] > 0
    assert table_rows(store) == stable_sorted(pa.concat_tables(tables), SORT).to_pylist()
    assert verify(store, CommitLog(store).current()).faults == []


@pytest.mark.main_job
def test_a_damaged_input_fails_its_task_alone_and_is_named(
    engine: SparkEngine, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [part for seed in range(3) for part in split_by_service(seed)]
    log = ingest_tables(store, tables, tmp_path)
    victim = tmp_path / "t" / sorted(log.current().fragments)[0]
    victim.write_bytes(victim.read_bytes()[:-5])
    report = compact_table(store, engine=engine, max_attempts=1)
    assert (len(report.done), len(report.lost)) == (1, 1)
    assert victim.name in (report.lost[0].outcome.failure or "")
    assert list(CommitLog(store).current().quarantine) == [f"data/{victim.name}"]


@pytest.mark.main_job
def test_a_task_that_spark_gives_up_on_is_an_outcome_in_one_line(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "t")
    ingest_tables(store, [log_rows(60, seed) for seed in range(2)], tmp_path)

    class Unpicklable(Compaction, frozen=True):
        def to_json(self) -> str:
            return "{"

    monkeypatch.setattr("compactor.compaction.driver.Compaction", Unpicklable)
    report = compact_table(store, engine=engine, max_attempts=1)
    (lost,) = report.lost
    assert "Spark gave up on the task" in (lost.outcome.failure or "")
    assert "\n" not in (lost.outcome.failure or "")


def test_a_compaction_killed_at_any_time_loses_no_row_and_the_next_one_is_whole(
    tmp_path: Path,
) -> None:
    """SIGKILL of the whole process group, in process so that moments are many and cheap."""
    folder = tmp_path / "t"
    store = LocalStore(folder)
    tables = [log_rows(20_000, seed) for seed in range(4)]
    ingest_tables(store, tables, tmp_path)
    ids = sorted(row_id for table in tables for row_id in table["id"].to_pylist())
    command = [sys.executable, "-m", "compactor.cli.main", "compact", str(folder),
               "--strategy", "full", "--master", "in-process"]  # fmt: skip

    def files() -> int:
        return sum(path.is_file() for path in folder.rglob("*"))

    killed = 0
    for more in range(6):
        until = files() + more
        process = subprocess.Popen(
            command, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL
        )
        while process.poll() is None and files() < until:
            time.sleep(0.001)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
        assert verify(store, CommitLog(store).current()).faults == []
        assert sorted(row["id"] for row in table_rows(store)) == ids
    assert killed
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert sorted(row["id"] for row in table_rows(store)) == ids
    assert len(CommitLog(store).current().fragments) == 1


def test_spark_submit_runs_the_same_command(s3_server, s3_bucket: str, tmp_path: Path) -> None:
    url = f"s3://{s3_bucket}/t"
    store = open_store(url)
    tables = [log_rows(50, seed) for seed in range(3)]
    ingest_tables(store, tables, tmp_path)
    script = ROOT / "deploy" / "spark-submit" / "submit.sh"
    environment = os.environ | {"PYTHON": sys.executable}
    done = subprocess.run(
        [str(script), "--master", "local[2]", "--", "compact", url, "--strategy", "full", "--json"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"rows_out": 150' in done.stdout
    assert table_rows(store) == stable_sorted(pa.concat_tables(tables), SORT).to_pylist()
