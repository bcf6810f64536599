"""Queries of tables with skip indexes: the same rows, and less read."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from compactor.errors import DataError, UsageError
from compactor.predicate.skipping.spec import SkipKind, SkipSpec
from compactor.read.read_reports import ScanReport
from compactor.read.scan import scan
from compactor.read.skip_indexes import read_summaries
from compactor.read.verify import verify
from compactor.rows.policy import RowKind, RowPolicy
from compactor.settings.compaction import CompactionSettings, Strategy
from compactor.stores.base import Store
from compactor.stores.local import LocalStore
from compactor.table.checkpoint import checkpoint_bytes, read_checkpoint
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.write.alter import Alteration, alter_table
from compactor.write.delete import delete_rows
from compactor.write.ingest import IngestOptions
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, compact_table
from tests.support.wording import refuses

SKIPS = SkipSpec((("trace", SkipKind.BLOOM), ("service", SkipKind.VALUES), ("n", SkipKind.BLOOM)))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def some_rows(seed: int, count: int = 400) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": rng.integers(0, 10_000, count),
            "trace": [f"{value:016x}" for value in rng.integers(0, 2**62, count)],
            "service": pa.array(
                [f"svc-{seed}-{v}" for v in rng.integers(0, 3, count)], mask=rng.random(count) < 0.1
            ),
            "n": rng.integers(0, 1000, count).astype(np.int32),
        }
    )  # fmt: skip


def add(store: Store, table: pa.Table, **options: Any) -> CommitLog:
    options.setdefault("skips", SKIPS)
    return append_table(store, table, "ts", IngestOptions(**options), max_rows=50)


def found(store: Store, where: str) -> tuple[list[dict[str, Any]], ScanReport]:
    snapshot, report = CommitLog(store).current(), ScanReport()
    condition = condition_on(snapshot.table, where)
    batches = list(scan(store, snapshot, None, condition, report))
    return [row for batch in batches for row in batch.to_pylist()], report


@pytest.mark.parametrize("compacts", [False, True])
def test_a_value_that_is_looked_up_is_found_and_little_else_is_read(
    store: MemoryStore, compacts: bool
) -> None:
    tables = [some_rows(seed) for seed in range(4)]
    for table in tables:
        add(store, table)
    if compacts:
        settings = CompactionSettings(max_rows_per_row_group=50)
        assert not compact_table(store, settings, strategy=Strategy.FULL).failed
    trace = tables[2].column("trace")[7].as_py()
    rows, report = found(store, f"trace = '{trace}'")
    assert [row["trace"] for row in rows] == [trace]
    assert report.rows_read <= 150
    if not compacts:
        assert report.fragments_skipped >= 2
    rows, report = found(store, "service LIKE '%-3-%'")
    assert len(rows) == sum("-3-" in (v or "") for v in tables[3].column("service").to_pylist())
    assert report.fragments_skipped == (0 if compacts else 3)
    rows, report = found(store, "trace IN ('none', 'of these')")
    assert rows == [] and report.rows_read <= 100
    assert verify(store, CommitLog(store).current()).faults == []


def test_whole_row_groups_that_pass_a_compaction_keep_an_index(store: MemoryStore) -> None:
    for start in (0, 100_000):
        table = some_rows(start, 1000)
        table = table.set_column(0, "ts", pa.array(range(start, start + 1000)))
        log = add(store, table)
        alter_table(log, Alteration(skips={"n": None if start else SkipKind.BLOOM}))
    settings = CompactionSettings(max_rows_per_row_group=50, compression_level=1)
    done = compact_table(store, settings, strategy=Strategy.FULL)
    assert done.to_json()["copied_rows"] == 2000
    entry = CommitLog(store).current().by_age()[0]
    assert entry.skip_index is not None and sorted(entry.skip_index.columns) == ["service", "trace"]
    rows, report = found(store, f"trace = '{table.column('trace')[3].as_py()}'")
    assert len(rows) == 1 and report.row_groups_skipped >= 36


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_random_conditions_give_the_rows_that_a_table_without_indexes_gives(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    stores = [LocalStore(tmp_path / name) for name in ("with", "without")]
    tables = [some_rows(n, rng.randrange(1, 300)) for n in range(4)]
    budget = rng.choice([64, 700, 1 << 16])
    for store, skips in zip(stores, (SkipSpec(SKIPS.columns, budget), SkipSpec()), strict=True):
        for table in tables[:3]:
            add(store, table, skips=skips)
        if seed % 2:
            compact_table(store, CompactionSettings(max_rows_per_row_group=40))
        add(store, tables[3], skips=SkipSpec())
    everything = pa.concat_tables(tables)
    for _ in range(25):
        row = everything.slice(rng.randrange(len(everything)), 1).to_pylist()[0]
        where = rng.choice(
            [
                f"trace = '{row['trace']}' OR n = {rng.randrange(1200)}",
                f"n IN ({row['n']}, {rng.randrange(2000)}) AND NOT service = '{row['service']}'",
                f"service LIKE '{(row['service'] or 'svc')[: rng.randrange(7)]}%' AND n < 30",
                f"service ILIKE '%{rng.randrange(5)}-1' AND n > 900",
                f"NOT (trace = '{row['trace']}') AND n = {row['n']}",
                f"trace <> '{row['trace']}' AND n = {row['n']}",
                "service IS NULL AND n < 40",
            ]
        )
        assert found(stores[0], where)[0] == found(stores[1], where)[0], where


@pytest.mark.parametrize(
    "dtype", [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(18, 2), pa.decimal256(50, 2)]
)
def test_a_decimal_is_found_by_the_index_whatever_its_scale(
    dtype: pa.DataType, store: MemoryStore
) -> None:
    cents = [None if n % 7 == 0 else Decimal(n * 100).scaleb(-2) for n in range(400)]
    rows = pa.table({"ts": range(400), "c": pa.array(cents, dtype)})
    log = append_table(
        store, rows, "ts", IngestOptions(skips=SkipSpec((("c", SkipKind.BLOOM),))), max_rows=50
    )
    for where in ("c = 100", "c = 100.0", "c = 1e2", "c = 100.0000", "c IN (100)"):
        got, report = found(store, where)
        assert [row["ts"] for row in got] == [100], where
        assert report.rows_read == 50, where
    assert found(store, "c = 100.001")[0] == found(store, "c IN (100.001, 0.5)")[0] == []
    assert delete_rows(store, log, "c IN (100, 101.0)").rows == 2


def test_deletions_find_their_rows_by_the_index(store: MemoryStore) -> None:
    tables = [some_rows(seed) for seed in range(6)]
    for table in tables:
        log = add(store, table)
    trace = tables[4].column("trace")[0].as_py()
    report = delete_rows(store, log, f"trace = '{trace}'")
    assert (report.rows, report.fragments) == (1, 1)
    assert report.fragments_read <= 3
    assert found(store, f"trace = '{trace}'")[0] == []


def test_an_index_rules_out_nothing_that_a_newer_row_may_have_replaced(store: MemoryStore) -> None:
    rows = RowPolicy(RowKind.LAST)
    for value in ("old", "new"):
        add(
            store,
            pa.table({"ts": [1, 2], "service": [value, "x"]}),
            rows=rows,
            skips=SkipSpec((("service", SkipKind.VALUES),)),
        )
    assert found(store, "service = 'old'")[0] == []
    assert found(store, "service = 'new'")[0] == [{"ts": 1, "service": "new"}]


def test_indexes_come_and_go_with_the_fragments_and_follow_their_columns(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    log = add(store, some_rows(1), skips=SkipSpec())
    assert log.current().by_age()[0].skip_index is None
    alter_table(log, Alteration(skips={"trace": SkipKind.BLOOM}, renames={"service": "app"}))
    alter_table(log, Alteration(renames={"trace": "span"}, skips={"app": SkipKind.VALUES}))
    compact_table(store, strategy=Strategy.OVERLAPPING)
    add(store, some_rows(2).rename_columns(["ts", "span", "app", "n"]), skips=SkipSpec())
    compact_table(store, CompactionSettings(max_rows_per_row_group=50), strategy=Strategy.FULL)
    rows, report = found(store, f"span = '{some_rows(1).column('trace')[0].as_py()}'")
    assert len(rows) == 1 and report.row_groups_skipped >= 12
    assert read_checkpoint(checkpoint_bytes(log.current()), name="x") == log.latest
    skips = [info.key for info in store.list("data/") if info.key.endswith(".skips")]
    assert len(skips) == 2
    alter_table(log, Alteration(drops=["span"], redacts=["app"]))
    assert [shown for shown, _ in log.latest.table.skips.columns] == ["app"]
    alter_table(log, Alteration(skips={"app": None}))
    add(store, pa.table({"ts": [5]}), skips=SkipSpec())
    compact_table(store, strategy=Strategy.FULL)
    assert all(entry.skip_index is None for entry in log.current().fragments.all())


def test_a_damaged_index_is_done_without_and_named_by_verify(store: MemoryStore) -> None:
    log = add(store, some_rows(1))
    entry = log.current().by_age()[0]
    assert entry.skip_index is not None
    data = bytearray(store.read(entry.skip_index.key))
    place = entry.skip_index.columns["trace"]
    data[place.offset + place.length - 3] ^= 1
    store.delete(entry.skip_index.key)
    store.create(entry.skip_index.key, bytes(data))
    trace = some_rows(1).column("trace")[9].as_py()
    rows, report = found(store, f"trace = '{trace}'")
    assert len(rows) == 1 and report.row_groups_skipped < 8  # by statistics alone
    [fault] = verify(store, log.current()).faults
    assert "trace" in fault and f"this is the skip index of {entry.key}" in fault
    with pytest.raises(DataError):
        read_summaries(store, entry, "trace")
    store.delete(entry.skip_index.key)
    assert len(found(store, f"trace = '{trace}' OR service = 'x'")[0]) == 1
    assert "the log refers to it" in verify(store, log.current()).faults[0]


def test_the_index_of_another_fragment_under_its_name_hides_no_rows(store: MemoryStore) -> None:
    add(store, some_rows(1))
    log = add(store, some_rows(2))
    first, second = log.current().by_age()
    assert first.skip_index is not None and second.skip_index is not None
    assert first.skip_index.columns["trace"].length == second.skip_index.columns["trace"].length
    other = store.read(second.skip_index.key)
    store.delete(first.skip_index.key)
    store.create(first.skip_index.key, other)
    trace = some_rows(1).column("trace")[9].as_py()
    assert len(found(store, f"trace = '{trace}'")[0]) == 1
    faults = verify(store, log.current()).faults
    assert any("another skip index" in fault for fault in faults)


@pytest.mark.parametrize(
    "skips",
    [
        (("ts", SkipKind.BLOOM),),
        (("nope", SkipKind.BLOOM),),
        (("n", SkipKind.VALUES),),
    ],
)
def test_an_index_that_would_be_of_no_use_is_refused(
    store: MemoryStore, skips: tuple[tuple[str, SkipKind], ...]
) -> None:
    with refuses(UsageError):
        add(store, some_rows(1), skips=SkipSpec(skips))


def test_a_column_that_has_become_a_float_is_not_asked_by_hashes(store: MemoryStore) -> None:
    skips = SkipSpec((("n", SkipKind.BLOOM),))
    log = add(store, pa.table({"ts": [1, 2], "n": pa.array([0, 5], pa.int32())}), skips=skips)
    add(store, pa.table({"ts": [3, 4], "n": [-0.0, 0.5]}), skips=SkipSpec())
    for _ in range(2):
        assert [row["ts"] for row in found(store, "n = 0")[0]] == [1, 3]
        compact_table(store, strategy=Strategy.FULL)
    after = alter_table(log, Alteration(renames={"n": "m"}, order=["m"]))
    assert after.table.shown_schema.names == ["m", "ts"]
    assert delete_rows(store, log, "m = 0").rows == 2


def test_a_full_compaction_makes_the_indexes_that_were_asked_for_later(store: MemoryStore) -> None:
    log = add(store, some_rows(1), skips=SkipSpec())
    compact_table(store, CompactionSettings(max_rows_per_row_group=50), strategy=Strategy.FULL)
    alter_table(log, Alteration(skips={"trace": SkipKind.BLOOM}, skip_bytes=4096))
    settings = CompactionSettings(max_rows_per_row_group=50)
    assert len(compact_table(store, settings, strategy=Strategy.FULL).done) == 1
    assert found(store, f"trace = '{some_rows(1).column('trace')[0].as_py()}'")[1].rows_read <= 150
    alter_table(log, Alteration(skip_bytes=32, skips={"n": SkipKind.BLOOM}))
    assert len(compact_table(store, settings, strategy=Strategy.FULL).done) == 1
    assert not compact_table(
        store, settings, strategy=Strategy.FULL
    ).done  # although nothing was kept
