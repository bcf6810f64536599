"""Columns of repeated values, which are merged as codes: whatever their dictionaries are like."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from compactor.merge.groups.column_cursors import ColumnCursors
from compactor.resources.budget import MemoryBudget
from compactor.resources.reservation import Reservation
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.writer import WriterOptions
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


def _mixed_lists(seed: int, kind: str) -> pa.Array:
    """Lists of which a chunk is dictionary-coded or not, with nulls among them."""
    rng = np.random.default_rng(seed)
    distinct = {"coded": 40, "plain": 20_000, "nulls": 0}[kind]
    values = [
        [f"tag {n} {k}" for k in range(1 + n % 4)] + [None] * (n % 2) for n in range(distinct)
    ]
    chosen = rng.integers(0, max(distinct, 1), 2000).tolist()
    rows = [None if kind == "nulls" or n % 9 == 0 else values[at] for n, at in enumerate(chosen)]
    return pa.array(rows, pa.list_(pa.string()))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "kinds", [["coded"] * 3, ["coded"] * 4 + ["plain"], ["coded", "plain", "nulls"], ["plain"] * 2]
)
def test_how_lists_of_dictionaries_are_gathered_changes_no_byte(
    kinds: list[str], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory is short they are not packed, and Arrow unifies their dictionaries."""
    tables = interleaved([_mixed_lists(seed, kind) for seed, kind in enumerate(kinds)])
    budgets: list[MemoryBudget] = []
    gathered: list[bool] = []
    whole = ColumnCursors._packed
    close = ColumnCursors.close

    def watched(self: ColumnCursors, array: pa.Array, memory: Reservation) -> pa.Array | None:
        strings = whole(self, array, memory)
        gathered.append(strings is not None)
        return strings

    def closed(self: ColumnCursors) -> None:
        close(self)
        budgets.append(self._budget)

    def data() -> list[bytes]:
        merged = merged_rows(tables, threads=threads)
        return [bytes(o.data) for o in merged.outputs if o.state == "complete"]

    monkeypatch.setattr(ColumnCursors, "close", closed)
    monkeypatch.setattr(ColumnCursors, "_packed", watched)
    with_strings = data()
    assert any(gathered) == ("coded" in kinds)
    monkeypatch.setattr(ColumnCursors, "_packed", lambda *_: None)
    assert data() == with_strings
    assert not any(budget.held_bytes("chunks") for budget in budgets)


@pytest.mark.parametrize("is_last", [False, True])
def test_lists_with_a_nan_stay_plain_where_only_some_were_coded(*, is_last: bool) -> None:
    """Arrow holds that they are not equal to themselves, so that they are not coded anew."""
    coded = [[float(n % 5), float("nan")] for n in range(600)]
    other = [[float(n)] for n in range(600)]
    columns = [pa.array(some, pa.list_(pa.float64())) for some in (coded, other)]
    merged_rows(interleaved(columns[::-1] if is_last else columns))
