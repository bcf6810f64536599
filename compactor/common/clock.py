"""Time and unique names, injected so that tests control them."""

from __future__ import annotations

import time
import uuid
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """Tells the wall time and waits."""

    def now_unix_ms(self) -> int: ...

    def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    """Makes unique names."""

    def __call__(self) -> str: ...


class SystemClock:
    def now_unix_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def random_id() -> str:
    """Returns 32 random hex digits."""
    return uuid.uuid4().hex
