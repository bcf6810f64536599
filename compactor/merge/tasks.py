"""Runs the work on output row groups in threads, while the merging thread takes the rows of the next ones.

Each piece of work depends only on its rows, and the merging thread takes the results in the order in which
the work came, so the output is the same for any number of threads. Memory is charged before the work begins;
where it is short, the merging thread first waits for results.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from compactor.resources.budget import MemoryBudget

STAGE: Final = "encode"
T = TypeVar("T")


@dataclass(slots=True)
class _Pending:
    """Work that was begun, and what follows it."""

    future: Future[Any]
    then: Callable[[Any], None]
    release: Callable[[], None]
    size: int


def _nothing() -> None:
    pass


class OrderedTasks:
    """Threads and the order of their results. Use it from one thread, and `close` it."""

    def __init__(self, budget: MemoryBudget, threads: int) -> None:
        """threads: number of threads that work beside the caller; with 1 the caller works itself."""
        self._budget = budget
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[_Pending] = deque()
        self._is_finishing = False
        self.wait_seconds = 0.0
        """Seconds that the caller has waited for the threads."""
        budget.finish_first(self.flush)

    def put(
        self,
        work: Callable[[], T],
        then: Callable[[T], None],
        *,
        size: int,
        release: Callable[[], None] = _nothing,
    ) -> None:
        """Begins `work`; calls `then` with its result after everything that was put before, and `release`.

        size: the bytes that the work takes. `release` is also called if the work fails or is dropped.
        """
        if not self.has_threads:
            try:
                with self._budget.holding(STAGE, size):
                    then(work())
            finally:
                release()
            return
        try:
            while self._pending and (
                len(self._pending) > self._threads or not self._budget.has_room(size)
            ):
                self._finish_first()
            self._budget.charge(STAGE, size)
        except BaseException:
            release()
            raise
        self._pending.append(_Pending(self._threads_pool().submit(work), then, release, size))

    def begin(self, work: Callable[[], T]) -> Future[T]:
        """Begins work whose result only its caller waits for (`wait`), whatever was put before. There must be
        other threads."""
        return self._threads_pool().submit(work)

    def wait(self, future: Future[T]) -> T:
        """Returns the result of what was begun. Raises what the work raised."""
        started = time.perf_counter()
        try:
            return future.result()
        finally:
            self.wait_seconds += time.perf_counter() - started

    def then(self, action: Callable[[], None]) -> None:
        """Runs an action after everything that was put before."""
        if not self._pending and not self._is_finishing:
            action()
            return
        done: Future[None] = Future()
        done.set_result(None)
        self._pending.append(_Pending(done, lambda _: action(), _nothing, 0))

    def flush(self) -> None:
        """Waits for everything that was put. Does nothing while a result is being taken."""
        while self._pending and not self._is_finishing:
            self._finish_first()

    def close(self) -> None:
        """Drops the work whose results were not taken."""
        while self._pending:
            pending = self._pending.popleft()
            if not pending.future.cancel():
                pending.future.exception()
            self._done(pending)
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    @property
    def has_threads(self) -> bool:
        """Whether other threads work beside the caller."""
        return self._threads > 1

    def _threads_pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "merge")
        return self._pool

    def _finish_first(self) -> None:
        pending = self._pending[0]
        started = time.perf_counter()
        error = pending.future.exception()
        self.wait_seconds += time.perf_counter() - started
        self._pending.popleft()
        self._is_finishing = True
        try:
            if error is not None:
                raise error
            pending.then(pending.future.result())
        finally:
            self._is_finishing = False
            self._done(pending)

    def _done(self, pending: _Pending) -> None:
        self._budget.discharge(STAGE, pending.size)
        pending.release()
