"""The time of a server, from what its answers say."""

from __future__ import annotations

import time


class ServerClock:
    """The time of an answer plus the time since."""

    def __init__(self) -> None:
        self._seen: tuple[float, float] | None = None
        """The time in an answer in Unix seconds, and the monotonic time at which it arrived."""

    def see(self, unix_seconds: float) -> None:
        self._seen = unix_seconds, _uptime_seconds()

    def now_unix_ms(self) -> int | None:
        """Returns the server's time; None before the first answer."""
        if self._seen is None:
            return None
        seen, seen_at = self._seen
        return round((seen + _uptime_seconds() - seen_at) * 1000)


def _uptime_seconds() -> float:
    """Returns monotonic seconds, including time asleep where the system offers such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
