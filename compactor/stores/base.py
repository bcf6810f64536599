"""The interface to object storage: a small protocol that every store implements.

Keys are relative, `/`-separated, never begin or end with `/`, and never contain `..`. Every method may raise
`PermissionDeniedError` or `StoreUnreachableError`; each lists its other errors. Stores are thread-safe, and
picklable so that Spark can send them to tasks.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self, runtime_checkable

from msgspec import Struct

from compactor.errors import DataError, ObjectExistsError
from compactor.resources.disk import LocalDisk
from compactor.resources.upload_memory import UploadMemory

REQUEST_KINDS: Final = ("get", "head", "list", "put", "post", "delete")
"""Kinds of requests, as stores bill them."""

MAX_READ_BYTES: Final = 1 << 30
"""Maximum size of an object that is read whole (a version or a checkpoint). Writers write none larger."""


def check_size(size_bytes: int, address: str) -> None:
    """Checks an object's size before it is read whole. Raises `DataError` if it is too large."""
    if size_bytes > MAX_READ_BYTES:
        raise DataError(
            f"{address}: {size_bytes:,} bytes, but a file of the log has at most {MAX_READ_BYTES:,}: it is "
            "foreign or damaged"
        )


class ObjectInfo(Struct, frozen=True):
    """An object as a listing or a HEAD describes it."""

    key: str
    size_bytes: int
    etag: str
    """Opaque; changes whenever the content is replaced."""
    modified_unix_seconds: float


class UnfinishedUpload(Struct, frozen=True):
    """A write that is neither complete nor aborted: it still runs, or a crash left it behind."""

    token: str
    """Opaque id of the upload in its store."""
    started_unix_seconds: float
    key: str | None = None
    """Key of the object; None if the store does not record it."""


class StoreTime(NamedTuple):
    """A store's own time."""

    unix_ms: int
    is_independent: bool
    """Whether it comes from another machine's clock; the time of a local disk is this machine's."""


class ByteStream(Protocol):
    """The body of one GET: forward only, for one thread at a time."""

    size_bytes: int
    """Length of the stream, from its start offset to the object's end."""
    etag: str

    def read(self, max_bytes: int) -> bytes:
        """Returns up to `max_bytes` (at least 1); b"" only at the end of the object.

        Raises `StoreUnreachableError` if the connection breaks or closes before `size_bytes` were delivered.
        The caller may reopen at the offset reached.
        """
        ...

    def close(self) -> None:
        """Releases the connection, even before the end. Idempotent."""
        ...


@runtime_checkable
class Upload(Protocol):
    """One streaming write. Nothing is visible under the key before `complete` returns.

    As a context manager, it aborts when an exception leaves the block.
    """

    @property
    def max_buffered_bytes(self) -> int:
        """Current limit of buffered bytes. Rises in steps as gigabytes are written."""
        ...

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends data. Blocks while too many earlier parts are in flight (back-pressure)."""
        ...

    def spill(self, disk: LocalDisk) -> None:
        """Moves buffered bytes that are not in flight to local disk."""
        ...

    def complete(self) -> ObjectInfo:
        """Sends the rest, then makes the object visible atomically, replacing any earlier one.

        Writers use unique keys. Raises `UnknownOutcomeError` if the answer to the final request was lost.
        """
        ...

    def abort(self) -> None:
        """Discards the upload. Idempotent, and harmless after `complete`."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class UploadScope:
    """Base of uploads: as a context manager, it aborts when an exception leaves the block."""

    def abort(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is not None:
            self.abort()


class UploadFile(io.RawIOBase):
    """An upload as a file to write to."""

    def __init__(self, upload: Upload) -> None:
        super().__init__()
        self._upload = upload
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        view = memoryview(data)
        self._upload.write(view)
        self._written += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._written


class ReadOnlyStore(Protocol):
    """The methods of `Store` that reading a log needs."""

    @property
    def url(self) -> str: ...

    def read(self, key: str) -> bytes: ...

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]: ...


@runtime_checkable
class Store(Protocol):
    """Objects under one root: a folder, or a bucket and prefix."""

    @property
    def url(self) -> str:
        """Address of the root, such as `/data/t` or `s3://bucket/prefix`; `open_store` reads it."""
        ...

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> ByteStream:
        """Opens one streamed GET from byte `start` to the end.

        Raises `ObjectNotFoundError`, and `ObjectChangedError` if `if_match` is given and differs from the
        object's ETag.
        """
        ...

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> bytes:
        """Reads the bytes [start, start + length), fewer only at the object's end.

        A range past the end gives b"". Raises what `open_stream` raises.
        """
        ...

    def read(self, key: str) -> bytes:
        """Reads a whole object of up to `MAX_READ_BYTES`.

        Raises `ObjectNotFoundError`, and `DataError` for a larger object, before reading it.
        """
        ...

    def head(self, key: str) -> ObjectInfo:
        """Sends a HEAD. Raises `ObjectNotFoundError`."""
        ...

    def create(self, key: str, data: bytes) -> ObjectInfo:
        """Creates an object if absent: atomic, and durable on return. Never retried inside.

        Raises `ObjectExistsError` if the key exists, `UnknownOutcomeError` if the request was sent and the
        answer was lost or a 5xx.
        """
        ...

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> Upload:
        """Starts a streaming (multipart) write to a new key. memory: the account of its buffers."""
        ...

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yields objects whose key begins with `prefix`, in UTF-8 byte order of keys, page by page.

        start_after: yields only greater keys. Omits unfinished uploads.
        """
        ...

    def delete(self, key: str) -> None:
        """Removes an object; ignores an absent key."""
        ...

    def time(self) -> StoreTime | None:
        """Returns the store's own time without a request; None before the first answer."""
        ...

    def list_unfinished(self) -> Iterator[UnfinishedUpload]:
        """Yields the unfinished uploads under this root; none if the store can't list them."""
        ...

    def discard_unfinished(self, upload: UnfinishedUpload) -> None:
        """Discards an upload; ignores one that is gone. A running upload then fails to complete."""
        ...


class Folder(Store, Protocol):
    """A store below which there may be folders with tables."""

    def folders(self, prefix: str) -> Iterator[str]:
        """Yields the names of the folders directly below `prefix`, which is empty or ends in a slash.

        Asks for no object below them.
        """
        ...

    def within(self, path: str) -> Store:
        """Returns the store of a folder below; "" for this one. It shares connections with this one."""
        ...


def create_own(store: Store, key: str, data: bytes) -> None:
    """Creates an object under a unique key.

    An existing object under that key is this one: a proxy or load balancer delivered the request twice, and
    returned the second answer. Raises what `Store.create` raises, except `ObjectExistsError`.
    """
    with contextlib.suppress(ObjectExistsError):
        store.create(key, data)
