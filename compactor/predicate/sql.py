"""Parses SQL with sqlglot, for conditions and expressions."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from typing import ClassVar, Final, cast

import pyarrow as pa
import sqlglot
from pyarrow import types as pt
from sqlglot import expressions as exp

from compactor.common.escaping import shortened
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
SHOWN: Final = "shown"
"""Key of the text that a column stands for, in the metadata of its node."""
_WITH_OFFSET: Final = re.compile(r"(.*:.*?)\s*(?:z|[-+]\d\d(?::?\d\d)?)", re.DOTALL | re.IGNORECASE)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_PLAIN_CALLS: Final = ("CEIL", "FLOOR", "CHAR", "CHR", "INITCAP", "NORMALIZE", "OVERLAY")
_MAX_SHOWN: Final = 200
_MAX_SHOWN_NODE: Final = 100
_MAX_SHOWN_COLUMNS: Final = 50


def _looks_at_other_rows(name: str) -> bool:
    kind = exp.FUNCTION_BY_NAME.get(name, exp.Func)
    return issubclass(kind, exp.AggFunc | exp.RowNumber)


def _results(node: exp.Expression) -> list[exp.Expression]:
    return [node.args[name] for name in ("true", "false") if node.args.get(name) is not None]


class _Dialect(sqlglot.Dialect):
    """SQL in which only aggregates and window functions have classes of their own. Functions of one row keep
    the name and the arguments that their author gave them."""

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        """Leaves a path as it is written."""
        return path

    class Parser(sqlglot.Parser):
        LAMBDAS: ClassVar = {}  # `->` is of JSON here
        FUNCTIONS: ClassVar = {
            name: build
            for name, build in sqlglot.Parser.FUNCTIONS.items()
            if _looks_at_other_rows(name)
        }
        FUNCTION_PARSERS: ClassVar = {
            name: parse
            for name, parse in sqlglot.Parser.FUNCTION_PARSERS.items()
            if name not in _PLAIN_CALLS
        }

    class Generator(sqlglot.Generator):
        TRANSFORMS: ClassVar = {
            **sqlglot.Generator.TRANSFORMS,
            exp.If: lambda self, node: self.func("if", node.this, *_results(node)),
            exp.JSONExtract: lambda self, node: self.binary(node, "->"),
            exp.JSONExtractScalar: lambda self, node: self.binary(node, "->>"),
            exp.StrPosition: lambda self, node: self.func("strpos", node.this, node.args["substr"]),
        }

        def array_sql(self, expression: exp.Array) -> str:
            return f"[{self.expressions(expression, flat=True)}]"

        def column_sql(self, expression: exp.Column) -> str:
            return str(expression.meta.get(SHOWN) or super().column_sql(expression))


class SqlError(Exception):
    """An error in an SQL expression; the message is for its author."""


def parsed(text: str) -> exp.Expression:
    """Returns the syntax tree. Raises `SqlError`, and `RecursionError` if it is nested too deeply."""
    try:
        text.encode()
        tree = cast(exp.Expression, sqlglot.parse_one(text, dialect=_Dialect))
    except UnicodeEncodeError:
        raise SqlError(f"{shown(text)} is not Unicode text") from None
    except sqlglot.errors.SqlglotError as error:
        raise SqlError(f"{shown(text)} is not SQL: {_cause(error)}") from error
    for node in tree.find_all(exp.JSONExtract, exp.JSONExtractScalar):
        if isinstance(node.this, exp.Identifier):  # as sqlglot takes it before a call
            node.set("this", exp.Column(this=node.this))
    return tree


def shown(text: str) -> str:
    """Returns the text in quotes, cut if it is long."""
    return repr(shortened(text, _MAX_SHOWN))


def _cause(error: sqlglot.errors.SqlglotError) -> str:
    details = getattr(error, "errors", None)
    if details:
        what = details[0]["description"]
        what = "a value is missing" if what.startswith("Required keyword") else what
        return f"{what}, at character {details[0]['col']}"
    if isinstance(error, sqlglot.errors.TokenError):  # its message has a part of the text
        return "a string, a quoted name or a comment has no end"
    return str(error).splitlines()[0]


def shown_node(node: exp.Expression) -> str:
    """Returns the SQL of a node, cut if it is long."""
    try:
        sql = str(node.sql(dialect=_Dialect, normalize_functions=False))
        return shortened(sql, _MAX_SHOWN_NODE)
    except sqlglot.errors.SqlglotError:
        return type(node).__name__


def cast_operand(node: exp.Expression) -> exp.Expression:
    """Returns what a cast converts; of TIMESTAMP '...' the text without its offset, which SQL ignores."""
    value = bare(node.this)
    is_text = isinstance(value, exp.Literal) and value.is_string
    if not is_text or node.args["to"].sql().upper() != "TIMESTAMP":
        return value
    found = _WITH_OFFSET.fullmatch(value.this)
    return value if found is None else exp.Literal.string(found[1])


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


def path_of(node: exp.Column, schema: pa.Schema) -> tuple[pa.Field, list[str]]:
    """Resolves `a.b.c` to a column and the fields within it. Raises `SqlError` if there is no such column.

    A column may have dots in its name: the longest name wins.
    """
    parts = [part.name for part in node.parts]
    for size in range(len(parts), 0, -1):
        index = schema.get_field_index(".".join(parts[:size]))
        if index >= 0 and (size == len(parts) or pt.is_struct(schema.field(index).type)):
            return schema.field(index), parts[size:]
    try:
        return field_of(node, schema), []
    except SqlError as error:
        hint = "; texts are in 'single' quotes" if _is_right_side(node) else ""
        raise SqlError(f"{error}{hint}") from None


def _is_right_side(node: exp.Expression) -> bool:
    return type(node.parent) in COMPARISONS and node.arg_key == "expression"


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


def whole_number(tree: exp.Expression | None, limit: int) -> int | None:
    """Returns the integer of a literal, quoted or not; None unless it is within 0 to `limit`."""
    text = tree.this if isinstance(tree, exp.Literal) else ""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(limit))):
        return None
    number = int(text)
    return number if number <= limit else None


def with_instant(tree: exp.Expression, instant: datetime) -> str:
    """Returns the SQL of a tree in which the current time is this instant."""

    def fixed(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.CurrentDate):
            return exp.cast(exp.Literal.string(instant.date().isoformat()), "DATE")
        is_call = isinstance(node, exp.Anonymous) and str(node.this).lower() == "now"
        if isinstance(node, exp.CurrentTimestamp) or (is_call and not node.expressions):
            return exp.cast(exp.Literal.string(instant.isoformat()), "TIMESTAMPTZ")
        return node

    return str(tree.transform(fixed).sql(dialect=_Dialect, normalize_functions=False))
