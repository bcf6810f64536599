"""Arrow's kernels that move flat values, held against an oracle of our own, so that a release of pyarrow that
breaks one is noticed (decision 66). `tests/test_architecture.py` says where they may be used."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.generated.arrays import Builder
from tests.generated.bits import Value, values_of
from tests.generated.values import Values

FLAT: Final = (
    pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(),
    pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.decimal32(7, 2),
    pa.decimal64(18, 3), pa.decimal128(38, 4), pa.decimal256(76, 5), pa.date32(), pa.date64(),
    pa.time32("s"), pa.time64("ns"), pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.duration("ms"),
    pa.month_day_nano_interval(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(),
    pa.binary(0), pa.binary(1), pa.binary(3), pa.binary(16),
)  # fmt: skip
"""Each way in which values that have nothing within are stored."""
OFFSETS: Final = (0, 1, 7, 8, 9, 63, 64)
LENGTHS: Final = (0, 1, 2, 7, 8, 9, 64, 65)
"""Around the bytes and words of bitmaps."""
NULLS: Final = ("none", "none, with a bitmap", "some", "all")


def arrays(dtype: pa.DataType) -> Iterator[tuple[pa.Array, list[Value]]]:
    """Yields arrays of every offset, length and pattern of nulls, with their values."""
    rng = random.Random(str(dtype))
    make = Values(rng, null_share=0, extremes=0.3, distinct=100)
    for nulls in NULLS:
        share = {"some": 0.4, "all": 1.0}.get(nulls, 0.0)
        builder = Builder(rng, 1.0 if nulls == "none, with a bitmap" else 0.0)
        count = max(OFFSETS) + max(LENGTHS) + 1
        values = [None if rng.random() < share else make.value(dtype) for _ in range(count)]
        whole = builder.array(dtype, values)
        for start, rows in itertools.product(OFFSETS, LENGTHS):
            array, some = whole.slice(start, rows), values[start : start + rows]
            yield array, some


def _has_no_if_else(dtype: pa.DataType) -> bool:
    """Returns whether `if_else` gives values of another type, which is why it is used for texts, bits, and
    numbers of ours only."""
    is_small_decimal = pa.types.is_decimal(dtype) and dtype.bit_width < 128
    return bool(pa.types.is_null(dtype) or is_small_decimal)


def check(array: pa.Array, dtype: pa.DataType, expected: list[Value]) -> None:
    array.validate(full=True)
    assert array.type == dtype
    assert values_of(array) == expected


@pytest.mark.parametrize("dtype", FLAT, ids=str)
def test_take_gives_the_values_at_places(dtype: pa.DataType) -> None:
    rng = random.Random(0)
    for array, values in arrays(dtype):
        rows = len(values)
        orders = [list(range(rows)), list(range(rows))[::-1], [*range(0, rows, 2)]]
        orders += [[rng.randrange(rows) for _ in range(rows + 3)] if rows else []]
        orders += [[rng.choice((None, rng.randrange(rows))) for _ in range(9)] if rows else [None]]
        for places in orders:
            if None in places and not rows:
                continue
            expected = [None if place is None else values[place] for place in places]
            check(array.take(pa.array(places, pa.int64())), dtype, expected)
            check(array.take(pa.array(places, pa.int32())), dtype, expected)


@pytest.mark.parametrize("dtype", FLAT, ids=str)
def test_filter_keeps_the_chosen_values(dtype: pa.DataType) -> None:
    rng = random.Random(0)
    for array, values in arrays(dtype):
        for share in (0.0, 0.1, 0.5, 0.9, 1.0):
            kept = [rng.random() < share for _ in values]
            expected = [value for value, keep in zip(values, kept, strict=True) if keep]
            for offset in (0, 3):
                mask = pa.array([True] * offset + kept, pa.bool_()).slice(offset)
                check(array.filter(mask), dtype, expected)


@pytest.mark.parametrize("dtype", FLAT, ids=str)
def test_drop_null_keeps_the_values_that_are_there(dtype: pa.DataType) -> None:
    for array, values in arrays(dtype):
        check(array.drop_null(), dtype, [value for value in values if value is not None])


@pytest.mark.parametrize("dtype", FLAT, ids=str)
def test_concat_arrays_joins_values_in_memory_of_their_own(dtype: pa.DataType) -> None:
    known = list(arrays(dtype))
    rng = random.Random(0)
    for array, values in known:
        check(pa.concat_arrays([array]), dtype, values)
        other, more = rng.choice(known)
        check(pa.concat_arrays([array, other, array]), dtype, values + more + values)
        parts = [part for part in pa.concat_arrays([array]).buffers() if part is not None]
        given = {part.address for part in array.buffers() if part is not None and part.size}
        assert not given & {part.address for part in parts if part.size}


@pytest.mark.parametrize("dtype", [t for t in FLAT if not _has_no_if_else(t)], ids=str)
def test_if_else_makes_values_null(dtype: pa.DataType) -> None:
    rng = random.Random(0)
    for array, values in arrays(dtype):
        kept = [rng.random() < 0.5 for _ in values]
        expected = [value if keep else None for value, keep in zip(values, kept, strict=True)]
        found = pc.if_else(pa.array(kept, pa.bool_()), array, pa.scalar(None, dtype))
        check(found, dtype, expected)


@pytest.mark.parametrize("dtype", FLAT, ids=str)
def test_structs_are_taken_apart_with_their_nulls_and_without(dtype: pa.DataType) -> None:
    """`field` leaves what is hidden; `flatten` makes it null."""
    rng = random.Random(0)
    for array, values in arrays(dtype):
        valid = [rng.random() < 0.6 for _ in values]
        bitmap = pa.py_buffer(np.packbits(np.array([0] * 3 + valid, np.uint8), bitorder="little"))
        child = pa.concat_arrays([pa.nulls(3, dtype), array])
        dtype_of_struct = pa.struct([("a", dtype)])
        whole = pa.Array.from_buffers(dtype_of_struct, len(child), [bitmap], children=[child])
        struct = whole.slice(3)
        check(struct.field(0), dtype, values)
        expected = [
            value if is_valid else None for value, is_valid in zip(values, valid, strict=True)
        ]
        check(struct.flatten()[0], dtype, expected)
        assert np.asarray(struct.is_null()).tolist() == [not is_valid for is_valid in valid]
