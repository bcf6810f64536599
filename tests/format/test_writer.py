"""How rows become row groups and bytes."""

from __future__ import annotations

import tracemalloc
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_fragment import limits
from lsm_fragment.arrays.storage import plain, to_logical, to_storage
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.writer import FragmentWriter, WriterOptions
from lsm_fragment.errors import LimitError, OrderError, SchemaError
from lsm_fragment.threads import ThreadPool
from tests.support.fragments import (
    BytesSource,
    NonSeekableSink,
    read_random,
    rows_of,
    sort_schema,
    write_fragment,
)
from tests.support.strategies import AWKWARD_SIZES
from tests.support.wording import refuses


def numbers(rows: int) -> pa.Table:
    texts = [f"text {n} " * (n % 13) for n in range(rows)]
    return pa.table({"k": pa.array(range(rows)), "t": texts, "f": np.sqrt(np.arange(rows))})


def reader_of(data: bytes) -> FragmentReader:
    return FragmentReader(BytesSource(data), len(data), "mem")


def group_rows(data: bytes) -> list[int]:
    return [group.rows for group in reader_of(data).footer.row_groups]


@pytest.mark.parametrize("batch_rows", [*AWKWARD_SIZES, 1000])
def test_bytes_do_not_depend_on_how_rows_are_batched(batch_rows: int) -> None:
    options = WriterOptions(max_rows=100, target_row_group_bytes=3000)
    table = numbers(1000)
    expected = write_fragment(table, "k", options)
    assert write_fragment(table, "k", options, batch_rows=batch_rows) == expected


@pytest.mark.parametrize("batch_rows", [*AWKWARD_SIZES, 1000])
def test_bytes_of_columns_that_come_as_codes_do_not_depend_on_batches(batch_rows: int) -> None:
    """Whether batches share a dictionary, in which a value may be twice, or have their own."""
    rows = np.arange(1000)
    values = pa.array([f"value {n % 5}" for n in range(10)])
    codes = pa.array(rows * 7 % 10, pa.int32(), mask=rows % 11 == 0)
    lists = pa.array([[n % 3, n % 2] for n in range(10)])
    coded = [pa.DictionaryArray.from_arrays(codes, v) for v in (values, lists)]
    table = pa.table({"k": rows, "t": coded[0], "l": coded[1]})
    options = WriterOptions(max_rows=300, target_row_group_bytes=3000)
    own = []
    for start in range(0, len(rows), batch_rows):
        part = table.slice(start, batch_rows)
        pieces = [plain(to_storage(column.combine_chunks())) for column in part.columns]
        arrays = [pieces[0], *(to_logical(p, coded[0].type if n == 0 else coded[1].type)
                               for n, p in enumerate(pieces[1:]))]  # fmt: skip
        own.append(pa.RecordBatch.from_arrays(arrays, schema=table.schema))
    shared = write_fragment(table, "k", options)
    assert write_fragment(table, "k", options, batch_rows=batch_rows) == shared
    assert write_fragment(pa.Table.from_batches(own), "k", options) == shared
    assert rows_of(read_random(shared)) == rows_of(table)


def test_rows_that_the_caller_has_checked_give_the_same_bytes_in_any_number_of_threads() -> None:
    table, options = numbers(1000), WriterOptions(max_rows=100, target_row_group_bytes=3000)
    expected = write_fragment(table, "k", options)
    columns = {name: table[name].combine_chunks() for name in reversed(table.column_names)}
    for threads in (1, 3):
        sink = NonSeekableSink()
        with (
            closing(ThreadPool(threads)) as pool,
            FragmentWriter(sink, table.schema, sort_schema("k"), options, pool=pool) as writer,
        ):
            for start in (0, 1, 450):
                rows = {0: 1, 1: 449, 450: 550}[start]
                writer.write_sorted({n: a.slice(start, rows) for n, a in columns.items()})
            writer.finish()
        assert sink.getvalue() == expected


def heavy_texts() -> pa.Table:
    """Returns three row groups of 20,000 rows, of two columns that threads compress apart."""
    rows = np.arange(60_000)
    names = [f"{row * 7919 % 60_013:032x}" * 2 for row in rows.tolist()]
    logs = [
        f"request {row} of user {row % 977} took {row % 13} ms at {row * 31:09}" for row in rows
    ]
    return pa.table({"k": rows, "name": names, "log": logs})


def test_heavy_columns_give_the_same_bytes_in_any_number_of_threads() -> None:
    table, options = heavy_texts(), WriterOptions(max_rows=20_000)
    alone = write_fragment(table, "k", options)
    assert group_rows(alone) == [20_000] * 3
    assert rows_of(read_random(alone)) == rows_of(table)
    for threads in (2, 4):
        with closing(ThreadPool(threads)) as pool:
            assert write_fragment(table, "k", options, pool=pool) == alone


def test_a_heavy_column_that_readers_would_refuse_is_named_in_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "_MAX_CHUNK_BYTES", 100_000)
    monkeypatch.setattr(limits, "MAX_RATIO", 0)
    for threads in (1, 2, 4):
        with (
            closing(ThreadPool(threads)) as pool,
            pytest.raises(LimitError, match=r"column .*rows 0 to 19,999"),
        ):
            write_fragment(heavy_texts(), "k", WriterOptions(max_rows=20_000), pool=pool)


@pytest.mark.parametrize("max_rows", AWKWARD_SIZES)
def test_row_groups_are_full_but_for_the_last(max_rows: int) -> None:
    rows = group_rows(write_fragment(numbers(230), "k", WriterOptions(max_rows=max_rows)))
    assert sum(rows) == 230
    assert all(count == max_rows for count in rows[:-1])


def test_the_heaviest_column_decides_where_a_row_group_ends() -> None:
    heavy = ["x" * 75_000] * 8 + ["y"] * 1000
    table = pa.table({"k": pa.array(range(len(heavy))), "m": heavy})
    data = write_fragment(table, "k", WriterOptions(target_row_group_bytes=200_000))
    assert group_rows(data) == [2, 2, 2, 1002]
    assert rows_of(read_random(data)) == rows_of(table)


def test_a_value_heavier_than_the_target_gets_a_row_group_of_its_own() -> None:
    table = pa.table({"k": [1, 2, 3], "m": ["a" * 50, "b" * 5000, "c" * 50]})
    data = write_fragment(table, "k", WriterOptions(target_row_group_bytes=1000))
    assert group_rows(data) == [1, 1, 1]


def test_a_column_without_values_takes_no_bytes_outside_the_header() -> None:
    table = pa.table({"k": [1, 2], "n": pa.nulls(2, pa.string()), "v": [1, None]})
    data = write_fragment(table, "k")
    assert list(reader_of(data).footer.columns) == ["k", "v"]
    assert rows_of(read_random(data)) == rows_of(table)


def test_sort_columns_come_first_and_others_in_byte_order_of_their_names() -> None:
    table = pa.table({"b": [1], "z": [2], "ä": [3], "B": [4], "a": [5]})
    assert list(reader_of(write_fragment(table, "z,b")).footer.columns) == ["z", "b", "B", "a", "ä"]


def test_rows_out_of_order_within_a_batch_are_refused() -> None:
    with refuses(OrderError):
        write_fragment(pa.table({"k": [2, 1]}), "k")


def test_rows_out_of_order_across_batches_are_refused() -> None:
    with FragmentWriter(
        NonSeekableSink(), pa.schema([("k", pa.int64())]), sort_schema("k")
    ) as writer:
        writer.write(pa.record_batch({"k": [5, 6]}))
        with refuses(OrderError):
            writer.write(pa.record_batch({"k": [5]}))


def test_a_batch_of_another_schema_is_refused() -> None:
    writer = FragmentWriter(NonSeekableSink(), pa.schema([("k", pa.int64())]), sort_schema("k"))
    with writer, refuses(SchemaError):
        writer.write(pa.record_batch({"k": [1.5]}))


@pytest.mark.parametrize(
    "sort",
    [
        "nope",
        "k,k",
        "",
        "k:up",
    ],
)
def test_bad_sort_schemas_are_named(sort: str) -> None:
    with refuses(SchemaError):
        write_fragment(numbers(1), sort)


def test_two_columns_of_one_name_are_refused() -> None:
    schema = pa.schema([("k", pa.int64()), ("k", pa.int64())])
    with refuses(SchemaError):
        FragmentWriter(NonSeekableSink(), schema, sort_schema("k"))


def test_nothing_is_held_back_but_a_row_group_and_the_spool() -> None:
    """The key section streams out while rows come in."""
    sink = NonSeekableSink()
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    with FragmentWriter(sink, schema, sort_schema("k"), WriterOptions(max_rows=10)) as writer:
        sizes = []
        for start in range(0, 100, 10):
            values = list(range(start, start + 10))
            writer.write(pa.record_batch({"k": values, "v": values}))
            sizes.append(len(sink.getvalue()))
        writer.finish()
    assert sizes == sorted(set(sizes))


def test_chunks_that_wait_hold_no_more_memory_than_they_have_bytes() -> None:
    """Packed numbers are made in memory for wide ones."""
    values = pa.array(np.random.default_rng(0).integers(0, 1000, 1 << 17))
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    with FragmentWriter(NonSeekableSink(), schema, sort_schema("k")) as writer:
        tracemalloc.start()
        for number in range(10):
            keys = pa.array(np.full(len(values), number))
            writer.write(pa.record_batch({"k": keys, "v": values}))
        del keys
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        writer.finish()
    assert held < 4 << 20


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 400), max_size=60),
    target=st.integers(1, 2000),
    max_rows=st.integers(1, 20),
)
def test_no_row_group_exceeds_rows_or_target_unless_it_is_one_row(
    lengths: list[int], target: int, max_rows: int
) -> None:
    table = pa.table(
        {"k": pa.array(range(len(lengths)), pa.int8()), "t": ["x" * n for n in lengths]}
    )
    data = write_fragment(
        table, "k", WriterOptions(max_rows=max_rows, target_row_group_bytes=target)
    )
    start = 0
    for rows in group_rows(data):
        size = sum(4 + n for n in lengths[start : start + rows])
        assert rows <= max_rows
        assert rows == 1 or size <= target
        start += rows
    assert start == len(lengths)
