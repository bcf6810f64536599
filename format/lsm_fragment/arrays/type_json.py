"""Writes and reads types and schemas as JSON, as a fragment's header and the log store them (SPEC section
4)."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.types import LIST_KINDS, LISTS
from lsm_fragment.errors import SchemaError, cause_of

JsonObject = dict[str, Any]
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


def json_bytes(document: JsonObject) -> bytes:
    """Serialises JSON as fragments store it: UTF-8 without white space or escaped non-ASCII characters."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def type_to_json(dtype: pa.DataType) -> JsonObject:
    """Converts a type to the TYPE object of SPEC section 4.

    Raises `SchemaError` for types that the format cannot hold.
    """
    if isinstance(dtype, pa.BaseExtensionType):
        return {
            "kind": "extension",
            "name": dtype.extension_name,
            "serialized": _encode_bytes(_extension_metadata(dtype)),
            "storage": type_to_json(dtype.storage_type),
        }
    if dtype in _SIMPLE_KINDS:
        return {"kind": _SIMPLE_KINDS[dtype]}
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
        if type(dtype).__hash__ is None:  # as of a class that defines none
            raise SchemaError(
                f"extension type {dtype} has no __hash__: define one, or cast it to its storage type first"
            )
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
    for kind, is_kind in LIST_KINDS:
        if is_kind(dtype):
            return {"kind": kind, "item": field_to_json(dtype.value_field)}
    raise SchemaError(
        f"type {dtype} is not supported: cast it first (unions and run-end encodings have no form here)"
    )


def type_from_json(value: JsonObject) -> pa.DataType:
    """Reads a TYPE object. Raises `SchemaError` for an unknown one."""
    try:
        return _type_from_json(value)
    except (
        KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, pa.ArrowException,
    ) as error:  # fmt: skip
        raise SchemaError(f"not a type description: {_short(value)} ({cause_of(error)})") from error


def _short(value: object) -> str:
    """Shortens a value for an error. It may be long, or too deeply nested for Python to print."""
    try:
        text = repr(value)
    except RecursionError:
        return "something nested too deeply"
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "…"


def _type_from_json(value: JsonObject) -> pa.DataType:
    kind = value["kind"]
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind in _UNITS:
        return _UNITS[kind](value["unit"])
    if kind in _DECIMALS:
        return _DECIMALS[kind](value["precision"], value["scale"])
    if kind in LISTS:
        return LISTS[kind](field_from_json(value["item"]))
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
    """Checks a length: -1 would be another type to Arrow, and other negative numbers are invalid."""
    if type(value) is not int or value < 0:
        raise SchemaError(f"{_short(value)} is not a length")
    return value


def _extension_type(value: JsonObject) -> pa.DataType:
    """Returns the registered extension type, or its storage type if it is not registered."""
    storage = _type_from_json(value["storage"])
    metadata = {
        b"ARROW:extension:name": value["name"].encode(),
        b"ARROW:extension:metadata": base64.b64decode(value["serialized"]),
    }
    # Only Arrow's IPC rebuilds registered extension types.
    schema = pa.schema([pa.field("x", storage, metadata=metadata)])
    return pa.ipc.read_schema(schema.serialize()).field(0).type


def field_to_json(field: pa.Field) -> JsonObject:
    """Returns the FIELD object of SPEC section 4."""
    result: JsonObject = {
        "name": field.name,
        "type": type_to_json(field.type),
        "nullable": field.nullable,
    }
    if field.metadata:
        result["metadata"] = metadata_to_json(field.metadata)
    return result


def field_from_json(value: JsonObject) -> pa.Field:
    """Reads a FIELD object. Raises `SchemaError` for anything else."""
    try:
        return pa.field(
            value["name"],
            type_from_json(value["type"]),
            value["nullable"],
            metadata_from_json(value.get("metadata")),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise SchemaError(
            f"not a field description: {_short(value)} ({cause_of(error)})"
        ) from error


def schema_to_json(schema: pa.Schema) -> JsonObject:
    """Returns the schema object of SPEC section 4."""
    result: JsonObject = {"fields": [field_to_json(field) for field in schema]}
    if schema.metadata:
        result["metadata"] = metadata_to_json(schema.metadata)
    return result


def schema_from_json(value: JsonObject) -> pa.Schema:
    """Reads a schema object. Raises `SchemaError` for anything else."""
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


_MAX_CHARACTERS: Final = 200
