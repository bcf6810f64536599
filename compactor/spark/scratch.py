"""Scratch folders of local Spark sessions, removed after the process that created them.

Spark removes its own files when it ends. If its JVM is killed, this process removes them; if this process is
killed too, the next one that starts Spark does. A process holds a lock on its folder, which the kernel
releases when the process ends.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_PREFIX: Final = "compactor-spark-"


def scratch_folder() -> str:
    """Returns a new scratch folder, after removing stale ones."""
    remove_stale()
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX)
        lock = _lock(Path(folder))
        # Another process may have removed it as stale before it was locked.
        if lock is not None and Path(folder).exists():
            break
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def remove_stale() -> None:
    """Removes the folders of processes that have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
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
