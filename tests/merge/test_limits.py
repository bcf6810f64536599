"""An output of a merge can be read wherever its inputs could be."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_fragment import limits
from lsm_fragment.container.writer import WriterOptions
from tests.merge.test_oracle import Merged
from tests.support.fragments import read_stream, rows_of, sort_schema, write_fragment
from tests.support.oracle import stable_sorted
from tests.support.strategies import keyed_tables


def set_limit(patch: pytest.MonkeyPatch, value: int) -> None:
    limits.max_chunk_bytes.cache_clear()
    patch.setenv("COMPACTOR_MAX_CHUNK_BYTES", str(value))


@pytest.fixture(autouse=True)
def _limits_as_before() -> Iterator[None]:
    yield
    limits.max_chunk_bytes.cache_clear()


def complete(merged: Merged) -> list[bytes]:
    return [bytes(output.data) for output in merged.outputs if output.state == "complete"]


def strict_rows(fragments: list[bytes]) -> list[dict[str, object]]:
    """By a reader that keeps no dictionaries, to whom a chunk may stand for least."""
    return [row for data in fragments for row in rows_of(read_stream(data))]


def test_long_values_of_a_dictionary_are_divided_before_they_stand_for_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "".join(f"{n:x}" for n in range(300))
    tables = [pa.table({"k": range(i, 2000, 4), "v": [text] * 500}) for i in range(4)]
    sort = sort_schema("k")
    fragments = [write_fragment(table, sort, WriterOptions(max_rows=50)) for table in tables]
    knobs = {"max_rows": 5000, "target_row_group_bytes": 1 << 20}
    plain = Merged(fragments, tables[0].schema, sort, **knobs)
    plain.run()
    assert plain.row_group_rows() == [2000]  # codes, and one value

    most = 200_000
    set_limit(monkeypatch, most)
    assert 2000 * len(text) > most
    merged = Merged(fragments, tables[0].schema, sort, **knobs)
    result = merged.run()
    groups = merged.row_group_rows()
    assert result.restarts == 1
    assert max(groups) * len(text) <= most // 2
    rows = [{"k": n, "v": text} for n in range(2000)]
    assert merged.rows_of_complete() == rows
    assert strict_rows(complete(merged)) == rows


def test_nulls_of_a_wide_type_are_as_many_as_readers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that no input has values of takes no bytes, and decoded as much as if it had."""
    wide = pa.list_(pa.float32(), 1000)
    tables = [pa.table({"k": range(i, 400, 2), "v": pa.nulls(200, wide)}) for i in range(2)]
    sort = sort_schema("k")
    most = 400_000
    set_limit(monkeypatch, most)
    options = WriterOptions(max_rows=50)
    fragments = [write_fragment(table, sort, options) for table in tables]
    merged = Merged(fragments, tables[0].schema, sort, max_rows=5000)
    merged.run()
    assert max(merged.row_group_rows()) * 4000 <= most
    assert merged.rows_of_complete() == [{"k": n, "v": None} for n in range(400)]


@settings(max_examples=60, deadline=None)
@given(
    keyed_tables(max_tables=4, max_rows=40),
    st.sampled_from([1000, 5000, 1 << 30]),
    st.sampled_from([1, 7, 100]),
)
def test_what_can_be_read_can_be_read_when_it_was_merged(case, most: int, rows: int) -> None:
    tables, sort = case
    with pytest.MonkeyPatch.context() as patch:
        set_limit(patch, most)
        options = WriterOptions(max_rows=rows)
        fragments = [write_fragment(stable_sorted(t, sort), sort, options) for t in tables]
        inputs = [row for data in fragments for row in rows_of(read_stream(data))]
        schema = pa.unify_schemas([table.schema for table in tables])
        merged = Merged(fragments, schema, sort, max_rows=100)
        merged.run()
        assert len(strict_rows(complete(merged))) == len(inputs)


def test_an_input_read_under_a_larger_limit_comes_out_within_the_limit_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Written by a program that knew no limit: who raises it to read does away with the need."""
    text = "x" * 300_000
    sort = sort_schema("k")
    tables = [pa.table({"k": [i], "v": [text]}) for i in range(2)]
    fragments = [write_fragment(table, sort) for table in tables]
    assert all(len(data) < 2000 for data in fragments)
    monkeypatch.setattr(limits, "_MAX_CHUNK_BYTES", 100_000)
    set_limit(monkeypatch, 1 << 20)
    merged = Merged(fragments, tables[0].schema, sort, target_row_group_bytes=1000)
    merged.run()
    set_limit(monkeypatch, 100_000)
    assert merged.rows_of_complete() == [{"k": i, "v": text} for i in range(2)]
