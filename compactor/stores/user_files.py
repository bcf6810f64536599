"""Reads and writes users' files that are objects of a store: one GET, and one PUT or multipart upload."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import IO, Final, cast

from compactor.errors import InputError, ObjectChangedError, ObjectNotFoundError, UsageError
from compactor.files.places import Addresses, Bytes, OnceBytes, Place, Unfinished
from compactor.resources.disk import LocalDisk
from compactor.stores.base import ObjectInfo, Store, Upload, UploadFile
from compactor.stores.keys import check_key
from compactor.stores.open import has_objects, open_store
from compactor.stores.resume import ResumingStream

WILDCARDS: Final = frozenset("*?[")
_READ_BYTES: Final = 1 << 20
"""Read up to this much where the caller wants everything at once."""


@cache
def stored_files(scheme: str) -> StoredFiles | None:
    """Returns the objects of a scheme as files, the same at each call; None if no store has the scheme."""
    return StoredFiles(scheme) if has_objects(scheme) else None


class StoredFiles(Addresses):
    """The objects of a scheme's buckets as files."""

    def __init__(self, scheme: str) -> None:
        """scheme: such as `s3`."""
        self._start = f"{scheme}://"
        self._stores: dict[str, Store] = {}
        self._disk = LocalDisk()

    def place(self, address: str) -> Place:
        store, key = self._split(address)
        try:
            return _Object(store, key, address, store.head(key))
        except ObjectNotFoundError:
            raise InputError(f"{address}: no such object: check the address") from None

    def matching(self, pattern: str) -> list[str]:
        bucket, _, key = pattern.removeprefix(self._start).partition("/")
        parts = key.split("/")
        fixed = next((n for n, part in enumerate(parts) if WILDCARDS & set(part)), None)
        if fixed is None:
            return [pattern]
        store = self._store(bucket)
        # `?` and `#` are refused in addresses, so list at the bucket.
        start = "/".join([*parts[:fixed], _before_magic(parts[fixed])])
        found = []
        for info in store.list(start):
            if info.key == key:  # As with files, the object of that very name comes first.
                return [pattern]
            if _matches(info.key.split("/"), parts):
                found.append(f"{self._start}{bucket}/{info.key}")
        return found

    def check_target(self, address: str) -> None:
        self._split(address)

    def create(self, address: str) -> Unfinished:
        store, key = self._split(address)
        return _UnfinishedObject(store.start_upload(key), self._disk)

    def _split(self, address: str) -> tuple[Store, str]:
        bucket, _, key = address.removeprefix(self._start).partition("/")
        store = self._store(bucket)  # refuses an address with a secret in it without repeating it
        if not key or key.endswith("/"):
            raise UsageError(
                f"{address}: names no object; write {self._start}bucket/folder/name.csv"
            )
        return store, check_key(key)

    def _store(self, bucket: str) -> Store:
        """Returns the store of a bucket: one for all its files, so that they share connections."""
        if bucket not in self._stores:
            self._stores[bucket] = open_store(f"{self._start}{bucket}")
        return self._stores[bucket]


def _before_magic(part: str) -> str:
    return part[: min(part.index(mark) for mark in WILDCARDS if mark in part)]


def _matches(key: list[str], parts: list[str]) -> bool:
    """Returns whether a key matches a pattern, folder by folder, as file names do."""
    return len(key) == len(parts) and all(map(fnmatchcase, key, parts))


class _Object(Place):
    """An object of a known version."""

    def __init__(self, store: Store, key: str, address: str, info: ObjectInfo) -> None:
        self._store = store
        self._key = key
        self._address = address
        self._etag = self.version = info.etag
        self.size_bytes = info.size_bytes

    def open(self) -> Bytes:
        return OnceBytes(self._opened)

    def _opened(self) -> _ObjectBytes:
        stream = ResumingStream(self._store, self._key)
        if stream.etag != self._etag:
            stream.close()
            raise self._replaced()
        return _ObjectBytes(stream)

    def read(self, start: int, length: int, /) -> bytes:
        try:
            return self._store.read_range(self._key, start, length, if_match=self._etag)
        except ObjectChangedError:
            raise self._replaced() from None

    def _replaced(self) -> InputError:
        return InputError(f"{self._address}: was replaced while it was read: run again")


class _ObjectBytes:
    """One GET of an object, which resumes where its connection breaks."""

    def __init__(self, stream: ResumingStream) -> None:
        self._stream = stream

    def read(self, size: int = -1, /) -> bytes:
        pieces, left = [], size
        while left and (data := self._stream.read(_READ_BYTES if left < 0 else left)):
            pieces.append(data)
            left = max(-1, left - len(data)) if left > 0 else left
        return b"".join(pieces)

    def close(self) -> None:
        self._stream.close()


class _UnfinishedObject(Unfinished):
    """An upload, which shows the object when it is completed."""

    def __init__(self, upload: Upload, disk: LocalDisk) -> None:
        self._upload = upload
        self._disk = disk
        self.file = cast("IO[bytes]", UploadFile(upload))

    def seal(self) -> None:
        """Puts what is not sent yet on local disk: an output may have thousands of files."""
        self.file.close()
        self._upload.spill(self._disk)

    def publish(self) -> None:
        self._upload.complete()

    def close(self) -> None:
        self.file.close()
        self._upload.abort()
