"""Runs independent work in threads, gives results in the order of the work, and bounds what is held."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import local
from typing import Final, Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Workers:
    """Threads that work for one caller, which closes them. One thread is the caller itself.

    Work that runs in them must not use them: it would wait for itself.
    """

    def __init__(self, threads: int) -> None:
        """Starts no thread before there is work for it."""
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._inside = local()
        """Marks the threads."""

    def begin(self, work: Callable[[], T]) -> Future[T]:
        """Begins some work in a thread. There must be more than one."""
        assert self.threads > 1, "with one thread the caller works itself"
        return self._started().submit(work)

    def each(self, work: Callable[[S], T], items: Iterable[S]) -> list[T]:
        """Returns the result of the work on each item, several at a time.

        Raises the error of the first item that fails.
        """
        asked = list(items)
        if self.threads == 1 or len(asked) < 2:
            return [work(item) for item in asked]
        return list(self._started().map(work, asked))

    def close(self) -> None:
        """Drops the work that was not begun, and waits for the threads."""
        if self._pool is not None:
            # Python may drop a forgotten caller, which closes, in one of the threads.
            is_inside = getattr(self._inside, "is_set", False)
            self._pool.shutdown(wait=not is_inside, cancel_futures=True)

    def _started(self) -> ThreadPoolExecutor:
        if self._pool is None:
            mark = partial(setattr, self._inside, "is_set", True)
            self._pool = ThreadPoolExecutor(self.threads, "worker", mark)
        return self._pool


CALLER: Final = Workers(1)
"""No threads: the caller does all work itself."""


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """A part of some work whose results have an order."""

    run: Callable[[Workers], Iterator[T]]
    """Returns the results. What it leaves to the iterator is done when the results are taken."""
    size: int | None
    """The bytes that it holds until its results are taken; None if the caller has to run it alone."""


def in_order(steps: Iterable[Step[T]], workers: Workers, most_bytes: int) -> Iterator[T]:
    """Yields the results of all steps in their order, the same for any number of threads.

    Steps are begun ahead: one more than there are threads, of `most_bytes` together. The first step is run
    alone, and then no more steps are ahead than were taken before: who stops early has read little ahead.
    A step that has to run alone, or has more than half of `most_bytes`, is run by the caller with all
    threads. An error of a step, or of `steps`, is raised in its place.
    """
    if workers.threads == 1:
        for step in steps:
            yield from step.run(workers)
        return
    ahead = _Ahead(iter(steps), workers, most_bytes)
    try:
        while (results := ahead.take()) is not None:
            yield from results
    finally:
        ahead.cancel()


@dataclass(slots=True)
class _Begun(Generic[T]):
    future: Future[Iterator[T]]
    size: int


class _Ahead(Generic[T]):
    """Steps that were begun and not taken."""

    def __init__(self, steps: Iterator[Step[T]], workers: Workers, most_bytes: int) -> None:
        self._steps = steps
        self._workers = workers
        self._most_bytes = most_bytes
        self._begun: deque[_Begun[T]] = deque()
        self._next: Step[T] | None = None
        """The step that follows those that were begun, once it was asked for."""
        self._error: Exception | None = None
        """The error with which the steps end."""
        self._taken = 0
        self._held = 0
        """Bytes of the steps that were begun, with the one that was taken last."""
        self._lent = 0
        """Bytes of the step that was taken last."""

    def take(self) -> Iterator[T] | None:
        """Returns the results of the next step; None after the last."""
        self._held -= self._lent
        self._lent = 0
        self._top_up()
        if self._begun:
            begun = self._begun.popleft()
            results = begun.future.result()
            self._lent = begun.size
            self._taken += 1
            self._top_up()
            return results
        step, self._next = self._look(), None
        if step is not None:
            self._taken += 1
            return step.run(self._workers)
        if self._error is not None:
            raise self._error
        return None

    def cancel(self) -> None:
        for begun in self._begun:
            begun.future.cancel()

    def _top_up(self) -> None:
        """Begins the next steps as far as there is room."""
        while len(self._begun) < min(self._workers.threads + 1, self._taken):
            step = self._look()
            if step is None or step.size is None or 2 * step.size > self._most_bytes:
                return
            if self._held + step.size > self._most_bytes:
                return
            self._next = None
            future = self._workers.begin(partial(step.run, CALLER))
            self._begun.append(_Begun(future, step.size))
            self._held += step.size

    def _look(self) -> Step[T] | None:
        """Returns the next step that was not begun."""
        if self._next is None and self._error is None:
            try:
                self._next = next(self._steps, None)
            except Exception as error:  # noqa: BLE001 - raised in its place
                self._error = error
        return self._next
