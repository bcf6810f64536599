"""What tasks leave of the work that PySpark does between them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from compactor import Table
from compactor.spark.session import SparkOptions
from compactor.spark.shuffle.jobs import Jobs
from compactor.spark.shuffle.task import TaskOutput, TaskSummary
from compactor.spark.workers import freeze_worker


def frozen(_piece: int) -> TaskOutput:
    yield TaskSummary({"frozen": gc.get_freeze_count()})


@pytest.mark.spark
def test_the_collector_leaves_modules_alone_once_a_task_has_begun(spark: Any) -> None:
    with ExitStack() as stack:
        jobs = Jobs(spark, SparkOptions(), 1 << 20, 8, stack)
        done = jobs.run_pieces(4, frozen)
    assert len(done.summaries) == 4
    assert all(said["frozen"] > 10_000 for said in done.summaries.values())


@pytest.mark.spark
def test_what_tasks_make_is_not_kept(spark: Any) -> None:
    """Even if it has cycles, as the closure of a recursive function has."""
    with ExitStack() as stack:
        jobs = Jobs(spark, SparkOptions(), 1 << 20, 8, stack)

        def counts() -> list[int]:
            some = [{"n": n} for n in range(2_000)]

            def task(piece: int, depth: int = 0) -> TaskOutput:
                if depth < 1:
                    yield from task(piece, depth + 1)
                else:
                    yield TaskSummary({"frozen": gc.get_freeze_count(), "some": len(some)})

            done = jobs.run_pieces(2, task)
            return [said["frozen"] for said in done.summaries.values()]

        found = [max(counts()) for _ in range(6)]
    assert found[-1] <= found[2] + 1_000


def test_the_collector_of_a_process_that_runs_no_task_stays_as_it_is() -> None:
    before = gc.get_freeze_count()
    freeze_worker()
    assert gc.get_freeze_count() == before


_PROGRAM: Final = """
import sys
from pyspark.sql import SparkSession
from compactor.spark import table

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = table(spark, sys.argv[1])
print("read", sorted(row.n for row in rows.where("n >= 2").collect()))
rows.write.format("fragments").mode("append").save(sys.argv[1])
spark.sql(f"SELECT * FROM fragments_restore('{sys.argv[1]}', version => 1)").collect()
print("kept", table(spark, sys.argv[1]).count())
"""


@pytest.mark.long
def test_a_local_session_runs_the_source_in_the_python_of_the_program(tmp_path: Path) -> None:
    """Not in the first python3 on PATH, as PySpark would."""
    Table.create(tmp_path / "table", pa.table({"n": [1, 2, 3]}), sort_by="n")
    other = tmp_path / "bin/python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho another Python >&2\nexit 1\n")
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    environment["PATH"] = f"{other.parent}{os.pathsep}{environment['PATH']}"
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "table")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["read [2, 3]", "kept 3"]
