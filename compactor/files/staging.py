"""Unfinished files of an output, which have no name until they are whole.

The kernel removes an unnamed file (`O_TMPFILE`) with the process that writes it, so a killed process leaves
nothing. A file needs a name before it is published in three cases: the system lacks unnamed files, a file is
to be replaced (a link can't do that), or an output has more finished files than a process should keep open.
Such files are in a folder `.NAME.<12 digits>.part` beside the output. Its owner locks a file in it, and the
kernel releases the lock when the owner ends. The next writer of the output removes folders without an owner.
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
"""Finished files of one output that stay open without a name; the rest get names and are closed."""
_LOCK: Final = "lock"
_NAME_BYTES: Final = 200
_ID: Final = re.compile(r"[0-9a-f]{12}\.part")


class Staging:
    """The place of an output's unfinished files."""

    def __init__(self, path: Path) -> None:
        """Removes what dead writers of the same output left.

        path: the output's file, or the pattern of its files' names. They are all in its folder.
        """
        name = path.name.encode()[:_NAME_BYTES].decode(errors="ignore")
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
        """Returns a name in the locked folder, which is created by the first call. Raises `OSError`."""
        if self._named is None:
            self._named = _LockedFolder(self.folder, self._prefix)
        return self._named.new_name()

    def hold(self) -> bool:
        """Counts one more file that stays open. Returns False if it needs a name instead."""
        if self._unnamed >= MAX_UNNAMED:
            return False
        self._unnamed += 1
        return True

    def let_go(self) -> None:
        """Counts one file less that stays open."""
        self._unnamed -= 1

    def close(self) -> None:
        """Removes the locked folder if there is one. Called after all files were closed."""
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
        """Puts the content on disk and closes `file`."""
        self.file.flush()
        os.fsync(self.file.fileno())
        if self._name is None:
            if self._staging.hold():
                # Libraries may still refer to `file`, but no longer reach the content.
                self._held = os.dup(self.file.fileno())
            else:
                self._get_name(self.file.fileno())
        self.file.close()

    def publish(self, target: Path) -> None:
        """Makes the sealed file appear as `target`, in place of any earlier one."""
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
        with contextlib.suppress(OSError):  # A full disk has no room for what a buffer still has.
            self.file.close()
        held, self._held = self._held, None
        if held is not None:
            os.close(held)
            self._staging.let_go()
        if self._name is not None:
            self._name.unlink(missing_ok=True)

    def _get_name(self, descriptor: int) -> None:
        name = self._staging.new_name()
        _link(descriptor, name)
        self._name = name


class _LockedFolder:
    """A folder of named files, which is locked while its owner lives."""

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
    """Creates a lock file and locks it; returns None if another writer took its folder for a dead one's."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:  # The file system has no locks, so no writer can take this one for dead.
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
        # Its owner died before it made the lock, or finds out that the folder is gone.
        folder.rmdir()
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_all(folder)
    finally:
        os.close(lock)


def _remove_all(folder: Path) -> None:
    """Removes a folder whose lock the caller holds. The lock goes last, so that this can be repeated."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name != _LOCK]
    for name in names:
        (folder / name).unlink()
    (folder / _LOCK).unlink()
    folder.rmdir()


def _unnamed_file(folder: Path) -> int | None:
    """Returns a descriptor of a new file without a name; None if the system lacks such files or `/proc`."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None:
        return None
    try:
        descriptor = os.open(folder, flag | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError:  # Whatever it is, a file with a name meets it too, or does without.
        return None
    if Path(_place(descriptor)).exists():
        return descriptor
    os.close(descriptor)
    return None


def _link(descriptor: int, name: Path) -> None:
    # Only with a descriptor for a folder, which an absolute path ignores, does Python follow the link.
    os.link(_place(descriptor), name, src_dir_fd=descriptor, follow_symlinks=True)


def _place(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"
