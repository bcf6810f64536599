"""Opening long histories, reading earlier versions, removing what nobody needs, refusing the slow."""

from __future__ import annotations

import functools

import pytest
from msgspec import structs
from msgspec.structs import replace

from compactor.errors import (
    DataError,
    StaleAttemptError,
    TableNotFoundError,
    UnknownOutcomeError,
    VersionNotFoundError,
)
from compactor.settings.vacuum import VacuumSettings
from compactor.table import commit_log
from compactor.table.checkpoint import checkpoint_bytes, read_checkpoint
from compactor.table.commit_log import CommitLog
from compactor.table.entry import key_range
from compactor.table.object_names import (
    checkpoint_key,
    fragment_key,
    given_up_key,
    parse_checkpoint,
    version_key,
)
from compactor.table.snapshot import Snapshot
from compactor.table.vacuum import LOG_GRACE_SECONDS, vacuum
from compactor.table.version import Changes, Lease, Operation, Quarantine, Version
from lsm_fragment.container.footer import ColumnBytes
from tests.faults import Drop, Faults, Stall, calls
from tests.support.clocks import SetClock
from tests.support.memory_store import MemoryStore, TimedObjects
from tests.support.wording import refuses
from tests.table.test_commit_log import METADATA, entry

DAY_MS = 86_400_000


class World:
    """One table in memory, and the objects its commits refer to."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.objects = TimedObjects(lambda: self.clock.now_ms / 1000)
        self.faults = Faults()
        """Of its own stores."""
        self.store = MemoryStore(self.objects, faults=self.faults)
        self.log = self.open()

    def open(self) -> CommitLog:
        return CommitLog(MemoryStore(self.objects, faults=self.faults), self.clock)

    def write(self, base_version: int, name: str) -> str:
        key = fragment_key(base_version, name, 0)
        self.store.objects[key] = b"x" * 10
        return key

    def add(self, name: str, base_version: int | None = None) -> str:
        key = self.write(self.log.refresh().version if base_version is None else base_version, name)
        self.log.commit(lambda snapshot: self.adding(snapshot, key))
        return key

    @staticmethod
    def adding(snapshot: Snapshot, key: str) -> Changes:
        metadata = METADATA if snapshot.version == 0 else None
        return Changes(
            operation=Operation.INGEST,
            adds=(structs.replace(entry("x"), key=key, run=key),),
            removes=(),
            metadata=metadata,
        )

    def remove(self, key: str) -> None:
        self.log.commit(lambda _: Changes(operation=Operation.COMPACT, removes=(key,)))

    def data(self) -> set[str]:
        return {key for key in self.store.objects if key.startswith("data/")}

    def vacuum(self, **settings):
        return vacuum(self.log, VacuumSettings(deleters=1, **settings))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def checkpoints_every_4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "_CHECKPOINT_VERSIONS", 4)
    monkeypatch.setattr(commit_log, "_MAX_CHECKPOINT_VERSIONS", 4)


# --- checkpoints ---


def full_snapshot() -> Snapshot:
    columns = {"k": ColumnBytes(8, 4), "ü": ColumnBytes(1, 2)}
    entries = [
        structs.replace(
            entry("a"), columns=columns, window=-3, first_key=("é", None), last_key=("z", 1)
        ),
        structs.replace(entry("b"), level=2, row_hash=(1 << 64) - 1, first_key=(), last_key=()),
    ]
    lease = Lease(
        compaction_id="c",
        owner="host:1:x",
        inputs=("data/b.frag",),
        output_level=1,
        expires_unix_ms=5,
        began_unix_ms=1,
    )
    changes = Changes(
        operation=Operation.INGEST, adds=tuple(entries), metadata=METADATA, leases=(lease,)
    )
    version = Version(number=1, commit_id="id", committed_unix_ms=9, changes=changes)
    snapshot = Snapshot.empty().apply(version)
    return replace(
        snapshot,
        quarantine={"data/a.frag": Quarantine("data/a.frag", "why", 3)},
        min_base_version=1,
    )


def test_a_checkpoint_holds_all_of_a_snapshot() -> None:
    snapshot = full_snapshot()
    data = checkpoint_bytes(snapshot)
    again = read_checkpoint(data, name="x")
    assert again == snapshot
    assert again.fragments["data/a.frag"].columns["ü"] == ColumnBytes(1, 2)
    assert checkpoint_bytes(again) == data


@pytest.mark.parametrize("place", [0, 50, -1, -20])
def test_a_flipped_bit_in_a_checkpoint_is_found(place: int) -> None:
    data = bytearray(checkpoint_bytes(full_snapshot()))
    data[place] ^= 4
    with refuses(DataError):
        read_checkpoint(bytes(data), name="name.arrow")


@pytest.mark.parametrize("bound", [("1",), ([1],), (1.5,), (True,), ({},), (1 << 63,)])
def test_a_key_range_of_other_types_than_the_table_s_is_found(bound: tuple[object, ...]) -> None:
    compare = METADATA.comparator()
    fine = entry("a")
    assert key_range(fine, compare)[0] <= key_range(fine, compare)[1]
    with refuses(DataError):
        key_range(structs.replace(fine, first_key=bound), compare)
    with refuses(DataError):
        key_range(structs.replace(fine, last_key=bound), compare)


def test_a_truncated_checkpoint_is_found() -> None:
    data = checkpoint_bytes(full_snapshot())
    for size in (0, 5, 16, 17, len(data) - 1):
        with pytest.raises(DataError):
            read_checkpoint(data[:size], name="x")


def test_opening_reads_the_newest_checkpoint_and_only_the_log_after_it(
    world: World, checkpoints_every_4: None
) -> None:
    for number in range(11):
        world.add(f"f{number}")
    reader = MemoryStore(world.store.objects)
    snapshot = CommitLog(reader).current()
    assert (snapshot.version, len(snapshot.fragments)) == (11, 11)
    reads = [key for operation, key in reader.calls if operation == "read"]
    assert reads == [checkpoint_key(8), *map(version_key, (9, 10, 11, 8))]
    assert snapshot == world.log.latest


def test_newer_checkpoints_are_listed_first() -> None:
    assert checkpoint_key(10) < checkpoint_key(9) < checkpoint_key(1)
    assert parse_checkpoint(checkpoint_key(12)) == 12


def test_a_damaged_checkpoint_only_costs_time(world: World, checkpoints_every_4: None) -> None:
    for number in range(9):
        world.add(f"f{number}")
    world.store.objects[checkpoint_key(8)] = b"rubbish"
    assert world.open().current().version == 9
    world.store.objects[checkpoint_key(4)] = b"rubbish"
    assert len(world.open().current().fragments) == 9


def test_a_commit_stands_although_its_checkpoint_fails(
    world: World, checkpoints_every_4: None
) -> None:
    store = MemoryStore(world.store.objects)
    store.faults.add(
        Drop(), at=calls("create", where=lambda call: bool(parse_checkpoint(call.key)))
    )
    log = CommitLog(store, world.clock)
    for number in range(6):
        key = world.write(number, f"f{number}")
        log.commit(functools.partial(world.adding, key=key))
    assert world.open().current().version == 6


# --- time travel ---


def test_every_version_that_is_kept_can_be_read(world: World, checkpoints_every_4: None) -> None:
    for number in range(10):
        world.add(f"f{number}")
    newest = world.open().current()
    for number in range(1, 11):
        assert len(world.log.history.at(number, newest).fragments) == number
    for number in (0, 11):
        with refuses(VersionNotFoundError):
            world.log.history.at(number, newest)


def test_a_version_is_found_by_time(world: World) -> None:
    times = []
    for number in range(9):
        world.clock.now_ms += 1000
        world.add(f"f{number}")
        times.append(world.clock.now_ms)
    newest = world.log.current()
    find = world.log.history.newest_not_after
    assert find(times[0] - 1, newest) == 0
    for number, moment in enumerate(times, start=1):
        assert find(moment, newest) == number
        assert find(moment + 999, newest) == number


def test_commit_times_do_not_go_back_with_a_clock_that_is_a_little_behind(world: World) -> None:
    world.add("a")
    first = world.log.latest.committed_unix_ms
    world.clock.now_ms -= 600_000
    world.add("b")
    assert world.log.latest.committed_unix_ms == first


# --- vacuum ---


def test_vacuum_removes_what_was_never_committed_once_it_is_old(world: World) -> None:
    live = world.add("live")
    orphan = world.write(1, "orphan")
    world.add("later")
    assert world.vacuum().fragments == 0
    world.clock.now_ms += 2 * DAY_MS
    assert world.vacuum(dry_run=True).fragments == 1
    assert orphan in world.data()
    report = world.vacuum()
    assert (report.fragments, report.fragment_bytes) == (1, 10)
    assert orphan not in world.data()
    assert live in world.data()


def test_vacuum_keeps_what_a_retained_version_needs(world: World) -> None:
    old = world.add("old")
    world.clock.now_ms += 2 * DAY_MS
    world.add("x")
    world.remove(old)
    world.clock.now_ms += 1000
    world.vacuum()
    assert old in world.data()
    assert old in world.log.history.at(2, world.log.current()).fragments
    world.clock.now_ms += 2 * DAY_MS
    report = world.vacuum()
    assert (report.fragments, old in world.data()) == (1, False)
    with refuses(VersionNotFoundError):
        world.log.history.at(2, world.log.current())


def test_a_vacuum_without_anything_to_do_gives_no_version_up_and_says_so(world: World) -> None:
    for name in ("a", "b", "c"):
        world.add(name)
    for dry_run in (True, False):
        report = world.vacuum(dry_run=dry_run, retain_seconds=0, grace_seconds=0)
        assert report.is_empty
        assert (report.oldest_version, report.version) == (1, 3)
    assert len(world.log.history.at(1, world.log.current()).fragments) == 1


def test_an_idle_table_with_young_garbage_is_clean_after_two_vacuums(world: World) -> None:
    world.add("a")
    orphan = world.write(1, "orphan")  # based on the newest version: how old it is, nothing tells
    world.clock.now_ms += 2 * DAY_MS
    assert world.vacuum().waiting_fragments == 1
    world.clock.now_ms += 2 * DAY_MS
    assert world.vacuum().fragments == 1
    assert orphan not in world.data()
    version = world.log.current().version
    assert world.vacuum().is_empty
    assert world.log.current().version == version, "an empty vacuum commits nothing"


def test_without_grace_all_garbage_goes_at_once(world: World) -> None:
    keys = {world.add("a"), world.add("b")}
    world.write(2, "orphan")
    world.vacuum(grace_seconds=0, retain_seconds=0)
    assert world.data() == keys


def test_what_a_first_write_left_is_for_the_vacuum_of_the_table_and_not_before(
    world: World,
) -> None:
    with refuses(TableNotFoundError):
        world.vacuum()
    left = world.write(0, "dead")
    stalled = world.write(0, "stalled")
    world.clock.now_ms += 20 * DAY_MS
    with refuses(TableNotFoundError):
        world.vacuum(grace_seconds=0, retain_seconds=0)
    world.log.commit(lambda snapshot: world.adding(snapshot, stalled))
    assert world.data() == {left, stalled}, "who was asleep finds what it wrote"
    world.clock.now_ms += 2 * DAY_MS
    assert world.vacuum().fragments == 1
    assert world.data() == {stalled}


def test_a_stalled_writer_is_refused_and_told(world: World) -> None:
    world.add("a")
    slow = world.write(1, "slow")
    world.clock.now_ms += 2 * DAY_MS
    world.add("b")
    world.clock.now_ms += 2 * DAY_MS
    world.vacuum()
    before = world.log.current().version
    with refuses(StaleAttemptError):
        world.open().commit(lambda snapshot: world.adding(snapshot, slow))
    assert world.log.current().version == before


def test_a_writer_that_wins_against_the_vacuum_keeps_its_fragment(world: World) -> None:
    world.add("a")
    slow = world.write(1, "slow")
    world.add("b")
    world.clock.now_ms += 2 * DAY_MS
    other = world.open()
    store = MemoryStore(world.store.objects)
    commit = Stall(lambda: other.commit(lambda snapshot: world.adding(snapshot, slow)))
    store.faults.add(commit, at=calls("create").first())
    vacuum(CommitLog(store, world.clock), VacuumSettings(deleters=1))
    assert slow in world.data()
    assert slow in world.open().current().fragments


def test_old_log_files_and_checkpoints_go_and_the_table_is_the_same(
    world: World, checkpoints_every_4: None
) -> None:
    for number in range(11):
        world.add(f"f{number}")
    world.clock.now_ms += 3 * DAY_MS
    world.add("last")
    world.clock.now_ms += 3 * DAY_MS
    before = world.open().current()
    report = world.vacuum()
    assert (report.log_files, report.checkpoints) == (11, 2)
    after = world.open().current()
    assert dict(after.fragments) == dict(before.fragments)
    assert sorted(world.store.objects)[0] == checkpoint_key(12)


def test_a_process_that_slept_through_a_vacuum_reads_on(
    world: World, checkpoints_every_4: None
) -> None:
    world.add("a")
    sleeper = world.open()
    assert sleeper.refresh().version == 1
    for number in range(11):
        world.add(f"f{number}")
    world.clock.now_ms += 3 * DAY_MS
    world.vacuum()
    assert version_key(2) not in world.store.objects
    assert len(sleeper.refresh().fragments) == 12


def test_a_commit_on_a_version_that_was_vacuumed_away_is_never_taken_for_done(
    world: World, checkpoints_every_4: None
) -> None:
    world.add("a")
    stalled = world.open()

    def sleep_through_a_vacuum(snapshot: Snapshot) -> Changes:
        if snapshot.version == 1:
            for number in range(11):
                world.add(f"f{number}")
            world.clock.now_ms += 3 * DAY_MS
            world.vacuum()
        return world.adding(snapshot, fragment_key(snapshot.version, "stalled", 0))

    with refuses(UnknownOutcomeError):
        stalled.commit(sleep_through_a_vacuum)
    assert len(world.open().current().fragments) == 12
    world.add("b")
    assert len(world.open().current().fragments) == 13


@pytest.mark.parametrize("versions", [1, 2, 3])
def test_a_process_reads_on_where_a_table_was_deleted_and_made_anew(
    world: World, versions: int
) -> None:
    for name in ("a", "b", "c", "d")[:2]:
        world.add(name)
    before = world.open()
    before.refresh()
    world.objects.clear()
    if versions != 2:  # once it is made anew, it has as many versions as before
        assert before.refresh().version == 0
    world.log = world.open()
    for number in range(versions):
        world.add(f"new{number}")
    assert len(before.refresh().fragments) == versions
    assert before.refresh().table_id == world.open().current().table_id


def test_a_log_that_has_lost_the_newest_version_is_refused_by_whoever_has_read_it(
    world: World,
) -> None:
    world.add("a")
    world.add("b")
    reader = world.open()
    reader.refresh()
    del world.objects[version_key(2)]
    with refuses(DataError, f"memory://table/{version_key(2)}: this version was read before"):
        reader.refresh()


def test_a_process_reads_on_behind_versions_that_a_repair_has_given_up(world: World) -> None:
    world.add("a")
    world.add("b")
    reader = world.open()
    reader.refresh()
    del world.objects[version_key(2)]
    world.objects[given_up_key("repair", 2)] = b""
    assert reader.refresh().version == 1


def test_log_files_of_the_last_hour_stay_whatever_the_grace(
    world: World, checkpoints_every_4: None
) -> None:
    for number in range(11):
        world.add(f"f{number}")
    assert world.vacuum(grace_seconds=0, retain_seconds=0).log_files == 0
    world.clock.now_ms += (LOG_GRACE_SECONDS + 1) * 1000
    assert world.vacuum(grace_seconds=0, retain_seconds=0).log_files > 0


def test_foreign_objects_are_left_alone(world: World) -> None:
    world.add("a")
    for key in ("data/README", "data/sub/x.frag", "other/file", "_log/notes.txt"):
        world.store.objects[key] = b"mine"
    world.clock.now_ms += 3 * DAY_MS
    world.vacuum(grace_seconds=0, retain_seconds=0)
    assert {"data/README", "data/sub/x.frag", "other/file", "_log/notes.txt"} <= set(
        world.store.objects
    )
