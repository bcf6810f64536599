"""Restores Arrow types that a file format stores as others.

Parquet lacks seconds, dates in milliseconds, views, and dictionaries of anything but text; Arrow writers
record the original types in the file (`ARROW:schema`). An IPC file has one dictionary per column, while every
batch of a scan has its own: we store plain values there, and record the types under our own metadata key, as
our Parquet files do for seconds. A recorded type is restored if the stored values mean the same in it; all
other columns keep the stored type.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.files.problems import PROBLEMS
from lsm_fragment.arrays.type_json import type_from_json, type_to_json
from lsm_fragment.arrays.types import contains, is_binary_like, storage_type
from lsm_fragment.errors import SchemaError

NOTE_KEY: Final = b"ARROW:schema"
"""Key in a Parquet file's metadata."""
METADATA_KEY: Final = b"lsm-compactor.types"
"""Key in the schema's metadata. Its value is JSON: the types of columns stored as plain values, and of
columns with seconds in Parquet."""


def noted_schema(note: bytes | None) -> pa.Schema | None:
    """Returns the schema that Arrow's writer has noted in a Parquet file; None if it has not, or unusably.

    note: the file's `NOTE_KEY`.
    """
    if note is None:
        return None
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(note)))
    except (*PROBLEMS, OSError):
        return None


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Replaces dictionaries by plain values, and records their types in the metadata."""
    plain = [field.with_type(without_dictionaries(field.type)) for field in schema]
    changed = [
        field for field, other in zip(schema, plain, strict=True) if field.type != other.type
    ]
    return pa.schema(plain, _recording(changed, schema.metadata))


def parquet_schema(schema: pa.Schema) -> pa.Schema:
    """Records the types that Parquet would change in the schema's metadata.

    Replaces dictionaries that Parquet returns as plain values, and nested types with views, which Arrow
    cannot slice, by plain values.
    """
    fields = [
        field.with_type(storage_type(field.type))
        if contains(field.type, _is_unwritten_dictionary)
        or (pt.is_nested(field.type) and contains(field.type, _is_view))
        else field
        for field in schema
    ]
    recorded = [
        field
        for field, other in zip(schema, fields, strict=True)
        if field.type != other.type or contains(field.type, is_in_seconds)
    ]
    return pa.schema(fields, _recording(recorded, schema.metadata))


def _is_unwritten_dictionary(dtype: pa.DataType) -> bool:
    """Returns whether a type is a dictionary of anything but text and binaries.

    Arrow accepts some of these in files, but has corrupted half floats.
    """
    return pt.is_dictionary(dtype) and not is_binary_like(dtype.value_type)


def _is_view(dtype: pa.DataType) -> bool:
    return bool(pt.is_string_view(dtype) or pt.is_binary_view(dtype))


def is_in_seconds(dtype: pa.DataType) -> bool:
    return (pt.is_timestamp(dtype) and dtype.unit == "s") or bool(dtype == pa.time32("s"))


def _recording(
    fields: Iterable[pa.Field], metadata: Mapping[bytes, bytes] | None
) -> dict[bytes, bytes]:
    recorded = {field.name: type_to_json(field.type) for field in fields}
    added = {METADATA_KEY: json.dumps(recorded, ensure_ascii=False).encode()} if recorded else {}
    return {**(metadata or {}), **added}


def with_recorded_types(stored: pa.Schema) -> pa.Schema:
    """Restores the recorded types in the schema of an IPC file."""
    try:
        document = json.loads((stored.metadata or {})[METADATA_KEY])
        recorded = {name: type_from_json(dtype) for name, dtype in document.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, SchemaError):
        return stored  # The recorded types are unusable, but the file is readable without them.
    return with_kept_types(stored, recorded)


def with_kept_types(stored: pa.Schema, recorded: Mapping[str, pa.DataType]) -> pa.Schema:
    """Restores the recorded types that are consistent with the stored types."""
    fields = []
    for field in stored:
        dtype = recorded.get(field.name, field.type)
        is_kept = _is_stored_form(storage_type(field.type), storage_type(dtype))
        fields.append(field.with_type(dtype) if is_kept else field)
    return pa.schema(fields, stored.metadata)


def without_dictionaries(dtype: pa.DataType) -> pa.DataType:
    """Replaces dictionaries by plain values at any level; a changed type is in storage form."""
    return storage_type(dtype) if contains(dtype, pt.is_dictionary) else dtype


def _is_stored_form(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Returns whether a file may store the storage type `wanted` as `stored`."""
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
    """Returns the shape that two nested types must share, without the names of items, keys and values."""
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
"""Types as which Parquet stores others, apart from timestamps, decimals and durations."""
