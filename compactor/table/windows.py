"""Divides rows by time window, vectorised on whole columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.common.setting_keys import SORT_BY, TIME_WINDOW
from compactor.errors import UsageError
from compactor.settings.units import MAX_WINDOW_SECONDS
from compactor.table.metadata import TimeWindows
from lsm_fragment import compute as pc
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.arrays.times import DAY_SECONDS, UNITS_PER_SECOND
from lsm_fragment.keys.sort_schema import SortSchema
from lsm_fragment.names import quoted


def check_windows(windows: TimeWindows, schema: pa.Schema, sort: SortSchema) -> None:
    """Raises `UsageError` unless the time column is a sort column of a timestamp or date type, and the log
    holds the windows' length."""
    if not 1 <= windows.window_seconds <= MAX_WINDOW_SECONDS:
        raise UsageError(
            TIME_WINDOW,
            f": windows of {windows.window_seconds} seconds; write 1 to {MAX_WINDOW_SECONDS}",
        )
    if windows.column not in [column.column for column in sort]:
        raise UsageError(
            f"time column {windows.column!r} is not a sort column; add it to them, as in ",
            SORT_BY,
            f" ...,{quoted(windows.column)}",
        )
    dtype = schema.field(windows.column).type
    if not (pa.types.is_timestamp(dtype) or pa.types.is_date(dtype)):
        raise UsageError(
            f"time column {windows.column!r} is of type {dtype}; windows need a timestamp or a date"
        )


def window_numbers(
    values: pa.Array, dtype: pa.DataType, windows: TimeWindows
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Returns the number of each value's window since 1970, and whether it has one: nulls have none.

    values: stored integers of a time column of type `dtype`. Shapes (rows,).
    """
    values = plain(values)
    known = np.asarray(values.is_valid())
    numbers = np.asarray(pc.fill_null(values, 0)).astype(np.int64)
    if pa.types.is_date32(dtype):
        return numbers * DAY_SECONDS // windows.window_seconds, known
    per_second = UNITS_PER_SECOND[dtype.unit] if pa.types.is_timestamp(dtype) else 1000
    return numbers // (windows.window_seconds * per_second), known


def rows_by_window(
    batch: pa.RecordBatch, windows: TimeWindows
) -> Iterator[tuple[int | None, npt.NDArray[np.int64]]]:
    """Yields each window of a batch with its rows, in their order."""
    column = batch.column(windows.column)
    numbers, known = window_numbers(to_storage(column), column.type, windows)
    order = np.lexsort((numbers, known))  # stable
    sorted_numbers, sorted_known = numbers[order], known[order]
    changes = np.flatnonzero(
        (np.diff(sorted_numbers) != 0) & sorted_known[1:] | (np.diff(sorted_known))
    )
    for start, stop in _bounds(changes, len(order)):
        yield (int(sorted_numbers[start]) if sorted_known[start] else None), order[start:stop]


def _bounds(changes: npt.NDArray[np.int64], rows: int) -> Sequence[tuple[int, int]]:
    starts = [0, *(int(change) + 1 for change in changes)]
    return list(zip(starts, [*starts[1:], rows], strict=True)) if rows else []
