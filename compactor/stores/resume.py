"""Resumes a GET after its connection broke."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from compactor.common.second_tries import patiently
from compactor.errors import ObjectChangedError, StoreUnreachableError
from compactor.stores.base import ByteStream, Store


class ResumingStream:
    """A streamed GET that resumes at the offset reached, pinned to the ETag of its first answer.

    max_resumes: maximum consecutive resumes without progress.
    Raises `ObjectChangedError` if the object was replaced meanwhile, `StoreUnreachableError` when no resumes
    are left.
    """

    def __init__(
        self,
        store: Store,
        key: str,
        *,
        max_resumes: int = 5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._key = key
        self._max_resumes = max_resumes
        self._sleep = sleep
        self._stream: ByteStream | None = store.open_stream(key)
        self.size_bytes = self._stream.size_bytes
        self.etag = self._stream.etag
        self._position = 0

    def read(self, max_bytes: int) -> bytes:
        data = patiently(
            partial(self._read_once, max_bytes),
            lambda error: isinstance(error, StoreUnreachableError),
            tries=self._max_resumes + 1,
            max_wait_seconds=5.0,
            sleep=self._sleep,
        )
        self._position += len(data)
        return data

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def _read_once(self, max_bytes: int) -> bytes:
        if self._stream is None:
            self._stream = self._reopened()
        try:
            return self._stream.read(max_bytes)
        except StoreUnreachableError:
            self._stream.close()
            self._stream = None
            raise

    def _reopened(self) -> ByteStream:
        stream = self._store.open_stream(self._key, start=self._position, if_match=self.etag)
        # Some servers ignore If-Match.
        if (stream.etag, stream.size_bytes) != (self.etag, self.size_bytes - self._position):
            stream.close()
            raise ObjectChangedError(f"{self._key}: the object was replaced while it was read")
        return stream
