"""Arrow arrays of given values in random layouts: what the specification of Arrow allows and few writers do.

Slices with offsets at every level, elements that no list refers to, garbage under nulls, validity without
nulls, first offsets other than 0, views out of order, dictionaries with nulls, duplicates and unused values.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from tests.generated.bits import DAY, EXACT, NANOSECONDS, Value, bits_of_float
from tests.generated.values import Values

_BYTE_SIZES: Final = {8: "i1", 16: "<i2", 32: "<i4", 64: "<i8"}


class Builder:
    """Builds arrays."""

    def __init__(self, rng: random.Random, mess: float) -> None:
        """mess: probability of each oddity; 0 for what Arrow itself would build."""
        self._rng = rng
        self._mess = mess
        self._junk = Values(rng, null_share=0.2, extremes=0.3, distinct=3)

    def chunks(
        self, dtype: pa.DataType, values: Sequence[Value], cuts: Sequence[int]
    ) -> list[pa.Array]:
        """Returns the values as several arrays, cut at those places; dictionaries are their own each."""
        ends = [0, *cuts, len(values)]
        return [self.array(dtype, values[a:b]) for a, b in pairwise(ends)]

    def array(self, dtype: pa.DataType, values: Sequence[Value]) -> pa.Array:
        """Returns an array of these values, perhaps a slice of a longer one."""
        lead, tail = self._padding(), self._padding()
        everything = [*self._some(dtype, lead), *values, *self._some(dtype, tail)]
        whole = self._whole(dtype, everything)
        return whole.slice(lead, len(values)) if lead or tail else whole

    def _is_odd(self) -> bool:
        return self._rng.random() < self._mess

    def _padding(self) -> int:
        return self._rng.choice((1, 2, 8, 9)) if self._is_odd() else 0

    def _some(self, dtype: pa.DataType, count: int) -> list[Value]:
        return [self._junk.value(dtype) for _ in range(count)]

    def _whole(self, dtype: pa.DataType, values: list[Value]) -> pa.Array:
        if isinstance(dtype, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(dtype, self.array(dtype.storage_type, values))
        if pt.is_null(dtype):
            return pa.nulls(len(values))
        if pt.is_dictionary(dtype):
            return self._dictionary(dtype, values)
        if pt.is_string_view(dtype) or pt.is_binary_view(dtype):
            return pa.array(values, pa.binary_view()).view(dtype)
        validity = self._validity(values)
        # What is under a null is anything of the type, or nothing at all.
        filled = [self._filler(dtype) if value is None else value for value in values]
        if pt.is_struct(dtype):
            return self._struct(dtype, filled, validity)
        if pt.is_fixed_size_list(dtype):
            items = [item for value in filled for item in value]
            child = self.array(dtype.value_type, items)
            return pa.Array.from_buffers(dtype, len(filled), [validity], children=[child])
        if pt.is_list_view(dtype) or pt.is_large_list_view(dtype):
            return self._list_view(dtype, filled, validity)
        if pt.is_nested(dtype):
            return self._list(dtype, filled, validity)
        if _is_text(dtype):
            return self._text(dtype, filled, validity)
        data = self._data(dtype, filled)
        return pa.Array.from_buffers(dtype, len(filled), [validity, pa.py_buffer(data)])

    def _validity(self, values: list[Value]) -> pa.Buffer | None:
        valid = np.array([value is not None for value in values], np.uint8)
        if valid.all() and not self._is_odd():
            return None
        return pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())

    def _filler(self, dtype: pa.DataType) -> Value:
        if self._is_odd():
            return self._junk.value(dtype)
        if pt.is_struct(dtype):
            return tuple((f.name, None if f.nullable else self._filler(f.type)) for f in dtype)
        if pt.is_fixed_size_list(dtype):
            item = dtype.value_field
            return (None if item.nullable else self._filler(item.type),) * dtype.list_size
        if isinstance(dtype, pa.BaseExtensionType) or pt.is_dictionary(dtype):
            return self._junk.value(dtype)
        if pt.is_nested(dtype):
            return ()
        if pt.is_decimal(dtype):
            return 0
        if pt.is_floating(dtype):
            return (0.0).hex()
        if pt.is_interval(dtype):
            return (0, 0, 0)
        if pt.is_fixed_size_binary(dtype):
            return bytes(dtype.byte_width)
        return b"" if _is_text(dtype) or _is_view(dtype) else None if pt.is_null(dtype) else 0

    def _data(self, dtype: pa.DataType, values: list[Value]) -> bytes:
        if pt.is_boolean(dtype):
            return np.packbits(np.array(values, np.uint8), bitorder="little").tobytes()
        if pt.is_fixed_size_binary(dtype):
            return b"".join(values)
        if pt.is_interval(dtype):
            shape = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
            return np.array(values, shape).tobytes()
        width = dtype.bit_width
        if pt.is_decimal(dtype):
            return b"".join(
                int(EXACT.scaleb(value, dtype.scale)).to_bytes(width // 8, "little", signed=True)
                for value in values
            )
        kind = _BYTE_SIZES[width]
        if pt.is_floating(dtype):
            words = [bits_of_float(value, width) for value in values]
            return np.array(words, kind.replace("i", "u")).tobytes()
        if pt.is_unsigned_integer(dtype):
            kind = kind.replace("i", "u")
        if pt.is_temporal(dtype) and not pt.is_duration(dtype):
            step = (
                10**6
                if pt.is_date64(dtype)
                else DAY
                if pt.is_date32(dtype)
                else NANOSECONDS[dtype.unit]
            )
            values = [value // step for value in values]
        return np.array(values, kind).tobytes()

    def _text(
        self, dtype: pa.DataType, values: list[bytes], validity: pa.Buffer | None
    ) -> pa.Array:
        lead = b"unused" if self._is_odd() else b""
        ends = np.cumsum([len(lead), *map(len, values)])
        is_large = pt.is_large_string(dtype) or pt.is_large_binary(dtype)
        offsets = ends.astype("<i8" if is_large else "<i4").tobytes()
        if not values and self._is_odd():
            offsets = b""  # which the specification allows
        data = pa.py_buffer(lead + b"".join(values))
        buffers = [validity, pa.py_buffer(offsets), data]
        return pa.Array.from_buffers(dtype, len(values), buffers)

    def _struct(
        self, dtype: pa.DataType, values: list[Value], validity: pa.Buffer | None
    ) -> pa.Array:
        children = [
            self.array(inner.type, [value[index][1] for value in values])
            for index, inner in enumerate(dtype)
        ]
        return pa.Array.from_buffers(dtype, len(values), [validity], children=children)

    def _list(
        self, dtype: pa.DataType, values: list[Value], validity: pa.Buffer | None
    ) -> pa.Array:
        entry = dtype.field(0).type
        if pt.is_map(dtype):
            names = [inner.name for inner in entry]
            values = [[tuple(zip(names, pair, strict=True)) for pair in value] for value in values]
        lead, tail = self._some(entry, self._padding()), self._some(entry, self._padding())
        items = [*lead, *(item for value in values for item in value), *tail]
        ends = np.cumsum([len(lead), *map(len, values)])
        offsets = ends.astype("<i8" if pt.is_large_list(dtype) else "<i4").tobytes()
        # Arrow itself passes over an offset of a map's entries.
        child = self._whole(entry, items) if pt.is_map(dtype) else self.array(entry, items)
        buffers = [validity, pa.py_buffer(offsets)]
        return pa.Array.from_buffers(dtype, len(values), buffers, children=[child])

    def _list_view(
        self, dtype: pa.DataType, values: list[Value], validity: pa.Buffer | None
    ) -> pa.Array:
        """Lists lie in any order, and equal ones perhaps in one place."""
        entry, order = dtype.field(0).type, list(range(len(values)))
        if self._is_odd():
            self._rng.shuffle(order)
        items, starts = self._some(entry, self._padding()), [0] * len(values)
        places: dict[Value, int] = {}
        for row in order:
            if values[row] in places and self._is_odd():
                starts[row] = places[values[row]]
                continue
            starts[row] = places[values[row]] = len(items)
            items += values[row]
        kind = "<i8" if pt.is_large_list_view(dtype) else "<i4"
        sizes = [len(value) for value in values]
        places_and_sizes = [pa.py_buffer(np.array(n, kind).tobytes()) for n in (starts, sizes)]
        buffers = [validity, *places_and_sizes]
        child = self.array(entry, items)
        return pa.Array.from_buffers(dtype, len(values), buffers, children=[child])

    def _dictionary(self, dtype: pa.DataType, values: list[Value]) -> pa.Array:
        rng, inner = self._rng, dtype.value_type
        entries = list({value: None for value in values if value is not None})
        if self._is_odd():
            entries += self._some(inner, 2)
        if entries and self._is_odd():
            entries.append(rng.choice(entries))
        if self._is_odd():
            entries.append(None)
        if self._is_odd():
            rng.shuffle(entries)
        most = 2 ** (dtype.index_type.bit_width - pt.is_signed_integer(dtype.index_type))
        assert len(entries) < most
        places: dict[Value, list[int]] = {}
        for place, entry in enumerate(entries):
            places.setdefault(entry, []).append(place)
        indices: list[int | None] = []
        for value in values:
            known = places.get(value, [])
            indices.append(
                rng.choice(known) if known and (value is not None or self._is_odd()) else None
            )
        coded = self.array(dtype.index_type, indices)
        return pa.DictionaryArray.from_arrays(
            coded, self.array(inner, entries), ordered=dtype.ordered, safe=False
        )


def _is_text(dtype: pa.DataType) -> bool:
    return bool(
        pt.is_string(dtype)
        or pt.is_large_string(dtype)
        or pt.is_binary(dtype)
        or pt.is_large_binary(dtype)
    )


def _is_view(dtype: pa.DataType) -> bool:
    return bool(pt.is_string_view(dtype) or pt.is_binary_view(dtype))
