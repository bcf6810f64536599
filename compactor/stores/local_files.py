"""File system helpers of the local store: durable names, sorted walks, errors that explain."""

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
"""Errors with which a file server leaves open what it did."""


def make_folder(folder: Path) -> None:
    """Creates `folder` and those above it, durably: each is synced into its parent."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync(folder.parent)


@contextlib.contextmanager
def open_unlinked(folder: Path) -> Iterator[int | None]:
    """Yields a descriptor of the folder, by which no name leads out of it; None if missing or a link."""
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
    """Returns a descriptor of the file, for reading.

    Raises `StoreError` for a pipe, a device or a socket. It is opened without waiting, since a pipe would
    wait for its writer, and not read, since some devices never end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a socket, or a device that is not there
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
    """Makes a finished, synced file appear as `path`, durably and only if nothing is there.

    Raises `ObjectExistsError`, and `UnknownOutcomeError` if it appeared but may not last.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        if path.is_dir():
            raise
        # On NFS, a link whose answer was lost is sent again, and then finds itself.
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
    """Makes a finished, synced file appear as `path`, durably, in place of any earlier one.

    Raises `UnknownOutcomeError` if it appeared but may not last.
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
    """Yields files below `folder`, whose keys begin with `base`, in UTF-8 byte order of key.

    Folders are read when their turn comes, and files when they are yielded. What vanishes meanwhile is left
    out.
    """
    for key in _keys_in(folder, base, prefix, start_after):
        path = folder / key[len(base) :]
        if key.endswith("/"):
            yield from walk(path, key, prefix, start_after)
            continue
        with explained(path), contextlib.suppress(FileNotFoundError):
            yield key, path.stat()


def _keys_in(folder: Path, base: str, prefix: str, start_after: str) -> list[str]:
    # A folder sorts as its name with a slash, which is how its keys go on. Python compares str by code
    # points, which is UTF-8 byte order. Filtering before sorting keeps the tail of a long log cheap.
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
    """Turns `OSError`s into store errors that name the path, the cause and what to do.

    absent: the exceptions that mean that the object does not exist.
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
