"""Parses calls of aggregate functions: the function, the expressions that it takes, and its constants."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import types as pt
from sqlglot import expressions as exp

from compactor.common.escaping import shortened
from compactor.errors import ConfigError
from compactor.predicate.computed import Expression, parsed_expression
from compactor.predicate.sql import SqlError, check_arguments, path_of

_FUNCTIONS: Final[dict[type[exp.Expression], str]] = {
    exp.Count: "count", exp.CountIf: "count_if", exp.Sum: "sum", exp.Avg: "avg",
    exp.Min: "min", exp.Max: "max",
    exp.Stddev: "stddev", exp.StddevSamp: "stddev", exp.StddevPop: "stddev_pop",
    exp.Variance: "variance", exp.VariancePop: "var_pop",
    exp.LogicalAnd: "bool_and", exp.LogicalOr: "bool_or",
    exp.First: "first", exp.FirstValue: "first", exp.Last: "last", exp.LastValue: "last",
    exp.ArgMin: "min_by", exp.ArgMax: "max_by",
    exp.Median: "median", exp.Quantile: "quantile", exp.GroupConcat: "string_agg",
}  # fmt: skip
KNOWN: Final = (
    "count, count(x), count(distinct x), count_if(x), sum(x), sum(distinct x), min(x), max(x), mean(x), "
    "avg(x), avg(distinct x), stddev(x), stddev_pop(x), variance(x), var_pop(x), median(x), "
    "quantile(x, 0.95), first(x), last(x), min_by(x, y), max_by(x, y), bool_and(x), bool_or(x), "
    "string_agg(x, ', ')"
)
_DISTINCT: Final = ("count", "sum", "avg")
"""Functions that differ once every value counts once."""
_PLAIN_NAME: Final = re.compile(r"\s*count\s*(\(\s*\))?\s*", re.IGNORECASE)
_MAX_SEPARATOR: Final = 1000
_MAX_SHOWN: Final = 200


class Call(NamedTuple):
    """A call of an aggregate function."""

    function: str
    arguments: tuple[Expression, ...]
    """One at least: rows are counted by an expression that is true for each."""
    constant: Any
    """The fraction of `quantile`, the separator of `string_agg`; else None."""
    what: str
    """Subject of messages."""
    uses: frozenset[str]
    """The columns of the schema that the arguments read."""

    def error(self, problem: str) -> ConfigError:
        return ConfigError(f"{self.what}: {problem}")


def parse_call(text: str, schema: pa.Schema, what: str) -> Call:
    """Parses a call and binds its arguments. Raises `ConfigError`.

    what: subject of messages.
    """
    text = "count(*)" if _PLAIN_NAME.fullmatch(text) else text
    what = f"{what}: {shortened(text.strip(), _MAX_SHOWN)}"
    tree, condition = parsed_expression(text, what), None
    try:
        if isinstance(tree, exp.Filter):
            tree, condition = tree.this, tree.expression.this
        function = _function(tree)
        trees, constant = _taken(function, tree)
        given = [*trees, *([] if condition is None else [condition])]
        columns = [column for each in given for column in each.find_all(exp.Column)]
        uses = frozenset(path_of(column, schema)[0].name for column in columns)
        if any(each.find(exp.AggFunc) for each in given):
            raise SqlError("an aggregate takes no other aggregate")
    except SqlError as error:
        raise ConfigError(f"{what}: {error}") from None
    if condition is not None:
        if not pt.is_boolean(_bound(condition, schema, what).type):
            raise ConfigError(f"{what}: FILTER (WHERE ...) takes a condition")
        trees = _filtered(function, trees, condition)
    arguments = tuple(_bound(each, schema, what) for each in trees)
    return Call(function, arguments, constant, what, uses)


def _bound(tree: exp.Expression, schema: pa.Schema, what: str) -> Expression:
    return Expression(str(tree.sql()), schema, what, tree)


def _function(tree: exp.Expression) -> str:
    is_mean = isinstance(tree, exp.Anonymous) and str(tree.this).lower() == "mean"
    function = "avg" if is_mean else _FUNCTIONS.get(type(tree))
    if function is None:
        raise SqlError(
            f"that is no call of an aggregate; known are {KNOWN}; compute with their results in a transform"
        )
    if _distinct(tree) is not None:
        if function in _DISTINCT:
            return f"{function} distinct"
        if function not in ("min", "max"):
            raise SqlError(f"DISTINCT is for {', '.join(_DISTINCT)}, min and max")
    return function


def _distinct(tree: exp.Expression) -> Sequence[exp.Expression] | None:
    """Returns what a call takes of each value once; None if it takes all."""
    given = (
        tree.expressions[0] if isinstance(tree, exp.Anonymous) and tree.expressions else tree.this
    )
    return given.expressions if isinstance(given, exp.Distinct) else None


def _taken(function: str, tree: exp.Expression) -> tuple[Sequence[exp.Expression], Any]:
    """Returns the arguments and the constant of a call."""
    match function:
        case "count" if isinstance(tree.this, exp.Star):
            return [exp.true()], None
        case _ if (distinct := _distinct(tree)) is not None:
            return _only(distinct), None
        case "quantile":
            return [tree.this], _fraction(tree)
        case "string_agg":
            return [tree.this], _separator(tree)
        case "min_by" | "max_by":
            check_arguments(tree, ("this", "expression"))
            if tree.expression is None:
                raise SqlError("it takes two expressions")
            return [tree.this, tree.expression], None
    given = tree.expressions if isinstance(tree, exp.Anonymous) else [tree.this, *tree.expressions]
    return _only(given), None


def _only(arguments: Sequence[exp.Expression]) -> Sequence[exp.Expression]:
    if len(arguments) != 1 or arguments[0] is None or isinstance(arguments[0], exp.Star):
        raise SqlError("it takes one expression")
    return arguments


def _filtered(
    function: str, arguments: Sequence[exp.Expression], condition: exp.Expression
) -> Sequence[exp.Expression]:
    """Returns arguments that are null where the condition does not hold: aggregates leave nulls out. `first`
    and `last` take nulls, so they take the condition too."""
    first, *more = arguments
    chosen = exp.Case(ifs=[exp.If(this=condition.copy(), true=first.copy())], default=exp.Null())
    return [chosen, *more, *([condition] if function in ("first", "last") else [])]


def _fraction(tree: exp.Expression) -> float:
    given = tree.args.get("quantile")
    fraction = -1.0
    if isinstance(given, exp.Literal) and not given.is_string:
        fraction = float(given.this)
    if not 0 <= fraction <= 1:
        raise SqlError("the fraction is a number from 0 to 1, as in quantile(x, 0.95)")
    return fraction


def _separator(tree: exp.Expression) -> str:
    if isinstance(tree.this, exp.Order):
        raise SqlError("texts come in the order of the rows: sort before")
    given = tree.args.get("separator")
    if given is None:
        return ","
    if (
        not isinstance(given, exp.Literal)
        or not given.is_string
        or len(given.this) > _MAX_SEPARATOR
    ):
        raise SqlError(
            f"the separator is a text of at most {_MAX_SEPARATOR:,} characters, as in string_agg(x, ', ')"
        )
    return str(given.this)
