"""Wrong clocks: of writers, of commits in the log, and of those by whom rows expire."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.compaction.driver import Driver
from compactor.errors import ClockError, ObjectExistsError
from compactor.stores.base import Store, StoreTime
from compactor.stores.local import LocalStore
from compactor.stores.s3 import S3Store
from compactor.table.checkpoint import checkpoint_bytes, read_checkpoint
from compactor.table.clocks import MAX_QUIET_SECONDS, MAX_SKEW_SECONDS, commit_stamp
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TimeWindows
from compactor.table.object_names import version_key
from compactor.table.version import Changes, Lease, Operation, Version
from tests.compaction.test_driver import World as Drivers
from tests.support.clocks import SetClock
from tests.support.memory_store import MemoryStore
from tests.support.s3_server import S3Server
from tests.support.wording import refuses
from tests.table.test_commit_log import METADATA, add, log_on, names
from tests.table.test_history import DAY_MS, World

SKEW_MS = MAX_SKEW_SECONDS * 1000
TEN_YEARS_MS = 3650 * DAY_MS


def told(clock: SetClock, *, ahead_ms: int = 0, is_independent: bool = True) -> StoreTime:
    return StoreTime(clock.now_ms + ahead_ms, is_independent)


@pytest.mark.parametrize("ahead_ms", [SKEW_MS + 1, -SKEW_MS - 1, TEN_YEARS_MS])
@pytest.mark.parametrize("is_independent", [True, False])
def test_a_commit_by_a_clock_that_is_not_the_stores_is_refused(
    ahead_ms: int, is_independent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    log_on(store).commit(add("a"))
    log, clock = log_on(store), SetClock()
    store.store_time = told(clock, ahead_ms=-ahead_ms, is_independent=is_independent)
    objects = dict(store.objects)
    with refuses(ClockError):
        log.commit(add("b"))
    assert store.objects == objects
    monkeypatch.setenv("COMPACTOR_TRUST_CLOCK", "1")
    assert names(log.commit(add("b"))) == ["a", "b"]


@given(st.integers(0, SKEW_MS), st.integers(-SKEW_MS, SKEW_MS))
def test_clocks_that_differ_a_little_make_stamps_that_ascend(last_ahead: int, skew: int) -> None:
    now = 1_700_000_000_000
    stamp = commit_stamp(now, StoreTime(now + skew, True), now + last_ahead, "t")
    assert stamp == now + last_ahead


def forge(world: World, stamp_ms: int) -> None:
    """A version by somebody whose clock is wrong and whose program does not look."""
    snapshot = world.log.refresh()
    version = Version(
        number=snapshot.version + 1,
        commit_id=f"forged-{stamp_ms}",
        committed_unix_ms=stamp_ms,
        changes=Changes(operation=Operation.LEASE),
        table_id=snapshot.table_id,
    )
    world.store.objects[version_key(version.number)] = version.to_bytes()


def test_a_commit_from_the_future_stamps_no_later_ones_and_stops_no_vacuum() -> None:
    world = World()
    gone = world.add("gone")
    world.remove(gone)
    forge(world, world.clock.now_ms + TEN_YEARS_MS)
    world.add("kept")
    assert world.log.latest.committed_unix_ms == world.clock.now_ms
    assert world.log.latest.ordered_from == 4
    world.clock.now_ms += 3 * DAY_MS
    world.add("later")
    assert world.vacuum().fragments == 1
    assert gone not in world.data()


stamps = st.lists(st.one_of(st.integers(0, 50), st.just(TEN_YEARS_MS)), min_size=1, max_size=12)


@given(stamps, st.integers(-1, 55), st.integers(1, 12))
def test_a_version_is_as_old_as_the_earliest_stamp_at_or_after_it(
    times: list[int], moment: int, checkpoint: int
) -> None:
    store = MemoryStore()
    for number, stamp in enumerate(times, 1):
        changes = Changes(operation=Operation.LEASE, metadata=METADATA if number == 1 else None)
        version = Version(
            number=number, commit_id=f"id{number}", committed_unix_ms=stamp, changes=changes
        )
        store.objects[version_key(number)] = version.to_bytes()
    log = CommitLog(store)
    snapshot = log.refresh()
    ages = [min(times[index:]) for index in range(len(times))]
    expected = max((n for n, age in enumerate(ages, 1) if age <= moment), default=0)
    assert log.history.newest_not_after(moment, snapshot) == expected
    if checkpoint <= len(times):
        log.write_checkpoint(log.history.at(checkpoint, snapshot))
        again = CommitLog(store)
        assert again.history.newest_not_after(moment, again.refresh()) == expected


def test_a_checkpoint_remembers_where_stamps_went_back() -> None:
    world = World()
    world.add("a")
    snapshot = replace(world.log.latest, ordered_from=1)
    assert read_checkpoint(checkpoint_bytes(snapshot), name="x").ordered_from == 1


def test_a_lease_from_the_far_future_holds_nothing() -> None:
    drivers = Drivers()
    keys = tuple(drivers.ingest(first, first + 9) for first in (0, 5))
    lease = Lease(
        compaction_id="lost",
        owner="elsewhere",
        inputs=keys,
        output_level=1,
        expires_unix_ms=drivers.clock.now_ms + TEN_YEARS_MS,
        began_unix_ms=1,
    )
    drivers.log().commit(lambda _: Changes(operation=Operation.LEASE, leases=(lease,)))
    assert len(drivers.driver("one").decide(1)) == 1
    assert "lost" not in drivers.snapshot().leases


def test_a_worker_whose_clock_is_ahead_leaves_the_leases_of_others_alone() -> None:
    drivers = Drivers()
    for first in (0, 5):
        drivers.ingest(first, first + 9)
    one, two = drivers.driver("one"), drivers.driver("two")
    for driver in (one, two):
        assert isinstance(driver.log.store, MemoryStore)
        driver.log.store.store_time = told(drivers.clock)
    (compaction,) = one.decide(1)
    drivers.clock.now_ms += SKEW_MS
    assert two.decide(1) == []
    assert compaction.compaction_id in drivers.snapshot().leases
    assert not drivers.snapshot().suspects


# --- expiry ---


RETAINED = TimeWindows("k", 3600, 86_400)


def expiring() -> tuple[Drivers, Driver, MemoryStore]:
    """A table whose only window has just ended, and a driver."""
    drivers = Drivers()
    drivers.ingest(0, 9, RETAINED, window=drivers.clock.now_ms // 3_600_000)
    driver = drivers.driver("one")
    assert isinstance(driver.log.store, MemoryStore)
    return drivers, driver, driver.log.store


def test_rows_expire_by_a_clock_that_another_machine_confirms() -> None:
    drivers, driver, store = expiring()
    drivers.clock.now_ms += 400 * DAY_MS
    store.store_time = told(drivers.clock)
    driver.decide(1)
    assert len(drivers.snapshot().fragments) == 0


def test_rows_expire_by_the_own_clock_if_it_follows_on_the_last_commit() -> None:
    drivers, driver, _ = expiring()
    drivers.clock.now_ms += MAX_QUIET_SECONDS * 1000
    driver.decide(1)
    assert len(drivers.snapshot().fragments) == 0


@pytest.mark.parametrize("is_told", [True, False])
def test_rows_do_not_expire_by_a_clock_that_jumped_and_nobody_confirms(
    is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    drivers, driver, store = expiring()
    drivers.clock.now_ms += MAX_QUIET_SECONDS * 1000 + 1
    store.store_time = told(drivers.clock, is_independent=False) if is_told else None
    with refuses(ClockError):
        driver.decide(1)
    assert len(drivers.snapshot().fragments) == 1
    monkeypatch.setenv("COMPACTOR_TRUST_CLOCK", "1")
    driver.decide(1)
    assert len(drivers.snapshot().fragments) == 0


def test_rows_do_not_expire_by_a_clock_that_is_not_the_stores() -> None:
    drivers, driver, store = expiring()
    store.store_time = told(drivers.clock)
    drivers.clock.now_ms += 20 * DAY_MS
    with refuses(ClockError):
        driver.decide(1)
    assert len(drivers.snapshot().fragments) == 1


# --- what stores tell of the time ---


def check_time(store: Store, ahead_seconds: float, *, is_independent: bool) -> None:
    store_time = store.time()
    assert store_time is not None
    assert store_time.is_independent is is_independent
    assert abs(store_time.unix_ms / 1000 - time.time() - ahead_seconds) < 60


def test_a_folder_tells_the_time_of_a_file_made_just_now_and_leaves_none(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    assert store.time() is None
    store.create("k", b"")
    check_time(store, 0, is_independent=False)
    assert list(store.list_unfinished()) == []


def test_s3_tells_the_date_of_its_latest_answer_refusals_too(
    s3_server: S3Server, s3_bucket: str
) -> None:
    store = S3Store(s3_bucket)
    assert store.time() is None
    store.create("k", b"")
    check_time(store, 0, is_independent=True)
    s3_server.ahead_seconds = -86_400
    assert list(store.list("none")) == []
    check_time(store, -86_400, is_independent=True)
    s3_server.ahead_seconds = 86_400
    with refuses(ObjectExistsError):
        store.create("k", b"")
    check_time(store, 86_400, is_independent=True)
