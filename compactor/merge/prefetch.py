"""Fetching ahead: a bounded window between a connection and the merge.

One thread an input reads its stream into a window and stops while the window is full. That is the
back-pressure towards the store, and what overlaps fetching with merging.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from format.blocks import ByteSource

_PIECE_BYTES: Final = 256 << 10
_CLOSE_SECONDS: Final = 5.0


class ClosableSource(ByteSource, Protocol):
    """Bytes of one GET."""

    def close(self) -> None: ...


class PrefetchedSource:
    """A `ByteSource` that holds at most `window_bytes` (at least one piece of 256 KiB) ahead.

    open_source: called once, in the fetching thread, so that many inputs connect at the same time.
    What it raises, and what its `read` raises, comes out of `read` here.
    """

    def __init__(self, open_source: Callable[[], ClosableSource], window_bytes: int) -> None:
        self._open_source = open_source
        self._window_bytes = max(window_bytes, _PIECE_BYTES)
        self._pieces: deque[bytes] = deque()
        self._held_bytes = 0
        self._ended = False
        self._closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self.wait_seconds = 0.0
        """Time `read` spent waiting for the store."""
        self._thread = threading.Thread(target=self._fetch, name="fetch", daemon=True)
        self._thread.start()

    def read(self, max_bytes: int) -> bytes:
        """Up to `max_bytes` bytes, waiting for at least one; b"" at the end."""
        with self._changed:
            if not self._pieces and not self._ended:
                started = time.perf_counter()
                self._changed.wait_for(lambda: self._pieces or self._ended)
                self.wait_seconds += time.perf_counter() - started
            if not self._pieces:
                if self._error is not None:
                    raise self._error
                return b""
            piece = self._pieces.popleft()
            if len(piece) > max_bytes:
                self._pieces.appendleft(piece[max_bytes:])
                piece = piece[:max_bytes]
            self._held_bytes -= len(piece)
            self._changed.notify_all()
            return piece

    def close(self) -> None:
        """Stops fetching and releases the connection. Idempotent; waits for a stuck read only a while."""
        with self._changed:
            self._closed = True
            self._pieces.clear()
            self._held_bytes = 0
            self._changed.notify_all()
        self._thread.join(timeout=_CLOSE_SECONDS)

    def _fetch(self) -> None:
        try:
            source = self._open_source()
            try:
                while self._has_room() and (piece := source.read(_PIECE_BYTES)):
                    self._hold(piece)
            finally:
                source.close()
        except BaseException as error:  # noqa: BLE001 - handed to the reading thread
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _has_room(self) -> bool:
        """Waits for room; False once closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._held_bytes + _PIECE_BYTES <= self._window_bytes
            )
            return not self._closed

    def _hold(self, piece: bytes) -> None:
        with self._changed:
            if not self._closed:
                self._pieces.append(piece)
                self._held_bytes += len(piece)
                self._changed.notify_all()
