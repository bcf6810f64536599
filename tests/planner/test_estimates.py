"""What is predicted of a compaction, from records alone: no clock, no machine."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.planner.cost_model import ModelledCost, system_seconds
from compactor.planner.distinct_keys import key_pool, rows_of_keys
from compactor.planner.experience import Experience
from compactor.planner.spread import Spread
from compactor.table.compaction_record import MAX_MEASURED, CompactionRecord, measured_by

MIB = 1 << 20
BYTES_IN = 50_000_000
SYSTEM = system_seconds(130 * MIB, BYTES_IN)


def cost(cpu_seconds: float = 1.0, *, fresh: int = 1000, settled: int = 0) -> ModelledCost:
    return ModelledCost(
        cpu_seconds=cpu_seconds,
        grown_bytes=100 * MIB,
        live_rows=100,
        bytes_in=BYTES_IN,
        fresh_bytes=fresh,
        settled_bytes=settled,
        compression_level=1,
    )


def record(
    ratio: float,
    *,
    model: float = 1.0,
    slowness: float = 2.0,
    start: int = 90,
    system: float = 1.0,
) -> CompactionRecord:
    """Returns the record of a compaction that took `ratio` times the CPU time of the model.

    start: MiB of the process when it began. system: the system's time, for one of the model's.
    """
    cpu_seconds = model * ratio + system * SYSTEM
    return CompactionRecord(
        compaction_id="c",
        inputs=4,
        rows_out=80,
        live_rows=100,
        bytes_in=BYTES_IN,
        bytes_out=900,
        fresh_bytes=1000,
        seconds=cpu_seconds * slowness,
        cpu_seconds=cpu_seconds,
        system_cpu_seconds=system * SYSTEM,
        start_rss_bytes=start * MIB,
        peak_rss_bytes=(start + 130) * MIB,
        model_cpu_seconds=model,
        model_grown_bytes=100 * MIB,
        compression_level=1,
    )


numbers = st.integers(0, 2**63 - 1)
times = st.floats(0, 1e15)
records = st.lists(
    st.builds(
        CompactionRecord,
        compaction_id=st.just("c"),
        inputs=numbers,
        rows_out=numbers,
        live_rows=numbers,
        bytes_in=numbers,
        bytes_out=numbers,
        fresh_bytes=numbers,
        settled_bytes=numbers,
        seconds=times,
        cpu_seconds=times,
        system_cpu_seconds=times,
        start_rss_bytes=numbers,
        peak_rss_bytes=numbers,
        model_cpu_seconds=times,
        model_grown_bytes=numbers,
        compression_level=st.just(1),
    ),
    max_size=8,
)


@given(records=records, cpu_seconds=st.floats(1e-3, 1e6), live_rows=st.lists(numbers, max_size=4))
def test_any_records_give_finite_figures_in_order(
    records: list[CompactionRecord], cpu_seconds: float, live_rows: list[int]
) -> None:
    next_one = cost(cpu_seconds)
    experience = Experience.of(records, next_one)
    for spread in (
        experience.cpu_seconds(next_one),
        experience.seconds(next_one),
        experience.resident_bytes(next_one, 90 * MIB, 500 * MIB),
    ):
        assert 0 <= spread.low <= spread.likely <= spread.high < math.inf
    assert experience.bytes_out(next_one) >= 0
    assert experience.merged_bytes_out(next_one, live_rows) >= 0


@given(ratio=st.floats(0.1, 10), slowness=st.floats(0.5, 10), count=st.integers(1, MAX_MEASURED))
def test_a_table_whose_compactions_are_alike_costs_the_same_again(
    ratio: float, slowness: float, count: int
) -> None:
    experience = Experience.of([record(ratio, slowness=slowness)] * count, cost())
    assert experience.cpu_seconds(cost()).likely == pytest.approx(ratio + SYSTEM)
    assert experience.seconds(cost()).likely == pytest.approx((ratio + SYSTEM) * slowness)
    assert experience.resident_bytes(cost(), 90 * MIB, 500 * MIB).likely == pytest.approx(220 * MIB)
    assert experience.bytes_out(cost()) == 900
    assert experience.bytes_out(cost(fresh=500, settled=400)) == 400 + 450


def test_without_records_the_model_is_said_to_be_uncertain() -> None:
    experience = Experience.of([], cost())
    found = experience.seconds(cost())
    assert found.high / found.low > 10
    assert experience.resident_bytes(cost(), 90 * MIB, 700 * MIB).high == 790 * MIB
    assert experience.bytes_out(cost(fresh=10, settled=20)) == 30


@pytest.mark.parametrize("base", [90, 800])
def test_what_else_a_process_holds_is_not_taken_for_a_compactions(base: int) -> None:
    """Neither that of the process that compacted, nor that of the one that will."""
    records = [record(1.0, start=start) for start in (90, 1_500, 400)]
    predicted = Experience.of(records, cost()).resident_bytes(cost(), base * MIB, 500 * MIB)
    assert predicted.likely == (base + 130) * MIB


def test_compactions_of_similar_size_are_learned_from() -> None:
    small, large = [record(5.0, model=0.01)] * 6, [record(0.5, model=100.0)] * 6
    both = [*small, *large]
    for seconds, ratio in ((0.02, 5.0), (80.0, 0.5)):
        found = Experience.of(both, cost(seconds)).cpu_seconds(cost(seconds)).likely
        assert found == pytest.approx(ratio * seconds + SYSTEM)


def test_the_system_takes_longer_where_memory_grows_further() -> None:
    experience = Experience.of([record(1.0)], cost())
    heavier = replace(cost(), grown_bytes=10_000 * MIB)
    expected = 1.0 + system_seconds(10_030 * MIB, BYTES_IN)
    assert experience.cpu_seconds(heavier).likely == pytest.approx(expected)


def test_one_compaction_that_waited_for_its_pages_does_not_slow_the_next() -> None:
    """A host gives a virtual machine memory when it is first touched, and not again."""
    slow = record(1.0, system=20.0)
    assert Experience.of([slow], cost()).cpu_seconds(cost()).likely == pytest.approx(1.0 + SYSTEM)
    always = Experience.of([slow] * 4, cost()).cpu_seconds(cost())
    assert always.likely == pytest.approx(1.0 + 20 * SYSTEM)


def test_system_time_below_the_ticks_of_a_clock_is_taken_from_the_model() -> None:
    """A merge of 8 ms may be told to have spent 4 of them in the system, or none."""
    tiny = replace(record(0.01), cpu_seconds=0.01, system_cpu_seconds=0.004, bytes_in=50_000)
    tiny = replace(tiny, peak_rss_bytes=tiny.start_rss_bytes)
    next_one = replace(cost(0.01), bytes_in=50_000, grown_bytes=0)
    none = replace(tiny, system_cpu_seconds=0.0)
    found = [Experience.of([each], next_one).cpu_seconds(next_one) for each in (tiny, none)]
    assert found[0] == found[1]


def test_of_equally_similar_compactions_the_newest_count() -> None:
    old, new = [record(1.0)] * 8, [record(3.0)] * 5
    assert Experience.of([*old, *new], cost()).cpu_seconds(cost()).likely == pytest.approx(
        3.0 + SYSTEM
    )


def test_compactions_that_differ_give_a_wider_spread() -> None:
    alike = Experience.of([record(1.0)] * 5, cost()).seconds(cost())
    unlike = Experience.of([record(r) for r in (0.5, 0.7, 1.0, 1.5, 3.0)], cost()).seconds(cost())
    assert unlike.likely == pytest.approx(alike.likely)
    assert unlike.low < alike.low
    assert unlike.high > alike.high


def test_compactions_of_another_compression_level_teach_nothing() -> None:
    slow = [replace(record(40.0), compression_level=19)] * 6
    assert Experience.of(slow, cost()).cpu_seconds(cost()) == Experience.of([], cost()).cpu_seconds(
        cost()
    )
    found = Experience.of([*slow, record(2.0)], cost()).cpu_seconds(cost())
    assert found.likely == pytest.approx(2.0 + SYSTEM)


def test_a_few_fresh_bytes_are_not_what_changed_many_settled_ones() -> None:
    """A large fragment that was merged with ten rows, and takes less since."""
    tiny = replace(record(1.0), fresh_bytes=1_000, settled_bytes=35_000_000, bytes_out=24_000_000)
    next_one = cost(fresh=8_000_000, settled=25_000_000)
    assert Experience.of([tiny], next_one).bytes_out(next_one) == 33_000_000


def test_failed_compactions_teach_nothing() -> None:
    failed = CompactionRecord(compaction_id="f", failure="why", seconds=3.0)
    (kept,) = measured_by([failed, record(1.0)])
    assert kept.seconds == record(1.0).seconds


# --- rows of equal keys ---

counts = st.integers(1, 10**9)


@given(fragments=st.integers(2, 50), each=counts, share=st.floats(0.01, 1))
def test_the_pool_explains_the_rows_that_were_left(fragments: int, each: int, share: float) -> None:
    rows_in = fragments * each
    rows_out = max(each, round(rows_in * share))
    found = rows_of_keys([each] * fragments, key_pool(fragments, rows_in, rows_out))
    assert found == pytest.approx(rows_out, rel=1e-3)


@given(rows=st.lists(counts, min_size=1, max_size=8), pool=st.floats(1, 1e16))
def test_keys_are_at_least_those_of_the_largest_fragment_and_at_most_all(
    rows: list[int], pool: float
) -> None:
    found = rows_of_keys(rows, pool)
    assert max(rows) * (1 - 1e-9) <= found <= sum(rows) * (1 + 1e-9)


# --- spreads ---


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=9), st.floats(0, 1))
def test_a_widened_spread_holds_the_one_before(values: list[float], share: float) -> None:
    before = Spread.of(values)
    after = before.widened(share)
    assert after.low <= before.low <= before.likely == after.likely <= before.high <= after.high
