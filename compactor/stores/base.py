"""The interface to object storage: a small Protocol that local folders and S3 both honour.

Keys are relative, `/`-separated, never begin or end with `/`, and never contain `..`. Every method may raise
`PermissionDeniedError` or `StoreUnreachableError`; further errors are listed with each. Stores are
thread-safe, and picklable so that a Spark task can receive one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, runtime_checkable

from compactor.errors import DataError, ObjectExistsError
from compactor.resources.disk import LocalDisk
from compactor.resources.upload_memory import UploadMemory

REQUEST_KINDS: Final = ("get", "head", "list", "put", "post", "delete")
"""The kinds of requests that stores bill."""

MAX_READ_BYTES: Final = 1 << 30
"""The most bytes of an object that is read whole: a version or a checkpoint. No larger one is written."""


def check_size(size_bytes: int, address: str) -> None:
    """Checks an object's size before it is read whole. Raises `DataError` if it is too large."""
    if size_bytes > MAX_READ_BYTES:
        raise DataError(
            f"{address}: {size_bytes:,} bytes, but a file of the log has at most {MAX_READ_BYTES:,}: it is "
            "foreign or damaged"
        )


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as a listing or a HEAD describes it."""

    key: str
    size_bytes: int
    etag: str
    """Changes whenever the content is replaced; opaque otherwise."""
    modified_unix_seconds: float


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A write that was begun and neither completed nor aborted: it runs, or a crash left it."""

    token: str
    """Identifies the upload to its store; opaque."""
    started_unix_seconds: float
    key: str | None = None
    """Key of the object; None where the store keeps no names, and only this program writes."""


class StoreTime(NamedTuple):
    """The time according to a store."""

    unix_ms: int
    is_independent: bool
    """Whether another machine's clock gives it, and so confirms this one's.

    A folder may be on a disk of this machine, and then its time is this machine's.
    """


class ByteStream(Protocol):
    """The forward-only bytes of one GET. Not seekable; use from one thread at a time."""

    size_bytes: int
    """Bytes that this stream delivers in all, from its start offset to the object's end."""
    etag: str

    def read(self, max_bytes: int) -> bytes:
        """Returns up to `max_bytes` (at least 1); b"" only at the end of the object.

        Raises `StoreUnreachableError` if the connection broke, or closed before `size_bytes` were delivered:
        the caller may reopen at the offset reached.
        """
        ...

    def close(self) -> None:
        """Releases the connection at once, even before the end. Idempotent."""
        ...


@runtime_checkable
class Upload(Protocol):
    """One streaming write. Nothing is visible under the key before `complete` returns.

    As a context manager, it aborts when an exception leaves the block.
    """

    @property
    def max_buffered_bytes(self) -> int:
        """The most bytes of memory that it may hold now. May rise in steps as gigabytes are written."""
        ...

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends data. May block while earlier parts are being sent, which is the back-pressure."""
        ...

    def spill(self, disk: LocalDisk) -> None:
        """Moves bytes that are held in memory and not being sent to local disk, if there are any."""
        ...

    def complete(self) -> ObjectInfo:
        """Sends the rest, then makes the object visible atomically, in place of any earlier one.

        Writers use keys that nobody else uses. Raises `UnknownOutcomeError` if the answer to the final
        request was lost.
        """
        ...

    def abort(self) -> None:
        """Drops all that was written. Idempotent, and harmless after `complete`."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class UploadScope:
    """The context manager of all uploads: aborts when an exception leaves the block."""

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


class ReadOnlyStore(Protocol):
    """The part of a store that reading a log needs; `Store` describes the methods."""

    @property
    def url(self) -> str: ...

    def read(self, key: str) -> bytes: ...

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]: ...


class Store(Protocol):
    """Objects under one root: a folder, or a bucket and prefix."""

    @property
    def url(self) -> str:
        """Address of the root, such as `/data/t` or `s3://bucket/prefix`; `open_store` reads it."""
        ...

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> ByteStream:
        """Opens one streamed GET from byte `start` to the end.

        Raises `ObjectNotFoundError`, and `ObjectChangedError` if `if_match` is given and is not the object's
        ETag.
        """
        ...

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> bytes:
        """Reads exactly the bytes [start, start + length), fewer only where the object ends.

        A range wholly past the end gives b"". Raises what `open_stream` raises.
        """
        ...

    def read(self, key: str) -> bytes:
        """Reads a whole object of up to `MAX_READ_BYTES`.

        Raises `ObjectNotFoundError`, and `DataError` for a larger object, before reading it.
        """
        ...

    def head(self, key: str) -> ObjectInfo:
        """Returns what a HEAD says. Raises `ObjectNotFoundError`."""
        ...

    def create(self, key: str, data: bytes) -> ObjectInfo:
        """Creates an object if absent: atomic, and durable when it returns. Sent once, never retried inside.

        Raises `ObjectExistsError` if the key exists, `UnknownOutcomeError` if the request was sent and no
        answer (or a 5xx) came back.
        """
        ...

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> Upload:
        """Starts a streaming (multipart) write to a new key. memory: accounts for the bytes that it holds."""
        ...

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yields objects whose key begins with `prefix`, in UTF-8 byte order of key, lazily paged.

        start_after: yields only greater keys. Unfinished uploads never appear.
        """
        ...

    def delete(self, key: str) -> None:
        """Removes an object; an absent key is not an error."""
        ...

    def time(self) -> StoreTime | None:
        """Returns the store's own time without a request; None if the store has not told it yet."""
        ...

    def list_unfinished(self) -> Iterator[UnfinishedUpload]:
        """Yields uploads under this root that are neither complete nor aborted."""
        ...

    def discard_unfinished(self, upload: UnfinishedUpload) -> None:
        """Drops an upload with its data; no error if it is gone. A running one then fails to complete."""
        ...


def create_own(store: Store, key: str, data: bytes) -> None:
    """Creates an object under a name that nobody else uses.

    If the object exists already, it is this very object: proxies and load balancers may deliver a request
    twice, and the second answer is the one that comes back. Raises what `Store.create` raises, except
    `ObjectExistsError`.
    """
    with contextlib.suppress(ObjectExistsError):
        store.create(key, data)
