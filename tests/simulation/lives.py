"""Actors of a table's whole life: they replace and update rows, set properties, and read what changed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from msgspec import structs

from compactor.errors import (
    CompactorError,
    ObjectNotFoundError,
    OvertakenError,
    UnknownOutcomeError,
    UsageError,
    VersionNotFoundError,
)
from compactor.read.change_plan import StoredRows, planned_changes
from compactor.read.changes import versions_between
from compactor.table.commit_log import CommitLog
from compactor.table.deletions import write_deletions
from compactor.table.entry import FragmentEntry
from compactor.table.object_names import deletions_key, fragment_key
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.write.alter import Alteration, alter_table
from compactor.write.search import until_current, with_deletions
from compactor.write.tags import set_tag
from tests.simulation.actors import Search, World, find, read_live, some_key, write
from tests.simulation.auditor import Row

_PROPERTIES: dict[str, list[float | str | None]] = {
    "grace_seconds": [0.0, 600.0, None],
    "retain_seconds": [0.0, 60.0, 10_000.0, None],
    "level0_trigger_runs": [2, 3, None],
    "strategy": ["leveled", "tiered", "overlapping", "full", None],
}
_LEAST_REWRITE_RATIO = 25.0


def replacer(world: World, times: int) -> None:
    """Overwrites and updates rows."""
    log = world.log()
    for _ in range(times):
        world.scheduler.sleep(world.random.expovariate(1 / 90))
        operation = world.random.choice([Operation.OVERWRITE, Operation.UPDATE])
        with world.tolerant(str(operation)):
            replace_rows(world, log, operation)


def replace_rows(world: World, log: CommitLog, operation: Operation) -> None:
    """Puts rows in the place of others, as `compactor.write.overwrite` and `update` do it."""
    world.did(str(operation))
    number = world.next_ingest()
    key: int | None = some_key(world)
    if operation is Operation.OVERWRITE and world.random.random() < 0.1:
        key = None
    world.auditor.replacements[number] = key
    attempt = partial(_replace, world, log, operation, number, key)
    try:
        is_done = until_current(log, attempt, "replaced")
    except UnknownOutcomeError:
        raise
    except CompactorError:
        world.auditor.refuse(number)
        raise
    (world.auditor.promise if is_done else world.auditor.refuse)(number)


def _replace(
    world: World,
    log: CommitLog,
    operation: Operation,
    number: int,
    key: int | None,
    snapshot: Snapshot,
) -> bool:
    """Replaces the rows of a snapshot, and returns whether there are any. Raises `StaleSearchError`."""
    found = find(world, log, snapshot, key) if key is not None else []
    matching = sum(bits.true_count - entry.deleted_rows for entry, bits in found)
    if operation is Operation.UPDATE and not matching:
        return False
    count = matching if operation is Operation.UPDATE else world.random.choice([1, 3])
    place = some_key(world) if key is None else key
    rows = [(place, number, position) for position in range(1 if world.rows.merges else count)]
    world.auditor.ingest_rows[number] = rows
    new = fragment_key(snapshot.version, f"i{number}-{world.name()}", 0)
    window = None
    if world.windows is not None:
        window = world.clock.now_unix_ms() // 1000 // world.windows.window_seconds
    entry = write(world, log, new, rows, level=0, run=new, sequence=(0, 0), window=window)
    deleted: list[FragmentEntry] = []
    if found:
        name = deletions_key(snapshot.version, world.name())
        deleted = write_deletions(log.store, name, found)
    search = Search.of(snapshot)

    def prepare(latest: Snapshot) -> Changes:
        adds = (structs.replace(entry, sequence=(latest.version + 1, 0)),)
        if key is None:
            removes = tuple(latest.fragments)
            return Changes(operation=operation, adds=adds, removes=removes)
        changes = Changes(operation=operation, adds=adds)
        return with_deletions(latest, search, deleted, changes)  # type: ignore[arg-type]

    log.commit(prepare)
    return True


def alterer(world: World, times: int, pause_seconds: float) -> None:
    """Sets properties, each time with one value that nobody else sets. pause_seconds: on the average."""
    log = world.log()
    for _ in range(times):
        world.scheduler.sleep(world.random.expovariate(1 / pause_seconds))
        world.did("alter")
        names = world.random.sample(list(_PROPERTIES), world.random.randint(0, 2))
        mark = _LEAST_REWRITE_RATIO + len(world.auditor.alterations)
        wanted: dict[str, Any] = {name: world.random.choice(_PROPERTIES[name]) for name in names}
        wanted["max_rewrite_ratio"] = mark
        world.auditor.alterations[mark] = wanted
        with world.tolerant("alter"):
            after = alter_table(log, Alteration(properties=wanted))
            assert dict(after.properties)["max_rewrite_ratio"] == mark, "a setting is not there"


def subscriber(world: World, readings: int) -> None:
    """Reads on from its tag: what it knew and the changes make what is there, version by version."""
    log, name = world.log(), f"r{world.name()}"
    places: set[int | None] = {None}
    """Where its tag may be; None: it may have none yet."""
    for _ in range(readings):
        world.scheduler.sleep(world.random.expovariate(1 / 90))
        world.did("read changes")
        with world.tolerant("changes"):
            latest = log.current()
            tag = latest.tag(name)
            place = None if tag is None else tag.version
            assert place in places, f"the tag is at {place}, not {places}"
            if place is not None:
                try:
                    _read_changes(world, log, log.at(place), latest)
                except UsageError as error:
                    world.note(f"begins anew: {error}")
                except VersionNotFoundError as error:
                    assert world.vandal.hurts, f"a reader's tag keeps too little: {error!r}"
            places = {place, latest.version}
            set_tag(log, name, latest, move=True, keeps_later=True)
            places = {latest.version}


def _read_changes(world: World, log: CommitLog, since: Snapshot, latest: Snapshot) -> None:
    """Raises `UsageError` for versions whose changes are not known."""
    models, merged = world.auditor.models, world.auditor.merged
    rows = set(models[since.version])
    versions = versions_between(log, since, latest)
    restores = [v.number for v in versions if v.changes.operation is Operation.RESTORE]
    for change in planned_changes(since, versions, latest.table, latest.table.schema.names):
        gone, came = (_rows_of(world, log, part) for part in (change.gone, change.came))
        if change.is_merged:
            gone, came = set(merged(gone)), set(merged(came))
            gone, came = gone - came, came - gone
        # A restore past a compaction takes and brings rows that stay.
        assert change.version in restores or not gone & came, (
            f"{change.version} tells rows that stay"
        )
        assert gone <= rows, f"version {change.version} takes rows that are not there"
        rows -= gone
        assert not came & rows, f"version {change.version} brings rows that are there"
        rows |= came
        assert rows == models[change.version], f"changes until {change.version} lead elsewhere"
        world.auditor.visits["change read"] += 1
    assert rows == models[latest.version], f"changes until {latest.version} lead elsewhere"


def _rows_of(world: World, log: CommitLog, parts: Iterable[StoredRows]) -> set[Row]:
    rows: set[Row] = set()
    for part in parts:
        for entry in part.fragments:
            try:
                with world.corrupt_is_data_error():
                    rows.update(read_live(world, log, entry))
                    if entry.key in part.other:
                        rows.difference_update(read_live(world, log, part.other[entry.key]))
            except (ObjectNotFoundError, OvertakenError) as error:
                assert entry.key in world.vandal.once_lost, f"a reader's tag does not keep: {error}"
                raise
    return rows
