"""A store wrapper as slow as object storage: latency per request, and limited bandwidth per stream."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Final

from compactor.resources.upload_memory import Unaccounted, UploadMemory
from compactor.stores.base import ByteStream, Store
from compactor.stores.s3_upload import S3Upload, UploadTarget
from compactor.stores.upload_parts import PART_BYTES

LATENCY_SECONDS: Final = 0.050
BYTES_PER_SECOND: Final = 100e6


class SlowStore:
    """Reads slowly from another store; uploads in S3's parts, as slowly, and discards them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def url(self) -> str:
        return self._store.url

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> ByteStream:
        time.sleep(LATENCY_SECONDS)
        return _SlowStream(self._store.open_stream(key, start=start, if_match=if_match))

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> S3Upload:
        client: Any = _Forgetful()
        target = UploadTarget(
            key=key,
            address=key,
            client=client,
            object={},
            created_with={},
            explained=contextlib.nullcontext,
        )
        return S3Upload(target, PART_BYTES, memory or Unaccounted())


class _SlowStream:
    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.size_bytes, self.etag = stream.size_bytes, stream.etag
        self._started = time.perf_counter()
        self._delivered = 0

    def read(self, max_bytes: int) -> bytes:
        data = self._stream.read(max_bytes)
        self._delivered += len(data)
        # Unused bandwidth is lost: a connection does not catch up later.
        due = self._started + self._delivered / BYTES_PER_SECOND
        now = time.perf_counter()
        if due > now:
            time.sleep(due - now)
        else:
            self._started += now - due
        return data

    def close(self) -> None:
        self._stream.close()


class _Forgetful:
    """The part of boto3's client that an upload needs."""

    def create_multipart_upload(self, **_: Any) -> dict[str, str]:
        return {"UploadId": "u"}

    def upload_part(self, *, Body: bytes, **_: Any) -> dict[str, Any]:  # noqa: N803
        time.sleep(LATENCY_SECONDS + len(Body) / BYTES_PER_SECOND)
        return {"ETag": "e", "ResponseMetadata": {"HTTPHeaders": {}}}

    def put_object(self, *, Body: bytes, **_: Any) -> dict[str, Any]:  # noqa: N803
        return self.upload_part(Body=Body)

    def complete_multipart_upload(self, **_: Any) -> dict[str, Any]:
        time.sleep(LATENCY_SECONDS)
        return {"ETag": "e", "ResponseMetadata": {"HTTPHeaders": {}}}

    def abort_multipart_upload(self, **_: Any) -> None: ...
