"""Windows of time and schedules: what they say, also when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compactor.fleet.times import Window, first_within, is_within, next_run

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

days = st.sampled_from(["", "mon ", "mon-fri ", "sat,sun ", "fri-mon "])
minutes = st.tuples(st.integers(0, 23), st.sampled_from([0, 1, 30, 59]))
times = st.integers(1_700_000_000_000, 1_800_000_000_000)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    start = draw(minutes)
    end = draw(minutes.filter(lambda end: end not in (start, (0, 0))))
    text = f"{draw(days)}{start[0]:02}:{start[1]:02}-{end[0]:02}:{end[1]:02}"
    return Window.parse(text)


def at(text: str, zone: ZoneInfo = BERLIN) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


def by_the_clock(window: Window, unix_ms: int, zone: ZoneInfo) -> bool:
    """Whether a clock on the wall shows a time of the window, in a zone without summer time."""
    local = datetime.fromtimestamp(unix_ms / 1000, zone)
    minute = local.hour * 60 + local.minute
    day = local.weekday()
    if window.start_minute < window.end_minute:
        return day in window.days and window.start_minute <= minute < window.end_minute
    return (day in window.days and minute >= window.start_minute) or (
        (day - 1) % 7 in window.days and minute < window.end_minute
    )


@given(windows(), times)
def test_a_time_is_in_a_window_if_the_clock_on_the_wall_shows_it(
    window: Window, unix_ms: int
) -> None:
    zone = ZoneInfo("UTC")
    assert is_within([window], unix_ms, zone) == by_the_clock(window, unix_ms, zone)


@given(
    st.lists(windows(), min_size=1, max_size=3), times, st.sampled_from([BERLIN, ZoneInfo("UTC")])
)
def test_the_first_time_in_a_window_is_in_it_and_none_before_is(
    several: list[Window], unix_ms: int, zone: ZoneInfo
) -> None:
    first = first_within(several, unix_ms, zone)
    assert unix_ms <= first <= unix_ms + 9 * DAY_MS
    assert is_within(several, first, zone)
    if first > unix_ms:
        assert not is_within(several, unix_ms, zone)
        assert not is_within(several, first - 1, zone)


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    window = [Window.parse("fri 22:00-06:00")]
    assert not is_within(window, at("2026-11-27T21:59"), BERLIN)
    assert is_within(window, at("2026-11-27T22:00"), BERLIN)
    assert is_within(window, at("2026-11-28T05:59"), BERLIN)
    assert not is_within(window, at("2026-11-28T06:00"), BERLIN)
    assert not is_within(window, at("2026-11-29T01:00"), BERLIN)


def test_summer_time_shortens_and_lengthens_a_night() -> None:
    [night] = [Window.parse("00:00-06:00")]

    def hours(day: str) -> float:
        start, end = next(
            s for s in night.spans(at(f"{day}T00:00"), BERLIN) if s[0] == at(f"{day}T00:00")
        )
        return (end - start) / HOUR_MS

    assert [hours(day) for day in ("2026-03-28", "2026-03-29", "2026-10-25")] == [6, 5, 7]


@given(st.text("ab/", min_size=1), st.integers(60, 200_000), st.lists(windows(), max_size=2), times)
@example("a", 86_400, [Window.parse("01:00-05:00")], 1_764_000_000_000)
def test_a_chore_is_due_in_a_window_at_the_same_times_from_wherever_one_begins(
    name: str, every: int, several: list[Window], unix_ms: int
) -> None:
    due = next_run(name, every, several, unix_ms, UTC)
    assert due > unix_ms
    assert not several or is_within(several, due, UTC)
    # A restart in between changes nothing.
    assert next_run(name, every, several, (unix_ms + due) // 2, UTC) == due
    if not several:
        assert due <= unix_ms + every * 1000
        assert next_run(name, every, several, due, UTC) == due + every * 1000


def test_a_thousand_chores_are_spread_over_their_time() -> None:
    now = 1_764_000_000_000
    due = [next_run(f"s3://lake/t{number}", 86_400, (), now, UTC) for number in range(1_000)]
    by_hour = [
        sum(0 <= (moment - now) // HOUR_MS - hour < 1 for moment in due) for hour in range(24)
    ]
    assert sum(by_hour) == 1_000
    assert max(by_hour) < 80


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("22-6", "is not a window of time"),
        ("25:00-26:00", "25:00 is no time of a day"),
        ("12:60-13:00", "12:60 is no time of a day"),
        ("08:00-08:00", "a window ends after it begins"),
        ("24:00-06:00", "a window ends after it begins"),
        ("monday 08:00-09:00", "no day 'monday'"),
        ("mon-funday 08:00-09:00", "no day 'funday'"),
    ],
)
def test_what_is_no_window_is_refused_with_the_right_form(text: str, cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        Window.parse(text)
