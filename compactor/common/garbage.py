"""Exempts existing objects from Python's garbage collector while some work runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

_claim: Final = Lock()
"""Held while objects are frozen; asking the collector instead takes milliseconds."""


def freeze_for_good() -> None:
    """Freezes all existing objects until the process ends."""
    _claim.acquire(blocking=False)
    gc.freeze()


@contextmanager
def older_objects_left_alone() -> Iterator[None]:
    """Freezes existing objects while the block runs, so that the collector scans only new ones.

    Work that allocates many objects triggers full collections, and these would scan the process's long-lived
    objects again and again: modules alone are a hundred thousand. Objects frozen by others stay frozen.
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
