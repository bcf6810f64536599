"""Forwards the stderr of a JVM that this process starts, as JSON log lines."""

from __future__ import annotations

import atexit
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from compactor.common.logs import is_json

log = logging.getLogger(__name__)
_STDERR: Final = 2
_QUIET_SECONDS: Final = 0.05
_MAX_DRAIN_SECONDS: Final = 2.0


@contextmanager
def jvm_lines_as_log_lines() -> Iterator[None]:
    """Redirects the stderr of a JVM started in the block to a pipe, if log lines are JSON.

    Its lines, and those of its child processes, are read until this process ends. Lines that are JSON come
    from tasks and stay unchanged.
    """
    if not is_json():
        yield
        return
    reading, writing = os.pipe()
    kept = os.dup(_STDERR)
    os.dup2(writing, _STDERR)
    os.close(writing)
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
        thread = threading.Thread(target=_pass_on, args=(reading,), name="jvm-lines", daemon=True)
        thread.start()
        atexit.register(_drain, reading, thread)


def _pass_on(reading: int) -> None:
    with open(reading, encoding="utf-8", errors="replace", closefd=False) as lines:
        for line in lines:
            if line.startswith("{"):
                sys.stderr.write(line)
                sys.stderr.flush()
            elif line.strip():
                log.info("spark says", extra={"reason": line.rstrip("\n")})


def _drain(reading: int, thread: threading.Thread) -> None:
    """Waits until all output is forwarded."""
    deadline = time.monotonic() + _MAX_DRAIN_SECONDS
    while thread.is_alive() and time.monotonic() < deadline:
        if not select.select([reading], [], [], _QUIET_SECONDS)[0]:
            return
        time.sleep(_QUIET_SECONDS / 5)
