"""The fragment header and its required features (SPEC sections 4 and 10)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace
from pyarrow import types as pt

from lsm_fragment.arrays.type_json import (
    JsonObject,
    field_to_json,
    json_bytes,
    schema_from_json,
    schema_to_json,
)
from lsm_fragment.arrays.types import check_nesting, storage_type
from lsm_fragment.blocks.layout import KNOWN_FEATURES
from lsm_fragment.container.tables import ValueKind, padded, value_kind
from lsm_fragment.errors import SchemaError, UnsupportedVersionError, cause_of
from lsm_fragment.keys.comparator import KeyComparator
from lsm_fragment.keys.sort_schema import (
    SortColumn,
    SortSchema,
    check_column_names,
    check_sort_schema,
    column_order,
)
from lsm_fragment.short_texts import remembered


def features_of(document: JsonObject) -> tuple[str, ...]:
    """Returns the required features of a header or directory. Raises `KeyError`, `ValueError`."""
    features = document["required_features"]
    if type(features) is not list or not all(type(feature) is str for feature in features):
        raise ValueError("required_features is not a list of names")
    return tuple(features)


def check_features(names: Sequence[str], *, name: str = "") -> None:
    """Raises `UnsupportedVersionError` if a fragment requires a feature that this reader does not know.

    name: of the fragment, for the error.
    """
    for feature in names:
        if feature not in KNOWN_FEATURES:
            raise UnsupportedVersionError(
                f"{name}: it requires the feature {feature!r}, which this reader does not know: upgrade it",
                name=name,
            )


class StoredField(NamedTuple):
    """The part of a column's record that depends on its field alone."""

    name_bytes: int
    text_bytes: int
    data: bytes
    """The name and the JSON of the field, padded."""
    kind: ValueKind

    @classmethod
    def of(cls, column: pa.Field) -> StoredField:
        document = field_to_json(column)
        name = document.pop("name").encode()
        text = json_bytes(document)
        kind = value_kind(storage_type(column.type))
        return cls(len(name), len(text), padded(name) + padded(text), kind)


class FragmentHeader(Struct, frozen=True, kw_only=True, dict=True):
    """The header of a fragment, before its first row. Writers of several fragments share one, and what is
    derived from it."""

    schema: pa.Schema
    sort: SortSchema
    max_rows: int
    """Maximum rows of a row group."""
    writer: JsonObject = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    required_features: tuple[str, ...] = ()
    """The features that a reader must know beyond this version of the format (SPEC section 10)."""

    def __post_init__(self) -> None:
        check_column_names(self.schema)
        check_nesting(self.schema)
        check_sort_schema(self.schema, self.sort)

    def with_schema(self, schema: pa.Schema) -> Self:
        """Returns the header with another object for an equal schema, so that it can be shared."""
        return replace(self, schema=schema)

    @cached_property
    def others(self) -> list[str]:
        """The names of the columns outside the sort schema, in file order."""
        return column_order(self.schema, self.sort)

    @cached_property
    def coded(self) -> frozenset[str]:
        """The names of the columns whose type is a dictionary."""
        return frozenset(field.name for field in self.schema if pt.is_dictionary(field.type))

    @cached_property
    def directory_text(self) -> bytes:
        """The JSON of a directory (SPEC section 7)."""
        document = {
            "sort": [column.to_json() for column in self.sort],
            "max_rows": self.max_rows,
            "required_features": list(self.required_features),
        }
        return json_bytes(document)

    @cached_property
    def comparator(self) -> KeyComparator:
        return KeyComparator(self.schema, self.sort)

    def stored_field(self, name: str) -> StoredField:
        """Returns the stored form of a column's field."""
        stored = self._stored_fields.get(name)
        if stored is None:
            stored = self._stored_fields[name] = StoredField.of(self.schema.field(name))
        return stored

    @cached_property
    def _stored_fields(self) -> dict[str, StoredField]:
        return {}

    def to_bytes(self) -> bytes:
        return self._bytes

    @cached_property
    def _bytes(self) -> bytes:
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
        """Parses a header. name: of the fragment, for errors.

        Raises `SchemaError` for an invalid header, and `UnsupportedVersionError`.
        """
        try:
            features, header = _parsed(data)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise SchemaError(f"the header is not a fragment header: {cause_of(error)}") from error
        check_features(features, name=name)
        assert header is not None
        return header


@remembered(max_results=16, max_bytes=64 << 10)
def _parsed(data: bytes) -> tuple[tuple[str, ...], FragmentHeader | None]:
    """Returns the required features, and the header unless this reader lacks one of them. Cached, since all
    fragments that one writer adds to a table have the same header."""
    document = json.loads(data)
    features = features_of(document)
    if not KNOWN_FEATURES.issuperset(features):
        return features, None
    if b"\\u" in data:
        json.dumps(document, ensure_ascii=False).encode()  # raises for lone surrogates
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
