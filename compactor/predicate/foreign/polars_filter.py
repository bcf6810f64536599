"""Reads expressions of Polars, which have no public form but their JSON.

What is not understood, in this or a later Polars, is left out: Polars applies the whole expression to the
rows that are left.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.predicate.foreign import kept
from compactor.predicate.foreign.kept import Kept
from compactor.predicate.tree import MIRRORED, Op

_COMPARISONS: Final = {
    "Eq": Op.EQ,
    "NotEq": Op.NE,
    "Lt": Op.LT,
    "LtEq": Op.LE,
    "Gt": Op.GT,
    "GtEq": Op.GE,
}
_UNITS: Final = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}
_PLAIN: Final = {
    "Boolean": pa.bool_(),
    "Int8": pa.int8(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "UInt8": pa.uint8(),
    "UInt16": pa.uint16(),
    "UInt32": pa.uint32(),
    "UInt64": pa.uint64(),
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "String": pa.string(),
}


def condition_of(expression: Any, schema: pa.Schema) -> str | None:
    """Returns a condition that keeps at least the rows that the expression keeps; None if nothing is known.

    expression: a `polars.Expr`. schema: with shown names.
    """
    try:
        with warnings.catch_warnings():
            # JSON is not promised to stay as it is.
            warnings.simplefilter("ignore")
            tree = json.loads(expression.meta.serialize(format="json"))
        known = _translated(tree, schema)
    except (ValueError, TypeError, LookupError, AttributeError, pa.ArrowException):
        return None
    return None if known is None else known.sql


def _translated(node: Any, schema: pa.Schema) -> Kept | None:
    match node:
        case {"Column": str(name)} if name in schema.names:
            return kept.true(schema.field(name))
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            return kept.both([_translated(left, schema), _translated(right, schema)])
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            return kept.either([_translated(left, schema), _translated(right, schema)])
        case {"BinaryExpr": {"left": left, "op": op, "right": right}} if op in _COMPARISONS:
            return _compared(left, _COMPARISONS[op], right, schema)
        case {"Function": {"input": [part], "function": {"Boolean": "Not"}}}:
            return kept.negated(_translated(part, schema))
        case {"Function": {"input": [{"Column": str(name)}, *rest], "function": function}}:
            return _of_column(schema.field(name), function, rest) if name in schema.names else None
    return None


def _of_column(field: pa.Field, function: Any, rest: list[Any]) -> Kept | None:
    match function, rest:
        case {"Boolean": "IsNull"}, []:
            return kept.null(field, is_null=True)
        case {"Boolean": "IsNotNull"}, []:
            return kept.null(field, is_null=False)
        case {"Boolean": {"IsBetween": {"closed": closed}}}, [low, high]:
            ends = [(low, Op.GE if closed in ("Both", "Left") else Op.GT)]
            ends.append((high, Op.LE if closed in ("Both", "Right") else Op.LT))
            return kept.both(
                [_compared({"Column": field.name}, op, end, _only(field)) for end, op in ends]
            )
        case {"StringExpr": "StartsWith"}, [{"Literal": {"Scalar": {"String": str(text)}}}]:
            return kept.begins(field, text)
        case {"Boolean": {"IsIn": _}}, [{"Literal": {"Scalar": {"List": values}}}]:
            return kept.among(field, _listed(values))
    return None


def _only(field: pa.Field) -> pa.Schema:
    return pa.schema([field])


def _compared(left: Any, operator: Op, right: Any, schema: pa.Schema) -> Kept | None:
    match left, right:
        case {"Column": str(name)}, {"Literal": {"Scalar": value}}:
            pass
        case {"Literal": {"Scalar": value}}, {"Column": str(name)}:
            operator = MIRRORED[operator]
        case _:
            return None
    if name not in schema.names:
        return None
    scalar = _scalar(value)
    return None if scalar is None else kept.compared(schema.field(name), operator, scalar)


def _scalar(value: Any) -> pa.Scalar | None:
    match value:
        case {"Datetime": [int(ticks), unit, zone]} if unit in _UNITS:
            return pa.scalar(ticks, pa.timestamp(_UNITS[unit], None if zone is None else "UTC"))
        case {"Date": int(days)}:
            return pa.scalar(days, pa.int32()).cast(pa.date32())
        case Mapping() if len(value) == 1:
            ((kind, plain),) = value.items()
            return pa.scalar(plain, _PLAIN[kind]) if kind in _PLAIN else None
    return None


def _listed(values: list[int]) -> list[pa.Scalar]:
    """Returns the values of a list, which Polars writes as an Arrow stream of one column."""
    (column,) = pa.ipc.open_stream(bytes(values)).read_all().columns
    return list(column.cast(pa.string()) if pt.is_string_view(column.type) else column)
