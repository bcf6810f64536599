"""Binds SQL expressions to a schema and evaluates them with Arrow's compute functions.

A comparison of a column with a value is a condition and has the semantics of `filter`: exact, by column type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt
from sqlglot import expressions as exp

from compactor.errors import ConfigError
from compactor.pipelines.choosing import coalesce, if_else
from compactor.pipelines.conversion import converted
from compactor.pipelines.types import TYPES
from compactor.predicate.parse import bound
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
from compactor.predicate.tree import columns_of, compared, matching
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import one_array
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.value_errors import OF_VALUES

_BINARY: Final[dict[type[exp.Expression], Callable[[Any, Any], Any]]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
    exp.Div: pc.divide_checked,
    **{kind: partial(compared, op) for kind, op in COMPARISONS.items()},
}
_CONNECTIVES: Final[dict[type[exp.Expression], Callable[[Any, Any], Any]]] = {
    exp.And: pc.and_kleene,
    exp.Or: pc.or_kleene,
}
_UNARY: Final[dict[type[exp.Expression], Callable[[Any], Any]]] = {
    exp.Neg: pc.negate_checked,
    exp.Not: pc.invert,
    exp.Lower: pc.utf8_lower,
    exp.Upper: pc.utf8_upper,
    exp.Length: pc.utf8_length,
    exp.Trim: pc.utf8_trim_whitespace,
    exp.Abs: pc.abs_checked,
    exp.Round: lambda value: pc.round(value, round_mode="half_towards_infinity"),
    exp.Floor: pc.floor,
    exp.Ceil: pc.ceil,
}
MAX_DIGITS: Final = 76
"""Limit for the digits of ROUND, that of the widest decimals: Arrow's cost grows with the digits."""
_MAX_INTERVAL: Final = 10**18
_UNIT_SECONDS: Final = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400}
_KNOWN: Final = (
    "+ - * /, comparisons, BETWEEN, IN, LIKE, ILIKE, AND OR NOT, IS NULL, ||, CASE, CAST, COALESCE, LOWER, "
    "UPPER, LENGTH, TRIM, ABS, ROUND, FLOOR, CEIL, INTERVAL"
)
WINDOW_FUNCTIONS: Final = (
    exp.RowNumber, exp.Lag, exp.Lead, exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.Count,
    exp.Sum, exp.Min, exp.Max, exp.Avg,
)  # fmt: skip


def parsed_expression(text: str, what: str) -> exp.Expression:
    """Returns the syntax tree. Raises `ConfigError` for invalid SQL.

    what: subject of the message.
    """
    try:
        return parsed(text)
    except SqlError as error:
        raise ConfigError(f"{what}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{what}: {shown(text)} is nested too deeply") from None


class Expression:
    """One expression, bound to a schema."""

    def __init__(
        self, text: str, schema: pa.Schema, what: str, tree: exp.Expression | None = None
    ) -> None:
        """Raises `ConfigError` for invalid SQL, unknown functions, and type mismatches.

        what: subject of messages. tree: evaluated instead of the parsed text.
        """
        self.text = text
        self._schema = schema
        try:
            self._evaluate = self._bind(parsed_expression(text, what) if tree is None else tree)
        except SqlError as error:
            raise ConfigError(f"{what}: {error}") from None
        except (RecursionError, OverflowError, *OF_VALUES):
            raise ConfigError(
                f"{what}: {text[:100]!r} is too long, or has a number too large"
            ) from None
        empty = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
        try:
            self.type: pa.DataType = self(empty).type
        except OF_VALUES as error:
            cause = str(error).splitlines()[0]
            raise ConfigError(
                f"{what}: {text!r} does not fit the columns' types: {cause}"
            ) from None

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """Raises `pa.ArrowException` for values outside the expression's domain."""
        value = self._evaluate(batch)
        if isinstance(value, pa.Scalar):
            return pa.repeat(value, batch.num_rows)
        return one_array(value) if isinstance(value, pa.ChunkedArray) else value

    def _bind(self, tree: exp.Expression) -> Callable[[pa.RecordBatch], Any]:
        """Raises `SqlError`."""
        match tree:
            case exp.Paren():
                return self._bind(tree.this)
            case exp.Column():
                name = field_of(tree, self._schema).name
                return lambda batch: batch.column(name)
            case exp.Literal():
                value = pa.scalar(tree.this if tree.is_string else _number(tree.this))
                return lambda _batch: value
            case exp.Boolean():
                flag = pa.scalar(bool(tree.this))
                return lambda _batch: flag
            case exp.Null():
                return lambda _batch: pa.scalar(None)
            case _ if _is_condition(tree):
                return self._condition(tree)
            case exp.Is() if isinstance(tree.expression, exp.Null):
                of = self._bind(tree.this)
                return lambda batch: pc.is_null(of(batch))
            case exp.DPipe():
                left, right = self._bind(tree.this), self._bind(tree.expression)
                return lambda b: pc.binary_join_element_wise(_text(left(b)), _text(right(b)), "")
            case exp.Coalesce():
                parts = [self._bind(part) for part in (tree.this, *tree.expressions)]
                return lambda batch: coalesce([part(batch) for part in parts])
            case exp.Cast() if type(tree) is exp.Cast:
                return self._cast(tree)
            case exp.Round() if tree.args.get("decimals") is not None:
                return self._round(tree)
            case exp.Case():
                return self._case(tree)
            case exp.Interval():
                length = self._interval(tree)
                return lambda _batch: length
        if (connective := _CONNECTIVES.get(type(tree))) is not None:
            sides = [self._bind(part) for part in operands(tree)]
            return lambda batch: reduce(connective, (side(batch) for side in sides))
        if (binary := _BINARY.get(type(tree))) is not None:
            left, right = self._bind(tree.this), self._bind(tree.expression)
            return lambda batch: binary(left(batch), right(batch))
        has_more = any(value for name, value in tree.args.items() if name != "this")
        if (unary := _UNARY.get(type(tree))) is not None and not has_more:
            inner = self._bind(tree.this)
            return lambda batch: unary(inner(batch))
        if isinstance(tree, (*WINDOW_FUNCTIONS, exp.Window)):
            raise SqlError(
                f"{shown_node(tree)!r} looks at other rows: that needs a `window`, and not within "
                "another such function"
            )
        raise SqlError(f"{shown_node(tree)!r} is not understood; known are {_KNOWN}")

    def _condition(self, tree: exp.Expression) -> Callable[[pa.RecordBatch], Any]:
        predicate = bound(tree, self._schema)
        names = columns_of(predicate)

        def holds(batch: pa.RecordBatch) -> pa.Array:
            arrays = {name: to_storage(batch.column(name)) for name in names}
            return matching(predicate, arrays, batch.num_rows)

        return holds

    def _cast(self, tree: exp.Cast) -> Callable[[pa.RecordBatch], Any]:
        check_arguments(tree, ("this", "to"))
        name = tree.to.sql().upper()
        if name not in TYPES:
            raise SqlError(f"no type {name}; types are: {', '.join(TYPES)}")
        of, dtype = self._bind(tree.this), TYPES[name]
        return lambda batch: _converted(of(batch), dtype)

    def _round(self, tree: exp.Round) -> Callable[[pa.RecordBatch], Any]:
        of, digits = self._bind(tree.this), tree.args["decimals"]
        count = whole_number(digits, MAX_DIGITS)
        if count is None or digits.is_string or len(tree.args) > 2:
            raise SqlError(f"{shown_node(tree)!r}: digits are a number from 0 to {MAX_DIGITS}")
        return lambda b: pc.round(of(b), ndigits=count, round_mode="half_towards_infinity")

    def _interval(self, tree: exp.Interval) -> pa.Scalar:
        unit = str(tree.args.get("unit") or "").upper().removesuffix("S")
        count = whole_number(tree.this, _MAX_INTERVAL)
        if unit not in _UNIT_SECONDS or count is None:
            units = ", ".join(_UNIT_SECONDS).lower()
            raise SqlError(
                f"{shown_node(tree)!r}: an interval is a whole number of {units}, as in "
                "INTERVAL '30 minutes'"
            )
        return pa.scalar(count * _UNIT_SECONDS[unit], pa.duration("s"))

    def _case(self, tree: exp.Case) -> Callable[[pa.RecordBatch], Any]:
        branches = [
            (self._bind(_when(tree.this, part.this)), self._bind(part.args["true"]))
            for part in tree.args["ifs"]
        ]
        default = self._bind(tree.args["default"] or exp.Null())

        def choose(batch: pa.RecordBatch) -> Any:
            result = default(batch)
            for condition, value in reversed(branches):
                # Unknown counts as false.
                holds = pc.fill_null(condition(batch), False)
                result = if_else(holds, value(batch), result)
            return result

        return choose


def _is_condition(tree: exp.Expression) -> bool:
    """Returns whether this node compares a column with a value, and so is evaluated as a condition."""
    if isinstance(tree, exp.Is):
        return isinstance(tree.expression, exp.Boolean)
    if type(tree) not in COMPARISONS:
        return isinstance(tree, exp.In | exp.Between | exp.Like | exp.ILike | exp.Escape)
    sides = bare(tree.this), bare(tree.expression)
    return any(isinstance(s, exp.Column) for s in sides) and any(_is_value(s) for s in sides)


def _is_value(tree: exp.Expression) -> bool:
    positive = bare(tree.this) if isinstance(tree, exp.Neg) else tree
    return isinstance(positive, exp.Literal | exp.Boolean | exp.Null)


def _when(case: exp.Expression | None, when: exp.Expression) -> exp.Expression:
    """Returns a branch's condition; handles `CASE x WHEN 1` too."""
    return when if case is None else exp.EQ(this=case, expression=when)


def quoted(name: str) -> str:
    """Quotes a column name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def whole_number(tree: exp.Expression | None, limit: int) -> int | None:
    """Returns the integer of a literal, quoted or not; None unless it is within 0 to `limit`."""
    text = tree.this if isinstance(tree, exp.Literal) else ""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(limit))):
        return None
    number = int(text)
    return number if number <= limit else None


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if math.isinf(number):
        raise OverflowError
    return number


def _text(value: Any) -> Any:
    return value if pt.is_string(value.type) else _converted(value, pa.string())


def _converted(value: Any, dtype: pa.DataType) -> Any:
    """Casts an array or a scalar."""
    if isinstance(value, pa.Scalar):
        return converted(pa.repeat(value, 1), dtype)[0]
    return converted(value, dtype)
