"""Chunks decoded before they are needed: the same rows where memory is short, no error and no charge lost."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from compactor.merge.inputs.decoding import Decoding, may_decode_ahead
from compactor.merge.tasks import OrderedTasks
from compactor.resources.budget import MemoryBudget
from compactor.resources.errors import MemoryLimitError
from compactor.resources.merge_stages import DECODE, ROW_ORDER
from compactor.resources.reservation import Reservation
from compactor.resources.stopwatch import Stopwatch
from lsm_fragment.container.block import Block
from lsm_fragment.container.stream_reader import FragmentStream
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.errors import CorruptFragmentError
from tests.merge.test_oracle import Merged
from tests.merge.test_stages import log_like, plan_of
from tests.support.fragments import NonSeekableSource, sort_schema, write_fragment
from tests.support.wording import refuses

MIB = 1 << 20
ROWS = 200_000


@pytest.fixture
def budget() -> MemoryBudget:
    return MemoryBudget(plan_of(64 * MIB).stages)


@pytest.fixture
def tasks(budget: MemoryBudget) -> Iterator[OrderedTasks]:
    made = OrderedTasks(budget, 2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def block() -> Block:
    """A chunk of few bytes that decodes to 1.6 MB."""
    table = pa.table({"k": range(ROWS), "v": [7] * ROWS})
    stream = FragmentStream(
        NonSeekableSource(write_fragment(table, sort_schema("k"), WriterOptions(ROWS))), "mem"
    )
    while stream.next_key_group() is not None:
        pass
    stream.next_column()
    return stream.next_chunk()


def full(budget: MemoryBudget) -> Reservation:
    """Leaves 1 MiB of the budget."""
    order = Reservation(budget, ROW_ORDER)
    order.grow_beyond(63 * MIB)
    return order


def decoding(block: Block, budget: MemoryBudget) -> Decoding:
    return Decoding(block, pa.int64(), Reservation(budget, DECODE, 100))


def test_a_chunk_decoded_ahead_holds_its_memory_until_that_is_freed(
    block: Block, budget: MemoryBudget, tasks: OrderedTasks
) -> None:
    chunk, watch = decoding(block, budget), Stopwatch()
    chunk.begin(tasks)
    array = chunk.result(watch)
    assert array.equals(pa.array([7] * ROWS))
    assert budget.held_bytes(DECODE) >= array.nbytes + 100
    assert watch.seconds[DECODE] > 0
    chunk.memory.free()
    assert budget.used_bytes == 0


def test_where_memory_is_short_the_merging_thread_decodes_and_has_others_spill(
    block: Block, budget: MemoryBudget, tasks: OrderedTasks
) -> None:
    spilled: list[int] = []

    order = full(budget)

    def spill(size: int) -> int:
        spilled.append(size)
        return order.free()

    budget.spill_by(ROW_ORDER, spill)
    chunk = Decoding(block, pa.int64(), Reservation(budget, DECODE))
    chunk.begin(tasks)
    tasks.wait(tasks.begin(lambda: None))
    assert not spilled, "a thread may not spill"
    assert chunk.result(Stopwatch()).equals(pa.array([7] * ROWS))
    assert len(spilled) == 1
    chunk.memory.free()
    assert budget.used_bytes == 0


def test_a_chunk_for_which_there_is_no_memory_at_all_is_refused(
    block: Block, budget: MemoryBudget, tasks: OrderedTasks
) -> None:
    order = full(budget)
    chunk = Decoding(block, pa.int64(), Reservation(budget, DECODE))
    chunk.begin(tasks)
    with pytest.raises(MemoryLimitError):
        chunk.result(Stopwatch())
    chunk.memory.free()
    assert budget.used_bytes == order.size


def test_a_damaged_chunk_is_refused_when_its_rows_are_taken(
    block: Block, budget: MemoryBudget, tasks: OrderedTasks
) -> None:
    chunk = decoding(block._replace(meta=block.meta[:-1]), budget)
    chunk.begin(tasks)
    with refuses(CorruptFragmentError, "'v'"):
        chunk.result(Stopwatch())
    chunk.memory.free()
    assert budget.used_bytes == 0


def test_a_small_chunk_is_not_handed_over(
    block: Block, budget: MemoryBudget, tasks: OrderedTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compactor.merge.inputs.decoding._MIN_BYTES", block.header.raw_bytes + 1)
    monkeypatch.setattr(tasks, "begin", None)
    chunk = decoding(block, budget)
    chunk.begin(tasks)
    assert chunk.result(Stopwatch()).equals(pa.array([7] * ROWS))
    chunk.memory.free()
    assert budget.used_bytes == 0


def test_chunks_are_decoded_ahead_only_while_half_of_the_limit_is_free(
    budget: MemoryBudget,
) -> None:
    assert may_decode_ahead(budget, 32 * MIB)
    assert not may_decode_ahead(budget, 32 * MIB + 1)
    order = Reservation(budget, ROW_ORDER, 31 * MIB)
    assert may_decode_ahead(budget, MIB)
    assert not may_decode_ahead(budget, MIB + 1)
    order.free()


def test_a_merge_with_a_damaged_chunk_ends_with_its_place_and_leaves_nothing() -> None:
    parts, sort = log_like(8_000, 4), sort_schema("host,ts")
    fragments = [write_fragment(p, sort, WriterOptions(500)) for p in parts]
    damaged = bytearray(fragments[2])
    damaged[len(damaged) // 2] ^= 0x10
    fragments[2] = bytes(damaged)
    merged = Merged(fragments, parts[0].schema, sort, max_rows=500, threads=3)
    with refuses(CorruptFragmentError, "byte"):
        merged.run()
    assert {output.state for output in merged.outputs} == {"aborted"}
