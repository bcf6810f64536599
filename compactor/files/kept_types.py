"""Arrow types that a file stores as others, and how they come back.

Parquet has no seconds, no dates in milliseconds, no views, and dictionaries of text only; whoever writes it
from Arrow says in the file which types they were (`ARROW:schema`). An IPC file has one dictionary a column,
while every batch of a scan brings its own: there dictionaries are plain values, and the file says so under a
name of ours, as one of Parquet does of seconds. What a file says is taken where stored values are of the same
meaning; all else is as it is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from format.errors import SchemaError
from format.type_json import type_from_json, type_to_json
from format.types import is_binary_like, storage_type

METADATA_KEY: Final = b"lsm-compactor.types"
"""Of the types of columns that a file stores as plain values, and of those of seconds in Parquet, as JSON, in
the metadata of the schema."""


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """With plain values for dictionaries, saying what they were."""
    plain = [field.with_type(without_dictionaries(field.type)) for field in schema]
    changed = [
        field for field, other in zip(schema, plain, strict=True) if field.type != other.type
    ]
    return pa.schema(plain, _saying(changed, schema.metadata))


def parquet_schema(schema: pa.Schema) -> pa.Schema:
    """Returns a schema with plain values for dictionaries that come back from Parquet as plain values anyway,
    and for types with views within, which Arrow can't slice; it says what they were, and which columns have
    seconds."""
    fields = [
        field.with_type(storage_type(field.type))
        if contains(field.type, _is_unwritten_dictionary)
        or (pt.is_nested(field.type) and contains(field.type, _is_view))
        else field
        for field in schema
    ]
    said = [
        field
        for field, other in zip(schema, fields, strict=True)
        if field.type != other.type or contains(field.type, is_in_seconds)
    ]
    return pa.schema(fields, _saying(said, schema.metadata))


def _is_unwritten_dictionary(dtype: pa.DataType) -> bool:
    """Returns whether a type is a dictionary of anything but text and binaries. Arrow would take some of
    these for a file, and has written other half floats than there were."""
    return pt.is_dictionary(dtype) and not is_binary_like(dtype.value_type)


def _is_view(dtype: pa.DataType) -> bool:
    return bool(pt.is_string_view(dtype) or pt.is_binary_view(dtype))


def is_in_seconds(dtype: pa.DataType) -> bool:
    return (pt.is_timestamp(dtype) and dtype.unit == "s") or bool(dtype == pa.time32("s"))


def _saying(
    fields: Iterable[pa.Field], metadata: Mapping[bytes, bytes] | None
) -> dict[bytes, bytes]:
    said = {field.name: type_to_json(field.type) for field in fields}
    added = {METADATA_KEY: json.dumps(said, ensure_ascii=False).encode()} if said else {}
    return {**(metadata or {}), **added}


def with_said_types(stored: pa.Schema) -> pa.Schema:
    """The schema of an IPC file, with the types that its columns had."""
    try:
        document = json.loads((stored.metadata or {})[METADATA_KEY])
        said = {name: type_from_json(dtype) for name, dtype in document.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, SchemaError):
        return stored  # whoever wrote that: the file can be read without
    return with_kept_types(stored, said)


def with_kept_types(stored: pa.Schema, said: Mapping[str, pa.DataType]) -> pa.Schema:
    """The schema of a file, with the types that columns are said to have had where that may be."""
    fields = []
    for field in stored:
        dtype = said.get(field.name, field.type)
        is_kept = _is_stored_form(storage_type(field.type), storage_type(dtype))
        fields.append(field.with_type(dtype) if is_kept else field)
    return pa.schema(fields, stored.metadata)


def without_dictionaries(dtype: pa.DataType) -> pa.DataType:
    """With plain values for dictionaries at any level; such a type is in storage form."""
    return storage_type(dtype) if contains(dtype, pt.is_dictionary) else dtype


def contains(dtype: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or one within it, is of a kind."""
    if is_kind(dtype):
        return True
    if isinstance(dtype, pa.BaseExtensionType):
        return contains(dtype.storage_type, is_kind)
    if pt.is_dictionary(dtype):
        return contains(dtype.value_type, is_kind)
    return any(contains(dtype.field(index).type, is_kind) for index in range(dtype.num_fields))


def _is_stored_form(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a file may store values of the one storage type as the other."""
    if stored == wanted or _STORED_AS.get(wanted) == stored:
        return True
    if pt.is_timestamp(stored) and pt.is_timestamp(wanted):
        is_same_unit = stored.unit == wanted.unit or (stored.unit, wanted.unit) == ("ms", "s")
        return is_same_unit and (stored.tz is None) == (wanted.tz is None)
    if pt.is_decimal(stored) and pt.is_decimal(wanted):
        return bool((stored.precision, stored.scale) == (wanted.precision, wanted.scale))
    if pt.is_duration(wanted) and pt.is_int64(stored):
        return True
    if not pt.is_nested(wanted) or _shape(stored) != _shape(wanted):
        return False
    return all(map(_is_stored_form, _inner_types(stored), _inner_types(wanted)))


def _inner_types(dtype: pa.DataType) -> list[pa.DataType]:
    if pt.is_map(dtype):
        return [dtype.key_type, dtype.item_type]
    return [dtype.field(index).type for index in range(dtype.num_fields)]


def _shape(dtype: pa.DataType) -> object:
    """Returns what two nested types must share; the names of items, of keys and of values mean nothing."""
    if pt.is_map(dtype):
        return dtype.id, dtype.item_field.nullable
    fields = [dtype.field(index) for index in range(dtype.num_fields)]
    names = [field.name for field in fields] if pt.is_struct(dtype) else None
    size = dtype.list_size if pt.is_fixed_size_list(dtype) else None
    return dtype.id, names, size, [field.nullable for field in fields]


_STORED_AS: Final = {
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time32("ms"),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}
"""What Parquet has instead; timestamps, decimals and durations aside."""
