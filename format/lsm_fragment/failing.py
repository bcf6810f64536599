"""Finds the rows for which a conversion or computation fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from lsm_fragment import compute as pc

Problems = type[Exception] | tuple[type[Exception], ...]


def failing_rows(
    count: int, attempt: Callable[[int, int], object], problems: Problems
) -> Iterator[tuple[int, Exception]]:
    """Yields each n, ascending, for which `attempt(n, n + 1)` raises one of `problems`, and the error.

    If `attempt` raises for some rows, it must also raise for every range that contains them. Each level
    divides ranges by 16: if many rows fail, most attempts are on single rows.
    """
    yield from _failing_within(0, count, attempt, problems)


def null_where_failing(
    values: pa.Array, convert: Callable[[pa.Array], pa.Array], problems: Problems
) -> pa.Array:
    """Returns `convert(values)`, with nulls for values for which it raises one of `problems`."""
    try:
        return convert(values)
    except problems:
        is_bad = np.zeros(len(values), dtype=np.bool_)
        failing = failing_rows(
            len(values), lambda start, stop: convert(values[start:stop]), problems
        )
        is_bad[[row for row, _ in failing]] = True
        return convert(pc.if_else(pa.array(is_bad), None, values))


def _failing_within(
    start: int, stop: int, attempt: Callable[[int, int], object], problems: Problems
) -> Iterator[tuple[int, Exception]]:
    size = max(1, -(-(stop - start) // 16))
    for first in range(start, stop, size):
        last = min(first + size, stop)
        try:
            attempt(first, last)
        except problems as error:
            if size == 1:
                yield first, error
            else:
                yield from _failing_within(first, last, attempt, problems)
