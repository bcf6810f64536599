"""Binds SQL conditions to a schema and returns predicates."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt
from sqlglot import expressions as exp

from compactor.errors import UsageError
from compactor.predicate.like import ESCAPE, checked_pattern
from compactor.predicate.numbers import comparison, exactly, has_numbers, in_units
from compactor.predicate.sql import (
    COMPARISONS,
    SqlError,
    bare,
    check_arguments,
    field_of,
    operands,
    parsed,
    shown,
    shown_node,
)
from compactor.predicate.times import time_units
from compactor.predicate.tree import (
    MIRRORED,
    And,
    Compare,
    Constant,
    IsIn,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Predicate,
)
from lsm_fragment import compute as pc
from lsm_fragment.arrays.types import storage_type

_NAMED_TYPES: Final = {"TIMESTAMP": pt.is_timestamp, "DATE": pt.is_date, "TIME": pt.is_time}
_ARGUMENTS: Final = frozenset(
    ("this", "expression", "expressions", "low", "high", "negate", "table", "db", "catalog")
)
"""Arguments of syntax tree nodes that the binder handles."""
_KNOWN: Final = "=, <>, <, <=, >, >=, BETWEEN, IN, LIKE, ILIKE, ESCAPE, IS NULL, AND, OR, NOT"


def parse_where(text: str, schema: pa.Schema) -> Predicate:
    """Parses a condition such as `level = 'error' AND status >= 500`. Values get the columns' storage types.

    Column names are case-sensitive, and need double quotes unless they are plain identifiers. Times are
    quoted, in UTC unless they name a zone. Raises `UsageError` with the cause.
    """
    try:
        return bound(parsed(text), schema)
    except SqlError as error:
        raise UsageError(f"where: {error}") from error.__cause__
    except RecursionError:
        raise UsageError(
            f"where: {shown(text)} is nested too deeply; many values of one column go into IN (...)"
        ) from None


def bound(tree: exp.Expression, schema: pa.Schema) -> Predicate:
    """Binds a syntax tree. Raises `SqlError` with the cause."""
    return _Binder(schema).bound(tree)


class _Binder:
    """Converts syntax trees to predicates. Raises `SqlError`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def bound(self, node: exp.Expression) -> Predicate:
        check_arguments(node, _ARGUMENTS)
        if node.args.get("negate"):  # NOT LIKE
            plain = node.copy()
            plain.set("negate", None)
            return Not(self.bound(plain))
        match node:
            case exp.Paren():
                return self.bound(node.this)
            case exp.And():
                return And([self.bound(part) for part in operands(node)])
            case exp.Or():
                return Or([self.bound(part) for part in operands(node)])
            case exp.Not():
                return Not(self.bound(node.this))
            case exp.Boolean():
                return Constant(bool(node.this))
            case exp.Null():
                return Constant(None)
            case exp.Is():
                return self._is(node)
            case exp.Between():
                column = self._column(node.this)
                ends = (Op.GE, node.args["low"]), (Op.LE, node.args["high"])
                return And([self._compare(column, op, end) for op, end in ends])
            case exp.In():
                return self._in(node)
            case exp.Like() | exp.ILike():
                return self._like(node)
            case exp.Escape() if isinstance(node.this, exp.Like | exp.ILike):
                return self._escaped(node)
            case exp.Column():
                return self._flag(node)
        if type(node) in COMPARISONS:
            return self._comparison(node, COMPARISONS[type(node)])
        raise SqlError(f"{shown_node(node)} is not a condition; conditions are made of {_KNOWN}")

    def _comparison(self, node: exp.Expression, op: Op) -> Predicate:
        left, right = bare(node.this), bare(node.expression)
        if isinstance(left, exp.Column) == isinstance(right, exp.Column):
            raise SqlError(f"{shown_node(node)}: compare a column with a value")
        if isinstance(left, exp.Column):
            return self._compare(self._column(left), op, right)
        return self._compare(self._column(right), MIRRORED[op], left)

    def _compare(self, field: pa.Field, op: Op, node: exp.Expression) -> Predicate:
        value = self._value(field, node)
        if value is None:
            return Constant(None)
        if isinstance(value, Decimal):
            return comparison(field.name, storage_type(field.type), op, value)
        return Compare(field.name, op, value)

    def _is(self, node: exp.Is) -> Predicate:
        field = self._column(node.this)
        if isinstance(node.expression, exp.Null):
            return IsNull(field.name)
        if isinstance(node.expression, exp.Boolean):
            return And([Not(IsNull(field.name)), self._compare(field, Op.EQ, node.expression)])
        raise SqlError(f"{shown_node(node)}: write IS NULL, IS NOT NULL, IS TRUE or IS FALSE")

    def _in(self, node: exp.In) -> Predicate:
        field = self._column(node.this)
        if not node.expressions:
            raise SqlError(f"{shown_node(node)}: IN takes values in parentheses")
        dtype = storage_type(field.type)
        items = [self._value(field, item) for item in node.expressions]
        values = [
            exactly(dtype, i) if isinstance(i, Decimal) else i for i in items if i is not None
        ]
        found = pa.array([value for value in values if value is not None], dtype)
        if pt.is_floating(dtype) and pc.any(pc.equal(found.cast(pa.float64()), 0.0)).as_py():
            # A set lookup distinguishes 0.0 from -0.0, which compare equal.
            found = pa.concat_arrays([found, pa.array([0.0, -0.0], pa.float64()).cast(dtype)])
        # IN with a NULL is never false, only true or unknown.
        part = IsIn(field.name, found)
        return part if len(values) == len(items) else Or([part, Constant(None)])

    def _escaped(self, node: exp.Escape) -> Predicate:
        escape = bare(node.expression)
        if not isinstance(escape, exp.Literal) or not escape.is_string or len(escape.this) != 1:
            raise SqlError(f"{shown_node(node)}: ESCAPE takes one character in quotes")
        plain = node.this.copy()
        plain.set("negate", None)
        part = self._like(plain, escape.this)
        return Not(part) if node.this.args.get("negate") else part

    def _like(self, node: exp.Like | exp.ILike, escape: str = ESCAPE) -> Predicate:
        field, pattern = self._column(node.this), bare(node.expression)
        dtype = storage_type(field.type)
        if not (pt.is_string(dtype) or pt.is_large_string(dtype)):
            raise SqlError(f"{shown_node(node)}: column {field.name!r} is {field.type}, not text")
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise SqlError(f"{shown_node(node)}: LIKE takes a text in quotes")
        ignores_case = isinstance(node, exp.ILike)
        try:
            checked = checked_pattern(pattern.this, escape, ignores_case=ignores_case)
        except ValueError as error:
            raise SqlError(f"{shown_node(node)}: {error}") from None
        return Like(field.name, checked, ignores_case)

    def _flag(self, node: exp.Column) -> Predicate:
        field = self._column(node)
        if not pt.is_boolean(field.type):
            raise SqlError(
                f"column {field.name!r} is {field.type}, not boolean: compare it with a value"
            )
        return Compare(field.name, Op.EQ, pa.scalar(True))

    def _column(self, node: exp.Expression) -> pa.Field:
        node = bare(node)
        if not isinstance(node, exp.Column):
            raise SqlError(f"{shown_node(node)} is not a column; texts are in 'single' quotes")
        return field_of(node, self._schema)

    def _value(self, field: pa.Field, node: exp.Expression) -> pa.Scalar | Decimal | None:
        """Returns the value of a literal; None for NULL.

        A number or time is a count of the type's units, possibly outside its range.
        """
        dtype = storage_type(field.type)
        node = bare(node)
        if isinstance(node, exp.Null) or pt.is_null(dtype):
            return None
        if isinstance(node, exp.Cast):  # TIMESTAMP '..', DATE '..'
            node = self._uncast(node, dtype)
        is_negative = isinstance(node, exp.Neg)
        if is_negative:
            node = bare(node.this)
        try:
            if isinstance(node, exp.Boolean) and not is_negative and pt.is_boolean(dtype):
                return pa.scalar(bool(node.this))
            if isinstance(node, exp.Literal) and node.is_string and not is_negative:
                return _from_text(node.this, dtype)
            if isinstance(node, exp.Literal) and not node.is_string and has_numbers(dtype):
                number = Decimal(node.this)
                return in_units(number.copy_negate() if is_negative else number, dtype)
        except ArithmeticError:
            raise SqlError(f"{shown_node(node)}: its exponent is too large") from None
        except (pa.ArrowException, ValueError) as error:
            raise SqlError(
                f"{shown_node(node)} is not a value of column {field.name!r}, which is {field.type}: "
                + str(error).splitlines()[0]
            ) from error
        raise SqlError(
            f"{shown_node(node)}: column {field.name!r} is {field.type}; write {_example(dtype)}"
        )

    def _uncast(self, node: exp.Cast, dtype: pa.DataType) -> exp.Expression:
        """Returns the text of a typed time literal whose type matches the column's."""
        value = bare(node.this)
        named = node.to.sql().upper()
        is_text = isinstance(value, exp.Literal) and value.is_string
        is_of_column = any(named.startswith(n) and of(dtype) for n, of in _NAMED_TYPES.items())
        if type(node) is not exp.Cast or not is_text or not is_of_column:
            raise SqlError(f"{shown_node(node)}: casts are not supported; write {_example(dtype)}")
        return value


def _from_text(text: str, dtype: pa.DataType) -> pa.Scalar | Decimal:
    if pt.is_string(dtype) or pt.is_large_string(dtype):
        return pa.scalar(text, dtype)
    if pt.is_binary(dtype) or pt.is_large_binary(dtype) or pt.is_fixed_size_binary(dtype):
        return pa.scalar(text.encode(), dtype)
    if pt.is_date(dtype) or pt.is_time(dtype) or pt.is_timestamp(dtype):
        return time_units(text, dtype)
    raise ValueError(f"write {_example(dtype)}")


def _example(dtype: Any) -> str:
    if pt.is_boolean(dtype):
        return "true or false"
    if pt.is_timestamp(dtype):
        return "a time in quotes, such as '2026-11-21 08:30:00'"
    if pt.is_date(dtype):
        return "a date in quotes, such as '2026-11-21'"
    if pt.is_time(dtype):
        return "a time of day in quotes, such as '08:30:00'"
    if pt.is_integer(dtype) or pt.is_floating(dtype) or pt.is_decimal(dtype):
        return "a number"
    if pt.is_nested(dtype) or pt.is_duration(dtype) or pt.is_interval(dtype):
        return "IS NULL or IS NOT NULL, the only conditions on it"
    if pt.is_fixed_size_binary(dtype):
        return f"a text of {dtype.byte_width} bytes in 'single' quotes"
    return "a text in 'single' quotes"
