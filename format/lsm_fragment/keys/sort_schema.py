"""The sort schema: the columns that order rows, and their directions (SPEC section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Self

import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from lsm_fragment.arrays.type_json import JsonObject
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.errors import SchemaError
from lsm_fragment.names import names_text, parse_name, quoted, split_outside_quotes


class Order(StrEnum):
    ASC = "asc"
    DESC = "desc"
    NONE = "none"
    """Takes no part in the order; stored with the sort columns, so that a merge of keys has the values."""


class Nulls(StrEnum):
    FIRST = "first"
    LAST = "last"


class SortColumn(Struct, frozen=True):
    """One column of a sort schema. The direction does not move nulls."""

    column: str
    order: Order = Order.ASC
    nulls: Nulls = Nulls.LAST

    def to_json(self) -> JsonObject:
        return {"column": self.column, "order": str(self.order), "nulls": str(self.nulls)}

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        return cls(value["column"], Order(value["order"]), Nulls(value["nulls"]))

    def __str__(self) -> str:
        parts = [quoted(self.column)]
        if self.order is not Order.ASC:
            parts.append(str(self.order))
        if self.nulls is Nulls.FIRST:
            parts.append("nulls_first")
        return ":".join(parts)


SortSchema = tuple[SortColumn, ...]
"""The columns that order rows, then the non-key columns of the key section."""


def ordering(sort: SortSchema) -> SortSchema:
    """Returns the columns that order rows."""
    return tuple(column for column in sort if column.order is not Order.NONE)


def sort_text(sort: SortSchema | None) -> str | None:
    """Formats a sort schema for `parse_sort_schema`, without columns of order none."""
    return None if sort is None else ",".join(map(str, ordering(sort)))


def parse_sort_schema(text: str) -> SortSchema:
    """Parses a sort schema such as `service,"a,b",timestamp:desc:nulls_first` (`lsm_fragment.names`).

    Raises `SchemaError` naming the invalid part.
    """
    return tuple(map(_parse_sort_column, split_outside_quotes(text, ",")))


def _parse_sort_column(text: str) -> SortColumn:
    text = text.strip()
    first, *words = split_outside_quotes(text, ":")
    try:
        name = parse_name(first)
    except ValueError as error:
        raise SchemaError(f"sort column {text!r}: {error}") from None
    order, nulls = Order.ASC, Nulls.LAST
    for word in words:
        match word.strip().lower():
            case "asc" | "desc" as direction:
                order = Order(direction)
            case "nulls_first" | "nulls_last" as placement:
                nulls = Nulls(placement.removeprefix("nulls_"))
            case other:
                hint = f"; a name with a colon stands in quotes: {quoted(text)}"
                raise SchemaError(
                    f"sort column {text!r}: {other!r} is not one of asc, desc, nulls_first, nulls_last"
                    + (hint if first == name else "")
                )
    return SortColumn(name, order, nulls)


def check_sort_schema(schema: pa.Schema, sort: Sequence[SortColumn]) -> None:
    """Raises `SchemaError` unless `sort` names distinct columns of `schema` that can be compared."""
    if not sort or sort[0].order is Order.NONE:
        raise SchemaError("the sort schema is empty: name at least one column to sort by")
    are_last = [column.order is Order.NONE for column in sort]
    if are_last != sorted(are_last):
        raise SchemaError("a column of order none comes before one that orders rows")
    names = [column.column for column in sort]
    if len(set(names)) != len(names):
        raise SchemaError(f"the sort schema names a column twice: {names_text(names)}")
    for name in names:
        if name not in schema.names:
            raise SchemaError(
                f"sort column {name!r} is not in the schema; columns are: {names_text(schema.names)}"
            )
        dtype = storage_type(schema.field(name).type)
        is_extension = isinstance(schema.field(name).type, pa.BaseExtensionType)
        if is_extension or pt.is_nested(dtype) or pt.is_interval(dtype):
            raise SchemaError(
                f"sort column {name!r} of type {schema.field(name).type} cannot be compared: sort by another "
                "column, or cast it to a type that has an order"
            )


def check_column_names(schema: pa.Schema) -> None:
    """Raises `SchemaError` if two columns share a name or a name is not valid UTF-8 text."""
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise SchemaError(f"column {name!r} appears twice in the schema")
        seen.add(name)


def column_order(schema: pa.Schema, sort: Sequence[SortColumn]) -> list[str]:
    """Returns the names of the columns outside the sort schema, in the order of the column section."""
    keys = {column.column for column in sort}
    return sorted((n for n in schema.names if n not in keys), key=lambda name: name.encode())
