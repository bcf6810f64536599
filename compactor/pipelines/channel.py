"""A bounded queue of batches between threads; a full channel blocks its producer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from compactor.pipelines.provenance import boundary_of
from compactor.resources.budget import MemoryBudget
from compactor.resources.reservation import Reservation
from lsm_fragment.arrays.batches import concat_rows

_JOINED_BYTES: Final = 256 << 10


class Stopped(Exception):  # noqa: N818 - a signal, not an error
    """Signals that the consumer is gone."""


class Channel:
    """A bounded queue of batches between two threads. Batches are sliced to fit; boundaries of documents stay
    between them."""

    def __init__(
        self,
        records: int,
        budget: MemoryBudget,
        stage: str,
        changed: threading.Condition | None = None,
    ) -> None:
        """records: maximum records in the queue. changed: condition shared by channels that one thread
        polls."""
        self._room = records
        self._budget = budget
        self._memory = Reservation(budget, stage)
        """That of the batches that wait; used under `changed`."""
        self._changed = changed or threading.Condition()
        self._batches: deque[pa.RecordBatch] = deque()
        self._is_closed = self._is_stopped = False
        self._error: BaseException | None = None
        self.records = 0
        """Number of queued records."""
        self.peak_records = 0

    def put(self, batch: pa.RecordBatch) -> None:
        """Appends a batch, waiting for room. Raises `Stopped` once the consumer is gone."""
        if boundary_of(batch) is not None:
            with self._changed:
                self._batches.append(batch)
                self._changed.notify_all()
        while batch.num_rows:
            with self._changed:
                self._changed.wait_for(self._has_room)
                if self._is_stopped:
                    raise Stopped
                piece = batch.slice(0, self._room - self.records)
                self._memory.grow_beyond(piece.nbytes)
                self._batches.append(piece)
                self.records += piece.num_rows
                self.peak_records = max(self.peak_records, self.records)
                self._changed.notify_all()
            batch = batch.slice(piece.num_rows)

    def _has_room(self) -> bool:
        """Returns whether the queue accepts records; every batch after the first must also fit into the
        memory limit."""
        if self._is_stopped or not self._batches:
            return True
        return self.records < self._room and self._budget.has_room(self._batches[-1].nbytes)

    def close(self, error: BaseException | None = None) -> None:
        """Ends the input. With an error, the consumer raises it after the last batch."""
        with self._changed:
            self._is_closed, self._error = True, self._error or error
            self._changed.notify_all()

    def stop(self) -> None:
        """Drops all batches and makes the producer raise `Stopped`."""
        with self._changed:
            self._is_stopped = True
            self._batches.clear()
            self._memory.free()
            self.records = 0
            self._changed.notify_all()

    def poll(self) -> pa.RecordBatch | None:
        """Returns the first queued batches, small ones joined, a boundary, or None. Raises the producer's
        error."""
        with self._changed:
            if not self._batches:
                if self._error is not None:
                    raise self._error
                return None
            batches: list[pa.RecordBatch] = []
            size = 0
            while self._batches and (not batches or self._may_join(batches[0], size)):
                batches.append(self._batches.popleft())
                size += batches[-1].nbytes
            self.records -= sum(batch.num_rows for batch in batches)
            self._memory.shrink(size)
            self._changed.notify_all()
        return concat_rows(batches) if len(batches) > 1 else batches[0]

    def _may_join(self, first: pa.RecordBatch, size: int) -> bool:
        """Returns whether the next batch may be joined to others of `size` bytes; boundaries stay alone."""
        following = self._batches[0]
        has_rows = bool(first.num_rows and following.num_rows)
        return has_rows and size + int(following.nbytes) <= _JOINED_BYTES

    def take(self) -> pa.RecordBatch | None:
        """Waits for the next batch and returns it; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._batches or self._is_closed)
        return self.poll()

    @property
    def is_done(self) -> bool:
        """Whether the channel is empty and closed without error."""
        with self._changed:
            return self._is_closed and not self._batches and self._error is None

    @property
    def has_something(self) -> bool:
        """Whether `poll` would return a batch, or the channel has ended."""
        return bool(self._batches) or self._is_closed


class Unthreaded(Channel):
    """A channel without a producer thread, for when none could start: `take` computes the batch."""

    def __init__(self, batches: Iterator[pa.RecordBatch], budget: MemoryBudget, stage: str) -> None:
        super().__init__(1, budget, stage)
        self._made = (b for b in batches if b.num_rows or boundary_of(b) is not None)

    def poll(self) -> pa.RecordBatch | None:
        batch = None if self._is_stopped else next(self._made, None)
        self._is_closed = batch is None
        return batch

    def take(self) -> pa.RecordBatch | None:
        return self.poll()

    @property
    def has_something(self) -> bool:
        return True
