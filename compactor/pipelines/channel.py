"""Bounded handoffs between threads, counted in records: a full one blocks who fills it."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

import pyarrow as pa

from compactor.resources.budget import MemoryBudget

_JOINED_BYTES: Final = 256 << 10


class Stopped(Exception):  # noqa: N818 - no error: the other side has gone
    """Nobody takes what is put any more."""


class Channel:
    """Batches from one thread to another, at most so many records at a time. A batch is divided to fit."""

    def __init__(
        self,
        records: int,
        budget: MemoryBudget,
        stage: str,
        changed: threading.Condition | None = None,
    ) -> None:
        """changed: shared by channels that one thread waits for together."""
        self._room = records
        self._budget = budget
        self._stage = stage
        self._changed = changed or threading.Condition()
        self._batches: deque[pa.RecordBatch] = deque()
        self._is_closed = self._is_stopped = False
        self._error: BaseException | None = None
        self.records = 0
        """Waiting."""
        self.peak_records = 0

    def put(self, batch: pa.RecordBatch) -> None:
        """Waits for room. Raises `Stopped` if nobody takes anything any more."""
        while batch.num_rows:
            with self._changed:
                self._changed.wait_for(self._has_room)
                if self._is_stopped:
                    raise Stopped
                piece = batch.slice(0, self._room - self.records)
                self._budget.force(self._stage, piece.nbytes)
                self._batches.append(piece)
                self.records += piece.num_rows
                self.peak_records = max(self.peak_records, self.records)
                self._changed.notify_all()
            batch = batch.slice(piece.num_rows)

    def _has_room(self) -> bool:
        """For records; and within the memory limit for more than one batch."""
        if self._is_stopped or not self._batches:
            return True
        return self.records < self._room and self._budget.has_room(self._batches[-1].nbytes)

    def close(self, error: BaseException | None = None) -> None:
        """Nothing more comes; or the other side raises the error once it has taken what is there."""
        with self._changed:
            self._is_closed, self._error = True, self._error or error
            self._changed.notify_all()

    def stop(self) -> None:
        """Nothing more is taken."""
        with self._changed:
            self._is_stopped = True
            for batch in self._batches:
                self._budget.discharge(self._stage, batch.nbytes)
            self._batches.clear()
            self.records = 0
            self._changed.notify_all()

    def poll(self) -> pa.RecordBatch | None:
        """What is there, small batches as one; None if nothing is. Raises what the other side failed with."""
        with self._changed:
            if not self._batches:
                if self._error is not None:
                    raise self._error
                return None
            batches: list[pa.RecordBatch] = []
            size = 0
            while self._batches and (
                not batches or size + self._batches[0].nbytes <= _JOINED_BYTES
            ):
                batches.append(self._batches.popleft())
                size += batches[-1].nbytes
            self.records -= sum(batch.num_rows for batch in batches)
            self._budget.discharge(self._stage, size)
            self._changed.notify_all()
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def take(self) -> pa.RecordBatch | None:
        """The next batch, waiting for it; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._batches or self._is_closed)
        return self.poll()

    @property
    def is_done(self) -> bool:
        """Whether nothing is there, and nothing will come."""
        with self._changed:
            return self._is_closed and not self._batches and self._error is None

    @property
    def has_something(self) -> bool:
        """A batch, or an end."""
        return bool(self._batches) or self._is_closed
