"""Fetches inputs ahead of their consumer, into a bounded read-ahead buffer with local disk behind it.

One thread for each input reads its stream into the buffer and pauses while the buffer is full or memory is
short: that applies back-pressure to the store, and overlaps fetching with other work. Servers drop idle
connections, so after a time limit a paused stream goes on to local disk, from where the consumer reads it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Protocol

from msgspec import Struct

from compactor.common.threads import started
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk, Region
from compactor.resources.errors import LocalDiskError
from compactor.resources.merge_stages import FETCH
from compactor.resources.reservation import Reservation

_CLOSE_SECONDS: Final = 5.0
_LOOK_AGAIN_SECONDS: Final = 0.25
"""Check for free memory again after this many seconds, since nothing notifies a waiting thread."""


class ClosableSource(Protocol):
    """The byte stream of one GET."""

    def read(self, max_bytes: int, /) -> bytes: ...

    def close(self) -> None: ...


class FetchSettings(Struct, frozen=True):
    """Limits of fetching one input ahead."""

    ahead_bytes: int
    """Limit of the bytes held in memory; at least one piece is."""
    piece_bytes: int
    """Bytes read from the connection at a time."""
    spool_after_seconds: float
    """Longest pause before the stream goes on to local disk."""
    keeps_all: bool = False
    """Whether all bytes also go to local disk, so that a second read needs no second GET."""


class _Admission(Enum):
    MEMORY = auto()
    DISK = auto()
    CLOSED = auto()


class FetchedSource:
    """A byte source that one thread reads and another fills.

    The object's bytes from `_read_at` to `_ahead_end` are in memory, those from there to `_fetched` on disk.
    The reader has the first piece to itself, which stays reserved until it has read all of it; so reading a
    few bytes takes no lock. `read` raises the errors of opening and reading the connection.
    """

    def __init__(
        self,
        open_source: Callable[[], ClosableSource],
        settings: FetchSettings,
        budget: MemoryBudget,
        disk: LocalDisk,
        size_bytes: int,
    ) -> None:
        """open_source: called once, in the fetching thread, so that inputs connect in parallel.

        size_bytes: expected size of the object; no more than that goes to disk.
        """
        self._open_source = open_source
        self._settings = settings
        self._memory = Reservation(budget, FETCH)
        """That of the first piece, the buffer and the credit; used under `_lock`."""
        self._disk = disk
        self._region: Region | None = disk.allocate(size_bytes) if size_bytes > 0 else None
        self._keeps_all = settings.keeps_all and self._region is not None
        self._first = b""
        self._first_at = 0
        """How many bytes of the first piece were read."""
        self._ahead: deque[bytes] = deque()
        """The pieces after the first."""
        self._read_at = self._ahead_end = self._fetched = 0
        self._credit = 0
        """Bytes that the reader has reserved for the next piece."""
        self._ended = self._closed = self._complete = False
        self._error: BaseException | None = None
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self.wait_seconds = 0.0
        """Time that `read` spent waiting for the store."""
        self.spooled_bytes = 0
        """Bytes that went to disk because of a long pause."""
        self._thread = threading.Thread(target=self._fetch, name="fetch", daemon=True)
        self._is_alone = not started(self._thread)
        """Whether no thread could start, so that `read` fetches."""
        self._source: ClosableSource | None = None
        """What `read` fetches from then."""

    def read(self, max_bytes: int, /) -> bytes:
        """Returns up to `max_bytes` bytes, after waiting for at least one; b"" at the end."""
        start, end = self._first_at, self._first_at + max_bytes
        if end < len(self._first):
            self._first_at = end
            return self._first[start:end]
        if self._first:
            return self._take_rest()
        if self._is_alone:
            return self._read_alone(max_bytes)
        with self._lock:
            if not (self._ahead or self._gap or self._ended):
                self._wait_for_bytes()
            if self._ahead:
                self._first = self._ahead.popleft()
                return self.read(max_bytes)
            gap = self._gap
            if not gap:
                if self._error is not None:
                    raise self._error
                return b""
        assert self._region is not None
        size = min(max_bytes, gap, self._settings.piece_bytes)
        data = self._disk.read(self._region, self._read_at, size)
        with self._lock:
            self._read_at = self._ahead_end = self._read_at + size
            self._changed.notify_all()
        return data

    def replay(self) -> DiskSource | None:
        """Returns the whole object from disk, or None if not all was kept. Close this source first."""
        if not (self._keeps_all and self._complete):
            return None
        assert self._region is not None
        return DiskSource(self._disk, self._region, self._fetched, self._settings.piece_bytes)

    def close(self, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Stops fetching and releases the connection. Idempotent; waits at most `timeout_seconds`."""
        self.stop()
        if not self._is_alone:
            self._thread.join(timeout_seconds)
        elif self._source is not None:
            self._source.close()

    def stop(self) -> None:
        """Begins to close: stops fetching and frees the buffer, without waiting."""
        with self._lock:
            self._closed = True
            self._first, self._first_at = b"", 0
            self._ahead.clear()
            self._ahead_end = self._read_at = self._fetched
            self._memory.free()
            self._credit = 0
            self._changed.notify_all()

    # --- the consumer's side ---

    @property
    def _gap(self) -> int:
        """Number of fetched bytes after the buffer, which are on disk."""
        return self._fetched - self._ahead_end

    def _wait_for_bytes(self) -> None:
        started = time.perf_counter()
        if not self._credit:
            # Only this thread can spill, so it makes room for the fetcher before it waits.
            self._memory.grow(self._settings.piece_bytes)
            self._credit = self._settings.piece_bytes
            self._changed.notify_all()
        self._changed.wait_for(lambda: self._ahead or self._gap or self._ended)
        self.wait_seconds += time.perf_counter() - started

    def _take_rest(self) -> bytes:
        """Takes what is left of the first piece."""
        piece, start = self._first, self._first_at
        self._first, self._first_at = b"", 0
        with self._lock:
            self._read_at += len(piece)
            self._memory.shrink(len(piece))
            self._changed.notify_all()
        return piece[start:]

    def _read_alone(self, max_bytes: int) -> bytes:
        if self._closed:
            return b""
        started_at = time.perf_counter()
        if self._source is None:
            self._source = self._open_source()
        piece = self._source.read(min(max_bytes, self._settings.piece_bytes))
        self.wait_seconds += time.perf_counter() - started_at
        if piece and self._keeps_all:
            self._put_on_disk(piece)
        self._fetched += len(piece)
        self._read_at = self._ahead_end = self._fetched
        self._complete = not piece
        return piece

    # --- the fetching thread's side ---

    def _fetch(self) -> None:
        try:
            source = self._open_source()
            try:
                while (admission := self._admit()) is not _Admission.CLOSED:
                    piece = source.read(self._settings.piece_bytes)
                    self._accept(piece, admission)
                    if not piece:
                        self._complete = True
                        break
            finally:
                source.close()
        except BaseException as error:  # noqa: BLE001 - `read` raises it in its thread.
            self._error = error
        with self._lock:
            self._ended = True
            self._changed.notify_all()

    def _admit(self) -> _Admission:
        """Waits for room for one more piece and reserves it. Returns where the piece goes."""
        deadline = time.monotonic() + self._settings.spool_after_seconds
        with self._lock:
            while not self._closed:
                if self._gap:
                    return _Admission.DISK
                if self._has_room():
                    return _Admission.MEMORY
                left = deadline - time.monotonic()
                if left <= 0 and self._region is not None:
                    return _Admission.DISK
                if self._is_full():
                    pause = threading.TIMEOUT_MAX if self._region is None else left
                else:
                    pause = min(max(left, 0.01), _LOOK_AGAIN_SECONDS)
                self._changed.wait(min(pause, threading.TIMEOUT_MAX))
            return _Admission.CLOSED

    def _has_room(self) -> bool:
        if self._credit:
            self._credit = 0
            return True
        return not self._is_full() and self._memory.try_grow(self._settings.piece_bytes)

    def _is_full(self) -> bool:
        """Returns whether the buffer has no room; its reader notifies once it has."""
        held = self._ahead_end - self._read_at
        return held > 0 and held + self._settings.piece_bytes > self._settings.ahead_bytes

    def _accept(self, piece: bytes, admission: _Admission) -> None:
        spooled = admission is _Admission.DISK
        if piece and (spooled or self._keeps_all):
            on_disk = self._put_on_disk(piece)
            if spooled and not on_disk:
                self._wait_until_read()
                spooled = False
        with self._lock:
            if admission is _Admission.MEMORY:
                unused = self._settings.piece_bytes - len(piece)
                self._memory.shrink(min(self._memory.size, unused))
            if self._closed:
                return
            if spooled:
                self.spooled_bytes += len(piece)
            elif piece:
                if admission is _Admission.DISK:
                    self._memory.grow_beyond(len(piece))
                self._ahead.append(piece)
                self._ahead_end += len(piece)
            self._fetched += len(piece)
            self._changed.notify_all()

    def _put_on_disk(self, piece: bytes) -> bool:
        """Writes a piece to disk; returns whether it did. If the disk is full, the input pauses instead."""
        region = self._region
        if region is not None and self._fetched + len(piece) <= region.size:
            try:
                self._disk.write(region, piece, at=self._fetched)
            except LocalDiskError:
                pass
            else:
                return True
        self._keeps_all = False
        with self._lock:
            if not self._gap:
                self._region = None
        return False

    def _wait_until_read(self) -> None:
        """Waits until buffer and disk are read, so that the next piece belongs in the buffer."""
        with self._lock:
            self._changed.wait_for(lambda: self._closed or self._read_at == self._fetched)


class DiskSource:
    """The byte stream of an object that was kept on local disk."""

    def __init__(self, disk: LocalDisk, region: Region, size_bytes: int, piece_bytes: int) -> None:
        self._disk = disk
        self._region = region
        self._left = size_bytes
        self._at = 0
        self._piece_bytes = piece_bytes

    def read(self, max_bytes: int, /) -> bytes:
        size = min(max_bytes, self._left, self._piece_bytes)
        data = self._disk.read(self._region, self._at, size)
        self._at += size
        self._left -= size
        return data

    def close(self) -> None: ...
