"""The window between a connection and the merge: bounded, ordered, and never stuck."""

from __future__ import annotations

import threading
import time

import pytest

from compactor.merge.prefetch import PrefetchedSource

PIECE = 256 << 10


class CountedSource:
    """Endless or finite zeros; knows how much was taken."""

    def __init__(self, size: int, fail_at: int | None = None) -> None:
        self.taken = 0
        self.closed = False
        self._size, self._fail_at = size, fail_at

    def read(self, max_bytes: int) -> bytes:
        if self._fail_at is not None and self.taken >= self._fail_at:
            raise ConnectionError("gone")
        data = bytes(min(max_bytes, self._size - self.taken))
        self.taken += len(data)
        return data

    def close(self) -> None:
        self.closed = True


def settled(source: CountedSource) -> int:
    """Bytes taken once the fetching thread rests."""
    last = -1
    while source.taken != last:
        last = source.taken
        time.sleep(0.05)
    return last


def test_no_more_than_the_window_is_fetched_ahead() -> None:
    source = CountedSource(1 << 40)
    prefetched = PrefetchedSource(lambda: source, 4 * PIECE)
    assert settled(source) == 4 * PIECE
    consumed = 0
    for _ in range(10):
        consumed += len(prefetched.read(100_000))
        assert settled(source) <= consumed + 4 * PIECE
    prefetched.close()
    assert source.closed


def test_all_bytes_arrive_in_order_and_then_the_end() -> None:
    data = bytes(range(256)) * 5_000

    class Source(CountedSource):
        def read(self, max_bytes: int) -> bytes:
            start = self.taken
            return data[start : start + len(super().read(min(max_bytes, 70_001)))]

    prefetched = PrefetchedSource(lambda: Source(len(data)), 1)
    pieces = []
    while piece := prefetched.read(33_333):
        pieces.append(piece)
    assert b"".join(pieces) == data
    assert prefetched.read(1) == b""
    prefetched.close()


def test_an_error_comes_out_after_the_bytes_before_it() -> None:
    prefetched = PrefetchedSource(lambda: CountedSource(1 << 30, fail_at=2 * PIECE), 8 * PIECE)
    received = 0
    with pytest.raises(ConnectionError, match="gone"):
        while True:
            received += len(prefetched.read(PIECE))
    assert received == 2 * PIECE
    prefetched.close()


def test_a_source_that_does_not_open_raises_when_read() -> None:
    def refuse() -> CountedSource:
        raise PermissionError("no")

    prefetched = PrefetchedSource(refuse, PIECE)
    with pytest.raises(PermissionError):
        prefetched.read(1)
    prefetched.close()


def test_closing_a_full_window_does_not_hang() -> None:
    before = threading.active_count()
    sources = [PrefetchedSource(lambda: CountedSource(1 << 40), PIECE) for _ in range(50)]
    for source in sources:
        source.close()
        source.close()
    assert threading.active_count() == before
