"""Upserts: appends to tables in which newer rows take the place of older ones of their key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from compactor.api.table import Table
from compactor.errors import InputError, TableNotFoundError, UsageError
from compactor.files.stream import StreamBatches
from compactor.rows.policy import RowFunction, RowKind, RowPolicy
from compactor.settings.compaction import Strategy
from compactor.table.commit_log import CommitLog
from compactor.write.ingest import IngestOptions, ingest_batches
from compactor.write.upsert import Upsert
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.support.memory_store import MemoryStore
from tests.support.tables import compact_table, table_rows
from tests.support.wording import refuses

ROWS = pa.table({"id": [1, 2], "v": [5, 5], "a": ["x", "y"], "b": [1, 1]})


def made(policy: RowPolicy) -> tuple[MemoryStore, Table]:
    store = MemoryStore()
    log = CommitLog(store)
    table = Table(log, log.refresh())
    table._ingest(ROWS, "id", IngestOptions(rows=policy))
    return store, table


def values(store: MemoryStore) -> list[tuple[Any, ...]]:
    return [(row["id"], row["a"], row["b"]) for row in table_rows(store)]


def test_newer_rows_take_the_place_of_older_ones_and_new_keys_are_added() -> None:
    store, table = made(RowPolicy(RowKind.LAST, sequence="v"))
    new = {"id": [1, 2, 3], "v": [6, 4, 1], "a": ["new", "late", "z"], "b": [2, 2, 2]}
    report = table.upsert(pa.table(new))
    assert (report.rows, table.version) == (3, 2)
    assert values(store) == [(1, "new", 2), (2, "y", 1), (3, "z", 2)]
    compact_table(store, strategy=Strategy.FULL)
    assert values(store) == [(1, "new", 2), (2, "y", 1), (3, "z", 2)]


def test_nulls_leave_values_as_they_are_under_partial_update() -> None:
    store, table = made(RowPolicy(RowKind.PARTIAL_UPDATE))
    table.upsert(pa.table({"id": [1, 3], "v": [6, 6], "b": pa.array([None, 3], pa.int64())}))
    assert values(store) == [(1, "x", 1), (2, "y", 1), (3, None, 3)]


@pytest.mark.parametrize("rows_per_fragment", [1, 2, 100])
def test_of_several_rows_of_a_key_in_one_call_the_newest_counts(rows_per_fragment: int) -> None:
    rows = pa.table({"id": [1, 1, 2, 1, 2], "v": [7, 9, 6, 8, 6], "b": [10, 11, 12, 13, 14]})
    options = IngestOptions(rows_per_fragment=rows_per_fragment)
    store, table = made(RowPolicy(RowKind.LAST, sequence="v"))
    table.upsert(rows, options)
    assert values(store) == [(1, None, 11), (2, None, 14)]  # by sequence, then by order
    store, table = made(RowPolicy(RowKind.LAST))
    table.upsert(rows, options)
    assert values(store) == [(1, None, 13), (2, None, 14)]


@pytest.mark.parametrize(
    "policy",
    [
        RowPolicy(),
        RowPolicy(RowKind.FIRST),
        RowPolicy(RowKind.AGGREGATE, aggregates=(("b", RowFunction.SUM),)),
    ],
    ids=str,
)
def test_a_table_of_another_policy_says_which_one_would_do(policy: RowPolicy) -> None:
    _, table = made(policy)
    with refuses(UsageError, policy.kind, "last", "partial-update"):
        table.upsert(ROWS)
    assert table.version == 1


def test_a_table_that_is_not_there_is_not_created() -> None:
    store = MemoryStore()
    log, sort = CommitLog(store), parse_sort_schema("id")
    with (
        StreamBatches(ROWS, 1 << 20) as rows,
        refuses(TableNotFoundError, "last"),
    ):
        ingest_batches(store, log, log.refresh(), rows, sort, IngestOptions(), adding=Upsert())


def test_a_row_without_a_sequence_is_refused_as_it_would_be_the_oldest() -> None:
    _, table = made(RowPolicy(RowKind.LAST, sequence="v"))
    with refuses(InputError, "row 2", "'v'"):
        table.upsert(pa.table({"id": [1, 2], "v": [6, None], "a": ["n", "n"], "b": [1, 1]}))
    with refuses(InputError, "'v'"):
        table.upsert(pa.table({"id": [1]}))
    assert table.version == 1
