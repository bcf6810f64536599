"""Conditions as a tree of values, evaluated on whole arrays by SQL's three-valued logic. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from pyarrow import types as pt

from compactor.predicate.like import like
from lsm_fragment import compute as pc
from lsm_fragment.arrays.decimals import with_scale
from lsm_fragment.arrays.joining import with_nulls_of
from lsm_fragment.arrays.moves import keep
from lsm_fragment.arrays.storage import plain
from lsm_fragment.keys.bounds import plain_value, value_at


class Op(StrEnum):
    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


OPPOSITE: Final = {
    Op.EQ: Op.NE,
    Op.NE: Op.EQ,
    Op.LT: Op.GE,
    Op.GE: Op.LT,
    Op.GT: Op.LE,
    Op.LE: Op.GT,
}
"""The negation of an operator, for values that are neither null nor NaN."""
MIRRORED: Final = {
    Op.EQ: Op.EQ,
    Op.NE: Op.NE,
    Op.LT: Op.GT,
    Op.GT: Op.LT,
    Op.LE: Op.GE,
    Op.GE: Op.LE,
}
"""The equivalent operator with both sides swapped."""


def differs(left: Any, right: Any) -> Any:
    """Returns whether values differ. NaN satisfies no comparison, so floats differ if one is less."""
    if pt.is_floating(left.type) or pt.is_floating(right.type):
        return pc.or_(pc.less(left, right), pc.greater(left, right))
    return pc.not_equal(left, right)


_COMPARISONS: Final = {
    Op.EQ: "equal",
    Op.LT: "less",
    Op.LE: "less_equal",
    Op.GT: "greater",
    Op.GE: "greater_equal",
}


def compared(op: Op, left: Any, right: Any) -> Any:
    """Compares two arrays, or an array and a scalar."""
    return differs(left, right) if op is Op.NE else getattr(pc, _COMPARISONS[op])(left, right)


class Compare(Struct, frozen=True):
    column: str
    op: Op
    value: pa.Scalar
    """Value of the column's storage type; never null."""


class IsIn(Struct, frozen=True, dict=True):
    column: str
    values: pa.Array
    """Values of the column's storage type, without nulls."""

    @cached_property
    def plain_values(self) -> list[Any]:
        """The values as `lsm_fragment.keys.bounds.plain_value` returns them, ascending."""
        rows = range(len(self.values))
        return sorted(plain_value(value_at(self.values, row), self.values.type) for row in rows)


class Like(Struct, frozen=True):
    column: str
    pattern: str
    """SQL pattern: `%` matches any text, `_` any character; a backslash escapes either."""
    ignores_case: bool = False


class IsNull(Struct, frozen=True):
    column: str


class Computed(Struct, frozen=True):
    """A condition on computed values, of which statistics tell nothing."""

    columns: tuple[str, ...]
    test: Callable[[Sequence[pa.Array], int], pa.Array]
    """Evaluates it: takes the columns, decoded, and the number of rows."""


class Constant(Struct, frozen=True):
    value: bool | None


class Not(Struct, frozen=True):
    part: Predicate


class And(Struct, frozen=True):
    parts: Sequence[Predicate]


class Or(Struct, frozen=True):
    parts: Sequence[Predicate]


Predicate = Compare | IsIn | Like | IsNull | Computed | Constant | Not | And | Or
ByValue = Compare | IsIn | Like
"""A condition on the values of one column."""


class LazyColumn(Protocol):
    """A column that can evaluate conditions before its values are decoded."""

    def is_null(self) -> pa.Array:
        """Returns whether each value is null."""
        ...

    def matching(self, condition: ByValue, needed: pa.Array | None) -> pa.Array:
        """Like `matching` of this module. needed: the rows whose result is used; None for all."""
        ...

    def texts(self, keep: pa.Array | None) -> pa.Array:
        """Returns the values of some rows. keep: bool without nulls; None for all."""
        ...


Columns: TypeAlias = Mapping[str, pa.Array | LazyColumn]


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """Returns the conditions of a conjunction, or the condition itself."""
    if not isinstance(predicate, And):
        return (predicate,)
    return tuple(part for whole in predicate.parts for part in conjuncts(whole))


def columns_of(predicate: Predicate) -> list[str]:
    """Returns the distinct column names of a condition."""
    return list(dict.fromkeys(_columns(predicate)))


def with_names(predicate: Predicate, names: Mapping[str, str]) -> Predicate:
    """Returns the condition with its columns renamed."""
    match predicate:
        case And(parts):
            return And(tuple(with_names(part, names) for part in parts))
        case Or(parts):
            return Or(tuple(with_names(part, names) for part in parts))
        case Not(part):
            return Not(with_names(part, names))
        case Constant():
            return predicate
        case Computed(columns):
            return replace(predicate, columns=tuple(names.get(name, name) for name in columns))
        case _:
            return replace(predicate, column=names.get(predicate.column, predicate.column))


def _columns(predicate: Predicate) -> Iterator[str]:
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _columns(part)
        case Not(part):
            yield from _columns(part)
        case Constant():
            return
        case Computed(columns):
            yield from columns
        case _:
            yield predicate.column


def is_computed(predicate: Predicate) -> bool:
    """Returns whether any part of the condition computes values."""
    match predicate:
        case And(parts) | Or(parts):
            return any(map(is_computed, parts))
        case Not(part):
            return is_computed(part)
        case _:
            return isinstance(predicate, Computed)


def matching(
    predicate: Predicate, arrays: Columns, rows: int, needed: pa.Array | None = None
) -> pa.Array:
    """Evaluates the condition for each row: bool of shape (rows,); null where unknown.

    arrays: the columns `columns_of` as storage arrays, possibly dictionary-coded, or lazy columns.
    needed: bool, the rows whose result is used, undefined for others; None for all.
    """
    match predicate:
        case And(parts):
            return _combined(parts, arrays, rows, needed, settles=False)
        case Or(parts):
            return _combined(parts, arrays, rows, needed, settles=True)
        case Not(part):
            return pc.invert(matching(part, arrays, rows, needed))
        case Constant(value):
            return pa.nulls(rows, pa.bool_()) if value is None else pa.repeat(value, rows)
        case IsNull(column):
            return arrays[column].is_null()
        case Computed():
            return _computed(predicate, arrays, rows, needed)
        case _:
            values = arrays[predicate.column]
            if isinstance(values, pa.Array):
                return by_value(predicate, values)
            return values.matching(predicate, needed)


def _combined(
    parts: Sequence[Predicate],
    arrays: Columns,
    rows: int,
    needed: pa.Array | None,
    *,
    settles: bool,
) -> pa.Array:
    """Combines conditions by AND, or by OR. settles: the value of one part that decides the result.

    Evaluates lazy columns late and computed conditions last, and only for rows that are still undecided.
    """
    lazy = {name for name, array in arrays.items() if not isinstance(array, pa.Array)}
    costs = [2 * is_computed(part) + (not lazy.isdisjoint(columns_of(part))) for part in parts]
    combine = pc.or_kleene if settles else pc.and_kleene
    found = None
    for cost, part in sorted(zip(costs, parts, strict=True), key=itemgetter(0)):
        if found is not None and cost:
            is_open = pc.fill_null(pc.not_equal(found, settles), True)
            needed = is_open if needed is None else pc.and_(needed, is_open)
        more = matching(part, arrays, rows, needed)
        found = more if found is None else combine(found, more)
    return found


def _computed(predicate: Computed, arrays: Columns, rows: int, needed: pa.Array | None) -> pa.Array:
    """Computes the needed rows, and returns null for the others."""
    columns = [arrays[name] for name in predicate.columns]
    if needed is not None:
        needed = pc.fill_null(needed, False)
        needed = None if needed.true_count == rows else needed
    if needed is None:
        return predicate.test([_decoded(column, None) for column in columns], rows)
    holds = predicate.test([_decoded(column, needed) for column in columns], needed.true_count)
    return pc.replace_with_mask(pa.nulls(rows, pa.bool_()), needed, holds)


def _decoded(column: pa.Array | LazyColumn, needed: pa.Array | None) -> pa.Array:
    if not isinstance(column, pa.Array):
        return column.texts(needed)
    return plain(column if needed is None else keep(column, np.asarray(needed)))


def by_value(predicate: ByValue, array: pa.Array) -> pa.Array:
    """Evaluates the condition for each value of a storage array; null where the value is."""
    if isinstance(array, pa.DictionaryArray):
        # Each distinct value is evaluated once; null codes stay null.
        return by_value(predicate, array.dictionary).take(array.indices)
    if pt.is_null(array.type):
        return pa.nulls(len(array), pa.bool_())
    array = comparable(array)
    match predicate:
        case Compare(_, op, value):
            return compared(op, array, comparable(value))
        case IsIn(_, values):
            return with_nulls_of(array, pc.is_in(array, value_set=comparable(values)))
        case Like(_, pattern, ignores_case):
            return like(array, pattern, ignores_case=ignores_case)


def comparable(values: Any) -> Any:
    """Converts an array or scalar of a type that Arrow cannot compare to one that it can."""
    dtype = values.type
    if pt.is_decimal(dtype) and dtype.scale < 0:
        if isinstance(values, pa.Scalar):
            return comparable(pa.array([values], dtype))[0]
        return comparable(values.view(with_scale(dtype, 0)))
    if pt.is_decimal(dtype) and dtype.bit_width <= 64:
        return values.cast(pa.decimal128(dtype.precision, dtype.scale))
    return values.cast(pa.float32()) if pt.is_float16(dtype) else values
