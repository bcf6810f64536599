"""Bound expressions, and the rows that they are evaluated on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from compactor.predicate.expressions.kinds import kind_of
from compactor.predicate.sql import SqlError
from lsm_fragment.arrays.moves import keep
from lsm_fragment.value_errors import OF_VALUES, first_line

Bits = npt.NDArray[np.bool_]
Value = Any
"""An array, or a scalar for all rows."""


class Rows:
    """Some rows; columns are filtered when they are asked for."""

    def __init__(self, count: int, column: Callable[[str], pa.Array]) -> None:
        self.count = count
        self.column = column

    @classmethod
    def of(cls, columns: Mapping[str, pa.Array], count: int) -> Rows:
        return cls(count, columns.__getitem__)

    def slice(self, start: int, stop: int) -> Rows:
        return Rows(stop - start, lambda name: self.column(name)[start:stop])

    def kept(self, is_kept: Bits) -> Rows:
        if is_kept.all():
            return self
        whole = self.column
        column = cache(lambda name: keep(whole(name), is_kept))
        return Rows(int(np.count_nonzero(is_kept)), column)


class Bound(Struct, frozen=True):
    """An expression of known type."""

    text: str
    type: pa.DataType
    columns: frozenset[str]
    """The columns that it reads."""
    of: Callable[[Rows], Value]
    """Evaluates it. Raises one of `OF_VALUES` for values outside its domain."""
    value: pa.Scalar | None = None
    """The value of a constant."""

    @property
    def kind(self) -> str:
        return kind_of(self.type)

    def array(self, rows: Rows) -> pa.Array:
        """Evaluates it to one value for each row."""
        return each(self.of(rows), rows.count)


def constant(text: str, value: pa.Scalar) -> Bound:
    return Bound(text, value.type, frozenset(), lambda _rows: value, value)


def each(value: Value, count: int) -> pa.Array:
    """Repeats a scalar for each row."""
    return pa.repeat(value, count) if isinstance(value, pa.Scalar) else value


def columns_of(parts: Sequence[Bound]) -> frozenset[str]:
    return frozenset().union(*(part.columns for part in parts))


def applied(
    call: Callable[..., Value], parts: Sequence[Bound], text: str, row_place: int = 0
) -> Bound:
    """Binds a call. Its type is that of a call without rows. A call of constants is evaluated now.

    row_place: an argument that the call takes as an array, even if all are constants.
    Raises `SqlError` if the function refuses the types or the constants.
    """
    given = [pa.nulls(0, part.type) if part.value is None else part.value for part in parts]
    is_constant = all(part.value is not None for part in parts)
    if is_constant:
        given[row_place] = pa.repeat(given[row_place], 1)
    try:
        found = call(*given)
    except OF_VALUES as error:
        raise SqlError(f"{text!r}: {first_line(error)}") from None
    if is_constant:
        return constant(text, found[0])
    return Bound(
        text, found.type, columns_of(parts), lambda rows: call(*(part.of(rows) for part in parts))
    )


def unknown(parts: Sequence[Bound], text: str) -> Bound:
    """Binds a call that has NULL among its arguments, or a column of nothing else."""
    assert any(pt.is_null(part.type) for part in parts)
    return constant(text, pa.scalar(None))
