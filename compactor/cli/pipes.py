"""Lets the reader of stdout or stderr leave early, as `head` does: further output is discarded.

A broken pipe of a socket or of another file stays an error.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Stream(io.FileIO):
    """The raw file under standard output or error."""

    has_reader = True

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self.has_reader = False
            self._redirect_to_devnull()
            return memoryview(data).nbytes
        except OSError:
            self._redirect_to_devnull()  # otherwise flushing the buffers fails again when the process ends
            raise

    def _redirect_to_devnull(self) -> None:
        # Redirects the descriptor, since libraries and child processes write to it.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def tolerate_closed_pipes() -> None:
    """Lets a command complete its work when the reader of its output leaves.

    Commands that only print rows poll `has_reader` and stop.
    """
    _reserve_numbers()
    sys.stdout, sys.stderr = _tolerant(sys.stdout), _tolerant(sys.stderr)


def _reserve_numbers() -> None:
    """Opens the null device for standard output or error that the process was started without: a file would
    get its number otherwise, and with it what libraries print."""
    for number in (1, 2):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)


def has_reader() -> bool:
    """Returns False once a write to stdout has failed for lack of a reader."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return not isinstance(raw, _Stream) or raw.has_reader


def _tolerant(stream: TextIO) -> TextIO:
    # The process may have been started without the stream, or a caller may have replaced it.
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    with contextlib.suppress(OSError):  # printing will report the error
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Stream(stream.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )
