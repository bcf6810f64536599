"""Work that the caller and threads that help it divide among them."""

from __future__ import annotations

import threading
from contextlib import closing
from functools import partial

import pytest

from lsm_fragment.threads import ThreadPool, Work


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_have_the_order_of_the_items(threads: int) -> None:
    items = list(range(50))
    with closing(ThreadPool(threads)) as pool:
        assert pool.each(lambda n: n * n, items, [n % 7 for n in items]) == [n * n for n in items]
        assert pool.each(lambda n: n, [], []) == []


def test_the_heaviest_is_begun_first() -> None:
    begun: list[str] = []
    ThreadPool(1).each(begun.append, ["light", "heavy", "middle"], [1, 9, 5])
    assert begun == ["heavy", "middle", "light"]


def test_threads_work_at_one_time() -> None:
    both = threading.Barrier(2, timeout=10)
    with closing(ThreadPool(2)) as pool:
        pool.each(lambda _: both.wait(), [1, 2], [1, 1])


def test_the_caller_does_not_wait_for_a_thread_that_is_busy() -> None:
    is_done = threading.Event()
    with closing(ThreadPool(2)) as pool:
        other = pool.begin(lambda: is_done.wait(10))
        names = pool.each(lambda _: threading.current_thread().name, [1, 2, 3], [1, 1, 1])
        is_done.set()
        assert pool.wait(other)
    assert set(names) == {threading.current_thread().name}


@pytest.mark.parametrize("threads", [1, 4])
def test_without_weights_the_first_is_begun_first_and_its_error_is_raised(threads: int) -> None:
    others_failed = threading.Event()

    def work(item: int) -> None:
        if item == 1 and threads > 1:
            others_failed.wait(10)
        if item == 2:
            others_failed.set()
        if item:
            raise ValueError(item)

    with closing(ThreadPool(threads)) as pool, pytest.raises(ValueError, match=r"^1$"):
        pool.each(work, range(4))


@pytest.mark.parametrize("threads", [1, 3])
def test_the_error_of_the_heaviest_is_raised(threads: int) -> None:
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        if item % 2:
            raise ValueError(item)

    with closing(ThreadPool(threads)) as pool, pytest.raises(ValueError, match=r"^7$"):
        pool.each(work, list(range(9)), list(range(9)))
    assert 0 not in begun


def test_an_interrupt_of_the_caller_is_not_lost_to_an_error() -> None:
    both = threading.Barrier(2, timeout=10)
    caller = threading.current_thread()

    def work(_: int) -> None:
        both.wait()
        raise KeyboardInterrupt if threading.current_thread() is caller else ValueError

    with closing(ThreadPool(2)) as pool:
        for weights in ([1, 2], [2, 1], [1, 1]):
            with pytest.raises(KeyboardInterrupt):
                pool.each(work, [1, 2], weights)


def test_closing_ends_the_threads() -> None:
    pool = ThreadPool(3)
    pool.each(abs, [1, 2, 3], [1, 1, 1])
    pool.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pool")]


@pytest.mark.parametrize("threads_left", [0, 1])
def test_work_is_done_by_the_threads_there_are_where_no_other_can_start(
    threads_left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def start_few(thread: threading.Thread) -> None:
        if len(started) == threads_left:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_few)
    with closing(ThreadPool(3)) as pool:
        assert pool.each(lambda item: 2 * item, range(100)) == list(range(0, 200, 2))
        begun = [pool.begin(partial(int, item)) for item in range(10)]
        assert [pool.wait(work) for work in begun] == list(range(10))
    assert len(started) == threads_left


def test_a_thread_may_begin_work_while_the_caller_takes_some() -> None:
    is_looked_at, is_taken = threading.Event(), threading.Event()

    class _Slow(Work[None]):
        """Work that is done, and takes a while to say so."""

        @property
        def is_done(self) -> bool:
            is_looked_at.set()
            is_taken.wait(0.2)
            return True

    with closing(ThreadPool(2)) as pool:
        pool._begun.append(_Slow(lambda: None))
        assert pool._pool is not None
        beginning = pool._pool.submit(pool.begin, lambda: 7)
        assert is_looked_at.wait(10)
        pool._help()
        is_taken.set()
        assert pool.wait(beginning.result(10)) == 7
