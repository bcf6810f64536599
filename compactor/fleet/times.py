"""Windows of time such as `mon-fri 22:00-06:00`, and schedules of chores. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final, Self
from zlib import crc32

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW: Final = re.compile(
    r"(?:(?P<days>[a-z,-]+) +)?(?P<start>\d\d:\d\d) *- *(?P<end>\d\d:\d\d)", re.ASCII
)
_FORM: Final = "write 22:00-06:00, sat 00:00-24:00 or mon-fri,sun 08:00-18:00"
_MINUTES_OF_DAY: Final = 24 * 60
_DAYS_AHEAD: Final = 9
"""A weekly window begins within so many days, also beside a change to summer time."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window of time that comes back every week, in the time of a zone."""

    days: frozenset[int]
    """The days on which it begins; 0 is Monday."""
    start_minute: int
    end_minute: int
    """Less than the start if it ends on the next day."""
    text: str = field(default="", compare=False)
    """As it was written."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses `mon-fri 22:00-06:00`; every day without days. Raises ValueError with the correct form."""
        match = _WINDOW.fullmatch(text.strip().lower())
        if match is None:
            raise ValueError(f"{text!r} is not a window of time; {_FORM}")
        days = match["days"]
        start, end = _minute(match["start"], text), _minute(match["end"], text)
        if start in (end, _MINUTES_OF_DAY) or end == 0:
            raise ValueError(
                f"{text!r}: a window ends after it begins; {_FORM}, and 00:00-24:00 for a whole day"
            )
        on = frozenset(range(7)) if days is None else _days(days, text)
        return cls(on, start, end, text.strip())

    def spans(self, near_unix_ms: int, zone: tzinfo) -> Iterator[tuple[int, int]]:
        """Yields when the window begins and ends, from the one that may hold a time on, in order."""
        first = datetime.fromtimestamp(near_unix_ms / 1000, zone).date() - timedelta(days=1)
        for ahead in range(_DAYS_AHEAD):
            day = first + timedelta(days=ahead)
            if day.weekday() in self.days:
                last = day + timedelta(days=self.end_minute < self.start_minute)
                span = _unix_ms(day, self.start_minute, zone), _unix_ms(last, self.end_minute, zone)
                if span[0] < span[1]:  # not one that a change to summer time leaves out
                    yield span


def is_within(windows: Iterable[Window], unix_ms: int, zone: tzinfo) -> bool:
    """Says whether a time is in one of the windows."""
    return any(
        start <= unix_ms < end for window in windows for start, end in window.spans(unix_ms, zone)
    )


def first_within(windows: Sequence[Window], unix_ms: int, zone: tzinfo) -> int:
    """Returns the first time not before `unix_ms` that is in a window; the time itself without windows."""
    spans = (
        next((span for span in window.spans(unix_ms, zone) if span[1] > unix_ms), None)
        for window in windows
    )
    times = (max(span[0], unix_ms) for span in spans if span is not None)
    return min(times, default=unix_ms)


def next_run(
    name: str, every_seconds: float, windows: Sequence[Window], after_unix_ms: int, zone: tzinfo
) -> int:
    """Returns the first time after `after_unix_ms` at which a chore of that name is due.

    Time is divided into slots of `every_seconds`, which begin at another moment for each name, so that a
    thousand tables do not have their vacuums at once. A chore is due once in each slot: at its beginning, or
    as soon as a window begins after that. So the times are the same after a restart, and nothing is stored.
    """
    every_ms = max(1, round(every_seconds * 1000))
    offset = crc32(name.encode()) % every_ms
    slot = (after_unix_ms - offset) // every_ms
    while True:
        # Windows let a chore of the slot before come later than this slot's beginning.
        due = first_within(windows, max(slot * every_ms + offset, 0), zone)
        if due > after_unix_ms:
            return due
        slot += 1


def _minute(text: str, whole: str) -> int:
    hours, minutes = int(text[:2]), int(text[3:])
    minute = hours * 60 + minutes
    if minutes > 59 or minute > _MINUTES_OF_DAY:
        raise ValueError(f"{whole!r}: {text} is no time of a day; {_FORM}")
    return minute


def _days(text: str, whole: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        for name in (first, last) if dash else (first,):
            if name not in _DAYS:
                raise ValueError(f"{whole!r}: no day {name!r}; the days are {', '.join(_DAYS)}")
        start = _DAYS.index(first)
        length = (_DAYS.index(last) - start) % 7 if dash else 0
        found |= {(start + day) % 7 for day in range(length + 1)}
    return frozenset(found)


def _unix_ms(day: date, minute: int, zone: tzinfo) -> int:
    day += timedelta(days=minute // _MINUTES_OF_DAY)
    minute %= _MINUTES_OF_DAY
    moment = datetime.combine(day, time(minute // 60, minute % 60), zone)
    return round(moment.timestamp() * 1000)
