"""Divides work among the caller and threads that help it.

To hand a piece of work over, and to wait for it, takes longer than many a column takes; and more threads than
cores get in each other's way at the interpreter's lock. So the caller is one of the threads: while it would
wait, it does what nobody has begun.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock, local
from typing import Any, Final, Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Work(Generic[T]):
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

    def cancel(self) -> bool:
        """Makes sure that nobody begins the work any more. Returns whether nobody has begun it."""
        if not self._claim.acquire(blocking=False):
            return False
        self._work = self._outcome = None
        return True

    def drop(self) -> None:
        """Makes sure that nobody does the work any more: waits for who has begun it."""
        if not self.cancel():
            self.wait()
            self._outcome = None


class ThreadPool:
    """The caller and the threads that help it, which it closes.

    Work in them may begin other work, and must not wait for any: it could wait for itself.
    """

    def __init__(self, threads: int) -> None:
        """threads: how many work, the caller included. Starts none before there is work for it."""
        self.threads = threads
        self.wait_seconds = 0.0
        """Seconds in which the caller had nothing to do but wait."""
        self._inside = local()
        """Marks the threads."""
        mark = partial(setattr, self._inside, "is_set", True)
        self._pool = ThreadPoolExecutor(threads - 1, "pool", mark) if threads > 1 else None
        self._begun: deque[Work[Any]] = deque()
        """Work that nobody may have begun yet."""
        self._lock = Lock()

    def begin(self, work: Callable[[], T]) -> Work[T]:
        """Gives some work to another thread, of which there must be one, or to the caller once it waits."""
        assert self._pool is not None, "a caller that is alone works itself"
        begun = Work(work)
        with self._lock:
            while self._begun and self._begun[0].is_done:
                self._begun.popleft()
            self._begun.append(begun)
        try:
            self._pool.submit(begun.do)
        except RuntimeError as error:
            # The pool keeps the work; its other threads do it, or the caller once it waits.
            if "start new thread" not in str(error):
                raise
        return begun

    def wait(self, work: Work[T]) -> T:
        """Returns the result of what was begun, once that is done (`finish`). Raises what the work raised."""
        self.finish(work)
        return work.take()

    def finish(self, work: Work[Any]) -> None:
        """Does what nobody has begun, the awaited work first, until that is done."""
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
        """Returns the result of the work on each item. Whoever is free takes the next one.

        weights: the heaviest is the first to be taken; None for the order of the items. Raises the error of
        the first that fails in this order, whatever the number of threads; an interrupt of the caller comes
        before all errors.
        """
        shared = _Items(work, list(items), weights)
        helps: list[Work[None]] = []
        try:
            others = min(self.threads, shared.count) - 1
            helps.extend(self.begin(shared.run) for _ in range(others))
            shared.run()
        finally:  # also after an interrupt, or if a thread cannot be started
            shared.stop()
            for help_ in helps:
                help_.drop()
        return shared.results()

    def close(self) -> None:
        """Drops the work that was not begun, and waits for the threads."""
        with self._lock:
            self._begun.clear()
        if self._pool is not None:
            # Python may drop a forgotten caller, which closes, in one of the threads.
            is_inside = getattr(self._inside, "is_set", False)
            self._pool.shutdown(wait=not is_inside, cancel_futures=True)

    def _help(self) -> bool:
        """Does the first work that nobody has begun. Returns whether there was any."""
        while (begun := self._next()) is not None:
            if begun.do():
                return True
        return False

    def _next(self) -> Work[Any] | None:
        with self._lock:  # a thread that begins work removes what is done
            return self._begun.popleft() if self._begun else None


class _Items(Generic[S, T]):
    """Items that several threads take."""

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
        """Works until nothing is left, or something has failed."""
        while self._left and not self._failed:
            try:
                place = self._left.popleft()
            except IndexError:  # another thread has taken the last one
                return
            try:
                self._done[place] = self._work(self._items[place])
            except BaseException as error:  # noqa: BLE001 - raised by `results`
                self._failed[place] = error

    def stop(self) -> None:
        """Leaves what nobody has taken."""
        self._left.clear()

    def results(self) -> list[T]:
        """Returns the results in the order of the items, or raises what has failed."""
        failed = [self._failed[place] for place in self._order if place in self._failed]
        if failed:
            raise min(failed, key=lambda error: isinstance(error, Exception))
        return [self._done[place] for place in range(len(self._items))]


ALONE: Final = ThreadPool(1)
"""The caller, whom nobody helps."""
