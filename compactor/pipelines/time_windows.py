"""Assigns rows to time windows of equal size and regular start; they may overlap."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from compactor.errors import ConfigError
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import take_rows
from lsm_fragment.names import names_text

START, END = "window_start", "window_end"
MAX_WINDOWS: Final = 10_000
"""Maximum windows per row."""
_ROWS_AT_ONCE: Final = 1 << 14
"""Rows of all their windows that are made at a time."""
_UNIT_NANOSECONDS: Final = {
    "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
}  # fmt: skip
_SIZE: Final = re.compile(r"\s*([0-9]{1,18})\s*(ns|us|ms|s|m|h|d)\s*")


class WindowSizes(Struct, frozen=True):
    """Windows that start at `origin` and every `slide` before and after. All in nanoseconds."""

    size: int
    slide: int
    origin: int = 0
    """Nanoseconds since 1970, in UTC; local for times without a zone."""

    @property
    def max_windows(self) -> int:
        """Maximum windows that contain a row."""
        return -(-self.size // self.slide)


def parse_size(text: str) -> int:
    """Parses `30s`, `5m`, `1h`, `1d` or `250ms` to nanoseconds. Raises `ValueError` with advice."""
    match = _SIZE.fullmatch(text)
    if match is None or not (number := int(match[1])):
        raise ValueError(f"{text!r} is not a length of time; write 250ms, 30s, 5m, 1h or 1d")
    if number * _UNIT_NANOSECONDS[match[2]] >= 2**63:
        raise ValueError(f"{text!r} is too long; 106751d is the most")
    return number * _UNIT_NANOSECONDS[match[2]]


def parse_origin(text: str) -> int:
    """Parses an ISO date or time, in UTC by default, to nanoseconds since 1970. Raises `ValueError`."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; write 2024-01-01 or 2024-01-01T06:00:00+01:00"
        ) from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds) * 10**3


def window_sizes(size: str, slide: str | None, origin: str | None) -> WindowSizes:
    """Parses window settings. Raises `ValueError` naming the setting, with advice."""
    found = {}
    for name, text in (("size", size), ("slide", size if slide is None else slide)):
        try:
            found[name] = parse_size(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    sizes = WindowSizes(found["size"], found["slide"])
    if sizes.slide > sizes.size:
        raise ValueError(
            f"slide: {slide} is longer than the size, {size}: rows between windows would get lost"
        )
    if sizes.max_windows > MAX_WINDOWS:
        raise ValueError(
            f"slide: {slide} would put each row into {sizes.max_windows:,} windows of {size}; "
            f"{MAX_WINDOWS:,} is the most"
        )
    try:
        return WindowSizes(sizes.size, sizes.slide, 0 if origin is None else parse_origin(origin))
    except ValueError as error:
        raise ValueError(f"origin: {error}") from None


class ColumnWindows:
    """Time windows on one column of a schema."""

    def __init__(self, column: str, sizes: WindowSizes, schema: pa.Schema, what: str) -> None:
        """Raises `ConfigError` for a column that is missing, not a time, or coarser than the sizes."""
        if column not in schema.names:
            there = names_text(schema.names)
            raise ConfigError(f"{what}: window: no column {column!r}; there are: {there}")
        self.type = schema.field(column).type
        if not pt.is_timestamp(self.type) and not pt.is_date(self.type):
            raise ConfigError(
                f"{what}: window: column {column!r} is {self.type}: windows are of timestamps or dates; "
                "cast it in a transform"
            )
        self.column = column
        unit = _UNIT_NANOSECONDS[self.type.unit if pt.is_timestamp(self.type) else "d"]
        for name in ("size", "slide", "origin"):
            if getattr(sizes, name) % unit:
                raise ConfigError(
                    f"{what}: window: {name} is finer than column {column!r}, which is {self.type}"
                )
        # date64 holds whole days too, so its unit is also a day.
        step = unit // 10**6 if pt.is_date64(self.type) else 1
        self._size, self._slide, origin = (
            n // unit * step for n in (sizes.size, sizes.slide, sizes.origin)
        )
        self._offset = origin % self._slide
        self._most = sizes.max_windows
        self._stored = pa.int32() if self.type == pa.date32() else pa.int64()

    def last_starts(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns the start of each row's last window, as integers in the column's unit; null for null.

        Raises `pa.ArrowInvalid` for a time so far from 1970 that its window bounds overflow.
        """
        times = batch.column(self.column).cast(self._stored).cast(pa.int64())
        phase = pc.subtract_checked(times, pa.scalar(self._offset, pa.int64()))
        # Arrow rounds quotients towards 0 and has no remainder.
        quotient = pc.divide(phase, self._slide)
        rest = pc.subtract(phase, pc.multiply(quotient, self._slide))
        rest = pc.if_else(pc.less(rest, 0), pc.add(rest, self._slide), rest)
        last = pc.subtract_checked(times, rest)
        for bound in (
            pc.add_checked(last, pa.scalar(self._size, pa.int64())),
            pc.subtract_checked(last, pa.scalar((self._most - 1) * self._slide, pa.int64())),
        ):
            bound.cast(self._stored)
        return last

    def with_windows(
        self, batch: pa.RecordBatch, last: pa.Array, name: str
    ) -> Iterator[pa.RecordBatch]:
        """Yields each row once per window that contains it, with the window's start in column `name`. Rows
        stay in order.

        last: result of `last_starts`, without nulls.
        """
        times = batch.column(self.column).cast(self._stored).cast(pa.int64()).to_numpy()
        lasts = last.to_numpy()
        step = max(1, _ROWS_AT_ONCE // self._most)
        for first in range(0, batch.num_rows, step):
            rows = np.arange(first, min(batch.num_rows, first + step)).repeat(self._most)
            back = np.tile(np.arange(self._most), len(rows) // self._most) * self._slide
            starts = lasts[rows] - back
            # If the slide does not divide the size, some rows are in one window less.
            is_within = times[rows] - starts < self._size
            found = take_rows(batch, rows[is_within])
            start = pa.array(starts[is_within]).cast(self._stored).cast(self.type)
            yield found.append_column(name, start)

    def ends(self, starts: pa.Array) -> pa.Array:
        """Returns the ends of windows from their starts, both in the column's type."""
        numbers = pc.add(starts.cast(self._stored).cast(pa.int64()), self._size)
        return numbers.cast(self._stored).cast(self.type)
