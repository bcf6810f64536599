"""A dropped connection is continued where it broke, on the same object, and counted apart."""

from __future__ import annotations

import pytest

from compactor.errors import ObjectChangedError, StoreUnreachableError
from compactor.stores.metered import MeteredStore, StoreMetrics
from compactor.stores.resume import ResumingStream
from compactor.stores.s3 import S3Store
from tests.faults import Drop, IgnoreConditions, Refuse, calls
from tests.support.memory_store import MemoryStore, MemoryStream
from tests.support.s3_server import S3Server

DATA = bytes(range(250)) * 100


OPENINGS = calls("open_stream")


def flaky_store(bytes_each: int = 7_000) -> MemoryStore:
    """Returns a store of which every connection gives some bytes and breaks."""
    store = MemoryStore({"k": DATA})
    store.faults.add(Drop(after_bytes=bytes_each), at=OPENINGS)
    return store


@pytest.fixture
def store() -> MeteredStore:
    return MeteredStore(flaky_store(), StoreMetrics())


def replace_object(store: MeteredStore | MemoryStore) -> None:
    with store.start_upload("k") as upload:
        upload.write(DATA[::-1])
        upload.complete()


def drain(stream: ResumingStream) -> bytes:
    pieces = []
    while piece := stream.read(1_000):
        pieces.append(piece)
    return b"".join(pieces)


def test_a_broken_stream_goes_on_where_it_broke(store: MeteredStore) -> None:
    stream = ResumingStream(store, "k", sleep=lambda _: None)
    assert drain(stream) == DATA
    assert store.metrics.gets == 1
    assert store.metrics.resumed_gets == 3
    assert store.metrics.bytes_read == len(DATA)


def test_an_object_replaced_meanwhile_is_an_error(store: MeteredStore) -> None:
    stream = ResumingStream(store, "k", sleep=lambda _: None)
    for _ in range(7):
        stream.read(1_000)
    replace_object(store)
    with pytest.raises(ObjectChangedError):
        stream.read(1_000)


def test_a_store_that_stays_away_is_given_up_on_with_growing_pauses() -> None:
    pauses: list[float] = []
    stream = ResumingStream(flaky_store(0), "k", max_resumes=4, sleep=pauses.append)
    with pytest.raises(StoreUnreachableError, match="dropped"):
        stream.read(10)
    assert len(pauses) == 4
    assert all(pause <= 0.1 * 2**n for n, pause in enumerate(pauses))


def test_a_store_that_ignores_the_pin_cannot_mix_two_objects() -> None:
    store = flaky_store()
    store.faults.add(IgnoreConditions(), at=OPENINGS)
    stream = ResumingStream(store, "k", sleep=lambda _: None)
    assert stream.read(7_000) == DATA[:7_000]
    replace_object(store)
    with pytest.raises(ObjectChangedError):
        stream.read(1_000)


def test_reopening_may_fail_too_and_is_tried_again() -> None:
    store = flaky_store()
    store.faults.add(Refuse(StoreUnreachableError), at=OPENINGS.nth(2))
    store.faults.add(Refuse(StoreUnreachableError), at=OPENINGS.nth(3))
    pauses: list[float] = []
    assert drain(ResumingStream(store, "k", sleep=pauses.append)) == DATA
    opened = [key for operation, key in store.calls if operation == "open_stream"]
    assert (len(opened), len(pauses)) == (6, 5)


def test_progress_starts_the_count_of_resumes_afresh() -> None:
    stream = ResumingStream(flaky_store(1_000), "k", max_resumes=1, sleep=lambda _: None)
    assert drain(stream) == DATA


def test_broken_connections_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[MemoryStream] = []
    monkeypatch.setattr(MemoryStream, "close", lambda stream: closed.append(stream))
    stream = ResumingStream(flaky_store(), "k", sleep=lambda _: None)
    drain(stream)
    assert len(set(closed)) == 3
    stream.close()
    assert len(set(closed)) == 4


def test_a_stream_that_broke_may_be_closed_twice() -> None:
    stream = ResumingStream(flaky_store(0), "k", max_resumes=0, sleep=lambda _: None)
    with pytest.raises(StoreUnreachableError):
        stream.read(1)
    stream.close()
    stream.close()


def test_on_s3_a_broken_body_is_continued_by_a_pinned_range(
    s3_server: S3Server, s3_bucket: str
) -> None:
    store = MeteredStore(S3Store(s3_bucket), StoreMetrics())
    etag = store.create("k", DATA).etag
    s3_server.faults.add(Drop(after_bytes=9_000), at=calls("GET").first())
    s3_server.faults.add(Drop(after_bytes=5_000), at=calls("GET").nth(2))
    assert drain(ResumingStream(store, "k", sleep=lambda _: None)) == DATA
    gets = s3_server.requests("GET")
    assert [(get.range, get.if_match) for get in gets] == [
        (None, None),
        ("bytes=9000-", etag),
        ("bytes=14000-", etag),
    ]
    assert (store.metrics.gets, store.metrics.resumed_gets) == (1, 2)
    assert store.metrics.bytes_read == len(DATA)
