"""Runs the work on output row groups in threads, while the merging thread takes the rows of the next ones.

The merging thread never waits while there is work that nobody has begun: it does that itself. So there are no
more threads than cores, which would get in each other's way at the interpreter's lock.

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
from threading import Lock
from typing import Any, Final, Generic, TypeVar

from compactor.resources.budget import MemoryBudget
from compactor.resources.merge_plan import WORK_AHEAD

STAGE: Final = "encode"
T = TypeVar("T")


class Shared(Generic[T]):
    """Work that is done once, by whoever is free first. What it made is held until it is taken."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._claim = Lock()
        self._outcome: Future[T] | None = Future()

    @property
    def is_done(self) -> bool:
        return self._outcome is None or self._outcome.done()

    def do(self) -> bool:
        """Does the work, unless somebody has begun it. Returns whether it did."""
        if not self._claim.acquire(blocking=False):
            return False
        work, outcome = self._work, self._outcome
        assert work is not None
        assert outcome is not None
        self._work = None
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)
            if not isinstance(error, Exception):
                raise  # ends the caller at once
        return True

    def wait(self) -> None:
        """Waits for who has begun the work."""
        if self._outcome is not None:
            self._outcome.exception()

    def take(self) -> T:
        """Returns what the finished work has made, which is held no longer. Raises what it raised."""
        outcome, self._outcome = self._outcome, None
        assert outcome is not None
        return outcome.result()

    def drop(self) -> None:
        """Makes sure that nobody does the work any more."""
        if not self._claim.acquire(blocking=False):
            self.wait()
        self._work = self._outcome = None


@dataclass(slots=True)
class _Pending:
    """Work that was put, and what follows it."""

    shared: Shared[Any] | None
    """None if there is only what follows."""
    then: Callable[[Any], None]
    release: Callable[[], None]
    size: int


def _nothing() -> None:
    pass


class OrderedTasks:
    """Threads and the order of their results. Use it from one thread, and `close` it."""

    def __init__(self, budget: MemoryBudget, threads: int) -> None:
        """threads: how many work, the caller included."""
        self._budget = budget
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[_Pending] = deque()
        self._begun: deque[Shared[Any]] = deque()
        """Work that nobody may have begun yet."""
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
                len(self._pending) >= self._threads + WORK_AHEAD or not self._budget.has_room(size)
            ):
                self._finish_first()
            self._budget.charge(STAGE, size)
        except BaseException:
            release()
            raise
        self._pending.append(_Pending(self.begin(work), then, release, size))

    def begin(self, work: Callable[[], T]) -> Shared[T]:
        """Begins work whose result only its caller waits for (`wait`), whatever was put before. There must be
        other threads."""
        shared = Shared(work)
        while self._begun and self._begun[0].is_done:
            self._begun.popleft()
        self._begun.append(shared)
        self._threads_pool().submit(shared.do)
        return shared

    def wait(self, shared: Shared[T]) -> T:
        """Returns the result of what was begun. Raises what the work raised."""
        self._await(shared)
        return shared.take()

    def then(self, action: Callable[[], None]) -> None:
        """Runs an action after everything that was put before."""
        if not self._pending and not self._is_finishing:
            action()
            return
        self._pending.append(_Pending(None, lambda _: action(), _nothing, 0))

    def flush(self) -> None:
        """Waits for everything that was put. Does nothing while a result is being taken."""
        while self._pending and not self._is_finishing:
            self._finish_first()

    def close(self) -> None:
        """Drops the work whose results were not taken."""
        while self._pending:
            pending = self._pending.popleft()
            if pending.shared is not None:
                pending.shared.drop()
            self._done(pending)
        for shared in self._begun:
            shared.drop()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    @property
    def has_threads(self) -> bool:
        """Whether other threads work beside the caller."""
        return self._threads > 1

    def _threads_pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads - 1, "merge")
        return self._pool

    def _finish_first(self) -> None:
        shared = self._pending[0].shared
        if shared is not None:
            self._await(shared)
        pending = self._pending.popleft()
        self._is_finishing = True
        try:
            pending.then(None if shared is None else shared.take())
        finally:
            self._is_finishing = False
            self._done(pending)

    def _await(self, shared: Shared[Any]) -> None:
        """Does what nobody has begun, the awaited work first, until that is done."""
        shared.do()
        while not shared.is_done and self._help():
            pass
        started = time.perf_counter()
        shared.wait()
        self.wait_seconds += time.perf_counter() - started

    def _help(self) -> bool:
        """Does the first work that nobody has begun. Returns whether there was any."""
        while self._begun:
            if self._begun.popleft().do():
                return True
        return False

    def _done(self, pending: _Pending) -> None:
        self._budget.discharge(STAGE, pending.size)
        pending.release()
