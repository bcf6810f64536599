"""Binds syntax trees to a schema: values here, conditions in `compactor.predicate.parse`."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa
from sqlglot import expressions as exp

from compactor.predicate.expressions import nested
from compactor.predicate.expressions.arithmetic import arithmetic, negated
from compactor.predicate.expressions.bound import Bound, applied, constant, unknown
from compactor.predicate.expressions.choosing import case, coalesce
from compactor.predicate.expressions.conversion import cast_value
from compactor.predicate.expressions.functions import FUNCTIONS, JSON_PATHS, LIST_CONTAINS, called
from compactor.predicate.expressions.json_values import json_contains, unwrapped
from compactor.predicate.expressions.texts import joined
from compactor.predicate.expressions.types import sql_type
from compactor.predicate.sql import (
    SqlError,
    bare,
    cast_operand,
    check_arguments,
    path_of,
    shown_node,
    whole_number,
)
from lsm_fragment.arrays.decimals import MOST_DIGITS, decimal_type
from lsm_fragment.arrays.storage import to_storage

Condition = Callable[[exp.Expression], Bound]
"""Binds a node of `CONDITIONS`."""
CONDITIONS: Final = (
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Between,
    exp.Like, exp.ILike, exp.Escape, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ,
)  # fmt: skip
_OPERATORS: Final[dict[type[exp.Expression], str]] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
}  # fmt: skip
_TRIMS: Final = {"LEADING": "ltrim", "TRAILING": "rtrim"}
_INTEGERS: Final = {pa.int64(): (-(2**63), 2**63 - 1), pa.uint64(): (0, 2**64 - 1)}
"""The types of constants, with their ranges."""
_MAX_INTERVAL: Final = 10**18
_UNIT_SECONDS: Final = {
    "MILLISECOND": 0, "SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400, "WEEK": 604_800,
}  # fmt: skip
_UNIT_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_MAX_MONTHS: Final = 12 * 10**6


class Binder:
    """Binds values. Raises `SqlError` for unknown functions, missing columns, and types that do not fit."""

    def __init__(self, schema: pa.Schema, condition: Condition, *, unwraps: bool) -> None:
        """unwraps: whether columns of JSON are texts here (see `json_values.unwrapped`)."""
        self._schema = schema
        self._unwraps = unwraps
        self._condition = condition
        self._now = datetime.now(UTC)

    def bound(self, node: exp.Expression) -> Bound:
        if isinstance(node, CONDITIONS):
            return self._condition(node)
        if (operator := _OPERATORS.get(type(node))) is not None:
            return self._calculated(node, operator)
        if (bind := _NODES.get(type(node))) is not None:
            return bind(self, node)
        text = shown_node(node)
        if isinstance(node, exp.AggFunc | exp.RowNumber | exp.Window):
            raise SqlError(
                f"{text!r} looks at other rows: that needs an `aggregate` or a `window` of a pipeline, and "
                "not within another such function"
            )
        raise SqlError(f"{text!r} is not understood: see docs/reference/expressions.md")

    def _column(self, node: exp.Expression) -> Bound:
        assert isinstance(node, exp.Column)
        field, path = path_of(node, self._schema)
        name, text = field.name, shown_node(node)
        found = Bound(text, field.type, frozenset((name,)), lambda rows: rows.column(name))
        if self._unwraps and isinstance(field.type, pa.JsonType):
            found = applied(unwrapped, [found], text)
        for part in path:
            found = self._field(found, part, shown_node(node))
        return found

    def json_column(self, node: exp.Expression) -> Bound | None:
        """Binds a column of JSON as such; returns None for anything else."""
        node = bare(node)
        if not isinstance(node, exp.Column):
            return None
        field, path = path_of(node, self._schema)
        if path or not isinstance(field.type, pa.JsonType):
            return None
        name = field.name
        return Bound(
            shown_node(node), field.type, frozenset((name,)), lambda rows: rows.column(name)
        )

    def _field(self, value: Bound, name: str, text: str) -> Bound:
        return applied(lambda structs: nested.field(structs, name), [value], text)

    def _dot(self, node: exp.Expression) -> Bound:
        if not isinstance(node.expression, exp.Identifier):
            raise SqlError(f"{shown_node(node)!r}: a field has a name")
        return self._field(self.bound(node.this), node.expression.name, shown_node(node))

    def _bracket(self, node: exp.Expression) -> Bound:
        """Binds `list[number]`, `map[key]` and `struct['field']`."""
        text = shown_node(node)
        value, keys = self.bound(node.this), node.expressions
        if len(keys) != 1 or isinstance(keys[0], exp.Slice):
            raise SqlError(f"{text!r}: name one element in brackets")
        key = self.bound(keys[0])
        if value.kind == "struct" and key.kind == "text" and key.value is not None:
            return self._field(value, key.value.as_py(), text)
        if "null" in (value.kind, key.kind):
            return unknown([value, key], text)
        if value.kind == "map":
            return applied(nested.value_of, [value, key], text)
        if value.kind != "list" or key.kind != "integer":
            raise SqlError(
                f"{text!r}: brackets follow a list and hold a number, or a map and hold a key; "
                f"{value.text!r} is {value.type}, {key.text!r} is {key.type}"
            )
        return applied(nested.element, [value, key], text)

    def _literal(self, node: exp.Expression) -> Bound:
        value = pa.scalar(node.this) if node.is_string else _number(node.this)
        return constant(shown_node(node), value)

    def _interval(self, node: exp.Expression) -> Bound:
        unit = str(node.args.get("unit") or "").upper().removesuffix("S")
        count = _signed(node.this, _MAX_INTERVAL)
        known = (*_UNIT_SECONDS, *_UNIT_MONTHS)
        if unit not in known or count is None:
            raise SqlError(
                f"{shown_node(node)!r}: an interval is a whole number of {', '.join(known).lower()}, as in "
                "INTERVAL '30 minutes'"
            )
        if unit in _UNIT_MONTHS:
            months = count * _UNIT_MONTHS[unit]
            if abs(months) > _MAX_MONTHS:
                raise SqlError(
                    f"{shown_node(node)!r}: an interval has at most {_MAX_MONTHS} months"
                )
            return constant(shown_node(node), pa.scalar(pa.MonthDayNano([months, 0, 0])))
        seconds = _UNIT_SECONDS[unit]
        length = pa.scalar(count * (seconds or 1), pa.duration("s" if seconds else "ms"))
        return constant(shown_node(node), length)

    def _calculated(self, node: exp.Expression, operator: str) -> Bound:
        sides = [self.bound(side) for side in (node.this, node.expression)]
        exact = [
            self._exactly(n, part, sides)
            for n, part in zip((node.this, node.expression), sides, strict=True)
        ]
        if any(part.kind == "null" for part in exact):
            return unknown(exact, shown_node(node))
        return applied(arithmetic(operator), exact, shown_node(node))

    def _exactly(self, node: exp.Expression, part: Bound, sides: list[Bound]) -> Bound:
        """Returns a literal such as 1.5 as a decimal, if the other side is one."""
        node = bare(node)
        is_exact = isinstance(node, exp.Literal) and not node.is_string and part.kind == "float"
        if not is_exact or all(side.kind != "decimal" for side in sides):
            return part
        return constant(part.text, pa.scalar(Decimal(node.this)))

    def _cast(self, node: exp.Expression) -> Bound:
        is_safe = not isinstance(node, exp.TryCast)
        check_arguments(node, ("this", "to") if is_safe else ("this", "to", "safe"))
        try:
            dtype = sql_type(node.args["to"].sql())
        except ValueError as error:
            raise SqlError(str(error)) from None
        return applied(
            lambda value: cast_value(value, dtype, is_safe=is_safe),
            [self.bound(cast_operand(node))],
            shown_node(node),
        )

    def _case(self, node: exp.Expression) -> Bound:
        branches = [
            (self._flag(_when(node.this, part.this)), self.bound(part.args["true"]))
            for part in node.args["ifs"]
        ]
        return self._choice(branches, node.args["default"], node)

    def _if(self, node: exp.Expression) -> Bound:
        branch = self._flag(node.this), self.bound(node.args["true"])
        return self._choice([branch], node.args.get("false"), node)

    def _choice(
        self,
        branches: list[tuple[Bound, Bound]],
        default: exp.Expression | None,
        node: exp.Expression,
    ) -> Bound:
        other = None if default is None else self.bound(default)
        return case(branches, other, shown_node(node))

    def _flag(self, node: exp.Expression) -> Bound:
        found = self.bound(node)
        if found.kind not in ("boolean", "null"):
            raise SqlError(f"{found.text!r} is {found.type}, not boolean: compare it with a value")
        return constant(found.text, pa.scalar(None, pa.bool_())) if found.kind == "null" else found

    def _joined(self, node: exp.Expression) -> Bound:
        parts = [self.bound(node.this), self.bound(node.expression)]
        if any(part.kind == "null" for part in parts):
            return unknown(parts, shown_node(node))
        return applied(joined, parts, shown_node(node))

    def _negative(self, node: exp.Expression) -> Bound:
        literal = bare(node.this)
        if isinstance(literal, exp.Literal) and not literal.is_string:
            return constant(shown_node(node), _number(f"-{literal.this}"))
        part = self.bound(node.this)
        if part.kind not in ("integer", "decimal", "float", "duration", "null"):
            raise SqlError(f"{shown_node(node)!r}: {part.text!r} is {part.type}, not a number")
        return (
            unknown([part], part.text)
            if part.kind == "null"
            else applied(negated, [part], shown_node(node))
        )

    def _array(self, node: exp.Expression) -> Bound:
        """Binds a list of constants."""
        text, parts = shown_node(node), [self.bound(part) for part in node.expressions]
        values = [part.value for part in parts if part.value is not None]
        if len(values) < len(parts):
            raise SqlError(f"{text!r}: a list holds constants")
        if not values:
            return constant(text, pa.scalar([], pa.list_(pa.null())))
        dtype = coalesce(parts, text).type
        items = [cast_value(value, dtype).as_py() for value in values]
        return constant(text, pa.scalar(items, pa.list_(dtype)))

    def _of_json(self, node: exp.Expression) -> Bound:
        """Binds `json -> path` and `json ->> path`."""
        is_text = isinstance(node, exp.JSONExtractScalar)
        name = "json_extract_string" if is_text else "json_extract"
        return self._call(name, [node.this, node.expression], node)

    def _at_zone(self, node: exp.Expression) -> Bound:
        return self._call("timezone", [node.args["zone"], node.this], node)

    def _function(self, node: exp.Expression) -> Bound:
        return self._call(str(node.this), node.expressions, node)

    def _call(self, name: str, arguments: list[Any], node: exp.Expression) -> Bound:
        lower, text = name.lower(), shown_node(node)
        if (special := _SPECIAL.get(lower)) is not None:
            return special(self, arguments, text)
        if lower in LIST_CONTAINS and len(arguments) == 2:
            column = self.json_column(arguments[0])
            if column is not None:
                return applied(json_contains, [column, self.bound(arguments[1])], text)
        if lower in JSON_PATHS and arguments:
            column = self.json_column(arguments[0])
            if column is not None:
                whole = applied(to_storage, [column], column.text)
                return called(lower, [whole, *map(self.bound, arguments[1:])], text)
        if lower not in FUNCTIONS:
            near = get_close_matches(lower, (*FUNCTIONS, *_SPECIAL), n=1)
            advice = f"did you mean {near[0]}?" if near else "see docs/reference/expressions.md"
            raise SqlError(f"{text!r}: there is no function {name}: {advice}")
        return called(lower, [self.bound(argument) for argument in arguments], text)

    def _trim(self, node: exp.Expression) -> Bound:
        check_arguments(node, ("this", "expression", "position"))
        name = _TRIMS.get(str(node.args.get("position")), "trim")
        return self._call(name, _given(node, "this", "expression"), node)

    def _substring(self, node: exp.Expression) -> Bound:
        return self._call("substring", _given(node, "this", "start", "length"), node)

    def _position(self, node: exp.Expression) -> Bound:
        check_arguments(node, ("this", "substr"))
        return self._call("strpos", _given(node, "this", "substr"), node)

    def _extract(self, node: exp.Expression) -> Bound:
        unit = exp.Literal.string(node.this.name)
        return self._call("date_part", [unit, node.expression], node)

    def _current_time(self, node: exp.Expression) -> Bound:
        now = pa.scalar(self._now, pa.timestamp("us", "UTC"))
        is_date = isinstance(node, exp.CurrentDate)
        return constant(shown_node(node), cast_value(now, pa.date32()) if is_date else now)

    def coalesced(self, arguments: list[Any], text: str) -> Bound:
        if not arguments:
            raise SqlError(f"{text!r}: it takes at least one value")
        return coalesce([self.bound(argument) for argument in arguments], text)

    def null_if(self, arguments: list[Any], text: str) -> Bound:
        if len(arguments) != 2:
            raise SqlError(f"{text!r}: it takes two values")
        value = self.bound(arguments[0])
        equal = self._condition(exp.EQ(this=arguments[0].copy(), expression=arguments[1].copy()))
        return case([(equal, constant("NULL", pa.scalar(None, value.type)))], value, text)

    def if_function(self, arguments: list[Any], text: str) -> Bound:
        if len(arguments) not in (2, 3):
            raise SqlError(f"{text!r}: it takes a condition and one or two values")
        branch = self._flag(arguments[0]), self.bound(arguments[1])
        other = self.bound(arguments[2]) if len(arguments) == 3 else None
        return case([branch], other, text)

    def instant(self, arguments: list[Any], text: str) -> Bound:
        if arguments:
            raise SqlError(f"{text!r}: it takes no arguments")
        return constant(text, pa.scalar(self._now, pa.timestamp("us", "UTC")))


_NODES: Final[dict[type[exp.Expression], Callable[[Binder, exp.Expression], Bound]]] = {
    exp.Paren: lambda binder, node: binder.bound(node.this),
    exp.Column: Binder._column,
    exp.Dot: Binder._dot,
    exp.Bracket: Binder._bracket,
    exp.Literal: Binder._literal,
    exp.Boolean: lambda _binder, node: constant(shown_node(node), pa.scalar(bool(node.this))),
    exp.Null: lambda _binder, _node: constant("NULL", pa.scalar(None)),
    exp.Interval: Binder._interval,
    exp.Cast: Binder._cast,
    exp.TryCast: Binder._cast,
    exp.Case: Binder._case,
    exp.If: Binder._if,
    exp.DPipe: Binder._joined,
    exp.Neg: Binder._negative,
    exp.Anonymous: Binder._function,
    exp.Trim: Binder._trim,
    exp.Substring: Binder._substring,
    exp.StrPosition: Binder._position,
    exp.Extract: Binder._extract,
    exp.Array: Binder._array,
    exp.JSONExtract: Binder._of_json,
    exp.JSONExtractScalar: Binder._of_json,
    exp.AtTimeZone: Binder._at_zone,
    exp.CurrentTimestamp: Binder._current_time,
    exp.CurrentDate: Binder._current_time,
}
_SPECIAL: Final[dict[str, Callable[[Binder, list[Any], str], Bound]]] = {
    "coalesce": Binder.coalesced,
    "ifnull": Binder.coalesced,
    "nullif": Binder.null_if,
    "iff": Binder.if_function,
    "now": Binder.instant,
}


def _given(node: exp.Expression, *names: str) -> list[Any]:
    return [node.args[name] for name in names if node.args.get(name) is not None]


def _when(subject: exp.Expression | None, when: exp.Expression) -> exp.Expression:
    """Returns a branch's condition; handles `CASE x WHEN 1` too."""
    return when if subject is None else exp.EQ(this=subject.copy(), expression=when.copy())


def _signed(node: exp.Expression | None, limit: int) -> int | None:
    """Returns the whole number of a literal, from -`limit` to `limit`."""
    if not isinstance(node, exp.Literal) or not node.this.startswith("-"):
        return whole_number(node, limit)
    count = whole_number(exp.Literal.string(node.this[1:]), limit)
    return None if count is None else -count


def _number(text: str) -> pa.Scalar:
    """Returns an integer of 64 bits if one holds the number, else a decimal; a double with a point or an
    exponent."""
    if (digits := text.removeprefix("-")).isdigit():
        if len(digits) > MOST_DIGITS:
            raise SqlError(
                f"a number of {len(digits):,} digits is too large: without an exponent, as in 1e80, a number "
                f"has at most {MOST_DIGITS}"
            )
        number = int(text)
        for dtype, (low, high) in _INTEGERS.items():
            if low <= number <= high:
                return pa.scalar(number, dtype)
        return pa.scalar(Decimal(number), decimal_type(len(digits), 0))
    if math.isinf(double := float(text)):
        raise OverflowError
    return pa.scalar(double)
