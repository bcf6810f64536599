"""Arrow types as JSON (SPEC section 4), and their storage form.

Views, dictionaries and extensions say how values are presented, not how they are stored. Readers
and merges work on storage arrays and present the logical type only at the edge.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from format.dictionaries import coded, without_null_values
from format.errors import SchemaError
from format.nested import (
    build_fixed_lists,
    build_list,
    build_struct,
    fixed_items,
    list_parts,
    null_mask,
)

JsonObject = dict[str, Any]

_MOST_RESERVED_BYTES: Final = 256 << 20
MAX_NESTING: Final = 64
"""Types within types, as in Arrow's IPC."""
_MOST_CHARACTERS: Final = 200

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    **{f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")()
       for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary_view": pa.binary_view(),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "month_day_nano_interval": pa.month_day_nano_interval(),
}  # fmt: skip
_SIMPLE_KINDS: Final = {dtype: kind for kind, dtype in _SIMPLE.items()}

_UNITS: Final = {"time32": pa.time32, "time64": pa.time64, "duration": pa.duration}
_DECIMALS: Final = {
    "decimal32": pa.decimal32,
    "decimal64": pa.decimal64,
    "decimal128": pa.decimal128,
    "decimal256": pa.decimal256,
}
_LISTS: Final = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
}
_LIST_KINDS: Final = (
    ("list", pt.is_list),
    ("large_list", pt.is_large_list),
    ("list_view", pt.is_list_view),
    ("large_list_view", pt.is_large_list_view),
)


def type_to_json(dtype: pa.DataType) -> JsonObject:
    """The TYPE object of SPEC section 4. Raises `SchemaError` for types the format has no form for."""
    if dtype in _SIMPLE_KINDS:
        return {"kind": _SIMPLE_KINDS[dtype]}
    if isinstance(dtype, pa.BaseExtensionType):
        return {
            "kind": "extension",
            "name": dtype.extension_name,
            "serialized": _encode_bytes(_extension_metadata(dtype)),
            "storage": type_to_json(dtype.storage_type),
        }
    if pt.is_fixed_size_binary(dtype):
        return {"kind": "fixed_size_binary", "byte_width": dtype.byte_width}
    if pt.is_decimal(dtype):
        return {
            "kind": f"decimal{dtype.bit_width}",
            "precision": dtype.precision,
            "scale": dtype.scale,
        }
    if pt.is_time(dtype) or pt.is_duration(dtype):
        kind = "duration" if pt.is_duration(dtype) else f"time{dtype.bit_width}"
        return {"kind": kind, "unit": dtype.unit}
    if pt.is_timestamp(dtype):
        return {"kind": "timestamp", "unit": dtype.unit, "timezone": dtype.tz}
    return _nested_to_json(dtype)


def _extension_metadata(dtype: pa.DataType) -> bytes:
    if isinstance(dtype, pa.ExtensionType):
        return bytes(dtype.__arrow_ext_serialize__())
    if isinstance(dtype, pa.UuidType | pa.JsonType | pa.Bool8Type):
        return b""
    raise SchemaError(f"extension type {dtype} is not supported: cast it to its storage type first")


def _nested_to_json(dtype: pa.DataType) -> JsonObject:
    if pt.is_map(dtype):
        return {
            "kind": "map",
            "key": field_to_json(dtype.key_field),
            "value": field_to_json(dtype.item_field),
            "keys_sorted": dtype.keys_sorted,
        }
    if pt.is_struct(dtype):
        return {"kind": "struct", "fields": [field_to_json(field) for field in dtype.fields]}
    if pt.is_fixed_size_list(dtype):
        return {
            "kind": "fixed_size_list",
            "item": field_to_json(dtype.value_field),
            "size": dtype.list_size,
        }
    if pt.is_dictionary(dtype):
        return {
            "kind": "dictionary",
            "index": type_to_json(dtype.index_type),
            "value": type_to_json(dtype.value_type),
            "ordered": bool(dtype.ordered),
        }
    for kind, is_kind in _LIST_KINDS:
        if is_kind(dtype):
            return {"kind": kind, "item": field_to_json(dtype.value_field)}
    raise SchemaError(
        f"type {dtype} is not supported: cast it first (unions and run-end encodings have no form here)"
    )


def type_from_json(value: JsonObject) -> pa.DataType:
    """Inverse of `type_to_json`. Raises `SchemaError` for what it does not know."""
    try:
        return _type_from_json(value)
    except (
        KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, pa.ArrowException,
    ) as error:  # fmt: skip
        raise SchemaError(f"not a type description: {_short(value)} ({error})") from error


def _short(value: object) -> str:
    """For an error: what is odd may be long, or deeper than Python can print."""
    try:
        text = repr(value)
    except RecursionError:
        return "something nested too deeply"
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"


def _type_from_json(value: JsonObject) -> pa.DataType:
    kind = value["kind"]
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind in _UNITS:
        return _UNITS[kind](value["unit"])
    if kind in _DECIMALS:
        return _DECIMALS[kind](value["precision"], value["scale"])
    if kind in _LISTS:
        return _LISTS[kind](field_from_json(value["item"]))
    match kind:
        case "fixed_size_binary":
            return pa.binary(_natural(value["byte_width"]))
        case "timestamp":
            return pa.timestamp(value["unit"], value["timezone"])
        case "map":
            return pa.map_(
                field_from_json(value["key"]), field_from_json(value["value"]), value["keys_sorted"]
            )
        case "struct":
            return pa.struct([field_from_json(field) for field in value["fields"]])
        case "fixed_size_list":
            return pa.list_(field_from_json(value["item"]), _natural(value["size"]))
        case "dictionary":
            return pa.dictionary(
                _type_from_json(value["index"]), _type_from_json(value["value"]), value["ordered"]
            )
        case "extension":
            return _extension_type(value)
    raise SchemaError(f"unknown type kind {kind!r}")


def _natural(value: object) -> int:
    """-1 would mean another type to Arrow, other numbers below 0 none."""
    if type(value) is not int or value < 0:
        raise SchemaError(f"{_short(value)} is no length")
    return value


def _extension_type(value: JsonObject) -> pa.DataType:
    """The registered extension type, or its storage type where this process does not know it."""
    storage = _type_from_json(value["storage"])
    metadata = {
        b"ARROW:extension:name": value["name"].encode(),
        b"ARROW:extension:metadata": base64.b64decode(value["serialized"]),
    }
    # Arrow rebuilds registered extension types only on the way through IPC.
    schema = pa.schema([pa.field("x", storage, metadata=metadata)])
    return pa.ipc.read_schema(schema.serialize()).field(0).type


def field_to_json(field: pa.Field) -> JsonObject:
    """The FIELD object of SPEC section 4."""
    result: JsonObject = {
        "name": field.name,
        "type": type_to_json(field.type),
        "nullable": field.nullable,
    }
    if field.metadata:
        result["metadata"] = metadata_to_json(field.metadata)
    return result


def field_from_json(value: JsonObject) -> pa.Field:
    """Inverse of `field_to_json`."""
    try:
        return pa.field(
            value["name"],
            type_from_json(value["type"]),
            value["nullable"],
            metadata_from_json(value.get("metadata")),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise SchemaError(f"not a field description: {_short(value)} ({error})") from error


def schema_to_json(schema: pa.Schema) -> JsonObject:
    """The schema object of SPEC section 4."""
    result: JsonObject = {"fields": [field_to_json(field) for field in schema]}
    if schema.metadata:
        result["metadata"] = metadata_to_json(schema.metadata)
    return result


def schema_from_json(value: JsonObject) -> pa.Schema:
    """Inverse of `schema_to_json`."""
    return pa.schema(
        [field_from_json(field) for field in value["fields"]],
        metadata=metadata_from_json(value.get("metadata")),
    )


def metadata_to_json(metadata: dict[bytes, bytes]) -> dict[str, str]:
    return {_encode_bytes(key): _encode_bytes(metadata[key]) for key in sorted(metadata)}


def metadata_from_json(value: dict[str, str] | None) -> dict[bytes, bytes] | None:
    if not value:
        return None
    return {base64.b64decode(key): base64.b64decode(item) for key, item in value.items()}


def _encode_bytes(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


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


def storage_type(dtype: pa.DataType) -> pa.DataType:
    """The type under which values of `dtype` are stored, merged and hashed."""
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
    """Returns the type that a table's column gets for values of `dtype`: what one writer says beyond its
    values is no rule for the next.

    Elements and fields may be null, maps do not say that their keys are sorted, and dictionaries have int32
    indices, since narrow ones can't count the values of many fragments.
    """
    if pt.is_dictionary(dtype):
        return pa.dictionary(pa.int32(), table_type(dtype.value_type), dtype.ordered)
    if pt.is_struct(dtype):
        return pa.struct([_table_field(field) for field in dtype.fields])
    if pt.is_map(dtype):
        key = dtype.key_field.with_type(table_type(dtype.key_type))
        return pa.map_(key, _table_field(dtype.item_field))
    if pt.is_fixed_size_list(dtype):
        return pa.list_(_table_field(dtype.value_field), dtype.list_size)
    for kind, is_kind in _LIST_KINDS:
        if is_kind(dtype):
            return _LISTS[kind](_table_field(dtype.value_field))
    return dtype


def _table_field(field: pa.Field) -> pa.Field:
    return field.with_type(table_type(field.type)).with_nullable(True)


def table_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the columns as a table gets them, see `table_type`; without metadata."""
    return pa.schema([pa.field(field.name, table_type(field.type)) for field in schema])


def is_stored_as(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a fragment's column of type `stored` can be read as `wanted`: stored alike, in a narrower or
    coarser type, or all null."""
    source, target = storage_type(stored), storage_type(wanted)
    if source == target or pt.is_null(source):
        return True
    return widens_to(source, target) or converts_to(source, target)


_FINER: Final = ("s", "ms", "us", "ns")
_MANTISSA_BITS: Final = {16: 11, 32: 24, 64: 53}


def converts_to(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of a storage type become others of the same meaning, of another row hash: integers as
    floats that are exact, times in finer units, anything plain as text. Not times in nanoseconds, which end
    in the year 2262."""
    if pt.is_integer(source) and pt.is_floating(target):
        return bool(source.bit_width < _MANTISSA_BITS[target.bit_width])
    if pt.is_timestamp(source) and pt.is_timestamp(target):
        is_finer = _FINER.index(source.unit) < _FINER.index(target.unit)
        return bool(is_finer and target.unit != "ns" and (source.tz is None) == (target.tz is None))
    return may_be_text(source) and (pt.is_string(target) or pt.is_large_string(target))


def may_be_text(dtype: pa.DataType) -> bool:
    """Whether values of a storage type, not text themselves, can be written as text."""
    return bool(
        pt.is_integer(dtype) or pt.is_floating(dtype) or pt.is_boolean(dtype) or pt.is_decimal(dtype)
        or pt.is_timestamp(dtype) or pt.is_date(dtype) or pt.is_time(dtype)
    )  # fmt: skip


def widens_to(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of a storage type are values of a wider one: the same numbers and texts, and so of the
    same row hash, statistics and order."""
    if pt.is_integer(source) and pt.is_integer(target):
        if pt.is_signed_integer(source) == pt.is_signed_integer(target):
            return bool(source.bit_width < target.bit_width)
        return bool(pt.is_signed_integer(target) and source.bit_width < target.bit_width)
    if pt.is_floating(source) and pt.is_floating(target):
        return bool(source.bit_width < target.bit_width)
    if pt.is_decimal(source) and pt.is_decimal(target):
        is_larger = source.precision <= target.precision and source.bit_width <= target.bit_width
        return bool(is_larger and source.scale == target.scale and source != target)
    return bool(
        (pt.is_string(source) and pt.is_large_string(target))
        or (pt.is_binary(source) and pt.is_large_binary(target))
    )


def converted_value(value: Any, source: pa.DataType, target: pa.DataType) -> Any:
    """A VALUE of the footer, of a column of type `source`, as one of `target`, to which that converts or
    widens; None if it bounds nothing there."""
    source, target = storage_type(source), storage_type(target)
    if value is None or source == target:
        return value
    if may_be_text(source) and not may_be_text(target):
        return None  # texts are in another order
    if not pt.is_timestamp(source):
        return value
    steps = _FINER.index(target.unit) - _FINER.index(source.unit)
    return value * 1000**steps


def is_list_like(dtype: pa.DataType) -> bool:
    """Lists of varying length other than maps."""
    return bool(
        pt.is_list(dtype) or pt.is_large_list(dtype)
        or pt.is_list_view(dtype) or pt.is_large_list_view(dtype)
    )  # fmt: skip


def is_binary_like(dtype: pa.DataType) -> bool:
    """Strings and binaries in their storage forms, small and large."""
    return bool(
        pt.is_string(dtype) or pt.is_large_string(dtype)
        or pt.is_binary(dtype) or pt.is_large_binary(dtype)
    )  # fmt: skip


def may_stay_coded(dtype: pa.DataType) -> bool:
    """Whether dictionary-coded values of the type are worth moving as codes: those of varying length."""
    return is_binary_like(dtype) or is_list_like(dtype) or bool(pt.is_map(dtype))


def is_large_offsets(dtype: pa.DataType) -> bool:
    return bool(pt.is_large_string(dtype) or pt.is_large_binary(dtype) or pt.is_large_list(dtype))


def to_storage(array: pa.Array) -> pa.Array:
    """`array` in its storage form. Top-level dictionaries stay dictionary-coded over storage values, none of
    them null, where the format has dictionaries of their type."""
    dtype = array.type
    if pt.is_dictionary(dtype) and _may_be_coded(storage_type(dtype)):
        indices = array.indices.cast(pa.int32())
        values = _decoded_storage(array.dictionary)
        return without_null_values(pa.DictionaryArray.from_arrays(indices, values))
    return _decoded_storage(array)


def _may_be_coded(dtype: pa.DataType) -> bool:
    is_fixed_nested = pt.is_struct(dtype) or pt.is_fixed_size_list(dtype)
    return not (is_fixed_nested or pt.is_boolean(dtype) or pt.is_null(dtype))


def _decoded_storage(array: pa.Array) -> pa.Array:
    dtype = array.type
    if dtype == storage_type(dtype):
        return array
    if isinstance(dtype, pa.BaseExtensionType):
        return _decoded_storage(array.storage)
    if pt.is_dictionary(dtype):
        values = _decoded_storage(array.dictionary)  # of views Arrow takes none
        return decoded(pa.DictionaryArray.from_arrays(array.indices, values, safe=False))
    if pt.is_string_view(dtype) or pt.is_binary_view(dtype):
        return array.cast(storage_type(dtype))
    if pt.is_struct(dtype):
        children = [_decoded_storage(child) for child in array.flatten()]
        return build_struct(storage_type(dtype), len(array), children, null_mask(array))
    if pt.is_fixed_size_list(dtype):
        items = _decoded_storage(fixed_items(array))
        return build_fixed_lists(storage_type(dtype), len(array), items, null_mask(array))
    counts, items = list_parts(array, _decoded_storage)
    return build_list(storage_type(dtype), counts, items, null_mask(array))


def to_logical(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Inverse of `to_storage`: `array` presented as `dtype`.

    Raises `SchemaError` if a dictionary has more values than its index type can count.
    """
    if array.type == dtype:
        return array
    if pt.is_dictionary(array.type) and not pt.is_dictionary(dtype):
        return to_logical(decoded(array), dtype)
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, to_logical(array, dtype.storage_type))
    if pt.is_dictionary(dtype):
        return _to_dictionary(array, dtype)
    if pt.is_string_view(dtype) or pt.is_binary_view(dtype):
        return array.cast(dtype)
    if pt.is_struct(dtype):
        children = [
            to_logical(child, field.type)
            for child, field in zip(array.flatten(), dtype.fields, strict=True)
        ]
        return build_struct(dtype, len(array), children, null_mask(array))
    if pt.is_fixed_size_list(dtype):
        items = to_logical(fixed_items(array), dtype.value_type)
        return build_fixed_lists(dtype, len(array), items, null_mask(array))
    counts, items = list_parts(array)
    if pt.is_map(dtype):
        items = to_logical(items, pa.struct([dtype.key_field, dtype.item_field]))
    else:
        items = to_logical(items, dtype.value_type)
    return build_list(dtype, counts, items, null_mask(array))


def _to_dictionary(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    encoded = array if pt.is_dictionary(array.type) else coded(array)
    if len(encoded.dictionary) > len(array):
        encoded = coded(decoded(encoded))  # a slice, which may get along with fewer
    values = to_logical(encoded.dictionary, dtype.value_type)
    try:
        indices = encoded.indices.cast(dtype.index_type)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"{len(values)} distinct values do not fit dictionary indices of type "
            f"{dtype.index_type}: use a wider index type"
        ) from error
    return pa.DictionaryArray.from_arrays(indices, values, ordered=dtype.ordered)


def decoded(array: pa.Array) -> pa.Array:
    """The values of a dictionary-coded array, as many as it has rows."""
    values, indices = array.dictionary, array.indices
    if not len(values):
        return pa.nulls(len(indices), values.type)
    if not is_binary_like(values.type):
        return pc.take(values, indices, boundscheck=False)
    # Arrow reserves the average of all values for every row, also where a long one is rarely used.
    if values.nbytes // len(values) * len(indices) <= _MOST_RESERVED_BYTES or len(indices) == 1:
        return pc.take(values, indices, boundscheck=False)
    middle = len(indices) // 2
    return pa.concat_arrays(
        [decoded(_in_use(part, values)) for part in (indices[:middle], indices[middle:])]
    )


def _in_use(indices: pa.Array, values: pa.Array) -> pa.Array:
    used = pc.unique(indices.drop_null())
    codes = pc.index_in(indices, used, skip_nulls=True)
    return pa.DictionaryArray.from_arrays(codes, values.take(used), safe=False)


def plain(array: pa.Array) -> pa.Array:
    """The values of an array, dictionary-coded or not."""
    return decoded(array) if pt.is_dictionary(array.type) else array
