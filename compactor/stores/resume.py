"""Resumes a GET after its connection broke."""

from __future__ import annotations

import time
from collections.abc import Callable

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

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
        try:
            data = self._read_once(max_bytes)
        except StoreUnreachableError as error:
            data = self._resumed(max_bytes, error)
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

    def _resumed(self, max_bytes: int, failure: StoreUnreachableError) -> bytes:
        """Retries after a failed read, which counts as the first attempt."""
        failures = [failure]

        def attempt() -> bytes:
            if failures:
                raise failures.pop()
            return self._read_once(max_bytes)

        retrying = Retrying(
            retry=retry_if_exception_type(StoreUnreachableError),
            wait=wait_random_exponential(multiplier=0.1, max=5.0),
            stop=stop_after_attempt(self._max_resumes + 1),
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(attempt)

    def _reopened(self) -> ByteStream:
        stream = self._store.open_stream(self._key, start=self._position, if_match=self.etag)
        # Some servers ignore If-Match.
        if (stream.etag, stream.size_bytes) != (self.etag, self.size_bytes - self._position):
            stream.close()
            raise ObjectChangedError(f"{self._key}: the object was replaced while it was read")
        return stream
