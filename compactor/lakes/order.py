"""Keeps the order that a lake's columns have, for readers that find them by name. Pure."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as pt


def in_known_order(known: pa.Schema, schema: pa.Schema) -> pa.Schema:
    """Returns the columns of `known` as they stand there, and the columns that `schema` has besides them.

    Returns `schema` if it lacks one of them or has it with another type. The order of fields in structs is
    no difference. Both have types of `lake_schema`.
    """
    types = {field.name: field.type for field in schema}
    for field in known:
        if field.name not in types or _in_name_order(types[field.name]) != _in_name_order(
            field.type
        ):
            return schema
    names = set(known.names)
    return pa.schema([*known, *(field for field in schema if field.name not in names)])


def _in_name_order(dtype: pa.DataType) -> pa.DataType:
    """Returns the type with the fields of its structs in the order of their names."""
    if pt.is_struct(dtype):
        fields = sorted(dtype.fields, key=lambda field: field.name)
        return pa.struct([field.with_type(_in_name_order(field.type)) for field in fields])
    if pt.is_map(dtype):
        return pa.map_(_in_name_order(dtype.key_type), _in_name_order(dtype.item_type))
    if pt.is_list(dtype):
        return pa.list_(dtype.value_field.with_type(_in_name_order(dtype.value_type)))
    return dtype
