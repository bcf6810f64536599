"""Standard output and error whose reader may leave, as `head` does: what follows goes nowhere.

Only these two are treated so. A broken pipe of a socket or of another file stays an error.
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
            self._lead_nowhere()
            return memoryview(data).nbytes
        except OSError:
            self._lead_nowhere()  # or what buffers still hold fails again when the process ends
            raise

    def _lead_nowhere(self) -> None:
        # By its descriptor, since libraries and child processes write to that.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def let_readers_leave() -> None:
    """Makes a command go on when the reader of its output leaves, so that its work is done as with a reader.

    Commands that only print rows ask `has_reader` when to stop.
    """
    sys.stdout, sys.stderr = _patient(sys.stdout), _patient(sys.stderr)


def has_reader() -> bool:
    """Returns False once a write has shown that nothing reads standard output any more."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return not isinstance(raw, _Stream) or raw.has_reader


def _patient(stream: TextIO) -> TextIO:
    # None or another kind of stream where the process was started without one, or a caller set its own.
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    with contextlib.suppress(OSError):  # what is in the way shows when something is printed
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Stream(stream.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )
