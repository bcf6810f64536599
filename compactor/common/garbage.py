"""Has Python's collector of garbage leave alone what was there before some work."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def older_objects_left_alone() -> Iterator[None]:
    """Has the collector look only at objects that are made while the block runs, or after it.

    Work that makes many objects has it look at all there are, and those of the process mostly stay: modules
    alone are a hundred thousand. If somebody has frozen objects already, they stay as they are.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
