"""A store at whose calls its own process dies, by SIGKILL: nothing is cleaned up, nothing flushed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from compactor.resources.disk import LocalDisk
from compactor.resources.upload_memory import UploadMemory
from compactor.stores.base import ObjectInfo, Store, Upload, UploadScope


@dataclass(frozen=True)
class Point:
    """Where to die: at the n-th call of an operation on keys with a prefix."""

    operation: str
    prefix: str
    occurrence: int = 1

    @classmethod
    def parse(cls, text: str) -> Point:
        """`create:after _log/ 2`."""
        operation, prefix, occurrence = text.split()
        return cls(operation, prefix, int(occurrence))

    def __str__(self) -> str:
        return f"{self.operation} {self.prefix} {self.occurrence}"


POINTS = [
    Point("list", "_log/"),
    Point("list", "data/"),
    Point("create:before", "_log/"),
    Point("create:after", "_log/"),
    Point("create:before", "_log/", 2),
    Point("create:after", "_log/", 2),
    Point("create:before", "data/"),
    Point("create:after", "data/"),
    Point("create:before", "_checkpoint/"),
    Point("create:after", "_checkpoint/"),
    Point("open_stream", "data/", 2),
    Point("write", "data/"),
    Point("write", "data/", 5),
    Point("complete:before", "data/"),
    Point("complete:after", "data/"),
    Point("complete:before", "data/", 2),
    Point("complete:after", "data/", 2),
    Point("delete:before", "data/"),
    Point("delete:after", "data/", 2),
    Point("delete:after", "_log/"),
    Point("delete:after", "_log/", 2),
    Point("delete:before", "_checkpoint/"),
]


class KillingStore:
    """Any store; dies at one point."""

    def __init__(self, store: Store, point: Point) -> None:
        self._store = store
        self._point = point
        self._left = point.occurrence

    @property
    def url(self) -> str:
        return self._store.url

    def reach(self, operation: str, key: str) -> None:
        if operation == self._point.operation and key.startswith(self._point.prefix):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> Any:
        self.reach("open_stream", key)
        return self._store.open_stream(key, start=start, if_match=if_match)

    def create(self, key: str, data: bytes) -> ObjectInfo:
        self.reach("create:before", key)
        info = self._store.create(key, data)
        self.reach("create:after", key)
        return info

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> Upload:
        return KillingUpload(self._store.start_upload(key, memory), self, key)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self.reach("list", prefix)
        return self._store.list(prefix, start_after=start_after)

    def delete(self, key: str) -> None:
        self.reach("delete:before", key)
        self._store.delete(key)
        self.reach("delete:after", key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class KillingUpload(UploadScope):
    def __init__(self, upload: Upload, store: KillingStore, key: str) -> None:
        self._upload, self._store, self._key = upload, store, key

    @property
    def max_buffered_bytes(self) -> int:
        return self._upload.max_buffered_bytes

    def write(self, data: Any) -> None:
        self._store.reach("write", self._key)
        self._upload.write(data)

    def spill(self, disk: LocalDisk) -> None:
        self._upload.spill(disk)

    def complete(self) -> ObjectInfo:
        self._store.reach("complete:before", self._key)
        info = self._upload.complete()
        self._store.reach("complete:after", self._key)
        return info

    def abort(self) -> None:
        self._upload.abort()
