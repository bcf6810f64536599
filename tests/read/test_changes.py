"""What changed between two versions: rows before and changes give the rows after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from msgspec import Struct

from compactor import CompactorError, Policy, RowKind, RowPolicy, Strategy, Table
from compactor.compaction.driver import Driver, DriverSettings
from compactor.errors import UsageError, VersionNotFoundError
from compactor.planner.tree import forest
from compactor.read.merged_changes import MergedChanges, merged_changes
from compactor.rows.policy import APPEND, Ttl
from compactor.settings.compaction import CompactionSettings
from compactor.table.version import Changes, Lease, Operation
from compactor.write.ingest import IngestOptions
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.keys.sort_schema import SortColumn
from tests.support.clocks import START_MS, SetClock
from tests.support.memory_store import MemoryStore
from tests.support.tables import open_table
from tests.support.wording import refuses

FULL: Final = Policy(strategy=Strategy.FULL)
SOON: Final = Policy(level0_trigger_runs=2)
START_S: Final = START_MS // 1000


def created(rows: pa.Table, options: IngestOptions | None = None, sort: str = "k") -> Table:
    table = open_table(MemoryStore(), SetClock())
    table._ingest(rows, sort, options)
    return table


# --- the oracle ---


class Kind(Struct, frozen=True):
    """A kind of table whose histories are tried."""

    policy: RowPolicy = APPEND
    ttl: bool = False
    marker: bool = False


TABLES: Final = {
    "append": Kind(),
    "append with a time to live": Kind(ttl=True),
    "last": Kind(RowPolicy(RowKind.LAST)),
    "last by sequence, with tombstones": Kind(
        RowPolicy(RowKind.LAST, sequence="s", delete_marker="gone"), marker=True
    ),
    "last with a time to live": Kind(RowPolicy(RowKind.LAST), ttl=True),
    "partial updates": Kind(RowPolicy(RowKind.PARTIAL_UPDATE)),
}


class History:
    """A random history of a table, and its rows at every version."""

    def __init__(self, seed: int, kind: Kind) -> None:
        self.random = Random(seed)
        self.kind = kind
        self.clock = SetClock()
        self.table = open_table(MemoryStore(), self.clock)
        ttl = Ttl("at", 1000) if kind.ttl else None
        options = IngestOptions(
            rows=kind.policy, ttl=ttl, rows_per_fragment=20, writer=WriterOptions(4)
        )
        self.table._ingest(self.rows(), "k,at" if kind.ttl else "k", options)
        self.done = ["create"]
        self.columns = 0

    def rows(self, **more: pa.Array) -> pa.Table:
        count = self.random.randrange(1, 30)
        keys = [self.random.choice([None, *range(25)]) for _ in range(count)]
        columns: dict[str, Any] = {
            "k": pa.array(keys, pa.int32()),
            "v": pa.array([self.random.choice([None, "a", "b", "c"]) for _ in keys]),
        }
        if self.kind.ttl:
            now = round(self.clock.now_ms / 1000)
            times = [self.random.choice([None, *range(now - 900, now, 100)]) for _ in keys]
            columns["at"] = pa.array(times, pa.timestamp("s", "UTC"))
        if self.kind.marker:
            columns["s"] = pa.array([self.random.randrange(9) for _ in keys], pa.int64())
            columns["gone"] = pa.array([self.random.random() < 0.2 for _ in keys])
        return pa.table(columns | {name: values.slice(0, count) for name, values in more.items()})

    def step(self) -> None:
        acts = {
            "append": 8, "overwrite": 2, "update": 2, "delete": 3, "compact": 4, "full": 2, "alter": 2,
            "set": 1, "tag": 1, "restore": 1, "undo": 1, "widen": 1, "wait": 2,
        }  # fmt: skip
        [name] = self.random.choices(list(acts), list(acts.values()))
        try:
            getattr(self, name)()
            self.done.append(f"{name} {self.table.version}")
        except CompactorError as error:
            self.done.append(f"{name}: {type(error).__name__}")

    def append(self) -> None:
        self.table.append(self.rows())

    def widen(self) -> None:
        values = [self.random.random() for _ in range(30)]
        number = self.random.randrange(3)
        dtype = self.random.choice([pa.int16(), pa.int64(), pa.float64()])
        array = pa.array([int(value * 100) for value in values], dtype)
        self.table.append(self.rows(**{f"n{number}": array}))

    def overwrite(self) -> None:
        low = self.random.randrange(25)
        rows = self.rows()
        keys = rows["k"].to_pylist()
        wanted = [key is not None and low <= key <= low + 9 for key in keys]
        self.table.overwrite(rows.filter(pa.array(wanted)), f"k BETWEEN {low} AND {low + 9}")

    def update(self) -> None:
        low = self.random.randrange(25)
        self.table.update(
            f"k BETWEEN {low} AND {low + 3}", {"v": self.random.choice(["'u'", None])}
        )

    def set(self) -> None:
        self.table.alter(properties={"level0_compression_level": self.random.randrange(3)})

    def tag(self) -> None:
        self.table.tag(self.random.choice("ab"), move=True, keep_later=True)

    def delete(self) -> None:
        low = self.random.randrange(25)
        where = self.random.choice([f"k BETWEEN {low} AND {low + 4}", "v = 'a'", "k IS NULL"])
        self.table.delete(where)

    def compact(self) -> None:
        self.table.compact(policy=SOON)

    def full(self) -> None:
        self.table.compact(policy=FULL)

    def wait(self) -> None:
        self.clock.sleep(400)

    def alter(self) -> None:
        name = self.random.choice(self.table.schema.names)
        if self.random.random() < 0.5:
            self.table.alter(renames={name: f"{name}{self.table.version}"})
        else:
            self.table.alter(drops=[name])

    def restore(self) -> None:
        self.table.restore(version=self.random.randrange(1, self.table.version + 1))

    def undo(self) -> None:
        runs = [e.run for e in self.table._snapshot.fragments.all() if e.run != e.key]
        self.table.undo(self.random.choice(runs or ["none"]))


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def rows_as(then: Table, last: Table, columns: Sequence[str], where: str | None) -> Counter[Any]:
    """The rows of one version in the columns of a later one, found by their stored names."""
    metadata, names = then._snapshot.table, []
    for column in columns:
        stored = last._snapshot.table.stored_name(column)
        is_there = stored in metadata.schema.names
        names.append(metadata.shown_name(str(stored)) if is_there else None)
    found = then.scan(where=where).to_table()
    nulls = [None] * found.num_rows
    values = [nulls if name is None else found[name].to_pylist() for name in names]
    return Counter(zip(*values, strict=True) if columns else [()] * found.num_rows)


def check(first: Table, last: Table, columns: Sequence[str], where: str | None) -> Counter[str]:
    """Rows at `since` and changes give the rows at `until`, at every step. Returns the kinds."""
    rows = rows_as(first, last, columns, where)
    found = last.changes(first.version, last.version, columns, where, threads=1).to_table()
    kinds, versions = found["_change"].to_pylist(), found["_version"].to_pylist()
    assert versions == sorted(versions)
    assert all(first.version < version <= last.version for version in versions)
    for kind, row in zip(kinds, tuples(found.select(columns)), strict=True):
        if kind in ("insert", "update_after"):
            rows[row] += 1
        else:
            assert rows[row] > 0, f"{kind} of {row}, which is not there"
            rows[row] -= 1
    assert +rows == rows_as(last, last, columns, where)
    return Counter(kinds)


def kept_columns(at: Sequence[Table]) -> list[str]:
    """The columns of the last of some versions that the first one had not dropped.

    Versions in between may have: a restore brings a column back.
    """
    first, last = at[0]._snapshot.table, at[-1]._snapshot.table
    return [last.shown_name(name) for name in last.schema.names if name not in first.retired]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("seed", range(4))
def test_rows_before_and_changes_give_the_rows_after(name: str, seed: int) -> None:
    history = History(seed, TABLES[name])
    for _ in range(14):
        history.step()
    log = history.table._log
    at = [Table(log, log.at(version)) for version in range(1, history.table.version + 1)]
    pairs = [(first, last) for last in range(len(at)) for first in range(last + 1)]
    compared = 0
    for first, last in history.random.sample(pairs, min(len(pairs), 25)):
        try:
            check(at[first], at[last], kept_columns(at[first : last + 1]), None)
            compared += 1
        except UsageError as error:
            assert "an earlier version was restored" in str(error), history.done
        except AssertionError as error:
            raise AssertionError(f"{first + 1} to {last + 1} of {history.done}: {error}") from error
    assert compared


def test_a_condition_and_columns_make_changes_of_what_a_scan_with_them_shows() -> None:
    table = created(ROWS, IngestOptions(rows=RowPolicy(RowKind.LAST)))
    table.append(pa.table({"k": [1, 2, 9], "v": ["b", "x", "b"], "w": [1, 1, 1]}))
    changes = table.changes(1, where="v <> 'x'", columns=["v"])
    assert tuples(changes.to_table()) == [
        ("a", "update_before", 2),
        ("b", "update_after", 2),
        ("b", "delete", 2),
        ("b", "insert", 2),
    ]
    assert changes.schema.names == ["v", "_change", "_version"]
    assert (changes.since, changes.until) == (1, 2)


ROWS: Final = pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"], "w": [1, 2, 3]})


def rows_of(changes: pa.Table) -> list[tuple[Any, ...]]:
    return tuples(changes.select(["k", "_change", "_version"]))


def test_compactions_change_no_row_and_a_deletion_of_compacted_rows_is_its_versions_own() -> None:
    table = created(ROWS)
    table.append(pa.table({"k": [2, 5], "v": ["x", "y"], "w": [0, 0]}))
    table.compact(policy=FULL)
    compacted = table.version
    table.delete("k = 2")
    deleted = table.version
    table.compact(policy=FULL)
    assert rows_of(table.changes(1).to_table()) == [
        (2, "insert", 2),
        (5, "insert", 2),
        (2, "delete", deleted),
        (2, "delete", deleted),
    ]
    assert rows_of(table.changes(2, compacted).to_table()) == []
    assert rows_of(table.changes(deleted).to_table()) == []


def test_merged_rows_that_are_written_again_as_they_are_do_not_change() -> None:
    table = created(ROWS, IngestOptions(rows=RowPolicy(RowKind.LAST)))
    table.append(ROWS)
    assert rows_of(table.changes(1).to_table()) == []
    table.append(pa.table({"k": [2], "v": ["new"], "w": [2]}))
    assert rows_of(table.changes(1, columns=["k", "w"]).to_table()) == []
    assert rows_of(table.changes(1).to_table()) == [
        (2, "update_before", 3),
        (2, "update_after", 3),
    ]


def test_merged_rows_are_compared_across_batches_of_any_size() -> None:
    wanted = MergedChanges(("k", "v"), 2, (SortColumn("k"),), (0,))
    before = {k: k % 3 for k in range(0, 60, 2)}
    after = {k: k % 4 for k in range(0, 90, 3)}
    for size in (1, 2, 7, 100):
        found: list[tuple[Any, ...]] = []
        sides = (_batches(before, 5), _batches(after, size))
        for kinds, batch in merged_changes(*sides, wanted):
            found += zip(
                *(batch.column(n).to_pylist() for n in "kv"), kinds.to_pylist(), strict=True
            )
        expected: list[tuple[Any, ...]] = []
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) == after.get(key):
                continue
            both = key in before and key in after
            if key in before:
                expected.append((key, before[key], "update_before" if both else "delete"))
            if key in after:
                expected.append((key, after[key], "update_after" if both else "insert"))
        assert found == expected


def _batches(rows: dict[int, int], size: int) -> Iterator[pa.RecordBatch]:
    table = pa.table({"k": list(rows), "v": list(rows.values())})
    return iter(table.to_batches(max_chunksize=size))


def test_changes_may_begin_before_the_first_version() -> None:
    table = created(ROWS)
    assert rows_of(table.changes(0).to_table()) == [(k, "insert", 1) for k in (1, 2, 3)]
    assert rows_of(table.changes(1).to_table()) == []


def test_changes_go_by_tags_and_times() -> None:
    clock = SetClock()
    table = open_table(MemoryStore(), clock)
    table._ingest(ROWS, "k", None)
    table.tag("start")
    clock.sleep(60)
    table.append(ROWS)
    begin = datetime.fromtimestamp(START_S + 1, UTC)
    assert table.changes("start").to_table() == table.changes(1).to_table()
    for moment in (begin, begin.isoformat(), "30s", "2"):
        assert table.changes(moment).to_table() == table.changes(2).to_table()
    assert table.changes(0, "30s").to_table() == table.changes(0, 2).to_table()
    with refuses(VersionNotFoundError, "no version -1"):
        table.changes(-1).to_table()
    with refuses(VersionNotFoundError, "no tag 'stert'"):
        table.changes("stert")


def test_a_version_that_gave_up_a_damaged_fragment_is_refused() -> None:
    table = created(ROWS)
    table.append(ROWS)
    key = table.fragments()["key"][0].as_py()
    table._store.delete(key)
    table.drop_fragment(key, lose_rows=True)
    for since in (2, 0):
        changes = table.changes(since)
        with refuses(UsageError, "version 3", "until version 2"):
            changes.to_table()
        assert not changes.report.fragments, "of earlier versions nothing is read either"
    table.append(ROWS)
    assert table.changes(3).to_table().num_rows == 3


def test_what_a_vacuum_took_is_said_with_the_oldest_version_that_is_left() -> None:
    table = created(ROWS)
    table.tag("old")
    table.append(ROWS)
    table.compact(policy=FULL)
    table.vacuum(grace_seconds=0, retain_seconds=0)
    oldest = table._snapshot.oldest
    for since in (0, 1, "old"):
        with refuses(VersionNotFoundError, f"can be read is {oldest}"):
            table.changes(since)
    assert table.changes(oldest).to_table().num_rows == 0


def test_mistakes_are_refused_before_anything_is_read() -> None:
    table = created(pa.table({"k": [1], "_change": [2]}))
    table.append(pa.table({"k": [2], "_change": [2]}))
    with refuses(UsageError, "_change"):
        table.changes(1)
    assert table.changes(1, columns=["k"]).to_table().num_rows == 1
    with refuses(UsageError, "later than version 1"):
        table.changes(2, 1)
    with refuses(UsageError, "'none'"):
        table.changes(1, columns=["none"])
    for read in (lambda names: table.changes(1, columns=names), table.scan):
        with refuses(UsageError, "'k' is named twice"):
            read(["k", "k"])


def test_a_type_that_was_given_back_by_a_restore_is_refused_with_the_version() -> None:
    table = created(pa.table({"k": [1], "n": pa.array([1], pa.int16())}))
    table.append(pa.table({"k": [2], "n": pa.array([1 << 40], pa.int64())}))
    table.restore(version=1)
    with refuses(UsageError, "'n'", "until version 2"):
        table.changes(1).to_table()
    with refuses(UsageError, "'n'", "until version 2"):
        table.changes(1, columns=["k"], where="n > 0").to_table()
    changes = table.changes(1, columns=["k"]).to_table()
    assert tuples(changes) == [(2, "insert", 2), (2, "delete", 3)]
    assert rows_of(table.changes(1, 2).to_table()) == [(2, "insert", 2)]


@pytest.mark.parametrize("policy", [APPEND, RowPolicy(RowKind.LAST)], ids=str)
def test_a_dropped_column_that_a_compaction_left_out_and_a_restore_brought_back_is_refused(
    policy: RowPolicy,
) -> None:
    """What the compaction wrote has no values there, and the rows of before have them."""
    table = created(ROWS, IngestOptions(rows=policy))
    table.append(pa.table({"k": [4], "v": ["d"], "w": [4]}))
    table.alter(drops=["w"])
    table.compact(policy=FULL)
    compacted = table.version
    table.restore(version=2)
    with refuses(UsageError, "'w'", f"until version {compacted}, and since version {compacted}"):
        table.changes(2).to_table()
    assert rows_of(table.changes(2, compacted).to_table()) == []
    of_others = table.changes(2, columns=["k", "v"]).to_table()
    assert Counter(of_others["_change"].to_pylist()) == (
        {"delete": 4, "insert": 4} if policy is APPEND else {}
    )
    changes = table.changes(compacted).to_table()
    values = Counter(zip(changes["_change"].to_pylist(), changes["w"].to_pylist(), strict=True))
    came = "insert" if policy is APPEND else "update_after"
    gone = "delete" if policy is APPEND else "update_before"
    assert values == Counter([*[(gone, None)] * 4, *[(came, w) for w in (1, 2, 3, 4)]])


def test_a_dropped_column_that_a_restore_brought_back_before_a_compaction_changes_no_row() -> None:
    table = created(ROWS)
    table.alter(drops=["w"])
    table.append(pa.table({"k": [4], "v": ["d"]}))
    table.restore(version=1)
    table.compact(policy=FULL)
    changes = table.changes(1).to_table().select(["k", "w", "_change", "_version"])
    assert tuples(changes) == [(4, None, "insert", 3), (4, None, "delete", 4)]


def test_an_undo_brings_back_what_expired_and_nothing_else_whatever_else_runs() -> None:
    clock = SetClock()
    table = open_table(MemoryStore(), clock)
    times = pa.array([START_S - 900, START_S - 100, None], pa.timestamp("s", "UTC"))
    rows = pa.table({"k": [1, 2, 3], "at": times})
    table._ingest(rows, "k", IngestOptions(ttl=Ttl("at", 1000)))
    table.append(rows)
    clock.sleep(500)
    table.compact(policy=FULL)
    [compacted] = [entry.run for entry in table._snapshot.fragments.all()]
    table.append(rows)
    driver = Driver(table._log, DriverSettings(policy=FULL, compaction=CompactionSettings()))
    [running] = driver.decide(1)
    assert compacted in {entry.run for entry in running.spec.inputs}
    table.undo(compacted)
    found = table.changes(table.version - 1).to_table()
    assert found.select(["_change", "k"]).to_pylist() == [{"_change": "insert", "k": 1}] * 2


def test_changes_are_read_while_a_killed_worker_makes_others_of_the_fragments_suspect() -> None:
    table = created(ROWS)
    table.append(ROWS)
    first, second = sorted(table.fragments()["key"].to_pylist())
    lease = Lease(
        compaction_id="c", owner="dead", inputs=(first, second), output_level=1,
        expires_unix_ms=1, began_unix_ms=1,
    )  # fmt: skip
    table._log.commit(lambda _: Changes(operation=Operation.LEASE, leases=(lease,)))
    table._log.commit(lambda _: Changes(operation=Operation.LEASE, abandoned_leases=("c",)))
    table.refresh()
    assert set(table._snapshot.suspects) == {first, second}
    assert rows_of(table.changes(1).to_table()) == [(k, "insert", 2) for k in (1, 2, 3)]
    left = table._snapshot.without([first])
    assert [tree.suspects.keys() for tree in forest(left).values()] == [{second}]
