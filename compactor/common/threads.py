"""Starts threads where the machine gives any. Where it does not, work goes on in the calling thread."""

from __future__ import annotations

import threading

from compactor.common.shortage import no_thread


def started(thread: threading.Thread) -> bool:
    """Starts the thread. Returns whether it could."""
    try:
        thread.start()
    except RuntimeError as error:
        if not no_thread(error):
            raise
        return False
    return True
