"""Outputs end where fragments of the level below begin, and hold the same rows as without."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.keys.bounds import key_at
from lsm_fragment.keys.comparator import KeyComparator
from tests.merge.test_oracle import Merged
from tests.support.fragments import rows_of, sort_schema, write_fragment
from tests.support.oracle import stable_sorted
from tests.support.strategies import AWKWARD_SIZES, keyed_tables


def keys_of(table: pa.Table, sort, rows: list[int]) -> list:
    """Returns the keys of some rows, as the log has them of fragments; ascending."""
    columns = [to_storage(table.column(c.column).combine_chunks()) for c in sort]
    return [key_at(columns, row) for row in sorted(set(rows))]


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(
    keyed_tables(max_tables=4, max_rows=60),
    st.lists(st.integers(0, 1000), max_size=12),
    st.sampled_from(AWKWARD_SIZES),
    st.sampled_from([1, 500, 2000, 1 << 30]),
)
def test_cut_keys_change_where_outputs_end_and_nothing_else(
    case, picks: list[int], rows_out: int, fragment_bytes: int
) -> None:
    tables, sort = case
    fragments = [write_fragment(stable_sorted(table, sort), sort) for table in tables]
    expected = stable_sorted(pa.concat_tables(tables), sort)
    rows = [pick % expected.num_rows for pick in picks] if expected.num_rows else []
    cut_keys = keys_of(expected, sort, rows)
    merged = Merged(
        fragments,
        tables[0].schema,
        sort,
        max_rows=rows_out,
        target_fragment_bytes=fragment_bytes,
        cut_keys=cut_keys,
    )
    merged.run()
    assert repr(merged.rows()) == repr(rows_of(expected))
    compare = KeyComparator(expected.schema, sort)
    spans = []
    for table in merged.tables():
        columns = [to_storage(table.column(c.column).combine_chunks()) for c in sort]
        spans.append([compare.key(key_at(columns, row)) for row in (0, table.num_rows - 1)])
    for (_, last), (first, _) in itertools.pairwise(spans):
        assert last < first


def merge(values: list, cut_at: list, target_rows: int, sort: str = "k") -> list[list]:
    """Keys of each output, of inputs that hold every second value."""
    schema = sort_schema(sort)
    tables = [
        stable_sorted(
            pa.table({"k": values[part::2], "pad": ["x" * 50] * len(values[part::2])}), schema
        )
        for part in (0, 1)
    ]
    fragments = [
        write_fragment(t, schema, WriterOptions(1000, compression_level=0)) for t in tables
    ]
    row_bytes = sum(map(len, fragments)) / len(values)
    merged = Merged(
        fragments,
        tables[0].schema,
        schema,
        max_rows=25,
        target_fragment_bytes=int(target_rows * row_bytes),
        cut_keys=[(value,) for value in cut_at],
    )
    merged.run()
    return [table["k"].to_pylist() for table in merged.tables()]


def test_a_fragment_ends_before_the_first_key_at_or_after_a_cut_key() -> None:
    outputs = merge(list(range(0, 200, 2)), [61, 120], target_rows=100)
    assert [part[0] for part in outputs] == [0, 62, 120]


def test_a_cut_that_would_make_a_small_fragment_is_left_out() -> None:
    outputs = merge(list(range(100)), [5, 60, 70], target_rows=100)
    assert [part[0] for part in outputs] == [0, 60]


def test_the_target_still_cuts_between_cut_keys() -> None:
    outputs = merge(list(range(400)), [150], target_rows=100)
    starts = [part[0] for part in outputs]
    assert 150 in starts
    assert max(len(part) for part in outputs) <= 110


@pytest.mark.parametrize("cut_at", [[], [-5], [1000], [-5, 1000]])
def test_cut_keys_outside_the_keys_cut_nothing(cut_at: list[int]) -> None:
    assert [part[0] for part in merge(list(range(100)), cut_at, target_rows=100)] == [0]


def test_descending_columns_are_cut_in_their_order() -> None:
    outputs = merge(list(range(100)), [70, 30], target_rows=100, sort="k:desc")
    assert [part[0] for part in outputs] == [99, 70, 30]


def test_keys_that_differ_late_are_cut_where_they_differ() -> None:
    values = [f"{'p' * 70}{n:03d}" for n in range(100)]
    outputs = merge(values, [values[50]], target_rows=100)
    assert [part[0] for part in outputs] == [values[0], values[50]]


def test_nulls_are_cut_where_they_sort() -> None:
    outputs = merge([*range(50), *[None] * 50], [None], target_rows=100)
    assert [part[0] for part in outputs] == [0, None]
