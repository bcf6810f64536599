"""Starts Spark's JVM so that it can be interrupted, and reads what the JVM writes on stderr."""

from __future__ import annotations

import atexit
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from compactor.common import interrupts
from compactor.common.logs import is_json

log = logging.getLogger(__name__)
_KEPT_LINES: Final = 50
"""Show at most this many of the newest lines of a start that failed."""
_TERM_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 0.05
_MAX_DRAIN_SECONDS: Final = 2.0
_BEGINS_TRACEBACK: Final = "Traceback (most recent call last):"
_HUNG_UP: Final = ("ConnectionResetError:", "BrokenPipeError:")


class JvmStart:
    """The start of a JVM, which PySpark makes by calling `popen`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lines = _Lines()

    def popen(self, command: Any, **options: Any) -> subprocess.Popen[bytes]:
        """Starts the process, with its stderr in a pipe that is read until this process ends."""
        reading, writing = os.pipe()
        try:
            # Interrupted before it returns, it would leave a process that nobody knows.
            with interrupts.deferred():
                self._process = subprocess.Popen(command, stderr=writing, **options)
        finally:
            os.close(writing)
            self._lines.read(reading)
        return self._process

    def succeeded(self) -> None:
        """Drops what the JVM wrote while it started, such as warnings of its options; the rest is shown."""
        self._lines.let_through(shows_kept=False)

    def failed(self) -> None:
        """Shows what the JVM wrote, which says why it did not start."""
        self._lines.let_through(shows_kept=True)

    def kill(self) -> None:
        """Ends the process, by force if it does not end at once."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_TERM_SECONDS)
        self._process.kill()
        self._process.wait()


@contextmanager
def starting_jvm() -> Iterator[None]:
    """Lets the block start Spark's JVM, and ends that if the block is interrupted.

    Keeps the signal handlers, which Spark replaces. Lines of the JVM's stderr are log lines where those are
    JSON. Otherwise they are shown from when it has started, all of them if it does not start or
    COMPACTOR_SPARK_LOG asks for them.
    """
    from pyspark import java_gateway

    start, gateway = JvmStart(), vars(java_gateway)
    before = gateway["Popen"]
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    # PySpark tells nobody which process it starts before that has started.
    gateway["Popen"] = start.popen
    try:
        yield
        interrupts.check()
    except KeyboardInterrupt:
        start.kill()
        raise
    except BaseException:
        start.failed()
        raise
    else:
        start.succeeded()
    finally:
        gateway["Popen"] = before
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers:
                signal.signal(number, handler)


class _Lines:
    """The lines that a JVM and its child processes write on stderr."""

    def __init__(self) -> None:
        self._kept: deque[str] = deque(maxlen=_KEPT_LINES)
        self._lock = threading.Lock()
        self._are_shown = is_json() or "COMPACTOR_SPARK_LOG" in os.environ

    def read(self, reading: int) -> None:
        """Begins to read lines, until this process ends."""
        thread = threading.Thread(target=self._read, args=(reading,), name="jvm-lines", daemon=True)
        thread.start()
        atexit.register(_drain, reading, thread)

    def let_through(self, *, shows_kept: bool) -> None:
        with self._lock:
            for line in self._kept if shows_kept else ():
                _show(line)
            self._kept.clear()
            self._are_shown = True

    def _read(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace", closefd=False) as lines:
            for line in lines if "COMPACTOR_SPARK_LOG" in os.environ else _without_hang_ups(lines):
                with self._lock:
                    if self._are_shown:
                        _show(line)
                    else:
                        self._kept.append(line)


def _without_hang_ups(lines: Iterable[str]) -> Iterator[str]:
    """The lines without what PySpark's daemon says when Spark hangs up on a process that it just asked for.

    Spark does so whenever it gives up a stage, as the other tasks of that stage are not needed. The daemon
    takes it for an error and writes a traceback, although nothing is wrong.
    """
    held: list[str] = []
    for line in lines:
        if held or line.rstrip() == _BEGINS_TRACEBACK:
            held.append(line)
            if len(held) > 1 and not line.startswith(" "):
                if not (line.startswith(_HUNG_UP) and "pyspark/daemon.py" in "".join(held)):
                    yield from held
                held = []
        else:
            yield line
    yield from held


def _show(line: str) -> None:
    """Writes a line on stderr, as JSON where log lines are. A line of JSON comes from a task and stays as it
    is."""
    if not is_json() or line.startswith("{"):
        sys.stderr.write(line)
        sys.stderr.flush()
    elif line.strip():
        log.info("spark says", extra={"reason": line.rstrip("\n")})


def _drain(reading: int, thread: threading.Thread) -> None:
    """Waits until all output is shown."""
    deadline = time.monotonic() + _MAX_DRAIN_SECONDS
    while thread.is_alive() and time.monotonic() < deadline:
        if not select.select([reading], [], [], _QUIET_SECONDS)[0]:
            return
        time.sleep(_QUIET_SECONDS / 5)
