"""Scratch folders of libraries that name their own files, removed after the process that created them.

A process removes its folders when it no longer needs them. If it is killed, the next process that makes one
of the same prefix does. A process holds a lock on its folder, which the kernel releases when the process
ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path


class ScratchFolder:
    """A folder for temporary files."""

    def __init__(self, prefix: str, directory: str | None = None) -> None:
        """Removes stale folders first. Raises `OSError`.

        directory: the folder in which it is made; by default that for temporary files.
        """
        remove_stale(prefix, directory)
        while True:
            self.path = tempfile.mkdtemp(prefix=prefix, dir=directory)
            lock = _lock(Path(self.path))
            # Another process may have removed it as stale before it was locked.
            if lock is not None and Path(self.path).exists():
                self._lock = lock
                return

    def has_files(self) -> bool:
        return any(Path(self.path).iterdir())

    def close(self) -> None:
        """Removes the folder with its files. Call it once."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_stale(prefix: str, directory: str | None = None) -> None:
    """Removes the folders of processes that have ended."""
    for folder in Path(directory or tempfile.gettempdir()).glob(f"{prefix}*"):
        lock = _lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """Returns a descriptor that holds the folder's lock; None if another process or user holds it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_uid == os.getuid():
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
