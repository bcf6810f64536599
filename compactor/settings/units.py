"""Parses durations, sizes and times as users write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from compactor.common.clock import Clock

_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(
    r"(\d+(?:\.\d+)?) ?(s|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)", re.ASCII
)
_LONGEST_SECONDS: Final = 10_000 * 365 * 86_400
MAX_WINDOW_SECONDS: Final = (2**63 - 1) // 10**9
"""Maximum time window, 292 years: its nanoseconds fit into 64 bits."""
_FIRST_UNIX_MS: Final = -62_135_596_800_000
"""Start of the year 1, the earliest time that `datetime` holds."""
_MAX_CHARACTERS: Final = 60
_SIZE: Final = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kmgt]i?)?b?", re.IGNORECASE | re.ASCII)


def duration_seconds(text: str, min_seconds: int = 0, max_seconds: int = _LONGEST_SECONDS) -> float:
    """Parses `90s`, `15m`, `6 hours`, `7d`, `2w` or `0`. Raises ValueError with the correct form."""
    match = _DURATION.fullmatch(text.strip())
    if match is None and text.strip() != "0":
        raise ValueError(f"{_shown(text)} is not a duration; write 90s, 15m, 6h, 7d or 2w")
    seconds = float(match[1]) * _UNIT_SECONDS[match[2][0]] if match else 0.0
    if seconds > max_seconds:
        longest = max_seconds // _UNIT_SECONDS["d"]
        raise ValueError(f"{_shown(text)} is too long: {longest}d at most")
    if seconds < min_seconds:
        raise ValueError(f"{_shown(text)} is too short: at least {min_seconds}s")
    return seconds


def duration_text(seconds: float) -> str:
    """Formats seconds in the largest unit that gives at least 2: `25h`, `15m`; see `duration_seconds`."""
    units = [(unit, size) for unit, size in _UNIT_SECONDS.items() if unit != "w"]
    unit, size = next(((u, s) for u, s in reversed(units) if seconds >= 2 * s), units[0])
    return f"{seconds / size:,.0f}{unit}"


def exact_duration_text(seconds: float) -> str:
    """Formats seconds exactly, in the largest unit that divides them and gives at least 2."""
    units = [(unit, size) for unit, size in reversed(_UNIT_SECONDS.items()) if unit != "w"]
    for unit, size in units:
        if seconds >= 2 * size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{Decimal(repr(float(seconds))).normalize():f}s"


def size_bytes(text: str) -> int:
    """Parses a size such as `512MiB`, `2Gi`, `1.5GB`, `100k` or a number of bytes, and returns the bytes.

    Units with an i are powers of 1024, others powers of 1000. Case and a final B are ignored.
    Raises ValueError with the correct form.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{_shown(text)} is not a size; write 512MiB, 2GiB or a number of bytes")
    unit = (match[2] or "").lower()
    base = 1024 if unit.endswith("i") else 1000
    return round(Decimal(match[1]) * Decimal(base) ** " kmgt".index(unit[0] if unit else " "))


def bytes_per_second(text: str) -> int:
    """Parses a rate such as `20MiB/s` or a number of bytes. Raises ValueError as `size_bytes` does."""
    try:
        return size_bytes(text.removesuffix("/s"))
    except ValueError:
        raise ValueError(f"{_shown(text)} is not a rate; write 20MiB/s or 10GiB/s") from None


def size_text(count: int) -> str:
    """Formats bytes exactly, in the largest unit that divides them: `512MiB`; see `size_bytes`."""
    units = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
    unit = next((unit for unit, size in units.items() if count >= size and count % size == 0), "")
    return f"{count // units.get(unit, 1)}{unit}"


def moment_unix_ms(text: str, clock: Clock) -> int:
    """Parses an ISO 8601 time (UTC without a zone), or a duration before now, into Unix milliseconds.

    Raises ValueError with the correct form.
    """
    if _DURATION.fullmatch(text):
        return _since_year_1(clock.now_unix_ms() - round(duration_seconds(text) * 1000), text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{_shown(text)} is not a time; write 2026-11-21T08:30:00Z, or 15m for 15 minutes ago"
        ) from None
    return unix_ms(moment)


def unix_ms(moment: datetime) -> int:
    """Returns Unix milliseconds; a time without a zone is UTC. Raises ValueError before the year 1 in UTC."""
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return _since_year_1(round(moment.timestamp() * 1000), moment.isoformat())


def _since_year_1(unix_ms: int, text: str) -> int:
    if unix_ms < _FIRST_UNIX_MS:
        raise ValueError(f"{_shown(text)} is before the year 1 in UTC; give a later time")
    return unix_ms


def _shown(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= _MAX_CHARACTERS else shown[:_MAX_CHARACTERS] + "…"
