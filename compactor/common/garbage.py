"""Has Python's collector of garbage leave alone what is there before some work."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

_claim: Final = Lock()
"""Held by whoever has frozen objects. To ask the collector whether any are takes milliseconds if so."""


def leave_alone_for_good() -> None:
    """Has the collector leave all objects alone that there are, until the process ends."""
    _claim.acquire(blocking=False)
    gc.freeze()


@contextmanager
def older_objects_left_alone() -> Iterator[None]:
    """Has the collector look only at objects that are made while the block runs, or after it.

    Work that makes many objects has it look at all there are, and those of the process mostly stay: modules
    alone are a hundred thousand. If somebody has frozen objects already, they stay as they are.
    """
    if not _claim.acquire(blocking=False):
        yield
        return
    try:
        if gc.get_freeze_count():  # by another library
            yield
            return
        gc.freeze()
        try:
            yield
        finally:
            gc.unfreeze()
    finally:
        _claim.release()
