"""Reads the ranges of a file's columns from its footer, where lakes keep them beside the file. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_MAX_TEXT: Final = 256
"""Cut longer texts, which would fill the log of the lake."""
_LAST: Final = "\U0010ffff"
"""The character after all others."""


class ColumnRange(Struct, frozen=True):
    """The least and the greatest value of a column, and its number of nulls."""

    least: Any
    most: Any
    nulls: int

    @property
    def is_known(self) -> bool:
        return self.least is not None


def column_ranges(footer: pq.FileMetaData) -> dict[str, ColumnRange]:
    """Returns the ranges of the columns that are not nested.

    Numbers with a fraction have no range: Parquet's leaves NaN out, and readers disagree on its place. Nor
    have columns of `unreadable_ranges`.
    """
    found = {}
    for name, parts in _parts(footer):
        if any(part is None or not part.has_null_count for part in parts):
            continue
        valued = [part for part in parts if part.num_values]
        bounds = [_short(_bounds(part)) if part.has_min_max else None for part in valued]
        nulls = sum(part.null_count for part in parts)
        known = [bound for bound in bounds if bound is not None]
        if known and len(known) == len(bounds):
            least, most = min(low for low, _ in known), max(high for _, high in known)
            found[name] = ColumnRange(least, most, nulls)
        else:
            found[name] = ColumnRange(None, None, nulls)
    return found


def unreadable_ranges(footer: pq.FileMetaData) -> list[str]:
    """Returns the columns that are not nested and have bounds that Python lacks: days and times outside of
    the years 1 to 9999."""
    return [
        name
        for name, parts in _parts(footer)
        if any(part is not None and part.has_min_max and _bounds(part) is None for part in parts)
    ]


def _parts(footer: pq.FileMetaData) -> Iterator[tuple[str, list[Any]]]:
    """Yields the columns that are not nested, each with its statistics by row group, or None."""
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    for place in range(footer.num_columns):
        column = footer.schema.column(place)
        if not column.max_repetition_level and column.path == column.name:
            yield column.name, [group.column(place).statistics for group in groups]


def _bounds(part: pq.Statistics) -> tuple[Any, Any] | None:
    try:
        return part.min, part.max
    except OverflowError:
        return None


def _short(bounds: tuple[Any, Any] | None) -> tuple[Any, Any] | None:
    """Returns bounds that a lake keeps: texts cut so that they stay bounds; None for other types."""
    if bounds is None:
        return None
    least, most = bounds
    if isinstance(least, str):
        if len(most) > _MAX_TEXT:
            if most[_MAX_TEXT] == _LAST:
                return None
            most = most[:_MAX_TEXT] + _LAST
        return least[:_MAX_TEXT], most
    return bounds if isinstance(least, int | dt.date) and not isinstance(least, bool) else None
