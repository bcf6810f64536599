"""Fills the parts of streaming writes: one PUT if the data fits into a part, else parts in the background."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar, cast

from compactor.common.threads import started
from compactor.errors import StoreError
from compactor.resources.disk import LocalDisk, Region
from compactor.resources.upload_memory import SentPart, UploadMemory
from compactor.stores.base import ObjectInfo, UploadScope

PART_BYTES: Final = 8 << 20
PARTS_IN_FLIGHT: Final = 2
MAX_PARTS: Final = 10_000
"""The limit of S3 and Google; Azure allows 50,000."""

T = TypeVar("T")


class UploadByParts(UploadScope, ABC):
    """Base of uploads: collects what is written in a part, and leaves the requests to the store's class."""

    def __init__(self, part_bytes: int, memory: UploadMemory) -> None:
        self._part_bytes = part_bytes
        self._part = _Part(memory)
        self._memory = memory
        self._size_bytes = 0
        self._finished = False

    @property
    def max_buffered_bytes(self) -> int:
        return self._part_bytes * (PARTS_IN_FLIGHT + 1)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        self._size_bytes += len(view)
        # A full part is kept until more data arrives, so that an object of one part becomes a single PUT.
        while len(self._part) + len(view) > self._part_bytes:
            room = self._part_bytes - len(self._part)
            self._part.append(view[:room])
            view = view[room:]
            self._send_part()
        self._part.append(view)

    def spill(self, disk: LocalDisk) -> None:
        self._part.spill(disk, self._part_bytes)

    def complete(self) -> ObjectInfo:
        if self._has_begun():
            self._send_part()
            info = self._complete_parts()
        else:
            data = self._part.take()
            info = self._put_whole(data)
            self._memory.drop(len(data))
        self._finish()
        return info

    def abort(self) -> None:
        if self._finished:
            return
        self._finish()
        if self._has_begun():
            self._discard_parts()

    @abstractmethod
    def _has_begun(self) -> bool:
        """Returns whether the store knows of an upload of several parts."""

    @abstractmethod
    def _put_whole(self, data: bytes) -> ObjectInfo:
        """Writes the object by one request."""

    @abstractmethod
    def _send_part(self) -> None:
        """Takes the part and sends it in the background. Waits while too many are in flight."""

    @abstractmethod
    def _complete_parts(self) -> ObjectInfo:
        """Waits for the parts in flight, and makes the object visible."""

    @abstractmethod
    def _discard_parts(self) -> None:
        """Tells the store to forget the parts. Best effort."""

    @abstractmethod
    def _settle(self) -> None:
        """Waits until nothing is in flight."""

    def _taken(self) -> tuple[bytes, SentPart]:
        """Takes the part to send it, with its memory, which the caller frees."""
        data = self._part.take()
        return data, self._memory.send(len(data))

    def _finish(self) -> None:
        """Releases memory and threads."""
        self._finished = True
        self._part.clear()
        self._settle()


def check_part(address: str, number: int) -> None:
    """Raises `StoreError` for the number of a part, from 1, that is beyond what an object can have."""
    if number > MAX_PARTS:
        raise StoreError(
            f"{address}: larger than {MAX_PARTS:,} parts can hold: write smaller objects"
        )


class _Part:
    """The part that is being filled: its first bytes may be on disk, the rest is in memory."""

    def __init__(self, memory: UploadMemory) -> None:
        self._memory = memory
        self._buffer = bytearray()
        self._disk: LocalDisk | None = None
        self._region: Region | None = None
        self._on_disk = 0
        self._is_taken = False

    def __len__(self) -> int:
        return self._on_disk + len(self._buffer)

    def append(self, data: memoryview) -> None:
        self._memory.fill(len(data))
        self._buffer += data

    def spill(self, disk: LocalDisk, part_bytes: int) -> None:
        if not self._buffer or self._is_taken:
            return
        if self._region is None:
            self._disk, self._region = disk, disk.allocate(part_bytes)
        disk.write(self._region, self._buffer, at=self._on_disk)
        self._on_disk += len(self._buffer)
        self._drop_buffer()

    def take(self) -> bytes:
        """Returns all bytes, still charged as unsent, and empties the part."""
        if self._disk is None or self._region is None:
            data, self._buffer = self._buffer, bytearray()
            return cast("bytes", data)  # clients take a bytearray, unlike their stubs
        self._is_taken = True  # the charge below may spill other parts, but not this one
        self._memory.fill(self._on_disk)
        self._is_taken = False
        data = bytearray(self._disk.read(self._region, 0, self._on_disk))
        data += self._buffer
        self._buffer = bytearray()
        self._forget_disk()
        return cast("bytes", data)

    def clear(self) -> None:
        self._drop_buffer()
        self._forget_disk()

    def _drop_buffer(self) -> None:
        size, self._buffer = len(self._buffer), bytearray()
        self._memory.drop(size)

    def _forget_disk(self) -> None:
        if self._disk is not None and self._region is not None:
            self._disk.release(self._region)
        self._disk = self._region = None
        self._on_disk = 0


def in_thread(work: Callable[[], T], *, or_here: bool = True) -> Future[T]:
    """Runs the work in a new thread: cheap beside sending a part, and idle uploads keep none.

    or_here: whether the calling thread may do the work if the machine refuses a thread.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - handed to the code that waits for the part
            future.set_exception(error)

    thread = threading.Thread(target=run, name="upload", daemon=True)
    if not or_here:
        thread.start()
    elif not started(thread):
        run()
    return future
