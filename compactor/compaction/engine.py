"""Engines: where compactions run, Spark or this process. The worker knows only this interface."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from compactor.compaction.attempt import run_compaction
from compactor.compaction.compaction import Compaction, Outcome, failed
from compactor.planner.cost_model import BASE_BYTES
from compactor.resources.resident import resident_bytes
from compactor.resources.trimmer import trim


class Engine(Protocol):
    """Runs compactions; each ends in one outcome. Used from one thread."""

    @property
    def slots(self) -> int:
        """The number of compactions worth submitting at a time."""
        ...

    def start_rss_bytes(self) -> int:
        """Returns the resident set with which the process of the next compaction will begin."""
        ...

    def submit(self, compaction: Compaction) -> None: ...

    def wait(self, timeout_seconds: float) -> Sequence[Outcome]:
        """Returns outcomes of finished compactions: at least one, unless none finishes in that time.

        Raises `EngineLostError` if nothing can be run any more.
        """
        ...

    def cancel(self) -> None:
        """Gives up the running compactions, which then have no outcome."""
        ...


class InProcessEngine:
    """An engine without Spark: runs compactions one by one in this process, while `wait` is called."""

    slots = 1

    def __init__(self, run: Callable[[Compaction], Outcome] = run_compaction) -> None:
        self._run = run
        self._queue: deque[Compaction] = deque()

    def start_rss_bytes(self) -> int:
        trim()  # as a compaction does before it begins
        return resident_bytes() or BASE_BYTES

    def submit(self, compaction: Compaction) -> None:
        self._queue.append(compaction)

    def wait(self, timeout_seconds: float) -> Sequence[Outcome]:  # noqa: ARG002
        if not self._queue:
            return ()
        compaction = self._queue.popleft()
        try:
            return (self._run(compaction),)
        except Exception as error:  # noqa: BLE001 - a defect in one compaction must not lose others
            return (failed(compaction, error),)

    def cancel(self) -> None:
        self._queue.clear()
