"""Streaming writes by obstore: one PUT, or an upload whose parts obstore asks for. Does not load obstore."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Self

from msgspec import Struct

from compactor.resources.upload_memory import SentPart, UploadMemory
from compactor.stores.answers import outcome_known
from compactor.stores.base import ObjectInfo
from compactor.stores.upload_parts import UploadByParts, check_part, in_thread


class Writing(Struct, frozen=True):
    """The two ways to write an object. Both raise store errors."""

    address: str
    whole: Callable[[bytes], ObjectInfo]
    """Writes it by one request."""
    parts: Callable[[Iterator[memoryview], Callable[[], int]], ObjectInfo]
    """Takes parts until the iterator ends, and then the size; discards them if the iterator raises."""


class ObstoreUpload(UploadByParts):
    """One PUT if the data fits into a part, else parts of one size, two in flight."""

    def __init__(self, writing: Writing, part_bytes: int, memory: UploadMemory) -> None:
        super().__init__(part_bytes, memory)
        self._writing = writing
        self._parts = _Parts()
        self._sent_parts = 0
        self._outcome: Future[ObjectInfo] | None = None

    @property
    def max_buffered_bytes(self) -> int:
        # obstore holds one more, for which it has asked and waits to send it.
        return super().max_buffered_bytes + self._part_bytes

    def _has_begun(self) -> bool:
        return self._outcome is not None

    def _put_whole(self, data: bytes) -> ObjectInfo:
        with outcome_known(self._writing.address):
            return self._writing.whole(data)

    def _send_part(self) -> None:
        outcome = self._begun()
        self._parts.wait_for_room(outcome)
        self._sent_parts += 1
        check_part(self._writing.address, self._sent_parts)
        self._parts.hand_over(*self._taken())

    def _complete_parts(self) -> ObjectInfo:
        outcome = self._begun()
        self._parts.end()
        with outcome_known(self._writing.address):
            return outcome.result()

    def _discard_parts(self) -> None:
        """Leaves that to `_settle`: obstore discards them when the iterator of parts raises."""

    def _settle(self) -> None:
        if self._outcome is not None:
            self._parts.break_off()
            wait([self._outcome])

    def _begun(self) -> Future[ObjectInfo]:
        if self._outcome is None:
            self._outcome = in_thread(
                lambda: self._writing.parts(self._parts, lambda: self._size_bytes), or_here=False
            )
            self._outcome.add_done_callback(self._parts.wake)
        return self._outcome


class _Parts(Iterator[memoryview]):
    """The parts on their way to obstore's thread, which asks for one when it has room.

    obstore does not say when a part is sent, but then drops its buffer, and the memory is freed with it.
    """

    def __init__(self) -> None:
        self._handed: SimpleQueue[memoryview | type[Exception]] = SimpleQueue()
        self._changed = threading.Condition()
        self._wanted = 0
        """Parts that obstore has asked for and not got."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> memoryview:
        with self._changed:
            self._wanted += 1
            self._changed.notify_all()
        part = self._handed.get()
        if isinstance(part, memoryview):
            return part
        raise part

    def wait_for_room(self, outcome: Future[ObjectInfo]) -> None:
        """Waits until obstore asks for a part. Raises what made the upload fail."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted > 0 or outcome.done())
        if outcome.done():
            outcome.result()

    def hand_over(self, data: bytes, memory: SentPart) -> None:
        part = memoryview(data)
        weakref.finalize(part, memory.free).atexit = False
        with self._changed:
            self._wanted -= 1
        self._handed.put(part)

    def end(self) -> None:
        self._handed.put(StopIteration)

    def break_off(self) -> None:
        self._handed.put(_BrokenOffError)

    def wake(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()


class _BrokenOffError(Exception):
    """Tells obstore to discard the parts."""
