"""Normalised keys of rows and of values, and bounds, compare as plain Python does."""

from __future__ import annotations

import decimal
import itertools
import math
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_fragment.arrays.dictionaries import coded as coded_of
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.container.reader import FragmentReader, KeyRange
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.keys.bounds import key_at, lower_bound, upper_bound
from lsm_fragment.keys.comparator import KeyComparator
from lsm_fragment.keys.normalised import (
    KeyColumns,
    KeyLayout,
    key_columns,
    same_as_previous,
    sort_keys,
    stable_order,
)
from lsm_fragment.keys.sort_schema import ordering, parse_sort_schema
from tests.support.fragments import BytesSource, rows_of, write_fragment
from tests.support.oracle import compare_keys, stable_sorted
from tests.support.strategies import AWKWARD_SIZES, keyed_tables


def key_arrays(table: pa.Table, sort) -> list[pa.Array]:
    return [to_storage(table[c.column].combine_chunks()) for c in sort]


@settings(max_examples=250, deadline=None)
@given(keyed_tables(max_tables=1, max_rows=30))
def test_stable_order_is_that_of_plain_python(case) -> None:
    (table,), sort = case
    order = stable_order(sort_keys(key_arrays(table, sort), sort))
    ids = table["id"].to_numpy()[order]
    assert ids.tolist() == stable_sorted(table, sort)["id"].to_pylist()


@settings(max_examples=250, deadline=None)
@given(keyed_tables(max_tables=1, max_rows=12))
def test_keys_of_rows_and_of_values_are_the_same_bytes_and_compare_as_plain_python(case) -> None:
    (table,), sort = case
    keys = key_arrays(table, sort)
    compare = KeyComparator(table.schema, sort)
    values = list(zip(*(table[c.column].to_pylist() for c in sort), strict=True))
    normalised = sort_keys(keys, sort)
    rows = [normalised.key(row) for row in range(len(table))]
    assert rows == [compare.key(key_at(keys, row)) for row in range(len(table))]
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            expected = compare_keys(values[i], values[j], sort)
            assert (a > b) - (a < b) == expected
            assert expected == 0 or not b.startswith(a)


@settings(max_examples=100, deadline=None)
@given(keyed_tables(max_tables=1, max_rows=30), st.data())
def test_parts_of_rows_have_the_keys_of_those_rows(case, data: st.DataObject) -> None:
    (table,), sort = case
    start = data.draw(st.integers(0, len(table)))
    skipped = data.draw(st.integers(0, start))
    max_bytes = data.draw(st.sampled_from([1, 10, 100, 10_000]))
    arrays = key_arrays(table, sort)
    every = sort_keys(arrays, sort)
    sliced = key_columns([array.slice(skipped) for array in arrays], sort)
    part = sliced.keys(start - skipped, data.draw(st.integers(0, 40)), max_bytes)
    expected = [every.key(row) for row in range(start, start + part.rows)]
    assert [part.key(row) for row in range(part.rows)] == expected
    assert part.rows <= 1 or len(b"".join(expected)) <= max_bytes
    everything = sliced.keys(start - skipped)
    assert everything.rows == len(table) - start


@settings(max_examples=150, deadline=None)
@given(keyed_tables(max_tables=1, max_rows=12), st.data())
def test_the_first_columns_make_up_the_first_bytes_of_a_key(case, data: st.DataObject) -> None:
    (table,), sort = case
    few = ordering(sort)[: data.draw(st.integers(1, len(ordering(sort))))]
    arrays = key_arrays(table, sort)
    prefix = KeyLayout([array.type for array in arrays], few)
    columns = key_columns(arrays, sort)
    for row in range(len(table)):
        assert prefix.prefix_of(columns.key(row)) == key_columns(arrays, few).key(row)


@settings(max_examples=150, deadline=None)
@given(keyed_tables(max_tables=1, max_rows=12))
def test_shortened_bounds_still_bound(case) -> None:
    (table,), sort = case
    keys = key_arrays(table, sort)
    compare = KeyComparator(table.schema, sort)
    for row in range(len(table)):
        key = key_at(keys, row)
        assert compare.key(lower_bound(key, table.schema, sort)) <= compare.key(key)
        assert compare.upper(upper_bound(key, table.schema, sort)) >= compare.key(key)


@settings(max_examples=100, deadline=None)
@given(keyed_tables(max_tables=1, max_rows=20))
def test_disorder_and_equal_neighbours_are_found(case) -> None:
    (table,), sort = case
    columns = key_columns(key_arrays(table, sort), sort)
    values = list(zip(*(table[c.column].to_pylist() for c in sort), strict=True))
    signs = [compare_keys(a, b, sort) for a, b in itertools.pairwise(values)]
    falls = [row + 1 for row, sign in enumerate(signs) if sign > 0]
    assert columns.first_disorder() == (falls[0] if falls else None)
    arrays = key_arrays(table, sort)
    coded = [key if _is_coded_or_null(key.type) else coded_of(key) for key in arrays]
    assert key_columns(coded, sort).first_disorder() == (falls[0] if falls else None)
    keys = columns.keys()
    if len(table):
        start = len(table) // 3
        later = [row - start for row in falls if row > start]
        parts = [key.slice(start) for key in arrays]
        assert key_columns(parts, sort).first_disorder() == (later[0] if later else None)
        assert same_as_previous(keys).tolist() == [False] + [sign == 0 for sign in signs]
    order = stable_order(keys)
    rows = [keys.key(row) for row in order]
    same = [a == b for a, b in itertools.pairwise(rows)]
    assert same_as_previous(keys, order).tolist() == [False, *same][: len(rows)]


def _is_coded_or_null(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(dtype) or pa.types.is_null(dtype))


@settings(max_examples=150, deadline=None)
@given(keyed_tables(max_tables=1, max_rows=40), st.sampled_from(AWKWARD_SIZES), st.data())
def test_a_key_range_gives_exactly_its_rows(case, max_rows: int, data: st.DataObject) -> None:
    (table,), sort = case
    ordered = stable_sorted(table, sort)
    fragment = write_fragment(ordered, sort, WriterOptions(max_rows=max_rows))
    reader = FragmentReader(BytesSource(fragment), len(fragment), "mem")
    if not len(table):
        assert list(reader.scan()) == []
        return
    keys = key_arrays(ordered, sort)
    low, high = (
        key_at(keys, data.draw(st.integers(0, len(table) - 1)))[
            : data.draw(st.integers(1, len(sort)))
        ]
        for _ in range(2)
    )
    compare = KeyComparator(table.schema, sort)
    expected = [
        row["id"]
        for position, row in enumerate(ordered.to_pylist())
        if compare.key(key_at(keys, position)) >= compare.key(low)
        and compare.key(key_at(keys, position)) <= compare.upper(high)
    ]
    batches = list(reader.scan(["id"], KeyRange(low, high)))
    assert [value for batch in batches for value in batch["id"].to_pylist()] == expected


def test_pruning_reads_only_the_row_groups_that_matter() -> None:
    table = pa.table({"k": pa.array(range(1000)), "v": [f"value {n}" for n in range(1000)]})
    data = write_fragment(table, "k", WriterOptions(max_rows=100))
    source = BytesSource(data)
    reader = FragmentReader(source, len(data), "mem")
    source.requests.clear()
    rows = rows_of(reader.scan(["v"], KeyRange((250,), (255,))))
    assert [row["v"] for row in rows] == [f"value {n}" for n in range(250, 256)]
    assert len(source.requests) == 2  # one chunk of k, one of v
    assert sum(length for _, length in source.requests) < len(data) / 5


def test_projection_reads_only_the_columns_asked_for() -> None:
    table = pa.table({"k": pa.array(range(100)), "heavy": ["x" * 1000] * 100, "light": [1] * 100})
    data = write_fragment(table, "k", WriterOptions(max_rows=10, compression_level=0))
    source = BytesSource(data)
    reader = FragmentReader(source, len(data), "mem")
    source.requests.clear()
    assert len(rows_of(reader.scan(["light"]))) == 100
    assert len(source.requests) == 1  # neighbouring chunks come in one request
    assert sum(length for _, length in source.requests) < 3000


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["k", "k:desc"]))
def test_many_strings_with_common_beginnings_are_sorted(seed: int, text: str) -> None:
    rng = random.Random(seed)
    stems = ["".join(rng.choices("ab\0", k=rng.randrange(40))) for _ in range(4)]
    values = [
        (rng.choice(stems) + "".join(rng.choices("\0a\x01", k=rng.randrange(20)))).encode()
        for _ in range(rng.choice([17, 40, 700]))
    ]
    keys = sort_keys([pa.array(values)], parse_sort_schema(text))
    expected = sorted(range(len(values)), key=lambda row: values[row], reverse="desc" in text)
    assert stable_order(keys).tolist() == expected


def test_many_numbers_are_sorted() -> None:
    numbers = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 50_000)
    few = np.arange(50_000) % 7
    keys = sort_keys([pa.array(few), pa.array(numbers)], parse_sort_schema("a:desc,b"))
    assert stable_order(keys).tolist() == np.lexsort((numbers, -few)).tolist()


def test_a_key_of_a_megabyte_is_compared_to_its_end() -> None:
    values = ["x" * 2**20 + end for end in ("b", "", "a", "\0")]
    columns = key_columns([pa.array(values)], parse_sort_schema("k"))
    assert stable_order(columns.keys()).tolist() == [1, 3, 2, 0]
    assert columns.first_disorder() == 1
    assert columns.keys(max_bytes=1000).rows == 1


@pytest.mark.parametrize("text", ["a,b", "a:desc,b:desc:nulls_first"])
def test_dictionaries_small_and_large_give_the_keys_of_their_values(text: str) -> None:
    values = ["", "a", "\0", "b" * 15, "c" * 16, "d" * 17, "e\0" * 100, None]
    large = [f"value {n}" * 3000 for n in range(5)]
    rows = [(values[n % 8], large[n % 5]) for n in range(100)]
    plain = [pa.array(list(column)) for column in zip(*rows, strict=True)]
    coded = [array.dictionary_encode() for array in plain]
    sort = parse_sort_schema(text)
    expected, found = key_columns(plain, sort), key_columns(coded, sort)
    assert found.keys().data.tobytes() == expected.keys().data.tobytes()
    assert found.keys(3, 2).key(1) == expected.key(4)  # too few rows to make the dictionary's parts
    assert found.first_disorder() == expected.first_disorder()


def test_floats_of_every_width_compare_as_numbers() -> None:
    numbers = [-math.inf, -65504.0, -1.5, -6e-8, 0.0, 6e-8, 1.5, 65504.0, math.inf, math.nan]
    for dtype in (pa.float16(), pa.float32(), pa.float64()):
        array = pa.array(np.array(numbers, dtype=dtype.to_pandas_dtype()))
        ascending = sort_keys([array], parse_sort_schema("k"))
        descending = sort_keys([array], parse_sort_schema("k:desc"))
        assert stable_order(ascending).tolist() == list(range(10))
        assert stable_order(descending).tolist() == list(range(10))[::-1]


def test_bounds_that_no_row_can_have_lie_between_rows() -> None:
    cases: list[tuple[pa.DataType, list[object], list[object]]] = [
        (pa.int8(), [-129, -500], [128, 10**30]),
        (pa.uint64(), [-1], [2**64]),
        (pa.decimal128(5, 2), ["-1e50"], ["1e50"]),
        (pa.date32(), [-(2**40)], [2**40]),
    ]
    for dtype, below, above in cases:
        zero = "0" if pa.types.is_decimal(dtype) else 0
        for order, sign in (("k", 1), ("k:desc:nulls_first", -1)):
            compare = KeyComparator(pa.schema([("k", dtype)]), parse_sort_schema(order))
            for value in below:
                assert (compare.key((value,)) < compare.key((zero,))) == (sign > 0)
            for value in above:
                assert (compare.key((value,)) > compare.key((zero,))) == (sign > 0)
            nulls_first = compare.key((None,)) < compare.key((zero,))
            for value in (*below, *above):
                assert (compare.key((None,)) < compare.key((value,))) == nulls_first
    half = KeyComparator(pa.schema([("k", pa.decimal128(5, 0))]), parse_sort_schema("k:desc"))
    assert half.key(("2",)) < half.key(("1.5",)) < half.key(("1",))


def test_codes_beyond_their_dictionary_are_refused() -> None:
    for values in (pa.array(["a", "b"]), pa.array([1, 2])):
        for code in (2, -1):
            codes = pa.array([0, code], pa.int32())
            array = pa.DictionaryArray.from_arrays(codes, values, safe=False)
            columns = key_columns([array], parse_sort_schema("k"))
            with pytest.raises(ValueError, match="beyond its dictionary"):
                columns.keys()
            with pytest.raises(ValueError, match="beyond its dictionary"):
                columns.first_disorder()


def test_dictionaries_of_any_numbers_are_in_the_order_of_their_values() -> None:
    whole = [decimal.Decimal(number) for number in (3, -2, 7, 1)]
    for values in (
        pa.array([1.5, -2.0, float("nan"), 0.0], pa.float16()),
        pa.array([1.5, -2.0, float("nan"), 0.0], pa.float64()),
        pa.array(whole, pa.decimal32(9)),
        pa.array(whole, pa.decimal64(18)),
        pa.array(whole, pa.decimal256(50)),
        pa.array([3, 1, 7, 2], pa.uint64()),
    ):
        codes = pa.array([3, 2, 0, 3, 1, 0, None], pa.int32())
        coded, plain = pa.DictionaryArray.from_arrays(codes, values), values.take(codes)
        for sort in ("k", "k:desc:nulls_first"):
            schema = parse_sort_schema(sort)
            keys = [sort_keys([to_storage(a)], schema) for a in (coded, plain)]
            assert keys[0].data.tobytes() == keys[1].data.tobytes(), values.type


def test_columns_of_another_type_than_the_layout_are_refused() -> None:
    layout = KeyLayout([pa.int64()], parse_sort_schema("k"))
    for array in (pa.array([1], pa.int32()), pa.nulls(1), pa.array(["a"])):
        with pytest.raises(TypeError):
            KeyColumns([array], layout)


@pytest.mark.parametrize(
    "dtype",
    [pa.decimal64(12, -3), pa.decimal128(19, -2), pa.decimal256(19, -2), pa.decimal128(9, 4)],
    ids=str,
)
def test_keys_of_decimals_of_any_scale_are_the_same_from_values_as_from_rows(
    dtype: pa.DataType,
) -> None:
    unit = decimal.Decimal(1).scaleb(-dtype.scale)
    array = pa.array([unit * n for n in (-987_654, -2, -1, 0, 1, 3, 987_654)], dtype)
    for sort in (parse_sort_schema("k"), parse_sort_schema("k:desc")):
        compare = KeyComparator(pa.schema([("k", dtype)]), sort)
        rows = KeyColumns([array], compare.layout)
        for row in range(len(array)):
            assert compare.key(key_at([array], row)) == rows.key(row)
