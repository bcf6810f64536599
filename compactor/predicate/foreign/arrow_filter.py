"""Reads expressions of PyArrow, which have no public form but their pickles.

A pickle holds an Arrow IPC file: the expression in Polish notation as pairs of the schema's metadata, and its
literals and options as columns of one row. What is not understood, in this or a later PyArrow, is left out:
PyArrow applies the whole expression to the rows that are left.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
from msgspec import Struct

from compactor.predicate.foreign import kept
from compactor.predicate.foreign.kept import Kept
from compactor.predicate.tree import MIRRORED, Op

_METADATA_OF_SCHEMA: Final = 2 * ctypes.sizeof(ctypes.c_void_p)
"""Where the metadata is in a schema of the C data interface: behind its format and its name."""
_COMPARISONS: Final = {
    "equal": Op.EQ,
    "not_equal": Op.NE,
    "less": Op.LT,
    "less_equal": Op.LE,
    "greater": Op.GT,
    "greater_equal": Op.GE,
}


class _Column(Struct, frozen=True):
    name: str


class _Call(Struct, frozen=True):
    function: str
    arguments: Sequence[_Node]
    options: dict[str, Any] | None


_Node: TypeAlias = _Column | _Call | pa.Scalar


class _UnknownError(Exception):
    """The pickle has something else than expected."""


def condition_of(expression: Any, schema: pa.Schema) -> str | None:
    """Returns a condition that keeps at least the rows that the expression keeps; None if nothing is known.

    expression: a `pyarrow.compute.Expression`. schema: with shown names.
    """
    try:
        known = _translated(_tree(expression), schema)
    except _UnknownError:
        return None
    return None if known is None else known.sql


def columns_of(expression: Any) -> set[str] | None:
    """Returns the names of the columns that an expression reads; None if that can't be told."""
    try:
        return set(_columns(_tree(expression)))
    except _UnknownError:
        return None


def _columns(node: _Node) -> Iterator[str]:
    if isinstance(node, _Column):
        yield node.name
    elif isinstance(node, _Call):
        for argument in node.arguments:
            yield from _columns(argument)


def _translated(node: _Node, schema: pa.Schema) -> Kept | None:
    if isinstance(node, _Column):
        field = _field(node, schema)
        return None if field is None else kept.true(field)
    if not isinstance(node, _Call):
        return None
    if node.function in _COMPARISONS:
        return _compared(node, schema)
    match node.function, node.arguments:
        case "and_kleene" | "and", parts:
            return kept.both([_translated(part, schema) for part in parts])
        case "or_kleene" | "or", parts:
            return kept.either([_translated(part, schema) for part in parts])
        case "invert", [part]:
            return kept.negated(_translated(part, schema))
        case "is_valid", [_Column() as column]:
            field = _field(column, schema)
            return None if field is None else kept.null(field, is_null=False)
        case "if_else", [condition, chosen, pa.Scalar() as other] if not other.as_py():
            both = kept.both([_translated(condition, schema), _translated(chosen, schema)])
            return None if both is None else both._replace(is_exact=False)
        case _, [_Column() as column]:
            field = _field(column, schema)
            return None if field is None else _of_column(node.function, field, node.options or {})
    return None


def _of_column(function: str, field: pa.Field, options: dict[str, Any]) -> Kept | None:
    match function:
        case "is_null":
            return None if options.get("nan_is_null", True) else kept.null(field, is_null=True)
        case "starts_with":
            text = options.get("pattern")
            is_exact = isinstance(text, pa.Scalar) and not options.get("ignore_case", True)
            return kept.begins(field, text.as_py()) if is_exact and text is not None else None
        case "is_in":
            values = options.get("value_set")
            return None if values is None else kept.among(field, values.values)
    return None


def _compared(node: _Call, schema: pa.Schema) -> Kept | None:
    operator = _COMPARISONS[node.function]
    match node.arguments:
        case [_Column() as column, pa.Scalar() as value]:
            field = _field(column, schema)
        case [pa.Scalar() as value, _Column() as column]:
            field, operator = _field(column, schema), MIRRORED[operator]
        case _:
            return None
    return None if field is None else kept.compared(field, operator, value)


def _field(column: _Column, schema: pa.Schema) -> pa.Field | None:
    return schema.field(column.name) if column.name in schema.names else None


def _tree(expression: Any) -> _Node:
    try:
        _, (pickled,) = expression.__reduce__()
        reader = pa.ipc.open_file(pa.BufferReader(pickled))
        pairs = iter(_metadata(reader.schema))
        node = _node(pairs, reader.get_batch(0).columns)
    except (pa.ArrowException, LookupError, ValueError, TypeError, StopIteration) as error:
        raise _UnknownError from error
    if next(pairs, None) is not None:
        raise _UnknownError
    return node


def _node(pairs: Iterator[tuple[str, str]], values: Sequence[pa.Array]) -> _Node:
    key, value = next(pairs)
    return _began(key, value, pairs, values)


def _began(
    key: str, value: str, pairs: Iterator[tuple[str, str]], values: Sequence[pa.Array]
) -> _Node:
    if key == "field_ref":
        return _Column(value)
    if key == "literal":
        return values[int(value)][0]
    if key == "nested_field_ref":
        names = [_node(pairs, values) for _ in range(int(value))]
        return _Call("nested_field", names[:1], None)
    if key != "call":
        raise _UnknownError
    arguments: list[_Node] = []
    options = None
    for key_of_next, next_value in pairs:
        if key_of_next == "end":
            return _Call(value, arguments, options)
        if key_of_next == "options":
            options = dict(values[int(next_value)][0].items())
        else:
            arguments.append(_began(key_of_next, next_value, pairs, values))
    raise _UnknownError


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Yields all pairs in order; PyArrow's own properties keep one of each key."""
    pointer_of: Callable[..., int] = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]  # type: ignore[attr-defined]
    capsule = schema.__arrow_c_schema__()
    exported = pointer_of(capsule, b"arrow_schema")
    place = ctypes.c_void_p.from_address(exported + _METADATA_OF_SCHEMA).value
    if place is None:
        return
    (count,) = struct.unpack("=i", ctypes.string_at(place, 4))
    place += 4
    for _ in range(count):
        texts = []
        for _ in range(2):
            (length,) = struct.unpack("=i", ctypes.string_at(place, 4))
            texts.append(ctypes.string_at(place + 4, length).decode())
            place += 4 + length
        yield texts[0], texts[1]
