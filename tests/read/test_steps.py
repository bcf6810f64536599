"""Work in threads: results in order, errors in their place, little begun ahead."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.read.steps import Step, in_order, thread_pool_of
from lsm_fragment.threads import ThreadPool


def running_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("pool")}


def numbers(first: int, count: int, _pool: ThreadPool) -> Iterator[int]:
    return iter(range(first, first + count))


class Refused(Exception):  # noqa: N818
    pass


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 30, 49, 51, 90, 200, None]))),
    st.integers(1, 4),
    st.none() | st.integers(0, 12),
)
def test_results_and_errors_come_in_the_order_of_the_steps(
    shapes: list[tuple[int, int | None]], threads: int, fails: int | None
) -> None:
    steps: list[Step[int]] = []
    expected: list[int] = []
    for number, (count, size) in enumerate(shapes):
        if number == fails:
            steps.append(Step(refused, size))
            break
        steps.append(Step(partial(numbers, len(expected), count), size))
        expected += range(len(expected), len(expected) + count)
    found: list[int] = []
    with thread_pool_of(threads) as pool:
        results = in_order(steps, pool, 100)
        if fails is not None and fails < len(shapes):
            with pytest.raises(Refused):
                found.extend(results)
        else:
            found.extend(results)
    assert found == expected
    assert not running_threads()


def refused(_pool: ThreadPool) -> Iterator[int]:
    raise Refused


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_of_the_steps_themselves_comes_after_the_results_before_it(threads: int) -> None:
    def steps() -> Iterator[Step[int]]:
        for number in range(3):
            yield Step(partial(numbers, number, 1), 1)
        raise Refused

    found = []
    with thread_pool_of(threads) as pool, pytest.raises(Refused):
        for result in in_order(steps(), pool, 100):
            found.append(result)  # noqa: PERF402 - what comes before the error counts
    assert found == [0, 1, 2]


@pytest.mark.parametrize(
    ("size", "expected"), [(3 << 20, [1, 4, 6, 7, 8]), (1 << 10, [1, 4, 8, 8, 16])]
)
def test_no_more_steps_are_begun_than_were_taken_before(size: int, expected: list[int]) -> None:
    begun: list[int] = []

    def step(number: int, _pool: ThreadPool) -> Iterator[int]:
        begun.append(number)
        return iter([number])

    with thread_pool_of(2) as pool:
        steps = (Step(partial(step, n), size) for n in range(100))
        results = in_order(steps, pool, 1 << 30)
        most = []
        for taken in range(5):
            assert next(results) == taken
            time.sleep(0.05)
            most.append(len(begun))
    assert most == expected


def test_an_error_within_a_bundle_comes_after_the_results_before_it() -> None:
    begun: list[int] = []

    def step(number: int, _pool: ThreadPool) -> Iterator[int]:
        begun.append(number)
        return refused(_pool) if number == 5 else iter([number])

    found = []
    with thread_pool_of(2) as pool, pytest.raises(Refused):
        for result in in_order((Step(partial(step, n), 1) for n in range(99)), pool, 100):
            found.append(result)  # noqa: PERF402 - what comes before the error counts
    assert found == [0, 1, 2, 3, 4]


def test_steps_that_were_begun_hold_no_more_than_is_allowed() -> None:
    lock, held, peak = threading.Lock(), 0, 0

    def step(size: int, pool: ThreadPool) -> Iterator[int]:
        nonlocal held, peak
        with lock:
            held += size
            peak = max(peak, held)
        return iter([size])

    sizes = [30, 40, 10, 30, 30, 20, 50, 50, 10] * 10
    with thread_pool_of(4) as pool:
        for size in in_order((Step(partial(step, n), n) for n in sizes), pool, 100):
            with lock:
                held -= size
    assert peak <= 100
    assert peak > 50


def test_a_heavy_step_has_all_threads_and_no_company() -> None:
    alone: list[bool] = []
    running = 0

    def step(size: int | None, pool: ThreadPool) -> Iterator[int]:
        nonlocal running
        running += 1
        if size in (None, 51):
            assert pool.threads == 3
            assert pool.each(abs, [-1, -2, -3]) == [1, 2, 3]
            alone.append(running == 1)
        running -= 1
        return iter([0])

    sizes = [1, 1, 1, 51, 1, None, 1, 1, 51]
    with thread_pool_of(3) as pool:
        assert len(list(in_order((Step(partial(step, n), n) for n in sizes), pool, 100))) == 9
    assert alone == [True, True, True]


@pytest.mark.parametrize("ends", ["close", "drop", "error"])
def test_threads_end_with_the_one_who_reads(ends: str) -> None:
    def results() -> Iterator[int]:
        steps = (Step(partial(numbers, n, 1), 1) for n in range(100))
        with thread_pool_of(3) as pool:
            yield from in_order(steps, pool, 100)

    reading = results()
    assert [next(reading) for _ in range(4)] == [0, 1, 2, 3]
    assert running_threads()
    if ends == "close":
        reading.close()  # type: ignore[attr-defined]
    elif ends == "error":
        with pytest.raises(Refused):
            reading.throw(Refused)  # type: ignore[attr-defined]
    del reading
    assert not running_threads()


def test_a_reading_that_python_drops_in_one_of_its_threads_ends_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    is_forgotten, is_collected = threading.Event(), threading.Event()

    def step(number: int, _pool: ThreadPool) -> Iterator[int]:
        if number == 2:
            assert is_forgotten.wait(10)
            gc.collect()
            is_collected.set()
        return iter([number])

    def results() -> Iterator[Any]:
        with thread_pool_of(2) as pool:
            cycle = yield None
            yield from in_order((Step(partial(step, n), 1) for n in range(9)), pool, 100)
            del cycle

    gc.disable()
    try:
        reading: Any = results()
        next(reading)
        assert [reading.send([reading]), next(reading)] == [0, 1]
        del reading
        is_forgotten.set()
        assert is_collected.wait(10)
    finally:
        gc.enable()
    deadline = time.monotonic() + 10
    while running_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not running_threads()
    assert unraisable == []
