"""Encoding ahead, in a thread of its own: the same bytes, within the plan, and no error lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.merge import chunk_encoder
from compactor.merge.chunk_encoder import ChunkEncoder
from compactor.merge.merge import MergeResult
from compactor.resources.budget import MemoryBudget
from compactor.resources.stopwatch import Stopwatch
from format.blocks import Chunk, make_chunk
from format.writer import WriterOptions
from tests.merge.test_memory import run, run_spilling
from tests.merge.test_oracle import Merged
from tests.merge.test_stages import log_like, plan_of
from tests.support.fragments import sort_schema, write_fragment
from tests.support.oracle import stable_sorted
from tests.support.strategies import AWKWARD_SIZES, keyed_tables
from tests.support.wording import refuses

MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_encoder, "_SMALL_BYTES", -1)


@pytest.fixture
def budget() -> MemoryBudget:
    return MemoryBudget(plan_of(64 * MIB).stages)


@pytest.fixture
def encoder(budget: MemoryBudget) -> Iterator[ChunkEncoder]:
    made = ChunkEncoder(budget, Stopwatch(), 1, in_thread=True)
    yield made
    made.close()


def encoding_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("encode")]


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    keyed_tables(max_tables=5, max_rows=60),
    st.sampled_from(AWKWARD_SIZES),
    st.sampled_from([1, 2000, 1 << 30]),
    st.sampled_from([1, 60, 500, 1 << 20]),
    st.booleans(),
)
def test_a_thread_changes_no_byte(
    case, rows_out: int, fragment_bytes: int, group_bytes: int, spills: bool
) -> None:
    tables, sort = case
    fragments = [write_fragment(stable_sorted(t, sort), sort, WriterOptions(17)) for t in tables]

    def merged(in_thread: bool) -> tuple[list[bytes], MergeResult]:
        case = Merged(fragments, tables[0].schema, sort, max_rows=rows_out, encode_thread=in_thread,
                      target_fragment_bytes=fragment_bytes, target_row_group_bytes=group_bytes)  # fmt: skip
        return run_spilling(case) if spills else run(case)

    (alone, before), (ahead, after) = merged(False), merged(True)
    assert ahead == alone
    assert after.restarts == before.restarts
    assert not encoding_threads()


def test_a_merge_with_a_thread_stays_within_the_plan() -> None:
    parts, sort = log_like(60_000, 6), sort_schema("host,ts")
    fragments = [write_fragment(p, sort, WriterOptions(8192, 256 << 10)) for p in parts]
    merged = Merged(fragments, parts[0].schema, sort, max_rows=8192, encode_thread=True,
                    target_row_group_bytes=256 << 10)  # fmt: skip
    _, result = run(merged)
    for stage in merged.plan.stages:
        assert result.stage_peak_bytes[stage.name] <= stage.memory_bytes, stage.name


def test_chunks_and_what_follows_them_come_in_the_order_in_which_they_were_put(
    encoder: ChunkEncoder, budget: MemoryBudget
) -> None:
    seen: list[tuple[str, int]] = []
    for number in range(20):
        rows = number * 50 + 1
        encoder.put(pa.array(np.arange(rows)), lambda chunk: seen.append(("chunk", chunk.rows)))
        if number % 3 == 0:
            encoder.then(partial(seen.append, ("after", rows)))
    encoder.flush()
    expected = [
        (what, number * 50 + 1)
        for number in range(20)
        for what in ("chunk", "after")
        if what == "chunk" or number % 3 == 0
    ]
    assert seen == expected
    assert budget.used_bytes == 0


def test_the_next_chunk_is_begun_before_the_last_one_is_written(encoder: ChunkEncoder) -> None:
    written: list[Chunk] = []
    encoder.put(pa.array(range(100)), written.append)
    assert written == [] and len(encoding_threads()) == 1
    encoder.put(pa.array(range(200)), written.append)
    assert [chunk.rows for chunk in written] == [100]


def test_where_memory_is_short_nothing_is_encoded_ahead(
    encoder: ChunkEncoder, budget: MemoryBudget
) -> None:
    written: list[Chunk] = []
    encoder.put(pa.array(range(100)), written.append)
    budget.charge("gather", budget.soft_bytes)
    assert len(written) == 1 and budget.held_bytes("encode") == 0
    encoder.put(pa.array(range(200)), written.append)
    assert len(written) == 2 and budget.held_bytes("encode") == 0


def test_an_error_of_the_thread_ends_the_merge_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts, sort = log_like(4_000, 2), sort_schema("host,ts")
    fragments = [write_fragment(p, sort, WriterOptions(500)) for p in parts]
    merged = Merged(fragments, parts[0].schema, sort, max_rows=500, encode_thread=True)
    calls: list[pa.Array] = []

    def failing(array: pa.Array, *, level: int, is_decided: bool = False) -> Chunk:
        if threading.current_thread() is not threading.main_thread():
            calls.append(array)
            if len(calls) == 4:
                raise MemoryError("no more")
        return make_chunk(array, level=level, is_decided=is_decided)

    monkeypatch.setattr(chunk_encoder, "make_chunk", failing)
    with refuses(MemoryError):
        merged.run()
    assert {output.state for output in merged.outputs} == {"aborted"}
    assert not encoding_threads()


def test_without_a_second_core_there_is_no_thread(
    budget: MemoryBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    encoder = ChunkEncoder(budget, Stopwatch(), 1, in_thread=None)
    written: list[Chunk] = []
    encoder.put(pa.array(range(100)), written.append)
    assert len(written) == 1 and not encoding_threads()
