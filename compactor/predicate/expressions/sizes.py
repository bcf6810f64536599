"""Bounds the size of computed texts. Rows whose texts are too large together are computed in slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from compactor.predicate.expressions.bound import Rows
from lsm_fragment import compute as pc
from lsm_fragment.arrays.joining import concat_logical

MIB: Final = 1 << 20
MAX_ONE: Final = 256 * MIB
"""Limit for the characters of one computed text."""
MAX_TOGETHER: Final = 64 * MIB
"""Limit for the characters that a function returns for several rows at once."""


def check_size(size: int, rows: int) -> None:
    """Raises `pa.ArrowCapacityError` if computed texts are too large. size: their characters."""
    limit = MAX_TOGETHER if rows > 1 else MAX_ONE
    if size > limit:
        raise pa.ArrowCapacityError(
            f"computed texts take at most {limit // MIB} MiB, not {size / MIB:,.0f} MiB: make them shorter"
        )


def rows_of(values: Sequence[Any]) -> int:
    """Returns the number of rows of arguments, arrays and scalars."""
    return next((len(value) for value in values if isinstance(value, pa.Array)), 1)


def text_bytes(value: Any, rows: int) -> int:
    """Returns the bytes of a text in all rows."""
    if isinstance(value, pa.Array):
        return int(value.nbytes)
    return rows * len(value.as_py() or "")


def total(numbers: Any, rows: int) -> int:
    """Returns the sum of an integer in all rows."""
    if isinstance(numbers, pa.Array):
        return int(pc.sum(numbers).as_py() or 0)
    return rows * (numbers.as_py() or 0)


def in_slices(evaluate: Callable[[Rows], pa.Array], rows: Rows) -> pa.Array:
    """Evaluates all rows, or one half after the other if their texts are too large together.

    Raises `pa.ArrowCapacityError` if a text is too large by itself, or the result of several rows.
    """
    try:
        return evaluate(rows)
    except pa.ArrowCapacityError:
        if rows.count < 2:
            raise
    half = rows.count // 2
    parts = [
        in_slices(evaluate, some) for some in (rows.slice(0, half), rows.slice(half, rows.count))
    ]
    check_size(sum(part.nbytes for part in parts), rows.count)
    return concat_logical(parts)
