"""What tasks leave of the work that PySpark does between them."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from typing import Any

import pytest

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
