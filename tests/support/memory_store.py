"""A store in memory that can fail at any call, before or after it took effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from compactor.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError, StoreError
from compactor.resources.disk import LocalDisk
from compactor.resources.upload_memory import UploadMemory
from compactor.stores.base import ObjectInfo, StoreTime, UnfinishedUpload, check_size

Fault = Callable[[str, str], None]
"""Called with the operation ("create:before", "create:after", ...) and the key; may raise."""


class TimedObjects(dict[str, bytes]):
    """Objects that know when they came, however they came."""

    def __init__(self, now: Callable[[], float]) -> None:
        """now: Unix seconds."""
        super().__init__()
        self._now = now
        self.times: dict[str, float] = {}

    def __setitem__(self, key: str, data: bytes) -> None:
        super().__setitem__(key, data)
        self.times[key] = self._now()


def time_of(objects: dict[str, bytes], key: str) -> float:
    """Returns when an object came; the epoch where nobody knows."""
    return objects.times.get(key, 0.0) if isinstance(objects, TimedObjects) else 0.0


class MemoryStore:
    """A `Store`. Pass the same `objects` to several to have several processes on one store."""

    def __init__(
        self,
        objects: dict[str, bytes] | None = None,
        uploads: dict[str, UnfinishedUpload] | None = None,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """now: Unix seconds, for what objects and uploads tell of their time."""
        self.objects: dict[str, bytes] = {} if objects is None else objects
        self.uploads: dict[str, UnfinishedUpload] = {} if uploads is None else uploads
        self.now = now
        self.store_time: StoreTime | None = None
        self.fault: Fault = lambda _operation, _key: None
        self.calls: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return "memory://table"

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> MemoryStream:
        self._call("open_stream", key)
        data = self._get(key)
        if if_match is not None and if_match != _etag(data):
            raise ObjectChangedError(key)
        return MemoryStream(self, key, data, start)

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> bytes:
        self._call("read_range", key)
        return self._get(key)[start : start + length]

    def read(self, key: str) -> bytes:
        self._call("read", key)
        data = self._get(key)
        check_size(len(data), key)
        return data

    def head(self, key: str) -> ObjectInfo:
        self._call("head", key)
        return self._info(key, self._get(key))

    def create(self, key: str, data: bytes) -> ObjectInfo:
        self._call("create:before", key)
        if key in self.objects:
            raise ObjectExistsError(key)
        self.objects[key] = data
        self._call("create:after", key)
        return self._info(key, data)

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> MemoryUpload:
        self._call("start_upload", key)
        return MemoryUpload(self, key)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._call("list", prefix)
        for key in sorted(self.objects, key=str.encode):
            if key.startswith(prefix) and (
                start_after is None or key.encode() > start_after.encode()
            ):
                yield self._info(key, self.objects[key])

    def delete(self, key: str) -> None:
        self._call("delete", key)
        self.objects.pop(key, None)

    def time(self) -> StoreTime | None:
        return self.store_time

    def list_unfinished(self) -> Iterator[UnfinishedUpload]:
        self._call("list_unfinished", "")
        yield from list(self.uploads.values())

    def discard_unfinished(self, upload: UnfinishedUpload) -> None:
        self._call("discard_unfinished", upload.token)
        self.uploads.pop(upload.token, None)

    def _get(self, key: str) -> bytes:
        try:
            return self.objects[key]
        except KeyError:
            raise ObjectNotFoundError(key) from None

    def _info(self, key: str, data: bytes) -> ObjectInfo:
        return ObjectInfo(key, len(data), _etag(data), time_of(self.objects, key))

    def _call(self, operation: str, key: str) -> None:
        self.calls.append((operation, key))
        self.fault(operation, key)


class MemoryStream:
    def __init__(self, store: MemoryStore, key: str, data: bytes, start: int) -> None:
        self._store, self._key = store, key
        self._data, self._at = data, start
        self.size_bytes = max(0, len(data) - start)
        self.etag = _etag(data)

    def read(self, max_bytes: int) -> bytes:
        self._store._call("read_stream", self._key)
        piece = self._data[self._at : self._at + max_bytes]
        self._at += len(piece)
        return piece

    def close(self) -> None:
        return


class MemoryUpload:
    max_buffered_bytes = 0

    def __init__(self, store: MemoryStore, key: str) -> None:
        self._store, self._key = store, key
        self._data = bytearray()
        self._token = f"{key} {len(store.calls)} {id(self)}"
        store.uploads[self._token] = UnfinishedUpload(self._token, store.now(), key)

    def write(self, data: Any) -> None:
        self._store._call("write", self._key)
        self._data += data

    def spill(self, disk: LocalDisk) -> None: ...

    def complete(self) -> ObjectInfo:
        self._store._call("complete:before", self._key)
        if self._store.uploads.pop(self._token, None) is None:
            raise StoreError(f"{self._key}: the upload is gone")
        self._store.objects[self._key] = bytes(self._data)
        self._store._call("complete:after", self._key)
        return self._store._info(self._key, self._store.objects[self._key])

    def abort(self) -> None:
        self._store.uploads.pop(self._token, None)

    def __enter__(self) -> MemoryUpload:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            self.abort()


def _etag(data: bytes) -> str:
    return str(hash(data))
