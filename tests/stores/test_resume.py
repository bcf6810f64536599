"""A dropped connection is continued where it broke, on the same object, and counted apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.errors import ObjectChangedError, StoreUnreachableError
from compactor.stores.local import LocalStore
from compactor.stores.metered import MeteredStore, StoreMetrics
from compactor.stores.resume import ResumingStream
from compactor.stores.s3 import S3Store
from tests.support.s3_server import HangUp, S3Server

DATA = bytes(range(250)) * 100


class FlakyStream:
    """Breaks after so many bytes."""

    def __init__(self, stream, bytes_left: int) -> None:
        self._stream = stream
        self._left = bytes_left
        self.closed = False
        self.size_bytes, self.etag = stream.size_bytes, stream.etag

    def read(self, max_bytes: int) -> bytes:
        if self._left <= 0:
            raise StoreUnreachableError("reset by peer")
        data: bytes = self._stream.read(min(max_bytes, self._left))
        self._left -= len(data)
        return data

    def close(self) -> None:
        self.closed = True
        self._stream.close()


class FlakyStore(LocalStore):
    """Every connection gives `bytes_each` bytes and breaks."""

    bytes_each = 7_000

    def open_stream(self, key, *, start=0, if_match=None):
        return FlakyStream(
            super().open_stream(key, start=start, if_match=if_match), self.bytes_each
        )


@pytest.fixture
def store(tmp_path: Path) -> MeteredStore:
    flaky = FlakyStore(tmp_path)
    flaky.create("k", DATA)
    return MeteredStore(flaky, StoreMetrics())


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


def test_an_object_replaced_meanwhile_is_an_error(store: MeteredStore, tmp_path: Path) -> None:
    stream = ResumingStream(store, "k", sleep=lambda _: None)
    for _ in range(7):
        stream.read(1_000)
    with LocalStore(tmp_path).start_upload("k") as upload:
        upload.write(DATA[::-1])
        upload.complete()
    with pytest.raises(ObjectChangedError):
        stream.read(1_000)


def test_a_store_that_stays_away_is_given_up_on_with_growing_pauses(tmp_path: Path) -> None:
    flaky = FlakyStore(tmp_path)
    flaky.bytes_each = 0
    flaky.create("k", DATA)
    pauses: list[float] = []
    stream = ResumingStream(flaky, "k", max_resumes=4, sleep=pauses.append)
    with pytest.raises(StoreUnreachableError, match="reset by peer"):
        stream.read(10)
    assert len(pauses) == 4
    assert all(pause <= 0.1 * 2**n for n, pause in enumerate(pauses))


def test_a_store_that_ignores_the_pin_cannot_mix_two_objects(tmp_path: Path) -> None:
    class UnpinnedStore(FlakyStore):
        def open_stream(self, key, *, start=0, if_match=None):
            return super().open_stream(key, start=start)

    store = UnpinnedStore(tmp_path)
    store.create("k", DATA)
    stream = ResumingStream(store, "k", sleep=lambda _: None)
    assert stream.read(7_000) == DATA[:7_000]
    with store.start_upload("k") as upload:
        upload.write(DATA[::-1])
        upload.complete()
    with pytest.raises(ObjectChangedError):
        stream.read(1_000)


def test_reopening_may_fail_too_and_is_tried_again(tmp_path: Path) -> None:
    class RestartingStore(FlakyStore):
        opened = 0

        def open_stream(self, key, *, start=0, if_match=None):
            self.opened += 1
            if self.opened in (2, 3):
                raise StoreUnreachableError("restarting")
            return super().open_stream(key, start=start, if_match=if_match)

    store = RestartingStore(tmp_path)
    store.create("k", DATA)
    pauses: list[float] = []
    assert drain(ResumingStream(store, "k", sleep=pauses.append)) == DATA
    assert (store.opened, len(pauses)) == (6, 5)


def test_progress_starts_the_count_of_resumes_afresh(tmp_path: Path) -> None:
    flaky = FlakyStore(tmp_path)
    flaky.bytes_each = 1_000
    flaky.create("k", DATA)
    stream = ResumingStream(flaky, "k", max_resumes=1, sleep=lambda _: None)
    assert drain(stream) == DATA


def test_broken_connections_are_let_go(tmp_path: Path) -> None:
    opened = []

    class WatchedStore(FlakyStore):
        def open_stream(self, key, *, start=0, if_match=None):
            opened.append(super().open_stream(key, start=start, if_match=if_match))
            return opened[-1]

    store = WatchedStore(tmp_path)
    store.create("k", DATA)
    stream = ResumingStream(store, "k", sleep=lambda _: None)
    drain(stream)
    assert [connection.closed for connection in opened] == [True, True, True, False]
    stream.close()
    assert opened[-1].closed


def test_a_stream_that_broke_may_be_closed_twice(tmp_path: Path) -> None:
    flaky = FlakyStore(tmp_path)
    flaky.bytes_each = 0
    flaky.create("k", DATA)
    stream = ResumingStream(flaky, "k", max_resumes=0, sleep=lambda _: None)
    with pytest.raises(StoreUnreachableError):
        stream.read(1)
    stream.close()
    stream.close()


def test_on_s3_a_broken_body_is_continued_by_a_pinned_range(
    s3_server: S3Server, s3_bucket: str
) -> None:
    store = MeteredStore(S3Store(s3_bucket), StoreMetrics())
    etag = store.create("k", DATA).etag
    cuts = iter([HangUp(after_body_bytes=9_000), HangUp(after_body_bytes=5_000)])
    s3_server.intercept = lambda request: next(cuts, None) if request.method == "GET" else None
    assert drain(ResumingStream(store, "k", sleep=lambda _: None)) == DATA
    gets = s3_server.requests("GET")
    assert [(get.range, get.if_match) for get in gets] == [
        (None, None),
        ("bytes=9000-", etag),
        ("bytes=14000-", etag),
    ]
    assert (store.metrics.gets, store.metrics.resumed_gets) == (1, 2)
    assert store.metrics.bytes_read == len(DATA)
