"""A table's properties live in its log: all who work on it read them anew, and rows never depend on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor import IngestOptions, Table
from compactor.errors import ConfigError, TableError
from compactor.planner.debt import Debt, Pressure
from compactor.read.fragment_columns import open_fragment
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.settings.properties import MODEL_OF, NO_PROPERTIES, changed, tuned
from compactor.settings.vacuum import VacuumSettings
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TableMetadata, TimeWindows
from compactor.table.vacuum import vacuum
from compactor.table.version import Changes, Operation
from compactor.write.alter import Alteration, alter_table
from compactor.write.back_pressure import BackPressure
from compactor.write.ingest.settings import IngestSettings
from compactor.write.restore import restore_version
from lsm_fragment.container.writer import WriterOptions
from tests.compaction.test_driver import World
from tests.faults import Stall
from tests.support.clocks import SetClock
from tests.support.memory_store import MemoryStore, TimedObjects
from tests.support.tables import COMMITS, open_table
from tests.support.wording import refuses
from tests.table.test_commit_log import METADATA
from tests.write.test_tags import rows_of


def set_properties(log: CommitLog, **changes: Any) -> int:
    return alter_table(log, Alteration(properties=changes)).version


def table_of(store: MemoryStore) -> Table:
    table = open_table(store, SetClock())
    table._ingest(rows_of(0), "k", None)
    return table


def test_one_commit_sets_properties_and_changes_nothing_else() -> None:
    table = table_of(store := MemoryStore())
    before = table._log.latest
    report = table.alter(properties={"level0_trigger_runs": 8, "memory-limit": "1GiB"})
    assert report.properties == {"level0_trigger_runs": 8, "memory_limit_bytes": 1 << 30}
    assert (table.version, report.waiting) == (before.version + 1, ())
    now = CommitLog(store).refresh()
    assert replace(now.table, properties=()) == before.table
    assert now.fragments.all() == before.fragments.all()
    assert table._log.at(before.version).properties == ()
    report = table.alter(properties={"memory_limit_bytes": None})
    assert report.properties == {"level0_trigger_runs": 8}


def test_a_refused_property_commits_nothing() -> None:
    table = table_of(MemoryStore())
    with refuses(ConfigError, "stop_runs"):
        table.alter(drops=[], properties={"stop_runs": 5})
    assert table._log.refresh().version == 1


def test_properties_of_a_newer_program_are_read_and_damaged_ones_are_not() -> None:
    document = replace(METADATA, properties=(("warp", 9.5),)).to_json()
    assert TableMetadata.from_json(document).properties == (("warp", 9.5),)
    for damaged in ([1], {"level0_trigger_runs": [4]}, {"level0_trigger_runs": None}):
        with pytest.raises((ValueError, TypeError)):
            TableMetadata.from_json({**document, "properties": damaged})


def test_a_value_that_this_program_does_not_take_stops_compactions_and_no_reader() -> None:
    world = World()
    world.ingest(0, 9)
    bad = (("level0_trigger_runs", 1),)
    world.log().commit(
        lambda latest: Changes(
            operation=Operation.ALTER, metadata=replace(latest.table, properties=bad)
        )
    )
    with refuses(ConfigError, "level0_trigger_runs=1"):
        world.driver("one", policy=Policy()).decide(1)
    assert len(world.snapshot().fragments) == 1
    set_properties(world.log(), level0_trigger_runs=2)
    world.driver("one", policy=Policy()).decide(1)


def test_a_driver_obeys_an_alteration_without_a_restart() -> None:
    world = World()
    for _ in range(3):
        world.ingest(0, 9)
    driver = world.driver("one", policy=Policy())
    assert driver.decide(9) == []
    set_properties(world.log(), level0_trigger_runs=3, compression_level=9, strategy="tiered")
    (compaction,) = driver.decide(9)
    assert len(compaction.spec.inputs) == 3
    assert compaction.settings.compression_level == 9


def test_what_a_driver_is_told_counts_more_than_the_table() -> None:
    world = World()
    for _ in range(3):
        world.ingest(0, 9)
    set_properties(world.log(), level0_trigger_runs=3)
    told = Policy(level0_trigger_runs=4)
    assert world.driver("one", policy=told).decide(9) == []
    assert len(world.driver("two", policy=Policy(strategy=Strategy.TIERED)).decide(9)) == 1


def test_a_restore_brings_rows_back_and_leaves_properties_alone() -> None:
    table = table_of(MemoryStore())
    first = table._log.latest
    table.append(rows_of(10))
    table.alter(properties={"retain_seconds": "7d"})
    restore_version(table._log, first)
    table.refresh()
    assert len(table) == 10
    assert table._log.latest.table.properties == (("retain_seconds", 604_800.0),)


# --- settings beside properties ---


def test_the_retention_of_time_windows_is_altered_as_properties_are_and_restores_leave_it() -> None:
    table = open_table(MemoryStore(), SetClock())
    rows = pa.table({"k": pa.array([0, 9_000], pa.timestamp("s", "UTC"))})
    table._ingest(rows, "k", IngestOptions(windows=TimeWindows("k", 3600, 60)))
    first = table._log.latest
    table.append(rows)
    assert table.alter(properties={"retention": "90d"}).retention_seconds == 90 * 86_400
    restore_version(table._log, first)
    table.refresh()
    assert len(table) == 2
    assert table._log.latest.table.windows == TimeWindows("k", 3600, 90 * 86_400)
    report = table.alter(properties={"retention": None, "push_ratio": 0.7})
    assert (report.retention_seconds, report.properties) == (None, {"push_ratio": 0.7})
    with refuses(ConfigError, "retention"):
        table.alter(properties={"retention": "0"})


def test_without_time_windows_there_is_no_retention_to_set() -> None:
    table = table_of(MemoryStore())
    with refuses(ConfigError, "retention", "retain_seconds"):
        table.alter(properties={"retention": "1d"})
    assert table._log.refresh().version == 1


def test_every_setting_of_a_new_table_can_be_altered_or_is_refused_with_the_way() -> None:
    table = table_of(MemoryStore())
    of_the_ingest = {"properties", "on_conflict"}
    others = IngestSettings.model_fields.keys() - MODEL_OF.keys() - of_the_ingest
    assert others == NO_PROPERTIES.keys()
    for name in sorted(others - {"retention"}):
        with refuses(ConfigError, repr(name)):
            table.alter(properties={name: "k"})
    with refuses(ConfigError, "'sort-by'"):
        table.alter(properties={"sort-by": "k"})


# --- compression by level ---


def compression_levels(table: Table) -> dict[int, set[int]]:
    """The zstd levels of a table's fragments, by the level of the table on which they are."""
    found: dict[int, set[int]] = {}
    for entry in table._log.current().fragments.all():
        reader = open_fragment(table._store, entry.key, entry.size_bytes)
        found.setdefault(entry.level, set()).add(
            reader.header.writer["options"]["compression_level"]
        )
    return found


def test_level_0_may_be_compressed_less_by_ingests_updates_and_compactions() -> None:
    table = open_table(MemoryStore(), SetClock())
    options = IngestOptions(properties={"level0_compression_level": 0, "compression_level": 7})
    table._ingest(rows_of(0), "k", options)
    for first in (10, 20, 30):
        table.append(rows_of(first))
    table.update("k = 1", {"k": 2})
    assert compression_levels(table) == {0: {0}}
    table.compact(policy=Policy(strategy=Strategy.TIERED))
    assert compression_levels(table) == {0: {0}}
    table.append(rows_of(0))  # what overlaps nothing moves as it is stored
    table.compact(policy=Policy(strategy=Strategy.FULL))
    [(level, compressed)] = compression_levels(table).items()
    assert (level > 0, compressed) == (True, {7})


def test_one_compression_level_counts_for_all_levels() -> None:
    table = open_table(MemoryStore(), SetClock())
    table._ingest(rows_of(0), "k", None)
    assert compression_levels(table) == {0: {WriterOptions().compression_level}}
    table.alter(properties={"compression_level": 5})
    table.append(rows_of(0))
    writer = IngestOptions(writer=WriterOptions(compression_level=3))
    table.append(rows_of(0), writer)
    assert compression_levels(table) == {0: {WriterOptions().compression_level, 5}}
    settings = CompactionSettings(level0_compression_level=2)
    table.compact(policy=Policy(strategy=Strategy.FULL), settings=settings)
    assert set.union(*compression_levels(table).values()) == {5}


# --- writers ---


def pressure_on(log: CommitLog, **told: Any) -> list[Debt]:
    """Admits a writer that waits; returns the debt that is not healthy."""
    said: list[Debt] = []
    properties = changed((), {"back_pressure": "wait", **told})
    gate = BackPressure(properties, on_debt=lambda _, debt: said.append(debt), max_wait_seconds=60)
    gate.admit(log)
    return [debt for debt in said if debt.pressure is not Pressure.HEALTHY]


def test_writers_and_compactions_that_wait_for_100_runs_do_not_wait_for_each_other() -> None:
    table = table_of(MemoryStore())
    table.alter(properties={"level0_trigger_runs": 100})
    for first in range(44):
        table.append(rows_of(first))
    assert not table.plan().compactions
    assert table.plan().debt.level0_runs == 45
    before = table._log.clock.now_unix_ms()
    assert pressure_on(table._log) == []
    assert table._log.clock.now_unix_ms() == before


def test_writers_wait_by_the_thresholds_of_the_table() -> None:
    world = World()
    world.ingest(0, 9)
    set_properties(world.log(), level0_trigger_runs=2, slow_runs=2, stop_runs=4)
    for _ in range(4):
        world.ingest(0, 9)
    with refuses(TableError, "5 sorted runs"):
        pressure_on(world.log())


def test_a_writer_does_not_wait_for_compactions_that_are_not_due() -> None:
    world = World()
    for first in range(0, 50, 10):
        world.ingest(first, first + 9)
    told = {"strategy": "overlapping", "level0_trigger_runs": 2, "slow_runs": 2, "stop_runs": 4}
    policy = tuned(Policy(), changed((), told))
    assert not world.driver("one", policy=policy).plan(world.snapshot())
    before = world.clock.now_ms
    (debt,) = pressure_on(world.log(), **told)
    assert debt.pressure is Pressure.STOP
    assert world.clock.now_ms - before <= 5000


# --- vacuums ---


def version_after_vacuum(table: Table, settings: VacuumSettings) -> int:
    return vacuum(table._log, settings).oldest_version


def test_a_vacuum_keeps_versions_as_long_as_the_table_says() -> None:
    clock = SetClock()
    table = open_table(MemoryStore(TimedObjects(lambda: clock.now_ms / 1000)), clock)
    table._ingest(rows_of(0), "k", None)
    table.overwrite(rows_of(10))
    quick = VacuumSettings(deleters=1, dry_run=True)
    table.alter(properties={"retain_seconds": 0, "grace_seconds": 0})
    assert version_after_vacuum(table, quick) == table.version
    keeping = VacuumSettings(deleters=1, dry_run=True, retain_seconds=30 * 86_400.0)
    assert version_after_vacuum(table, keeping) == 1
    table.alter(properties={"retain_seconds": "7d"})
    assert version_after_vacuum(table, quick) == 1


def test_a_retention_set_while_a_vacuum_reads_the_log_counts() -> None:
    clock = SetClock()
    store = MemoryStore(TimedObjects(lambda: clock.now_ms / 1000))
    table = open_table(store, clock)
    table._ingest(rows_of(0), "k", None)
    table.append(rows_of(10))
    table.alter(properties={"retain_seconds": 0, "grace_seconds": 0})
    slow = MemoryStore(store.objects)
    stall = Stall(lambda: set_properties(CommitLog(store, clock), retain_seconds="7d"))
    slow.faults.add(stall, at=COMMITS.first())
    vacuum(CommitLog(slow, clock), VacuumSettings(deleters=1))
    assert open_table(store, clock)._log.latest.oldest == 1


# --- new tables ---


def test_a_table_is_created_with_properties_that_later_writers_obey(tmp_path: Path) -> None:
    table = Table.create(
        tmp_path / "t", rows_of(0), "k", properties={"rows_per_fragment": 4, "retain_seconds": "7d"}
    )
    assert table.append(rows_of(10)).fragments == 3
    assert table.append(rows_of(20), IngestOptions(rows_per_fragment=5)).fragments == 2
    assert dict(table._log.latest.properties) == {
        "rows_per_fragment": 4,
        "retain_seconds": 604_800.0,
    }
    with refuses(ConfigError, "'warp'"):
        Table.create(tmp_path / "u", rows_of(0), "k", properties={"warp": 9})
    assert not (tmp_path / "u").exists()
