"""Chunks made in threads: the same bytes, within the plan, in order, and no error lost."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.common.clock import random_id
from compactor.compaction.compaction import Compaction
from compactor.merge.groups import group_work
from compactor.merge.outputs.contract import MergeResult
from compactor.merge.tasks import OrderedTasks
from compactor.planner.spec import CompactionSpec
from compactor.resources.budget import MemoryBudget
from compactor.resources.reservation import Pins, Reservation
from compactor.settings.compaction import CompactionSettings
from lsm_fragment.container.chunk import Chunk, make_chunk
from lsm_fragment.container.stream_reader import FragmentStream
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.encodings.dictionary import Coding
from lsm_fragment.errors import LimitError
from lsm_fragment.gather.columns import gather
from lsm_fragment.threads import Work
from tests.merge.test_memory import run, run_spilling
from tests.merge.test_oracle import Merged
from tests.merge.test_stages import log_like, plan_of
from tests.support.fragments import NonSeekableSource, sort_schema, write_fragment
from tests.support.oracle import stable_sorted
from tests.support.strategies import AWKWARD_SIZES, keyed_tables
from tests.support.wording import refuses

MIB = 1 << 20


@pytest.fixture
def budget() -> MemoryBudget:
    return MemoryBudget(plan_of(64 * MIB).stages)


@pytest.fixture
def tasks(budget: MemoryBudget) -> Iterator[OrderedTasks]:
    made = OrderedTasks(budget, 3)
    yield made
    made.close()


def working_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("pool")]


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    keyed_tables(max_tables=5, max_rows=60),
    st.sampled_from(AWKWARD_SIZES),
    st.sampled_from([1, 2000, 1 << 30]),
    st.sampled_from([1, 60, 500, 1 << 20]),
    st.booleans(),
)
def test_threads_change_no_byte(
    case, rows_out: int, fragment_bytes: int, group_bytes: int, spills: bool
) -> None:
    tables, sort = case
    fragments = [write_fragment(stable_sorted(t, sort), sort, WriterOptions(17)) for t in tables]

    def merged(threads: int) -> tuple[list[bytes], MergeResult]:
        case = Merged(fragments, tables[0].schema, sort, max_rows=rows_out, threads=threads,
                      target_fragment_bytes=fragment_bytes, target_row_group_bytes=group_bytes)  # fmt: skip
        return run_spilling(case) if spills else run(case)

    (alone, before), (together, after) = merged(1), merged(3)
    assert together == alone
    assert after.restarts == before.restarts
    assert not working_threads()


def test_a_merge_in_threads_stays_within_the_plan() -> None:
    parts, sort = log_like(60_000, 6), sort_schema("host,ts")
    fragments = [write_fragment(p, sort, WriterOptions(8192, 256 << 10)) for p in parts]
    merged = Merged(fragments, parts[0].schema, sort, max_rows=8192, threads=4,
                    target_row_group_bytes=256 << 10)  # fmt: skip
    _, result = run(merged)
    for stage in merged.plan.stages:
        assert result.stage_peak_bytes[stage.name] <= stage.memory_bytes, stage.name


def pinned(budget: MemoryBudget) -> Pins:
    """Pins ten bytes that nothing else holds."""
    pins = Pins()
    pins.add(Reservation(budget, "chunks", 10))
    return pins


def test_results_and_what_follows_them_come_in_the_order_in_which_they_were_put(
    tasks: OrderedTasks, budget: MemoryBudget
) -> None:
    seen: list[tuple[str, int]] = []
    inputs = [pinned(budget) for _ in range(20)]

    def late(number: int) -> int:
        threading.Event().wait(0.002 * (number % 3))
        return number

    def then(number: int) -> None:
        seen.append(("result", number))
        assert budget.held_bytes("chunks") == 10 * (20 - number), "until then it is held"

    for number, pins in enumerate(inputs):
        tasks.put(partial(late, number), then, size=100, pins=pins)
        if number % 3 == 0:
            tasks.then(partial(seen.append, ("after", number)))
    tasks.flush()
    assert seen == [
        (what, number)
        for number in range(20)
        for what in ("result", "after")
        if what == "result" or number % 3 == 0
    ]
    assert budget.used_bytes == 0


def test_no_more_is_begun_than_there_are_threads_and_two(tasks: OrderedTasks) -> None:
    taken: list[int] = []
    for number in range(5):
        tasks.put(partial(int, number), taken.append, size=1)
    assert taken == [] and 0 < len(working_threads()) <= 2
    tasks.put(partial(int, 5), taken.append, size=1)
    assert taken == [0]


def test_the_caller_does_what_no_thread_has_begun_and_waits_for_the_rest(
    tasks: OrderedTasks,
) -> None:
    at_work, may_end = threading.Semaphore(0), threading.Event()

    def occupied() -> None:
        at_work.release()
        may_end.wait()

    busy = [tasks.begin(occupied) for _ in range(2)]
    for _ in busy:
        at_work.acquire()
    doers: list[threading.Thread] = []
    for _ in range(3):
        tasks.put(threading.current_thread, doers.append, size=1)
    other = tasks.begin(may_end.set)
    for work in busy:
        tasks.wait(work)
    assert other.is_done
    tasks.flush()
    assert doers == [threading.current_thread()] * 3


def test_what_was_made_is_held_until_it_is_taken_and_no_longer(tasks: OrderedTasks) -> None:
    blocked = threading.Event()
    first = tasks.begin(blocked.wait)
    array = tasks.wait(tasks.begin(lambda: np.zeros(10)))
    held = weakref.ref(array)
    del array
    assert held() is None
    blocked.set()
    tasks.wait(first)


def test_an_interrupt_of_the_callers_work_ends_it_at_once(budget: MemoryBudget) -> None:
    tasks = OrderedTasks(budget, 2)
    at_work, may_end = threading.Event(), threading.Event()

    def occupied() -> None:
        at_work.set()
        may_end.wait()

    def interrupted() -> None:
        raise KeyboardInterrupt

    busy = tasks.begin(occupied)
    at_work.wait()
    tasks.begin(interrupted)
    with pytest.raises(KeyboardInterrupt):
        tasks.wait(busy)
    may_end.set()
    tasks.close()


def test_where_memory_is_short_earlier_work_is_finished_first(
    tasks: OrderedTasks, budget: MemoryBudget
) -> None:
    taken: list[int] = []
    tasks.put(partial(int, 0), taken.append, size=1000)
    budget.charge("order", budget.soft_bytes)
    assert taken == [0] and budget.held_bytes("encode") == 0
    tasks.put(partial(int, 1), taken.append, size=1000)
    tasks.put(partial(int, 2), taken.append, size=1000)
    assert taken == [0, 1]


def test_one_thread_is_the_callers(budget: MemoryBudget) -> None:
    alone = OrderedTasks(budget, 1)
    threads: list[threading.Thread] = []
    alone.put(threading.current_thread, threads.append, size=10)
    assert threads == [threading.current_thread()] and budget.used_bytes == 0


@pytest.mark.parametrize("threads", [1, 3])
def test_what_a_failed_task_held_is_released(budget: MemoryBudget, threads: int) -> None:
    tasks = OrderedTasks(budget, threads)
    inputs = [pinned(budget) for _ in range(2)]

    def fail() -> None:
        raise MemoryError("no more")

    with refuses(MemoryError):
        tasks.put(fail, lambda _: None, size=10, pins=inputs[0])
        tasks.put(partial(int, 2), lambda _: None, size=10, pins=inputs[1])
        tasks.flush()
    tasks.close()
    assert budget.held_bytes("chunks") == (10 if threads == 1 else 0), "the second was not put"
    inputs[1].free()
    assert budget.used_bytes == 0


def test_an_error_in_a_thread_ends_the_merge_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts, sort = log_like(4_000, 2), sort_schema("host,ts")
    fragments = [write_fragment(p, sort, WriterOptions(500)) for p in parts]
    merged = Merged(fragments, parts[0].schema, sort, max_rows=500, threads=2)
    calls: list[pa.Array] = []

    def failing(array: pa.Array, *, level: int, coding: Coding = Coding.OPEN) -> Chunk:
        assert threading.current_thread() is not threading.main_thread()
        calls.append(array)
        if len(calls) >= 4:
            raise MemoryError("no more")
        return make_chunk(array, level=level, coding=coding)

    def do(work: Work[Any]) -> bool:
        return threading.current_thread() is not threading.main_thread() and done(work)

    done = Work.do
    monkeypatch.setattr(Work, "do", do)
    monkeypatch.setattr(group_work, "make_chunk", failing)
    with refuses(MemoryError):
        merged.run()
    assert {output.state for output in merged.outputs} == {"aborted"}
    assert not working_threads()


@pytest.mark.parametrize("error", [LimitError, MemoryError, pa.ArrowInvalid])
def test_an_error_of_a_chunk_names_its_column(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    parts, sort = log_like(400, 2), sort_schema("host,ts")
    first = min(name for name in parts[0].schema.names if name not in ("host", "ts"))
    for place, column in enumerate(("host", "ts", first)):
        calls = itertools.count()

        def failing(
            *arguments: Any, place: int = place, calls: Iterator[int] = calls, **options: Any
        ) -> pa.Array:
            if next(calls) == place:
                raise error("too much")
            return gather(*arguments, **options)

        monkeypatch.setattr(group_work, "gather", failing)
        fragments = [write_fragment(p, sort) for p in parts]
        merged = Merged(fragments, parts[0].schema, sort, max_rows=1000, threads=1)
        with pytest.raises(error, match=f"^column '{column}': too much$"):
            merged.run()


def test_a_task_has_as_many_threads_as_cores_unless_the_settings_say_how_many() -> None:
    def threads(settings: CompactionSettings) -> int:
        spec = CompactionSpec(inputs=(), output_level=1)
        decided = Compaction(
            compaction_id=random_id(),
            base_version=1,
            table_url="memory:",
            metadata=None,  # type: ignore[arg-type]
            spec=spec,
            settings=settings,
        )
        return decided.with_cores(5).settings.memory().threads

    assert threads(CompactionSettings()) == 5
    assert threads(CompactionSettings(threads=2)) == 2


def test_an_error_in_a_thread_is_not_blamed_on_the_chunk_being_decoded() -> None:
    """A charge waits for the threads, also one for a chunk that takes more than its payload."""
    sort = sort_schema("k")
    table = pa.table({"k": range(5000), "v": [7] * 5000})
    data = write_fragment(table, sort, WriterOptions(5000))
    stream = FragmentStream(NonSeekableSource(data), "mem")
    while stream.next_key_group() is not None:
        pass
    stream.next_column()

    def fail(_size: int) -> None:
        raise MemoryError("of a thread")

    with pytest.raises(MemoryError, match="of a thread"):
        stream.next_chunk().decode(pa.int64(), reserve=fail)
