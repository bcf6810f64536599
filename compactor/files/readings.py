"""Infers the type of a text column from the whole file, not only its first rows.

A **reading** is a candidate type. A column has the first that all its texts can be parsed as, wherever blocks
end, or is text. ISO 8601 becomes date32 (dates alone), timestamp[us] (without a zone; dates count as
midnight) or timestamp[us, tz=UTC] (every value has a zone); with seven to nine fractional digits, ns instead
of us. A mixture of texts with and without a zone stays text.

Each text is parsed once, by the first reading that is left. When it fails, a wider one takes its place if it
holds the values so far, of which the least and the largest are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.files.number_text import INT64, MAX_EXACT, has_inexact
from compactor.files.problems import PROBLEMS
from compactor.files.text_values import read_scalars
from lsm_fragment import compute as pc

TIME_READINGS: Final = (
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
    pa.timestamp("ns", "UTC"),
)
"""Readings of the strings of a JSON file."""

ALL_READINGS: Final = (pa.int64(), pa.uint64(), pa.float64(), pa.bool_(), *TIME_READINGS)
"""Readings of the cells of a CSV file."""

NUMBERS: Final = (pa.int64(), pa.float64())
"""Readings of plain numbers (see `number_text`)."""

_DAY_US: Final = 86_400 * 10**6
_WIDER: Final = {
    pa.int64(): ((pa.uint64(), 1), (pa.float64(), 1)),
    pa.date32(): ((pa.timestamp("us"), _DAY_US), (pa.timestamp("ns"), _DAY_US * 1_000)),
    pa.timestamp("us"): ((pa.timestamp("ns"), 1_000),),
    pa.timestamp("us", "UTC"): ((pa.timestamp("ns", "UTC"), 1_000),),
}
"""Types that may take the place of another, with the factor between their numbers."""
_FIRST: Final = 32
Parse = Callable[[pa.Array, pa.DataType], pa.Array]


class Readings:
    """The reading of one column, and what may follow it."""

    def __init__(self, candidates: tuple[pa.DataType, ...], parse: Parse = read_scalars) -> None:
        """parse: converts texts to one of the candidates, or raises one of `PROBLEMS`."""
        self._candidates = candidates
        self._parse = parse
        self.outcome: pa.DataType = pa.null()
        """The type of the column so far; null if it had only nulls."""
        self._low = self._high = 0
        """The least and the largest number of the values, and 0."""
        self._is_exact = self._is_unsigned = True
        """Whether all integers are exact as doubles, and whether none has a sign, as -0 has."""

    def read(self, texts: pa.Array) -> pa.Array:
        """Parses `texts` (strings or null; surrounding spaces count) by the reading that they leave; returns
        texts as they are."""
        if texts.null_count == len(texts):
            return pa.nulls(len(texts), self.outcome)
        for dtype in self._left():
            try:
                # A failed cast in Arrow is slow; trying a few texts first eliminates most types cheaply.
                self._parse(texts.slice(0, _FIRST), dtype)
                values = self._parse(texts, dtype)
            except PROBLEMS:
                continue
            self._take(dtype, values)
            if dtype == pa.int64() and self._is_unsigned:
                self._is_unsigned = not pc.any(pc.equal(texts, "-0")).as_py()
            return values
        self.outcome = pa.string()
        return texts

    def add(self, numbers: pa.Array) -> pa.Array | None:
        """Takes int64 or doubles that texts were read as. Returns None if they have to be read as texts."""
        if pt.is_string(numbers.type):
            return None
        if numbers.null_count == len(numbers):
            return pa.nulls(len(numbers), self.outcome)
        if self.outcome not in (pa.null(), numbers.type):
            is_exact = pt.is_floating(numbers.type) or not has_inexact(numbers)
            if not (self._is_exact and is_exact):
                return None
            numbers = numbers.cast(pa.float64())
        self._take(numbers.type, numbers)
        return numbers

    def _left(self) -> tuple[pa.DataType, ...]:
        if pt.is_null(self.outcome):
            return self._candidates
        if pt.is_string(self.outcome):
            return ()
        wider = _WIDER.get(self.outcome, ())
        return (self.outcome, *(dtype for dtype, factor in wider if self._fits(dtype, factor)))

    def _fits(self, dtype: pa.DataType, factor: int) -> bool:
        if pt.is_floating(dtype):
            return self._is_exact
        if pt.is_unsigned_integer(dtype):
            return self._is_unsigned
        return self._low * factor in INT64 and self._high * factor in INT64

    def _take(self, dtype: pa.DataType, values: pa.Array) -> None:
        self.outcome = dtype
        if dtype not in _WIDER:
            return
        numbers = values.view(pa.int32() if pt.is_date32(dtype) else pa.int64())
        low, high = pc.min_max(numbers).as_py().values()
        self._low, self._high = min(self._low, low), max(self._high, high)
        if pt.is_integer(dtype):
            self._is_unsigned = self._is_unsigned and low >= 0
            is_small = max(-low, high) <= MAX_EXACT
            self._is_exact = self._is_exact and (is_small or not has_inexact(values))
