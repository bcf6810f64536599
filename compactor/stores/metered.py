"""Counting what is asked of a store, for reports and metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from compactor.stores.base import AbortOnError, ByteStream, ObjectInfo, Store, Upload


@dataclass(slots=True)
class StoreMetrics:
    """Thread-safe counters."""

    gets: int = 0
    """Streamed GETs of whole objects."""
    resumed_gets: int = 0
    """Streamed GETs that continue a broken one."""
    range_gets: int = 0
    uploads: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    def add(self, **amounts: int) -> None:
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)


class MeteredStore:
    """Any store, counted."""

    def __init__(self, store: Store, metrics: StoreMetrics) -> None:
        self._store = store
        self.metrics = metrics

    @property
    def url(self) -> str:
        return self._store.url

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> ByteStream:
        self.metrics.add(**{"resumed_gets" if start else "gets": 1})
        return _MeteredStream(
            self._store.open_stream(key, start=start, if_match=if_match), self.metrics
        )

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> bytes:
        data = self._store.read_range(key, start, length, if_match=if_match)
        self.metrics.add(range_gets=1, bytes_read=len(data))
        return data

    def read(self, key: str) -> bytes:
        data = self._store.read(key)
        self.metrics.add(gets=1, bytes_read=len(data))
        return data

    def head(self, key: str) -> ObjectInfo:
        return self._store.head(key)

    def create(self, key: str, data: bytes) -> ObjectInfo:
        self.metrics.add(uploads=1, bytes_written=len(data))
        return self._store.create(key, data)

    def start_upload(self, key: str) -> Upload:
        self.metrics.add(uploads=1)
        return _MeteredUpload(self._store.start_upload(key), self.metrics)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._store.list(prefix, start_after=start_after)

    def delete(self, key: str) -> None:
        self._store.delete(key)


class _MeteredStream:
    def __init__(self, stream: ByteStream, metrics: StoreMetrics) -> None:
        self._stream = stream
        self._metrics = metrics
        self.size_bytes = stream.size_bytes
        self.etag = stream.etag

    def read(self, max_bytes: int) -> bytes:
        data = self._stream.read(max_bytes)
        self._metrics.add(bytes_read=len(data))
        return data

    def close(self) -> None:
        self._stream.close()


class _MeteredUpload(AbortOnError):
    def __init__(self, upload: Upload, metrics: StoreMetrics) -> None:
        self._upload = upload
        self._metrics = metrics
        self.max_buffered_bytes = upload.max_buffered_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._upload.write(data)
        self._metrics.add(bytes_written=len(data))

    def complete(self) -> ObjectInfo:
        return self._upload.complete()

    def abort(self) -> None:
        self._upload.abort()
