"""Google Cloud Storage and Azure Blob Storage, by obstore. The only module that imports obstore."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import obstore
import obstore.store
from msgspec.structs import replace
from obstore.exceptions import BaseError

from compactor.errors import (
    ObjectChangedError,
    ObjectNotFoundError,
    StoreError,
    StoreUnreachableError,
)
from compactor.resources.upload_memory import Unaccounted, UploadMemory
from compactor.stores.answers import EmptyRangeError, broken_body, outcome_known, still_to_come
from compactor.stores.base import ObjectInfo, StoreTime, UnfinishedUpload, check_size
from compactor.stores.keys import check_key, check_prefix
from compactor.stores.obstore_answers import refusal
from compactor.stores.obstore_services import Container
from compactor.stores.obstore_upload import ObstoreUpload, Writing
from compactor.stores.server_clock import ServerClock
from compactor.stores.upload_parts import PART_BYTES, PARTS_IN_FLIGHT

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_RETRIES: Final = 3
_PAGE_OBJECTS: Final = 1_000
_CLIENT_OPTIONS: Final[dict[str, Any]] = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=60),
    # The library's limit of the whole request, a body included, would end the GETs of a long merge.
    "timeout": timedelta(days=30),
    # No variable may switch it off.
    "allow_invalid_certificates": False,
}

_PROCESS: Final[list[int]] = []
"""The process that started obstore's threads, which a forked process lacks."""

Connect = Callable[[Container, int], "ObjectStore"]
"""Returns obstore's client of a container, which retries so many times. Contacts nothing."""


def connect(container: Container, retries: int) -> ObjectStore:
    client = getattr(obstore.store, container.service.client)
    store: ObjectStore = client(
        container.name,
        config=dict(container.settings),
        client_options={**_CLIENT_OPTIONS, "allow_http": _is_plain(container)},
        retry_config={"max_retries": retries},
    )
    return store


def _is_plain(container: Container) -> bool:
    """Returns whether the user has named a server without TLS."""
    return os.environ.get(container.service.endpoint, "").startswith("http://")


class ObstoreStore:
    """Objects of a bucket or container, under its prefix. Picklable.

    part_bytes: size of the parts of large uploads; Google requires at least 5 MiB.
    """

    def __init__(
        self, container: Container, *, part_bytes: int = PART_BYTES, connect: Connect = connect
    ) -> None:
        self._container = container
        self._part_bytes = part_bytes
        self._connect = connect
        self._prefix = f"{container.prefix}/" if container.prefix else ""
        self._lock = threading.Lock()
        self._clients: dict[int, ObjectStore] = {}
        self._clock = ServerClock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._container, self._part_bytes, self._connect)

    @property
    def url(self) -> str:
        return f"{self._container.root}/{self._prefix}".rstrip("/")

    def open_stream(
        self, key: str, *, start: int = 0, if_match: str | None = None
    ) -> ObstoreStream:
        options: obstore.GetOptions = {"range": {"offset": start}} if start else {}
        try:
            result = self._get(key, options, if_match)
        except EmptyRangeError:
            return ObstoreStream(iter(()), 0, if_match or self.head(key).etag, self._address(key))
        first, end = result.range
        # Chunks of one byte or more: each as it arrives.
        return ObstoreStream(
            self._chunks(key, result.stream(1)), end - first, _etag(result.meta), self._address(key)
        )

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> bytes:
        if length <= 0:
            return b""
        try:
            result = self._get(key, {"range": (start, start + length)}, if_match)
            return self._body(key, result)
        except EmptyRangeError:
            return b""

    def read(self, key: str) -> bytes:
        result = self._get(key, {}, None)
        check_size(result.meta["size"], self._address(key))
        return self._body(key, result)

    def head(self, key: str) -> ObjectInfo:
        with self._explained(key):
            return self._info(key, obstore.head(self._client(), self._path(key)))

    def create(self, key: str, data: bytes) -> ObjectInfo:
        with outcome_known(self._address(key)):
            info = self._put(key, data, mode="create", retries=0)
        if self._clock.now_unix_ms() is None:
            # obstore does not tell the `Date` of an answer, but an object just made has the server's time.
            with contextlib.suppress(StoreError):
                info = self.head(key)
                self._clock.see(info.modified_unix_seconds)
        return info

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> ObstoreUpload:
        check_key(key)
        writing = Writing(
            self._address(key),
            whole=functools.partial(self._put, key, mode="overwrite", retries=_RETRIES),
            parts=functools.partial(self._put_parts, key),
        )
        return ObstoreUpload(writing, self._part_bytes, memory or Unaccounted())

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        # obstore lists folders only, so that the prefix of a name is compared here.
        folder = f"{self._prefix}{prefix.rpartition('/')[0]}".rstrip("/")
        offset = None if start_after is None else self._prefix + start_after
        last = b""
        with self._explained(prefix):
            pages = obstore.list(
                self._client(), folder or None, offset=offset, chunk_size=_PAGE_OBJECTS
            )
            for page in pages:
                for item in page:
                    key = item["path"][len(self._prefix) :]
                    order = key.encode()
                    if order < last:
                        raise self._unordered(key)
                    last = order
                    if not key.startswith(prefix):
                        if order > prefix.encode():
                            return
                    elif key and (start_after is None or order > start_after.encode()):
                        yield self._info(key, item)

    def folders(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        whole = self._prefix + prefix
        with self._explained(prefix):
            found = obstore.list_with_delimiter(self._client(), whole.rstrip("/") or None)
        for path in found["common_prefixes"]:
            if name := path.rstrip("/")[len(whole) :]:
                yield name

    def within(self, path: str) -> ObstoreStore:
        parts = [part for part in (self._container.prefix, path) if part]
        below = ObstoreStore(
            replace(self._container, prefix=check_key("/".join(parts)) if parts else ""),
            part_bytes=self._part_bytes,
            connect=self._connect,
        )
        below._lock, below._clients, below._clock = self._lock, self._clients, self._clock
        return below

    def delete(self, key: str) -> None:
        with contextlib.suppress(ObjectNotFoundError), self._explained(key):
            obstore.delete(self._client(), self._path(key))

    def time(self) -> StoreTime | None:
        unix_ms = self._clock.now_unix_ms()
        return None if unix_ms is None else StoreTime(unix_ms, is_independent=True)

    def list_unfinished(self) -> Iterator[UnfinishedUpload]:
        """Yields nothing: obstore does not list them, and the services remove them by themselves."""
        return iter(())

    def discard_unfinished(self, upload: UnfinishedUpload) -> None:
        """Does nothing, as none is listed."""

    def _get(
        self, key: str, options: obstore.GetOptions, if_match: str | None
    ) -> obstore.GetResult:
        if if_match is not None:
            options = {**options, "if_match": if_match}
        with self._explained(key):
            result = obstore.get(self._client(), self._path(key), options=options)
        if if_match is not None and _etag(result.meta) != if_match:
            raise ObjectChangedError(f"{self._address(key)}: was replaced while it was read")
        return result

    def _body(self, key: str, result: obstore.GetResult) -> bytes:
        with self._explained(key):
            return bytes(result.bytes())

    def _chunks(self, key: str, stream: Iterator[bytes]) -> Iterator[bytes]:
        with self._explained(key):
            yield from stream

    def _put(self, key: str, data: bytes, *, mode: Any, retries: int) -> ObjectInfo:
        with self._explained(key):
            result = obstore.put(
                self._client(retries), self._path(key), data, mode=mode, use_multipart=False
            )
        return self._written(key, len(data), result)

    def _put_parts(
        self, key: str, parts: Iterator[memoryview], size_bytes: Callable[[], int]
    ) -> ObjectInfo:
        with self._explained(key):
            result = obstore.put(
                self._client(),
                self._path(key),
                parts,
                use_multipart=True,
                chunk_size=self._part_bytes,
                max_concurrency=PARTS_IN_FLIGHT,
            )
        return self._written(key, size_bytes(), result)

    def _written(self, key: str, size_bytes: int, result: obstore.PutResult) -> ObjectInfo:
        now_ms = self._clock.now_unix_ms()
        modified = time.time() if now_ms is None else now_ms / 1000
        return ObjectInfo(key, size_bytes, _etag(result), modified)

    def _info(self, key: str, meta: Any) -> ObjectInfo:
        return ObjectInfo(key, meta["size"], _etag(meta), meta["last_modified"].timestamp())

    def _client(self, retries: int = _RETRIES) -> ObjectStore:
        _check_process(self.url)
        with self._lock:
            if retries not in self._clients:
                self._clients[retries] = self._connect(self._container, retries)
            return self._clients[retries]

    def _path(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _address(self, key: str) -> str:
        return f"{self._container.root}/{self._prefix}{key}"

    def _unordered(self, key: str) -> StoreError:
        return StoreError(
            f"{self._address(key)}: {self._container.service.name} lists objects in another order than that "
            "of their names: use an account without a hierarchical namespace"
        )

    @contextlib.contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        """Turns obstore's errors into store errors with address and advice."""
        try:
            yield
        except (BaseError, FileNotFoundError, NotImplementedError, ValueError) as error:
            raise refusal(
                self._address(key),
                self._container.root,
                self._container.service,
                kind=type(error).__name__,
                text=str(error),
            ) from error


class ObstoreStream:
    """The body of one GET."""

    def __init__(self, chunks: Iterator[bytes], size_bytes: int, etag: str, address: str) -> None:
        self._chunks = chunks
        self._chunk = memoryview(b"")
        self._left = size_bytes
        self._address = address
        self.size_bytes = size_bytes
        self.etag = etag

    def read(self, max_bytes: int) -> bytes:
        if not self._left:
            return b""
        if not self._chunk:
            self._chunk = memoryview(next(self._chunks, b""))
        data = bytes(self._chunk[: min(max_bytes, self._left)])
        if not data:
            raise StoreUnreachableError(broken_body(self._address, still_to_come(self._left)))
        self._chunk = self._chunk[len(data) :]
        self._left -= len(data)
        return data

    def close(self) -> None:
        # Without its body, the connection of an unfinished GET is dropped.
        self._chunks = iter(())
        self._chunk = memoryview(b"")
        self._left = 0


def _check_process(address: str) -> None:
    """Raises `StoreError` in a forked process, where obstore would wait for ever."""
    if not _PROCESS:
        _PROCESS.append(os.getpid())
    elif _PROCESS[0] != os.getpid():
        raise StoreError(
            f"{address}: this process was forked from one that uses the library obstore, which can't go on "
            "in it: start processes by spawn"
        )


def _etag(found: Any) -> str:
    etag: str = found["e_tag"] or ""
    # Azure's listings leave out the quotes that its other answers have.
    return f'"{etag}"' if etag.startswith("0x") else etag


def _rebuild(container: Container, part_bytes: int, connect: Connect) -> ObstoreStore:
    return ObstoreStore(container, part_bytes=part_bytes, connect=connect)
