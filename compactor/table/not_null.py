"""Columns, and places within them, that hold no nulls because the user asked for it.

A path names such a place: `id`, `tags.element`, `attributes.value`, `request.headers.element.name`. All other
places may be null (`lsm_fragment.arrays.types.table_type`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyarrow import types as pt

from compactor.common.setting_keys import NOT_NULL
from compactor.errors import UsageError
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.arrays.types import is_list_like
from lsm_fragment.names import names_text

_ELEMENT = "element"
_VALUE = "value"


def with_not_null(schema: pa.Schema, paths: Iterable[str]) -> pa.Schema:
    """Returns the schema with `not null` at these paths. Raises `UsageError` for an unknown path."""
    fields = list(schema)
    for path in paths:
        names = [field.name for field in fields if f"{path}.".startswith(f"{field.name}.")]
        if not names:
            raise UsageError(
                NOT_NULL, f": no column {path!r}; columns are: {names_text(schema.names)}"
            )
        name = path if path in names else max(names, key=len)
        place = schema.get_field_index(name)
        fields[place] = _required(fields[place], path[len(name) + 1 :], path)
    return pa.schema(fields, metadata=schema.metadata)


def _required(field: pa.Field, rest: str, path: str) -> pa.Field:
    if not rest:
        if pt.is_null(field.type):
            raise UsageError(
                NOT_NULL,
                f": {path!r} has no value in these rows, so its type is unknown; create the table "
                "from rows that have one",
            )
        return field.with_nullable(False)
    dtype = field.type
    inner = {name: child for name, child in _children(dtype) if f"{rest}.".startswith(f"{name}.")}
    if not inner:
        known = ", ".join(name for name, _ in _children(dtype)) or "nothing"
        raise UsageError(NOT_NULL, f": {path!r}: {field.name!r} is {dtype}, which contains {known}")
    name = rest if rest in inner else max(inner, key=len)
    child = _required(inner[name], rest[len(name) + 1 :], path)
    return field.with_type(_with_child(dtype, name, child))


def _children(dtype: pa.DataType) -> list[tuple[str, pa.Field]]:
    """Returns the fields within a type that may be null, by what paths call them."""
    if pt.is_struct(dtype):
        return [(field.name, field) for field in dtype.fields]
    if pt.is_map(dtype):
        return [(_VALUE, dtype.item_field)]
    if is_list_like(dtype) or pt.is_fixed_size_list(dtype):
        return [(_ELEMENT, dtype.value_field)]
    return []


def _with_child(dtype: pa.DataType, name: str, child: pa.Field) -> pa.DataType:
    if pt.is_struct(dtype):
        return pa.struct([child if field.name == name else field for field in dtype.fields])
    if pt.is_map(dtype):
        return pa.map_(dtype.key_field, child, dtype.keys_sorted)
    if pt.is_fixed_size_list(dtype):
        return pa.list_(child, dtype.list_size)
    for make, is_kind in (
        (pa.list_, pt.is_list),
        (pa.large_list, pt.is_large_list),
        (pa.list_view, pt.is_list_view),
    ):
        if is_kind(dtype):
            return make(child)
    return pa.large_list_view(child)


def not_null_paths(schema: pa.Schema) -> tuple[str, ...]:
    """Returns the paths of a schema that hold no nulls: the inverse of `with_not_null`."""
    return tuple(path for field in schema for path in _paths(field, field.name))


def _paths(field: pa.Field, path: str) -> Iterator[str]:
    if not field.nullable:
        yield path
    for name, child in _children(field.type):
        yield from _paths(child, f"{path}.{name}")


def is_free(field: pa.Field) -> bool:
    """Says whether neither a column nor anything within it was asked to be not null."""
    return bool(field.nullable) and all(is_free(child) for _, child in _children(field.type))


def null_place(array: pa.Array, field: pa.Field) -> str | None:
    """Returns the path of a null where the field allows none; None if there is none.

    A value within a null does not count. array: is of the field's type, or as it is stored.
    """
    if not field.nullable and array.null_count:
        return str(field.name)
    if is_free(field.with_nullable(True)):
        return None
    return _null_place(plain(to_storage(array)), field, field.name, array.null_count)


def _null_place(array: pa.Array, field: pa.Field, path: str, hidden: int) -> str | None:
    """Returns what `null_place` does. hidden: number of nulls that are null only within a null."""
    if not field.nullable and array.null_count > hidden:
        return path
    if pt.is_struct(array.type):
        arrays, hidden = array.flatten(), array.null_count
    elif not pt.is_nested(array.type):
        return None
    else:
        items = list_parts(array)[1]
        arrays, hidden = [items.field(1) if pt.is_map(array.type) else items], 0
    for (name, child), values in zip(_children(field.type), arrays, strict=True):
        if is_free(child):
            continue
        found = _null_place(values, child, f"{path}.{name}", hidden)
        if found is not None:
            return found
    return None
