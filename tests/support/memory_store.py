"""Stores in memory: a plain one, and one whose calls tests count and make fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from compactor.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError, StoreError
from compactor.resources.disk import LocalDisk
from compactor.resources.upload_memory import UploadMemory
from compactor.stores.base import (
    ObjectInfo,
    StoreTime,
    UnfinishedUpload,
    UploadScope,
    check_size,
)
from tests.faults.plan import Faults
from tests.faults.store import FaultyStore


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
    """Returns when an object came; the epoch where that is unknown."""
    return objects.times.get(key, 0.0) if isinstance(objects, TimedObjects) else 0.0


class PlainMemoryStore:
    """A `Store` over objects and unfinished uploads."""

    url = "memory://table"

    def __init__(
        self,
        objects: dict[str, bytes],
        uploads: dict[str, UnfinishedUpload],
        now: Callable[[], float],
    ) -> None:
        self.objects, self.uploads, self.now = objects, uploads, now
        self.store_time: StoreTime | None = None
        self.numbers = itertools.count()

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> MemoryStream:
        data = self._get(key)
        if if_match is not None and if_match != _etag(data):
            raise ObjectChangedError(key)
        return MemoryStream(data, start)

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> bytes:
        return self._get(key)[start : start + length]

    def read(self, key: str) -> bytes:
        data = self._get(key)
        check_size(len(data), key)
        return data

    def head(self, key: str) -> ObjectInfo:
        return self.info(key, self._get(key))

    def create(self, key: str, data: bytes) -> ObjectInfo:
        if key in self.objects:
            raise ObjectExistsError(key)
        self.objects[key] = data
        return self.info(key, data)

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> MemoryUpload:
        return MemoryUpload(self, key)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for key in sorted(self.objects, key=str.encode):
            if key.startswith(prefix) and (
                start_after is None or key.encode() > start_after.encode()
            ):
                yield self.info(key, self.objects[key])

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    def time(self) -> StoreTime | None:
        return self.store_time

    def list_unfinished(self) -> Iterator[UnfinishedUpload]:
        yield from list(self.uploads.values())

    def discard_unfinished(self, upload: UnfinishedUpload) -> None:
        self.uploads.pop(upload.token, None)

    def _get(self, key: str) -> bytes:
        try:
            return self.objects[key]
        except KeyError:
            raise ObjectNotFoundError(key) from None

    def info(self, key: str, data: bytes) -> ObjectInfo:
        return ObjectInfo(key, len(data), _etag(data), time_of(self.objects, key))


class MemoryStore(FaultyStore):
    """A store in memory. Pass the same `objects` to several to have several processes on one store."""

    def __init__(
        self,
        objects: dict[str, bytes] | None = None,
        uploads: dict[str, UnfinishedUpload] | None = None,
        now: Callable[[], float] = lambda: 0.0,
        faults: Faults | None = None,
    ) -> None:
        """now: Unix seconds, for what objects and uploads tell of their time."""
        self.objects: dict[str, bytes] = {} if objects is None else objects
        self.uploads: dict[str, UnfinishedUpload] = {} if uploads is None else uploads
        self.plain = PlainMemoryStore(self.objects, self.uploads, now)
        super().__init__(self.plain, faults)

    @property
    def store_time(self) -> StoreTime | None:
        return self.plain.store_time

    @store_time.setter
    def store_time(self, time: StoreTime | None) -> None:
        self.plain.store_time = time


class MemoryStream:
    def __init__(self, data: bytes, start: int) -> None:
        self._data, self._at = data, start
        self.size_bytes = max(0, len(data) - start)
        self.etag = _etag(data)

    def read(self, max_bytes: int) -> bytes:
        piece = self._data[self._at : self._at + max_bytes]
        self._at += len(piece)
        return piece

    def close(self) -> None:
        return


class MemoryUpload(UploadScope):
    max_buffered_bytes = 0

    def __init__(self, store: PlainMemoryStore, key: str) -> None:
        self._store, self._key = store, key
        self._data = bytearray()
        self._token = f"{key} {next(store.numbers)} {id(self)}"
        store.uploads[self._token] = UnfinishedUpload(self._token, store.now(), key)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._data += data

    def spill(self, disk: LocalDisk) -> None: ...

    def complete(self) -> ObjectInfo:
        if self._store.uploads.pop(self._token, None) is None:
            raise StoreError(f"{self._key}: the upload is gone")
        self._store.objects[self._key] = bytes(self._data)
        return self._store.info(self._key, self._store.objects[self._key])

    def abort(self) -> None:
        self._store.uploads.pop(self._token, None)


def _etag(data: bytes) -> str:
    return str(hash(data))
