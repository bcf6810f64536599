"""Requests are counted by what they were for."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from compactor.errors import ObjectExistsError, ObjectNotFoundError
from compactor.stores.base import REQUEST_KINDS
from compactor.stores.local import LocalStore
from compactor.stores.metered import MeteredStore, StoreMetrics
from compactor.stores.s3 import S3Store
from tests.faults import Refuse, calls
from tests.support.s3_server import Request, S3Server, answering


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
    expected = StoreMetrics(gets=2, resumed_gets=2, range_gets=1, heads=1, bytes_read=30 + 100 + 5)
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


def kinds(store: MeteredStore) -> dict[str, int]:
    """Requests that are not none."""
    counts = {kind: store.counts()[f"{kind}_requests"] for kind in REQUEST_KINDS}
    return {kind: count for kind, count in counts.items() if count}


def test_a_folder_has_calls_in_place_of_requests(store: MeteredStore) -> None:
    store.head("k")
    store.read("k")
    store.read_range("k", 0, 1)
    store.create("new", b"1")
    store.delete("new")
    assert [info.key for info in store.list("")] == ["k"]
    upload = store.start_upload("left")
    (left,) = store.list_unfinished()
    store.discard_unfinished(left)
    upload.abort()
    assert kinds(store) == {"get": 2, "head": 1, "list": 2, "put": 1, "delete": 2}


def kind_of(request: Request) -> str:
    """As the bill has it, by what the server was sent."""
    is_listing = request.method == "GET" and re.search(r"list-type|uploads", request.query)
    return "list" if is_listing else request.method.lower()


def test_requests_to_s3_are_those_that_the_server_got(s3_server: S3Server, s3_bucket: str) -> None:
    plain = S3Store(s3_bucket, "t", part_bytes=5 << 20)
    plain.create("before", b"1")
    s3_server.reset()
    store = MeteredStore(plain, StoreMetrics())
    with store.start_upload("large") as upload:
        upload.write(bytes(11 << 20))
        upload.complete()
    with store.start_upload("small") as upload:
        upload.write(b"1")
        upload.complete()
    upload = store.start_upload("left")
    upload.write(bytes(11 << 20))
    upload.abort()
    with pytest.raises(ObjectExistsError):
        store.create("before", b"2")
    with pytest.raises(ObjectNotFoundError):
        store.head("absent")
    slow_down = answering("503 Slow Down", b"<Error><Code>SlowDown</Code></Error>")
    s3_server.faults.add(Refuse(slow_down), at=calls().first())
    assert store.read_range("large", 5, 3) == bytes(3)
    store.head("small")
    assert len(list(store.list(""))) == 3
    assert list(store.list_unfinished()) == []
    store.delete("small")
    got = Counter(map(kind_of, s3_server.requests()))
    assert kinds(store) == dict(got)
    assert set(got) == set(REQUEST_KINDS)
    assert got["get"] == 2  # one was sent again
    assert store.counts()["retries"] == 1
    assert store.counts()["puts"] == 2 < got["put"]


def test_every_page_of_a_listing_is_a_request(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MeteredStore(S3Store(s3_bucket), StoreMetrics())
    for n in range(3):
        store.create(f"k{n}", b"")
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "1")  # the server is in this process
    s3_server.reset()
    assert len(list(store.list(""))) == 3
    assert kinds(store)["list"] == len(s3_server.requests("GET")) == 3


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
