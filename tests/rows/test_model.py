"""Random histories of inserts, updates, deletions and compactions in any order, against a dictionary."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.compaction.attempt import run_compaction
from compactor.compaction.compaction import Outcome
from compactor.compaction.driver import Driver, DriverSettings
from compactor.files.stream import StreamBatches
from compactor.read.verify import verify
from compactor.rows.policy import RowFunction, RowKind, RowPolicy
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.write.delete import delete_rows
from compactor.write.ingest import IngestOptions, ingest_batches
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.rows.model import Model, Row
from tests.support.tables import compact_table, table_rows

SCHEMA = pa.schema(
    {
        "k": pa.string(),
        "b": pa.int32(),
        "seq": pa.int64(),
        "gone": pa.bool_(),
        "text": pa.string(),
        "number": pa.int64(),
        "money": pa.decimal128(38, 2),
        "flag": pa.bool_(),
        "other": pa.bool_(),
        "items": pa.list_(pa.string()),
        "tags": pa.list_(pa.string()),
        "hits": pa.int64(),
        "lowest": pa.string(),
        "highest": pa.timestamp("ms"),
    }
)
AGGREGATES = (
    ("number", RowFunction.SUM), ("money", RowFunction.SUM), ("flag", RowFunction.BOOL_OR),
    ("other", RowFunction.BOOL_AND), ("items", RowFunction.LIST), ("tags", RowFunction.SET),
    ("hits", RowFunction.COUNT),
    ("lowest", RowFunction.MIN), ("highest", RowFunction.MAX),
)  # fmt: skip
POLICIES = {
    "last": RowPolicy(RowKind.LAST),
    "last by sequence": RowPolicy(RowKind.LAST, sequence="seq"),
    "last with tombstones": RowPolicy(RowKind.LAST, delete_marker="gone"),
    "last by sequence with tombstones": RowPolicy(RowKind.LAST, sequence="seq", delete_marker="gone"),
    "first": RowPolicy(RowKind.FIRST),
    "first by sequence": RowPolicy(RowKind.FIRST, sequence="seq"),
    "first with tombstones": RowPolicy(RowKind.FIRST, delete_marker="gone"),
    "partial update": RowPolicy(RowKind.PARTIAL_UPDATE),
    "partial update with tombstones": RowPolicy(RowKind.PARTIAL_UPDATE, delete_marker="gone"),
    "aggregate": RowPolicy(RowKind.AGGREGATE, aggregates=AGGREGATES),
    "aggregate with tombstones": RowPolicy(RowKind.AGGREGATE, delete_marker="gone", aggregates=AGGREGATES),
}  # fmt: skip


def some_rows(rng: random.Random, count: int, keys: int) -> list[Row]:
    def maybe(value: Any) -> Any:
        return value if rng.random() < 0.6 else None

    return [
        {
            "k": f"key-{rng.randrange(keys) // 3}",
            "b": rng.randrange(3),
            "seq": rng.choice([None, *range(12)]),
            "gone": rng.choice([None, False, False, True]),
            "text": maybe(rng.choice("abcdefgh") * rng.choice([1, 1, 1, 300])),
            "number": maybe(rng.randrange(-50, 50)),
            "money": maybe(Decimal(rng.randrange(-500, 500)).scaleb(-2)),
            "flag": maybe(rng.random() < 0.5),
            "other": maybe(rng.random() < 0.5),
            "items": maybe([rng.choice(["x", "y", None]) for _ in range(rng.randrange(3))]),
            "tags": maybe([rng.choice(["p", "q", "r", None]) for _ in range(rng.randrange(4))]),
            "hits": maybe(rng.randrange(100)),
            "lowest": maybe(rng.choice(["m", "n", "Ä", ""])),
            "highest": maybe(1_700_000_000_000 + rng.randrange(9)),
        }
        for _ in range(count)
    ]


def as_table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


class History:
    """One table and its model, through the same things."""

    def __init__(self, policy: RowPolicy, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.policy = policy
        self.store = LocalStore(folder)
        self.log = CommitLog(self.store)
        self.model = Model(policy, ["k", "b"], SCHEMA.names)
        self.dropped: Counter[str] = Counter()
        self.running: list[tuple[Driver, list[Outcome]]] = []
        self.void = self.settled = self.carried = 0

    def append(self, most: int = 60) -> None:
        rng = self.rng
        table = as_table(some_rows(rng, rng.randrange(1, most), rng.choice([6, 40, 200])))
        options = IngestOptions(
            rows_per_fragment=rng.choice([7, 1000]),
            writer=WriterOptions(rng.choice([3, 64])),
            rows=self.policy,
        )
        sort = parse_sort_schema("k,b")
        with StreamBatches(table, 1 << 20) as batches:
            ingest_batches(self.store, self.log, self.log.refresh(), batches, sort, options)
        rows = table.to_pylist()
        self.model.append(rows)

    def compact(self) -> None:
        rng = self.rng
        settings = CompactionSettings(
            target_fragment_bytes=rng.choice([4_000, 20_000, 1 << 29]),
            target_row_group_bytes=rng.choice([200, 1 << 20]),
            max_rows_per_row_group=rng.choice([5, 4096]),
            batch_size=rng.choice([4, 100_000]),
        )
        policy = Policy(
            strategy=rng.choice(list(Strategy)),
            level0_trigger_runs=2,
            push_ratio=rng.choice([0.5, 100]),
            level1_target_bytes=rng.choice([1, 10_000]),
        )
        report = compact_table(self.store, settings, policy=policy)
        for settled in report.done:
            figures = settled.outcome.report
            assert figures is not None
            assert figures.rows_in == figures.rows_out + sum(figures.dropped.values())
            self.dropped.update(figures.dropped)
        assert not report.failed

    def begin(self) -> None:
        """Compactions that are decided and run, and whose outcome waits."""
        policy = Policy(
            strategy=self.rng.choice(list(Strategy)), level0_trigger_runs=2, push_ratio=100
        )
        settings = CompactionSettings(max_rows_per_row_group=self.rng.choice([5, 4096]))
        driver = Driver(CommitLog(self.store), DriverSettings(policy=policy, compaction=settings))
        compactions = driver.decide(self.rng.randrange(1, 4))
        outcomes = [run_compaction(compaction, self.store) for compaction in compactions]
        assert all(outcome.failure is None for outcome in outcomes)
        self.running.append((driver, outcomes))

    def settle(self) -> None:
        if self.running:
            driver, outcomes = self.running.pop(self.rng.randrange(len(self.running)))
            with_deletions = [e.key for e in driver.log.current().fragments.all() if e.deletion]
            self.void += sum(finished.is_void for finished in driver.commit_outcomes(outcomes))
            self.settled += len(outcomes)
            live = driver.log.latest.fragments
            self.carried += sum(
                entry.deletion is not None and entry.key not in with_deletions
                for entry in live.all()
            )

    def delete(self) -> None:
        condition, where = self.rng.choice(
            [
                ("number > 20", lambda row: (row["number"] or 0) > 20),
                (
                    "text = 'a' OR k = 'key-1'",
                    lambda row: row["text"] == "a" or row["k"] == "key-1",
                ),
                ("k = 'key-0' AND b = 1", lambda row: row["k"] == "key-0" and row["b"] == 1),
                ("flag AND b <> 2", lambda row: bool(row["flag"]) and row["b"] != 2),
            ]
        )
        expected = delete_rows(self.store, self.log, condition, dry_run=True).rows
        deleted = delete_rows(self.store, self.log, condition).rows
        assert expected == deleted == self.model.delete(where)

    def check(self) -> None:
        assert table_rows(self.store) == self.model.rows()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", POLICIES)
def test_readers_see_what_a_dictionary_says_whatever_is_compacted_when(
    name: str, seed: int, tmp_path: Path
) -> None:
    history = History(POLICIES[name], tmp_path / "t", seed)
    history.append()
    history.check()
    for _ in range(12):
        step = history.rng.choice(["append", "append", "compact", "compact", "delete"])
        getattr(history, step)()
        history.check()
    history.compact()
    history.check()
    assert history.dropped["superseded"]
    report = verify(history.store, history.log.current())
    assert not report.faults


@pytest.mark.long
@pytest.mark.parametrize("name", POLICIES)
def test_the_same_while_compactions_are_under_way(name: str, tmp_path: Path) -> None:
    """What was claimed before rows came or went is committed after that."""
    settled = carried = 0
    for seed in range(2):
        history = History(POLICIES[name], tmp_path / f"{seed}", seed)
        history.append()
        for _ in range(20):
            step = history.rng.choice(["append", "append", "begin", "begin", "settle", "delete"])
            getattr(history, step)()
            history.check()
        while history.running:
            history.settle()
            history.check()
        settled, carried = settled + history.settled, carried + history.carried
        assert not history.void
    assert settled and carried
