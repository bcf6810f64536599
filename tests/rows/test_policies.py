"""Row policies one at a time: what is refused, what is dropped and when, and what later programs can read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from compactor.compaction.driver import Driver, DriverSettings
from compactor.errors import InputError, UsageError
from compactor.read.scan import scan
from compactor.rows.flags import COUNTS, KEPT, RowRule, is_divisible, whole_until
from compactor.rows.fold import FoldError, folded
from compactor.rows.policy import APPEND, RowFunction, RowKind, RowPolicy, Ttl
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.stores.base import Store
from compactor.table.checkpoint import checkpoint_bytes, read_checkpoint
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TimeWindows
from compactor.table.version import Version
from compactor.write.alter import Alteration, alter_table
from compactor.write.ingest import IngestOptions
from tests.support.clocks import StillClock
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, compact_table, table_rows
from tests.support.wording import refuses

LAST = RowPolicy(RowKind.LAST)
TOMBSTONES = RowPolicy(RowKind.LAST, delete_marker="gone")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def add(
    store: Store,
    rows: list[dict[str, Any]] | pa.Table,
    policy: RowPolicy | None = None,
    *,
    sort_by: str = "k",
    **options: Any,
) -> CommitLog:
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    max_rows = options.pop("max_rows", 4)
    return append_table(
        store, table, sort_by, IngestOptions(rows=policy, **options), max_rows=max_rows
    )


def entries(store: Store) -> list[FragmentEntry]:
    return CommitLog(store).current().by_age()


def dropped(report: Any) -> dict[str, int]:
    return {r: n for r, n in report.to_json()["dropped_by_reason"].items() if n}


def test_a_fragment_has_one_row_of_a_key_as_soon_as_it_is_written(store: MemoryStore) -> None:
    add(store, [{"k": k, "n": n} for n, k in enumerate([1, 2, 1, 1, 3])], LAST)
    assert [entry.rows for entry in entries(store)] == [3]
    assert table_rows(store) == [{"k": 1, "n": 3}, {"k": 2, "n": 1}, {"k": 3, "n": 4}]


def test_a_condition_does_not_uncover_what_a_newer_row_has_replaced(store: MemoryStore) -> None:
    """Fragments and row groups may only be skipped by what holds of the key."""
    add(store, [{"k": k, "n": 1} for k in range(20)], LAST)
    log = add(store, [{"k": k, "n": 2} for k in range(0, 20, 2)])
    snapshot = log.current()

    def found(where: str, columns: list[str]) -> list[dict[str, Any]]:
        from compactor.predicate import parse_where

        predicate = parse_where(where, snapshot.table.schema)
        return [r for b in scan(store, snapshot, columns, predicate) for r in b.to_pylist()]

    assert [row["k"] for row in found("n = 1", ["k"])] == list(range(1, 20, 2))
    assert found("n = 1 AND k = 2", ["k", "n"]) == []
    assert found("n = 2 AND k <= 2", ["n"]) == [{"n": 2}, {"n": 2}]
    assert found("k >= 19", []) == [{}]


def test_tombstones_stay_while_an_older_row_is_left_out_of_a_compaction(store: MemoryStore) -> None:
    """The rule: dropped only where no older fragment that overlaps is left out."""
    add(store, [{"k": k, "n": 1, "gone": False} for k in range(100)], TOMBSTONES)
    compact_table(store, strategy=Strategy.FULL)  # moved to the bottom
    for k in (5, 6):
        add(store, [{"k": k, "n": None, "gone": True}])
    policy = Policy(strategy=Strategy.TIERED, level0_trigger_runs=2)
    report = compact_table(store, policy=policy)
    assert len(report.done) == 1 and dropped(report) == {}
    assert sorted((e.level, e.rows, e.tombstones) for e in entries(store)) == [
        (0, 2, 2),
        (1, 100, 0),
    ]
    assert [row["k"] for row in table_rows(store)] == [k for k in range(100) if k not in (5, 6)]
    report = compact_table(store, strategy=Strategy.FULL)
    assert dropped(report) == {"superseded": 2, "tombstones": 2}
    assert [(e.rows, e.tombstones) for e in entries(store)] == [(98, 0)]
    assert [row["k"] for row in table_rows(store)] == [k for k in range(100) if k not in (5, 6)]


def test_tombstones_that_hide_nothing_are_dropped_by_a_compaction_of_their_own(
    store: MemoryStore,
) -> None:
    add(store, [{"k": k, "n": k, "gone": k < 3} for k in range(10)], TOMBSTONES)
    assert entries(store)[0].tombstones == 3
    assert [row["k"] for row in table_rows(store)] == list(range(3, 10))
    report = compact_table(store, strategy=Strategy.OVERLAPPING)
    assert dropped(report) == {"tombstones": 3}
    assert [row["k"] for row in table_rows(store)] == list(range(3, 10))


def test_with_a_sequence_tombstones_stay_for_rows_that_come_late(store: MemoryStore) -> None:
    policy = RowPolicy(RowKind.LAST, sequence="v", delete_marker="gone")
    add(store, [{"k": 1, "v": 5, "gone": True}, {"k": 2, "v": 5, "gone": None}], policy)
    compact_table(store, strategy=Strategy.FULL)
    add(store, [{"k": 1, "v": 4, "gone": None}])
    assert [row["k"] for row in table_rows(store)] == [2]
    compact_table(store, strategy=Strategy.FULL)
    assert [row["k"] for row in table_rows(store)] == [2]


def test_who_says_that_no_row_comes_late_has_tombstones_dropped(store: MemoryStore) -> None:
    policy = RowPolicy(RowKind.LAST, sequence="v", delete_marker="gone", keeps_tombstones=False)
    add(store, [{"k": 1, "v": 5, "gone": True}, {"k": 2, "v": 5, "gone": None}], policy)
    assert dropped(compact_table(store, strategy=Strategy.FULL)) == {"tombstones": 1}


def test_all_rows_may_go(store: MemoryStore) -> None:
    add(store, [{"k": k, "gone": False} for k in range(50)], TOMBSTONES)
    add(store, [{"k": k, "gone": True} for k in range(50)])
    assert table_rows(store) == []
    report = compact_table(store, strategy=Strategy.FULL)
    assert dropped(report) == {"superseded": 50, "tombstones": 50}
    assert entries(store) == [] and table_rows(store) == []


def test_old_rows_are_left_out_and_counted(store: MemoryStore) -> None:
    now = datetime.now(UTC)
    rows = [
        {"k": k, "ts": None if k == 7 else now - timedelta(days=3 if k % 3 == 0 else 0)}
        for k in range(30)
    ]
    add(store, rows, sort_by="k", ttl=Ttl("ts", 86_400))
    assert entries(store)[0].oldest_unix_ms == pytest.approx(
        (now.timestamp() - 3 * 86_400) * 1000, abs=2
    )
    report = compact_table(store, strategy=Strategy.OVERLAPPING)
    assert dropped(report) == {"expired": 10}
    assert [row["k"] for row in table_rows(store)] == [k for k in range(30) if k % 3]
    assert not compact_table(store, strategy=Strategy.OVERLAPPING).done


def test_a_fragment_is_rewritten_once_its_oldest_row_has_outlived_its_time_by_a_quarter(
    store: MemoryStore,
) -> None:
    now = datetime.now(UTC)
    for age in (110, 126):
        rows = [{"k": age, "ts": now - timedelta(seconds=age)}, {"k": age + 1, "ts": now}]
        add(store, rows, ttl=Ttl("ts", 100))
    report = compact_table(store, strategy=Strategy.TIERED)
    assert dropped(report) == {"expired": 1}
    assert [row["k"] for row in table_rows(store)] == [110, 111, 127]
    assert dropped(compact_table(store, strategy=Strategy.FULL)) == {"expired": 1}


@pytest.mark.parametrize("late_ms", [-1, 0, 1, 999, 1000, 1001, 86_399_999, 86_400_000, 86_400_001])
@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        (pa.date32(), 20_000),
        (pa.date64(), 20_000 * 86_400_000),
        (pa.timestamp("s"), 20_000 * 86_400),
        (pa.timestamp("ms"), 20_000 * 86_400_000),
        (pa.timestamp("us"), 20_000 * 86_400_000_000 + 500),
        (pa.timestamp("ns"), 20_000 * 86_400_000_000_000 + 500),
    ],
    ids=str,
)
def test_a_plan_calls_expired_what_a_merge_leaves_out_and_nothing_else(
    store: MemoryStore, dtype: pa.DataType, stored: int, late_ms: int
) -> None:
    """Columns of whole days or seconds expire later than their milliseconds."""
    ttl = Ttl("t", 30 * 86_400)
    table = pa.table({"k": pa.array([1]), "t": pa.array([stored], dtype)})
    add(store, table, ttl=ttl)
    now = (20_000 + 30) * 86_400_000 + late_ms
    log = CommitLog(store, StillClock(now))
    snapshot = log.refresh()
    metadata = snapshot.table
    rule = RowRule(APPEND, ttl, metadata.schema, metadata.sort, is_bottom=True, now_unix_ms=now)
    keys = [table[column.column].combine_chunks() for column in metadata.sort]
    driver = Driver(log, DriverSettings(policy=Policy(strategy=Strategy.FULL)))
    assert bool(driver.plan(snapshot).specs) is not rule.leaves(keys)


@pytest.mark.parametrize("kind", [RowKind.LAST, RowKind.PARTIAL_UPDATE])
def test_a_tombstone_that_is_kept_never_expires(store: MemoryStore, kind: RowKind) -> None:
    """Its fragment would be due for ever, since no compaction leaves it out."""
    long_ago, longer = datetime(2020, 1, 2, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)
    policy = RowPolicy(kind, delete_marker="gone", keeps_tombstones=True)
    sort_by = "k" if kind is RowKind.LAST else "k,ts"
    log = add(
        store, [{"k": 1, "ts": longer, "gone": True}], policy, sort_by=sort_by, ttl=Ttl("ts", 60)
    )
    assert entries(store)[0].oldest_unix_ms is None
    driver = Driver(log, DriverSettings(policy=Policy(strategy=Strategy.FULL)))
    assert not driver.plan(log.current()).specs
    add(store, [{"k": 2, "ts": long_ago, "gone": None}], sort_by=sort_by)
    assert entries(store)[-1].oldest_unix_ms == round(long_ago.timestamp() * 1000)
    assert dropped(compact_table(store, strategy=Strategy.FULL)) == {"expired": 1}
    assert [(e.rows, e.tombstones, e.oldest_unix_ms) for e in entries(store)] == [(1, 1, None)]


def test_an_expired_row_stays_while_it_hides_an_older_one(store: MemoryStore) -> None:
    now = datetime.now(UTC)
    old, new = now - timedelta(days=9), now
    add(store, [{"k": k, "ts": new} for k in range(9)], LAST, ttl=Ttl("ts", 86_400))
    compact_table(store, strategy=Strategy.FULL)
    add(store, [{"k": 4, "ts": old}])
    add(store, [{"k": 5, "ts": old}])
    report = compact_table(store, policy=Policy(strategy=Strategy.TIERED, level0_trigger_runs=2))
    assert len(report.done) == 1 and dropped(report) == {}
    report = compact_table(store, strategy=Strategy.FULL)
    assert dropped(report) == {"superseded": 2, "expired": 2}
    assert [row["k"] for row in table_rows(store)] == [0, 1, 2, 3, 6, 7, 8]


@pytest.mark.parametrize("kind", [RowKind.PARTIAL_UPDATE, RowKind.LAST])
def test_heavy_values_that_meet_in_one_row_group_are_divided_between_keys(
    store: MemoryStore, kind: RowKind
) -> None:
    """A second pass, whose row groups never part the rows that go into one."""
    rng = np.random.default_rng(3)
    expected: dict[int, str | None] = {}
    for run in range(6):
        rows = []
        for k in range(60):
            length = 30_000 if 20 <= k < 30 else 1
            text = f"{run}-{k}-" + "x" * length if rng.random() < 0.8 else None
            rows.append({"k": k, "text": text})
            if text is not None or kind is RowKind.LAST:
                expected[k] = text
        add(store, rows, RowPolicy(kind), max_rows=64)
    settings = CompactionSettings(target_row_group_bytes=200_000)
    report = compact_table(store, settings, strategy=Strategy.FULL)
    assert report.to_json()["restarts"] == 1
    assert table_rows(store) == [{"k": k, "text": expected.get(k)} for k in range(60)]


def test_a_sum_that_its_type_cannot_hold_is_an_error_and_loses_nothing(store: MemoryStore) -> None:
    policy = RowPolicy(RowKind.AGGREGATE, aggregates=(("n", RowFunction.SUM),))
    for _ in range(2):
        add(store, [{"k": 1, "n": 2**62}, {"k": 2, "n": 1}], policy)
    report = compact_table(store, strategy=Strategy.FULL)
    [failure] = report.to_json()["failures"]
    assert failure["reason"].startswith(
        "FoldError: column 'n': the sum of the rows where \"k\" = 1 does not fit into int64: "
    )
    assert [entry.rows for entry in entries(store)] == [2, 2]


@pytest.mark.parametrize(
    ("values", "dtype", "is_error"),
    [
        ([2**62, 2**62], pa.int64(), True),
        ([2**62, 2**62 - 1], pa.int64(), False),
        ([-(2**62), -(2**62)], pa.int64(), False),
        ([-(2**62), -(2**62), -1], pa.int64(), True),
        ([2**62, 2**62, 2**62, 2**62, 2**62], pa.int64(), True),
        ([1.5, None, 2.5], pa.float64(), False),
        ([None, None], pa.int64(), False),
    ],
)
def test_sums_are_right_or_refused(values: list[Any], dtype: pa.DataType, is_error: bool) -> None:
    flags = np.array([COUNTS] * (len(values) - 1) + [KEPT | COUNTS], dtype=np.uint8)
    array = pa.array(values, dtype)
    if is_error:
        with refuses(FoldError, "'n'"):
            folded(array, flags, RowFunction.SUM, "n")
        return
    present = [value for value in values if value is not None]
    expected = sum(present) if present else None
    assert folded(array, flags, RowFunction.SUM, "n").to_pylist() == [expected]


def test_rows_are_divided_only_after_one_that_is_kept_or_counts_for_nothing() -> None:
    flags = np.array([COUNTS, COUNTS, 3, 0, COUNTS, 3, 3], dtype=np.uint8)
    assert [whole_until(flags, rows) for rows in range(1, 8)] == [3, 3, 3, 4, 4, 6, 7]
    assert whole_until(flags, 5, start=4) == 6
    assert not is_divisible(flags[:3], 3)
    assert is_divisible(flags[:4], 4)
    assert not is_divisible(None, 1)
    assert is_divisible(None, 2)


@pytest.mark.parametrize(
    "policy",
    [
        RowPolicy(RowKind.PARTIAL_UPDATE, sequence="v"),
        RowPolicy(RowKind.APPEND, sequence="v"),
        RowPolicy(RowKind.LAST, sequence="nope"),
        RowPolicy(RowKind.LAST, sequence="k"),
        RowPolicy(RowKind.FIRST, sequence="v", delete_marker="gone"),
        RowPolicy(RowKind.LAST, delete_marker="v"),
        RowPolicy(RowKind.LAST, aggregates=(("v", RowFunction.SUM),)),
        RowPolicy(RowKind.AGGREGATE, aggregates=(("k", RowFunction.SUM),)),
        RowPolicy(RowKind.AGGREGATE, aggregates=(("s", RowFunction.SUM),)),
        RowPolicy(RowKind.AGGREGATE, aggregates=(("v", RowFunction.BOOL_OR),)),
        RowPolicy(RowKind.AGGREGATE, aggregates=(("s", RowFunction.LIST),)),
        RowPolicy(RowKind.AGGREGATE, aggregates=(("ll", RowFunction.SET),)),
        RowPolicy(RowKind.AGGREGATE, aggregates=(("ll", RowFunction.MAX),)),
        RowPolicy(RowKind.AGGREGATE, aggregates=(("zz", RowFunction.MAX),)),
    ],
)  # fmt: skip
def test_a_policy_that_does_not_fit_is_refused_and_says_what_would(
    store: MemoryStore, policy: RowPolicy
) -> None:
    row = {"k": 1, "v": 2, "s": "x", "gone": False, "ll": [[1]]}
    with refuses((UsageError, InputError)):
        add(store, [row], policy)
    assert CommitLog(store).refresh().version == 0


def test_a_time_to_live_needs_a_time_that_is_known_with_the_keys(store: MemoryStore) -> None:
    row = {"k": 1, "v": 2, "ts": datetime.now(UTC)}
    with refuses(UsageError):
        add(store, [row], ttl=Ttl("v", 60))
    with refuses(UsageError):
        add(store, [row], RowPolicy(RowKind.PARTIAL_UPDATE), ttl=Ttl("ts", 60))
    with refuses(UsageError):
        add(store, [row], LAST, windows=TimeWindows("ts", 60))


def test_another_policy_than_the_tables_is_refused(store: MemoryStore) -> None:
    add(store, [{"k": 1, "ts": datetime.now(UTC)}], LAST, ttl=Ttl("ts", 60))
    with refuses(UsageError):
        add(store, [{"k": 1, "ts": None}], RowPolicy(RowKind.FIRST))
    with refuses(UsageError):
        add(store, [{"k": 1, "ts": None}], ttl=Ttl("ts", 61))
    assert CommitLog(store).current().version == 1


def test_files_may_leave_the_delete_marker_out(store: MemoryStore) -> None:
    add(store, [{"k": 1, "n": 1}], TOMBSTONES)
    add(store, [{"k": 2, "n": 1, "gone": True}, {"k": 3, "n": 1, "gone": False}])
    add(store, [{"k": 2, "n": 2}])
    rows = [(row["k"], row["n"]) for row in table_rows(store)]
    assert rows == [(1, 1), (2, 2), (3, 1)]
    compact_table(store, strategy=Strategy.FULL)
    assert [(row["k"], row["n"]) for row in table_rows(store)] == rows


def test_counted_columns_count_values_of_any_type(store: MemoryStore) -> None:
    policy = RowPolicy(
        RowKind.AGGREGATE, aggregates=(("who", RowFunction.COUNT), ("n", RowFunction.SUM))
    )
    add(
        store,
        pa.table({"k": [1, 1, 2], "who": ["a", None, "b"], "n": pa.array([1, 2, 3], pa.int8())}),
        policy,
    )
    add(store, [{"k": 1, "who": 2.5, "n": 10**9}])
    add(store, [{"k": 2, "n": 1}])
    expected = [{"k": 1, "who": 2, "n": 10**9 + 3}, {"k": 2, "who": 1, "n": 4}]
    assert table_rows(store) == expected
    compact_table(store, strategy=Strategy.FULL)
    assert table_rows(store) == expected


def test_a_file_without_a_counted_column_counts_no_values(store: MemoryStore) -> None:
    policy = RowPolicy(RowKind.AGGREGATE, aggregates=(("who", RowFunction.COUNT),))
    add(store, pa.table({"k": [1, 2], "who": pa.array(["a", None]), "n": [1, 2]}), policy)
    add(store, [{"k": 3, "n": 3}])
    add(store, [{"k": 4, "n": None}, {"k": 1, "n": 4}])
    counts = [(1, 1), (2, 0), (3, 0), (4, 0)]
    assert [(row["k"], row["who"]) for row in table_rows(store)] == counts
    compact_table(store, strategy=Strategy.FULL)
    assert [(row["k"], row["who"]) for row in table_rows(store)] == counts


@pytest.mark.parametrize(
    "dtype",
    [pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal256(60, 2), pa.uint64()],
    ids=str,
)
def test_sets_have_each_element_once_whatever_its_type(
    store: MemoryStore, dtype: pa.DataType
) -> None:
    policy = RowPolicy(RowKind.AGGREGATE, aggregates=(("v", RowFunction.SET),))
    lists: list[list[int | None]] = [[1, 2, 1], [2, None], [], [None, 3]]
    for n, items in enumerate(lists):
        values = pa.array([[item if item is None else Decimal(item) for item in items]])
        values = values.cast(pa.list_(dtype)) if n != 2 else pa.array([[]], pa.list_(dtype))
        add(store, pa.table({"k": [1], "v": values}), None if n else policy)
    expected = [{"k": 1, "v": [1, 2, None, 3]}]
    assert table_rows(store) == expected
    compact_table(store, strategy=Strategy.FULL)
    assert table_rows(store) == expected


def test_log_and_checkpoint_keep_a_tables_policy_and_its_tombstones(store: MemoryStore) -> None:
    log = add(store, [{"k": 1, "gone": True}], TOMBSTONES)
    first = next(key.key for key in store.list("_log/") if "000001" in key.key)
    text = store.read(first)
    assert Version.from_bytes(text, name="x").changes.metadata == log.latest.metadata
    again = read_checkpoint(checkpoint_bytes(log.latest), name="x")
    assert again == log.latest
    assert [entry.tombstones for entry in again.by_age()] == [1]


@pytest.mark.parametrize("dtype", [pa.decimal128(38, 0), pa.decimal256(76, 0)])
def test_a_sum_of_decimals_is_never_wrapped(dtype: pa.DataType) -> None:
    nines = "9" * dtype.precision
    flags = np.array([COUNTS, KEPT | COUNTS], dtype=np.uint8)
    values = pa.array([Decimal(nines), Decimal(1)], dtype)
    with refuses(FoldError):
        folded(values, flags, RowFunction.SUM, "n")
    values = pa.array([Decimal(nines), Decimal(-1)], dtype)
    assert folded(values, flags, RowFunction.SUM, "n").to_pylist() == [Decimal(nines[:-1] + "8")]


def test_sums_that_do_not_fit_put_nothing_in_quarantine_and_can_be_mended(
    store: MemoryStore,
) -> None:
    policy = RowPolicy(RowKind.AGGREGATE, aggregates=(("n", RowFunction.SUM),))
    for _ in range(2):
        add(store, [{"k": 1, "n": 9 * 10**18}, {"k": 2, "n": 1}], policy)
    assert compact_table(store, strategy=Strategy.FULL).to_json()["failures"]
    assert not CommitLog(store).current().quarantine
    add(store, [{"k": 1, "n": -(9 * 10**18)}])
    assert not compact_table(store, strategy=Strategy.FULL).to_json()["failures"]
    assert table_rows(store) == [{"k": 1, "n": 9 * 10**18}, {"k": 2, "n": 2}]


def test_an_expired_first_row_hides_those_that_came_later_until_they_go_with_it(
    store: MemoryStore,
) -> None:
    now = datetime.now(UTC)
    first = RowPolicy(RowKind.FIRST)
    add(store, [{"k": 1, "ts": now - timedelta(days=99), "n": "old"}], first, ttl=Ttl("ts", 86_400))
    add(store, [{"k": 1, "ts": now, "n": "new"}])
    for strategy in (Strategy.TIERED, Strategy.LEVELED):
        compact_table(store, strategy=strategy)
        assert [row["n"] for row in table_rows(store)] == ["old"]
    compact_table(store, strategy=Strategy.FULL)
    assert table_rows(store) == []


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_time_to_live_longer_than_time_drops_nothing(store: MemoryStore, unit: str) -> None:
    times = pa.array([datetime(2001, 1, 1), None], pa.timestamp(unit))
    for _ in range(2):
        add(store, pa.table({"k": [1, 2], "ts": times}), ttl=Ttl("ts", 10**12))
    assert not compact_table(store, strategy=Strategy.FULL).failed
    assert len(table_rows(store)) == 4


def test_dictionary_coded_booleans_mark_deletions(store: MemoryStore) -> None:
    gone = pa.array([True, False, None]).dictionary_encode()
    add(store, pa.table({"k": [1, 2, 3], "gone": gone}), TOMBSTONES)
    compact_table(store, strategy=Strategy.FULL)
    assert [row["k"] for row in table_rows(store)] == [2, 3]


def test_the_policy_of_a_table_is_said_and_compared_by_the_names_of_its_columns_now(
    store: MemoryStore,
) -> None:
    log = add(store, [{"k": 1, "gone": False}], TOMBSTONES)
    alter_table(log, Alteration(renames={"gone": "deleted", "k": "id"}))
    renamed = RowPolicy(RowKind.LAST, delete_marker="deleted")
    add(store, [{"id": 1, "deleted": True}], renamed, sort_by="id")
    assert table_rows(store) == []
    with refuses(UsageError):
        add(store, [{"id": 1}], TOMBSTONES, sort_by="id")
    with refuses(InputError):
        add(store, [{"k": 1}], sort_by="id")
