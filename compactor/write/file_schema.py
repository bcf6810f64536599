"""Binds a file's columns to a table: unites the two schemas and casts batches to the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.common.message import Setting
from compactor.common.setting_keys import ON_CONFLICT
from compactor.errors import InputError
from compactor.table.not_null import null_place
from lsm_fragment.arrays.cast import as_type
from lsm_fragment.arrays.decimals import decimal_of_width
from lsm_fragment.arrays.times import UNITS
from lsm_fragment.arrays.type_json import type_to_json
from lsm_fragment.arrays.types import (
    check_nesting,
    is_binary_like,
    is_list_like,
    storage_type,
    table_type,
    uncoded_type,
)
from lsm_fragment.arrays.widening import becomes_json, converts_to, may_be_text, widens_to
from lsm_fragment.errors import SchemaError
from lsm_fragment.names import names_text
from lsm_fragment.value_errors import first_line


class OnConflict(StrEnum):
    """Treatment of a file's column whose values do not fit the table's type, or are of several kinds.

    Values of several kinds become text unless they are an error.
    """

    ERROR = "error"
    STRING = "string"
    """The table's column becomes text, its stored values included."""
    SPLIT = "split"
    """The file's column becomes a separate one, named after its type."""


_ANOTHER_TABLE: Final = ", or ingest it into another table"
_AS_STORED: Final[Mapping[str, str]] = MappingProxyType({})


def merged_schema(
    table: pa.Schema | None,
    file: pa.Schema,
    path: str,
    fixed: Mapping[str, str] = MappingProxyType({}),
    on_conflict: OnConflict = OnConflict.ERROR,
    shown: Mapping[str, str] = _AS_STORED,
) -> pa.Schema:
    """Extends the table's schema by the file's; new columns come last.

    A column keeps its type if that holds the file's values; otherwise it gets a wider type that holds both
    (`widens_to`), or JSON if the file has that. A column without values so far takes the file's type.
    Existing fragments are not rewritten, and are read as the wider type. fixed: columns that only widen to
    types that keep the order of stored values, with their kind, such as "sort column". shown: shown names by
    stored name, for errors.

    Raises `InputError` with file, column and both types if the file's values would lose information in the
    table's type, or if the format does not support a type.
    """
    fields = {} if table is None else {field.name: field for field in table}
    if len(set(file.names)) != len(file.names):
        raise InputError(f"{path}: two columns have the same name: rename one")
    for field in file:
        try:
            type_to_json(field.type)
            check_nesting(pa.schema([field]))
        except SchemaError as error:
            name = shown.get(field.name, field.name)
            raise InputError(f"{path}: column {name!r}: {error}") from error
        known = fields.get(field.name)
        if known is None or pt.is_null(known.type):
            fields[field.name] = pa.field(field.name, table_type(field.type))
        elif field.name not in fixed and becomes_json(known.type, field.type):
            fields[field.name] = known.with_type(field.type)
        elif not can_widen(field.type, known.type):
            wider = _wider_type(known.type, field.type, may_convert=field.name not in fixed)
            if wider is not None:
                fields[field.name] = known.with_type(wider)
                continue
            if on_conflict is OnConflict.STRING and becomes_text(known, field, fixed):
                fields[field.name] = known.with_type(_text_of(known.type, field.type))
                continue
            name = shown.get(field.name, field.name)
            kind = fixed.get(field.name)
            raise InputError(
                f"{path}: {kind or 'column'} {name!r} is {field.type}, the table's is {known.type}",
                *_advice(on_conflict, kind),
            )
    return pa.schema(list(fields.values()))


def _advice(on_conflict: OnConflict, kind: str | None) -> tuple[str | Setting, ...]:
    """Returns what may be done with values of another type, beside what was asked for already.

    kind: of a fixed column; None for another column.
    """
    convert = ": convert the file"
    if kind is not None and on_conflict is not OnConflict.ERROR:
        return (", and ", ON_CONFLICT, f" does not change {kind}s{convert}", _ANOTHER_TABLE)
    if kind is not None or on_conflict is OnConflict.SPLIT:
        return (convert, _ANOTHER_TABLE)
    others = "split" if on_conflict is OnConflict.STRING else "split or string"
    return (f"{convert}, ingest it into another table, or say ", ON_CONFLICT, f" {others}")


def conflicting(
    table: pa.Schema, file: pa.Schema, fixed: Collection[str] = ()
) -> list[tuple[str, pa.DataType]]:
    """Returns the file's columns whose values fit neither the table's type nor a wider type."""
    found = []
    for field in file:
        index = table.get_field_index(field.name)
        known = None if index < 0 else table.field(index).type
        if known is None or pt.is_null(known) or can_widen(field.type, known):
            continue
        if field.name not in fixed and becomes_json(known, field.type):
            continue
        if _wider_type(known, field.type, may_convert=field.name not in fixed) is None:
            found.append((field.name, field.type))
    return found


def same_kind(a: pa.DataType, b: pa.DataType) -> bool:
    """Returns whether text files write both types alike, such as all numbers."""
    return _wire_kind(a) == _wire_kind(b)


def _wire_kind(dtype: pa.DataType) -> str:
    dtype = uncoded_type(dtype)
    if pt.is_integer(dtype) or pt.is_floating(dtype):
        return "number"
    if pt.is_boolean(dtype) or pt.is_nested(dtype):
        return str(dtype).split("<")[0]
    return "text"


def split_name(column: str, dtype: pa.DataType) -> str:
    """Returns the name of the separate column for values of a conflicting type."""
    dtype = uncoded_type(dtype)
    for name, is_so in _KINDS.items():
        if is_so(dtype):
            return f"{column}_{name}"
    return f"{column}_{str(dtype).split('[')[0].split('(')[0]}"


def becomes_text(known: pa.Field, field: pa.Field, fixed: Collection[str]) -> bool:
    """Returns whether a table's column can become text to hold a file's values of another type, too."""
    return field.name not in fixed and all(
        may_be_text(storage_type(dtype)) or _is_text(storage_type(dtype))
        for dtype in (known.type, field.type)
    )


def _text_of(*types: pa.DataType) -> pa.DataType:
    """Returns the type of text as which columns of these types can be read."""
    is_large = any(pt.is_large_string(uncoded_type(storage_type(dtype))) for dtype in types)
    return pa.large_string() if is_large else pa.string()


_KINDS: Final[dict[str, Callable[[pa.DataType], bool]]] = {
    "text": lambda dtype: _is_text(dtype),
    "int": pt.is_integer,
    "float": pt.is_floating,
    "bool": pt.is_boolean,
    "map": pt.is_map,
    "list": is_list_like,
    "struct": pt.is_struct,
    "bytes": lambda dtype: _is_bytes(dtype),
}
_WIDER: Final = (
    pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.large_string(), pa.large_binary(),
)  # fmt: skip


def _wider_type(table: pa.DataType, file: pa.DataType, *, may_convert: bool) -> pa.DataType | None:
    """Returns the narrowest type that holds the values of both, or None.

    may_convert: whether stored values may change representation, as integers that become floats do.
    """
    if pt.is_decimal(table) and pt.is_decimal(file) and table.scale == file.scale:
        bits = max(table.bit_width, file.bit_width)
        return decimal_of_width(bits, max(table.precision, file.precision), table.scale)
    if is_list_like(table) and widens_to(table, storage_type(file)):
        return table_type(file)
    for wider in _WIDER:
        if widens_to(table, wider) and can_widen(file, wider):
            return wider
    if not may_convert:
        return None
    if pt.is_timestamp(file) and converts_to(table, file):
        return pa.timestamp(file.unit, table.tz)
    for wider in (pa.float32(), pa.float64()):
        if converts_to(table, wider) and can_widen(file, wider):
            return wider
    return None


def can_widen(source: pa.DataType, target: pa.DataType) -> bool:
    """Returns whether `target` holds every value of `source`."""
    if pt.is_null(source) or storage_type(source) == storage_type(target):
        return True
    if pt.is_dictionary(source):
        return can_widen(source.value_type, target)
    if pt.is_dictionary(target):
        return can_widen(source, target.value_type)
    if widens_to(source, target):
        return True
    if pt.is_integer(source) and pt.is_floating(target):
        return converts_to(source, target)
    for kind in (_is_text, _is_bytes):
        if kind(source) and kind(target):
            return True
    if pt.is_timestamp(source) and pt.is_timestamp(target):
        same_zone = (source.tz is None) == (target.tz is None)
        return same_zone and UNITS.index(source.unit) <= UNITS.index(target.unit)
    return _can_widen_nested(source, target)


def _can_widen_nested(source: pa.DataType, target: pa.DataType) -> bool:
    if pt.is_map(source) and pt.is_map(target):
        keys = can_widen(source.key_type, target.key_type)
        return keys and can_widen(source.item_type, target.item_type)
    is_fixed = pt.is_fixed_size_list(source) and pt.is_fixed_size_list(target)
    if is_fixed and source.list_size != target.list_size:
        return False
    if is_fixed or (is_list_like(source) and is_list_like(target)):
        return can_widen(source.value_type, target.value_type)
    if pt.is_struct(source) and pt.is_struct(target):
        known = {field.name: field.type for field in target.fields}
        if len(known) < target.num_fields or len({f.name for f in source}) < source.num_fields:
            return False  # Fields of equal name can be matched only if the types are equal.
        return all(f.name in known and can_widen(f.type, known[f.name]) for f in source.fields)
    return False


def conform_batch(
    batch: pa.RecordBatch, schema: pa.Schema, path: str, shown: Mapping[str, str] = _AS_STORED
) -> pa.RecordBatch:
    """Converts `batch` to the table's schema: columns cast and ordered, missing ones null.

    Strings and binaries that are dictionary codes stay codes if the table has their plain type; then the
    batch's schema differs from `schema`. shown: as for `merged_schema`. Raises `InputError` for a value that
    cannot be cast, or a null that the table does not allow.
    """
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(index)
        name = shown.get(field.name, field.name)
        try:
            columns.append(
                column if _has_codes_of(column.type, field.type) else as_type(column, field.type)
            )
        except (pa.ArrowException, SchemaError) as error:
            cause = first_line(error)
            raise InputError(
                f"{path}: column {name!r} of type {column.type} cannot become {field.type}: {cause}"
            ) from error
        if (place := null_place(columns[-1], field.with_name(name))) is not None:
            raise InputError(
                f"{path}: {place!r} has a null, which the table does not allow: correct the value or leave "
                "the row out"
            )
    pairs = zip(schema, columns, strict=True)
    schema = pa.schema([field.with_type(column.type) for field, column in pairs])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _has_codes_of(source: pa.DataType, target: pa.DataType) -> bool:
    return bool(is_binary_like(target) and pt.is_dictionary(source) and source.value_type == target)


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pt.is_string(dtype) or pt.is_large_string(dtype) or pt.is_string_view(dtype))


def _is_bytes(dtype: pa.DataType) -> bool:
    fixed = pt.is_fixed_size_binary(dtype)
    return bool(
        fixed or pt.is_binary(dtype) or pt.is_large_binary(dtype) or pt.is_binary_view(dtype)
    )


def require_columns(schema: pa.Schema, names: Sequence[str], path: str) -> None:
    """Raises `InputError` unless the file has all these columns."""
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise InputError(
            f"{path}: sort column {missing[0]!r} is not in the file; its columns are: "
            + names_text(schema.names)
        )
