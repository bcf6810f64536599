"""Compactions run where they end first: in the process that asks, or on Spark."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compactor.planner.estimate import Estimate
from compactor.planner.place import SPARK_START_SECONDS, place_of
from compactor.planner.spread import Spread


def predicted(*seconds: float) -> list[Estimate]:
    return [Estimate(cpu_seconds=Spread(s, s, s), task_seconds=Spread(s, s, s)) for s in seconds]


def test_a_small_plan_runs_in_this_process() -> None:
    place = place_of(predicted(0.2, 0.3), slots=8, lacks=None)
    assert not place.is_on_spark
    assert "2 compactions, less than 1 s of work" in place.why


def test_many_long_compactions_run_on_spark() -> None:
    place = place_of(predicted(*[10.0] * 40), slots=8, lacks=None)
    assert place.is_on_spark
    assert "8 at a time: 40 compactions, about 400 s of work" in place.why


def test_one_long_compaction_gains_nothing_from_spark() -> None:
    assert not place_of(predicted(10_000.0), slots=64, lacks=None).is_on_spark


def test_where_spark_cannot_start_nothing_runs_on_it() -> None:
    place = place_of(predicted(*[10.0] * 40), slots=8, lacks="there is no Java")
    assert not place.is_on_spark
    assert place.why.startswith("in this process, since there is no Java: ")


@given(st.lists(st.floats(0, 1e6), max_size=20), st.integers(1, 64))
def test_spark_is_chosen_only_where_it_saves_more_than_its_start(
    seconds: list[float], slots: int
) -> None:
    saved = sum(seconds) - max(max(seconds, default=0.0), sum(seconds) / slots)
    if place_of(predicted(*seconds), slots=slots, lacks=None).is_on_spark:
        assert slots > 1
        assert saved > SPARK_START_SECONDS


@given(st.lists(st.floats(0, 1e6), max_size=20), st.integers(1, 64), st.floats(0, 1e6))
def test_one_more_compaction_never_takes_the_others_off_spark_if_it_is_no_longer_than_them(
    seconds: list[float], slots: int, more: float
) -> None:
    if place_of(predicted(*seconds), slots=slots, lacks=None).is_on_spark:
        longer = [*seconds, min(more, max(seconds))]
        assert place_of(predicted(*longer), slots=slots, lacks=None).is_on_spark
