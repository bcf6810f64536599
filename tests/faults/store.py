"""Any store, with faults at its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from compactor.errors import StoreUnreachableError, UnknownOutcomeError
from compactor.resources.disk import LocalDisk
from compactor.resources.upload_memory import UploadMemory
from compactor.stores.base import (
    ByteStream,
    ObjectInfo,
    Store,
    StoreTime,
    UnfinishedUpload,
    Upload,
    UploadScope,
)
from tests.faults.calls import Call
from tests.faults.plan import Faults

PUBLISHING = frozenset({"create", "complete"})
"""Calls that callers may not simply repeat: a store tells them that the outcome is unknown."""
WRITES = PUBLISHING | {"delete"}


def unanswered(operation: str, key: str) -> StoreUnreachableError | UnknownOutcomeError:
    """Returns the error of a store whose answer is lost."""
    if operation in PUBLISHING:
        return UnknownOutcomeError(f"{operation} {key}: no answer")
    return StoreUnreachableError(f"{operation} {key}: no answer")


class StoreCall(Call):
    """A call with options that faults may change."""

    def __init__(self, operation: str, key: str, store: Store, options: dict[str, Any]) -> None:
        self.operation, self.key = operation, key
        self.options = options
        self._store = store

    def dropped(self) -> StoreUnreachableError:
        return StoreUnreachableError(f"{self.operation} {self.key}: the connection is dropped")

    def unanswered(self) -> StoreUnreachableError | UnknownOutcomeError:
        return unanswered(self.operation, self.key)

    def cut(self, answer: ByteStream, after_bytes: int) -> ByteStream:
        return CutStream(answer, after_bytes)

    def damaged(self, answer: Any, change: Callable[[Any], Any]) -> Any:
        return change(answer)

    def ignore_conditions(self) -> None:
        if self.operation == "create":
            self._store.delete(self.key)
        if "if_match" in self.options:
            self.options["if_match"] = None


class FaultyStore:
    """A `Store`; `calls` has each operation with its key, whether or not it failed."""

    def __init__(self, store: Store, faults: Faults | None = None) -> None:
        self._store = store
        self.faults = Faults() if faults is None else faults
        self.calls: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return self._store.url

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> ByteStream:
        def act(**options: Any) -> ByteStream:
            return self._store.open_stream(key, **options)

        return FaultyStream(
            self, key, self._do("open_stream", key, act, start=start, if_match=if_match)
        )

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> bytes:
        def act(**options: Any) -> bytes:
            return self._store.read_range(key, start, length, **options)

        data: bytes = self._do("read_range", key, act, if_match=if_match)
        return data

    def read(self, key: str) -> bytes:
        data: bytes = self._do("read", key, lambda: self._store.read(key))
        return data

    def head(self, key: str) -> ObjectInfo:
        info: ObjectInfo = self._do("head", key, lambda: self._store.head(key))
        return info

    def create(self, key: str, data: bytes) -> ObjectInfo:
        info: ObjectInfo = self._do("create", key, lambda: self._store.create(key, data))
        return info

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> Upload:
        upload = self._do("start_upload", key, lambda: self._store.start_upload(key, memory))
        return FaultyUpload(self, key, upload)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        def act() -> Iterator[ObjectInfo]:
            return self._store.list(prefix, start_after=start_after)

        yield from self._do("list", prefix, act)

    def delete(self, key: str) -> None:
        self._do("delete", key, lambda: self._store.delete(key))

    def time(self) -> StoreTime | None:
        return self._store.time()

    def list_unfinished(self) -> Iterator[UnfinishedUpload]:
        yield from self._do("list_unfinished", "", self._store.list_unfinished)

    def discard_unfinished(self, upload: UnfinishedUpload) -> None:
        self._do(
            "discard_unfinished", upload.key or "", lambda: self._store.discard_unfinished(upload)
        )

    def _do(self, operation: str, key: str, act: Callable[..., Any], **options: Any) -> Any:
        self.calls.append((operation, key))
        call = StoreCall(operation, key, self._store, options)
        return self.faults.carry_out(call, lambda: act(**call.options))


class FaultyStream:
    def __init__(self, store: FaultyStore, key: str, stream: ByteStream) -> None:
        self._store, self._key, self._stream = store, key, stream
        self.size_bytes, self.etag = stream.size_bytes, stream.etag

    def read(self, max_bytes: int) -> bytes:
        data: bytes = self._store._do(
            "read_stream", self._key, lambda: self._stream.read(max_bytes)
        )
        return data

    def close(self) -> None:
        self._stream.close()


class CutStream:
    """Breaks after some bytes."""

    def __init__(self, stream: ByteStream, after_bytes: int) -> None:
        self._stream = stream
        self._left = after_bytes
        self.size_bytes, self.etag = stream.size_bytes, stream.etag

    def read(self, max_bytes: int) -> bytes:
        if self._left <= 0:
            raise StoreUnreachableError("the connection is dropped")
        data: bytes = self._stream.read(min(max_bytes, self._left))
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._stream.close()


class FaultyUpload(UploadScope):
    def __init__(self, store: FaultyStore, key: str, upload: Upload) -> None:
        self._store, self._key, self._upload = store, key, upload

    @property
    def max_buffered_bytes(self) -> int:
        return self._upload.max_buffered_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._store._do("write", self._key, lambda: self._upload.write(data))

    def spill(self, disk: LocalDisk) -> None:
        self._upload.spill(disk)

    def complete(self) -> ObjectInfo:
        info: ObjectInfo = self._store._do("complete", self._key, self._upload.complete)
        return info

    def abort(self) -> None:
        self._upload.abort()
