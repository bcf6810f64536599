"""Turns SIGTERM into KeyboardInterrupt, so that commands clean up when they are terminated."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def terminated_as_interrupted() -> Iterator[Callable[[], bool]]:
    """Raises KeyboardInterrupt on SIGTERM while the block runs: removes unfinished outputs, releases leases.

    Yields a function that returns whether a signal arrived, since an interrupted call to Spark may raise
    another exception. `watch` installs its own handlers.
    """
    told: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def interrupt(number: int, _frame: Any) -> None:
        told.append(number)
        raise KeyboardInterrupt

    before = [(number, signal.signal(number, interrupt)) for number in _SIGNALS]
    try:
        yield lambda: bool(told)
    finally:
        for number, handler in before:
            signal.signal(number, handler)
