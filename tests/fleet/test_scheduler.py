"""The choice of the next merge: small first, fair between entries, and nothing waits for ever."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.fleet.scheduler import Shares, Waiting

MIB = 1 << 20


def waiting(table: str, entry: str = "e", **fields: object) -> Waiting:
    usual = Waiting(
        table=table,
        entry=entry,
        priority=0,
        share=1.0,
        since_unix_ms=0,
        longest_wait_seconds=900,
        next_bytes=MIB,
    )
    return replace(usual, **fields)


def chosen(shares: Shares, several: list[Waiting], now_unix_ms: int = 0) -> str:
    choice = shares.choose(several, now_unix_ms)
    assert choice is not None
    return choice.table


def test_nothing_is_chosen_where_nothing_waits() -> None:
    assert Shares().choose([], 0) is None


def test_the_smallest_merge_begins_first_and_a_higher_priority_before_it() -> None:
    tables = [
        waiting("big", next_bytes=9 * MIB),
        waiting("small"),
        waiting("middle", next_bytes=2 * MIB),
    ]
    assert chosen(Shares(), tables) == "small"
    assert chosen(Shares(), [*tables, waiting("dear", priority=1, next_bytes=99 * MIB)]) == "dear"


def test_what_has_waited_too_long_or_holds_up_writers_goes_before_all_that_has_not() -> None:
    late = waiting("late", next_bytes=999 * MIB, priority=-5)
    others = [
        waiting("new", since_unix_ms=800_000),
        waiting("dear", priority=9, since_unix_ms=800_000),
    ]
    assert chosen(Shares(), [late, *others], 899_999) == "dear"
    assert chosen(Shares(), [late, *others], 900_000) == "late"
    held = waiting("held", since_unix_ms=800_000, holds_up_writers=True)
    assert chosen(Shares(), [held, *others], 800_000) == "held"


def test_entries_have_work_by_their_shares_while_all_have_some() -> None:
    shares = Shares()
    work = [
        waiting("a", "a", share=3.0, next_bytes=100 * MIB),
        waiting("b", "b", next_bytes=100 * MIB),
    ]
    assert Counter(chosen(shares, work) for _ in range(400)) == {"a": 300, "b": 100}
    overdue = Counter(chosen(shares, work, 10_000_000) for _ in range(400))
    assert overdue == {"a": 300, "b": 100}


def test_an_entry_that_rested_saves_up_no_work() -> None:
    shares = Shares()
    a, b = waiting("a", "a"), waiting("b", "b")
    for _ in range(100):
        shares.choose([a], 0)
    assert Counter(chosen(shares, [a, b]) for _ in range(10)) == {"a": 5, "b": 5}


@given(st.integers(0, 2**32))
def test_nothing_starves_however_the_others_arrive(seed: int) -> None:
    """One table waits while others of any size, priority and entry come as an adversary likes."""
    random = Random(seed)
    share = {entry: random.choice([0.5, 1.0, 4.0]) for entry in "abc"}
    now = 0

    def arrival(name: str) -> Waiting:
        entry = random.choice("abc")
        return waiting(
            name, entry, share=share[entry], since_unix_ms=now, priority=random.randint(-9, 9),
            next_bytes=random.choice([0, MIB, 256 * MIB]), holds_up_writers=random.random() < 0.3,
        )  # fmt: skip

    victim = waiting("victim", "a", share=share["a"], next_bytes=256 * MIB, priority=-9)
    others = [arrival(f"first{number}") for number in range(random.randint(0, 5))]
    shares = Shares()
    # A merge takes a minute, so its time is up after 15. Then those of its entry that wait longer go first,
    # and for each of them at most so many merges of other entries: by sizes 16 to 1, by shares 8 to 1.
    bound = 15 + (len(others) + 1) * (1 + 2 * 8 * 16)
    for turn in range(bound):
        table = chosen(shares, [victim, *others], now)
        if table == "victim":
            return
        others = [each for each in others if each.table != table]
        now += 60_000
        others += [arrival(f"{turn}.{number}") for number in range(max(1, 3 - len(others)))]
    raise AssertionError("the table starves")


def test_an_entry_is_not_charged_for_a_merge_that_did_not_begin() -> None:
    shares, tables = Shares(), [waiting("a", "first"), waiting("b", "second")]
    for _ in range(5):
        choice = shares.choose(tables, 0)
        assert choice is not None
        assert choice.entry == "first"
        shares.take_back(choice)
    assert [chosen(shares, tables) for _ in range(2)] == ["a", "b"]
