"""Random Arrow arrays as others may make them: of any type within any other, slices at any depth, garbage
under nulls, dictionaries with nulls and repeated values, list views in any order. All of them are valid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

Random = np.random.Generator
_WORDS: Final = ("", "a", "ß", "longer than twelve bytes", "日本")
_FLAT: Final = (
    pa.null(), pa.bool_(), pa.int8(), pa.int64(), pa.uint16(), pa.uint64(), pa.float16(), pa.float32(),
    pa.float64(), pa.decimal32(7, 2), pa.decimal64(12, 3), pa.decimal128(30, 4), pa.decimal256(50, 4),
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view(), pa.binary(3),
    pa.binary(0), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"), pa.timestamp("s"),
    pa.timestamp("us", "Europe/Berlin"), pa.duration("ms"), pa.month_day_nano_interval(), pa.uuid(),
)  # fmt: skip
_HALVES: Final = (0x0000, 0x8000, 0x3C00, 0x7C00, 0x7E00, 0x7E01, 0xFE00)


def any_type(random: Random, depth: int = 2) -> pa.DataType:
    kind = random.integers(12) if depth else 0
    if kind < 3:
        return _FLAT[random.integers(len(_FLAT))]
    inner = any_type(random, depth - 1)
    if kind < 6:
        return pa.dictionary(pa.int8(), inner)
    if kind == 6:
        names = ("x", "y")[: random.integers(3)]
        return pa.struct([(name, any_type(random, depth - 1)) for name in names])
    if kind == 7:
        key = pa.field("k", pa.dictionary(pa.int8(), pa.string()), nullable=False)
        return pa.map_(key if random.integers(2) else pa.string(), inner)
    if kind == 8:
        return pa.list_(inner, int(random.integers(3)))
    factories: tuple[Callable[..., Any], ...] = (pa.list_, pa.large_list, pa.list_view)
    return factories[random.integers(3)](inner)


def any_array(
    random: Random, dtype: pa.DataType, length: int, *, is_nullable: bool = True
) -> pa.Array:
    """Makes a random array, as a slice of a larger one."""
    before, after = (int(n) for n in random.integers(0, 3, 2))
    whole = _made(random, dtype, before + length + after, is_nullable)
    return whole.slice(before, length)


def _made(random: Random, dtype: pa.DataType, length: int, is_nullable: bool) -> pa.Array:
    if isinstance(dtype, pa.BaseExtensionType):
        storage = _made(random, dtype.storage_type, length, is_nullable)
        return pa.ExtensionArray.from_storage(dtype, storage)
    if pt.is_null(dtype):
        return pa.nulls(length)
    if pt.is_dictionary(dtype):
        return _dictionary(random, dtype, length, is_nullable)
    validity = None
    if is_nullable and random.integers(3):
        validity = pa.py_buffer(random.integers(0, 256, length // 8 + 1, np.uint8).tobytes())
    if pt.is_nested(dtype):
        return _nested(random, dtype, length, validity)
    if any(f(dtype) for f in (pt.is_string_view, pt.is_binary_view)):
        texts = _made(random, pa.string(), length, is_nullable).to_pylist()
        values = texts if pt.is_string_view(dtype) else [t and t.encode() for t in texts]
        return pa.array(values, dtype)
    if any(f(dtype) for f in (pt.is_string, pt.is_large_string, pt.is_binary)):
        values = [_WORDS[at].encode() for at in random.integers(0, len(_WORDS), length)]
        width = np.int64 if pt.is_large_string(dtype) else np.int32
        offsets = np.cumsum([0, *map(len, values)]).astype(width)
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
        return pa.Array.from_buffers(dtype, length, buffers)
    return pa.Array.from_buffers(
        dtype, length, [validity, pa.py_buffer(_fixed(random, dtype, length))]
    )


def _fixed(random: Random, dtype: pa.DataType, length: int) -> bytes:
    few = random.integers(0, 4, length)
    if pt.is_boolean(dtype):
        return random.bytes(length // 8 + 1)
    if pt.is_float16(dtype):
        return np.array(_HALVES, np.uint16)[random.integers(0, len(_HALVES), length)].tobytes()
    if pt.is_floating(dtype):
        bits = f"u{dtype.bit_width // 8}"
        some = np.array([0.0, -0.0, 1.5, np.nan, -np.inf], f"f{dtype.bit_width // 8}").view(bits)
        return bytes(some[few] + (few == 3) * random.integers(0, 2, length).astype(bits))
    width = 16 if pt.is_interval(dtype) else dtype.bit_width // 8
    table = np.zeros((length, width), np.uint8)
    if width:
        table[:, 0] = few
    if pt.is_date64(dtype):
        return (few * 86_400_000).tobytes()
    return table.tobytes()


def _dictionary(random: Random, dtype: pa.DataType, length: int, is_nullable: bool) -> pa.Array:
    size = int(random.integers(0 if is_nullable else 1, 5))
    values = any_array(random, dtype.value_type, size, is_nullable=is_nullable)
    codes = random.integers(0, size, length) if size else np.zeros(length, np.int64)
    mask = None
    if is_nullable:
        mask = random.integers(0, 2, length) == 0 if size else np.ones(length, np.bool_)
        codes[mask] = 99
    bitmap = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(codes.astype(np.int8))]
    indices = pa.Array.from_buffers(pa.int8(), length, buffers)
    return pa.DictionaryArray.from_arrays(indices, values, ordered=dtype.ordered, safe=False)


def _nested(random: Random, dtype: pa.DataType, length: int, validity: Any) -> pa.Array:
    if pt.is_struct(dtype):
        children = [any_array(random, field.type, length) for field in dtype.fields]
        return pa.Array.from_buffers(dtype, length, [validity], children=children)
    if pt.is_fixed_size_list(dtype):
        items = any_array(random, dtype.value_type, length * dtype.list_size)
        return pa.Array.from_buffers(dtype, length, [validity], children=[items])
    if pt.is_list_view(dtype):
        items = any_array(random, dtype.value_type, int(random.integers(0, 8)))
        starts = random.integers(0, len(items) + 1, length).astype(np.int32)
        sizes = np.minimum(random.integers(0, 4, length), len(items) - starts).astype(np.int32)
        buffers = [validity, pa.py_buffer(starts), pa.py_buffer(sizes)]
        return pa.Array.from_buffers(dtype, length, buffers, children=[items])
    counts = random.integers(0, 4, length) * random.integers(0, 2)
    first, more = (int(n) for n in random.integers(0, 3, 2))
    offsets = first + np.concatenate([[0], np.cumsum(counts)])
    total = int(offsets[-1]) + more
    if pt.is_map(dtype):
        keys = any_array(random, dtype.key_type, total + 2, is_nullable=False)
        pairs = [keys, any_array(random, dtype.item_type, total + 2)]
        entry = pa.struct([dtype.key_field, dtype.item_field])
        items = pa.Array.from_buffers(entry, total + 2, [None], children=pairs)
        items = items.slice(int(random.integers(3)), total)
    else:
        items = any_array(random, dtype.value_type, total)
    width = np.int64 if pt.is_large_list(dtype) else np.int32
    buffers = [validity, pa.py_buffer(offsets.astype(width))]
    return pa.Array.from_buffers(dtype, length, buffers, children=[items])
