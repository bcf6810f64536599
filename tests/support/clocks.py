"""Clocks that tests hold."""

from __future__ import annotations

import time
from typing import Final

from compactor.common.clock import SystemClock

START_MS: Final = 1_700_000_000_000


class SetClock:
    """A clock that stands until it is set, and goes on by what is slept."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def now_unix_ms(self) -> int:
        return self.now_ms

    def sleep(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


class StillClock:
    """A clock that stands, and notes what is slept."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self.slept: list[float] = []

    def now_unix_ms(self) -> int:
        return self._now_ms

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class Time:
    """A clock that goes on by what is slept, and the event that stops a worker at its end."""

    def __init__(self, seconds: float = 3600.0) -> None:
        self.seconds = 1_764_000_000.0
        self.end = self.seconds + seconds

    def now_unix_ms(self) -> int:
        return round(self.seconds * 1000)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def is_set(self) -> bool:
        return self.seconds >= self.end

    def wait(self, seconds: float) -> bool:
        self.sleep(max(seconds, 0.001))
        return self.is_set()


class Ago:
    """A clock of some days ago."""

    def __init__(self, days: float) -> None:
        self._days = days

    def now_unix_ms(self) -> int:
        return int((time.time() - self._days * 86_400) * 1_000)

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits")


class Tomorrow(SystemClock):
    """A clock ahead of any grace period."""

    def now_unix_ms(self) -> int:
        return super().now_unix_ms() + 2 * 86_400_000
