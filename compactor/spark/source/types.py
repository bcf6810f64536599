"""Converts Arrow types and rows to Spark's and back.

Spark has fewer types. Each column gets a Spark type that holds all its values; types without one are refused.
Times finer than microseconds raise an error unless truncation is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
from pyarrow import types as pt
from pyspark.sql import types as st

from compactor.errors import DataError, InputError, UsageError
from lsm_fragment import compute as pc
from lsm_fragment.arrays.cast import as_type, cast_exactly, cast_storage
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.arrays.types import contains, is_bytes, is_list_like, is_string, storage_type
from lsm_fragment.names import names_text
from lsm_fragment.value_errors import first_line

_MAX_DIGITS: Final = 38
_SIMPLE: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[], st.DataType]], ...]] = (
    (pt.is_null, st.NullType),
    (pt.is_boolean, st.BooleanType),
    (pt.is_int8, st.ByteType),
    (lambda t: pt.is_int16(t) or pt.is_uint8(t), st.ShortType),
    (lambda t: pt.is_int32(t) or pt.is_uint16(t), st.IntegerType),
    (lambda t: pt.is_int64(t) or pt.is_uint32(t), st.LongType),
    (pt.is_uint64, lambda: st.DecimalType(20, 0)),
    (lambda t: pt.is_float16(t) or pt.is_float32(t), st.FloatType),
    (pt.is_float64, st.DoubleType),
    (is_string, st.StringType),
    (is_bytes, st.BinaryType),
    (pt.is_date, st.DateType),
    (lambda t: pt.is_time(t) and t.unit == "ns", lambda: st.TimeType(9)),
    (pt.is_time, lambda: st.TimeType(6)),
    (pt.is_duration, st.DayTimeIntervalType),
)

_WRITTEN: Final = (
    *(st.NullType, st.BooleanType, st.StringType, st.CharType, st.VarcharType, st.BinaryType),
    *(st.ByteType, st.ShortType, st.IntegerType, st.LongType),
    *(st.FloatType, st.DoubleType, st.DecimalType),
    *(st.DateType, st.TimestampType, st.TimestampNTZType, st.TimeType, st.DayTimeIntervalType),
)
"""Simple types that tables can store."""


def spark_schema(schema: pa.Schema, table: str) -> st.StructType:
    """Returns the Spark schema of a table's columns.

    Raises `UsageError` naming the first column without a Spark type.
    """
    fields = []
    for field in schema:
        dtype = _spark_type(storage_type(field.type))
        if dtype is None:
            others = names_text(f.name for f in schema if _spark_type(storage_type(f.type)))
            raise UsageError(
                f"{table}: column {field.name!r} is {field.type}, which Spark has no type for: read the "
                f"others by option columns={others}"
            )
        fields.append(st.StructField(field.name, dtype, field.nullable))
    return st.StructType(fields)


def _spark_type(dtype: pa.DataType) -> st.DataType | None:
    """Returns the Spark type of a storage type; None without one."""
    for is_so, make in _SIMPLE:
        if is_so(dtype):
            return make()
    if pt.is_timestamp(dtype):
        return st.TimestampNTZType() if dtype.tz is None else st.TimestampType()
    if pt.is_decimal(dtype):
        if dtype.precision > _MAX_DIGITS or not 0 <= dtype.scale <= dtype.precision:
            return None
        return st.DecimalType(dtype.precision, dtype.scale)
    if pt.is_struct(dtype):
        parts = [(field, _spark_type(field.type)) for field in dtype.fields]
        fields = [st.StructField(f.name, part, f.nullable) for f, part in parts if part]
        return st.StructType(fields) if len(fields) == len(parts) else None
    if pt.is_map(dtype):
        key, value = _spark_type(dtype.key_type), _spark_type(dtype.item_type)
        return st.MapType(key, value, dtype.item_field.nullable) if key and value else None
    if is_list_like(dtype) or pt.is_fixed_size_list(dtype):
        element = _spark_type(dtype.value_type)
        return st.ArrayType(element, dtype.value_field.nullable) if element else None
    return None


def check_names(asked: Sequence[str], schema: pa.Schema, table: str) -> None:
    """Raises `UsageError` for an unknown or repeated column name."""
    for place, name in enumerate(asked):
        if name in asked[:place]:
            raise UsageError(f"{table}: column {name!r} is asked for twice: name it once")
        if name not in schema.names:
            raise UsageError(
                f"{table}: no column {name!r}; columns are: {names_text(schema.names)}"
            )


def check_asked(asked: st.StructType, found: st.StructType, table: str) -> None:
    """Raises `UsageError` unless the user's schema matches the table's types."""
    types = {field.name: field.dataType for field in found}
    for field in asked:
        if _as_nullable(field.dataType) != _as_nullable(types[field.name]):
            raise UsageError(
                f"{table}: column {field.name!r} is {types[field.name].simpleString()} here, not "
                f"{field.dataType.simpleString()}: leave the schema out, and cast what was read"
            )


def check_streamed(
    streamed: st.StructType, names: Sequence[str], shown: pa.Schema, table: str, *, is_all: bool
) -> None:
    """Raises `UsageError` unless the columns that a stream reads are the table's.

    names: those columns, without what was added to them. shown: the table's schema. table: with the version.
    is_all: whether the stream reads all columns of the table.
    """
    again = "load the stream again and start its query, which reads on from its checkpoint"
    for name in names:
        if name not in shown.names:
            raise UsageError(f"{table} has no column {name!r}, which the stream reads: {again}")
    for name in shown.names if is_all else ():
        if name not in names:
            raise UsageError(f"{table} has a column {name!r}, which the stream lacks: {again}")
    found = spark_schema(pa.schema([shown.field(name) for name in names]), table)
    for field in found:
        asked = streamed[field.name].dataType
        if _as_nullable(field.dataType) != _as_nullable(asked):
            raise UsageError(
                f"{table}: column {field.name!r} is {field.dataType.simpleString()}, and "
                f"{asked.simpleString()} in the stream: {again}"
            )


def check_written(schema: st.StructType, rows: str) -> None:
    """Raises `InputError` naming the first column of a type that tables do not support."""
    for field in schema:
        unknown = _unknown_in(field.dataType)
        if unknown is not None:
            raise InputError(
                f"{rows}: column {field.name!r} has values of {unknown.simpleString()}, which tables have no "
                "type for: cast it, as to a string, or drop it"
            )


def _unknown_in(dtype: st.DataType) -> st.DataType | None:
    match dtype:
        case st.StructType():
            inner = [field.dataType for field in dtype]
        case st.ArrayType():
            inner = [dtype.elementType]
        case st.MapType():
            inner = [dtype.keyType, dtype.valueType]
        case st.UserDefinedType():
            inner = [dtype.sqlType()]
        case _:
            return None if isinstance(dtype, _WRITTEN) else dtype
    return next((found for found in map(_unknown_in, inner) if found is not None), None)


def in_types_of(table: pa.Schema | None, schema: st.StructType, sent: pa.Schema) -> pa.Schema:
    """Returns the schema for rows from Spark, with the table's types where they map to the same Spark type.

    So rows that were read can be written back without changing a type.
    table: its shown schema. sent: the Arrow schema of the rows.
    """
    fields = []
    for asked, field in zip(schema, sent, strict=True):
        place = -1 if table is None else table.get_field_index(asked.name)
        known = None if table is None or place < 0 else table.field(place).type
        ours = None if known is None else _spark_type(storage_type(known))
        is_same = ours is not None and _as_nullable(ours) == _as_nullable(asked.dataType)
        fields.append(field.with_type(known) if is_same else field)
    return pa.schema(fields)


def from_spark(column: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Converts an array from Spark to a type from `in_types_of`.

    Raises `pa.ArrowInvalid` for a value that does not fit.
    """
    return as_type(column, dtype, _exactly)


def _exactly(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Casts as `cast_exactly`, and raises `pa.ArrowInvalid` for numbers that float16 does not hold, which
    Arrow rounds silently."""
    result = cast_exactly(array, dtype)
    if pt.is_float16(dtype):
        is_other = pc.not_equal(result.cast(array.type), array)
        lost = array.filter(pc.and_not(is_other, pc.is_nan(array)))
        if len(lost) > 0:
            raise pa.ArrowInvalid(
                f"{lost[0].as_py()!r} would be rounded: round it first, or cast it to double, which "
                "widens the column"
            )
    return result


def _as_nullable(dtype: st.DataType) -> st.DataType:
    match dtype:
        case st.StructType():
            fields = [st.StructField(f.name, _as_nullable(f.dataType), True) for f in dtype]
            return st.StructType(fields)
        case st.ArrayType():
            return st.ArrayType(_as_nullable(dtype.elementType), True)
        case st.MapType():
            return st.MapType(_as_nullable(dtype.keyType), _as_nullable(dtype.valueType), True)
        case _:
            return dtype


def as_spark(
    batch: pa.RecordBatch, schema: pa.Schema, table: str, *, cuts_nanoseconds: bool
) -> pa.RecordBatch:
    """Converts a table's rows to Spark's types. schema: those types, by the same column names.

    Raises `DataError` for a time that Spark cannot represent.
    """
    arrays = []
    cast_leaf = _cut if cuts_nanoseconds else cast_exactly
    for column, field in zip(batch.columns, schema, strict=True):
        array = plain(to_storage(column))
        try:
            arrays.append(cast_storage(array, field.type, cast_leaf))
        except pa.ArrowInvalid as error:
            may_be_cut = contains(column.type, _is_in_nanoseconds)
            cut = "read it with option nanoseconds=cut, or " if may_be_cut else ""
            raise DataError(
                f"{table}: column {field.name!r}: a value of {column.type} is none of Spark's, which has "
                f"microseconds ({first_line(error)}): {cut}leave it out by option columns"
            ) from error
    if not arrays:
        return batch
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cut(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Casts exactly, but truncates nanoseconds to microseconds."""
    if _is_in_nanoseconds(array.type):
        return array.cast(dtype, safe=False)
    return cast_exactly(array, dtype)


def _is_in_nanoseconds(dtype: pa.DataType) -> bool:
    return bool((pt.is_timestamp(dtype) or pt.is_duration(dtype)) and dtype.unit == "ns")
