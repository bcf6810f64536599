"""Streaming writes to S3: one PUT, or a multipart upload that sends parts in the background."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from compactor.errors import StoreError
from compactor.resources.upload_memory import SentPart, UploadMemory
from compactor.stores.answers import outcome_known
from compactor.stores.base import ObjectInfo
from compactor.stores.s3_answers import written
from compactor.stores.upload_parts import PARTS_IN_FLIGHT, UploadByParts, check_part, in_thread

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_GROW_EVERY_PARTS: Final = 1_000
_MAX_PART_BYTES: Final = 512 << 20


class UploadTarget(Struct, frozen=True, kw_only=True):
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


class S3Upload(UploadByParts):
    """One PUT if the data fits into a part, else a multipart upload with two parts in flight.

    The part size doubles every 1,000 parts, up to 512 MiB: S3's 10,000 parts hold 2.4 TiB by default, and an
    object of 100 GB still uses parts of only 64 MiB.
    """

    def __init__(self, target: UploadTarget, part_bytes: int, memory: UploadMemory) -> None:
        super().__init__(part_bytes, memory)
        self._target = target
        self._upload_id: str | None = None
        self._in_flight: deque[Future[str]] = deque()
        self._etags: list[str] = []

    def _has_begun(self) -> bool:
        return self._upload_id is not None

    def _put_whole(self, data: bytes) -> ObjectInfo:
        with outcome_known(self._target.address), self._target.explained():
            response = self._target.client.put_object(
                **self._target.object, **self._target.created_with, Body=data
            )
        return written(self._target.key, self._size_bytes, response)

    def _complete_parts(self) -> ObjectInfo:
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
        self._wait_for_parts(PARTS_IN_FLIGHT - 1)
        number = len(self._etags) + len(self._in_flight) + 1
        check_part(self._target.address, number)
        data, sent = self._taken()
        self._in_flight.append(in_thread(lambda: self._put_part(upload_id, number, data, sent)))
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

    def _discard_parts(self) -> None:
        # The bucket's lifecycle rule for multipart uploads removes leftovers.
        with contextlib.suppress(StoreError), self._target.explained():
            self._target.client.abort_multipart_upload(
                **self._target.object, UploadId=self._open_upload()
            )

    def _settle(self) -> None:
        wait(self._in_flight)
        self._in_flight.clear()
