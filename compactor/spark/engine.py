"""Compactions as Spark tasks, by `mapInArrow`, without a shuffle: a job of one task each, small ones share.

A job takes Spark more than a tenth of a second, whatever it does, ten times as long as a compaction of
some hundred rows. So small compactions that wait at the same time share a job and are run one after the
other by its task; any other has a job of its own, and ends, fails and is committed by itself. Jobs are
submitted by threads of the driver. Works on Spark Connect too, since it uses no RDD. Attempts that Spark
retries or doubles are harmless: they write under names of their own, and only the driver commits.
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
from compactor.stores.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHARED_BYTES: Final = 64 << 20
"""Decoded input of the compactions of one job together: half a second's work or so."""
_SHARED_COUNT: Final = 64
"""Compactions of one job: what has ended is committed only with it."""


class SparkEngine:
    """An `Engine` on a Spark session."""

    def __init__(self, spark: SparkSession, slots: int) -> None:
        """slots: jobs submitted at a time. More than Spark has cores only wait there."""
        self.slots = slots
        self._spark = spark
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="compaction")
        self._waiting: deque[Compaction] = deque()
        self._running: dict[Future[list[Outcome]], list[Compaction]] = {}
        self._cancels = 0
        self._is_lost = False

    def submit(self, compaction: Compaction) -> None:
        """It is started by `wait`, so that those submitted together can share a job."""
        self._waiting.append(compaction)

    def wait(self, timeout_seconds: float) -> Sequence[Outcome]:
        if self._is_lost or (not self._running and is_lost(self._spark)):
            self._is_lost = True
            raise EngineLostError(
                "Spark has ended, most likely because its JVM was killed (out of memory?): what it ran is "
                "given up, nothing is lost; start this again"
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
                # That says nothing of the compactions: those that ended before are finished first.
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
        """The next compaction, and after it such as make a small job with it: a slot's share of what
        waits at most."""
        most = min(_SHARED_COUNT, -(-len(self._waiting) // self.slots))
        compactions = [self._waiting.popleft()]
        size = _decoded_bytes(compactions[0])
        while self._waiting and len(compactions) < most:
            size += _decoded_bytes(self._waiting[0])
            if size > _SHARED_BYTES:
                break
            compactions.append(self._waiting.popleft())
        return compactions

    def _run(self, compactions: Sequence[Compaction], cancels: int) -> list[Outcome]:
        """Outcomes of all, or the error of the only one."""
        try:
            return self._run_job(compactions)
        except JobError:
            if len(compactions) == 1 or cancels != self._cancels or is_lost(self._spark):
                raise
        # One of them took the others down with it; by themselves they show which.
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
        """Of one task. Raises `JobError` if there are no outcomes."""
        texts = [compaction.to_json() for compaction in compactions]
        log_settings = logs.settings()

        def run_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            if log_settings is not None:
                logs.set_up(log_settings)  # lines of tasks are like those of the driver
            store_at = functools.cache(open_store)  # with its connections, for all of this task
            for _ in batches:
                for text in texts:
                    compaction = Compaction.from_json(text)
                    outcome = run_compaction(compaction, store_at(compaction.table_url))
                    yield pa.RecordBatch.from_pydict({"outcome": [outcome.to_json()]})

        task = self._spark.range(0, 1, 1, 1)
        with as_job_error("the task"):
            rows = task.mapInArrow(run_task, "outcome string").collect()
        return [Outcome.from_json(row["outcome"]) for row in rows]


def _decoded_bytes(compaction: Compaction) -> int:
    return sum(entry.raw_bytes for entry in compaction.spec.inputs)
