"""Nested values are moved by their own places, held against an oracle that reads Arrow's buffers itself."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from lsm_fragment.arrays.batches import concat_rows, keep_rows, one_batch, take_rows
from lsm_fragment.arrays.joining import concat_logical
from lsm_fragment.arrays.moves import concat, keep, take
from lsm_fragment.arrays.nested import build_list
from tests.generated.arrays import Builder
from tests.generated.bits import Value, values_of
from tests.generated.types import any_type, contains, matrix_type
from tests.generated.values import Values
from tests.support.wording import refuses


def cases(seeds: range) -> Iterator[tuple[random.Random, pa.Array, list[Value]]]:
    """Yields arrays of random types in random layouts, with their values; every other one has lists of fixed
    size in such lists."""
    for seed in seeds:
        rng = random.Random(seed)
        dtype = matrix_type(rng) if seed % 2 else any_type(rng, 3)
        share = rng.choice((0, 0, 0.3))
        make = Values(rng, null_share=share, extremes=0.1, distinct=5)
        values = [make.value(dtype) for _ in range(rng.choice((0, 1, 2, 5, 9, 20)))]
        yield rng, Builder(rng, rng.choice((0, 0.3, 0.7))).array(dtype, values), values


def check(found: pa.Array, array: pa.Array, expected: list[Value], what: object) -> None:
    found.validate(full=True)
    assert found.type == array.type, what
    assert values_of(found) == expected, what


@pytest.mark.parametrize("part", range(4))
def test_values_of_any_type_are_taken_kept_and_joined(part: int) -> None:
    for rng, array, values in cases(range(part * 500, part * 500 + 500)):
        what, rows = array.type, len(values)
        places = [rng.randrange(-1, rows) for _ in range(rng.randrange(12))] if rows else []
        expected = [None if place < 0 else values[place] for place in places]
        check(take(array, np.array(places, np.int64)), array, expected, what)
        check(take(array, np.array(places, np.int32)), array, expected, what)
        kept = np.array([rng.random() < 0.5 for _ in values], np.bool_)
        expected = [value for value, is_kept in zip(values, kept, strict=True) if is_kept]
        check(keep(array, kept), array, expected, what)
        first, second = rng.randint(0, rows), rng.randint(0, rows)
        parts = [array.slice(first), array.slice(0, second)]
        expected = values[first:] + values[:second]
        if contains(array.type, pa.types.is_dictionary):
            check(concat_logical(parts), array, expected, what)
        else:
            check(concat(parts), array, expected, what)


def test_whole_rows_are_taken_kept_and_joined() -> None:
    for rng, array, values in cases(range(4_000, 4_100)):
        rows = len(values)
        batch = pa.record_batch({"n": pa.array(range(rows), pa.int64()), "v": array})
        places = np.array([rng.randrange(-1, rows) for _ in range(5)] if rows else [], np.int64)
        taken = take_rows(batch, places)
        assert values_of(taken["v"]) == [None if n < 0 else values[n] for n in places]
        assert taken.column("n").to_pylist() == [None if n < 0 else n for n in places.tolist()]
        kept = keep_rows(batch, pa.array([n % 2 == 0 for n in range(rows)], pa.bool_()))
        assert values_of(kept["v"]) == values[::2]
        joined = concat_rows([batch, batch.slice(rows // 2)])
        assert values_of(joined["v"]) == values + values[rows // 2 :]
        table = pa.Table.from_batches([batch, batch.slice(rows // 2)])
        assert one_batch(table).equals(joined) or values_of(one_batch(table)["v"]) == values_of(
            joined["v"]
        )


def test_rows_without_columns_are_counted() -> None:
    batch = pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), 3, [None]))
    assert take_rows(batch, np.array([2, 0])).num_rows == 2
    assert keep_rows(batch, np.array([True, False, True])).num_rows == 2
    assert concat_rows([batch, batch]).num_rows == 6


@pytest.mark.parametrize(
    "dtype",
    [
        pa.int64(),
        pa.list_(pa.int64()),
        pa.list_(pa.int64(), 2),
        pa.struct([("a", pa.int64())]),
        pa.list_view(pa.int64()),
    ],
    ids=str,
)
def test_a_place_beyond_the_end_is_an_error_not_other_memory(dtype: pa.DataType) -> None:
    array = pa.nulls(8, dtype).slice(2, 3)
    with pytest.raises((IndexError, pa.ArrowException)):
        take(array, np.array([0, 3]))


def test_lists_of_more_elements_than_their_offsets_count_are_refused() -> None:
    few = build_list(pa.list_(pa.null()), np.array([2**30]), pa.nulls(2**30), None)
    with refuses(pa.ArrowInvalid):
        take(few, np.zeros(2, np.int64))
    with refuses(pa.ArrowInvalid):
        concat([few, few])
