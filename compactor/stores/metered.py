"""Counts the calls and requests of a store, for reports and metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from compactor.resources.disk import LocalDisk
from compactor.resources.upload_memory import UploadMemory
from compactor.stores.base import (
    REQUEST_KINDS,
    ByteStream,
    ObjectInfo,
    Store,
    StoreTime,
    UnfinishedUpload,
    Upload,
    UploadScope,
)

_CALLS: Final = ("gets", "resumed_gets", "range_gets", "puts", "bytes_read", "bytes_written")
COUNTERS: Final = (
    *_CALLS,
    "retries",
    *(f"{kind}_requests" for kind in REQUEST_KINDS),
)
"""Keys of `MeteredStore.counts`."""


@dataclass(slots=True, kw_only=True)
class StoreMetrics:
    """Thread-safe counters of calls; retries inside the store do not count."""

    gets: int = 0
    """GETs of whole objects."""
    resumed_gets: int = 0
    """GETs that continue a broken stream."""
    range_gets: int = 0
    """GETs of a given byte range."""
    puts: int = 0
    """Objects that became visible: successful creations and completed uploads."""
    heads: int = 0
    lists: int = 0
    """Listings, including those of unfinished uploads; pages do not count."""
    deletes: int = 0
    """Deletions of objects and of unfinished uploads."""
    bytes_read: int = 0
    bytes_written: int = 0
    """Bytes passed to the store, including those of uploads aborted later."""
    on_read: Callable[[int], None] = lambda _bytes_read: None
    """Called with `bytes_read` when it has changed, by the thread that reads, while others wait."""
    _lock: threading.Lock = field(
        default_factory=threading.Lock, init=False, repr=False, compare=False
    )

    def add(self, **amounts: int) -> None:
        """Adds to the named counters."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)
            if "bytes_read" in amounts:
                self.on_read(self.bytes_read)


class MeteredStore:
    """A wrapper that counts the calls of a store."""

    def __init__(self, store: Store, metrics: StoreMetrics) -> None:
        self._store = store
        self._retried_before = retried_requests(store)
        self._sent_before = sent_requests(store) or {}
        self.metrics = metrics

    def counts(self) -> dict[str, int]:
        """Returns counts by name since construction: calls, and the requests that the store sent for them."""
        sent = sent_requests(self._store)
        kinds = self._calls() if sent is None else {k: sent[k] - self._sent_before[k] for k in sent}
        return {
            **{name: getattr(self.metrics, name) for name in _CALLS},
            "retries": retried_requests(self._store) - self._retried_before,
            **{f"{kind}_requests": kinds[kind] for kind in REQUEST_KINDS},
        }

    def _calls(self) -> dict[str, int]:
        """Returns calls as requests, for a store that does not count requests."""
        metrics = self.metrics
        gets = metrics.gets + metrics.resumed_gets + metrics.range_gets
        calls = (gets, metrics.heads, metrics.lists, metrics.puts, 0, metrics.deletes)
        return dict(zip(REQUEST_KINDS, calls, strict=True))

    @property
    def url(self) -> str:
        return self._store.url

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> ByteStream:
        stream = self._store.open_stream(key, start=start, if_match=if_match)
        # Only a resuming caller knows the ETag; its offset is 0 if no byte was delivered before.
        resumed = start > 0 or if_match is not None
        self.metrics.add(**{"resumed_gets" if resumed else "gets": 1})
        return _MeteredStream(stream, self.metrics)

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
        info = self._store.head(key)
        self.metrics.add(heads=1)
        return info

    def create(self, key: str, data: bytes) -> ObjectInfo:
        info = self._store.create(key, data)
        self.metrics.add(puts=1, bytes_written=len(data))
        return info

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> Upload:
        return _MeteredUpload(self._store.start_upload(key, memory), self.metrics)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self.metrics.add(lists=1)
        return self._store.list(prefix, start_after=start_after)

    def delete(self, key: str) -> None:
        self._store.delete(key)
        self.metrics.add(deletes=1)

    def time(self) -> StoreTime | None:
        return self._store.time()

    def list_unfinished(self) -> Iterator[UnfinishedUpload]:
        self.metrics.add(lists=1)
        return self._store.list_unfinished()

    def discard_unfinished(self, upload: UnfinishedUpload) -> None:
        self._store.discard_unfinished(upload)
        self.metrics.add(deletes=1)


def retried_requests(store: Store) -> int:
    """Returns the number of retries inside the store; 0 if it does not count them."""
    count: int = getattr(store, "retried_requests", 0)
    return count


def sent_requests(store: Store) -> Mapping[str, int] | None:
    """Returns the requests that the store sent, by `REQUEST_KINDS`; None if it does not count them."""
    sent: Mapping[str, int] | None = getattr(store, "sent_requests", None)
    return sent


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


class _MeteredUpload(UploadScope):
    def __init__(self, upload: Upload, metrics: StoreMetrics) -> None:
        self._upload = upload
        self._metrics = metrics

    @property
    def max_buffered_bytes(self) -> int:
        return self._upload.max_buffered_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._upload.write(data)
        self._metrics.add(bytes_written=memoryview(data).nbytes)

    def spill(self, disk: LocalDisk) -> None:
        self._upload.spill(disk)

    def complete(self) -> ObjectInfo:
        info = self._upload.complete()
        self._metrics.add(puts=1)
        return info

    def abort(self) -> None:
        self._upload.abort()
