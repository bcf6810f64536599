"""Starts threads. If the machine refuses one, the calling thread does the work."""

from __future__ import annotations

import threading

from compactor.common.shortage import no_thread


def started(thread: threading.Thread) -> bool:
    """Tries to start the thread. Returns whether it started."""
    try:
        thread.start()
    except RuntimeError as error:
        if not no_thread(error):
            raise
        return False
    return True
