"""Streaming writes to S3: one PUT, or a multipart upload that sends parts in the background."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from compactor.common.threads import started
from compactor.errors import StoreError
from compactor.resources.disk import LocalDisk, Region
from compactor.resources.upload_memory import SentPart, UploadMemory
from compactor.stores.base import ObjectInfo, UploadScope
from compactor.stores.s3_answers import outcome_known, written

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PART_BYTES: Final = 8 << 20
_MAX_PARTS: Final = 10_000
_PARTS_IN_FLIGHT: Final = 2
_GROW_EVERY_PARTS: Final = 1_000
_MAX_PART_BYTES: Final = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadTarget:
    """The target of an upload, with the client that reaches it."""

    key: str
    address: str
    client: S3Client
    object: dict[str, Any]
    """Bucket and key, as arguments of the client's methods."""
    created_with: dict[str, Any]
    """Additional arguments of the request that creates the object or begins the upload."""
    explained: Callable[[], AbstractContextManager[None]]
    """Turns the SDK's errors into store errors."""


class S3Upload(UploadScope):
    """One PUT if the data fits into a part, else a multipart upload with two parts in flight.

    The part size doubles every 1,000 parts, up to 512 MiB: S3's 10,000 parts hold 2.4 TiB by default, and an
    object of 100 GB still uses parts of only 64 MiB.
    """

    def __init__(self, target: UploadTarget, part_bytes: int, memory: UploadMemory) -> None:
        self._target = target
        self._part_bytes = part_bytes
        self._part = _Part(memory)
        self._memory = memory
        self._upload_id: str | None = None
        self._in_flight: deque[Future[str]] = deque()
        self._etags: list[str] = []
        self._size_bytes = 0
        self._finished = False

    @property
    def max_buffered_bytes(self) -> int:
        return self._part_bytes * (_PARTS_IN_FLIGHT + 1)

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
        info = self._put_whole() if self._upload_id is None else self._complete_parts()
        self._finish()
        return info

    def abort(self) -> None:
        if self._finished:
            return
        self._finish()
        if self._upload_id is not None:
            # Best effort: the bucket's lifecycle rule for multipart uploads removes leftovers.
            with contextlib.suppress(StoreError), self._target.explained():
                self._target.client.abort_multipart_upload(
                    **self._target.object, UploadId=self._upload_id
                )

    def _put_whole(self) -> ObjectInfo:
        data = self._part.take()
        with outcome_known(self._target.address), self._target.explained():
            response = self._target.client.put_object(
                **self._target.object, **self._target.created_with, Body=data
            )
        self._memory.drop(len(data))
        return written(self._target.key, self._size_bytes, response)

    def _complete_parts(self) -> ObjectInfo:
        self._send_part()
        self._wait_for_parts(0)
        with outcome_known(self._target.address), self._target.explained():
            response = self._target.client.complete_multipart_upload(
                **self._target.object,
                UploadId=self._open_upload(),
                MultipartUpload={
                    "Parts": [
                        {"PartNumber": number, "ETag": etag}
                        for number, etag in enumerate(self._etags, start=1)
                    ]
                },
            )
        return written(self._target.key, self._size_bytes, response)

    def _send_part(self) -> None:
        upload_id = self._open_upload()
        self._wait_for_parts(_PARTS_IN_FLIGHT - 1)
        number = len(self._etags) + len(self._in_flight) + 1
        if number > _MAX_PARTS:
            raise StoreError(
                f"{self._target.address}: larger than {_MAX_PARTS:,} parts can hold: write smaller objects"
            )
        data = self._part.take()
        sent = self._memory.send(len(data))
        self._in_flight.append(_in_thread(lambda: self._put_part(upload_id, number, data, sent)))
        if number % _GROW_EVERY_PARTS == 0:
            self._part_bytes = min(2 * self._part_bytes, _MAX_PART_BYTES)

    def _open_upload(self) -> str:
        if self._upload_id is None:
            with self._target.explained():
                response = self._target.client.create_multipart_upload(
                    **self._target.object, **self._target.created_with
                )
            self._upload_id = response["UploadId"]
        return self._upload_id

    def _put_part(self, upload_id: str, number: int, data: bytes, memory: SentPart) -> str:
        try:
            with self._target.explained():
                response = self._target.client.upload_part(
                    **self._target.object, UploadId=upload_id, PartNumber=number, Body=data
                )
            return response["ETag"]
        finally:
            memory.free()

    def _wait_for_parts(self, allowed: int) -> None:
        """Waits until at most `allowed` parts are in flight. Raises the first error of a part."""
        while len(self._in_flight) > allowed:
            self._etags.append(self._in_flight[0].result())
            self._in_flight.popleft()

    def _finish(self) -> None:
        """Waits for the parts in flight, then releases memory and threads."""
        self._finished = True
        self._part.clear()
        wait(self._in_flight)
        self._in_flight.clear()


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
            return cast("bytes", data)  # boto3 accepts a bytearray, unlike its stubs
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


def _in_thread(work: Callable[[], str]) -> Future[str]:
    """Runs the work in a new thread: cheap beside sending a part, and idle uploads keep none."""
    future: Future[str] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - handed to the code that waits for the part
            future.set_exception(error)

    if not started(threading.Thread(target=run, name="upload", daemon=True)):
        run()
    return future
