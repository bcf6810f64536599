"""Reads a file ahead: a thread reads the next batch while the caller works on the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial

import pyarrow as pa

from compactor.files.source import BatchesOf, FileBatches
from format.crew import Crew


def _nothing() -> None: ...


class BatchesAhead(BatchesOf):
    """An open file, iterable once like any other, that is read by a thread."""

    def __init__(self, file: FileBatches, crew: Crew) -> None:
        """Begins to read the first batch."""
        super().__init__(file)
        self.is_checked = file.is_checked
        self._crew = crew
        self.on_end: Callable[[], None] = _nothing
        """Called when the file has been read to its end, before the iteration ends."""
        self._rest = iter(file)
        self._next = self._begin()

    def close(self) -> None:
        if not self._next.cancel():
            wait([self._next])
        super().close()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._next.result()) is not None:
            self._next = self._begin()
            yield batch
            del batch
        self.on_end()

    def _begin(self) -> Future[pa.RecordBatch | None]:
        return self._crew.begin(partial(next, self._rest, None))
