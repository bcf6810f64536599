"""Intervals of ranks, lanes, and what reads cost: held against counting by hand."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from compactor.report.keyspace import MAX_BARS, MAX_LANES, KeyAxis, panel, read_cost
from compactor.table.key_text import key_text, key_types
from compactor.table.metadata import TableMetadata
from compactor.table.version import Operation
from tests.report.support import METADATA, MadeUp
from tests.support.fragments import sort_schema

RANGES = st.lists(
    st.tuples(st.integers(-20, 20), st.integers(0, 12)).map(lambda r: (r[0], r[0] + r[1])),
    min_size=1,
    max_size=14,
)


@given(RANGES)
def test_intervals_overlap_exactly_where_key_ranges_do(ranges: list[tuple[int, int]]) -> None:
    made = MadeUp()
    entries = [made.entry(first, last) for first, last in ranges]
    axis = KeyAxis(METADATA, entries)
    intervals = [axis.interval(entry) for entry in entries]
    for (first, last), (start, end) in zip(ranges, intervals, strict=True):
        assert 0 <= start < end <= len(axis)
        for (other_first, other_last), (other_start, other_end) in zip(
            ranges, intervals, strict=True
        ):
            overlap = first <= other_last and other_first <= last
            assert overlap == (start < other_end and other_start < end)


def test_a_damaged_fragment_with_its_keys_in_the_wrong_order_lies_between_them() -> None:
    made = MadeUp()
    entries = [made.entry(1, 3), made.entry(7, 2)]
    axis = KeyAxis(METADATA, entries)
    assert [axis.interval(entry) for entry in entries] == [(0, 3), (1, 4)]


@given(RANGES)
def test_reads_cost_what_counting_at_every_cell_says(ranges: list[tuple[int, int]]) -> None:
    made = MadeUp()
    entries = [made.entry(*ends, rows=1 + n) for n, ends in enumerate(ranges)]
    axis = KeyAxis(METADATA, entries)
    intervals = [axis.interval(entry) for entry in entries]
    depth = [sum(s <= cell < e for s, e in intervals) for cell in range(len(axis))]
    at_random_row = [
        entry.rows * sum(depth[start:end]) / (end - start)
        for entry, (start, end) in zip(entries, intervals, strict=True)
    ]
    starts, ends = np.array(intervals).T
    rows = np.array([entry.rows for entry in entries])
    cost = read_cost(starts, ends, rows, 3)
    assert (cost.sorted_runs, cost.worst_point_runs) == (3, max(depth))
    assert cost.mean_point_runs == pytest.approx(sum(at_random_row) / rows.sum())


@given(RANGES)
def test_no_bar_hides_another_and_there_are_no_more_lanes_than_needed(
    ranges: list[tuple[int, int]],
) -> None:
    made = MadeUp()
    made.ingest(*ranges)
    snapshot = made.log.latest
    axis = KeyAxis(METADATA, snapshot.fragments.all())
    drawn = panel(snapshot, axis)
    cells = [(bar.lane, cell) for bar in drawn.bars for cell in range(bar.start, bar.end)]
    assert len(cells) == len(set(cells))
    deepest = max(sum(a <= key <= b for a, b in ranges) for key in range(-20, 33))
    (level,) = drawn.levels
    assert (level.lanes, level.fragments) == (deepest, len(ranges)) or deepest > MAX_LANES
    assert len(drawn.bars) == len(ranges) == drawn.fragments


def drawn_level(ranges: list[tuple[int, int]]):
    made = MadeUp()
    entries = made.ingest(*ranges)
    axis = KeyAxis(METADATA, entries)
    return panel(made.log.latest, axis), [axis.interval(entry) for entry in entries]


def test_thousands_of_neighbours_are_drawn_together_and_all_are_counted() -> None:
    drawn, _ = drawn_level([(n * 10, n * 10 + 9) for n in range(5000)])
    assert len(drawn.bars) <= MAX_BARS
    assert sum(bar.fragments for bar in drawn.bars) == drawn.fragments == 5000
    assert sum(bar.rows for bar in drawn.bars) == 50_000
    ends = sorted((bar.start, bar.end) for bar in drawn.bars)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))


@pytest.mark.parametrize("spread", [0, 2000, 100_000])
def test_of_thousands_that_overlap_the_lanes_are_a_profile_of_how_many_do(spread: int) -> None:
    rng = random.Random(5)
    starts = [rng.randint(0, spread) for _ in range(3000)]
    drawn, intervals = drawn_level([(start, start + 1000) for start in starts])
    (level,) = drawn.levels
    cells = max(end for _, end in intervals)
    depth = np.zeros(cells, int)
    for start, end in intervals:
        depth[start:end] += 1
    share = level.fragments_per_lane
    assert share == -(-depth.max() // MAX_LANES) > 1
    assert level.lanes <= MAX_LANES
    assert len(drawn.bars) <= MAX_BARS
    for lane in range(level.lanes):
        covered = np.zeros(cells, bool)
        for bar in drawn.bars:
            if bar.lane == lane:
                covered[bar.start : bar.end] = True
                assert bar.fragments == depth[bar.start : bar.end].max()
        assert covered[depth > lane * share].all()
        if spread < 100_000:  # few enough intervals that none are drawn together
            assert not covered[depth <= lane * share].any()


def test_sizes_are_counted_by_level_and_power_of_two() -> None:
    made = MadeUp()
    entries = [made.entry(0, 1, rows=rows) for rows in (1, 1, 2, 4)]
    deep = made.entry(0, 1, level=1, rows=1)
    snapshot = made.commit(Operation.INGEST, [*entries, deep])
    sizes = panel(snapshot, KeyAxis(METADATA, [*entries, deep])).sizes
    assert [(s.level, s.lower_bytes, s.fragments) for s in sizes] == [
        (0, 512, 2), (0, 1024, 1), (0, 2048, 1), (1, 512, 1),
    ]  # fmt: skip


def test_labels_are_real_keys_of_every_type_shortened() -> None:
    table = TableMetadata(
        schema=pa.schema(
            [("s", pa.string()), ("t", pa.timestamp("ms", "UTC")), ("f", pa.float64())]
        ),
        sort=sort_schema("s,t:desc,f"),
    )
    made = MadeUp(table)
    keys = [("x" * 5000, 0, "NaN"), (None, None, None), ("a", 1_700_000_000_000, 1.5)]
    entries = [structs.replace(made.entry(0, 0), first_key=key, last_key=key) for key in keys]
    axis = KeyAxis(table, entries)
    ticks = [tick.parts for tick in axis.ticks()]
    assert ticks == [
        ("a", "2023-11-14T22:1…", "1.5"),
        ("x" * 15 + "…", "1970-01-01T00:0…", "NaN"),
        ("null", "null", "null"),
    ]
    assert len(axis.text(keys[0])) == 60


def test_keys_that_begin_alike_are_told_apart_by_their_ends() -> None:
    table = TableMetadata(schema=pa.schema([("url", pa.string())]), sort=sort_schema("url"))
    urls = [f"https://www.example.org/{'path/' * 40}{end}" for end in ("one", "two")]
    first, last = (key_text((url,), key_types(table.schema, table.sort)) for url in urls)
    assert first.startswith("https://www.example.org/") and first.endswith("path/one")
    assert last.endswith("path/two")
    assert len(first) == len(last) == 60
