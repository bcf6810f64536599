"""Tags name versions, which vacuums keep until the tags end."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from compactor import Policy, Strategy, Table
from compactor.errors import StoreError, UsageError, VersionNotFoundError
from compactor.settings.vacuum import VacuumSettings
from compactor.table.commit_log import CommitLog
from compactor.table.vacuum import vacuum
from compactor.write.tags import end_tag, set_tag
from tests.faults import LoseAnswer, Refuse, Stall, calls
from tests.support.clocks import SetClock
from tests.support.memory_store import MemoryStore
from tests.support.tables import COMMITS, open_table
from tests.support.wording import refuses

FULL = Policy(strategy=Strategy.FULL)
NOTHING_KEPT = VacuumSettings(grace_seconds=0, retain_seconds=0, deleters=1)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def rows_of(first: int) -> pa.Table:
    return pa.table({"k": list(range(first, first + 10))})


def filled(store: MemoryStore, clock: SetClock) -> Table:
    table = open_table(store, clock)
    table._ingest(rows_of(0), "k", None)
    for first in (10, 20):
        table.append(rows_of(first))
    return table


def vacuumed(store: MemoryStore, clock: SetClock) -> Table:
    """Compacts, and removes all that may go."""
    table = open_table(store, clock)
    table.compact(policy=FULL)
    vacuum(CommitLog(store, clock), NOTHING_KEPT)
    return open_table(store, clock)


def keys_at(store: MemoryStore, clock: SetClock, **moment: Any) -> list[int]:
    log = CommitLog(store, clock)
    keys: list[int] = Table(log, log.at(**moment)).scan(["k"]).to_table()["k"].to_pylist()
    return keys


def test_a_tagged_version_outlives_vacuums_and_those_around_it_do_not(
    store: MemoryStore, clock: SetClock
) -> None:
    filled(store, clock)
    log = CommitLog(store, clock)
    set_tag(log, "two", log.at(2))
    table = vacuumed(store, clock)
    assert table._snapshot.oldest > 3
    assert keys_at(store, clock, tag="two") == keys_at(store, clock, version=2) == list(range(20))
    for version in (1, 3):
        with refuses(VersionNotFoundError, f"no version {version}", "and 2, which tags name"):
            keys_at(store, clock, version=version)
    table.append(rows_of(30))
    for _ in range(3):
        table = vacuumed(store, clock)
    assert keys_at(store, clock, tag="two") == list(range(20))
    table.restore(tag="two")
    assert keys_at(store, clock) == list(range(20))
    assert not table.verify().faults


def test_a_version_goes_with_its_last_tag(store: MemoryStore, clock: SetClock) -> None:
    table = filled(store, clock)
    log = CommitLog(store, clock)
    set_tag(log, "a", log.at(2))
    set_tag(log, "b", log.at(2))
    vacuumed(store, clock)
    table.untag("a")
    vacuumed(store, clock)
    assert keys_at(store, clock, tag="b") == list(range(20))
    assert end_tag(log, "b") == 2
    with refuses(VersionNotFoundError, "no version 2"):
        keys_at(store, clock, version=2)
    before = {key for key in store.objects if key.startswith("data/")}
    vacuumed(store, clock)
    assert len({key for key in store.objects if key.startswith("data/")}) < len(before)


def test_an_expired_tag_counts_until_a_vacuum_ends_it(store: MemoryStore, clock: SetClock) -> None:
    filled(store, clock)
    log = CommitLog(store, clock)
    set_tag(log, "two", log.at(2), keep_seconds=3600)
    clock.sleep(3599)
    vacuumed(store, clock)
    assert keys_at(store, clock, tag="two") == list(range(20))
    clock.sleep(1)
    assert keys_at(store, clock, tag="two") == list(range(20))
    table = vacuumed(store, clock)
    assert table.tags().num_rows == 0
    with refuses(VersionNotFoundError, "no tag 'two'", "none"):
        keys_at(store, clock, tag="two")


def test_a_vacuum_with_nothing_else_to_do_ends_an_expired_tag(
    store: MemoryStore, clock: SetClock
) -> None:
    table = filled(store, clock)
    table.tag("now", keep_seconds=60)
    clock.sleep(60)
    vacuum(CommitLog(store, clock), VacuumSettings(grace_seconds=3e9, retain_seconds=3e9))
    assert open_table(store, clock).tags().num_rows == 0
    version = open_table(store, clock).version
    vacuum(CommitLog(store, clock), VacuumSettings(grace_seconds=3e9, retain_seconds=3e9))
    assert open_table(store, clock).version == version


def test_tags_are_a_table_by_name(store: MemoryStore, clock: SetClock) -> None:
    table = filled(store, clock)
    table.tag("b")
    table.tag("a", keep_seconds=10)
    tags = table.tags().to_pylist()
    assert [(tag["name"], tag["version"]) for tag in tags] == [("a", 4), ("b", 3)]
    assert (tags[0]["expires_at"] - tags[0]["tagged_at"]).total_seconds() == 10
    assert tags[1]["expires_at"] is None


def test_a_tag_moves_only_where_that_is_asked_for(store: MemoryStore, clock: SetClock) -> None:
    table = filled(store, clock)
    table.tag("good")
    with refuses(UsageError, "'good' names version 3", "move"):
        table.tag("good")
    table.tag("good", move=True)
    assert table.tags()["version"].to_pylist() == [4]


def test_a_readers_tag_moves_forward_without_a_look_at_all_objects(
    store: MemoryStore, clock: SetClock
) -> None:
    table = filled(store, clock)
    log = table._log
    store.faults.add(Refuse(StoreError), at=calls("list", prefix="data/"))
    with refuses(StoreError):
        set_tag(log, "r", log.at(1), keeps_later=True)
    store.faults.clear()
    set_tag(log, "r", log.at(1), keeps_later=True)
    looks = store.faults.add(Refuse(StoreError), at=calls("list", prefix="data/"))
    set_tag(log, "r", log.at(2), move=True, keeps_later=True)
    assert looks.hits == []
    for version, keeps_later in ((1, True), (3, False)):
        with refuses(StoreError):
            set_tag(log, "r", log.at(version), move=True, keeps_later=keeps_later)


@pytest.mark.parametrize("name", ["", "a b", ".a", "-a", "a/b", "ä", "a\n", "a" * 101, "41"])
def test_names_that_commands_could_mistake_are_refused(
    store: MemoryStore, clock: SetClock, name: str
) -> None:
    table = filled(store, clock)
    with refuses(UsageError):
        table.tag(name)
    assert table.version == 3


@pytest.mark.parametrize("name", ["a", "2026-11-21", "v1.0_x", "a" * 100])
def test_names_of_releases_and_days_are_taken(
    store: MemoryStore, clock: SetClock, name: str
) -> None:
    table = filled(store, clock)
    table.tag(name)
    assert keys_at(store, clock, tag=name) == list(range(30))


def test_a_version_whose_objects_are_gone_is_not_tagged(
    store: MemoryStore, clock: SetClock
) -> None:
    table = filled(store, clock)
    gone = table.fragments()["key"].to_pylist()[0]
    del store.objects[gone]
    with refuses(VersionNotFoundError, gone):
        table.tag("x")


def test_an_unknown_tag_is_refused_with_those_there_are(
    store: MemoryStore, clock: SetClock
) -> None:
    table = filled(store, clock)
    table.tag("x")
    with refuses(VersionNotFoundError, "no tag 'y'", "x"):
        keys_at(store, clock, tag="y")
    with refuses(VersionNotFoundError, "no tag 'y'"):
        table.untag("y")


def test_a_tag_set_while_a_vacuum_reads_the_log_counts(store: MemoryStore, clock: SetClock) -> None:
    """The vacuum has looked up what is needed, and has not committed yet."""
    table = filled(store, clock)
    table.compact(policy=FULL)
    log = CommitLog(store, clock)
    slow = MemoryStore(store.objects)
    stall = Stall(lambda: set_tag(log, "two", log.at(2)))
    slow.faults.add(stall, at=COMMITS.first())
    vacuum(CommitLog(slow, clock), NOTHING_KEPT)
    assert open_table(store, clock)._snapshot.oldest > 3
    assert keys_at(store, clock, tag="two") == list(range(20))


def test_a_tag_that_a_vacuum_overtakes_is_refused(store: MemoryStore, clock: SetClock) -> None:
    filled(store, clock)
    slow = MemoryStore(store.objects)
    stall = Stall(lambda: vacuumed(store, clock))
    slow.faults.add(stall, at=COMMITS.first())
    log = CommitLog(slow, clock)
    with refuses(VersionNotFoundError, "no version 2"):
        set_tag(log, "two", log.at(2))
    assert open_table(store, clock).tags().num_rows == 0


def test_a_tag_whose_answer_is_lost_is_set_once(store: MemoryStore, clock: SetClock) -> None:
    filled(store, clock)
    flaky = MemoryStore(store.objects)
    flaky.faults.add(LoseAnswer(), at=COMMITS.first())
    log = CommitLog(flaky, clock)
    set_tag(log, "x", log.current())
    assert open_table(store, clock).version == 4


def test_a_checkpoint_has_the_tags(store: MemoryStore, clock: SetClock) -> None:
    table = filled(store, clock)
    table.tag("x", keep_seconds=60)
    log = CommitLog(store, clock)
    assert log.write_checkpoint(log.refresh())
    table.append(rows_of(50))
    assert open_table(store, clock).tags() == table.tags()
    assert CommitLog(store, clock).history.checkpoint(4).tags == table._snapshot.tags
