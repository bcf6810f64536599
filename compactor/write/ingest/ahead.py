"""Reads a file ahead in a thread, in parallel with the caller or, on a shared core, while the caller
waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from compactor.files.source import BatchesOf, FileBatches
from lsm_fragment.threads import ThreadPool, Work


def _nothing() -> None: ...


class BatchesAhead(BatchesOf):
    """An open file that a thread reads ahead; iterable once like any other."""

    def __init__(self, file: FileBatches, pool: ThreadPool, *, is_free: bool) -> None:
        """Begins to read the first batch.

        is_free: whether the thread has its own core. Otherwise the caller reads all further batches.
        """
        super().__init__(file)
        self.is_checked = file.is_checked
        self._pool = pool
        self._is_free = is_free
        self._is_read = False
        self.on_end: Callable[[], None] = _nothing
        """Called once after the last batch: at once if the thread has its own core, else before the caller
        waits, unless the file is closed before."""
        self._rest = iter(file)
        self._next = self._begin()

    def close(self) -> None:
        self.on_end = _nothing
        self._next.drop()
        super().close()

    def before_waiting(self) -> None:
        if self._is_read:
            on_end, self.on_end = self.on_end, _nothing
            on_end()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._pool.wait(self._next)) is not None:
            if self._is_free:
                self._next = self._begin()
            yield batch
            del batch
            if not self._is_free:
                yield from self._rest
                break
        self._is_read = True
        if self._is_free:
            self.before_waiting()

    def _begin(self) -> Work[pa.RecordBatch | None]:
        return self._pool.begin(partial(next, self._rest, None))
