"""SQL expressions on the columns of a batch: sqlglot parses them, Arrow's compute functions evaluate them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import expressions as exp

from compactor.errors import ConfigError
from compactor.pipelines.types import TYPES
from compactor.predicate.tree import differs

_BINARY: Final[dict[type[exp.Expression], Callable[[Any, Any], Any]]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
    exp.Div: pc.divide_checked,
    exp.EQ: pc.equal,
    exp.NEQ: differs,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
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
MOST_DIGITS: Final = 76
"""Behind the point, that a number is rounded to: as many as the widest decimals have. Arrow's work grows with
them."""
_MOST_INTERVAL: Final = 10**18
_UNIT_SECONDS: Final = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400}
_KNOWN: Final = (
    "+ - * /, comparisons, AND OR NOT, IS NULL, ||, CASE, CAST, COALESCE, LOWER, UPPER, LENGTH, TRIM, ABS, "
    "ROUND, FLOOR, CEIL, INTERVAL"
)
WINDOW_FUNCTIONS: Final = (
    exp.RowNumber, exp.Lag, exp.Lead, exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.Count,
    exp.Sum, exp.Min, exp.Max, exp.Avg,
)  # fmt: skip


def parsed(text: str, what: str) -> exp.Expression:
    """Raises `ConfigError` for what is not SQL."""
    try:
        return cast(exp.Expression, sqlglot.parse_one(text))
    except (sqlglot.errors.SqlglotError, RecursionError):
        raise ConfigError(f"{what}: {text!r} is no SQL expression") from None


class Expression:
    """One expression, bound to a schema."""

    def __init__(
        self, text: str, schema: pa.Schema, what: str, tree: exp.Expression | None = None
    ) -> None:
        """tree: what the text was made into, if that is more than parsed.

        Raises `ConfigError` for what is not SQL, not known, or does not fit the columns' types."""
        self.text = text
        self._schema = schema
        self._what = what
        try:
            self._evaluate = self._bind(parsed(text, what) if tree is None else tree)
        except (RecursionError, OverflowError, pa.ArrowException):
            raise ConfigError(
                f"{what}: {text[:100]!r} is too long, or has a number too large"
            ) from None
        empty = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
        try:
            self.type: pa.DataType = self(empty).type
        except pa.ArrowException as error:
            cause = str(error).splitlines()[0]
            raise ConfigError(
                f"{what}: {text!r} does not fit the columns' types: {cause}"
            ) from None

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """Raises `pa.ArrowException` for values that it is not defined of."""
        value = self._evaluate(batch)
        if isinstance(value, pa.Scalar):
            return pa.repeat(value, batch.num_rows)
        return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value

    def _bind(self, tree: exp.Expression) -> Callable[[pa.RecordBatch], Any]:
        match tree:
            case exp.Paren():
                return self._bind(tree.this)
            case exp.Column() if not tree.table:
                return self._column(tree.name)
            case exp.Literal():
                value = pa.scalar(tree.this if tree.is_string else _number(tree.this))
                return lambda _batch: value
            case exp.Boolean():
                flag = pa.scalar(bool(tree.this))
                return lambda _batch: flag
            case exp.Null():
                return lambda _batch: pa.scalar(None)
            case exp.Is() if isinstance(tree.expression, exp.Null):
                of = self._bind(tree.this)
                return lambda batch: pc.is_null(of(batch))
            case exp.DPipe():
                left, right = self._bind(tree.this), self._bind(tree.expression)
                return lambda b: pc.binary_join_element_wise(_text(left(b)), _text(right(b)), "")
            case exp.Coalesce():
                parts = [self._bind(part) for part in (tree.this, *tree.expressions)]
                return lambda batch: pc.coalesce(*(part(batch) for part in parts))
            case exp.Cast() if type(tree) is exp.Cast:
                return self._cast(tree)
            case exp.Round() if tree.args.get("decimals") is not None:
                return self._round(tree)
            case exp.Case():
                return self._case(tree)
            case exp.Interval():
                length = self._interval(tree)
                return lambda _batch: length
        if (binary := _BINARY.get(type(tree))) is not None:
            left, right = self._bind(tree.this), self._bind(tree.expression)
            return lambda batch: binary(left(batch), right(batch))
        has_more = any(value for name, value in tree.args.items() if name != "this")
        if (unary := _UNARY.get(type(tree))) is not None and not has_more:
            inner = self._bind(tree.this)
            return lambda batch: unary(inner(batch))
        if isinstance(tree, (*WINDOW_FUNCTIONS, exp.Window)):
            raise ConfigError(
                f"{self._what}: {tree.sql()!r} looks at other rows: that needs a `window`, and not within "
                "another such function"
            )
        raise ConfigError(f"{self._what}: {tree.sql()!r} is not understood; known are {_KNOWN}")

    def _column(self, name: str) -> Callable[[pa.RecordBatch], Any]:
        if name not in self._schema.names:
            there = ", ".join(n for n in self._schema.names[:50] if not n.startswith("$window"))
            raise ConfigError(f"{self._what}: no column {name!r}; columns are: {there}")
        return lambda batch: batch.column(name)

    def _cast(self, tree: exp.Cast) -> Callable[[pa.RecordBatch], Any]:
        name = tree.to.sql().upper()
        if name not in TYPES:
            raise ConfigError(f"{self._what}: no type {name}; types are: {', '.join(TYPES)}")
        of, dtype = self._bind(tree.this), TYPES[name]
        return lambda batch: pc.cast(of(batch), dtype)

    def _round(self, tree: exp.Round) -> Callable[[pa.RecordBatch], Any]:
        of, digits = self._bind(tree.this), tree.args["decimals"]
        count = whole_number(digits, MOST_DIGITS)
        if count is None or digits.is_string or len(tree.args) > 2:
            raise ConfigError(
                f"{self._what}: {tree.sql()[:100]!r}: digits are a number from 0 to {MOST_DIGITS}"
            )
        return lambda b: pc.round(of(b), ndigits=count, round_mode="half_towards_infinity")

    def _interval(self, tree: exp.Interval) -> pa.Scalar:
        unit = str(tree.args.get("unit") or "").upper().removesuffix("S")
        count = whole_number(tree.this, _MOST_INTERVAL)
        if unit not in _UNIT_SECONDS or count is None:
            units = ", ".join(_UNIT_SECONDS).lower()
            raise ConfigError(
                f"{self._what}: {tree.sql()[:100]!r}: an interval is a whole number of {units}, as in "
                "INTERVAL '30 minutes'"
            )
        return pa.scalar(count * _UNIT_SECONDS[unit], pa.duration("s"))

    def _case(self, tree: exp.Case) -> Callable[[pa.RecordBatch], Any]:
        of = None if tree.this is None else self._bind(tree.this)
        branches = [
            (self._bind(part.this), self._bind(part.args["true"])) for part in tree.args["ifs"]
        ]
        default = self._bind(tree.args["default"] or exp.Null())

        def choose(batch: pa.RecordBatch) -> Any:
            result = default(batch)
            for condition, value in reversed(branches):
                holds = condition(batch)
                if of is not None:
                    holds = pc.equal(of(batch), holds)
                # What is unknown does not hold.
                result = pc.if_else(pc.fill_null(holds, False), value(batch), result)
            return result

        return choose


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def whole_number(tree: exp.Expression | None, most: int) -> int | None:
    """Returns the number that a literal is, with or without quotes; None if it is none from 0 to `most`."""
    text = tree.this if isinstance(tree, exp.Literal) else ""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        return None
    number = int(text)
    return number if number <= most else None


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if math.isinf(number):
        raise OverflowError
    return number


def _text(value: Any) -> Any:
    return value if pa.types.is_string(value.type) else pc.cast(value, pa.string())
