"""The one interface to object storage: a small Protocol that local folders and S3 both honour.

Keys are relative, `/`-separated, never begin or end with `/`, and never contain `..`.
Every method may raise `PermissionDeniedError` or `StoreUnreachableError`; further errors are
listed with each. Stores are picklable, so that a Spark task can receive one, and thread-safe.
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
"""As stores bill them."""

MAX_READ_BYTES: Final = 1 << 30
"""Of an object that is read whole: a version of a table, or a checkpoint. None is written that is larger."""


def check_size(size_bytes: int, address: str) -> None:
    """Before an object is read whole. Raises `DataError` if it is too large for that."""
    if size_bytes > MAX_READ_BYTES:
        raise DataError(
            f"{address}: {size_bytes:,} bytes where a file of the log has {MAX_READ_BYTES:,} at most: it is "
            "none of this program's, or damaged"
        )


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing or a HEAD tells of an object."""

    key: str
    size_bytes: int
    etag: str
    """Changes whenever the content is replaced; opaque otherwise."""
    modified_unix_seconds: float


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A write that was begun and neither completed nor aborted: running, or left by a crash."""

    token: str
    """By which its store knows it; opaque."""
    started_unix_seconds: float
    key: str | None = None
    """Of the object that it is for; None where the store keeps no names, and only this program writes."""


class StoreTime(NamedTuple):
    """What time a store says it is."""

    unix_ms: int
    is_independent: bool
    """Whether another machine's clock says so, which confirms this one's. A folder may be on a disk of this
    machine, and then its time is this machine's."""


class ByteStream(Protocol):
    """Forward-only bytes of one GET. Not seekable; use from one thread at a time."""

    size_bytes: int
    """Bytes this stream will deliver in all (from its start offset to the object's end)."""
    etag: str

    def read(self, max_bytes: int) -> bytes:
        """Up to `max_bytes` (at least 1); b"" only at the end of the object.

        Raises `StoreUnreachableError` if the connection broke, including when it closed before
        `size_bytes` were delivered: the caller may reopen at the offset reached.
        """
        ...

    def close(self) -> None:
        """Release the connection at once, even before the end. Idempotent."""
        ...


@runtime_checkable
class Upload(Protocol):
    """One streaming write. Nothing is visible under the key before `complete` returns.

    As a context manager, leaving by an exception aborts.
    """

    @property
    def max_buffered_bytes(self) -> int:
        """Bound on the memory held now. It may rise in steps as gigabytes are written."""
        ...

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append. May block while earlier parts are being sent: that is the back-pressure."""
        ...

    def spill(self, disk: LocalDisk) -> None:
        """Puts what is held in memory and not being sent on local disk, as far as there is any."""
        ...

    def complete(self) -> ObjectInfo:
        """Send the rest, then make the object visible atomically, in place of any
        earlier one. Writers use keys nobody else does.

        Raises `UnknownOutcomeError` if the final request's fate is unknown.
        """
        ...

    def abort(self) -> None:
        """Drop all that was written. Idempotent, and harmless after `complete`."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class UploadScope:
    """The context manager all uploads are: leaving by an exception aborts."""

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
    """What reading a log takes of a store; `Store` says what the methods do."""

    @property
    def url(self) -> str: ...

    def read(self, key: str) -> bytes: ...

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]: ...


class Store(Protocol):
    """Objects under one root (a folder, or a bucket and prefix)."""

    @property
    def url(self) -> str:
        """Address of the root, such as `/data/t` or `s3://bucket/prefix`; `open_store` reads it."""
        ...

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> ByteStream:
        """One streamed GET from byte `start` to the end.

        Raises `ObjectNotFoundError`; `ObjectChangedError` if `if_match` is given and is not the
        object's ETag.
        """
        ...

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> bytes:
        """Exactly bytes [start, start + length); shorter only where the object ends.

        A range wholly past the end is b"". Raises as `open_stream` does.
        """
        ...

    def read(self, key: str) -> bytes:
        """The whole object, of up to `MAX_READ_BYTES`. Raises `ObjectNotFoundError`; `DataError` for a larger
        one, before it is read."""
        ...

    def head(self, key: str) -> ObjectInfo:
        """Raises `ObjectNotFoundError`."""
        ...

    def create(self, key: str, data: bytes) -> ObjectInfo:
        """Create-if-absent, atomic and durable when it returns; sent once, never retried inside.

        Raises `ObjectExistsError` if the key exists, `UnknownOutcomeError` if the request was
        sent and no answer (or a 5xx) came back.
        """
        ...

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> Upload:
        """A streaming (multipart) write to a new key, which accounts for what it holds if told where."""
        ...

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects whose key begins with `prefix`, in UTF-8 byte order of key, lazily paged.

        `start_after`: only keys greater than it. Unfinished uploads never appear.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove; deleting an absent key is not an error."""
        ...

    def time(self) -> StoreTime | None:
        """The time by the store's own clock, at the cost of no request; None if it has not told it yet."""
        ...

    def list_unfinished(self) -> Iterator[UnfinishedUpload]:
        """Uploads under this root that are neither complete nor aborted."""
        ...

    def discard_unfinished(self, upload: UnfinishedUpload) -> None:
        """Drop one and all it holds; no error if it is gone. If it still runs, completing it fails."""
        ...


def create_own(store: Store, key: str, data: bytes) -> None:
    """Creates an object under a name that nobody else uses.

    One that is there already is this very object: proxies and load balancers may deliver a request twice,
    and the second answer is the one that comes back. Raises as `Store.create`, but for `ObjectExistsError`.
    """
    with contextlib.suppress(ObjectExistsError):
        store.create(key, data)
