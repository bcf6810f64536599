"""Between a connection and its consumer: bounded, ordered, never stuck, and put on disk in long pauses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from compactor.resources import fetch
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.errors import LocalDiskError
from compactor.resources.fetch import ClosableSource, FetchedSource, FetchSettings
from compactor.resources.stage import Buffer, MemoryStage, StagePlan

PIECE = 1 << 10
FOR_EVER = 1e9


class CountedSource:
    """Bytes that tell their place; knows how much was taken."""

    def __init__(self, size: int, fail_at: int | None = None) -> None:
        self.taken = 0
        self.closed = False
        self._size, self._fail_at = size, fail_at

    def read(self, max_bytes: int) -> bytes:
        if self._fail_at is not None and self.taken >= self._fail_at:
            raise ConnectionError("gone")
        data = content(self.taken, min(max_bytes, self._size - self.taken))
        self.taken += len(data)
        return data

    def close(self) -> None:
        self.closed = True


def content(start: int, size: int) -> bytes:
    return bytes((n * 7 + n // 251) % 256 for n in range(start, start + size))


@pytest.fixture
def disk() -> Iterator[LocalDisk]:
    local = LocalDisk()
    yield local
    local.close()


def budget_of(limit_bytes: int = 1 << 30) -> MemoryBudget:
    stages = (
        MemoryStage(name="fetch", holds="", buffer=Buffer.STREAMING, memory_bytes=0),
        MemoryStage(
            name="other", holds="", buffer=Buffer.STREAMING, memory_bytes=0, spill_priority=0
        ),
    )
    return MemoryBudget(StagePlan(limit_bytes, 0, stages))


def fetched(
    source: Callable[[], ClosableSource] | CountedSource,
    disk: LocalDisk,
    *,
    ahead_bytes: int = 4 * PIECE,
    spool_after_seconds: float = FOR_EVER,
    keeps_all: bool = False,
    size_bytes: int = 1 << 40,
    budget: MemoryBudget | None = None,
) -> FetchedSource:
    opened = (lambda: source) if isinstance(source, CountedSource) else source
    settings = FetchSettings(ahead_bytes, PIECE, spool_after_seconds, keeps_all)
    return FetchedSource(opened, settings, budget or budget_of(), disk, size_bytes)


def settled(source: CountedSource) -> int:
    """Bytes taken once the fetching thread rests."""
    last = -1
    while source.taken != last:
        last = source.taken
        time.sleep(0.05)
    return last


def everything(source: ClosableSource, at_once: int = 333) -> bytes:
    pieces = []
    while piece := source.read(at_once):
        assert len(piece) <= at_once
        pieces.append(piece)
    return b"".join(pieces)


def test_no_more_than_the_buffer_is_fetched_ahead(disk: LocalDisk) -> None:
    source = CountedSource(1 << 40)
    budget = budget_of()
    ahead = fetched(source, disk, budget=budget)
    assert settled(source) == budget.held_bytes("fetch") == 4 * PIECE
    consumed = 0
    for _ in range(10):
        consumed += len(ahead.read(700))
        assert settled(source) <= consumed + 4 * PIECE
    ahead.close()
    assert source.closed
    assert budget.used_bytes == 0


@pytest.mark.parametrize("keeps_all", [False, True])
@pytest.mark.parametrize("spool_after_seconds", [0.0, FOR_EVER])
def test_all_bytes_arrive_in_order_and_then_the_end(
    disk: LocalDisk, spool_after_seconds: float, keeps_all: bool
) -> None:
    size = 300 * PIECE + 17
    ahead = fetched(CountedSource(size), disk, ahead_bytes=1, size_bytes=size,
                    spool_after_seconds=spool_after_seconds, keeps_all=keeps_all)  # fmt: skip
    assert everything(ahead) == content(0, size)
    assert ahead.read(1) == b""
    ahead.close()


def test_an_error_comes_out_after_the_bytes_before_it(disk: LocalDisk) -> None:
    ahead = fetched(CountedSource(1 << 30, fail_at=2 * PIECE), disk)
    received = 0
    with pytest.raises(ConnectionError, match="gone"):
        while True:
            received += len(ahead.read(PIECE))
    assert received == 2 * PIECE
    ahead.close()


def test_a_source_that_does_not_open_raises_when_read(disk: LocalDisk) -> None:
    def refuse() -> CountedSource:
        raise PermissionError("no")

    ahead = fetched(refuse, disk)
    with pytest.raises(PermissionError):
        ahead.read(1)
    ahead.close()


def test_closing_a_full_buffer_does_not_hang(disk: LocalDisk) -> None:
    before = set(threading.enumerate())
    sources = [fetched(CountedSource(1 << 40), disk) for _ in range(50)]
    for source in sources:
        source.close()
        source.close()
    assert set(threading.enumerate()) <= before


def test_a_long_pause_puts_the_rest_on_disk_and_memory_stays_bounded(disk: LocalDisk) -> None:
    size = 500 * PIECE
    source = CountedSource(size)
    budget = budget_of()
    ahead = fetched(source, disk, spool_after_seconds=0.05, size_bytes=size, budget=budget)
    deadline = time.monotonic() + 20
    # What was taken last is on its way to the disk for a moment.
    while disk.written_bytes < size - 4 * PIECE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert source.taken == size, "the connection was left waiting"
    assert budget.peaks["fetch"] <= 5 * PIECE
    assert ahead.spooled_bytes == disk.written_bytes == size - 4 * PIECE
    assert everything(ahead) == content(0, size)
    ahead.close()
    assert budget.used_bytes == 0


def test_a_consumer_that_caught_up_with_the_disk_goes_on_in_memory(disk: LocalDisk) -> None:
    size = 40 * PIECE
    gate = threading.Semaphore(12)

    class Gated(CountedSource):
        def read(self, max_bytes: int) -> bytes:
            gate.acquire()
            return super().read(max_bytes)

    ahead = fetched(Gated(size), disk, spool_after_seconds=0.05, size_bytes=size)
    deadline = time.monotonic() + 20
    while ahead.spooled_bytes < 8 * PIECE and time.monotonic() < deadline:
        time.sleep(0.01)
    first = b"".join(ahead.read(PIECE) for _ in range(12))
    spooled = ahead.spooled_bytes
    for _ in range(100):
        gate.release()
    assert first + everything(ahead, PIECE) == content(0, size)
    assert ahead.spooled_bytes <= spooled + 30 * PIECE
    ahead.close()


def test_a_kept_input_is_read_again_without_opening_it_again(disk: LocalDisk) -> None:
    size, opened = 50 * PIECE + 1, []

    def open_source() -> CountedSource:
        opened.append(1)
        return CountedSource(size)

    ahead = fetched(open_source, disk, keeps_all=True, size_bytes=size)
    everything(ahead)
    ahead.close()
    again = ahead.replay()
    assert again is not None
    assert everything(again) == content(0, size)
    assert opened == [1]


def test_an_input_that_was_not_read_to_its_end_is_not_replayed(disk: LocalDisk) -> None:
    ahead = fetched(CountedSource(1 << 30), disk, keeps_all=True)
    ahead.read(10)
    ahead.close()
    assert ahead.replay() is None


@pytest.mark.parametrize("keeps_all", [False, True])
def test_a_full_disk_only_means_that_the_connection_waits(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, keeps_all: bool
) -> None:
    written = []

    def full(*_: object, **__: object) -> None:
        written.append(1)
        raise LocalDiskError("no room")

    monkeypatch.setattr(disk, "write", full)
    size = 100 * PIECE
    ahead = fetched(CountedSource(size), disk, spool_after_seconds=0.0, keeps_all=keeps_all,
                    size_bytes=size)  # fmt: skip
    assert everything(ahead) == content(0, size)
    ahead.close()
    assert written
    assert ahead.replay() is None


def test_a_disk_that_fills_up_halfway_loses_nothing(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, calls = disk.write, []

    def sometimes(*arguments: object, **named: object) -> None:
        calls.append(1)
        if 5 <= len(calls) < 20:
            raise LocalDiskError("no room")
        honest(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(disk, "write", sometimes)
    size = 100 * PIECE
    ahead = fetched(CountedSource(size), disk, spool_after_seconds=0.0, size_bytes=size)
    time.sleep(0.1)
    assert everything(ahead) == content(0, size)
    ahead.close()


def test_an_object_larger_than_the_log_says_is_not_written_past_its_place(disk: LocalDisk) -> None:
    size = 20 * PIECE
    ahead = fetched(CountedSource(size), disk, spool_after_seconds=0.0, keeps_all=True,
                    size_bytes=3 * PIECE)  # fmt: skip
    assert everything(ahead) == content(0, size)
    ahead.close()
    assert disk.written_bytes <= 3 * PIECE
    assert ahead.replay() is None


def test_short_memory_pauses_fetching_but_never_whom_the_consumer_waits_for(
    disk: LocalDisk,
) -> None:
    budget = budget_of(100 * PIECE)
    budget.charge("other", 90 * PIECE)
    source = CountedSource(50 * PIECE)
    ahead = fetched(source, disk, budget=budget)
    time.sleep(0.1)
    assert source.taken == 0
    assert everything(ahead) == content(0, 50 * PIECE)
    assert budget.peaks["fetch"] <= 2 * PIECE
    ahead.close()
    assert budget.held_bytes("fetch") == 0


def test_a_full_buffer_goes_on_when_it_is_read_and_nobody_looks_again(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_LOOK_AGAIN_SECONDS", FOR_EVER)
    source = CountedSource(40 * PIECE)
    stream = fetched(source, disk)
    assert settled(source) < 40 * PIECE
    data = b""
    while piece := stream.read(300):
        data += piece
    stream.close()
    assert data == content(0, 40 * PIECE)
