"""Maps Arrow types to the nearest types of Delta and Iceberg that hold all their values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import InputError
from compactor.files.kept_types import without_dictionaries
from lsm_fragment.arrays.types import storage_type, types_within

_MAX_DIGITS: Final = 38
_WIDER: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
_SAME: Final = frozenset(
    {
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(),
        pa.string(), pa.binary(), pa.date32(),
    }
)  # fmt: skip

Lacking = Callable[[pa.DataType], pa.DataType | None]
"""Returns the type of one lake for a flat type that lakes treat differently; None for the common type."""


def lake_schema(schema: pa.Schema, lake: str, special: Lacking) -> pa.Schema:
    """Returns nullable columns with types of the lake. Raises `InputError` for a column that has none."""
    fields = []
    for field in schema:
        try:
            dtype = _mapped(without_dictionaries(storage_type(field.type)), special)
        except TypeError as error:
            raise InputError(
                f"column {field.name!r} is {field.type}, and {lake} has no type for {error}: drop the "
                "column, or publish as parquet"
            ) from None
        fields.append(pa.field(field.name, dtype))
    return pa.schema(fields)


def check_cases(schema: pa.Schema, lake: str) -> None:
    """Raises `InputError` for columns, or fields of a struct, whose names differ only by case."""
    if (pair := _same_but_case(schema.names)) is not None:
        raise InputError(
            f"columns {pair[0]!r} and {pair[1]!r} differ only by case, which {lake} does not tell apart: "
            "rename one, or publish as parquet"
        )
    for field in schema:
        for struct in filter(pt.is_struct, types_within(field.type)):
            if (pair := _same_but_case(inner.name for inner in struct.fields)) is not None:
                raise InputError(
                    f"column {field.name!r}: its fields {pair[0]!r} and {pair[1]!r} differ only by case, "
                    f"which {lake} does not tell apart: drop the column, or publish as parquet"
                )


def check_paths(schema: pa.Schema, lake: str) -> None:
    """Raises `InputError` for a column called as a part of another is, such as `a.b` beside a struct `a`."""
    columns: dict[str, str] = {}
    for field in schema:
        for path in _paths_of(field.name, field.type):
            if (other := columns.get(path)) is not None:
                raise InputError(
                    f"column {field.name!r}: {lake} calls it or a part of it {path!r}, and a part of "
                    f"{other!r}, too: rename or drop one of them, or publish as parquet"
                    if other != field.name
                    else f"column {other!r}: {lake} calls two parts of it {path!r}: drop it, or publish as "
                    "parquet"
                )
            columns[path] = field.name


def _paths_of(name: str, dtype: pa.DataType) -> Iterator[str]:
    """Yields the names of a column and its parts, as Iceberg gives them."""
    yield name
    parts: Iterable[tuple[str, pa.DataType]] = ()
    if pt.is_struct(dtype):
        parts = ((inner.name, inner.type) for inner in dtype.fields)
    elif pt.is_map(dtype):
        parts = (("key", dtype.key_type), ("value", dtype.item_type))
    elif pt.is_nested(dtype):
        parts = (("element", dtype.value_type),)
    for part, inner_type in parts:
        yield from _paths_of(f"{name}.{part}", inner_type)


def _same_but_case(names: Iterable[str]) -> tuple[str, str] | None:
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) is not name:
            return other, name
    return None


def _mapped(dtype: pa.DataType, special: Lacking) -> pa.DataType:
    """Raises TypeError with the type that there is none for."""
    if pt.is_struct(dtype):
        names = [field.name for field in dtype.fields]
        if not names or len(set(names)) < len(names):
            raise TypeError(str(dtype))
        return pa.struct([pa.field(f.name, _mapped(f.type, special)) for f in dtype.fields])
    if pt.is_map(dtype):
        return pa.map_(_mapped(dtype.key_type, special), _mapped(dtype.item_type, special))
    if pt.is_nested(dtype):
        return pa.list_(pa.field("element", _mapped(dtype.value_type, special)))
    dtype = _WIDER.get(dtype, dtype)
    if (of_lake := special(dtype)) is not None:
        return of_lake
    if pt.is_timestamp(dtype):
        return pa.timestamp("us", None if dtype.tz is None else "UTC")
    if pt.is_fixed_size_binary(dtype) and not pt.is_decimal(dtype):
        return pa.binary()
    if pt.is_decimal(dtype) and dtype.precision <= _MAX_DIGITS and dtype.scale >= 0:
        return pa.decimal128(dtype.precision, dtype.scale)
    if dtype in _SAME:
        return dtype
    raise TypeError(str(dtype))
