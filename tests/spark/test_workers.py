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


def test_the_collector_of_a_process_that_runs_no_task_stays_as_it_is() -> None:
    before = gc.get_freeze_count()
    freeze_worker()
    assert gc.get_freeze_count() == before
