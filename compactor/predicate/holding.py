"""Evaluates conditions of scans, and names the row for which one cannot be computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from compactor.errors import DataError
from compactor.predicate.tree import Columns, Predicate, matching
from lsm_fragment import compute as pc
from lsm_fragment.failing import failing_rows
from lsm_fragment.value_errors import OF_VALUES, first_line


def holding(
    where: Predicate,
    columns: Columns,
    rows: int,
    place: Callable[[int], str],
    needed: pa.Array | None = None,
) -> pa.Array:
    """Returns whether each row satisfies a condition; false where that is unknown.

    place: names a row in messages. needed: as in `matching`; others are false.
    Raises `DataError` for a value that the condition's expressions cannot take.
    """
    try:
        found = matching(where, columns, rows, needed)
    except OF_VALUES:
        row, error = next(_failing(where, columns, rows, needed))
        raise DataError(
            f"{place(row)}: where: {first_line(error)}; TRY_CAST and CASE leave such values out"
        ) from None
    return pc.fill_null(found, False) if found.null_count else found


def _failing(
    where: Predicate, columns: Columns, rows: int, needed: pa.Array | None
) -> Iterator[tuple[int, Exception]]:
    def attempt(start: int, stop: int) -> None:
        some = np.zeros(rows, np.bool_)
        some[start:stop] = True if needed is None else np.asarray(needed)[start:stop]
        matching(where, columns, rows, pa.array(some))

    return failing_rows(rows, attempt, OF_VALUES)
