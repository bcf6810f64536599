"""Sorting within a budget that others use too."""

from __future__ import annotations

import weakref
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from compactor.pipelines.batch_size import BatchSize
from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.merging import by_key
from compactor.pipelines.sorting import Sorter
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.pipelines.join_support import MIB, Held


def test_rows_that_are_on_their_way_out_give_up_memory_when_others_need_it() -> None:
    numbers = np.random.default_rng(3).permutation(60_000)
    held = Held(8 * MIB)
    with closing(held):
        rows = held.sorted(pa.table({"n": numbers}), ["n"], parse_sort_schema("n"), 1000)
        [sorter] = held.sorters
        assert rows.fill() and sorter.spills < 1
        before = held.budget.held_bytes("join")
        held.budget.charge("chunks", 5 * MIB)
        assert sorter.spills == 1
        assert held.budget.held_bytes("join") < before
        found = []
        while rows.fill():
            found.append(rows.take(rows.rows.num_rows).column("n").to_numpy())
        assert np.array_equal(np.concatenate(found), np.arange(60_000))
        held.budget.discharge("chunks", 5 * MIB)
        assert held.budget.used_bytes == 0


def test_where_keys_tie_the_input_whose_turn_it_is_gives_a_whole_window() -> None:
    inputs, rows, batch_rows = 20, 5000, 4000
    table = pa.table({"n": pa.repeat(7, rows), "at": range(rows)})
    held = Held(32 * MIB)
    with closing(held):
        merged = list(
            by_key(
                [(str(i), iter(table.to_batches())) for i in range(inputs)],
                table.schema,
                parse_sort_schema("n"),
                BatchSize(batch_rows, MIB),
                held.budget,
                held.disk,
            )
        )
    found = pa.Table.from_batches(merged).column("at").to_numpy()
    assert np.array_equal(found, np.tile(np.arange(rows), inputs))
    assert max(batch.num_rows for batch in merged) <= batch_rows
    assert len(merged) <= 2 * inputs * rows / batch_rows


def test_rows_that_are_on_their_way_out_are_held_once(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(64 * MIB)
    with closing(held):
        schema, sort = pa.schema([("n", pa.int64())]), parse_sort_schema("n")
        sorter = Sorter(schema, sort, BatchSize(1000, MIB), held.budget, "join", held.disk)
        held.sorters.append(sorter)
        given = pa.record_batch({"n": np.arange(60_000)[::-1]})
        there = weakref.ref(given)
        sorter.append(given)
        del given
        rows = sorter.sorted()
        next(rows)
        seen = []
        put = Sorter._put

        def noting(self: Sorter, run: BatchBuffer, batch: pa.RecordBatch) -> None:
            seen.append(there())
            put(self, run, batch)

        monkeypatch.setattr(Sorter, "_put", noting)
        sorter.spill(1)
        assert len(seen) == 59
        assert not any(seen)
        assert sum(batch.num_rows for batch in rows) == 59_000
