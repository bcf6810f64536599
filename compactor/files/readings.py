"""Infers the type of a text column from the whole file, not only its first rows.

A **reading** is a candidate type. The first text that it cannot parse eliminates it, so the result does not
depend on block boundaries. The first remaining reading wins; if none remains, the column is text. ISO 8601
becomes date32 (dates alone), timestamp[us] (without a zone; dates count as midnight) or timestamp[us, tz=UTC]
(every value has a zone); with seven to nine fractional digits, ns instead of us. A mixture of texts with and
without a zone stays text.

Inference and reading, also into a table's column, use the same parser, so that a type always accepts the same
texts.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from compactor.files.problems import PROBLEMS
from compactor.files.text_values import read_scalars

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

_FIRST: Final = 32


class Readings:
    """The remaining readings of one column."""

    def __init__(self, candidates: tuple[pa.DataType, ...]) -> None:
        self._left = candidates
        self._any_text = False

    def narrow(self, texts: pa.Array) -> None:
        """Eliminates types that cannot parse `texts` (strings or null); surrounding spaces count."""
        if texts.null_count == len(texts):
            return
        self._any_text = True
        if self._left:
            self._left = tuple(dtype for dtype in self._left if _can_read(texts, dtype))

    @property
    def outcome(self) -> pa.DataType:
        """The type of the column; null if it had only nulls."""
        if not self._any_text:
            return pa.null()
        return self._left[0] if self._left else pa.string()


def _can_read(texts: pa.Array, dtype: pa.DataType) -> bool:
    try:
        # A failed cast in Arrow is slow; trying a few texts first eliminates most types cheaply.
        read_scalars(texts.slice(0, _FIRST), dtype)
        read_scalars(texts, dtype)
    except PROBLEMS:
        return False
    return True
