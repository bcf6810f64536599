"""Compactions as Spark tasks: one compaction is one job of one task, by `mapInArrow`; no shuffle.

A job each, submitted by threads of the driver, so that every compaction ends, fails and is committed by
itself. Works on Spark Connect too, since it uses no RDD. Attempts that Spark retries or doubles are
harmless: they write under names of their own, and only the driver commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import pyarrow as pa

from compactor.errors import JobError
from compactor.job import Compaction, Outcome, failed, run_compaction
from compactor.spark.session import first_cause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine:
    """An `Engine` on a Spark session."""

    def __init__(self, spark: SparkSession, slots: int) -> None:
        """slots: jobs submitted at a time. More than Spark has cores only wait there."""
        self.slots = slots
        self._spark = spark
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="compaction")
        self._running: dict[Future[Outcome], Compaction] = {}

    def submit(self, compaction: Compaction) -> None:
        self._running[self._threads.submit(self._run, compaction)] = compaction

    def wait(self, timeout_seconds: float) -> Sequence[Outcome]:
        done, _ = wait(self._running, timeout_seconds, return_when=FIRST_COMPLETED)
        outcomes = []
        for future in done:
            compaction = self._running.pop(future)
            error = future.exception()
            outcomes.append(
                failed(compaction, error) if isinstance(error, Exception) else future.result()
            )
        return outcomes

    def cancel(self) -> None:
        for future in self._running:
            future.cancel()
        if self._running:
            self._spark.interruptAll()
        self._running.clear()

    def _run(self, compaction: Compaction) -> Outcome:
        from pyspark.errors import PySparkException

        text = compaction.to_json()

        def run_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                outcome = run_compaction(Compaction.from_json(text))
                yield pa.RecordBatch.from_pydict({"outcome": [outcome.to_json()]})

        task = self._spark.range(0, 1, 1, 1)
        try:
            (row,) = task.mapInArrow(run_task, "outcome string").collect()
        except PySparkException as error:
            raise JobError(f"Spark gave up on the task: {first_cause(error)}") from error
        except Exception as error:
            if type(error).__module__.startswith("py4j"):
                raise JobError(f"Spark stopped during the task: {first_cause(error)}") from error
            raise
        return Outcome.from_json(row["outcome"])
