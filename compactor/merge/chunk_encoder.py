"""Chunks are encoded and compressed in a thread of their own while the merging one gathers the next.

One is ahead at a time, and only while memory is not short. Encoding depends on the rows alone, and chunks
are written by the merging thread in the order in which they came: the bytes are the same with and without.
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
"""Chunks up to which handing over takes longer than it saves."""
_COPIES: Final = 3
"""Of a chunk while it is encoded: as gathered, encoded and compressed."""

_Pending = tuple[Future[Chunk], Callable[[Chunk], None], int]
"""What is being encoded, what is to be done with it, and bytes charged."""


class ChunkEncoder:
    """Makes chunks, in order. For one thread; `close` it."""

    def __init__(
        self, budget: MemoryBudget, watch: Stopwatch, level: int, *, in_thread: bool | None
    ) -> None:
        """in_thread: None for where a core may be idle."""
        self._budget = budget
        self._watch = watch
        self._level = level
        self._in_thread = has_idle_core() if in_thread is None else in_thread
        self._pool: ThreadPoolExecutor | None = None
        self._pending: _Pending | None = None
        self._actions: list[Callable[[], None]] = []
        self._is_writing = False
        self.wait_seconds = 0.0
        """Of this thread, for the other."""
        budget.finish_first(self.flush)

    def put(
        self, array: pa.Array, write: Callable[[Chunk], None], *, is_decided: bool = False
    ) -> None:
        """Encodes the array and hands the chunk to `write`, now or before anything that comes later."""
        size = _COPIES * array.nbytes + GATHER_ROW_BYTES * len(array)
        if self._in_thread and array.nbytes > _SMALL_BYTES and self._budget.has_room(size):
            self._wait()
            self._budget.charge(STAGE, size)
            # The next one is begun before this one is written, so that the thread never waits for that.
            done, actions = self._pending, self._actions
            self._pending, self._actions = (self._submit(array, is_decided), write, size), []
            self._write(done, actions)
            return
        self.flush()
        with self._budget.holding(STAGE, 2 * array.nbytes):
            write(self.encode(array, is_decided=is_decided))

    def encode(self, array: pa.Array, *, is_decided: bool = False) -> Chunk:
        """At once, in this thread."""
        with self._watch.on(STAGE):
            return make_chunk(array, level=self._level, is_decided=is_decided)

    def then(self, action: Callable[[], None]) -> None:
        """Does something that must come after what was put."""
        if self._pending is None and not self._is_writing:
            action()
        else:
            self._actions.append(action)

    def flush(self) -> None:
        """Until everything is written that was put."""
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
        """Until the thread is done; what is left then is the chunk as it is written."""
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
    """Whether this process may use more than one core."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) > 1
    return (os.cpu_count() or 1) > 1
