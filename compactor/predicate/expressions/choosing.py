"""`CASE` and `COALESCE`: a branch is evaluated for its rows only. Nested values do not go through Arrow's
kernels (decision 66)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from compactor.predicate.expressions.bound import (
    Bits,
    Bound,
    Rows,
    columns_of,
    constant,
)
from compactor.predicate.expressions.comparing import as_common, as_unsigned, common_type
from compactor.predicate.sql import SqlError
from lsm_fragment import compute as pc
from lsm_fragment.arrays.joining import concat_logical
from lsm_fragment.arrays.moves import keep, take
from lsm_fragment.value_errors import OF_VALUES, first_line

_Step = Callable[[Rows], tuple[Bits, pa.Array]]
"""Returns the rows that it settles, of those that are left, and their values."""


def case(branches: Sequence[tuple[Bound, Bound]], default: Bound | None, text: str) -> Bound:
    """Binds CASE. Unknown counts as false. Raises `SqlError` if the branches have no type in common."""
    conditions = [condition for condition, _ in branches]
    others = [] if default is None else [default]
    values = _alike([*(value for _, value in branches), *others])
    steps = [_branch(*pair) for pair in zip(conditions, values, strict=False)]
    steps += map(_otherwise, values[len(branches) :])
    return _chosen(steps, values, [*conditions, *values], text)


def coalesce(values: Sequence[Bound], text: str) -> Bound:
    """Binds COALESCE: the first value of each row that is not null."""
    values = _alike(values)
    return _chosen([_if_known(value) for value in values], values, values, text)


def _alike(values: Sequence[Bound]) -> list[Bound]:
    """Returns the values with constants beside uint64 of that type, if they are no less than 0."""
    types = [value.type for value in values]
    return [
        value if value.value is None else constant(value.text, as_unsigned(value.value, types))
        for value in values
    ]


def _chosen(
    steps: Iterable[_Step], values: Sequence[Bound], parts: Sequence[Bound], text: str
) -> Bound:
    try:
        dtype = common_type([value.type for value in values])
    except OF_VALUES as error:
        raise SqlError(f"{text!r}: {first_line(error)}") from None
    steps = tuple(steps)
    return Bound(text, dtype, columns_of(parts), lambda rows: _merged(rows, dtype, steps))


def _branch(condition: Bound, value: Bound) -> _Step:
    def step(rows: Rows) -> tuple[Bits, pa.Array]:
        holds = np.asarray(pc.fill_null(condition.array(rows), False))
        return holds, value.array(rows.kept(holds))

    return step


def _otherwise(value: Bound) -> _Step:
    return lambda rows: (np.ones(rows.count, np.bool_), value.array(rows))


def _if_known(value: Bound) -> _Step:
    def step(rows: Rows) -> tuple[Bits, pa.Array]:
        values = value.array(rows)
        is_known = np.asarray(values.is_valid())
        return is_known, values if is_known.all() else keep(values, is_known)

    return step


def _merged(rows: Rows, dtype: pa.DataType, steps: Sequence[_Step]) -> pa.Array:
    """Settles the rows step by step; those that are left become null."""
    count, settled = rows.count, 0
    places = np.full(count, -1)
    left = np.arange(count)
    pieces = []
    for step in steps:
        holds, values = step(rows)
        if len(values):
            places[left[holds]] = np.arange(settled, settled + len(values))
            settled += len(values)
            pieces.append(as_common(values, dtype))
        left, rows = left[~holds], rows.kept(~holds)
        if not rows.count:
            break
    if not pieces:
        return pa.nulls(count, dtype)
    whole = pieces[0] if len(pieces) == 1 else concat_logical(pieces)
    return whole if len(pieces) == 1 and len(whole) == count else take(whole, places)
