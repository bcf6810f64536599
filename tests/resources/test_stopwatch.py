"""Seconds are counted once, for the innermost stage."""

from __future__ import annotations

from compactor.resources import stopwatch
from tests.support.wording import refuses


def test_what_runs_within_another_stage_is_not_counted_for_that_one() -> None:
    watch = stopwatch.Stopwatch(iter([0.0, 1.0, 4.0, 10.0]).__next__)
    with watch.on("order"), watch.on("decode"):
        pass
    assert watch.seconds == {"decode": 3.0, "order": 7.0}
    watch.move(2.0, "decode", "fetch wait")
    assert watch.seconds == {"decode": 1.0, "order": 7.0, "fetch wait": 2.0}
    watch.move(9.0, "decode", "fetch wait")
    assert watch.seconds["decode"] == 0.0
    watch.add({"order": 1.0, "encode": 2.0})
    assert watch.seconds == {"decode": 0.0, "order": 8.0, "fetch wait": 3.0, "encode": 2.0}


def test_a_stage_that_fails_is_counted_too() -> None:
    watch = stopwatch.Stopwatch()
    with refuses(ValueError), watch.on("gather"):
        raise ValueError("x")
    assert watch.seconds["gather"] >= 0


def test_a_stage_ends_where_the_next_begins() -> None:
    laps = stopwatch.Laps(iter([0.0, 1.0, 4.0, 10.0, 11.0]).__next__)
    for stage in ("gather", "encode", "gather"):
        laps.begin(stage)
    assert laps.seconds == {"gather": 1.0, "encode": 3.0}
    laps.end()
    assert laps.seconds == {"gather": 7.0, "encode": 3.0}
    laps.end()
    assert laps.seconds == {"gather": 7.0, "encode": 3.0}
