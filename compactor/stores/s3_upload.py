"""Streaming writes to S3: one PUT, or parts sent in the background."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from compactor.errors import StoreError
from compactor.stores.base import ObjectInfo, UploadScope
from compactor.stores.s3_answers import outcome_known, written

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PART_BYTES: Final = 8 << 20
_MAX_PARTS: Final = 10_000
_PARTS_IN_FLIGHT: Final = 2
_GROW_EVERY_PARTS: Final = 1_000
_MAX_PART_BYTES: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """Where an upload goes, and how to get there."""

    key: str
    address: str
    client: S3Client
    object: dict[str, Any]
    """Bucket and key, as arguments of the client's methods."""
    explained: Callable[[], AbstractContextManager[None]]
    """Turns the SDK's errors into store errors."""


class S3Upload(UploadScope):
    """One PUT if all fits into a part, else a multipart upload with two parts in flight.

    Part sizes double every 1,000 parts up to 512 MiB, so that S3's 10,000 parts of the default size
    hold 2.4 TiB, while an object of 100 GB still takes parts of 64 MiB only.
    """

    def __init__(self, target: UploadTarget, part_bytes: int) -> None:
        self._target = target
        self._part_bytes = part_bytes
        self._buffer = bytearray()
        self._upload_id: str | None = None
        self._sender = ThreadPoolExecutor(_PARTS_IN_FLIGHT, thread_name_prefix="upload")
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
        # A full part stays here until more comes, so that what fits into one part is one PUT.
        while len(self._buffer) + len(view) > self._part_bytes:
            room = self._part_bytes - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]
            self._send_part()
        self._buffer += view

    def complete(self) -> ObjectInfo:
        info = self._put_whole() if self._upload_id is None else self._complete_parts()
        self._finish()
        return info

    def abort(self) -> None:
        if self._finished:
            return
        self._finish()
        if self._upload_id is not None:
            # Best effort: what remains of it is for the bucket's lifecycle rule on multiparts.
            with contextlib.suppress(StoreError), self._target.explained():
                self._target.client.abort_multipart_upload(
                    **self._target.object, UploadId=self._upload_id
                )

    def _put_whole(self) -> ObjectInfo:
        with outcome_known(self._target.address), self._target.explained():
            response = self._target.client.put_object(
                **self._target.object, Body=bytes(self._buffer)
            )
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
        # The buffer itself is handed over: a copy would be a fourth part in memory.
        data, self._buffer = self._buffer, bytearray()
        self._in_flight.append(self._sender.submit(self._put_part, upload_id, number, data))
        if number % _GROW_EVERY_PARTS == 0:
            self._part_bytes = min(2 * self._part_bytes, _MAX_PART_BYTES)

    def _open_upload(self) -> str:
        if self._upload_id is None:
            with self._target.explained():
                response = self._target.client.create_multipart_upload(**self._target.object)
            self._upload_id = response["UploadId"]
        return self._upload_id

    def _put_part(self, upload_id: str, number: int, data: bytearray) -> str:
        body = cast("bytes", data)  # boto3 takes a bytearray; its stubs do not know
        with self._target.explained():
            response = self._target.client.upload_part(
                **self._target.object, UploadId=upload_id, PartNumber=number, Body=body
            )
        return response["ETag"]

    def _wait_for_parts(self, allowed: int) -> None:
        """Waits until at most `allowed` parts are in flight; raises what one of them raised."""
        while len(self._in_flight) > allowed:
            self._etags.append(self._in_flight[0].result())
            self._in_flight.popleft()

    def _finish(self) -> None:
        """Lets go of memory and threads, once no part is under way."""
        self._finished = True
        self._buffer = bytearray()
        self._sender.shutdown(wait=True, cancel_futures=True)
