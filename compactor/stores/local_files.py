"""File system helpers of the local store: durable links and renames, sorted walks, clear errors."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from compactor.common.system_errors import cause_and_advice
from compactor.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    PermissionDeniedError,
    StoreError,
    UnknownOutcomeError,
)
from compactor.stores.keys import HIDDEN_FOLDER, is_text

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV})
_UNANSWERED: Final = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT})
"""Errors after which the outcome on a file server is unknown."""


def make_folder(folder: Path) -> None:
    """Creates `folder` and its parents durably: syncs each new entry."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync(folder.parent)


@contextlib.contextmanager
def open_unlinked(folder: Path) -> Iterator[int | None]:
    """Yields a descriptor of the folder for access without following links; None if missing or a link."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR) or not folder.is_symlink():
            raise
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_regular(path: Path) -> int:
    """Opens a regular file for reading and returns its descriptor.

    Raises `StoreError` for a pipe, a device or a socket: a pipe would block until it has a writer, and some
    devices never end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a socket, or an absent device
            raise
        raise _no_object(path) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError
    raise _no_object(path)


def _no_object(path: Path) -> StoreError:
    return StoreError(
        f"{path}: it is a pipe, a device or a socket, but objects are regular files: remove it"
    )


def link_new(temporary: Path, path: Path) -> None:
    """Publishes a complete, synced file as `path`, durably and only if absent.

    Raises `ObjectExistsError`, and `UnknownOutcomeError` if the new name may not be durable.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        if path.is_dir():
            raise
        # NFS resends a link request whose answer was lost, and the second one finds the first one's link.
        if not path.samefile(temporary):
            raise ObjectExistsError(f"{path}: it exists already") from None
    except OSError as error:
        if error.errno in _UNANSWERED:
            raise UnknownOutcomeError(
                f"{path}: it may have been written all the same ({error.strerror}): look before trying again"
            ) from error
        if error.errno not in _NO_LINKS:
            raise
        raise StoreError(
            f"{path}: its folder allows no hard links ({error.strerror}), by which objects are created "
            "atomically: choose a folder on another file system"
        ) from error
    with _durability_explained(path):
        temporary.unlink()
        _sync(path.parent)


def rename_over(temporary: Path, path: Path) -> None:
    """Publishes a complete, synced file as `path`, durably, replacing any earlier one.

    Raises `UnknownOutcomeError` if the new name may not be durable.
    """
    temporary.replace(path)
    with _durability_explained(path):
        _sync(path.parent)


@contextlib.contextmanager
def _durability_explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnknownOutcomeError(
            f"{path}: it was written, but may not outlast a power cut ({error.strerror}): check the disk"
        ) from error


def walk(
    folder: Path, base: str, prefix: str, start_after: str
) -> Iterator[tuple[str, os.stat_result]]:
    """Yields files below `folder`, whose keys begin with `base`, in UTF-8 byte order of keys.

    Reads folders and files lazily, and omits those that vanish meanwhile.
    """
    for key in _keys_in(folder, base, prefix, start_after):
        path = folder / key[len(base) :]
        if key.endswith("/"):
            yield from walk(path, key, prefix, start_after)
            continue
        with explained(path), contextlib.suppress(FileNotFoundError):
            yield key, path.stat()


def _keys_in(folder: Path, base: str, prefix: str, start_after: str) -> list[str]:
    # A folder sorts as its name plus a slash, since its keys continue so. Python's str order is code point
    # order, which equals UTF-8 byte order. Filtering before sorting keeps the tail of a long log cheap.
    keys = []
    with (
        explained(folder),
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        os.scandir(folder) as entries,
    ):
        for entry in entries:
            key = f"{base}{entry.name}"
            if entry.is_dir():
                key += "/"
                begun = key.startswith(prefix) or prefix.startswith(key)
                later = key > start_after or start_after.startswith(key)
            else:
                begun, later = key.startswith(prefix), key > start_after
            if begun and later and key != f"{HIDDEN_FOLDER}/" and is_text(entry.name):
                keys.append(key)
    keys.sort()
    return keys


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explained(path: Path, *, absent: tuple[type[OSError], ...] = ()) -> Iterator[None]:
    """Turns `OSError`s into store errors with path, cause and advice.

    absent: the exceptions that mean an absent object.
    """
    try:
        yield
    except absent:
        raise ObjectNotFoundError(f"{path}: no such object") from None
    except PermissionError as error:
        raise PermissionDeniedError(
            f"{path}: permission denied: check owner and mode of the file and its folders"
        ) from error
    except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
        raise StoreError(
            f"{path}: a file is where a folder belongs, or the other way round: choose another folder"
        ) from error
    except OSError as error:
        if error.errno == errno.EROFS:
            raise PermissionDeniedError(
                f"{path}: the file system is read-only: choose another folder"
            ) from error
        raise StoreError(f"{path}: {cause_and_advice(error)}") from error
