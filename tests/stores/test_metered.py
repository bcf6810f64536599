"""Requests are counted by what they were for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from compactor.errors import ObjectExistsError, ObjectNotFoundError
from compactor.stores.local import LocalStore
from compactor.stores.metered import MeteredStore, StoreMetrics


@pytest.fixture
def store(tmp_path: Path) -> MeteredStore:
    LocalStore(tmp_path).create("k", bytes(100))
    return MeteredStore(LocalStore(tmp_path), StoreMetrics())


def test_whole_resumed_and_ranged_reads_are_told_apart(store: MeteredStore) -> None:
    etag = store.head("k").etag
    assert store.open_stream("k").read(30) == bytes(30)
    store.read("k")
    store.open_stream("k", start=90)
    store.open_stream("k", if_match=etag)
    store.read_range("k", 95, 10)
    expected = StoreMetrics(gets=2, resumed_gets=2, range_gets=1, bytes_read=30 + 100 + 5)
    assert store.metrics == expected


def test_puts_are_the_objects_that_became_visible(store: MeteredStore) -> None:
    store.create("a", bytes(7))
    with pytest.raises(ObjectExistsError):
        store.create("a", bytes(7))
    with store.start_upload("b") as upload:
        upload.write(memoryview(bytes(16)).cast("i"))
        upload.complete()
    upload = store.start_upload("c")
    upload.write(bytes(5))
    upload.abort()
    assert store.metrics == StoreMetrics(puts=2, bytes_written=7 + 16 + 5)


def test_what_was_not_there_is_not_counted(store: MeteredStore) -> None:
    for read in (store.read, store.open_stream):
        with pytest.raises(ObjectNotFoundError):
            read("absent")
    assert store.metrics == StoreMetrics()


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that interrupt one another as often as the interpreter lets them."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_counts_of_many_threads_add_up(hasty_threads: None) -> None:
    metrics = StoreMetrics()

    def count() -> None:
        for _ in range(2_000):
            metrics.add(gets=1, bytes_read=3)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics == StoreMetrics(gets=16_000, bytes_read=48_000)
