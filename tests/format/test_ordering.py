"""Vectorised order, single-key comparison and bounds agree with plain Python."""

from __future__ import annotations

import decimal
import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from format.dictionaries import coded as coded_of
from format.keys import KeyComparator, key_at, lower_bound, upper_bound
from format.ordering import first_disorder, order_words, same_as_previous, stable_order
from format.reader import FragmentReader, KeyRange
from format.schema import parse_sort_schema
from format.sortedness import first_out_of_order
from format.storage import to_storage
from format.writer import WriterOptions
from tests.support.fragments import BytesSource, rows_of, write_fragment
from tests.support.oracle import compare_keys, stable_sorted
from tests.support.strategies import AWKWARD_SIZES, keyed_tables


def key_arrays(table: pa.Table, sort) -> list[pa.Array]:
    return [to_storage(table[c.column].combine_chunks()) for c in sort]


@settings(max_examples=250, deadline=None)
@given(keyed_tables(max_tables=1, max_rows=30))
def test_stable_order_is_that_of_plain_python(case) -> None:
    (table,), sort = case
    order = stable_order(order_words(key_arrays(table, sort), sort))
    ids = table["id"].to_numpy()[order]
    assert ids.tolist() == stable_sorted(table, sort)["id"].to_pylist()


@settings(max_examples=150, deadline=None)
@given(keyed_tables(max_tables=1, max_rows=12))
def test_single_keys_compare_as_columns_do(case) -> None:
    (table,), sort = case
    keys = key_arrays(table, sort)
    compare = KeyComparator(table.schema, sort)
    values = list(zip(*(table[c.column].to_pylist() for c in sort), strict=True))
    comparable = [compare.key(key_at(keys, row)) for row in range(len(table))]
    for i, a in enumerate(comparable):
        for j, b in enumerate(comparable):
            expected = compare_keys(values[i], values[j], sort)
            assert (a > b) - (a < b) == expected


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
    words = order_words(key_arrays(table, sort), sort)
    values = list(zip(*(table[c.column].to_pylist() for c in sort), strict=True))
    signs = [compare_keys(a, b, sort) for a, b in itertools.pairwise(values)]
    falls = [row + 1 for row, sign in enumerate(signs) if sign > 0]
    assert first_disorder(words) == (falls[0] if falls else None)
    keys = key_arrays(table, sort)
    assert first_out_of_order(keys, sort) == (falls[0] if falls else None)
    coded = [key if _is_coded_or_null(key.type) else coded_of(key) for key in keys]
    assert first_out_of_order(coded, sort) == (falls[0] if falls else None)
    if len(table):
        start = len(table) // 3
        later = [row - start for row in falls if row > start]
        parts = [key.slice(start) for key in keys]
        assert first_out_of_order(parts, sort) == (later[0] if later else None)
        assert same_as_previous(words).tolist() == [False] + [sign == 0 for sign in signs]


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


def test_several_sort_columns_pack_into_one_word() -> None:
    sort = parse_sort_schema("service,host,ts:desc")
    columns = [
        pa.array(["a", "b"] * 50),
        pa.array([f"h{n % 7}" for n in range(100)]),
        pa.array(np.arange(100) * 10**9),
    ]
    assert len(order_words(columns, sort)) == 1


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
            words = [order_words([to_storage(a)], parse_sort_schema(sort)) for a in (coded, plain)]
            assert stable_order(words[0]).tolist() == stable_order(words[1]).tolist(), values.type
