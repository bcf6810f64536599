"""Runs compactions as Spark tasks by `mapInArrow`, without a shuffle.

A Spark job takes over a tenth of a second, ten times as long as compacting a few hundred rows. So small
compactions that queue at the same time share a job with a single task. Every other compaction has a job to
itself, and ends, fails and is committed on its own. Threads of Spark's driver submit the jobs. No RDD is
used, so this works on Spark Connect too. Retried and speculative attempts are harmless: they write under
unique names, and only the compaction driver commits.
"""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from compactor.common import logs
from compactor.compaction.attempt import run_compaction
from compactor.compaction.compaction import Compaction, Outcome, failed
from compactor.errors import EngineLostError, JobError
from compactor.spark.session import as_job_error, is_lost
from compactor.spark.workers import freeze_worker, task_cores
from compactor.stores.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHARED_BYTES: Final = 64 << 20
"""Maximum decoded input of a shared job: about half a second of work."""
_SHARED_COUNT: Final = 64
"""Maximum compactions of a shared job, because none commits before the job ends."""
_WORKER_BYTES: Final = 150 << 20
"""Resident memory of a Python worker with PySpark's modules, when a compaction begins."""


class SparkEngine:
    """An `Engine` on a Spark session."""

    def __init__(self, spark: SparkSession, slots: int) -> None:
        """slots: maximum jobs submitted at a time; jobs beyond Spark's cores queue in Spark."""
        self.slots = slots
        self._spark = spark
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="compaction")
        self._waiting: deque[Compaction] = deque()
        self._running: dict[Future[list[Outcome]], list[Compaction]] = {}
        self._cancels = 0
        self._is_lost = False

    def start_rss_bytes(self) -> int:
        return _WORKER_BYTES

    def submit(self, compaction: Compaction) -> None:
        """Queues a compaction. `wait` starts it, so that small ones can share a job."""
        self._waiting.append(compaction)

    def wait(self, timeout_seconds: float) -> Sequence[Outcome]:
        """Starts queued compactions and returns the outcomes of those that have ended.

        Raises `EngineLostError` if Spark has ended.
        """
        if self._is_lost or (not self._running and is_lost(self._spark)):
            self._is_lost = True
            raise EngineLostError(
                "Spark has ended, most likely because its JVM was killed (out of memory?): its running "
                "compactions are given up, no data is lost; start this again"
            )
        self._start()
        done, _ = wait(self._running, timeout_seconds, return_when=FIRST_COMPLETED)
        outcomes: list[Outcome] = []
        for future in done:
            compactions = self._running.pop(future)
            error = future.exception()
            if not isinstance(error, Exception):
                outcomes += future.result()
            elif is_lost(self._spark):
                # The ended compactions did not fail with Spark: return them first.
                self._is_lost = True
            else:
                outcomes += [failed(compaction, error) for compaction in compactions]
        if not self._is_lost:
            self._start()
        return outcomes if outcomes or not self._is_lost else self.wait(0)

    def cancel(self) -> None:
        self._cancels += 1
        self._waiting.clear()
        for future in self._running:
            future.cancel()
        if self._running and not self._is_lost:
            with contextlib.suppress(Exception):  # a JVM that does not answer runs nothing
                self._spark.interruptAll()
        self._running.clear()

    def _start(self) -> None:
        """Submits jobs while slots are free."""
        while self._waiting and len(self._running) < self.slots:
            compactions = self._next_job()
            future = self._threads.submit(self._run, compactions, self._cancels)
            self._running[future] = compactions

    def _next_job(self) -> list[Compaction]:
        """Returns the next compaction and the small ones that can share its job, at most the queue divided by
        slots."""
        max_count = min(_SHARED_COUNT, -(-len(self._waiting) // self.slots))
        compactions = [self._waiting.popleft()]
        size = _decoded_bytes(compactions[0])
        while self._waiting and len(compactions) < max_count:
            size += _decoded_bytes(self._waiting[0])
            if size > _SHARED_BYTES:
                break
            compactions.append(self._waiting.popleft())
        return compactions

    def _run(self, compactions: Sequence[Compaction], cancels: int) -> list[Outcome]:
        """Returns all outcomes. Raises the job's error if there is a single compaction."""
        try:
            return self._run_job(compactions)
        except JobError:
            if len(compactions) == 1 or cancels != self._cancels or is_lost(self._spark):
                raise
        # One compaction made the whole job fail; running each separately finds it.
        outcomes: list[Outcome] = []
        for compaction in compactions:
            if cancels != self._cancels:
                break
            try:
                outcomes += self._run_job([compaction])
            except JobError as error:
                outcomes.append(failed(compaction, error))
        return outcomes

    def _run_job(self, compactions: Sequence[Compaction]) -> list[Outcome]:
        """Runs a job of one task and returns its outcomes. Raises `JobError` if the job fails."""
        texts = [compaction.to_json() for compaction in compactions]
        log_settings = logs.settings()

        def run_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            freeze_worker()
            if log_settings is not None:
                logs.set_up(log_settings)  # tasks log in the format of this process
            store_at = functools.cache(open_store)  # one store and its connections per task
            for _ in batches:
                for text in texts:
                    compaction = Compaction.from_json(text)
                    compaction = compaction.with_cores(task_cores())
                    outcome = run_compaction(compaction, store_at(compaction.table_url))
                    yield pa.RecordBatch.from_pydict({"outcome": [outcome.to_json()]})

        task = self._spark.range(0, 1, 1, 1)
        with as_job_error("the task"):
            rows = task.mapInArrow(run_task, "outcome string").collect()
        return [Outcome.from_json(row["outcome"]) for row in rows]


def _decoded_bytes(compaction: Compaction) -> int:
    return sum(entry.raw_bytes for entry in compaction.spec.inputs)
