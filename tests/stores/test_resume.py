"""A dropped connection is continued where it broke, on the same object, and counted apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.errors import ObjectChangedError, StoreUnreachableError
from compactor.stores.local import LocalStore
from compactor.stores.metered import MeteredStore, StoreMetrics
from compactor.stores.resume import ResumingStream

DATA = bytes(range(250)) * 100


class FlakyStream:
    """Breaks after so many bytes."""

    def __init__(self, stream, bytes_left: int) -> None:
        self._stream = stream
        self._left = bytes_left
        self.size_bytes, self.etag = stream.size_bytes, stream.etag

    def read(self, max_bytes: int) -> bytes:
        if self._left <= 0:
            raise StoreUnreachableError("reset by peer")
        data: bytes = self._stream.read(min(max_bytes, self._left))
        self._left -= len(data)
        return data

    def close(self) -> None:
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
