"""Chunks decoded before they are needed: the same rows where memory is short, no error and no charge lost."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from compactor.merge.groups.column_cursors import ColumnCursors
from compactor.merge.groups.column_pieces import ColumnPieces
from compactor.merge.inputs.column_reader import ColumnReader
from compactor.merge.inputs.decoded import TakenRows
from compactor.merge.inputs.decoding import Decoding, DecodingAhead, may_decode_ahead
from compactor.merge.order.row_order import RowOrder
from compactor.merge.tasks import OrderedTasks
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.errors import MemoryLimitError
from compactor.resources.merge_plan import KeyGroups
from compactor.resources.merge_stages import CHUNKS, DECODE, ROW_ORDER
from compactor.resources.reservation import Reservation
from compactor.resources.stopwatch import Stopwatch
from lsm_fragment.container.block import Block
from lsm_fragment.container.stream_reader import FragmentStream
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.errors import CorruptFragmentError
from lsm_fragment.gather.origins import Origins
from tests.merge import test_oracle
from tests.merge.test_oracle import Merged
from tests.merge.test_stages import log_like, plan_of
from tests.support.fragments import NonSeekableSource, sort_schema, write_fragment
from tests.support.wording import refuses

MIB = 1 << 20
ROWS = 200_000


@pytest.fixture
def budget() -> MemoryBudget:
    """A budget of 64 MiB, of which a merge needs fewer than 16."""
    light = KeyGroups(0, 0, 0)
    plan = plan_of(64 * MIB, peak_chunk_bytes=MIB // 2, heaviest_column_bytes=MIB, key_groups=light)
    assert plan.stages.need_bytes < 16 * MIB
    return MemoryBudget(plan.stages)


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


def test_chunks_are_decoded_ahead_only_while_a_quarter_of_the_limit_is_free(
    budget: MemoryBudget,
) -> None:
    assert may_decode_ahead(budget, 48 * MIB)
    assert not may_decode_ahead(budget, 48 * MIB + 1)
    order = Reservation(budget, ROW_ORDER, 47 * MIB)
    assert may_decode_ahead(budget, MIB)
    assert not may_decode_ahead(budget, MIB + 1)
    order.free()


def test_what_a_merge_needs_stays_free_of_chunks_decoded_ahead(
    block: Block, tasks: OrderedTasks
) -> None:
    plan = plan_of(512 * MIB, peak_chunk_bytes=80 * MIB, heaviest_column_bytes=80 * MIB)
    budget, free = MemoryBudget(plan.stages), 512 * MIB - plan.stages.need_bytes
    assert free < 384 * MIB
    assert may_decode_ahead(budget, free)
    assert not may_decode_ahead(budget, free + 1)
    with Reservation(budget, ROW_ORDER, free - MIB):
        chunk = decoding(block, budget)
        DecodingAhead(tasks, budget, plan.payload_bytes).begin(chunk)
        tasks.flush()
        assert chunk.is_begun
        assert chunk.result(Stopwatch()).equals(pa.array([7] * ROWS))  # not ahead: it has 1.6 MB
        assert budget.used_bytes > free
        chunk.memory.free()


def test_a_decoding_without_room_keeps_nothing_alive(block: Block, budget: MemoryBudget) -> None:
    class Held:
        pass

    def refused() -> weakref.ref[Held]:
        held = Held()
        with full(budget), pytest.raises(MemoryLimitError):
            decoding(block, budget).result(Stopwatch())
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert refused()() is None
        assert budget.used_bytes == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("threads", [2, 4])
def test_a_merge_with_few_heavy_chunks_among_light_ones_stays_within_its_need(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        test_oracle, "NonSeekableSource", lambda data, _: NonSeekableSource(data, MIB)
    )
    random, width, sort = np.random.default_rng(1), 200, sort_schema("k")

    def rows_of(rows: int) -> pa.Table:
        data = pa.py_buffer(random.bytes(rows * width))
        values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, data])
        keys = np.sort(random.integers(0, MIB, rows))
        return pa.table({"k": keys, "v": values.cast(pa.binary())})

    heavy, light = 83_886, 5_767  # chunks of 16 MiB and of 1.1 MiB
    fragments = [
        write_fragment(
            rows_of(rows if rows == heavy else 2 * rows), sort, WriterOptions(rows, 1 << 30)
        )
        for rows in [heavy if number % 7 == 4 else light for number in range(20)]
    ]
    merged = Merged(
        fragments,
        rows_of(1).schema,
        sort,
        max_rows=2_000,
        target_row_group_bytes=256 << 10,
        memory_limit_bytes=96 * MIB,
        threads=threads,
    )
    assert merged.plan.stages.need_bytes > 95 * MIB
    merged.run()


def test_a_chunk_for_which_there_was_no_room_is_begun_once_another_one_is_taken(
    budget: MemoryBudget,
) -> None:
    began: list[tuple[str, int]] = []

    class Reader:
        def __init__(self, number: int) -> None:
            self.number = number

        def decode_ahead(self, dtype: pa.DataType, rows: int) -> bool:
            has_room = self.number <= sum(what == "take" for what, _ in began)
            if has_room and rows > 0:
                began.append(("begin", self.number))
            return has_room

        def take_part(self, dtype: pa.DataType) -> TakenRows:
            began.append(("take", self.number))
            return TakenRows(pa.array([self.number] * 4), Reservation(budget, CHUNKS))

    order = RowOrder(budget, LocalDisk(None))
    order.append(np.arange(3), Origins.of(np.repeat(np.arange(3, dtype=np.uint16), 4), 3))
    readers = cast("list[ColumnReader]", [Reader(number) for number in range(3)])
    cursors = ColumnCursors(readers, np.ones(3, dtype=np.bool_), pa.int64(), budget, 0)
    pieces = ColumnPieces(pa.int64(), MIB, only_weighs=False)
    with cursors.take(next(order.groups()), pieces):
        assert [pieces.pieces.array(n).to_pylist() for n in range(3)] == [[n] * 4 for n in range(3)]
    assert began == [
        ("begin", 0), ("take", 0), ("begin", 1), ("take", 1), ("begin", 2), ("take", 2)
    ]  # fmt: skip
    cursors.close()
    order.close()


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
