"""Fetching ahead of a consumer: a bounded window in memory, and local disk behind it.

One thread an input reads its stream into the window and stops while the window is full, or memory is
short: that is the back-pressure towards the store, and what overlaps fetching with other work. Servers
drop connections that stay idle, so a pause does not last for ever: after a time limit what comes is put
on local disk instead, and the consumer reads it from there.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk, Region
from compactor.resources.errors import LocalDiskError

_CLOSE_SECONDS: Final = 5.0
_LOOK_AGAIN_SECONDS: Final = 0.25
"""How often a thread that waits for memory, which nobody announces, looks again."""
FETCH_STAGE: Final = "fetch"


class ClosableSource(Protocol):
    """Bytes of one GET."""

    def read(self, max_bytes: int, /) -> bytes: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How far ahead one input is fetched."""

    window_bytes: int
    """Held in memory at most; at least one piece."""
    piece_bytes: int
    """Read from the connection at a time."""
    spool_after_seconds: float
    """A pause may last so long, then the input goes on to local disk."""
    keeps_all: bool = False
    """Whether all bytes go to local disk as well, to be read a second time without a second GET."""


class _Admission(Enum):
    MEMORY = auto()
    DISK = auto()
    CLOSED = auto()


class FetchedSource:
    """A byte source read by one thread and filled by another.

    Of the object's bytes, those from `_read_at` to `_window_end` are in the window, those from there to
    `_fetched` on disk. What opening and reading the connection raise comes out of `read`.
    """

    def __init__(
        self,
        open_source: Callable[[], ClosableSource],
        settings: FetchSettings,
        budget: MemoryBudget,
        disk: LocalDisk,
        size_bytes: int,
    ) -> None:
        """open_source: called once, in the fetching thread, so that many inputs connect at a time.

        size_bytes: of the object, as far as one knows; more than that is not put on disk.
        """
        self._open_source = open_source
        self._settings = settings
        self._budget = budget
        self._disk = disk
        self._region: Region | None = disk.allocate(size_bytes) if size_bytes > 0 else None
        self._keeps_all = settings.keeps_all and self._region is not None
        self._window: deque[bytes] = deque()
        self._read_at = self._window_end = self._fetched = 0
        self._charged = 0
        self._credit = 0
        self._ended = self._closed = self._complete = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self.wait_seconds = 0.0
        """Time `read` spent waiting for the store."""
        self.spooled_bytes = 0
        """Put on disk because of a long pause."""
        self._thread = threading.Thread(target=self._fetch, name="fetch", daemon=True)
        self._thread.start()

    def read(self, max_bytes: int, /) -> bytes:
        """Up to `max_bytes` bytes, waiting for at least one; b"" at the end."""
        with self._changed:
            if not (self._window or self._gap or self._ended):
                self._wait_for_bytes()
            if self._window:
                return self._take(max_bytes)
            gap = self._gap
            if not gap:
                if self._error is not None:
                    raise self._error
                return b""
        assert self._region is not None
        size = min(max_bytes, gap, self._settings.piece_bytes)
        data = self._disk.read(self._region, self._read_at, size)
        with self._changed:
            self._read_at = self._window_end = self._read_at + size
            self._changed.notify_all()
        return data

    def replay(self) -> DiskSource | None:
        """The whole object from disk, if all of it was kept; close this source first."""
        if not (self._keeps_all and self._complete):
            return None
        assert self._region is not None
        return DiskSource(self._disk, self._region, self._fetched, self._settings.piece_bytes)

    def close(self, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Stops fetching and releases the connection. Idempotent; waits for a stuck read only a while."""
        self.stop()
        self._thread.join(timeout_seconds)

    def stop(self) -> None:
        """Begins to close: nothing more is fetched, and nothing held."""
        with self._changed:
            self._closed = True
            self._window.clear()
            self._window_end = self._read_at = self._fetched
            self._budget.discharge(FETCH_STAGE, self._charged)
            self._charged = self._credit = 0
            self._changed.notify_all()

    # --- the consumer's side ---

    @property
    def _gap(self) -> int:
        """Bytes fetched and not in the window: they are on disk, after it."""
        return self._fetched - self._window_end

    def _wait_for_bytes(self) -> None:
        started = time.perf_counter()
        if not self._credit:
            # This thread alone can spill. With it waiting, nothing else would make room for the fetcher.
            self._budget.charge(FETCH_STAGE, self._settings.piece_bytes)
            self._charged += self._settings.piece_bytes
            self._credit = self._settings.piece_bytes
            self._changed.notify_all()
        self._changed.wait_for(lambda: self._window or self._gap or self._ended)
        self.wait_seconds += time.perf_counter() - started

    def _take(self, max_bytes: int) -> bytes:
        piece = self._window.popleft()
        if len(piece) > max_bytes:
            self._window.appendleft(piece[max_bytes:])
            piece = piece[:max_bytes]
        self._read_at += len(piece)
        self._give_back(len(piece))
        self._changed.notify_all()
        return piece

    def _give_back(self, size: int) -> None:
        self._charged -= size
        self._budget.discharge(FETCH_STAGE, size)

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
        except BaseException as error:  # noqa: BLE001 - handed to the reading thread
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _admit(self) -> _Admission:
        """Waits for room for one more piece, which is charged then; says where the piece is to go."""
        deadline = time.monotonic() + self._settings.spool_after_seconds
        with self._changed:
            while not self._closed:
                if self._gap:
                    return _Admission.DISK
                if self._has_room():
                    return _Admission.MEMORY
                left = deadline - time.monotonic()
                if left <= 0 and self._region is not None:
                    return _Admission.DISK
                self._changed.wait(min(max(left, 0.01), _LOOK_AGAIN_SECONDS))
            return _Admission.CLOSED

    def _has_room(self) -> bool:
        size = self._settings.piece_bytes
        if self._credit:
            self._credit = 0
            return True
        held = self._window_end - self._read_at
        if held and held + size > self._settings.window_bytes:
            return False
        if not self._budget.try_charge(FETCH_STAGE, size):
            return False
        self._charged += size
        return True

    def _accept(self, piece: bytes, admission: _Admission) -> None:
        spooled = admission is _Admission.DISK
        if piece and (spooled or self._keeps_all):
            on_disk = self._put_on_disk(piece)
            if spooled and not on_disk:
                self._wait_until_read()
                spooled = False
        with self._changed:
            if admission is _Admission.MEMORY:
                self._give_back(min(self._charged, self._settings.piece_bytes - len(piece)))
            if self._closed:
                return
            if spooled:
                self.spooled_bytes += len(piece)
            elif piece:
                if admission is _Admission.DISK:
                    self._charged += len(piece)
                    self._budget.force(FETCH_STAGE, len(piece))
                self._window.append(piece)
                self._window_end += len(piece)
            self._fetched += len(piece)
            self._changed.notify_all()

    def _put_on_disk(self, piece: bytes) -> bool:
        """Whether it is there. A full disk is no failure: the input is paused instead, as it was before."""
        region = self._region
        if region is not None and self._fetched + len(piece) <= region.size:
            try:
                self._disk.write(region, piece, at=self._fetched)
            except LocalDiskError:
                pass
            else:
                return True
        self._keeps_all = False
        with self._changed:
            if not self._gap:
                self._region = None
        return False

    def _wait_until_read(self) -> None:
        """Until the window is the place where the next piece belongs, and is empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (not self._window and not self._gap))


class DiskSource:
    """Bytes of an object that was kept on local disk."""

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
