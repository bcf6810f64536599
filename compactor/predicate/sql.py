"""Parses SQL with sqlglot, for conditions and for expressions of pipelines."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, cast

import pyarrow as pa
import sqlglot
from sqlglot import expressions as exp

from compactor.predicate.tree import Op
from lsm_fragment.names import in_quotes

COMPARISONS: Final[dict[type[exp.Expression], Op]] = {
    exp.EQ: Op.EQ,
    exp.NEQ: Op.NE,
    exp.LT: Op.LT,
    exp.LTE: Op.LE,
    exp.GT: Op.GT,
    exp.GTE: Op.GE,
}
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_MAX_SHOWN: Final = 200
_MAX_SHOWN_NODE: Final = 100
_MAX_SHOWN_COLUMNS: Final = 50


class SqlError(Exception):
    """An error in an SQL expression; the message is for its author."""


def parsed(text: str) -> exp.Expression:
    """Returns the syntax tree. Raises `SqlError`, and `RecursionError` if it is nested too deeply."""
    try:
        text.encode()
        return cast(exp.Expression, sqlglot.parse_one(text))
    except UnicodeEncodeError:
        raise SqlError(f"{shown(text)} is not Unicode text") from None
    except sqlglot.errors.SqlglotError as error:
        raise SqlError(f"{shown(text)} is not SQL: {_cause(error)}") from error


def shown(text: str) -> str:
    """Returns the text in quotes, cut if it is long."""
    return repr(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "...")


def _cause(error: sqlglot.errors.SqlglotError) -> str:
    details = getattr(error, "errors", None)
    if details:
        what = details[0]["description"]
        what = "something is missing" if what.startswith("Required keyword") else what
        return f"{what}, at character {details[0]['col']}"
    return str(error).splitlines()[0]


def shown_node(node: exp.Expression) -> str:
    """Returns the SQL of a node, cut if it is long."""
    try:
        return str(node.sql())[:_MAX_SHOWN_NODE]
    except sqlglot.errors.SqlglotError:
        return type(node).__name__


def check_arguments(node: exp.Expression, known: Collection[str]) -> None:
    """Raises `SqlError` for unknown arguments of a node, whose meaning would be lost."""
    extra = sorted(name for name, value in node.args.items() if value and name not in known)
    if extra:
        raise SqlError(f"{shown_node(node)}: {', '.join(extra)} is not supported")


def field_of(node: exp.Column, schema: pa.Schema) -> pa.Field:
    """Resolves a column by its case-sensitive name. Raises `SqlError` if there is none."""
    name = ".".join(part.name for part in node.parts)
    index = schema.get_field_index(name)
    if index < 0:
        there = ", ".join(map(_in_sql, schema.names[:_MAX_SHOWN_COLUMNS]))
        raise SqlError(f"no column {name!r}; columns are: {there}")
    return schema.field(index)


def _in_sql(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else in_quotes(name)


def operands(node: exp.Expression) -> list[exp.Expression]:
    """Flattens `a AND b AND c`, whose tree is as deep as it has operands."""
    kind, found, rest = type(node), [], node
    while type(rest) is kind:
        found.append(rest.expression)
        rest = rest.this
    return [rest, *reversed(found)]


def bare(node: exp.Expression) -> exp.Expression:
    """Strips parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node
