"""Unfinished files of an output, which have no name until they are complete.

The kernel removes an unnamed file (`O_TMPFILE`) with its process, so a killed process leaves nothing behind.
A file needs a name before it is published in three cases: the system lacks unnamed files, a file must be
replaced (a link cannot), or an output has more finished files than a process should keep open. Such files are
in a folder `.NAME.<12 digits>.part` beside the output. The owning process locks a file in it, and the kernel
releases the lock when the process ends. The next writer of the output removes folders without an owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import uuid
from pathlib import Path
from typing import IO, Final

MAX_UNNAMED: Final = 64
"""Keep at most this many finished files of one output open without a name; name and close the others."""
_LOCK: Final = "lock"
_NAME_BYTES: Final = 200
_ID: Final = re.compile(r"[0-9a-f]{12}\.part")


class Staging:
    """The unfinished files of one output."""

    def __init__(self, path: Path) -> None:
        """Removes leftovers of dead writers of the same output.

        path: the output's file, or the pattern of its files' names; all are in the same folder.
        """
        name = os.fsencode(path.name)[:_NAME_BYTES].decode(errors="ignore")
        self.folder = path.parent
        self._prefix = f".{name}."
        self._named: _LockedFolder | None = None
        self._unnamed = 0
        _remove_dead(self.folder, self._prefix)

    def create(self) -> StagedFile:
        """Creates an empty file. Raises `OSError`."""
        descriptor = _unnamed_file(self.folder)
        if descriptor is not None:
            return StagedFile(self, os.fdopen(descriptor, "wb"), None)
        name = self.new_name()
        return StagedFile(self, name.open("xb"), name)

    def new_name(self) -> Path:
        """Returns a name in the locked folder, which the first call creates. Raises `OSError`."""
        if self._named is None:
            self._named = _LockedFolder(self.folder, self._prefix)
        return self._named.new_name()

    def reserve_open(self) -> bool:
        """Reserves a place for one more open file. Returns False if the file needs a name instead."""
        if self._unnamed >= MAX_UNNAMED:
            return False
        self._unnamed += 1
        return True

    def release_open(self) -> None:
        """Releases the place of an open file."""
        self._unnamed -= 1

    def close(self) -> None:
        """Removes the locked folder, if any. Call it after all files are closed."""
        if self._named is not None:
            self._named.remove()
        self._named = None


class StagedFile:
    """A file that is written to `file`, then sealed, then published. Methods raise `OSError`."""

    def __init__(self, staging: Staging, file: IO[bytes], name: Path | None) -> None:
        """name: None for an unnamed file."""
        self._staging = staging
        self._name = name
        self._held: int | None = None
        self.file = file

    def seal(self) -> None:
        """Syncs the content to disk and closes `file`."""
        self.file.flush()
        os.fsync(self.file.fileno())
        if self._name is None:
            if self._staging.reserve_open():
                # Libraries may still hold `file`; the duplicate keeps the content out of their reach.
                self._held = os.dup(self.file.fileno())
            else:
                self._get_name(self.file.fileno())
        self.file.close()

    def publish(self, target: Path) -> None:
        """Publishes the sealed file as `target`, replacing any earlier one."""
        if self._name is None:
            assert self._held is not None
            try:
                _link(self._held, target)
            except FileExistsError:
                self._get_name(self._held)
        if self._name is not None:
            self._name.replace(target)

    def close(self) -> None:
        """Removes the file unless it is published."""
        with contextlib.suppress(OSError):  # a full disk cannot take buffered data
            self.file.close()
        held, self._held = self._held, None
        if held is not None:
            os.close(held)
            self._staging.release_open()
        if self._name is not None:
            self._name.unlink(missing_ok=True)

    def _get_name(self, descriptor: int) -> None:
        name = self._staging.new_name()
        _link(descriptor, name)
        self._name = name


class _LockedFolder:
    """A folder of named files, locked while its owning process lives."""

    def __init__(self, beside: Path, prefix: str) -> None:
        while True:
            self._path = beside / f"{prefix}{uuid.uuid4().hex[:12]}.part"
            self._path.mkdir()
            lock = _own_lock(self._path / _LOCK)
            if lock is not None:
                break
        self._lock = lock
        self._names = 0

    def new_name(self) -> Path:
        self._names += 1
        return self._path / str(self._names)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            _remove_all(self._path)
        os.close(self._lock)


def _own_lock(path: Path) -> int | None:
    """Creates and locks a lock file; returns None if another writer mistook the folder for a leftover."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:  # The file system has no locks, so no other writer removes this folder.
        return lock
    if path.exists():
        return lock
    os.close(lock)
    return None


def _remove_dead(folder: Path, prefix: str) -> None:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            is_ours = entry.name.startswith(prefix) and _ID.fullmatch(entry.name[len(prefix) :])
            if is_ours and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _remove_unless_locked(Path(entry.path))


def _remove_unless_locked(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        # Its owner died before it created the lock, or will notice that the folder is gone.
        folder.rmdir()
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_all(folder)
    finally:
        os.close(lock)


def _remove_all(folder: Path) -> None:
    """Removes a folder whose lock the caller holds. Removes the lock last, so that this can be repeated."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name != _LOCK]
    for name in names:
        (folder / name).unlink()
    (folder / _LOCK).unlink()
    folder.rmdir()


def _unnamed_file(folder: Path) -> int | None:
    """Returns a descriptor of a new unnamed file; None if the system lacks these or `/proc`."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None:
        return None
    try:
        descriptor = os.open(folder, flag | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError:  # a named file either works or meets the same error
        return None
    if Path(_place(descriptor)).exists():
        return descriptor
    os.close(descriptor)
    return None


def _link(descriptor: int, name: Path) -> None:
    # Python follows the link only if a folder's descriptor is given, which an absolute path ignores.
    os.link(_place(descriptor), name, src_dir_fd=descriptor, follow_symlinks=True)


def _place(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"
