"""Defines the sort schema and the fragment header (SPEC section 4)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.errors import SchemaError, UnsupportedVersionError, cause_of
from lsm_fragment.layout import KNOWN_FEATURES
from lsm_fragment.names import names_text, parse_name, quoted, split_outside_quotes
from lsm_fragment.short_texts import remembered
from lsm_fragment.type_json import JsonObject, json_bytes, schema_from_json, schema_to_json
from lsm_fragment.types import check_nesting, storage_type


class Order(StrEnum):
    ASC = "asc"
    DESC = "desc"
    NONE = "none"
    """Does not decide the order; stands with the sort columns so that a merge of keys has it too."""


class Nulls(StrEnum):
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class SortColumn:
    """One column of a sort schema. The place of nulls does not depend on the direction."""

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
    """Returns a sort schema as `parse_sort_schema` reads it, without columns of order none."""
    return None if sort is None else ",".join(map(str, ordering(sort)))


def parse_sort_schema(text: str) -> SortSchema:
    """Parses a sort schema such as `service,"a,b",timestamp:desc:nulls_first` (`lsm_fragment.names`).

    Raises `SchemaError` naming the part that is not understood.
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
        extension = isinstance(schema.field(name).type, pa.BaseExtensionType)
        if extension or pt.is_nested(dtype) or pt.is_interval(dtype):
            raise SchemaError(f"sort column {name!r} of type {dtype} cannot be compared")


def features_of(document: JsonObject) -> tuple[str, ...]:
    """Returns the required features that a header or directory names. Raises `KeyError`, `ValueError`."""
    features = document["required_features"]
    if type(features) is not list or not all(type(feature) is str for feature in features):
        raise ValueError("required_features is not a list of names")
    return tuple(features)


def check_features(names: Sequence[str], *, name: str = "") -> None:
    """Raises `UnsupportedVersionError` if a fragment requires a feature that this reader does not know.

    name: the fragment's, for the error.
    """
    for feature in names:
        if feature not in KNOWN_FEATURES:
            raise UnsupportedVersionError(
                f"{name}: it requires the feature {feature!r}, which this reader does not know: upgrade it",
                name=name,
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


@dataclass(frozen=True, slots=True)
class FragmentHeader:
    """The header of a fragment, which comes before its first row."""

    schema: pa.Schema
    sort: SortSchema
    max_rows: int
    """The most rows of any row group."""
    writer: JsonObject = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    required_features: tuple[str, ...] = ()
    """What a reader has to know beyond this version of the format (SPEC section 10)."""

    def __post_init__(self) -> None:
        check_column_names(self.schema)
        check_nesting(self.schema)
        check_sort_schema(self.schema, self.sort)

    def with_schema(self, schema: pa.Schema) -> Self:
        """Returns the same header with another object for an equal schema."""
        return replace(self, schema=schema)

    def to_bytes(self) -> bytes:
        document: dict[str, Any] = {
            "schema": schema_to_json(self.schema),
            "sort": [column.to_json() for column in self.sort],
            "max_rows": self.max_rows,
            "required_features": list(self.required_features),
            "writer": self.writer,
            "sources": list(self.sources),
        }
        return json_bytes(document)

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str = "") -> FragmentHeader:
        """Parses a header. name: the fragment's, for errors.

        Raises `SchemaError` for anything that is not a header, and `UnsupportedVersionError`.
        """
        try:
            features, header = _parsed(data)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise SchemaError(f"the header is not a fragment header: {cause_of(error)}") from error
        check_features(features, name=name)
        assert header is not None
        return header


@remembered(most=16, most_bytes=64 << 10)
def _parsed(data: bytes) -> tuple[tuple[str, ...], FragmentHeader | None]:
    """Returns the required features, and the header unless this reader lacks one of them. Fragments that one
    writer adds to a table say the same."""
    document = json.loads(data)
    features = features_of(document)
    if not KNOWN_FEATURES.issuperset(features):
        return features, None
    if b"\\u" in data:
        json.dumps(document, ensure_ascii=False).encode()  # refuses half a character
    header = FragmentHeader(
        schema=schema_from_json(document["schema"]),
        sort=tuple(SortColumn.from_json(column) for column in document["sort"]),
        max_rows=_count(document["max_rows"]),
        writer=document.get("writer", {}),
        sources=tuple(document.get("sources", ())),
        required_features=features,
    )
    return features, header


def _count(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a number of rows")
    return value
