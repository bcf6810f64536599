"""Runs the work on output row groups in threads, while the merging thread takes the rows of the next ones.

Each piece of work depends only on its rows, and the merging thread takes the results in the order in which
the work came, so the output is the same for any number of threads. Memory is reserved before the work begins;
where it is short, the merging thread first waits for results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from compactor.resources.budget import MemoryBudget
from compactor.resources.merge_plan import WORK_AHEAD
from compactor.resources.merge_stages import ENCODE
from compactor.resources.reservation import Pins, Reservation
from lsm_fragment.threads import ThreadPool, Work

T = TypeVar("T")


class _Pending(Struct):
    """Work that was put, and the action that follows it."""

    work: Work[Any] | None
    """None if there is only an action."""
    then: Callable[[Any], None]
    memory: Reservation | None = None
    pins: Pins | None = None

    def free(self) -> None:
        if self.memory is not None:
            self.memory.free()
        if self.pins is not None:
            self.pins.free()


class OrderedTasks:
    """Threads and the order of their results. Use it from one thread, and `close` it."""

    def __init__(self, budget: MemoryBudget, threads: int) -> None:
        """threads: how many work, the caller included."""
        self._budget = budget
        self._pool = ThreadPool(threads)
        self._pending: deque[_Pending] = deque()
        self._is_finishing = False
        budget.finish_first(self.flush)

    def put(
        self,
        work: Callable[[], T],
        then: Callable[[T], None],
        *,
        size: int,
        pins: Pins | None = None,
    ) -> None:
        """Begins `work`; calls `then` with its result after everything that was put before.

        size: the bytes that the work takes. pins: memory of its input, which is freed after `then`, and also
        if the work fails or is dropped.
        """
        pins = pins or Pins()
        if not self.has_threads:
            with pins, Reservation(self._budget, ENCODE, size):
                then(work())
            return
        try:
            while self._pending and (
                len(self._pending) >= self._pool.threads + WORK_AHEAD
                or not self._budget.has_room(size)
            ):
                self._finish_first()
            memory = Reservation(self._budget, ENCODE, size)
        except BaseException:
            pins.free()
            raise
        self._pending.append(_Pending(self.begin(work), then, memory, pins))

    def begin(self, work: Callable[[], T]) -> Work[T]:
        """Begins work whose result only its caller waits for (`wait`), whatever was put before. There must be
        other threads."""
        return self._pool.begin(work)

    def wait(self, work: Work[T]) -> T:
        """Returns the result of work that was begun. Raises its error."""
        return self._pool.wait(work)

    def then(self, action: Callable[[], None]) -> None:
        """Runs an action after everything that was put before."""
        if not self._pending and not self._is_finishing:
            action()
            return
        self._pending.append(_Pending(None, lambda _: action()))

    def flush(self) -> None:
        """Waits for everything that was put. Does nothing while a result is being taken."""
        while self._pending and not self._is_finishing:
            self._finish_first()

    def close(self) -> None:
        """Drops the work whose results were not taken."""
        while self._pending:
            pending = self._pending.popleft()
            if pending.work is not None:
                pending.work.drop()
            pending.free()
        self._pool.close()

    @property
    def has_threads(self) -> bool:
        """Whether other threads work beside the caller."""
        return self._pool.threads > 1

    @property
    def wait_seconds(self) -> float:
        """Seconds that the caller has waited for the threads."""
        return self._pool.wait_seconds

    def _finish_first(self) -> None:
        work = self._pending[0].work
        if work is not None:
            self._pool.finish(work)
        pending = self._pending.popleft()
        self._is_finishing = True
        try:
            pending.then(None if work is None else work.take())
        finally:
            self._is_finishing = False
            pending.free()
