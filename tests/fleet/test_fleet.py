"""A worker over a fleet: what it finds, asks, begins, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from compactor.compaction.driver import Driver
from compactor.errors import ConfigError, StoreUnreachableError
from compactor.fleet import finding
from compactor.fleet.chores import Chore, Job
from compactor.fleet.config import Entry, PublishRules, RetentionRules, VacuumRules
from compactor.fleet.state import State
from compactor.fleet.times import Window, is_within
from compactor.stores.base import Folder, ObjectInfo
from compactor.table.commit_log import CommitLog
from tests.fleet.support import MemoryFleet, MemoryFolder, Settled, Slowly, TableStore
from tests.support.clocks import Time

EAGER = (("level0_trigger_runs", 2),)
ALL = Entry(at="memory://lake/*", properties=EAGER)
DUE = 2
"""Appends that make a merge due."""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> MemoryFolder:
    folder = MemoryFolder(Time())

    def open_folder(url: str) -> Folder:
        assert url == folder.url
        return folder

    monkeypatch.setattr(finding, "open_store", open_folder)
    return folder


def fill(folder: MemoryFolder, path: str, appends: int = DUE) -> None:
    for number in range(appends):
        folder.append(path, number)


def failing(*_: object, **__: object) -> Iterator[ObjectInfo]:
    raise StoreUnreachableError("no answer")


def test_tables_are_found_as_they_appear_compacted_and_forgotten_when_they_go(
    folder: MemoryFolder,
) -> None:
    fill(folder, "a")
    fleet = MemoryFleet(folder, Settled(ALL))
    fleet.run(30)
    assert folder.fragments("a") == 1
    fill(folder, "b")
    fleet.run(120)
    assert folder.fragments("b") == 1
    del folder.tables["a"]
    fleet.run(200)
    assert fleet.heard.events == [
        ("joined", "memory://lake/a", ALL.at),
        ("joined", "memory://lake/b", ALL.at),
        ("left", "memory://lake/a"),
    ]
    assert [state.table for state in fleet.fleet.states()] == ["memory://lake/b"]


def test_a_pattern_that_matches_nothing_is_told_once_and_when_it_does(
    folder: MemoryFolder,
) -> None:
    fleet = MemoryFleet(folder, Settled(ALL))
    fleet.run(200)
    assert fleet.heard.events == [("awaited", ALL.at)]
    fill(folder, "a")
    fleet.run(200)
    assert fleet.heard.events[1:] == [("found", ALL.at), ("joined", "memory://lake/a", ALL.at)]


def test_a_pattern_that_the_file_has_no_more_is_awaited_no_more(folder: MemoryFolder) -> None:
    source = Settled(ALL, Entry(at="memory://lake/no-*/tables"))
    fleet = MemoryFleet(folder, source)
    fill(folder, "a")
    fleet.run(60)
    source.change(ALL)
    fleet.run(60)
    told = [event for event in fleet.heard.events if event[1].startswith("memory://lake/no")]
    assert told == [(kind, "memory://lake/no-*/tables") for kind in ("awaited", "forgotten")]


def test_a_pattern_is_not_missed_while_its_store_does_not_answer(
    folder: MemoryFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryFolder, "folders", failing)
    fleet = MemoryFleet(folder, Settled(ALL))
    fleet.run(100)
    assert {event[0] for event in fleet.heard.events} == {"warned"}


def test_a_table_belongs_to_the_first_entry_that_matches_and_has_its_settings(
    folder: MemoryFolder,
) -> None:
    for path in ("logs-a", "logs-tmp", "rest"):
        fill(folder, path)
    logs = Entry(at="memory://lake/logs-*", but_not=("*-tmp",), properties=EAGER)
    lazy = Entry(at="memory://lake/*")
    fleet = MemoryFleet(folder, Settled(logs, lazy))
    fleet.run(60)
    assert {path: folder.fragments(path) for path in folder.tables} == {
        "logs-a": 1, "logs-tmp": DUE, "rest": DUE,
    }  # fmt: skip
    assert {state.table[-4:]: state.entry for state in fleet.fleet.states()} == {
        "gs-a": logs.at, "-tmp": lazy.at, "rest": lazy.at,
    }  # fmt: skip


def remade(folder: MemoryFolder, path: str, appends: int) -> None:
    """Deletes a table, and makes another in its place."""
    fill(folder, "new", appends)
    folder.tables[path].objects.clear()
    folder.tables[path].objects.update(folder.tables.pop("new").objects)


def test_a_table_that_was_deleted_and_made_anew_is_compacted_again(folder: MemoryFolder) -> None:
    fill(folder, "a")
    fleet = MemoryFleet(folder, Settled(ALL))
    fleet.run(30)
    version = CommitLog(folder.tables["a"]).current().version
    assert version > DUE
    for appends in (DUE, version):  # as many versions, too
        remade(folder, "a", appends)
        fleet.run(300)
        assert folder.fragments("a") == 1


def test_a_table_that_was_deleted_while_it_waited_keeps_no_other_waiting(
    folder: MemoryFolder,
) -> None:
    gone = Entry(at="memory://lake/[z]", properties=EAGER)
    for path in ("z", "x1", "x2", "x3"):
        fill(folder, path)
    others = Entry(at="memory://lake/x*", properties=EAGER)
    fleet = MemoryFleet(folder, Settled(gone, others), merge_seconds=20)
    fleet.run(1)
    folder.tables["z"].objects.clear()
    fleet.run(300)
    assert [folder.fragments(path) for path in ("x1", "x2", "x3")] == [1, 1, 1]


def test_folders_without_a_log_are_no_tables(folder: MemoryFolder) -> None:
    folder.tables["empty"] = folder.within("empty")  # type: ignore[assignment]
    fleet = MemoryFleet(folder, Settled(ALL))
    fleet.run(300)
    assert fleet.heard.events == []
    assert [state.state for state in fleet.fleet.states()] == [State.NEW]


def test_new_rules_make_no_table_of_a_folder_without_a_log(folder: MemoryFolder) -> None:
    fill(folder, "a")
    folder.tables["no table"] = TableStore(f"{folder.url}/no table", folder.clock)
    source = Settled(Entry(at=ALL.at))
    fleet = MemoryFleet(folder, source)
    fleet.run(30)
    before = {state.table: state.state for state in fleet.fleet.states()}
    source.change(ALL)
    fleet.run(30)
    assert folder.fragments("a") == 1
    assert {state.table: state.state for state in fleet.fleet.states()} == before
    assert before["memory://lake/no table"] == State.NEW


def test_tables_at_rest_are_asked_less_and_less_often(folder: MemoryFolder) -> None:
    fill(folder, "a", 1)
    fleet = MemoryFleet(folder, Settled(ALL))
    fleet.run(100)
    at_first = folder.asked.total()
    fleet.run(3600)
    folder.asked.clear()
    fleet.run(3600)
    assert at_first > 100 / 5 / 2
    assert folder.asked.total() <= 3600 / 60 + 1


def test_a_change_of_the_file_counts_at_once_and_a_bad_one_leaves_all_as_it_was(
    folder: MemoryFolder,
) -> None:
    fill(folder, "a")
    source = Settled(Entry(at=ALL.at))
    fleet = MemoryFleet(folder, source)
    fleet.run(60)
    source.spoil(ConfigError("fleet.yaml, line 3: no"))
    fleet.run(60)
    assert folder.fragments("a") == DUE
    source.change(ALL)
    fleet.run(10)
    assert folder.fragments("a") == 1
    assert fleet.heard.events[1:] == [
        ("warned", "the file as it was still counts", "fleet.yaml, line 3: no"),
        ("reloaded", "1"),
    ]


def test_no_pause_is_so_long_that_the_worker_seems_stalled(folder: MemoryFolder) -> None:
    fill(folder, "a", 1)
    names = ("poll_seconds", "slowest_poll_seconds", "find_seconds", "report_seconds")
    fleet = MemoryFleet(folder, Settled(ALL, **dict.fromkeys(names, 3600.0)))
    fleet.run(60)
    assert fleet.fleet.turns(1) == []
    assert fleet.fleet.pause_seconds() == 10


def test_no_merge_begins_in_quiet_hours_and_waiting_is_shown(folder: MemoryFolder) -> None:
    fill(folder, "a")
    # The clock begins at 16:00 UTC.
    quiet = replace(ALL, quiet=(Window.parse("15:00-17:00"),))
    fleet = MemoryFleet(folder, Settled(quiet))
    fleet.run(3500)
    assert folder.fragments("a") == DUE
    [state] = fleet.heard.states
    assert (state.state, state.due) == (State.QUIET, 1)
    assert state.waiting_seconds > 3300
    fleet.run(200)
    assert folder.fragments("a") == 1


def test_a_table_in_quiet_hours_that_has_to_be_merged_alone_holds_up_no_other(
    folder: MemoryFolder,
) -> None:
    fill(folder, "a")
    quiet = Entry(at="memory://lake/[a]", quiet=(Window.parse("15:00-17:00"),), properties=EAGER)
    fleet = MemoryFleet(folder, Settled(quiet, ALL))
    fleet.run(30)
    driver = fleet.fleet._roster.members["memory://lake/a"].driver
    assert driver is not None
    driver.waits_for_quiet = True
    fill(folder, "b")
    fleet.run(120)
    assert [folder.fragments(path) for path in ("a", "b")] == [DUE, 1]


@pytest.mark.parametrize("change", ["has_left", "has_new_rules"])
def test_a_table_that_left_or_has_new_rules_begins_nothing_until_its_driver_is_closed(
    folder: MemoryFolder, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(folder, "a", 1)
    fleet = MemoryFleet(folder, Settled(ALL)).fleet
    fleet.turns(1)
    [(driver, _)] = fleet.turns(1)
    [member] = fleet._roster.members.values()
    member.is_to_look, member.left_bytes = False, (1,)
    running = 1
    monkeypatch.setattr(Driver, "running", property(lambda _: running))
    monkeypatch.setattr(Driver, "is_at_rest", property(lambda _: False))
    assert [most for _, most in fleet.turns(1)] == [1]
    setattr(member, change, True)
    assert fleet.turns(1) == []
    assert fleet.closed() == []
    running = 0
    fleet.turns(1)
    assert fleet.closed() == [driver]


def test_a_store_that_does_not_answer_is_told_and_asked_again(folder: MemoryFolder) -> None:
    fill(folder, "a", 1)
    fleet = MemoryFleet(folder, Settled(ALL))
    fleet.run(30)
    folder.is_reachable = False
    folder.append("a", 9)
    fleet.run(600)
    told = [event[1] for event in fleet.heard.events if event[0] == "warned"]
    assert f"tables of {ALL.at} were not looked for" in told
    assert "memory://lake/a" in told
    assert [state.state for state in fleet.fleet.states()] == [State.FAILING]
    folder.is_reachable = True
    fleet.run(400)
    assert folder.fragments("a") == 1


def test_an_entry_that_cannot_be_listed_keeps_no_other_waiting(
    folder: MemoryFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(folder, "a")
    gone = MemoryFolder(folder.clock)
    gone.url, gone.is_reachable = "memory://gone", False
    folders = {folder.url: folder, gone.url: gone}
    monkeypatch.setattr(finding, "open_store", folders.__getitem__)
    fleet = MemoryFleet(folder, Settled(Entry(at="memory://gone/*"), ALL))
    fleet.run(30)
    assert folder.fragments("a") == 1


def test_a_table_joins_no_later_entry_while_the_first_that_may_match_cannot_be_listed(
    folder: MemoryFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(folder, "a")
    first = Entry(at="memory://lake/[ab]")
    listed, answers = finding.Pattern.places, False

    def some(pattern: finding.Pattern) -> Iterator[finding.Place]:
        if pattern.entry == first and not answers:
            raise StoreUnreachableError("no answer")
        return listed(pattern)

    monkeypatch.setattr(finding.Pattern, "places", some)
    fleet = MemoryFleet(folder, Settled(first, ALL))
    fleet.run(30)
    assert fleet.fleet.states() == []
    answers = True
    fleet.run(60)
    assert [state.entry for state in fleet.fleet.states()] == [first.at]
    answers = False
    fleet.run(120)
    assert [state.entry for state in fleet.fleet.states()] == [first.at]


def test_a_table_that_fails_and_leaves_is_forgotten(folder: MemoryFolder) -> None:
    fill(folder, "a", 1)
    fleet = MemoryFleet(folder, Settled(ALL))
    fleet.run(30)
    folder.append("a", 9)
    folder.tables["a"].list = failing  # type: ignore[method-assign]
    [member] = fleet.fleet._roster.members.values()
    member.is_to_look = True
    fleet.run(2)
    assert member.retry_ms is not None
    del folder.tables["a"]
    fleet.run(200)
    assert fleet.heard.events[-1] == ("left", "memory://lake/a")


def test_new_rules_count_at_once_for_a_table_that_fails(folder: MemoryFolder) -> None:
    fill(folder, "a")
    source = Settled(Entry(at=ALL.at))
    fleet = MemoryFleet(folder, source)
    fleet.run(30)
    store = folder.tables["a"]
    listed, store.list = store.list, failing  # type: ignore[method-assign]
    [member] = fleet.fleet._roster.members.values()
    member.is_to_look = True
    fleet.run(2)
    assert member.retry_ms is not None
    store.list = listed  # type: ignore[method-assign]
    source.change(ALL)
    fleet.run(60)
    assert folder.fragments("a") == 1


def test_2_000_failures_in_a_row_give_the_longest_pause(folder: MemoryFolder) -> None:
    fill(folder, "a", 1)
    fleet = MemoryFleet(folder, Settled(replace(ALL, vacuum=VacuumRules(every=60))))
    fleet.failing_chores.add("memory://lake/a")
    fleet.run(30)
    [member] = fleet.fleet._roster.members.values()
    member.failures = fleet.fleet._agenda._failures[member.url, Chore.VACUUM] = 2000
    folder.is_reachable = False
    fleet.run(300)
    assert fleet.heard.retry_seconds[member.url] == 300
    assert fleet.heard.retry_seconds[f"vacuum of {member.url}"] == 3600


def test_a_vacuum_that_failed_is_tried_again_only_in_its_windows(folder: MemoryFolder) -> None:
    fill(folder, "a", 1)
    vacuum = VacuumRules.model_validate({"every": 86_400, "between": "17:00-17:10"})
    entry = replace(ALL, vacuum=vacuum)
    fleet = MemoryFleet(folder, Settled(entry))
    fleet.failing_chores.add("memory://lake/a")
    fleet.run(3 * 86_400)
    ended = [when for _, _, when in fleet.heard.chores]
    assert len(ended) > 3
    assert all(is_within(vacuum.between, when, ZoneInfo("UTC")) for when in ended)


def test_vacuums_run_on_schedule_and_what_fails_is_tried_again(folder: MemoryFolder) -> None:
    fill(folder, "a", 1)
    fill(folder, "b", 1)
    entry = replace(ALL, vacuum=VacuumRules(every=3600))
    fleet = MemoryFleet(folder, Settled(entry))
    fleet.failing_chores.add("memory://lake/b")
    fleet.run(4 * 3600)
    ended = {
        table: [w for t, _, w in fleet.heard.chores if t == table]
        for table, _, _ in fleet.heard.chores
    }
    well, failing = ended["memory://lake/a"], ended["memory://lake/b"]
    assert len(well) == 4
    assert all(abs(b - a - 3_600_000) < 61_000 for a, b in pairwise(well))
    # Again after one minute, two, four and so on, an hour at most.
    pauses = [round((b - a) / 60_000) for a, b in pairwise(failing)]
    assert pauses[:6] == sorted(pauses[:6])
    assert pauses[0] in (1, 2)
    assert max(pauses) <= 61
    assert {chore for _, chore, _ in fleet.heard.chores} == {Chore.VACUUM}


PUBLISH = PublishRules.model_validate({"to": "memory://lake", "as": "delta"})


@pytest.mark.parametrize("seconds", [0.01, 0.4])
def test_chores_that_are_due_follow_each_other_without_a_pause(
    folder: MemoryFolder, seconds: float
) -> None:
    for number in range(40):
        fill(folder, f"t{number}", 1)
    runner = Slowly(folder.clock, seconds)
    entry = replace(ALL, publish=PUBLISH)
    fleet = MemoryFleet(folder, Settled(entry), runner=runner)
    fleet.run(40 * (seconds * 1.25 + 0.06) + 1)
    assert sorted(table for table, _, _ in fleet.heard.chores) == sorted(
        f"memory://lake/t{number}" for number in range(40)
    )
    fleet.run(600)
    assert len(fleet.heard.chores) == 40  # each version once


def test_chores_follow_each_other_while_a_long_merge_runs(folder: MemoryFolder) -> None:
    for number in range(40):
        fill(folder, f"t{number}", 1)
    fill(folder, "t0", 1)
    fleet = MemoryFleet(
        folder,
        Settled(replace(ALL, publish=PUBLISH)),
        merge_seconds=120,
        runner=Slowly(folder.clock, 0.4),
        is_beside=True,
    )
    fleet.run(40)
    assert folder.fragments("t0") == 2
    assert {table for table, _, _ in fleet.heard.chores} == set(fleet.fleet._roster.members)
    fleet.run(120)
    assert folder.fragments("t0") == 1


def test_a_chore_starts_when_it_is_due_and_not_after_the_pause(folder: MemoryFolder) -> None:
    for name in "abcd":
        fill(folder, name, 1)
    rules = PUBLISH.model_copy(update={"every": 2.0})
    fleet = MemoryFleet(folder, Settled(replace(ALL, publish=rules, vacuum=VacuumRules(every=2.0))))
    fleet.run(60)
    fleet.heard.chores.clear()
    fleet.run(60)
    ended = Counter(table for table, _, _ in fleet.heard.chores)
    assert ended == {f"memory://lake/{name}": 30 for name in "abcd"}


def test_a_long_chore_costs_few_rounds_beyond_those_without_one(folder: MemoryFolder) -> None:
    fill(folder, "a", 1)
    rounds = []
    for vacuum in (None, VacuumRules(every=3600)):
        runner = Slowly(folder.clock, 1800)
        fleet = MemoryFleet(folder, Settled(replace(ALL, vacuum=vacuum)), runner=runner)
        fleet.run(60)
        asked = runner.asked
        fleet.run(2 * 3600)
        rounds.append(runner.asked - asked)
    assert len(fleet.heard.chores) in (1, 2)
    assert rounds[1] < rounds[0] + 100


def test_merges_begin_while_chores_are_always_due(folder: MemoryFolder) -> None:
    for number in range(20):
        fill(folder, f"t{number}", 1)
    entry = replace(ALL, vacuum=VacuumRules(every=1.0))
    fleet = MemoryFleet(folder, Settled(entry), runner=Slowly(folder.clock, 2.0))
    fleet.run(60)
    fill(folder, "t7", 1)
    fleet.run(30)
    assert folder.fragments("t7") == 1


def test_no_version_is_published_again_because_the_copy_knew_of_it_first(
    folder: MemoryFolder,
) -> None:
    """A publication reads the newest version, of which the fleet may hear a minute later."""
    fill(folder, "a", 1)
    runner = Slowly(folder.clock, 10)
    source = Settled(Entry(at=ALL.at, publish=PUBLISH), poll_seconds=60.0)
    fleet = MemoryFleet(folder, source, runner=runner)
    fleet.run(3)
    assert not runner.is_free
    folder.append("a", 7)
    fleet.run(600)
    assert len(fleet.heard.chores) == 1


class ReadsAtOnce(Slowly):
    """Reads the table when a chore starts, and takes `seconds` from then on."""

    def start(self, job: Job) -> None:
        report = job.run()
        super().start(Job(job.table, job.chore, lambda: report))


def test_a_table_that_was_replaced_during_a_publication_is_published(folder: MemoryFolder) -> None:
    fill(folder, "a", 9)
    runner = ReadsAtOnce(folder.clock, 120)
    source = Settled(Entry(at=ALL.at, publish=PUBLISH))
    fleet = MemoryFleet(folder, source, runner=runner)
    fleet.run(3)
    assert not runner.is_free
    remade(folder, "a", 2)
    fleet.run(600)
    assert len(fleet.heard.chores) == 2


def test_retention_is_looked_for_without_news(folder: MemoryFolder) -> None:
    fill(folder, "a", 1)
    entry = replace(ALL, retention=RetentionRules(every=600))
    fleet = MemoryFleet(folder, Settled(entry))
    fleet.run(60)
    store = folder.tables["a"]
    looks = 0
    listed = store.list

    def counting(prefix: str, **options: object):
        nonlocal looks
        looks += prefix == "_checkpoint/" or "start_after" in options
        return listed(prefix, **options)  # type: ignore[arg-type]

    store.list = counting  # type: ignore[method-assign]
    asked = folder.asked.total()
    fleet.run(3600)
    assert looks - (folder.asked.total() - asked) >= 5


def test_entries_get_merges_by_their_shares(folder: MemoryFolder) -> None:
    for number in range(40):
        fill(folder, f"a{number}")
        fill(folder, f"b{number}")
    entries = [
        Entry(at=f"memory://lake/{name}*", properties=EAGER, share=share)
        for name, share in (("a", 3.0), ("b", 1.0))
    ]
    fleet = MemoryFleet(folder, Settled(*entries), merge_seconds=20)
    fleet.run(45 * 20)
    first = [table.rpartition("/")[2][0] for table in fleet.heard.begun][8:40]
    assert 21 <= first.count("a") <= 27


def test_a_thousand_small_tables_in_one_worker(folder: MemoryFolder) -> None:
    changed = range(0, 1000, 50)
    folder.append("t0000", 0)
    for number in range(1, 1000):
        folder.copy("t0000", f"t{number:04}")
    fleet = MemoryFleet(folder, Settled(ALL), merge_seconds=0.5)
    fleet.run(60)
    assert all(state.state is State.AT_REST for state in fleet.fleet.states())
    assert len(fleet.fleet._open) <= 80  # the snapshots of the others are not kept
    folder.clock.sleep(3600)
    fleet.run(10)
    folder.asked.clear()
    folder.listed = 0
    for number in changed:
        folder.append(f"t{number:04}", 5)
    fleet.run(180)
    assert len(fleet.fleet.states()) == 1000
    assert sorted(fleet.heard.begun) == [f"memory://lake/t{number:04}" for number in changed]
    assert all(folder.fragments(f"t{number:04}") == 1 for number in changed)
    assert fleet.heard.longest_wait < 60
    # Few requests: tables at rest are asked once a minute, those that changed more often.
    assert folder.asked.total() < 4 * 1000 + 40 * len(changed)
    assert folder.listed <= 4
