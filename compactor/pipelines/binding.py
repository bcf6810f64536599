"""Checks node settings against input schemas, before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import ConfigError, InputError
from compactor.files.kept_types import without_dictionaries
from compactor.files.names import KNOWN_ENDINGS
from compactor.pipelines.provenance import HIDDEN_NAMES
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.errors import SchemaError
from lsm_fragment.keys.sort_schema import SortSchema, check_sort_schema, parse_sort_schema

WIDENED: Final = "$widened"
"""Map column of the undeclared fields of a source, from name to JSON text."""
WIDENED_TYPE: Final = pa.map_(pa.string(), pa.string())


class UnserializableMapValue(InputError):  # noqa: N818 - public name in pipelines
    """A writer without map support got a map column."""

    def __init__(self, format_name: str, column: str, what: str) -> None:
        """what: subject of the message."""
        self.format = format_name
        self.column = column
        cure = (
            "declare the fields in `fields` of their source, or leave them out by `drop_widened: true`"
            if column == WIDENED
            else "choose its values in a transform"
        )
        super().__init__(
            f"{what}: UnserializableMapValue{{format: {format_name}, column: {column}}}: {format_name} has "
            f"no place for a map: {cure}, or write NDJSON; nothing was written"
        )


def unknown_kind(path: str, what: str) -> ConfigError:
    """Returns the error of a file whose ending does not tell its format."""
    return ConfigError(
        f"{what}: {path}: unknown kind of file: give its `format`, such as csv or ndjson.gz; known endings "
        f"are {KNOWN_ENDINGS}"
    )


def plain_schema(schema: pa.Schema, what: str) -> pa.Schema:
    """Returns the schema without dictionaries and views, all nullable: merges, joins and spills produce that
    form."""
    for name in schema.names:
        if name in HIDDEN_NAMES:
            raise ConfigError(
                f"{what}: a column is called {name!r}, which is ours: choose other `columns`"
            )
    return pa.schema([pa.field(f.name, _plain(f.type)) for f in schema])


def _plain(dtype: pa.DataType) -> pa.DataType:
    return storage_type(dtype) if _has_view(dtype) else without_dictionaries(dtype)


def _has_view(dtype: pa.DataType) -> bool:
    is_view = pt.is_string_view(dtype) or pt.is_binary_view(dtype) or pt.is_list_view(dtype)
    if is_view or pt.is_large_list_view(dtype):
        return True
    return any(_has_view(dtype.field(n).type) for n in range(dtype.num_fields))


def sort_schema(text: str, schema: pa.Schema, what: str) -> SortSchema:
    try:
        sort = parse_sort_schema(text)
    except SchemaError as error:
        raise ConfigError(f"{what}: {error}") from None
    return checked_order(sort, schema, what)


def checked_order(order: SortSchema, schema: pa.Schema, what: str) -> SortSchema:
    """Returns the order if all its columns exist. Raises `ConfigError`."""
    try:
        check_sort_schema(schema, order)
    except SchemaError as error:
        raise ConfigError(f"{what}: {error}") from None
    return order


def common_schema(
    inputs: Sequence[str],
    schemas: Sequence[pa.Schema],
    what: str,
    cure: str = "a transform can make them alike",
) -> pa.Schema:
    """Returns the common schema; a column of nulls takes any type. Raises `ConfigError`."""
    first = schemas[0]
    if any(WIDENED in schema.names for schema in schemas):
        schemas = [_with_widened(schema) for schema in schemas]
        first = schemas[0]
    for name, schema in zip(inputs[1:], schemas[1:], strict=True):
        for column in dict.fromkeys((*first.names, *schema.names)):
            types = [_type_of(column, each) for each in (first, schema)]
            if types[0] == pa.null() and types[1] is not None:
                place = first.get_field_index(column)
                first = first.set(place, first.field(column).with_type(types[1]))
            elif types[0] != types[1] and (types[1] != pa.null() or types[0] is None):
                raise ConfigError(
                    f"{what}: its inputs do not agree: column {column!r} is {types[0] or 'not there'} in "
                    f"{inputs[0]!r}, {types[1] or 'not there'} in {name!r}; {cure}"
                )
    return first


def _type_of(column: str, schema: pa.Schema) -> pa.DataType | None:
    place = schema.get_field_index(column)
    return schema.field(place).type if place >= 0 else None


def _with_widened(schema: pa.Schema) -> pa.Schema:
    if WIDENED in schema.names:
        return schema
    return pa.schema([*schema, pa.field(WIDENED, WIDENED_TYPE)])


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the batch in this schema; missing and null columns become nulls of the declared type."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        column = batch.column(place) if place >= 0 else None
        if column is None or pt.is_null(column.type):
            column = pa.nulls(batch.num_rows, field.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def check_widened(names: Collection[str], what: str) -> None:
    """Raises `ConfigError` for a source whose files or table have a column of that name."""
    if WIDENED in names:
        raise ConfigError(
            f"{what}: the column name {WIDENED!r} is reserved: rename the column before"
        )
