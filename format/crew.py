"""Divides work among the caller and threads that help it.

To hand a piece of work over, and to wait for it, takes longer than many a column takes. So the caller never
waits while something is left to do, and a thread that comes late finds nothing more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Crew:
    """The caller and the threads that help it, which it closes. Work in them must not use the crew."""

    def __init__(self, threads: int) -> None:
        """threads: how many work, the caller included. Starts none before there is work for it."""
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads - 1, "crew") if threads > 1 else None

    def begin(self, work: Callable[[], T]) -> Future[T]:
        """Begins some work in another thread, of which there must be one."""
        assert self._pool is not None, "a caller that is alone works itself"
        return self._pool.submit(work)

    def each(self, work: Callable[[S], T], items: Sequence[S], weights: Sequence[int]) -> list[T]:
        """Returns the result of the work on each item. Whoever is free takes the heaviest that is left.

        Raises the error of the heaviest item that fails, whatever the number of threads; an interrupt of the
        caller comes before all errors.
        """
        shared = _Shared(work, items, weights)
        helps = [self.begin(shared.run) for _ in range(min(self.threads, len(items)) - 1)]
        shared.run()
        for help_ in helps:
            if not help_.cancel():
                help_.result()
        return shared.results()

    def close(self) -> None:
        """Drops the work that was not begun, and waits for the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


class _Shared(Generic[S, T]):
    """Items that several threads take."""

    def __init__(self, work: Callable[[S], T], items: Sequence[S], weights: Sequence[int]) -> None:
        self._work = work
        self._items = items
        self._order = sorted(range(len(items)), key=weights.__getitem__, reverse=True)
        self._left = deque(self._order)
        self._done: dict[int, T] = {}
        self._failed: dict[int, BaseException] = {}

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

    def results(self) -> list[T]:
        """Returns the results in the order of the items, or raises what has failed."""
        failed = [self._failed[place] for place in self._order if place in self._failed]
        if failed:
            raise min(failed, key=lambda error: isinstance(error, Exception))
        return [self._done[place] for place in range(len(self._items))]


ALONE: Final = Crew(1)
"""The caller, whom nobody helps."""
