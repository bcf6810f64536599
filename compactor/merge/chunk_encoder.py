"""Encodes and compresses chunks in a thread of their own, while the merging thread gathers the next.

At most one chunk is ahead, and only while memory is not short. Encoding depends only on the rows, and the
merging thread writes chunks in the order in which they came, so the bytes are the same without the thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import pyarrow as pa

from compactor.resources.budget import MemoryBudget
from compactor.resources.merge_plan import GATHER_ROW_BYTES
from compactor.resources.stopwatch import Stopwatch
from format.blocks import Chunk, make_chunk

STAGE: Final = "encode"
_SMALL_BYTES: Final = 64 << 10
"""The most bytes of a chunk for which the hand-over takes longer than it saves."""
_COPIES: Final = 3
"""How often a chunk is in memory while it is encoded: as gathered, encoded and compressed."""

_Pending = tuple[Future[Chunk], Callable[[Chunk], None], int]
"""The chunk that is being encoded, what to do with it, and the bytes charged."""


class ChunkEncoder:
    """An encoder of chunks, in order. Use it from one thread, and `close` it."""

    def __init__(
        self, budget: MemoryBudget, watch: Stopwatch, level: int, *, in_thread: bool | None
    ) -> None:
        """in_thread: whether to use a thread; None to use one if a core may be idle."""
        self._budget = budget
        self._watch = watch
        self._level = level
        self._in_thread = has_idle_core() if in_thread is None else in_thread
        self._pool: ThreadPoolExecutor | None = None
        self._pending: _Pending | None = None
        self._actions: list[Callable[[], None]] = []
        self._is_writing = False
        self.wait_seconds = 0.0
        """Seconds that the merging thread has waited for the encoding thread."""
        budget.finish_first(self.flush)

    def put(
        self, array: pa.Array, write: Callable[[Chunk], None], *, is_decided: bool = False
    ) -> None:
        """Encodes the array and hands the chunk to `write`, now or before anything that comes later."""
        size = _COPIES * array.nbytes + GATHER_ROW_BYTES * len(array)
        if self._in_thread and array.nbytes > _SMALL_BYTES and self._budget.has_room(size):
            self._wait()
            self._budget.charge(STAGE, size)
            # The next chunk is begun before this one is written, so that the thread never waits for writing.
            done, actions = self._pending, self._actions
            self._pending, self._actions = (self._submit(array, is_decided), write, size), []
            self._write(done, actions)
            return
        self.flush()
        with self._budget.holding(STAGE, 2 * array.nbytes):
            write(self.encode(array, is_decided=is_decided))

    def encode(self, array: pa.Array, *, is_decided: bool = False) -> Chunk:
        """Encodes a chunk at once, in the calling thread."""
        with self._watch.on(STAGE):
            return make_chunk(array, level=self._level, is_decided=is_decided)

    def then(self, action: Callable[[], None]) -> None:
        """Runs an action after everything that was put before."""
        if self._pending is None and not self._is_writing:
            action()
        else:
            self._actions.append(action)

    def flush(self) -> None:
        """Waits until everything that was put is written."""
        if self._is_writing:
            return
        self._wait()
        done, actions = self._pending, self._actions
        self._pending, self._actions = None, []
        self._write(done, actions)

    def close(self) -> None:
        """Drops what was not written."""
        if self._pending is not None:
            future, _, size = self._pending
            self._pending = None
            if not future.cancel():
                future.exception()
            self._budget.discharge(STAGE, size)
        self._actions = []
        if self._pool is not None:
            self._pool.shutdown()

    def _submit(self, array: pa.Array, is_decided: bool) -> Future[Chunk]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "encode")
        return self._pool.submit(make_chunk, array, level=self._level, is_decided=is_decided)

    def _wait(self) -> None:
        """Waits for the thread; then charges only the chunk as it is written."""
        if self._pending is None:
            return
        future, write, size = self._pending
        started = time.perf_counter()
        with self._watch.on(STAGE):
            error = future.exception()
        self.wait_seconds += time.perf_counter() - started
        if error is None:
            left = min(size, len(future.result().stored))
            self._budget.discharge(STAGE, size - left)
            self._pending = future, write, left

    def _write(self, done: _Pending | None, actions: list[Callable[[], None]]) -> None:
        self._is_writing = True
        try:
            if done is not None:
                future, write, size = done
                try:
                    write(future.result())
                finally:
                    self._budget.discharge(STAGE, size)
            for action in actions:
                action()
        finally:
            self._is_writing = False


def has_idle_core() -> bool:
    """Returns whether this process may use more than one core."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) > 1
    return (os.cpu_count() or 1) > 1
