"""A thread pool in which the calling thread works too.

Handing off a task often costs more than the task, and extra threads contend for the GIL. So the caller is one
of the threads: instead of waiting idly, it runs queued tasks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock, local
from typing import Any, Final, Generic, TypeVar, cast

S = TypeVar("S")
T = TypeVar("T")
_NO_RESULT: Final = object()


class Work(Generic[T]):
    """A task that runs once, in the first free thread. Its result is kept until it is taken."""

    __slots__ = ("_claim", "_error", "_is_done", "_result", "_running", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._claim = Lock()
        self._running = Lock()
        """Held until the task is done. A `Future` takes ten times as long to make."""
        self._running.acquire()
        self._result: object = _NO_RESULT
        self._error: BaseException | None = None
        self._is_done = False

    @property
    def is_done(self) -> bool:
        return self._is_done

    def do(self) -> bool:
        """Runs the task, unless a thread has started it. Returns whether it ran it."""
        if not self._claim.acquire(blocking=False):
            return False
        work, self._work = self._work, None
        assert work is not None
        try:
            self._result = work()
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise  # KeyboardInterrupt and the like end the caller
        finally:
            self._end()
        return True

    def wait(self) -> None:
        """Waits for the thread that is running the task."""
        if not self._is_done:
            with self._running:
                pass

    def take(self) -> T:
        """Returns the result of the finished task and releases it. Raises the task's error."""
        result, error = self._result, self._error
        self._result, self._error = _NO_RESULT, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback has this frame
        assert result is not _NO_RESULT, "it is not done, was cancelled or was taken"
        return cast("T", result)

    def cancel(self) -> bool:
        """Prevents the task from starting. Returns whether it had not started."""
        if not self._claim.acquire(blocking=False):
            return False
        self._work = None
        self._end()
        return True

    def _end(self) -> None:
        self._is_done = True
        self._running.release()

    def drop(self) -> None:
        """Cancels the task, or waits for the thread that is running it."""
        if not self.cancel():
            self.wait()
            self._result, self._error = _NO_RESULT, None


class ThreadPool:
    """The calling thread and its helper threads, which it closes.

    A task may submit others. It may wait only for tasks that wait for none of those that wait for it: else it
    could wait for itself.
    """

    def __init__(self, threads: int) -> None:
        """threads: number of threads, including the caller. Helpers start with their first task."""
        self.threads = threads
        self.wait_seconds = 0.0
        """Seconds in which the caller was idle."""
        self._inside = local()
        """Marks helper threads."""
        mark = partial(setattr, self._inside, "is_set", True)
        self._pool = ThreadPoolExecutor(threads - 1, "pool", mark) if threads > 1 else None
        self._begun: deque[Work[Any]] = deque()
        """Tasks that may not have started yet."""
        self._lock = Lock()

    def begin(self, work: Callable[[], T]) -> Work[T]:
        """Queues a task (`queue`)."""
        begun = Work(work)
        self.queue(begun)
        return begun

    def queue(self, begun: Work[T]) -> None:
        """Queues a task for a helper thread, or for the caller when it blocks; without helpers runs it at
        once."""
        if self._pool is None:
            begun.do()
            return
        with self._lock:
            while self._begun and self._begun[0].is_done:
                self._begun.popleft()
            self._begun.append(begun)
        try:
            self._pool.submit(begun.do)
        except RuntimeError as error:
            # The task stays queued: the other helpers run it, or the caller when it waits.
            if "start new thread" not in str(error):
                raise

    def wait(self, work: Work[T]) -> T:
        """Waits for a task (`finish`) and returns its result. Raises the task's error."""
        self.finish(work)
        return work.take()

    def finish(self, work: Work[Any]) -> None:
        """Runs queued tasks, the awaited one first, until that is done."""
        if not work.is_done:
            work.do()
        while not work.is_done and self._help():
            pass
        if not work.is_done:
            started = time.perf_counter()
            work.wait()
            self.wait_seconds += time.perf_counter() - started

    def each(
        self, work: Callable[[S], T], items: Iterable[S], weights: Sequence[int] | None = None
    ) -> list[T]:
        """Runs the work on each item, in all threads, and returns the results.

        weights: start with the heaviest item; None for the order of the items. Raises the error of the first
        item that fails in this order, for any number of threads; an interrupt of the caller takes precedence.
        """
        shared = _Items(work, list(items), weights)
        helps: list[Work[None]] = []
        try:
            others = min(self.threads, shared.count) - 1
            helps.extend(self.begin(shared.run) for _ in range(others))
            shared.run()
        finally:  # also for an interrupt, or if a thread cannot start
            shared.stop()
            for help_ in helps:
                help_.drop()
        return shared.results()

    def close(self) -> None:
        """Drops tasks that have not started, and waits for the threads."""
        with self._lock:
            self._begun.clear()
        if self._pool is not None:
            # The garbage collector may close a forgotten caller from one of its helpers.
            is_inside = getattr(self._inside, "is_set", False)
            self._pool.shutdown(wait=not is_inside, cancel_futures=True)

    def _help(self) -> bool:
        """Runs the first task that has not started. Returns whether there was one."""
        while (begun := self._next()) is not None:
            if begun.do():
                return True
        return False

    def _next(self) -> Work[Any] | None:
        with self._lock:  # `begin` removes finished tasks in other threads
            return self._begun.popleft() if self._begun else None


class _Items(Generic[S, T]):
    """Items that several threads work on."""

    def __init__(
        self, work: Callable[[S], T], items: Sequence[S], weights: Sequence[int] | None
    ) -> None:
        self._work = work
        self._items = items
        self._order: Sequence[int] = range(len(items))
        if weights is not None:
            self._order = sorted(self._order, key=weights.__getitem__, reverse=True)
        self._left = deque(self._order)
        self._done: dict[int, T] = {}
        self._failed: dict[int, BaseException] = {}

    @property
    def count(self) -> int:
        return len(self._items)

    def run(self) -> None:
        """Works until no item is left, or one has failed."""
        while self._left and not self._failed:
            try:
                place = self._left.popleft()
            except IndexError:  # another thread took the last item
                return
            try:
                self._done[place] = self._work(self._items[place])
            except BaseException as error:  # noqa: BLE001 - raised by `results`
                self._failed[place] = error

    def stop(self) -> None:
        """Drops the items that no thread has taken."""
        self._left.clear()

    def results(self) -> list[T]:
        """Returns the results in the order of the items, or raises the first error."""
        failed = [self._failed[place] for place in self._order if place in self._failed]
        if failed:
            raise min(failed, key=lambda error: isinstance(error, Exception))
        return [self._done[place] for place in range(len(self._items))]


ALONE: Final = ThreadPool(1)
"""A pool of one: the calling thread."""
