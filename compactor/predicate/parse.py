"""Binds SQL conditions to a schema and returns predicates.

A column compared with a value becomes a condition by which scans prune. Everything else is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt
from sqlglot import expressions as exp

from compactor.errors import UsageError
from compactor.predicate.expressions.binder import Binder
from compactor.predicate.expressions.bound import Bound, Rows
from compactor.predicate.expressions.bound import columns_of as names_read
from compactor.predicate.expressions.comparing import compare
from compactor.predicate.expressions.json_values import compare_json, compare_two
from compactor.predicate.expressions.kinds import kind_of
from compactor.predicate.expressions.sizes import in_slices
from compactor.predicate.like import ESCAPE, checked_pattern, like_each
from compactor.predicate.numbers import comparison, exactly, has_numbers, in_units
from compactor.predicate.sql import (
    COMPARISONS,
    SqlError,
    bare,
    cast_operand,
    check_arguments,
    operands,
    parsed,
    path_of,
    shown,
    shown_node,
)
from compactor.predicate.times import time_units, units_of_time
from compactor.predicate.tree import (
    MIRRORED,
    And,
    ByValue,
    Compare,
    Computed,
    Constant,
    IsIn,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Predicate,
    by_value,
    columns_of,
    matching,
)
from lsm_fragment import compute as pc
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.arrays.types import is_bytes, is_string, storage_type
from lsm_fragment.value_errors import OF_VALUES, first_line

_NAMED_TYPES: Final = {"TIMESTAMP": pt.is_timestamp, "DATE": pt.is_date, "TIME": pt.is_time}
_ARGUMENTS: Final = frozenset(("this", "expression", "expressions", "low", "high", "negate"))
"""Arguments of syntax tree nodes that the binder handles."""


def parse_where(text: str, schema: pa.Schema) -> Predicate:
    """Parses a condition such as `level = 'error' AND status >= 500`. Values get the columns' storage types.

    Column names are case-sensitive, and need double quotes unless they are plain identifiers. Times are
    quoted, in UTC unless they name a zone. Raises `UsageError` with the cause.
    """
    return parse_condition(text, schema, "where")


def parse_condition(text: str, schema: pa.Schema, what: str) -> Predicate:
    """Does the same for a condition that messages call `what`."""
    try:
        return bound(parsed(text), schema)
    except SqlError as error:
        raise UsageError(f"{what}: {error}") from error.__cause__
    except RecursionError:
        raise UsageError(
            f"{what}: {shown(text)} is nested too deeply; many values of one column go into IN (...)"
        ) from None
    except (OverflowError, *OF_VALUES):
        raise UsageError(f"{what}: {shown(text)} has a number too large") from None


def bound(tree: exp.Expression, schema: pa.Schema) -> Predicate:
    """Binds the syntax tree of a condition. Raises `SqlError` with the cause."""
    decoded = pa.schema(
        [
            f if isinstance(f.type, pa.JsonType) else f.with_type(storage_type(f.type))
            for f in schema
        ]
    )
    return _Conditions(schema, decoded, unwraps=True).bound(tree)


def bound_value(tree: exp.Expression, schema: pa.Schema) -> Bound:
    """Binds the syntax tree of an expression of any type. Raises `SqlError` with the cause."""
    return _Conditions(schema, schema, unwraps=False).values.bound(tree)


class _Operand(Struct, frozen=True):
    """The side of a comparison that is not a literal: a column, or computed values."""

    name: str
    """The column; empty for computed values."""
    type: pa.DataType
    shown: str
    """How messages call it."""
    computed: Bound | None = None

    def holds(self, part: ByValue | IsNull | Constant) -> Predicate:
        """Returns the condition that `part` holds for the operand."""
        if self.computed is None or isinstance(part, Constant):
            return part
        return _computed([self.computed], lambda array: _on_array(part, to_storage(array)))


def _on_array(part: ByValue | IsNull, array: pa.Array) -> pa.Array:
    return array.is_null() if isinstance(part, IsNull) else by_value(part, array)


def _computed(sides: Sequence[Bound], test: Callable[..., pa.Array]) -> Computed:
    """Makes a condition on the values of expressions. test: takes an array for each."""
    names = tuple(sorted(names_read(sides)))

    def evaluated(columns: Sequence[pa.Array], count: int) -> pa.Array:
        rows = Rows.of(dict(zip(names, columns, strict=True)), count)
        return in_slices(lambda some: test(*(_array(side, some) for side in sides)), rows)

    return Computed(names, evaluated)


def _array(side: Bound, rows: Rows) -> pa.Array:
    try:
        return side.array(rows)
    except OF_VALUES as error:
        raise type(error)(f"{side.text!r}: {first_line(error)}") from None


class _Conditions:
    """Converts syntax trees to predicates. Raises `SqlError`."""

    def __init__(self, schema: pa.Schema, computed_from: pa.Schema, *, unwraps: bool) -> None:
        """computed_from: the schema in which columns are handed to computed conditions. unwraps: as of
        `Binder`."""
        self._schema = schema
        self.values = Binder(computed_from, self._as_value, unwraps=unwraps)

    def bound(self, node: exp.Expression) -> Predicate:
        bind = _NODES.get(type(node))
        if bind is None and type(node) not in COMPARISONS:
            return self._flag(node)
        check_arguments(node, _ARGUMENTS)
        if node.args.get("negate"):  # NOT LIKE
            plain = node.copy()
            plain.set("negate", None)
            return Not(self.bound(plain))
        if bind is None:
            return self._compared(node.this, COMPARISONS[type(node)], node.expression)
        return bind(self, node)

    def _as_value(self, node: exp.Expression) -> Bound:
        """Binds a condition as an expression that is true, false or null."""
        predicate = self.bound(node)
        names = columns_of(predicate)

        def holds(rows: Rows) -> pa.Array:
            arrays = {name: to_storage(rows.column(name)) for name in names}
            return matching(predicate, arrays, rows.count)

        return Bound(shown_node(node), pa.bool_(), frozenset(names), holds)

    def _compared(self, left: exp.Expression, op: Op, right: exp.Expression) -> Predicate:
        ways = (bare(left), op, bare(right)), (bare(right), MIRRORED[op], bare(left))
        for subject, way, other in ways:
            if (column := self.values.json_column(subject)) is not None:
                if (json := self.values.json_column(other)) is not None:
                    return _computed([column, json], partial(compare_two, way))
                return self._json_compared(column, way, self.values.bound(other))
        for subject, way, other in ways:
            if _is_literal(other):
                return self._compare(self._operand(subject), way, other)
            # As text of the column's type, which may be finer than the literal's.
            if isinstance(subject, exp.Column) and isinstance(other, exp.Cast):
                operand = self._operand(subject)
                if _is_time_literal(other, operand.type):
                    return self._compare(operand, way, cast_operand(other))
        sides = [self.values.bound(side) for side in (left, right)]
        for (subject, way, _), constant in zip(ways, reversed(sides), strict=True):
            if isinstance(subject, exp.Column) and constant.value is not None:
                found = self._with_constant(self._operand(subject), way, constant.value)
                if found is not None:
                    return found
        return self._exactly_compared(sides, op)

    def _json_compared(self, column: Bound, op: Op, other: Bound) -> Predicate:
        try:
            compare_json(op, pa.nulls(0, column.type), pa.nulls(0, other.type))
        except OF_VALUES as error:
            raise SqlError(f"'{column.text} {op} {other.text}': {first_line(error)}") from None
        return _computed([column, other], partial(compare_json, op))

    def _with_constant(self, operand: _Operand, op: Op, constant: pa.Scalar) -> Predicate | None:
        """Compares with the value of an expression; None if only a computed condition is exact."""
        units = units_of(constant, storage_type(operand.type))
        if units is None:
            return None
        return operand.holds(comparison(operand.name, storage_type(operand.type), op, units))

    def _exactly_compared(self, sides: list[Bound], op: Op) -> Predicate:
        try:
            compare(op, *(pa.nulls(0, side.type) for side in sides))
        except OF_VALUES as error:
            left, right = (side.text for side in sides)
            raise SqlError(f"'{left} {op} {right}': {first_line(error)}") from None
        return _computed(sides, partial(compare, op))

    def _compare(self, operand: _Operand, op: Op, node: exp.Expression) -> Predicate:
        value = self._value(operand, node)
        if value is None:
            return Constant(None)
        if isinstance(value, Decimal):
            dtype = storage_type(operand.type)
            return operand.holds(comparison(operand.name, dtype, op, value))
        return operand.holds(Compare(operand.name, op, value))

    def _between(self, node: exp.Expression) -> Predicate:
        ends = (Op.GE, node.args["low"]), (Op.LE, node.args["high"])
        return And([self._compared(node.this, op, end) for op, end in ends])

    def _is(self, node: exp.Expression) -> Predicate:
        operand = self._operand(node.this)
        if isinstance(node.expression, exp.Null):
            return operand.holds(IsNull(operand.name))
        if isinstance(node.expression, exp.Boolean):
            known = Not(operand.holds(IsNull(operand.name)))
            return And([known, self._compared(node.this, Op.EQ, node.expression)])
        raise SqlError(f"{shown_node(node)}: write IS NULL, IS NOT NULL, IS TRUE or IS FALSE")

    def _same(self, node: exp.Expression) -> Predicate:
        """Binds IS NOT DISTINCT FROM, for which nulls are equal."""
        left, right = (self._operand(side) for side in (node.this, node.expression))
        nulls = [side.holds(IsNull(side.name)) for side in (left, right)]
        equal = And([*map(Not, nulls), self._compared(node.this, Op.EQ, node.expression)])
        return Or([And(nulls), equal])

    def _in(self, node: exp.Expression) -> Predicate:
        if not node.expressions:
            raise SqlError(f"{shown_node(node)}: IN takes values in parentheses")
        literals = [item for item in node.expressions if _is_literal(item)]
        others = [item for item in node.expressions if not _is_literal(item)]
        parts = [self._compared(node.this, Op.EQ, item) for item in others]
        if literals and self.values.json_column(node.this) is not None:
            parts += [self._compared(node.this, Op.EQ, item) for item in literals]
        elif literals:
            parts.append(self._in_literals(self._operand(node.this), literals))
        return parts[0] if len(parts) == 1 else Or(parts)

    def _in_literals(self, operand: _Operand, literals: list[exp.Expression]) -> Predicate:
        dtype = storage_type(operand.type)
        items = [self._value(operand, item) for item in literals]
        values = [
            exactly(dtype, i) if isinstance(i, Decimal) else i for i in items if i is not None
        ]
        found = pa.array([value for value in values if value is not None], dtype)
        if pt.is_floating(dtype) and pc.any(pc.equal(found.cast(pa.float64()), 0.0)).as_py():
            # A set lookup distinguishes 0.0 from -0.0, which compare equal.
            found = pa.concat_arrays([found, pa.array([0.0, -0.0], pa.float64()).cast(dtype)])
        # IN with a NULL is never false, only true or unknown.
        part = operand.holds(IsIn(operand.name, found))
        return part if len(values) == len(items) else Or([part, Constant(None)])

    def _escaped(self, node: exp.Expression) -> Predicate:
        escape = bare(node.expression)
        if not isinstance(escape, exp.Literal) or not escape.is_string or len(escape.this) != 1:
            raise SqlError(f"{shown_node(node)}: ESCAPE takes one character in quotes")
        if not isinstance(node.this, exp.Like | exp.ILike):
            raise SqlError(f"{shown_node(node)}: ESCAPE follows LIKE or ILIKE")
        plain = node.this.copy()
        plain.set("negate", None)
        part = self._like(plain, escape.this)
        return Not(part) if node.this.args.get("negate") else part

    def _like(self, node: exp.Expression, escape: str = ESCAPE) -> Predicate:
        operand, pattern = self._operand(node.this), bare(node.expression)
        if self.values.json_column(node.this) is not None:
            text = self.values.bound(node.this)
            operand = _Operand("", text.type, text.text, text)
        dtype = storage_type(operand.type)
        if pt.is_null(dtype):
            return Constant(None)
        if not is_string(dtype):
            raise SqlError(f"{shown_node(node)}: {operand.shown} is {operand.type}, not text")
        ignores_case = isinstance(node, exp.ILike)
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            return self._like_each(node, escape, ignores_case=ignores_case)
        try:
            checked = checked_pattern(pattern.this, escape, ignores_case=ignores_case)
        except ValueError as error:
            raise SqlError(f"{shown_node(node)}: {error}") from None
        return operand.holds(Like(operand.name, checked, ignores_case))

    def _like_each(self, node: exp.Expression, escape: str, *, ignores_case: bool) -> Predicate:
        text, pattern = self.values.bound(node.this), self.values.bound(node.expression)
        if pattern.kind == "null":
            return Constant(None)
        if pattern.kind != "text":
            raise SqlError(
                f"{shown_node(node)}: LIKE takes a text, and {pattern.text} is {pattern.type}"
            )
        return _computed(
            [text, pattern],
            lambda texts, patterns: like_each(texts, patterns, escape, ignores_case=ignores_case),
        )

    def _flag(self, node: exp.Expression) -> Predicate:
        """Binds a column or an expression that is true or false by itself."""
        operand = self._operand(node)
        if pt.is_null(operand.type):
            return Constant(None)
        if not pt.is_boolean(operand.type):
            raise SqlError(
                f"{operand.shown} is {operand.type}, not boolean: compare it with a value"
            )
        if operand.computed is None:
            return Compare(operand.name, Op.EQ, pa.scalar(True))
        if operand.computed.value is not None:
            return Constant(operand.computed.value.as_py())
        return _computed([operand.computed], lambda holds: holds)

    def _operand(self, node: exp.Expression) -> _Operand:
        node = bare(node)
        if isinstance(node, exp.Column):
            field, path = path_of(node, self._schema)
            if not path:
                return _Operand(field.name, field.type, f"column {field.name!r}")
        computed = self.values.bound(node)
        return _Operand("", computed.type, computed.text, computed)

    def _value(self, operand: _Operand, node: exp.Expression) -> pa.Scalar | Decimal | None:
        """Returns the value of a literal; None for NULL.

        A number or time is a count of the type's units, possibly outside its range.
        """
        dtype = storage_type(operand.type)
        node = bare(node)
        if isinstance(node, exp.Null) or pt.is_null(dtype):
            return None
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
                f"{shown_node(node)} is not a value of {operand.shown}, which is {operand.type}: "
                + first_line(error)
            ) from error
        raise SqlError(
            f"{shown_node(node)}: {operand.shown} is {operand.type}; write {_example(dtype)}"
        )


_NODES: Final[dict[type[exp.Expression], Callable[[_Conditions, Any], Predicate]]] = {
    exp.Paren: lambda conditions, node: conditions.bound(node.this),
    exp.And: lambda conditions, node: And([conditions.bound(part) for part in operands(node)]),
    exp.Or: lambda conditions, node: Or([conditions.bound(part) for part in operands(node)]),
    exp.Not: lambda conditions, node: Not(conditions.bound(node.this)),
    exp.Boolean: lambda _conditions, node: Constant(bool(node.this)),
    exp.Null: lambda _conditions, _node: Constant(None),
    exp.Is: _Conditions._is,
    exp.NullSafeEQ: _Conditions._same,
    exp.NullSafeNEQ: lambda conditions, node: Not(conditions._same(node)),
    exp.Between: _Conditions._between,
    exp.In: _Conditions._in,
    exp.Like: _Conditions._like,
    exp.ILike: _Conditions._like,
    exp.Escape: _Conditions._escaped,
}


def _is_literal(node: exp.Expression) -> bool:
    """Returns whether the node takes its type from the other side of a comparison."""
    node = bare(node)
    if isinstance(node, exp.Neg):
        inner = bare(node.this)
        return isinstance(inner, exp.Literal) and not inner.is_string
    return isinstance(node, exp.Literal | exp.Boolean | exp.Null)


def units_of(constant: pa.Scalar, dtype: pa.DataType) -> Decimal | None:
    """Returns a number or time in units of a column's type; None if the two are not alike."""
    kinds = kind_of(constant.type), kind_of(dtype)
    if not constant.is_valid:
        return None
    if kinds[0] in ("integer", "decimal") and has_numbers(dtype):
        return in_units(Decimal(constant.as_py()), dtype)
    if all(kind in ("date", "timestamp") for kind in kinds):
        return units_of_time(constant, dtype)
    return None


def _is_time_literal(node: exp.Expression, dtype: pa.DataType) -> bool:
    """Returns whether the node is a text that names the type of the column: TIMESTAMP '...', DATE '...'."""
    if type(node) is not exp.Cast:
        return False
    value, named = bare(node.this), node.args["to"].sql().upper()
    dtype = storage_type(dtype)
    is_text = isinstance(value, exp.Literal) and value.is_string
    return is_text and any(named.startswith(n) and of(dtype) for n, of in _NAMED_TYPES.items())


def _from_text(text: str, dtype: pa.DataType) -> pa.Scalar | Decimal:
    if is_string(dtype):
        return pa.scalar(text, dtype)
    if is_bytes(dtype):
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
