"""Which compactions share a Spark job, and what becomes of them; a stand-in for Spark, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from compactor.compaction.driver import Driver, DriverSettings
from compactor.errors import EngineLostError
from compactor.read.verify import verify
from compactor.settings.compaction import Policy, Strategy
from compactor.spark import engine as engine_module
from compactor.spark.engine import SparkEngine
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from tests.support.oracle import stable_sorted
from tests.support.tables import SORT, compact_table, ingest_tables, log_rows, table_rows
from tests.support.wording import refuses

RunTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class FakeSpark:
    """Runs the task of a job as Spark would, in this process; counts outcomes job by job."""

    def __init__(self, breaks: Callable[[int], bool] = lambda _rows: False) -> None:
        """breaks: whether Spark gives up on a job of so many outcomes."""
        self.jobs: list[int] = []
        self.interrupted = False
        self._breaks = breaks

    def range(self, *_bounds: int) -> FakeSpark:
        return self

    def mapInArrow(self, run_task: RunTask, _schema: str) -> FakeJob:  # noqa: N802 - Spark's name
        return FakeJob(self, run_task)

    def interruptAll(self) -> None:  # noqa: N802 - Spark's name
        self.interrupted = True

    def ran(self, rows: int) -> None:
        self.jobs.append(rows)
        if self._breaks(rows):
            raise PySparkException("the worker died")


class FakeJob:
    def __init__(self, spark: FakeSpark, run_task: RunTask) -> None:
        self._spark = spark
        self._run_task = run_task

    def collect(self) -> list[dict[str, Any]]:
        one = pa.RecordBatch.from_pydict({"id": [0]})
        rows = [row for batch in self._run_task(iter([one])) for row in batch.to_pylist()]
        self._spark.ran(len(rows))
        return rows


def fake_engine(spark: FakeSpark, slots: int) -> SparkEngine:
    return SparkEngine(spark, slots)  # type: ignore[arg-type]


def disjoint_pairs(folder: Path, pairs: int) -> tuple[LocalStore, list[pa.Table]]:
    """A table of pairs of overlapping fragments; no pair overlaps another."""
    store = LocalStore(folder / "t")
    rows = log_rows(400, seed=1).filter(pa.compute.field("service").is_valid())
    tables = []
    for pair in range(pairs):
        name = pa.array([f"service-{pair:03d}"] * rows.num_rows)
        tables += [rows.set_column(0, "service", name)] * 2
    ingest_tables(store, tables, folder)
    return store, tables


def test_small_compactions_that_wait_together_share_jobs_evenly(tmp_path: Path) -> None:
    store, tables = disjoint_pairs(tmp_path, 12)
    spark = FakeSpark()
    report = compact_table(store, engine=fake_engine(spark, slots=2))
    assert len(report.done) == 12
    assert sum(spark.jobs) == 12
    assert max(spark.jobs) == 6
    assert len(spark.jobs) < 12
    assert table_rows(store) == stable_sorted(pa.concat_tables(tables), SORT).to_pylist()
    assert verify(store, CommitLog(store).current()).faults == []


def test_what_is_too_large_to_share_has_a_job_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_SHARED_BYTES", 1)
    store, _ = disjoint_pairs(tmp_path, 4)
    spark = FakeSpark()
    compact_table(store, engine=fake_engine(spark, slots=1))
    assert spark.jobs == [1, 1, 1, 1]


def test_a_job_that_spark_gives_up_on_is_run_again_one_by_one(tmp_path: Path) -> None:
    store, tables = disjoint_pairs(tmp_path, 3)
    spark = FakeSpark(breaks=lambda rows: rows > 1)
    report = compact_table(store, engine=fake_engine(spark, slots=1))
    assert spark.jobs == [3, 1, 1, 1]
    assert (len(report.done), len(report.failed)) == (3, 0)
    assert table_rows(store) == stable_sorted(pa.concat_tables(tables), SORT).to_pylist()


class MortalSpark(FakeSpark):
    """Its JVM is killed during a job."""

    def __init__(self, jobs: int) -> None:
        super().__init__()
        self._jobs_left = jobs

    @property
    def sparkContext(self) -> SimpleNamespace:  # noqa: N802 - Spark's name
        alive = SimpleNamespace(isStopped=lambda: False)
        return SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: alive if self._jobs_left else None))

    def ran(self, rows: int) -> None:
        self._jobs_left -= 1
        if not self._jobs_left:
            raise ConnectionRefusedError
        super().ran(rows)

    def interruptAll(self) -> None:  # noqa: N802 - Spark's name
        raise ConnectionRefusedError


def test_a_spark_that_has_ended_ends_the_worker_and_puts_nothing_in_quarantine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_SHARED_BYTES", 1)
    store, tables = disjoint_pairs(tmp_path, 4)
    with refuses(EngineLostError):
        compact_table(store, engine=fake_engine(MortalSpark(2), slots=1))
    snapshot = CommitLog(store).current()
    assert (snapshot.quarantine, snapshot.leases, snapshot.suspects) == ({}, {}, {})
    assert len(snapshot.fragments) == 3 * 2 + 1, "what ended before is committed"
    assert table_rows(store) == stable_sorted(pa.concat_tables(tables), SORT).to_pylist()
    with pytest.raises(EngineLostError):  # before anything is tried
        fake_engine(MortalSpark(0), slots=1).wait(0)


def test_of_a_shared_job_those_that_still_fail_alone_are_failures(tmp_path: Path) -> None:
    store, _ = disjoint_pairs(tmp_path, 3)
    spark = FakeSpark(breaks=lambda _rows: True)
    report = compact_table(store, engine=fake_engine(spark, slots=1), max_attempts=1)
    assert spark.jobs == [3, 1, 1, 1]
    assert len(report.lost) == 3
    assert all("the worker died" in (s.outcome.failure or "") for s in report.lost)


def test_a_damaged_input_fails_no_other_compaction_of_its_job(tmp_path: Path) -> None:
    store, _ = disjoint_pairs(tmp_path, 3)
    victim = tmp_path / "t" / sorted(CommitLog(store).current().fragments)[0]
    victim.write_bytes(victim.read_bytes()[:-5])
    spark = FakeSpark()
    report = compact_table(store, engine=fake_engine(spark, slots=1), max_attempts=1)
    assert spark.jobs == [3]
    assert (len(report.done), len(report.lost)) == (2, 1)
    assert list(CommitLog(store).current().quarantine) == [f"data/{victim.name}"]


def test_nothing_is_run_again_after_a_cancel(tmp_path: Path) -> None:
    store, _ = disjoint_pairs(tmp_path, 3)
    started, cancelled = threading.Event(), threading.Event()

    def breaks(rows: int) -> bool:
        started.set()
        cancelled.wait(10)
        return rows > 1

    spark = FakeSpark(breaks)
    engine = fake_engine(spark, slots=1)
    settings = DriverSettings(policy=Policy(strategy=Strategy.OVERLAPPING))
    compactions = Driver(CommitLog(store), settings).decide(3)
    for compaction in compactions:
        engine.submit(compaction)
    assert list(engine.wait(0)) == []
    assert started.wait(10)
    engine.cancel()
    assert spark.interrupted
    cancelled.set()
    engine.submit(compactions[0])
    (outcome,) = engine.wait(10)  # the only thread has got over the job before
    assert outcome.failure is None
    assert spark.jobs == [3, 1]
