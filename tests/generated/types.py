"""Random Arrow types, and types of the same meaning that another writer of a column might have."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

INDICES: Final = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
)  # fmt: skip
NAMES: Final = (
    "", "a", "b", "item", "element", "key", "value", "entries", "a.b", 'with "quotes"', "it's", "ünïcode",
    "日本", "x" * 70, "with space", "-", "1", "\U0001f600", "a/b", "a,b:desc", "%", "#", "null",
    ' "a",', "a:b",
)  # fmt: skip
"""Of columns and fields."""
_ZONES: Final = (None, None, "UTC", "Europe/Vienna", "+05:30")
_DECIMALS: Final = (
    (pa.decimal32, 9), (pa.decimal64, 18), (pa.decimal128, 38), (pa.decimal256, 76),
)  # fmt: skip
_PLAIN: Final = (
    *INDICES, *INDICES, pa.bool_(), pa.float16(), pa.float16(), pa.float32(), pa.float64(), pa.string(),
    pa.string(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
    pa.binary_view(), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"),
    pa.time64("ns"), pa.month_day_nano_interval(), pa.null(),
)  # fmt: skip
_OF_MATRICES: Final = (
    pa.int64(), pa.float32(), pa.float64(), pa.float16(), pa.int8(), pa.binary(3), pa.decimal128(9, 2),
    pa.timestamp("us"), pa.bool_(), pa.string(),
)  # fmt: skip
"""Mostly types of one width: of lists of these Arrow has code of its own."""


def leaf_type(rng: random.Random) -> pa.DataType:
    """Returns a type that has no other within."""
    match rng.randrange(10):
        case 0:
            return decimal_type(rng)
        case 1:
            return pa.timestamp(rng.choice(("s", "ms", "us", "ns")), rng.choice(_ZONES))
        case 2:
            return rng.choice([pa.duration(rng.choice(("s", "ms", "us", "ns"))), pa.null()])
        case 3:
            return pa.binary(rng.choice((0, 1, 2, 3, 5, 16)))
    return rng.choice(_PLAIN)


def decimal_type(rng: random.Random) -> pa.DataType:
    """Returns a decimal of any width, now and then of a negative scale, or one above its precision."""
    make, most = rng.choice(_DECIMALS)
    precision, share = rng.randint(1, most), rng.random()
    if share < 0.05:
        return make(precision, rng.randint(-3, -1))
    above = rng.choice((precision, most, 2 * most))
    return make(precision, rng.randint(0, precision) if share < 0.8 else above + 1)


def sort_type(rng: random.Random) -> pa.DataType:
    """Returns a type by which rows can be sorted; mostly one of texts, whose keys can be long."""
    if rng.random() < 0.5:
        dtype = rng.choice((
            pa.string(), pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view(),
            pa.binary_view(),
        ))  # fmt: skip
    else:
        dtype = leaf_type(rng)
        while pt.is_interval(dtype):
            dtype = leaf_type(rng)
    return pa.dictionary(rng.choice(INDICES), dtype) if rng.random() < 0.2 else dtype


def family_type(rng: random.Random) -> pa.DataType:
    """Returns a type that has variants, mostly alone, else within another."""
    dtype = rng.choice((
        pa.timestamp(rng.choice(("s", "ms", "us", "ns")), rng.choice(_ZONES)),
        pa.timestamp(rng.choice(("s", "ms", "us")), rng.choice(_ZONES)),
        decimal_type(rng), decimal_type(rng), rng.choice(INDICES), rng.choice(INDICES), pa.float16(),
        pa.string(), pa.binary(),
    ))  # fmt: skip
    inner = pa.field("item", dtype, rng.random() < 0.5)
    match rng.randrange(8):
        case 0 | 1:
            return pa.list_(inner)
        case 2:
            return pa.struct([inner, field(rng, 1).with_name("b")])
        case 3:
            return pa.list_(inner, rng.choice((1, 2)))
    return dtype


def any_type(rng: random.Random, depth: int) -> pa.DataType:
    """Returns any type, nested up to so deep."""
    if depth <= 0 or rng.random() < 0.45:
        return leaf_type(rng)
    match rng.randrange(12):
        case 0:
            return pa.list_(field(rng, depth))
        case 1:
            return pa.large_list(field(rng, depth))
        case 2:
            return pa.list_view(field(rng, depth))
        case 3:
            return pa.large_list_view(field(rng, depth))
        case 4:
            return fixed_lists_type(rng, depth)
        case 5 | 6:
            return struct_type(rng, depth)
        case 7:
            dtype = leaf_type(rng)
            while pt.is_null(dtype):
                dtype = leaf_type(rng)
            key = pa.field(rng.choice(("key", "k")), dtype, nullable=False)
            return pa.map_(key, field(rng, depth), keys_sorted=rng.random() < 0.2)
        case 8:
            return rng.choice((pa.uuid(), pa.json_(pa.string()), pa.bool8()))
    inner = any_type(rng, depth - 1) if rng.random() < 0.4 else leaf_type(rng)
    while isinstance(inner, pa.BaseExtensionType) or pt.is_dictionary(inner):
        inner = leaf_type(rng)
    return pa.dictionary(rng.choice(INDICES), inner, ordered=rng.random() < 0.1)


def fixed_lists_type(rng: random.Random, depth: int) -> pa.DataType:
    """Returns a list of fixed size: of any type, or a matrix."""
    if depth > 1 and rng.random() < 0.5:
        return matrix_type(rng)
    return pa.list_(field(rng, depth), rng.choice((0, 1, 2, 3)))


def matrix_type(rng: random.Random) -> pa.DataType:
    """Returns a list of fixed size of such lists of flat values, now and then deeper, or within a struct or a
    list."""
    dtype = rng.choice(_OF_MATRICES)
    for _ in range(rng.choice((1, 1, 2))):
        item = pa.field(rng.choice(("item", "item", "a.b")), dtype, rng.random() > 0.1)
        dtype = pa.list_(item, rng.choice((0, 1, 1, 2, 3)))
    dtype = pa.list_(dtype, rng.choice((1, 2, 2, 3)))
    match rng.randrange(8):
        case 0:
            return pa.struct([pa.field("a", dtype), pa.field("b", pa.int8())])
        case 1:
            return rng.choice((pa.list_, pa.large_list, pa.list_view))(dtype)
        case 2:
            return pa.map_(pa.string(), dtype)
    return dtype


def struct_type(rng: random.Random, depth: int) -> pa.DataType:
    """Returns a struct of up to three fields of different names."""
    names = rng.sample(NAMES, rng.choice((0, 1, 1, 2, 2, 3)))
    return pa.struct([field(rng, depth).with_name(name) for name in names])


def field(rng: random.Random, depth: int) -> pa.Field:
    """Returns a field of a type within another, with a name, now and then not null or with metadata."""
    name = rng.choice(("item", "item", "element", "", "a.b"))
    metadata = {"unit": "ms"} if rng.random() < 0.05 else None
    dtype = any_type(rng, depth - 1)
    return pa.field(name, dtype, pt.is_null(dtype) or rng.random() > 0.1, metadata)


def variant(rng: random.Random, dtype: pa.DataType) -> pa.DataType:
    """Returns a type that another writer of the column might have: the same, a wider one, another view."""
    if pt.is_dictionary(dtype):
        inner = dtype.value_type
        return rng.choice((dtype, inner, pa.dictionary(rng.choice(INDICES), inner, dtype.ordered)))
    for kinds in _FAMILIES:
        if dtype in kinds:
            return rng.choice(kinds)
    if pt.is_decimal(dtype):
        return _decimal_variant(rng, dtype)
    if pt.is_timestamp(dtype):
        return pa.timestamp(rng.choice(("s", "ms", "us", dtype.unit)), dtype.tz)
    if pt.is_struct(dtype):
        fields = [_field_variant(rng, inner) for inner in dtype]
        if rng.random() < 0.2:
            rng.shuffle(fields)
        return pa.struct(fields)
    if pt.is_fixed_size_list(dtype):
        return pa.list_(_field_variant(rng, dtype.value_field), dtype.list_size)
    for is_kind, make in _LISTS:
        if is_kind(dtype):
            return make(_field_variant(rng, dtype.value_field))
    return dtype


def _decimal_variant(rng: random.Random, dtype: pa.DataType) -> pa.DataType:
    wider = [kind for kind in _DECIMALS if kind[1] >= dtype.precision]
    make, most = rng.choice(wider)
    return make(rng.randint(dtype.precision, most), dtype.scale)


def _field_variant(rng: random.Random, inner: pa.Field) -> pa.Field:
    if not pt.is_null(inner.type):
        inner = inner.with_nullable(inner.nullable ^ (rng.random() < 0.1))
    return inner.with_type(variant(rng, inner.type)) if rng.random() < 0.2 else inner


_FAMILIES: Final = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64()),
    (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.int64()),
    (pa.float16(), pa.float32(), pa.float64()),
    (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())),
    (pa.binary(), pa.large_binary(), pa.binary_view()),
)
_LISTS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Field], pa.DataType]], ...]] = (
    (pt.is_list, pa.list_),
    (pt.is_large_list, pa.large_list),
    (pt.is_list_view, pa.list_view),
    (pt.is_large_list_view, pa.large_list_view),
)  # fmt: skip


def contains(dtype: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    """Returns whether a type, or one within it, is of a kind."""
    return is_kind(dtype) or any(contains(inner, is_kind) for inner in inner_types(dtype))


def inner_types(dtype: pa.DataType) -> list[pa.DataType]:
    """Returns the types that are directly within."""
    if isinstance(dtype, pa.BaseExtensionType):
        return [dtype.storage_type]
    if pt.is_dictionary(dtype):
        return [dtype.value_type]
    if pt.is_run_end_encoded(dtype):
        return [dtype.value_type]
    return [dtype.field(index).type for index in range(dtype.num_fields)]
