"""SIGTERM as Ctrl-C: commands tidy up when they are interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def terminated_as_interrupted() -> Iterator[Callable[[], bool]]:
    """SIGTERM is Ctrl-C: what is unfinished goes, leases are given up. `watch` has handlers of its own.

    Yields what says whether either came: a call to Spark that is interrupted may fail in other words.
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
