"""Turns SIGINT and SIGTERM into `KeyboardInterrupt`, once, wherever they arrive.

Python runs a signal's handler between two steps of the main thread. Where that step belongs to a finalizer
(`__del__`, such as a reservation's) or a callback of C code, Python drops what the handler raises, and the
program would go on. So long work calls `check`, which raises what was dropped, and steps that cannot be
undone run `deferred`.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_told: list[int] = []
"""The signals that arrived during the current `delivered`."""
_dropped: list[int] = []
"""Those of them that Python has dropped, and `check` has not raised since."""


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def delivered() -> Iterator[Callable[[], bool]]:
    """Raises KeyboardInterrupt on SIGINT and SIGTERM while the block runs; see `check`.

    Yields a function that returns whether a signal arrived, since an interrupted call to Spark may raise
    another exception. `watch` installs its own handlers.
    """
    if not _is_main_thread():
        yield lambda: False
        return

    def interrupt(number: int, _frame: Any) -> None:
        _told.append(number)
        raise KeyboardInterrupt

    dropped_before = sys.unraisablehook

    def dropped(what: Any, /) -> None:
        if what.exc_type is KeyboardInterrupt and _told:
            _dropped.append(_told[-1])
        else:
            dropped_before(what)

    _forget()
    sys.unraisablehook = dropped
    before = [(number, signal.signal(number, interrupt)) for number in _SIGNALS]
    try:
        yield lambda: bool(_told)
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        sys.unraisablehook = dropped_before
        _forget()


def _forget() -> None:
    _told.clear()
    _dropped.clear()


def check() -> None:
    """Raises KeyboardInterrupt if a signal has arrived and Python has dropped what it raised."""
    if _dropped and _is_main_thread():
        _dropped.clear()
        raise KeyboardInterrupt


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Defers SIGINT and SIGTERM until the block ends: it must run whole or not at all.

    A second signal is not deferred. Restores the handlers on exit, because Spark replaces them.
    """
    if not _is_main_thread():
        yield
        return
    signals: list[int] = []

    def note(number: int, _frame: Any) -> None:
        signals.append(number)
        if len(signals) > 1:
            raise KeyboardInterrupt

    before = [(number, signal.signal(number, note)) for number in _SIGNALS]
    try:
        if _told:
            raise KeyboardInterrupt
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        if signals:
            signal.raise_signal(signals[0])
