"""Several drivers on one table: leases, races, zombies, moves and expiry, each as its commits tell."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from compactor.compaction import owner as owner_module
from compactor.compaction.compaction import Compaction, Outcome, failed
from compactor.compaction.driver import MAX_RETRY_SECONDS, RETRY_SECONDS, Driver, DriverSettings
from compactor.compaction.owner import is_gone, this_owner
from compactor.errors import StoreUnreachableError, UnknownOutcomeError
from compactor.resources.errors import MemoryLimitError
from compactor.rows.fold import FoldError
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.settings.vacuum import VacuumSettings
from compactor.table.checkpoint import checkpoint_bytes, read_checkpoint
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TimeWindows
from compactor.table.object_names import fragment_key
from compactor.table.snapshot import Snapshot
from compactor.table.suspects import MAX_ABANDONED
from compactor.table.vacuum import vacuum
from compactor.table.version import Changes, Operation
from lsm_fragment.errors import LimitError
from tests.faults import Drop, LoseAnswer, Stall, calls
from tests.support.clocks import SetClock
from tests.support.entries import made_up_entry
from tests.support.memory_store import MemoryStore
from tests.support.tables import COMMITS
from tests.table.test_commit_log import METADATA

EAGER = Policy(strategy=Strategy.OVERLAPPING)


class World:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = SetClock()
        self._ids = (f"id{n}" for n in itertools.count())

    def log(self) -> CommitLog:
        return CommitLog(MemoryStore(self.store.objects), self.clock)

    def driver(self, name: str, policy: Policy = EAGER, **settings) -> Driver:
        return Driver(
            self.log(),
            DriverSettings(policy=policy, compaction=CompactionSettings(), **settings),
            ids=lambda: next(self._ids),
            owner=name,
            owner_is_gone=lambda owner: owner == "dead",
        )

    def ingest(self, first: int, last: int, windows: TimeWindows | None = None, window=None) -> str:
        log = self.log()
        key = fragment_key(log.refresh().version, next(self._ids), 0)

        def prepare(snapshot: Snapshot) -> Changes:
            entry = made_up_entry(
                key,
                (first,),
                (last,),
                rows=5,
                size_bytes=400 << 20,
                sequence=(snapshot.version + 1, 0),
                window=window,
            )
            metadata = replace(METADATA, windows=windows) if snapshot.version == 0 else None
            return Changes(
                operation=Operation.INGEST,
                adds=(entry,),
                metadata=metadata,
            )

        log.commit(prepare)
        return key

    def snapshot(self) -> Snapshot:
        return self.log().current()


@pytest.fixture
def world() -> World:
    return World()


def outcome(compaction: Compaction) -> Outcome:
    """As an attempt would report that made one fragment of all inputs."""
    inputs = compaction.spec.inputs
    key = fragment_key(compaction.base_version, compaction.compaction_id, 0)
    first, last = min(e.first_key for e in inputs), max(e.last_key for e in inputs)
    entry = structs.replace(
        inputs[0], key=key, run=compaction.compaction_id, level=compaction.spec.output_level,
        first_key=first, last_key=last, rows=compaction.spec.rows,
    )  # fmt: skip
    return Outcome(compaction_id=compaction.compaction_id, outputs=(entry,))


def test_what_one_driver_leases_another_leaves_alone(world: World) -> None:
    for first in (0, 5, 100, 105):
        world.ingest(first, first + 9)
    one, other = world.driver("one"), world.driver("other")
    (a,) = one.decide(1)
    (b,) = other.decide(9)
    assert not {e.key for e in a.spec.inputs} & {e.key for e in b.spec.inputs}
    assert one.decide(9) == other.decide(9) == []
    assert not one.commit_outcomes([outcome(a)])[0].is_void
    assert not other.commit_outcomes([outcome(b)])[0].is_void
    snapshot = world.snapshot()
    assert (len(snapshot.fragments), snapshot.leases) == (2, {})


def test_leases_of_others_are_judged_by_one_look_at_the_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in (0, 5, 100, 105):
        world.ingest(first, first + 9)
    world.driver("one").decide(1)
    other = world.driver("other")
    looks: list[int] = []

    def look() -> int:
        looks.append(world.clock.now_unix_ms())
        return looks[-1]

    monkeypatch.setattr(other.log, "lease_unix_ms", look)
    assert other.plan(other.log.current()).specs
    assert len(looks) == 1


def lose_commits(store: MemoryStore) -> None:
    """Loses the answers of all commits from now on, and keeps the store from giving what they wrote."""
    lost = store.faults.add(LoseAnswer(), at=COMMITS)
    store.faults.add(Drop(), at=calls("read", where=lambda call: ("create", call.key) in lost.hits))


def leasing_without_an_answer(world: World) -> tuple[Driver, MemoryStore]:
    """A driver that does not know that its lease is in the log, and its store."""
    for first in (0, 5):
        world.ingest(first, first + 9)
    driver = world.driver("one", lease_seconds=3600)
    store = driver.log.store
    assert isinstance(store, MemoryStore)
    lose_commits(store)
    with pytest.raises(UnknownOutcomeError):
        driver.decide(1)
    return driver, store


def test_a_lease_whose_answer_was_lost_blocks_nothing(world: World) -> None:
    driver, store = leasing_without_an_answer(world)
    assert len(world.snapshot().leases) == 1
    store.faults.clear()
    (compaction,) = driver.decide(1)
    assert set(world.snapshot().leases) == {compaction.compaction_id}


def test_a_lease_whose_answer_was_lost_is_given_up_at_the_end(world: World) -> None:
    driver, store = leasing_without_an_answer(world)
    store.faults.clear()
    driver.give_up()
    assert world.snapshot().leases == {}


def test_a_compaction_whose_commit_got_no_answer_is_not_void_though_others_merged_its_outputs(
    world: World,
) -> None:
    for first in (0, 5):
        world.ingest(first, first + 9)
    driver = world.driver("one")
    store = driver.log.store
    assert isinstance(store, MemoryStore)
    (compaction,) = driver.decide(1)
    lose_commits(store)
    with pytest.raises(UnknownOutcomeError):
        driver.commit_outcomes([outcome(compaction)])
    store.faults.clear()
    (output,) = world.snapshot().fragments
    world.log().commit(lambda _: Changes(operation=Operation.COMPACT, removes=(output,)))
    (finished,) = driver.commit_outcomes([outcome(compaction)])
    assert not finished.is_void
    assert len(world.snapshot().fragments) == 0


def test_a_driver_that_loses_the_race_for_a_lease_has_decided_nothing(world: World) -> None:
    world.ingest(0, 9)
    world.ingest(5, 14)
    one, other = world.driver("one"), world.driver("other")
    store = other.log.store
    assert isinstance(store, MemoryStore)
    decided: list[Compaction] = []

    overtake = Stall(lambda: decided.extend(one.decide(1)))
    store.faults.add(overtake, at=calls("create").first())
    assert other.decide(1) == []
    assert other.running == 0
    assert len(decided) == 1
    assert list(world.snapshot().leases) == [decided[0].compaction_id]


def test_an_expired_lease_is_taken_over_and_its_late_owner_is_void(world: World) -> None:
    world.ingest(0, 9)
    world.ingest(5, 14)
    slow, quick = world.driver("slow", lease_seconds=60), world.driver("quick")
    (first,) = slow.decide(1)
    world.clock.sleep(59)
    assert quick.decide(1) == []
    world.clock.sleep(2)
    (second,) = quick.decide(1)
    assert list(world.snapshot().leases) == [second.compaction_id]
    # The inputs are all still live: it is the lease that counts.
    (finished,) = slow.commit_outcomes([outcome(first)])
    assert finished.is_void
    assert not quick.commit_outcomes([outcome(second)])[0].is_void
    assert len(world.snapshot().fragments) == 1


def test_a_lease_that_is_prolonged_does_not_expire(world: World) -> None:
    world.ingest(0, 9)
    world.ingest(5, 14)
    slow, quick = world.driver("slow", lease_seconds=60), world.driver("quick")
    (compaction,) = slow.decide(1)
    for _ in range(5):
        world.clock.sleep(40)
        slow.prolong()
        assert quick.decide(1) == []
    version = world.snapshot().version
    slow.prolong()
    assert world.snapshot().version == version, "a fresh lease needs no commit"
    assert not slow.commit_outcomes([outcome(compaction)])[0].is_void


def test_an_older_lease_is_prolonged_while_newer_ones_are_made(world: World) -> None:
    world.ingest(0, 9)
    world.ingest(5, 14)
    busy, idle = world.driver("busy", lease_seconds=60), world.driver("idle")
    (oldest,) = busy.decide(1)
    for low in (100, 200, 300, 400):
        world.clock.sleep(25)
        busy.prolong()
        world.ingest(low, low + 9)
        world.ingest(low + 5, low + 14)
        assert len(busy.decide(1)) == 1
        assert idle.decide(9) == []
    assert not busy.commit_outcomes([outcome(oldest)])[0].is_void


def test_what_a_dead_process_of_this_host_leased_is_free_at_once(world: World) -> None:
    world.ingest(0, 9)
    world.ingest(5, 14)
    (lost,) = world.driver("dead").decide(1)
    (again,) = world.driver("alive").decide(1)
    assert again.spec.inputs == lost.spec.inputs
    assert list(world.snapshot().leases) == [again.compaction_id]


def test_what_is_given_up_is_free_at_once(world: World) -> None:
    world.ingest(0, 9)
    world.ingest(5, 14)
    one = world.driver("one")
    assert len(one.decide(1)) == 1
    one.give_up()
    assert world.snapshot().leases == {}
    assert len(world.driver("other").decide(1)) == 1


def test_a_compaction_that_a_vacuum_moved_past_is_void(world: World) -> None:
    world.ingest(0, 9)
    world.ingest(5, 14)
    driver = world.driver("one", lease_seconds=1e6)
    (compaction,) = driver.decide(1)
    done = outcome(compaction)
    world.store.objects[done.outputs[0].key] = b"written"
    report = vacuum(world.log(), VacuumSettings(grace_seconds=0, deleters=1))
    assert report.fragments == 1
    (finished,) = driver.commit_outcomes([done])
    assert finished.is_void
    assert len(world.snapshot().fragments) == 2


def test_fragments_that_overlap_nothing_move_without_a_compaction(world: World) -> None:
    for first in (0, 100, 200, 300):
        world.ingest(first, first + 9)
    before = world.snapshot()
    policy = Policy(level0_trigger_runs=4)
    assert world.driver("one", policy).decide(9) == []
    after = world.snapshot()
    assert set(after.fragments) == set(before.fragments)
    assert {entry.level for entry in after.fragments.values()} == {1}
    assert after.totals.write_amplification == 1.0


def test_expired_windows_are_dropped_before_anything_is_compacted(world: World) -> None:
    windows = TimeWindows("k", 60, retention_seconds=60)
    now_window = world.clock.now_ms // 60_000
    old = [world.ingest(0, 9, windows, now_window - 10) for _ in range(2)]
    new = [world.ingest(0, 9, windows, now_window) for _ in range(2)]
    (compaction,) = world.driver("one").decide(9)
    assert {entry.key for entry in compaction.spec.inputs} == set(new)
    snapshot = world.snapshot()
    assert not set(old) & set(snapshot.fragments)
    assert snapshot.totals.expired_bytes == 2 * (400 << 20)


def test_this_process_is_not_gone_and_one_that_ended_is() -> None:
    assert not is_gone(this_owner())
    host, pid, started, place = this_owner().split(":")
    assert is_gone(f"{host}:{pid}:{started}0:{place}"), "another process had this number"
    assert not is_gone(f"elsewhere:{pid}:{started}0:{place}")
    assert not is_gone(f"{host}:{pid}:{started}0:{place}0"), "another boot or namespace"
    child = os.fork()
    if child == 0:
        os._exit(0)
    owner = f"{host}:{child}:{started}:{place}"
    os.waitpid(child, 0)
    assert is_gone(owner)
    for rubbish in ("rubbish", f"{host}:{child}:{started}", f"{host}:{child}::{place}", ":::"):
        assert not is_gone(rubbish)


def test_who_lives_in_another_namespace_of_process_ids_is_not_gone() -> None:
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    code = "from compactor.compaction.owner import this_owner; print(this_owner(), flush=True); input()"
    with subprocess.Popen(
        [*command, sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        owner = other.stdout.readline().decode().strip()
        if not owner:
            pytest.skip("namespaces cannot be made here")
        assert owner.startswith(f"{socket.gethostname()}:1:")
        assert not is_gone(owner)
        other.communicate(b"\n")


def test_who_cannot_see_its_own_processes_judges_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host, _, started, place = this_owner().split(":")
    monkeypatch.setattr(owner_module, "_PROC", tmp_path)
    assert this_owner().split(":")[2:] == ["", ""]
    assert not is_gone(f"{host}:999999999:{started}:{place}")


def die_of(world: World, driver: Driver) -> list[str]:
    """Keys of the inputs that the driver has leased. Nothing more is heard of it."""
    leased = driver.decide(9)
    world.clock.now_ms += 1_000_000
    return [entry.key for c in leased for entry in c.spec.inputs]


def test_what_ends_workers_is_divided_and_then_put_in_quarantine_while_the_rest_gets_through(
    world: World,
):
    keys = [world.ingest(0, 9) for _ in range(5)]
    deadly = keys[2]
    deaths = 0
    for _ in range(30):
        driver = world.driver(f"worker {deaths}")
        while compactions := driver.decide(9):
            inputs = [entry.key for c in compactions for entry in c.spec.inputs]
            if deadly in inputs:
                deaths += 1
                world.clock.now_ms += 1_000_000  # its lease ends, nothing is heard of it
                break
            driver.commit_outcomes([outcome(c) for c in compactions])
        else:
            break
    snapshot = world.snapshot()
    assert deaths == 2 * MAX_ABANDONED
    assert list(snapshot.quarantine) == [deadly]
    assert "alone" in snapshot.quarantine[deadly].reason
    assert not set(keys) - {deadly} & set(snapshot.fragments)
    # Released, it is taken for a new one.
    world.log().commit(
        lambda _: Changes(operation=Operation.QUARANTINE, released_fragments=(deadly,))
    )
    assert world.snapshot().suspects.keys() <= set(snapshot.fragments) - {deadly}
    assert world.snapshot().quarantine == {}


def test_what_is_too_much_together_is_merged_in_smaller_groups(world: World) -> None:
    for _ in range(8):
        world.ingest(0, 9)
    deaths = 0
    for _ in range(60):
        driver = world.driver(f"worker {deaths}")
        while compactions := driver.decide(9):
            if any(len(c.spec.inputs) > 3 for c in compactions):
                deaths += 1
                world.clock.now_ms += 1_000_000
                break
            driver.commit_outcomes([outcome(c) for c in compactions])
        else:
            break
    snapshot = world.snapshot()
    assert deaths <= 3 * (MAX_ABANDONED + 1)  # as eight, as five and as four
    assert snapshot.quarantine == {}
    assert sum(entry.rows for entry in snapshot.fragments.values()) == 8 * 5
    assert world.driver("last").decide(9) == []


def test_a_worker_that_is_told_to_stop_leaves_no_suspicion(world: World) -> None:
    for _ in range(3):
        world.ingest(0, 9)
    for n in range(5):
        driver = world.driver(f"worker {n}")
        assert driver.decide(9)
        driver.give_up()
    assert world.snapshot().suspects == {}
    assert world.driver("dead").decide(9)
    assert len(world.driver("next").decide(9)[0].spec.inputs) == 3
    assert {s.abandoned for s in world.snapshot().suspects.values()} == {1}


def test_what_is_under_suspicion_runs_alone_so_that_nothing_else_goes_down_with_it(
    world: World,
) -> None:
    for key in (0, 0, 100, 100, 200, 200):
        world.ingest(key, key + 9)
    assert len(world.driver("first").decide(9)) == 3
    world.clock.now_ms += 1_000_000
    driver = world.driver("second")
    done = []
    while compactions := driver.decide(9):
        assert len(compactions) == 1
        assert driver.decide(9) == []
        done += driver.commit_outcomes([outcome(compactions[0])])
    assert len(done) == 3
    assert world.snapshot().suspects == {}


def test_suspicion_is_kept_by_checkpoints(world: World) -> None:
    for _ in range(3):
        world.ingest(0, 9)
    die_of(world, world.driver("one"))
    die_of(world, world.driver("two"))
    snapshot = world.snapshot()
    assert len(snapshot.suspects) == 3
    data = checkpoint_bytes(snapshot)
    assert read_checkpoint(data, name="x").suspects == snapshot.suspects


def test_failures_that_say_nothing_of_the_inputs_are_tried_again_ever_less_often(
    world: World,
) -> None:
    keys = {world.ingest(0, 9) for _ in range(3)}
    driver = world.driver("one")
    waits = []
    for _ in range(20):
        (compaction,) = driver.decide(9)
        failure = Outcome(
            compaction_id=compaction.compaction_id, failure="KMS.DisabledException (400)"
        )
        (finished,) = driver.commit_outcomes([failure])
        assert finished.quarantined == ()
        assert driver.decide(9) == []
        assert driver.retry_unix_ms is not None
        waits.append(driver.retry_unix_ms - world.clock.now_ms)
        assert finished.retry_seconds == waits[-1] / 1000
        world.clock.now_ms = driver.retry_unix_ms
    assert world.snapshot().quarantine == {}
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (RETRY_SECONDS * 1000, MAX_RETRY_SECONDS * 1000)
    (compaction,) = driver.decide(9)
    assert not driver.commit_outcomes([outcome(compaction)])[0].is_void
    assert not keys & set(world.snapshot().fragments)


def test_a_clock_that_goes_back_puts_off_no_attempt_for_long(world: World) -> None:
    for _ in range(3):
        world.ingest(0, 9)
    driver = world.driver("one")
    (compaction,) = driver.decide(9)
    driver.commit_outcomes(
        [Outcome(compaction_id=compaction.compaction_id, failure="KMS.DisabledException (400)")]
    )
    world.clock.now_ms -= 86_400_000
    assert len(driver.decide(9)) == 1


def test_an_input_that_a_failure_names_holds_up_no_others(world: World) -> None:
    bad, *others = [world.ingest(key, key + 9) for key in (0, 5, 10)]
    driver = world.driver("one", policy=Policy(level0_trigger_runs=2), gives_up=True)
    for _ in range(30):
        compactions = driver.decide(9)
        if not compactions and driver.retry_unix_ms is None:
            break
        for compaction in compactions:
            keys = [entry.key for entry in compaction.spec.inputs]
            told = outcome(compaction)
            if bad in keys:
                told = Outcome(
                    compaction_id=compaction.compaction_id, failure="no such object", culprit=bad
                )
            driver.commit_outcomes([told])
        world.clock.now_ms = driver.retry_unix_ms or world.clock.now_ms
    snapshot = world.snapshot()
    assert bad in snapshot.fragments
    assert not set(others) & set(snapshot.fragments)
    assert snapshot.quarantine == {}


def test_an_outcome_that_the_log_was_not_told_counts_once(world: World) -> None:
    keys = [world.ingest(0, 9) for _ in range(3)]
    driver = world.driver("one")
    (compaction,) = driver.decide(9)
    damage = Outcome(
        compaction_id=compaction.compaction_id, failure="bits", culprit=keys[0], is_damage=True
    )

    store = driver.log.store
    assert isinstance(store, MemoryStore)
    store.faults.add(Drop())
    for _ in range(5):
        with pytest.raises(StoreUnreachableError):
            driver.commit_outcomes([damage])
    store.faults.clear()
    (finished,) = driver.commit_outcomes([damage])
    assert (finished.attempt, finished.quarantined) == (1, ())
    assert world.snapshot().quarantine == {}


@pytest.mark.parametrize("gives_up", [False, True])
def test_what_can_not_but_fail_again_is_not_tried_again_soon(world: World, gives_up: bool) -> None:
    for _ in range(3):
        world.ingest(0, 9)
    driver = world.driver("one", gives_up=gives_up)
    (compaction,) = driver.decide(9)
    errors = (MemoryLimitError("too little"), FoldError("too large"), LimitError("too long"))
    assert all(failed(compaction, error).is_final for error in errors)
    assert not failed(compaction, StoreUnreachableError("gone")).is_final
    outcome = Outcome.from_json(failed(compaction, errors[0]).to_json())
    (finished,) = driver.commit_outcomes([outcome])
    assert finished.quarantined == ()
    assert driver.decide(9) == []
    if gives_up:
        assert finished.retry_seconds is None
        assert driver.retry_unix_ms is None
    else:
        assert finished.retry_seconds == MAX_RETRY_SECONDS
