"""Converts values in text files to values of any type.

JSON has booleans, numbers, strings, lists and objects; the *wire type* of a column is the type as which its
text is parsed first. Other values have these forms, in files read and written:

- dates, times and timestamps are ISO 8601, with years beyond 0000 to 9999 as in `lsm_fragment.arrays.times`.
  For a timestamp column of a table, a text without a zone is UTC; for one without a zone, a text with a zone
  gives the wall time in UTC;
- durations are integers in the type's unit; decimals are strings or numbers, never rounded, and
  only strings where the scale is negative or above the precision;
- binaries are base64; maps are lists of {"key": ..., "value": ...};
- columns of the type arrow.json, and such fields of structs, keep their JSON; lists of arrow.json are lists
  of strings;
- in a CSV cell, lists, structs and maps are JSON text; a value of arrow.json is its own text, or a string if
it
  is within a struct.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from compactor.files.base64_arrays import base64_decode
from compactor.files.json_blocks import parse_block, typed_nulls
from compactor.files.json_kept import with_json_as_text
from compactor.files.json_numbers import check_floats
from compactor.files.number_text import narrowed, read_floats, read_integers
from lsm_fragment.arrays.buffers import binary_parts
from lsm_fragment.arrays.cast import cast_storage
from lsm_fragment.arrays.decimals import decimals_of, has_odd_scale
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.nested import build_list, build_struct, null_mask
from lsm_fragment.arrays.storage import to_logical
from lsm_fragment.arrays.times import times_of
from lsm_fragment.arrays.types import storage_type

_ZONED = r"[0-9][T ][0-9].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"


class UnreadableTypeError(ValueError):
    """Text cannot be read as this type."""


def wire_type(dtype: pa.DataType) -> pa.DataType:
    """Returns the type as which text is parsed before its conversion to `dtype`. Raises
    `UnreadableTypeError`."""
    return _shaped(dtype, _wire_scalar)


def float_type(dtype: pa.DataType) -> pa.DataType:
    """Returns a type with the nesting of `wire_type(dtype)`, the floats of `dtype`, and null for all else."""
    return _shaped(dtype, lambda scalar: scalar if pt.is_floating(scalar) else pa.null())


def _shaped(dtype: pa.DataType, of_scalar: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    dtype = storage_type(dtype)
    if pt.is_struct(dtype):
        return pa.struct([(field.name, _shaped(field.type, of_scalar)) for field in dtype.fields])
    if pt.is_map(dtype):
        types = (("key", dtype.key_type), ("value", dtype.item_type))
        return pa.list_(pa.struct([(name, _shaped(inner, of_scalar)) for name, inner in types]))
    if pt.is_list(dtype) or pt.is_large_list(dtype) or pt.is_fixed_size_list(dtype):
        return pa.list_(_shaped(dtype.value_type, of_scalar))
    return of_scalar(dtype)


def _wire_scalar(dtype: pa.DataType) -> pa.DataType:
    if pt.is_floating(dtype):
        return pa.float64()
    if pt.is_duration(dtype):
        return pa.int64()
    if pt.is_null(dtype):
        return typed_nulls(dtype)
    if pt.is_decimal(dtype) and has_odd_scale(dtype):
        return pa.string()
    if pt.is_integer(dtype) or pt.is_decimal(dtype) or pt.is_boolean(dtype):
        return dtype
    if _is_text_or_bytes(dtype) or _is_time(dtype):
        return pa.string()
    raise UnreadableTypeError(f"text can't hold {dtype}")


def from_wire(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Converts `array` from `wire_type(dtype)`. Raises one of `PROBLEMS` if a value does not fit."""
    return to_logical(_as_storage(array, storage_type(dtype)), dtype)


def from_cells(cells: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Converts CSV cells (strings) to `dtype`. Raises one of `PROBLEMS` if a cell does not fit."""
    wire, stored = wire_type(dtype), storage_type(dtype)
    if pt.is_nested(wire):
        return from_wire(_parsed(_as_lines(cells), dtype, len(cells)), dtype)
    if not _is_text_or_bytes(stored):
        cells = pc.ascii_trim_whitespace(cells)
    if pt.is_string(wire) or pt.is_null(stored):
        return from_wire(cells, dtype)
    if pt.is_duration(stored):
        return from_wire(read_scalars(cells, wire), dtype)
    return to_logical(read_scalars(cells, stored), dtype)


def read_scalars(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Parses texts as numbers, booleans, dates or timestamps, for CSV cells and for type inference.

    Raises one of `PROBLEMS` for a text that is not exactly a value of the type.
    """
    if pt.is_integer(dtype):
        return read_integers(texts, dtype)
    if pt.is_floating(dtype):
        return read_floats(texts, dtype)
    if pt.is_timestamp(dtype) or pt.is_date(dtype):
        return times_of(texts, dtype)
    values = texts.cast(dtype)
    if pt.is_boolean(dtype) and pc.any(pc.less(pc.binary_length(texts), len("true"))).as_py():
        raise ValueError("neither true nor false")  # Arrow also accepts 1 and 0.
    return values


def from_json_texts(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Converts JSON values (strings) to `dtype`. Raises one of `PROBLEMS` if one does not fit."""
    lines = with_json_as_text(_as_lines(texts), pa.schema([("v", dtype)]))
    return from_wire(_parsed(lines, dtype, len(texts)), dtype)


def _as_lines(texts: pa.Array) -> bytes:
    rows = pc.binary_join_element_wise('{"v":', texts.fill_null("null"), "}\n", "")
    offsets, data = binary_parts(rows)
    return bytes(data[int(offsets[0]) : int(offsets[-1])])


def _parsed(lines: bytes, dtype: pa.DataType, rows: int) -> pa.Array:
    column = parse_block(lines, pa.schema([("v", wire_type(dtype))]), rows=rows).column("v")
    check_floats(lines, {"v": column}, {"v": float_type(dtype)})
    return column


def _as_storage(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    if array.type == dtype:
        return array
    if pt.is_null(dtype):
        return _as_nulls(array)
    if pt.is_struct(dtype):
        return _as_struct(array, dtype)
    if pt.is_nested(dtype):
        return _as_list(array, dtype)
    if pt.is_binary(dtype) or pt.is_large_binary(dtype) or pt.is_fixed_size_binary(dtype):
        return base64_decode(array).cast(pa.binary()).cast(dtype)
    if pt.is_timestamp(dtype):
        return _as_timestamp(array, dtype)
    if pt.is_time(dtype):
        moment = pc.binary_join_element_wise("1970-01-01T", array, "")
        return moment.cast(pa.timestamp(dtype.unit)).cast(dtype)
    if pt.is_date(dtype):
        return times_of(array, dtype)
    if pt.is_floating(dtype):
        return narrowed(array, dtype)
    if pt.is_decimal(dtype):
        return decimals_of(array, dtype)
    return array.cast(dtype)


def _as_nulls(array: pa.Array) -> pa.Array:
    if array.null_count < len(array):
        raise ValueError("it is not null")
    return pa.nulls(len(array))


def _as_struct(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    children = dict(zip(array.type.names, array.flatten(), strict=True))
    foreign = children.keys() - set(dtype.names)
    if foreign:
        raise ValueError(f"the table's type has no field {min(foreign)!r}")
    columns = [_as_storage(children[field.name], field.type) for field in dtype.fields]
    return build_struct(dtype, len(array), columns, null_mask(array))


def _as_list(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    counts, items = list_parts(array)
    if pt.is_map(dtype):
        entry = pa.struct([dtype.key_field, dtype.item_field])
        keys, values = items.flatten()
        if keys.null_count:
            raise ValueError("a map's key is null")
        pairs = [_as_storage(keys, dtype.key_type), _as_storage(values, dtype.item_type)]
        entries = pa.StructArray.from_arrays(pairs, fields=entry.fields)
        return build_list(dtype, counts, entries, null_mask(array))
    items = _as_storage(items, dtype.value_type)
    if pt.is_fixed_size_list(dtype):
        lists = build_list(pa.list_(dtype.value_field), counts, items, null_mask(array))
        return cast_storage(lists, dtype)
    return build_list(dtype, counts, items, null_mask(array))


def _as_timestamp(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    try:
        return times_of(texts, dtype)
    except pa.ArrowInvalid:
        # Some texts lack a zone that the type has, or the other way round.
        zoned = pc.match_substring_regex(texts, _ZONED)
        utc = pa.timestamp(dtype.unit, "UTC")
        with_zone = times_of(pc.if_else(zoned, texts, None), utc)
        without = times_of(pc.if_else(zoned, None, texts), pa.timestamp(dtype.unit))
        return pc.coalesce(with_zone, pc.assume_timezone(without, "UTC")).cast(dtype)


def _is_time(dtype: pa.DataType) -> bool:
    return bool(pt.is_timestamp(dtype) or pt.is_date(dtype) or pt.is_time(dtype))


def _is_text_or_bytes(dtype: pa.DataType) -> bool:
    return bool(
        pt.is_string(dtype) or pt.is_large_string(dtype)
        or pt.is_binary(dtype) or pt.is_large_binary(dtype) or pt.is_fixed_size_binary(dtype)
    )  # fmt: skip
