"""The sources of rows are counted, divided and renumbered as plain Python does it."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lsm_fragment.native.arrays.integers import count_within
from lsm_fragment.native.gather import origins as native
from tests.support.wording import refuses

ORIGINS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), max_size=30).map(
    lambda runs: [source for source, rows in runs for _ in range(rows)]
)


@given(ORIGINS)
def test_sources_are_those_of_plain_python(sources: list[int]) -> None:
    origins, counts = np.array(sources, np.uint16), np.empty(6, np.int64)
    runs = [(source, len(list(rows))) for source, rows in itertools.groupby(sources)]
    assert native.count(origins, counts) == len(runs)
    assert counts.tolist() == [sources.count(source) for source in range(6)]
    found, lengths = np.empty(len(runs), np.uint16), np.empty(len(runs), np.uint32)
    native.divide(origins, found, lengths)
    assert list(zip(found.tolist(), lengths.tolist(), strict=True)) == runs
    places, out = np.array([3, 1, 4, 15, 9, 2], np.uint16), np.empty(len(sources), np.uint16)
    native.renumber(origins, places, out)
    assert out.tolist() == [places[source] for source in sources]


def test_long_orders_are_counted_without_the_gil() -> None:
    origins, counts = np.arange(100_000, dtype=np.uint16) % 7, np.empty(7, np.int64)
    assert native.count(origins, counts) == 100_000
    assert counts.tolist() == np.bincount(origins).tolist()


def test_sources_that_there_are_not_are_refused() -> None:
    origins = np.array([0, 3], np.uint16)
    places, out = np.zeros(3, np.uint16), np.zeros(2, np.uint16)
    with refuses(ValueError):
        native.count(origins, np.zeros(3, np.int64))
    with refuses(ValueError):
        native.renumber(origins, places, out)
    with refuses(ValueError):
        native.renumber(origins, np.zeros(4, np.uint16), out[:1].copy())
    with refuses(ValueError):
        native.divide(origins, out[:1].copy(), np.zeros(1, np.uint32))
    with refuses(ValueError):
        native.divide(origins, out, np.zeros(1, np.uint32))


@given(st.lists(st.integers(0, 100)), st.integers(0, 1000))
def test_leading_sizes_are_counted_up_to_a_total(sizes: list[int], most: int) -> None:
    totals = itertools.accumulate(sizes)
    expected = sum(1 for total in totals if total <= most)
    assert count_within(np.array(sizes, np.int64), most) == expected
