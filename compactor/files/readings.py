"""Which types all texts of a column can be read as: the file decides, not its first rows.

A reading is ruled out by the first text it can't take and never comes back, so the outcome does not
depend on how the file was cut into blocks. The first reading left wins; with none left, the column
is text. ISO 8601 becomes date32 (dates alone), timestamp[us] (without a zone; dates count as
midnight) or timestamp[us, tz=UTC] (every value has a zone); with seven to nine fractional digits,
ns instead of us. A mixture of texts with and without a zone stays text.

A column is found to be of a type by the same reader that then reads it, and a table's column too: what a type
takes depends on nothing else.
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
"""Of the strings of a JSON file."""

ALL_READINGS: Final = (pa.int64(), pa.uint64(), pa.float64(), pa.bool_(), *TIME_READINGS)
"""Of the cells of a CSV file."""

_FIRST: Final = 32


class Readings:
    """The readings left for one column."""

    def __init__(self, candidates: tuple[pa.DataType, ...]) -> None:
        self._left = candidates
        self._any_text = False

    def narrow(self, texts: pa.Array) -> None:
        """Rules out what `texts` (strings, with nulls) can't be read as; spaces around them count."""
        if texts.null_count == len(texts):
            return
        self._any_text = True
        if self._left:
            self._left = tuple(dtype for dtype in self._left if _can_read(texts, dtype))

    @property
    def outcome(self) -> pa.DataType:
        """The type of the column; null if it had no text at all."""
        if not self._any_text:
            return pa.null()
        return self._left[0] if self._left else pa.string()


def _can_read(texts: pa.Array, dtype: pa.DataType) -> bool:
    try:
        # Arrow makes an error of every text that it can't read, and keeps one: most columns show at once.
        read_scalars(texts.slice(0, _FIRST), dtype)
        read_scalars(texts, dtype)
    except PROBLEMS:
        return False
    return True
