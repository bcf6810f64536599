"""Runs independent steps in threads, in bounded memory, with results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from compactor.common.heap import set_up_heap
from compactor.read.lookahead import Lookahead
from lsm_fragment.threads import ALONE, ThreadPool, Work

_BUNDLE_BYTES: Final = 4 << 20
"""Bundle small steps up to this size: handing one over takes longer than running it."""
T = TypeVar("T")


@contextmanager
def thread_pool_of(threads: int) -> Iterator[ThreadPool]:
    """Opens a pool of `threads` threads for the block."""
    if threads > 1:
        set_up_heap()
    with closing(ThreadPool(threads)) as pool:
        yield pool


class Step(Struct, Generic[T], frozen=True):
    """A unit of work with ordered results."""

    run: Callable[[ThreadPool], Iterator[T]]
    """Returns the results. Work deferred to the iterator runs when the results are taken."""
    size: int | None
    """Bytes held until the results are taken; None if the step must run alone."""


def in_order(steps: Iterable[Step[T]], pool: ThreadPool, max_bytes: int) -> Iterator[T]:
    """Yields the results of all steps in order, independent of the number of threads.

    Up to one bundle of steps more than threads runs ahead, within `max_bytes`. The first step runs alone, and
    then no more steps run ahead than were taken before, so that a caller that stops early has read little
    ahead. A step that must run alone, or takes more than half of `max_bytes`, runs in the caller with all
    threads. Errors of a step, or of `steps`, are raised in order.
    """
    if pool.threads == 1:
        for step in steps:
            yield from step.run(pool)
        return
    ahead = _Ahead(iter(steps), pool, max_bytes)
    try:
        while (results := ahead.take()) is not None:
            yield from results
    finally:
        ahead.cancel()


class _Bundle(Struct, Generic[T]):
    """Consecutive steps for one thread."""

    work: Work[list[Iterator[T]]]
    steps: int
    size: int


class _Ahead(Generic[T]):
    """Steps begun and not taken."""

    def __init__(self, steps: Iterator[Step[T]], pool: ThreadPool, max_bytes: int) -> None:
        self._steps = Lookahead(steps)
        self._pool = pool
        self._max_bytes = max_bytes
        self._begun: deque[_Bundle[T]] = deque()
        self._taken = 0
        """Number of steps taken."""
        self._held = 0
        """Bytes of the bundles begun, including the last one taken."""
        self._last_taken = 0
        """Bytes of the last bundle taken, whose results the caller may still use."""

    def take(self) -> Iterator[T] | None:
        """Returns the results of the next steps; None after the last."""
        self._held -= self._last_taken
        self._last_taken = 0
        self._top_up()
        if self._begun:
            bundle = self._begun.popleft()
            results = self._pool.wait(bundle.work)
            self._last_taken = bundle.size
            self._taken += bundle.steps
            self._top_up()
            return chain.from_iterable(results)
        step = self._steps.take()
        if step is not None:
            self._taken += 1
            is_small = self._is_shareable(step) and (step.size or 0) <= _BUNDLE_BYTES
            return step.run(ALONE if is_small else self._pool)
        if self._steps.error is not None:
            raise self._steps.error
        return None

    def cancel(self) -> None:
        for bundle in self._begun:
            bundle.work.cancel()

    def _top_up(self) -> None:
        """Begins the next steps within the limits."""
        while len(self._begun) <= self._pool.threads:
            steps, size = self._next_bundle()
            if not steps:
                return
            work = self._pool.begin(partial(_run, steps))
            self._begun.append(_Bundle(work, len(steps), size))
            self._held += size

    def _next_bundle(self) -> tuple[list[Step[T]], int]:
        """Returns the next steps for one thread, and their bytes; no steps if the limits allow none."""
        steps: list[Step[T]] = []
        max_steps, size = self._taken - sum(bundle.steps for bundle in self._begun), 0
        while len(steps) < max_steps and (step := self._steps.look()) is not None:
            added = step.size or 0
            if not self._is_shareable(step) or self._held + size + added > self._max_bytes:
                break
            if steps and size + added > _BUNDLE_BYTES:
                break
            steps.append(step)
            size += added
            self._steps.take()
        return steps, size

    def _is_shareable(self, step: Step[T]) -> bool:
        """Returns whether a step may run in parallel with others."""
        return step.size is not None and 2 * step.size <= self._max_bytes


def _run(steps: Sequence[Step[T]]) -> list[Iterator[T]]:
    """Runs steps up to the first failure, which is raised when its results are taken."""
    results: list[Iterator[T]] = []
    for step in steps:
        try:
            results.append(step.run(ALONE))
        except Exception as error:  # noqa: BLE001 - raised in its place
            results.append(_failing(error))
            break
    return results


def _failing(error: Exception) -> Iterator[Any]:
    raise error
    yield
