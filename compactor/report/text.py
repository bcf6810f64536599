"""Formats numbers for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from compactor.common.ranges import range_text
from compactor.planner.spread import Spread

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def bytes_text(count: float, *, binary: bool = False) -> str:
    """Formats a size, such as `1.5 MB`, or `1 MiB` if binary."""
    base, power = (1024 if binary else 1000), 0
    value = float(count)
    while abs(value) >= base and power < len(_UNITS) - 1:
        value, power = value / base, power + 1
    unit = _UNITS[power]
    if binary and power:
        unit = f"{unit[0].upper()}iB"
    digits = 0 if not power or binary else 1
    return f"{value:,.{digits}f} {unit}"


def when_text(unix_ms: int) -> str:
    """Formats a time to the second, in UTC."""
    try:
        moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms since 1970"  # a year beyond Python's range
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def window_text(window: int | None, window_seconds: int) -> str:
    """Formats the start of a time window, as a date if windows are whole days. None: rows without a time."""
    if window is None:
        return "no time"
    begin = when_text(window * window_seconds * 1000)
    return begin.removesuffix(" 00:00:00 UTC") if window_seconds % 86_400 == 0 else begin


def seconds_text(seconds: float) -> str:
    if 0 < seconds < 0.005:
        return "<0.01 s"
    return f"{seconds:,.2f} s" if seconds < 100 else f"{seconds:,.0f} s"


def seconds_range(spread: Spread) -> str:
    """Formats predicted seconds, such as `0.60 to 0.80 s`."""
    return range_text(seconds_text(spread.low), seconds_text(spread.high))
