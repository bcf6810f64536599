"""Distinguishes errors of the machine, out of memory or threads, from errors in the data."""

from __future__ import annotations

import errno
import mmap
from collections.abc import Iterator
from typing import Final

OF_MEMORY: Final = "there is not enough memory: give the process more, or a lower --memory-limit"
OF_THREADS: Final = (
    "no thread can be started: raise the limit (`ulimit -u`, or the container's pids limit)"
)
_MEMORY_TEXTS: Final = (
    "bad_alloc",
    "allocation error : not enough memory",
    "alloc of size",
    "failed to map segment",
    "can't load unicodedata",
)
_WITHOUT_KIND: Final = {"ImportError", "OSError", "RuntimeError", "SyntaxError", "ArrowException"}
"""Match these classes by message. Other classes may quote the user's values in theirs."""
_ROOM_BYTES: Final = 64 << 20
_THREAD_TEXTS: Final = ("can't start new thread", "failed to launch worker thread")


def shortage(error: BaseException) -> str | None:
    """Returns the cause and the advice if the error comes from a lack of memory or threads; else None.

    An exception that was raised while such an error was being handled counts as that error.
    """
    return next(filter(None, map(_shortage, _causes(error))), None)


def no_thread(error: BaseException) -> bool:
    """Returns whether the error means that a thread could not start."""
    return _shortage(error) == OF_THREADS


def _shortage(error: BaseException) -> str | None:
    if isinstance(error, MemoryError):
        return OF_MEMORY
    if isinstance(error, OSError) and error.errno is not None:
        return OF_MEMORY if error.errno == errno.ENOMEM else None
    if isinstance(error, SystemError):  # some libraries fail without setting an exception
        return None if _has_room() else OF_MEMORY
    if type(error).__name__ not in _WITHOUT_KIND:
        return None
    text = str(error).lower()
    if any(known in text for known in _THREAD_TEXTS):
        return OF_THREADS
    return OF_MEMORY if any(known in text for known in _MEMORY_TEXTS) else None


def check_room(size: int) -> None:
    """Raises MemoryError unless `size` bytes of address space are free.

    Call it before loading libraries that crash when they find none.
    """
    try:
        mmap.mmap(-1, size, prot=mmap.PROT_READ).close()
    except OSError as error:
        raise MemoryError from error


def _has_room() -> bool:
    try:
        check_room(_ROOM_BYTES)
    except MemoryError:
        return False
    return True


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        if error.__cause__ is not None or error.__suppress_context__:
            error = error.__cause__
        else:
            error = error.__context__
