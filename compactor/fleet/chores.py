"""Runs vacuums and publications of tables, one at a time, in a thread beside the worker.

So a chore never delays a merge or the renewal of a lease, and its memory is that of one table. One that the
end of the process interrupts does no harm, and the next one continues it.
"""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from compactor.lakes.publish_report import PublishReport
from compactor.table.vacuum import VacuumReport


class Chore(StrEnum):
    VACUUM = "vacuum"
    PUBLISH = "publish"
    RETENTION = "retention"
    """Part of a look at the table, so it is no work of the thread."""


Report = VacuumReport | PublishReport


class Job(NamedTuple):
    """A chore to run on one table."""

    table: str
    chore: Chore
    run: Callable[[], Report]


class Ended(NamedTuple):
    """A chore that is over."""

    job: Job
    report: Report | None
    error: Exception | None
    seconds: float


class Runner(Protocol):
    """Runs one job at a time."""

    @property
    def is_free(self) -> bool: ...

    def start(self, job: Job) -> None: ...

    def ended(self) -> Sequence[Ended]:
        """Returns the jobs that are over since the last call."""
        ...


def done(job: Job) -> Ended:
    """Runs a job; an error becomes part of what is returned."""
    started = time.monotonic()
    report: Report | None = None
    failure: Exception | None = None
    try:
        report = job.run()
    except Exception as error:  # noqa: BLE001 - a defect in a chore must not stop the merges
        failure = error
    return Ended(job, report, failure, time.monotonic() - started)


class ThreadRunner:
    """Runs each job in a thread that does not keep the process from ending."""

    def __init__(self) -> None:
        self._over: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self._is_free = True

    @property
    def is_free(self) -> bool:
        return self._is_free

    def start(self, job: Job) -> None:
        assert self._is_free, "one at a time"
        self._is_free = False
        run = functools.partial(self._run, job)
        threading.Thread(target=run, name=f"{job.chore}", daemon=True).start()

    def ended(self) -> Sequence[Ended]:
        try:
            over = self._over.get_nowait()
        except queue.Empty:
            return ()
        self._is_free = True
        return (over,)

    def _run(self, job: Job) -> None:
        self._over.put(done(job))
