"""Strays, forged and damaged checkpoints, lost log files: what of them a table takes, and what it refuses."""

from __future__ import annotations

import weakref

import pyarrow as pa
import pytest
import xxhash
from msgspec import structs
from msgspec.structs import replace

from compactor.errors import DataError, StoreError, TableError
from compactor.settings.vacuum import VacuumSettings
from compactor.stores.base import UnfinishedUpload
from compactor.stores.s3 import S3Store
from compactor.table import commit_log
from compactor.table.checkpoint import checkpoint_bytes
from compactor.table.commit_log import CommitLog
from compactor.table.entry import Deletion
from compactor.table.entry_table import EntryTable
from compactor.table.fragments import FragmentMap
from compactor.table.history import MAX_LOST_VERSIONS, History
from compactor.table.object_names import checkpoint_key, deletions_key, fragment_key, version_key
from compactor.table.repair import diagnose, log_faults, repair
from compactor.table.snapshot import Snapshot
from compactor.table.vacuum import MIN_SHRINK_ROWS, vacuum
from compactor.table.version import Changes, Lease, Operation, Quarantine, Version
from tests.faults import Damage, Refuse, Stall, calls
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, log_rows
from tests.support.wording import refuses
from tests.table.test_commit_log import METADATA, entry
from tests.table.test_history import DAY_MS, World

FAR = 10**15


@pytest.fixture(autouse=True)
def checkpoints_every_4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "_CHECKPOINT_VERSIONS", 4)
    monkeypatch.setattr(commit_log, "_MAX_CHECKPOINT_VERSIONS", 4)


@pytest.fixture
def world() -> World:
    return World()


def filled(world: World, versions: int = 11) -> World:
    for number in range(versions):
        world.add(f"f{number}")
    return world


def forged(number: int, table_id: str = "another") -> Version:
    return Version(
        number=number,
        commit_id="forged",
        committed_unix_ms=1,
        changes=Changes(operation=Operation.INGEST, metadata=METADATA),
        table_id=table_id,
    )


def put_version(world: World, version: Version) -> None:
    world.store.objects[version_key(version.number)] = version.to_bytes()


def put_checkpoint(world: World, snapshot: Snapshot) -> None:
    world.store.objects[checkpoint_key(snapshot.version)] = checkpoint_bytes(snapshot)


def put_island(world: World, number: int, table_id: str = "another") -> None:
    """A log file and its checkpoint, which agree with each other, where nothing was."""
    put_version(world, forged(number, table_id))
    snapshot = Snapshot(
        version=number,
        metadata=METADATA,
        fragments=FragmentMap(),
        commit_id="forged",
        oldest=number,
        table_id=table_id,
    )
    put_checkpoint(world, snapshot)


def is_usable(world: World, fragments: int) -> None:
    """That the table can be read, written and vacuumed as if nothing were beside it."""
    world.log = world.open()
    assert len(world.log.current().fragments) == fragments
    world.add("after")
    assert len(world.open().current().fragments) == fragments + 1
    world.clock.now_ms += 3 * DAY_MS
    world.vacuum()
    assert len(world.open().current().fragments) == fragments + 1
    assert world.data() >= set(world.log.current().fragments)


# --- strays ---


@pytest.mark.parametrize("number", [16, 20, 99, 5000, FAR])
@pytest.mark.parametrize("kind", ["rubbish", "a copy", "another table's"])
def test_a_stray_log_file_blocks_nothing(world: World, number: int, kind: str) -> None:
    filled(world)
    match kind:
        case "rubbish":
            world.store.objects[version_key(number)] = b"rubbish"
        case "a copy":
            world.store.objects[version_key(number)] = world.store.objects[version_key(3)]
        case _:
            put_version(world, forged(number))
    assert any(version_key(number) in fault for fault in log_faults(world.store))
    assert world.vacuum().strays == 1
    is_usable(world, 11)
    assert version_key(number) in world.store.objects


def test_a_process_that_runs_reads_a_stray_once(world: World) -> None:
    filled(world)
    world.store.objects[version_key(20)] = b"rubbish"
    store = MemoryStore(world.store.objects)
    log = CommitLog(store)
    log.refresh()
    store.calls.clear()
    assert log.refresh().version == 11
    assert [operation for operation, _ in store.calls] == ["list"]


# --- objects in the place of a version ---


def put_copy(world: World, of: int, to: int) -> None:
    world.store.objects[version_key(to)] = world.store.objects[version_key(of)]


@pytest.mark.parametrize("number", [12, 11, 10, 9])
@pytest.mark.parametrize("kind", ["an older version", "another table's", "a newer version"])
def test_what_is_in_the_place_of_a_version_has_to_be_that_version(
    world: World, number: int, kind: str
) -> None:
    """Readers would return the version before, as if what came later had never been committed."""
    filled(world)
    running, behind = world.open(), world.open()
    behind._latest = running.history.at(8, running.refresh())
    match kind:
        case "an older version":
            put_copy(world, 5, number)
        case "another table's":
            put_version(world, forged(number))
        case _:
            newer = forged(number + 7, running.latest.table_id)
            world.store.objects[version_key(number)] = newer.to_bytes()
    for log in (world.open(), behind):
        with refuses(DataError, version_key(number)):
            log.current()
    assert any(version_key(number) in fault for fault in log_faults(world.store))
    report = repair(world.store, apply=True)
    assert (report.end, report.aside) == (number - 1, "")
    if number == 12:
        with refuses(DataError, version_key(number)):
            running.current()
        with refuses(DataError, version_key(number)):
            world.add("blocked")
    report = repair(world.store, end_at=number - 1, apply=True)
    assert version_key(number) in report.aside_keys
    assert (report.after.version, report.after.error) == (number - 1, "")
    is_usable(world, number - 1)


@pytest.mark.parametrize("places", [1, 2, 40, FAR])
def test_a_version_that_was_moved_is_missed_where_it_belongs(world: World, places: int) -> None:
    """The newest version's place is empty, or taken by the one before, which is missing then."""
    filled(world)
    running = world.open()
    before = running.refresh().version - 1
    moved = world.store.objects.pop(version_key(before))
    world.store.objects.pop(version_key(before + 1))
    world.store.objects[version_key(before + places)] = moved
    with refuses(DataError, version_key(before)):
        world.open().current()
    report = repair(world.store, apply=True)
    assert (report.end, report.aside) == (before - 1, "")
    [found] = report.findings
    assert found.key == version_key(before + places)
    assert version_key(before) in found.reason
    assert repair(world.store, end_at=before - 1).given_up == before
    world.store.objects[version_key(before)] = world.store.objects.pop(found.key)
    assert world.open().current().version == before


@pytest.mark.parametrize("place", [2, 3, 900, FAR])
def test_an_only_version_that_was_moved_stays_a_version_of_its_table(
    world: World, place: int
) -> None:
    filled(world, 1)
    world.store.objects[version_key(place)] = world.store.objects.pop(version_key(1))
    with refuses(DataError, version_key(1)):
        world.open().current()
    report = repair(world.store, apply=True)
    assert (report.aside, [f.key for f in report.findings]) == ("", [version_key(place)])
    assert version_key(1) in report.findings[0].reason


def test_a_version_in_the_place_of_the_one_before_is_given_up_by_its_own_number(
    world: World,
) -> None:
    filled(world)
    end = world.open().current().version
    world.store.objects[version_key(end - 1)] = world.store.objects.pop(version_key(end))
    assert repair(world.store, end_at=end - 2).given_up == end


def test_the_first_version_has_to_be_the_first(world: World) -> None:
    filled(world, 2)
    put_copy(world, 2, 1)
    with refuses(DataError, version_key(1)):
        world.open().refresh()


@pytest.mark.parametrize("number", [2, 5, 9])
def test_earlier_versions_are_not_read_through_another_one(world: World, number: int) -> None:
    newest = filled(world).log.current()
    for checkpoint in (4, 8):
        world.store.objects.pop(checkpoint_key(checkpoint))
    log = world.open()
    put_copy(world, 3, number)
    with refuses(DataError, version_key(number)):
        log.history.at(10, newest)
    with refuses(DataError, version_key(number)):
        log.history.versions_after(Snapshot.empty(), 11)


def test_a_table_created_anew_in_place_of_another_is_opened(world: World) -> None:
    filled(world, 3)
    running = world.open()
    running.refresh()
    world.store.objects.clear()
    again = World()
    again.store.objects.update(filled(again, 6).store.objects)
    world.store.objects.update(again.store.objects)
    assert running.refresh().table_id == again.log.latest.table_id


def test_what_a_sleeper_creates_again_does_not_make_the_log_after_it_damaged(world: World) -> None:
    filled(world, 6)
    slow = world.open()
    assert slow.refresh().version == 6
    key = world.add("seventh")
    world.remove(key)
    filled(world, 2)
    world.clock.now_ms += 3 * DAY_MS
    world.vacuum()
    assert world.log.history.marks().floor == 8
    again = Version(
        number=7,
        commit_id="sleeper",
        committed_unix_ms=1,
        changes=Changes(operation=Operation.LEASE),
        table_id=slow.latest.table_id,
    )
    put_version(world, again)
    assert slow.refresh().version == world.log.latest.version


# --- versions that are lost at the end ---


@pytest.mark.parametrize("kind", ["frag", "deletes", "skips"])
def test_a_lost_newest_version_is_told_by_what_was_written_at_it(world: World, kind: str) -> None:
    filled(world)
    name = f"data/{11:020d}-attempt"
    world.store.objects[f"{name}-00000.frag" if kind == "frag" else f"{name}.{kind}"] = b"some"
    assert log_faults(world.store) == []
    del world.store.objects[version_key(11)]
    assert world.open().current().version == 10, "its readers list the log alone"
    [fault] = log_faults(world.store)
    assert version_key(11) in fault
    assert name in fault
    report = repair(world.store, apply=True)
    assert [(f.key, f.goes_aside) for f in report.findings] == [(version_key(11), False)]
    assert (report.end, report.aside) == (10, "")
    world.log = world.open()
    world.clock.now_ms += 3 * DAY_MS
    with refuses(DataError, version_key(11)):
        world.vacuum()


def test_a_version_that_is_given_up_is_told_no_more_and_the_next_lost_one_is(world: World) -> None:
    filled(world)
    world.write(11, "attempt")
    del world.store.objects[version_key(11)]
    shown = repair(world.store, end_at=10)
    assert (shown.given_up, shown.findings, shown.aside) == (11, [], "")
    assert len(log_faults(world.store)) == 1, "nothing was applied"
    report = repair(world.store, end_at=10, apply=True)
    assert report.given_up == 11
    assert report.aside
    assert log_faults(world.store) == []
    world.log = world.open()
    for number in range(4):
        world.add(f"later{number}")
    assert log_faults(world.store) == []
    world.write(14, "attempt")
    del world.store.objects[version_key(14)]
    assert len(log_faults(world.store)) == 1


def test_fragments_of_versions_that_were_put_aside_name_no_lost_version(world: World) -> None:
    filled(world)
    world.write(11, "attempt")
    world.write(9, "another")
    del world.store.objects[version_key(9)]
    report = repair(world.store, end_at=8, apply=True)
    assert report.given_up == 11
    assert log_faults(world.store) == []
    is_usable(world, 8)


def test_versions_committed_while_the_log_is_looked_at_are_not_lost(world: World) -> None:
    filled(world)
    store = MemoryStore(world.store.objects)

    def meanwhile() -> None:
        world.add("meanwhile")
        world.write(12, "attempt")

    store.faults.add(Stall(meanwhile), at=calls("list", prefix="data/").first())
    assert log_faults(store) == []


@pytest.mark.parametrize("base", [11, 11 + MAX_LOST_VERSIONS + 1, FAR])
def test_names_of_the_newest_version_or_far_beyond_it_prove_nothing(
    world: World, base: int
) -> None:
    filled(world)
    world.write(base, "attempt")
    assert log_faults(world.store) == []


def test_a_damaged_newest_log_file_is_never_passed_over(world: World) -> None:
    filled(world)
    world.store.objects[version_key(11)] = b"rubbish"
    with refuses(DataError):
        world.open().current()
    report = repair(world.store, apply=True)
    assert report.now.error
    assert report.after.error
    assert version_key(11) in world.store.objects, "rows may be in it"
    report = repair(world.store, end_at=10, apply=True)
    assert (report.after.version, report.end) == (10, 10)
    is_usable(world, 10)


@pytest.mark.parametrize("where", ["quarantines", "leases", "commit_id"])
def test_half_a_surrogate_pair_in_a_log_file_is_damage(world: World, where: str) -> None:
    """No checkpoint could be written of it: each commit that is to write one would fail, and each vacuum."""
    whole = filled(world, 3).log.latest
    key = next(iter(whole.fragments))
    changes = Changes(
        operation=Operation.QUARANTINE,
        quarantines=(Quarantine(key, "<quarantines>", 1),),
        leases=(
            Lease(
                compaction_id="c",
                owner="<leases>",
                inputs=(key,),
                output_level=1,
                expires_unix_ms=1,
                began_unix_ms=1,
            ),
        ),
    )
    text = (
        Version(
            number=4,
            commit_id="<commit_id>",
            committed_unix_ms=1,
            changes=changes,
            table_id=whole.table_id,
        )
        .to_bytes()
        .partition(b"\n")[0]
    )
    for half, is_damage in ((rb"\ud83d", True), (rb"\ud83d\ude00", False)):
        told = text.replace(f"<{where}>".encode(), half)
        signed = told + b"\n" + xxhash.xxh3_64_hexdigest(told).encode() + b"\n"
        if is_damage:
            with refuses(DataError) as caught:
                Version.from_bytes(signed, name="f")
            assert len(str(caught.value)) < 300
        else:
            checkpoint_bytes(whole.apply(Version.from_bytes(signed, name="f")))


def test_what_is_said_of_rubbish_does_not_repeat_it() -> None:
    with refuses(DataError) as caught:
        Version.from_bytes(b'{"a":"' + b"\xff" * 10_000, name="f")
    assert len(str(caught.value)) < 300


# --- lost log files ---


@pytest.mark.parametrize("number", [1, 2, 9, 10])
def test_a_lost_log_file_is_an_error_and_no_end_of_the_log(world: World, number: int) -> None:
    filled(world)
    for lost in (4, 8):
        del world.store.objects[checkpoint_key(lost)]
    del world.store.objects[version_key(number)]
    for _ in range(2):
        with refuses(DataError, f"{number:020d}"):
            world.open().current()
    with pytest.raises(DataError):
        world.vacuum()


def test_a_lost_log_file_before_the_newest_checkpoint_is_an_error_too(world: World) -> None:
    filled(world)
    del world.store.objects[version_key(6)]
    with refuses(DataError):
        world.open().current()
    assert diagnose(world.store).end == 5


def listed_beside_commits(objects: dict[str, bytes]) -> MemoryStore:
    """Returns a store of which the first listing shows a log file and not the one before, as folders may."""
    store = MemoryStore(objects)
    unseen = Damage(lambda infos: [info for info in infos if info.key != version_key(10)])
    store.faults.add(unseen, at=calls("list", prefix="_log/").first())
    return store


def test_a_log_file_that_a_listing_has_not_seen_is_not_taken_for_lost(world: World) -> None:
    filled(world)
    assert log_faults(listed_beside_commits(world.store.objects)) == []
    world.log = CommitLog(listed_beside_commits(world.store.objects), world.clock)
    world.clock.now_ms += 3 * DAY_MS
    world.vacuum()
    is_usable(world, 11)


def test_a_repair_never_leaves_fragments_without_any_log(world: World) -> None:
    """Whoever wrote there next would make a new table, and its vacuum would remove them."""
    filled(world)
    for number in range(1, 12):
        del world.store.objects[version_key(number)]
    before = dict(world.store.objects)
    assert diagnose(world.store).after.version == 0
    with refuses(DataError):
        repair(world.store, apply=True)
    assert dict(world.store.objects) == before
    for key in world.data():
        del world.store.objects[key]
    assert repair(world.store, apply=True).aside


def test_a_process_that_knows_the_log_notices_that_a_file_is_lost(world: World) -> None:
    filled(world)
    other = world.open()
    other.refresh()
    filled(world, 3)
    del world.store.objects[version_key(12)]
    with refuses(DataError):
        other.refresh()


def test_what_follows_a_gap_goes_aside_only_if_somebody_says_where_the_log_ends(
    world: World,
) -> None:
    filled(world, 7)
    lost = world.store.objects.pop(version_key(6))
    before = dict(world.store.objects)
    report = repair(world.store, apply=True)
    assert [finding.goes_aside for finding in report.findings] == [False]
    assert dict(world.store.objects) == before
    world.store.objects[version_key(6)] = lost
    assert len(world.open().current().fragments) == 7
    del world.store.objects[version_key(6)]
    report = repair(world.store, end_at=5, apply=True)
    assert world.store.objects[f"{report.aside}{version_key(7)}"] == before[version_key(7)]
    is_usable(world, 5)


# --- checkpoints ---


@pytest.mark.parametrize("number", [15, 99, 3000, FAR])
def test_an_island_of_a_forged_checkpoint_and_its_log_file_is_no_table(
    world: World, number: int
) -> None:
    filled(world)
    put_island(world, number)
    is_usable(world, 11)
    report = repair(world.store, apply=True)
    assert set(report.aside_keys) == {version_key(number), checkpoint_key(number)}
    assert report.now == report.after
    assert log_faults(world.store) == []


def test_an_island_is_none_although_nothing_else_has_a_checkpoint(world: World) -> None:
    filled(world, 2)
    put_island(world, FAR)
    is_usable(world, 2)


def test_an_island_of_several_checkpoints_is_too_far_away(world: World) -> None:
    filled(world)
    for number in (FAR, FAR + 1):
        put_island(world, number)
    is_usable(world, 11)


@pytest.mark.parametrize("numbers", [(1011, FAR), (1011, 1012), (1011, 1012, FAR), (1011, 2000)])
def test_islands_do_not_vouch_for_each_other(world: World, numbers: tuple[int, ...]) -> None:
    """By what they say of themselves they are of the table: then the log between them and it is lost."""
    filled(world)
    for number in numbers:
        put_island(world, number)
    is_usable(world, 11)
    whole = world.open().current()
    for number in numbers:
        put_island(world, number, whole.table_id)
    with refuses(DataError):
        world.open().current()
    repair(world.store, end_at=whole.version, apply=True)
    is_usable(world, 12)


def test_an_island_that_names_the_table_stops_everybody_unless_it_is_too_far(world: World) -> None:
    table_id = filled(world).log.latest.table_id
    put_island(world, 11 + MAX_LOST_VERSIONS + 1, table_id)
    assert world.open().current().version == 11
    put_island(world, 40, table_id)
    data = world.data()
    for _ in range(2):
        with refuses(DataError):
            world.open().current()
        with refuses(DataError):
            world.vacuum(grace_seconds=0, retain_seconds=0)
    assert world.data() == data
    report = repair(world.store, end_at=11, apply=True)
    assert report.after.version == 11
    is_usable(world, 11)


def test_a_checkpoint_without_its_log_file_does_not_count(world: World) -> None:
    filled(world)
    put_checkpoint(world, replace(Snapshot.empty(), version=50, metadata=METADATA))
    put_checkpoint(world, replace(Snapshot.empty(), version=10, metadata=METADATA, commit_id="x"))
    assert len(log_faults(world.store)) == 2
    is_usable(world, 11)


def test_checkpoints_are_not_all_in_memory_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(world, 60)
    held: weakref.WeakSet[EntryTable] = weakref.WeakSet()
    most = 0
    read = History.checkpoint

    def watched(history: History, version: int) -> Snapshot:
        nonlocal most
        snapshot = read(history, version)
        held.add(snapshot.fragments._base)
        most = max(most, len(held))
        return snapshot

    monkeypatch.setattr(History, "checkpoint", watched)
    assert log_faults(world.store) == []
    assert len(world.log.history.marks().checkpoints) > 10
    assert most <= 4


@pytest.mark.parametrize("damage", [b"rubbish", b"", None])
def test_vacuum_never_relies_on_a_damaged_checkpoint(world: World, damage: bytes | None) -> None:
    filled(world)
    key = checkpoint_key(8)
    good = world.store.objects[key]
    if damage is None:
        flipped = bytearray(good)
        flipped[len(good) // 2] ^= 1
        damage = bytes(flipped)
    world.store.objects[key] = damage
    world.clock.now_ms += 3 * DAY_MS
    report = world.vacuum()
    assert (report.log_files, report.damaged_checkpoints) == (3, 1)
    assert checkpoint_key(4) in world.store.objects
    assert len(world.open().current().fragments) == 11
    assert any(key in fault for fault in log_faults(world.store))
    assert repair(world.store, apply=True).aside_keys == [key]
    assert log_faults(world.store) == []


@pytest.mark.parametrize("version", [6, 10, 11])
def test_vacuum_stops_at_a_checkpoint_that_says_something_else_than_the_log(
    world: World, version: int
) -> None:
    filled(world)
    true = world.log.history.at(version, world.log.current())
    put_checkpoint(world, replace(true, fragments=FragmentMap()))
    world.clock.now_ms += 3 * DAY_MS
    before = dict(world.store.objects)
    # Version 10 is what readers begin with; 6 may be what a vacuum would keep.
    if version == 6:
        del world.store.objects[checkpoint_key(8)], before[checkpoint_key(8)]
    with refuses(DataError):
        world.vacuum(grace_seconds=0, retain_seconds=0)
    assert dict(world.store.objects) == before
    assert repair(world.store, apply=True).aside_keys == [checkpoint_key(version)]
    assert len(world.open().current().fragments) == 11
    is_usable(world, 11)


def test_the_log_is_read_once_for_a_vacuum_and_no_file_is_read_twice(world: World) -> None:
    filled(world, 40)
    world.clock.now_ms += 3 * DAY_MS
    world.store.calls.clear()
    world.log = CommitLog(world.store, world.clock)
    world.vacuum(dry_run=True)
    reads = [key for operation, key in world.store.calls if operation == "read"]
    proved = [key for key in reads if key.startswith("_log/")]
    assert len(proved) <= 40 + 4
    assert len(reads) <= 40 + 8


def test_where_a_log_begins_is_known_after_a_vacuum(world: World) -> None:
    filled(world)
    world.clock.now_ms += 3 * DAY_MS
    world.vacuum()
    assert world.log.history.marks().floor == 8
    # What somebody creates anew before it is nothing, whatever it says.
    put_island(world, 3, world.log.latest.table_id)
    put_island(world, 7, "another")
    is_usable(world, 11)


def test_a_vacuumed_log_whose_checkpoints_are_all_damaged_is_an_error(world: World) -> None:
    filled(world)
    world.clock.now_ms += 3 * DAY_MS
    world.vacuum()
    for version in world.log.history.marks().checkpoints:
        world.store.objects[checkpoint_key(version)] = b"rubbish"
    with refuses(DataError):
        world.open().current()


def test_a_log_whose_first_checkpoint_is_damaged_begins_with_the_next(world: World) -> None:
    filled(world)
    world.clock.now_ms += 3 * DAY_MS
    world.vacuum()
    filled_more = [world.add(f"g{n}") for n in range(5)]
    world.store.objects[checkpoint_key(8)] = b"rubbish"
    before = world.open().current()
    with refuses(DataError):
        world.vacuum()
    report = repair(world.store, apply=True)
    assert (report.aside_keys, report.floor) == ([checkpoint_key(8)], 12)
    assert report.now == report.after
    assert world.open().current() == before
    assert set(filled_more) <= set(before.fragments)
    assert log_faults(world.store) == []
    is_usable(world, 16)


# --- what the store refuses to give: archived, or encrypted with another's key ---


@pytest.fixture
def archived(world: World) -> bytes:
    """The content of objects that the store refuses to give."""
    gets = calls(
        "open_stream", "read", "read_range", "head",
        where=lambda call: world.objects.get(call.key) == b"archived",
    )  # fmt: skip
    world.faults.add(Refuse(lambda key: StoreError(f"{key}: the object is archived")), at=gets)
    return b"archived"


def test_a_checkpoint_that_the_store_refuses_to_give_is_passed_over(
    world: World, archived: bytes
) -> None:
    filled(world)
    for version in (8, 10):
        world.store.objects[checkpoint_key(version)] = archived
    report = repair(world.store, apply=True)
    assert [(f.key, f.goes_aside) for f in report.findings] == [
        (checkpoint_key(version), False) for version in (10, 8)
    ]
    assert report.now == report.after
    assert len(log_faults(world.store)) == 2
    is_usable(world, 11)


def test_who_may_read_no_checkpoint_at_all_is_told_so(world: World, archived: bytes) -> None:
    filled(world)
    world.clock.now_ms += 3 * DAY_MS
    world.vacuum()
    for version in world.log.history.marks().checkpoints:
        world.store.objects[checkpoint_key(version)] = archived
    with pytest.raises(StoreError):
        world.open().current()


@pytest.mark.parametrize("number", [11, 12, 40])
def test_a_log_file_that_the_store_refuses_to_give_is_named(
    world: World, number: int, archived: bytes
) -> None:
    """It is no stray: it may be a version of the table, and rows in it."""
    filled(world)
    world.store.objects[version_key(number)] = archived
    with pytest.raises(StoreError):
        world.open().current()
    report = repair(world.store, apply=True)
    assert [(f.key, f.goes_aside) for f in report.findings] == [(version_key(number), False)]
    assert (report.end, report.aside) == (min(number - 1, 11), "")
    del world.store.objects[version_key(number)]
    is_usable(world, report.end)


# --- how much and how young ---


def test_what_the_store_got_lately_stays_whatever_the_clock_says(world: World) -> None:
    world.add("a")
    world.clock.now_ms += 10 * DAY_MS
    world.add("b")
    world.clock.now_ms += 10 * DAY_MS
    young = world.write(1, "young")  # of an attempt that began long ago
    report = world.vacuum()
    assert (report.fragments, report.waiting_fragments) == (0, 1)
    world.clock.now_ms += 2 * DAY_MS
    assert world.vacuum().fragments == 1
    assert young not in world.data()


def test_a_commit_stamped_in_the_future_does_not_keep_garbage_for_ever(world: World) -> None:
    world.add("a")
    world.clock.now_ms += 3650 * DAY_MS
    world.add("b")
    world.clock.now_ms -= 3650 * DAY_MS
    times = world.objects.times  # the store's clock was right all the time
    times.update(dict.fromkeys(times, world.clock.now_ms / 1000))
    orphan = world.write(1, "orphan")
    world.clock.now_ms += 3 * DAY_MS
    world.vacuum()
    assert orphan not in world.data()


def big(world: World, name: str, rows: int) -> str:
    key = world.write(world.log.refresh().version, name)
    added = structs.replace(entry("x"), key=key, run=key, rows=rows, size_bytes=1 << 20)
    metadata = METADATA if world.log.latest.version == 0 else None
    world.log.commit(
        lambda _: Changes(operation=Operation.INGEST, adds=(added,), removes=(), metadata=metadata)
    )
    return key


def test_a_table_that_lost_most_of_its_rows_is_vacuumed_only_if_that_was_meant(
    world: World,
) -> None:
    keys = [big(world, f"f{n}", MIN_SHRINK_ROWS) for n in range(4)]
    world.clock.now_ms += 3 * DAY_MS
    world.log.commit(lambda _: Changes(operation=Operation.COMPACT, removes=tuple(keys[:3])))
    world.clock.now_ms += 3 * DAY_MS
    before = dict(world.store.objects)
    for _ in range(2):
        with refuses(TableError):
            world.vacuum()
    assert dict(world.store.objects) == before
    assert world.vacuum(allow_shrinking=True).fragments == 3
    assert world.data() == {keys[3]}


def test_a_table_that_is_small_or_loses_few_rows_is_vacuumed_without_asking(world: World) -> None:
    small = [big(world, f"s{n}", 1) for n in range(4)]
    world.log.commit(lambda _: Changes(operation=Operation.COMPACT, removes=tuple(small)))
    world.clock.now_ms += 3 * DAY_MS
    assert world.vacuum().fragments == 4
    large = [big(world, f"l{n}", MIN_SHRINK_ROWS) for n in range(4)]
    world.clock.now_ms += 3 * DAY_MS
    world.log.commit(lambda _: Changes(operation=Operation.COMPACT, removes=tuple(large[:2])))
    world.clock.now_ms += 3 * DAY_MS
    assert world.vacuum().fragments == 2


def test_shrinking_is_allowed_once(world: World) -> None:
    keys = [big(world, f"f{n}", MIN_SHRINK_ROWS) for n in range(3)]
    world.clock.now_ms += 3 * DAY_MS
    world.log.commit(lambda _: Changes(operation=Operation.DELETE, removes=tuple(keys)))
    world.clock.now_ms += 3 * DAY_MS
    assert world.vacuum(allow_shrinking=True).fragments == 3
    world.add("later")
    world.clock.now_ms += 3 * DAY_MS
    world.vacuum()


def test_rows_of_the_version_that_the_log_begins_with_count_too(world: World) -> None:
    for number in range(7):
        big(world, f"s{number}", 1)
    large = big(world, "large", 4 * MIN_SHRINK_ROWS)
    world.clock.now_ms += 3 * DAY_MS
    world.log.commit(lambda _: Changes(operation=Operation.COMPACT, removes=(large,)))
    world.vacuum()
    assert world.log.history.marks().floor == 8
    world.clock.now_ms += 3 * DAY_MS
    with refuses(TableError, "allow_shrinking"):
        world.vacuum()
    assert large in world.data()


@pytest.mark.parametrize("at_the_place", [None, b"rubbish"])
def test_a_deletion_that_was_meant_is_allowed_once_though_its_fragment_stays(
    world: World, at_the_place: bytes | None
) -> None:
    key = big(world, "large", 4 * MIN_SHRINK_ROWS)
    deletion = Deletion(deletions_key(1, "d"), 0, 9, 3 * MIN_SHRINK_ROWS, 0)
    world.store.objects[deletion.key] = b"x" * 9
    world.log.commit(
        lambda snapshot: Changes(
            operation=Operation.DELETE,
            adds=(structs.replace(snapshot.fragments[key], deletion=deletion),),
            removes=(key,),
        )
    )
    if at_the_place is not None:
        world.store.objects[checkpoint_key(2)] = at_the_place
    world.clock.now_ms += 3 * DAY_MS
    with refuses(TableError, "allow_shrinking"):
        world.vacuum()
    assert world.vacuum(allow_shrinking=True).log_files == (1 if at_the_place is None else 0)
    assert len(world.open().current().fragments) == 1
    world.clock.now_ms += 3 * DAY_MS
    if at_the_place is None:
        world.vacuum()
        assert log_faults(world.store) == []
    assert world.data() == {key, deletion.key}


def test_no_commit_can_say_that_versions_are_not_kept(world: World) -> None:
    keys = [big(world, f"f{n}", MIN_SHRINK_ROWS) for n in range(3)]
    world.log.commit(
        lambda snapshot: Changes(
            operation=Operation.VACUUM,
            removes=tuple(keys),
            oldest=snapshot.version + 1,
            min_base_version=1,
        )
    )
    for hours in (1, 30, 30):
        world.clock.now_ms += hours * 3_600_000
        data = world.data()
        if hours > 1:
            with refuses(TableError, "allow_shrinking"):
                world.vacuum()
        else:
            world.vacuum()
        assert world.data() == data == set(keys)


# --- what is not this table's ---


def test_vacuum_discards_unfinished_uploads_of_its_own_names_only(world: World) -> None:
    world.add("a")
    foreign = ["a//b", "sub/data/00000000000000000001-a-00000.frag", "data/x.csv", "other.bin"]
    own = fragment_key(1, "a", 7)
    store = MemoryStore(world.objects)
    world.log = CommitLog(store, world.clock)
    for key in (*foreign, own):
        store.uploads[key] = UnfinishedUpload(key, 0.0, key)
    world.clock.now_ms += 3 * DAY_MS
    assert world.vacuum().unfinished_uploads == 1
    assert set(store.uploads) == set(foreign)


def test_a_history_without_threads_opens_what_one_with_them_does(world: World) -> None:
    filled(world)
    put_island(world, 99)
    one, many = (History(world.store, readers).newest(Snapshot.empty()) for readers in (1, 8))
    assert one == many


def test_a_vacuum_on_s3_leaves_uploads_of_others_alone(s3_bucket: str) -> None:
    store = S3Store(s3_bucket, "t")
    append_table(store, log_rows(20, 0), "service,ts:desc")
    client = store._clients.retrying()
    keys = [
        "t/a//b",
        "t/sub/" + fragment_key(1, "a", 0),
        "t/data/x.csv",
        "t/" + fragment_key(1, "a", 0),
    ]
    for key in keys:
        client.create_multipart_upload(Bucket=s3_bucket, Key=key)
    assert (
        vacuum(
            CommitLog(store), VacuumSettings(grace_seconds=0, retain_seconds=0)
        ).unfinished_uploads
        == 1
    )
    left = client.list_multipart_uploads(Bucket=s3_bucket)["Uploads"]
    assert {upload["Key"] for upload in left} == set(keys[:3])


# --- the whole log lost ---


def numbers(first: int, rows: int) -> pa.Table:
    return pa.table({"k": list(range(first, first + rows))})


def test_no_table_is_created_over_the_fragments_of_one_whose_log_has_gone() -> None:
    objects: dict[str, bytes] = {}
    for first in (0, 10):
        append_table(MemoryStore(objects), numbers(first, 10), "k")
    for key in [key for key in objects if not key.startswith("data/")]:
        del objects[key]
    left = dict(objects)
    with refuses(TableError):
        append_table(MemoryStore(objects), numbers(0, 3), "k")
    assert objects == left  # nothing was written for it


def test_what_a_failed_first_ingest_has_left_does_not_stop_the_next() -> None:
    store = MemoryStore({fragment_key(0, "a" * 32, 0): b"litter", "data/notes.txt": b"foreign"})
    append_table(store, numbers(0, 3), "k")
    assert CommitLog(store).current().version == 1
