"""Maps each Arrow type to its storage type, and checks the format's requirements on types.

Views, dictionaries and extensions are presentations of values, not ways to store them. Readers and merges
work on storage arrays, and present the logical type only at the edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.errors import SchemaError

MAX_NESTING: Final = 64
"""Maximum levels of nested types, as in Arrow's IPC."""
MAX_OFFSET_32: Final = 2**31 - 1
"""The most bytes or elements that 32-bit offsets count."""
_BINARY_LIKE: Final = frozenset(
    dtype.id for dtype in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
)
_LIST_LIKE: Final = frozenset(
    make(pa.null()).id for make in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)
)
_LARGE_OFFSETS: Final = frozenset(
    dtype.id for dtype in (pa.large_string(), pa.large_binary(), pa.large_list(pa.null()))
)
_MAP: Final = pa.map_(pa.int8(), pa.null()).id
_STAY_CODED: Final = _BINARY_LIKE | _LIST_LIKE | {_MAP}
_NEVER_CODED: Final = frozenset(
    dtype.id for dtype in (pa.struct([]), pa.list_(pa.null(), 1), pa.bool_(), pa.null())
)
_DISGUISED: Final = (
    _LIST_LIKE
    | {_MAP}
    | {
        dtype.id
        for dtype in (
            pa.string_view(), pa.binary_view(), pa.struct([]), pa.list_(pa.null(), 1),
            pa.dictionary(pa.int32(), pa.null()), pa.uuid(),
        )
    }
)  # fmt: skip
"""Ids of types that may differ from their storage type; `pa.uuid` has the id of all extensions."""
LISTS: Final = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
}
LIST_KINDS: Final = (
    ("list", pt.is_list),
    ("large_list", pt.is_large_list),
    ("list_view", pt.is_list_view),
    ("large_list_view", pt.is_large_list_view),
)


def check_nesting(schema: pa.Schema) -> None:
    """Raises `SchemaError` for a type that is nested too deeply."""
    types = [field.type for field in schema]
    for _ in range(MAX_NESTING):
        types = [inner for dtype in types for inner in _inner_types(dtype)]
        if not types:
            return
    raise SchemaError(f"a type is nested more than {MAX_NESTING} deep")


def _inner_types(dtype: pa.DataType) -> list[pa.DataType]:
    if isinstance(dtype, pa.BaseExtensionType):
        return [dtype.storage_type]
    if pt.is_dictionary(dtype):
        return [dtype.value_type]
    return [dtype.field(index).type for index in range(dtype.num_fields)]


def contains(dtype: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    """Returns whether a type, or a type within it at any level, is of a kind."""
    return any(map(is_kind, types_within(dtype)))


def types_within(dtype: pa.DataType) -> Iterator[pa.DataType]:
    """Yields a type, and the types within it at any level."""
    yield dtype
    for inner in _inner_types(dtype):
        yield from types_within(inner)


def uncoded_type(dtype: pa.DataType) -> pa.DataType:
    """Returns the value type of a dictionary type, and any other type unchanged."""
    return dtype.value_type if pt.is_dictionary(dtype) else dtype


def is_templated(dtype: pa.DataType) -> bool:
    """Returns whether the type is that of a templated array (see `lsm_fragment.arrays.templated`)."""
    return bool(pt.is_struct(dtype) and dtype.num_fields and pt.is_dictionary(dtype.field(0).type))


WORDED_TYPE: Final = pa.struct(
    [("numbers", pa.binary()), ("words", pa.dictionary(pa.int8(), pa.string()))]
)
"""The type of worded arrays (see `lsm_fragment.arrays.worded`)."""


def is_worded(dtype: pa.DataType) -> bool:
    return bool(pt.is_struct(dtype) and dtype.equals(WORDED_TYPE))


def value_type(dtype: pa.DataType) -> pa.DataType:
    """Returns the type of the values of plain, dictionary-coded, templated or worded storage arrays."""
    if is_worded(dtype):
        return pa.string()
    return uncoded_type(dtype.field(0).type if is_templated(dtype) else dtype)


def storage_type(dtype: pa.DataType) -> pa.DataType:
    """Returns the type under which values of `dtype` are stored, merged and hashed."""
    if dtype.id not in _DISGUISED:
        return dtype
    if isinstance(dtype, pa.BaseExtensionType):
        return storage_type(dtype.storage_type)
    if pt.is_dictionary(dtype):
        return storage_type(dtype.value_type)
    if pt.is_string_view(dtype):
        return pa.string()
    if pt.is_binary_view(dtype):
        return pa.binary()
    if pt.is_struct(dtype):
        return pa.struct([field.with_type(storage_type(field.type)) for field in dtype.fields])
    if pt.is_map(dtype):
        return pa.map_(
            dtype.key_field.with_type(storage_type(dtype.key_type)),
            dtype.item_field.with_type(storage_type(dtype.item_type)),
            dtype.keys_sorted,
        )
    if pt.is_fixed_size_list(dtype):
        return pa.list_(_storage_item(dtype), dtype.list_size)
    if pt.is_list(dtype) or pt.is_list_view(dtype):
        return pa.list_(_storage_item(dtype))
    if pt.is_large_list(dtype) or pt.is_large_list_view(dtype):
        return pa.large_list(_storage_item(dtype))
    return dtype


def _storage_item(dtype: pa.DataType) -> pa.Field:
    return dtype.value_field.with_type(storage_type(dtype.value_type))


def table_type(dtype: pa.DataType) -> pa.DataType:
    """Returns the type that a table's column has for values of `dtype`. It drops promises of one writer that
    do not bind the next.

    Elements and fields may be null, and maps do not claim sorted keys. Dictionaries have int32 indices, since
    narrow ones cannot count the values of many fragments, and do not claim ordered values, since every row
    group and every reader rebuilds them.
    """
    if pt.is_dictionary(dtype):
        return pa.dictionary(pa.int32(), table_type(dtype.value_type))
    if pt.is_struct(dtype):
        return pa.struct([_table_field(field) for field in dtype.fields])
    if pt.is_map(dtype):
        key = dtype.key_field.with_type(table_type(dtype.key_type))
        return pa.map_(key, _table_field(dtype.item_field))
    if pt.is_fixed_size_list(dtype):
        return pa.list_(_table_field(dtype.value_field), dtype.list_size)
    for kind, is_kind in LIST_KINDS:
        if is_kind(dtype):
            return LISTS[kind](_table_field(dtype.value_field))
    return dtype


def _table_field(field: pa.Field) -> pa.Field:
    return field.with_type(table_type(field.type)).with_nullable(True)


def table_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the schema of a table for these columns (see `table_type`), without metadata."""
    return pa.schema([pa.field(field.name, table_type(field.type)) for field in schema])


def is_list_like(dtype: pa.DataType) -> bool:
    """Returns whether the type is a list of varying length, other than a map."""
    return dtype.id in _LIST_LIKE


def is_binary_like(dtype: pa.DataType) -> bool:
    """Returns whether the type is a string or binary storage type, small or large."""
    return dtype.id in _BINARY_LIKE


def is_string(dtype: pa.DataType) -> bool:
    """Returns whether the type is a string storage type, small or large."""
    return bool(pt.is_string(dtype) or pt.is_large_string(dtype))


def is_bytes(dtype: pa.DataType) -> bool:
    """Returns whether the type is a binary storage type: small, large or of fixed size."""
    return bool(pt.is_binary(dtype) or pt.is_large_binary(dtype) or pt.is_fixed_size_binary(dtype))


def may_stay_coded(dtype: pa.DataType) -> bool:
    """Returns whether moving codes pays for dictionary-coded values: only for types of varying length."""
    return dtype.id in _STAY_CODED


def is_large_offsets(dtype: pa.DataType) -> bool:
    """Returns whether offsets of the type have 64 bits."""
    return dtype.id in _LARGE_OFFSETS


def may_be_coded(dtype: pa.DataType) -> bool:
    """Returns whether the format has dictionaries of the type."""
    return dtype.id not in _NEVER_CODED
