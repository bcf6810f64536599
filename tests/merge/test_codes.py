"""Columns of repeated values, which are merged as codes: whatever their dictionaries are like."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from format.reader import FragmentReader
from format.writer import WriterOptions
from tests.merge.test_oracle import Merged
from tests.support.fragments import BytesSource, rows_of, sort_schema, write_fragment
from tests.support.oracle import stable_sorted


def merged_rows(tables: list[pa.Table], **knobs) -> Merged:
    fragments = [write_fragment(t, "k", WriterOptions(65_536, 1 << 22)) for t in tables]
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), **{"max_rows": 1000} | knobs)
    merged.run()
    expected = stable_sorted(pa.concat_tables(tables), sort_schema("k"))
    assert repr(merged.rows_of_complete()) == repr(rows_of(expected))
    return merged


def interleaved(columns: list[pa.Array], **names) -> list[pa.Table]:
    count = len(columns)
    return [
        pa.table({"k": range(i, len(column) * count, count), "v": column})
        for i, column in enumerate(columns)
    ]


def encodings(merged: Merged) -> set[str]:
    data = [bytes(o.data) for o in merged.outputs if o.state == "complete"]
    footers = [FragmentReader(BytesSource(d), len(d), "out").footer for d in data]
    return {chunk.encoding for footer in footers for chunk in footer.columns["v"]}


def lists(seed: int, rows: int, distinct: int, width: int) -> pa.Array:
    rng = np.random.default_rng(seed)
    values = [rng.integers(0, 1 << 60, width).tolist() for _ in range(distinct)]
    return pa.array([values[n % distinct] for n in range(rows)], pa.list_(pa.int64()))


def test_lists_of_several_dictionaries_are_joined() -> None:
    columns = [lists(seed, 4000, 100, 100) for seed in range(2)]
    merged = merged_rows(interleaved(columns), target_row_group_bytes=16 << 10)
    assert encodings(merged) <= {"DICTIONARY", "LIST"}


def test_lists_that_differ_in_the_sign_of_a_zero_stay_apart() -> None:
    def column(zero: float) -> pa.Array:
        values = [[float(j), zero, *([float(j)] * 40)] for j in range(40)]
        return pa.array([values[n % 40] for n in range(200)], pa.list_(pa.float64()))

    for target in (12_000, 1 << 22):
        merged_rows(interleaved([column(0.0), column(-0.0)]), target_row_group_bytes=target)


def test_strings_that_the_row_hash_can_not_tell_apart_are_one_dictionary() -> None:
    values = ["x" * 40 + f"{n:06d}" + "y" * 954 for n in range(50)]
    column = pa.array([values[n % 50] for n in range(2000)])
    merged = merged_rows(interleaved([column, column]))
    assert encodings(merged) == {"DICTIONARY"}


def test_plain_and_coded_chunks_of_one_column_merge() -> None:
    few = pa.array([f"few {n % 4}" for n in range(1000)])
    many = pa.array([f"many {n * 7919}" for n in range(1000)])
    nothing = pa.nulls(1000, pa.string())
    merged_rows(interleaved([few, many, nothing]))


@pytest.mark.long
@pytest.mark.parametrize("width", [70, 150])
def test_spilling_codes_changes_no_byte(width: int) -> None:
    columns = [lists(seed, 6000, 1300, width) for seed in range(2)]
    tables = interleaved(columns)
    knobs = {"target_row_group_bytes": 1300 * width * 4, "max_rows": 3200}
    plain = merged_rows(tables, **knobs)
    tight = merged_rows(tables, memory_limit_bytes=plain.plan.stages.need_bytes, **knobs)
    done = [[o.data for o in m.outputs if o.state == "complete"] for m in (plain, tight)]
    assert done[0] == done[1]


def test_values_are_listed_in_the_order_of_their_first_use() -> None:
    column = pa.array(["c", "a", "b"] * 300)
    data = write_fragment(pa.table({"k": range(900), "v": column}), "k")
    reader = FragmentReader(BytesSource(data), len(data), "out")
    [[array]] = reader.read_storage(["v"], [0])
    assert array.dictionary.to_pylist() == ["c", "a", "b"]
    assert all(a <= b for a, b in pairwise(array.indices.to_pylist()[:3]))
