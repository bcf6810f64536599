"""Overwrites: rows that match a condition go and others come, in one commit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.api.table import Table
from compactor.errors import CompactorError, InputError, TableNotFoundError, UsageError
from compactor.read.verify import verify
from compactor.rows.policy import RowKind, RowPolicy
from compactor.settings.compaction import Strategy
from compactor.table.commit_log import CommitLog
from compactor.table.version import Operation
from compactor.write.ingest import FilesIngest, IngestOptions
from compactor.write.overwrite import Overwrite
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.faults import Crash, Kill, LoseAnswer, Stall, calls
from tests.support.memory_store import MemoryStore
from tests.support.tables import COMMITS, compact_table, open_table, table_rows
from tests.support.wording import refuses

DAYS = pa.table({"day": [1, 1, 2, 2, 3], "n": [1, 2, 3, 4, 5]})
NEW = pa.table({"day": [2, 2, 2], "n": [7, 8, 9]})
BITS = calls("create", where=lambda call: call.key.endswith(".deletes"))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def table(store: MemoryStore) -> Table:
    made = open_table(store)
    made._ingest(DAYS, "day,n", None)
    return made


def numbers(store: MemoryStore) -> list[int]:
    return [row["n"] for row in table_rows(store)]


def operations(store: MemoryStore) -> list[Operation]:
    log = CommitLog(store)
    newest = log.current().version
    return [log.history.read(n).changes.operation for n in range(1, newest + 1)]


def test_rows_that_match_go_and_the_new_ones_come_in_one_commit(
    store: MemoryStore, table: Table
) -> None:
    report = table.overwrite(NEW, "day = 2")
    assert (report.rows, report.replaced_rows, report.version, table.version) == (3, 2, 2, 2)
    assert numbers(store) == [1, 2, 7, 8, 9, 5]
    assert operations(store) == [Operation.INGEST, Operation.OVERWRITE]
    earlier = Table(CommitLog(store), CommitLog(store).at(1))
    assert earlier.scan(["n"]).to_table()["n"].to_pylist() == [1, 2, 3, 4, 5]


def test_without_a_condition_all_rows_go(store: MemoryStore, table: Table) -> None:
    table.append(NEW)
    table.delete("n = 1")
    report = table.overwrite(pa.table({"day": [5], "n": [6], "word": ["x"]}))
    assert (report.replaced_rows, numbers(store)) == (7, [6])
    assert table.schema.names == ["day", "n", "word"]  # columns stay, and new ones come
    assert len(table.fragments()) == 1


def test_no_rows_take_the_place_of_some(store: MemoryStore, table: Table) -> None:
    assert table.overwrite(NEW.slice(0, 0), "day = 2").replaced_rows == 2
    assert numbers(store) == [1, 2, 5]


def test_a_new_row_that_does_not_match_is_named_and_nothing_changes(
    store: MemoryStore, table: Table
) -> None:
    for day in (3, None):
        rows = pa.table({"day": [2, 2, day], "n": [7, 8, 9]})
        with refuses(InputError, "row 3", "'day = 2'"):
            table.overwrite(rows, "day = 2")
    with refuses(InputError, "row 1"):
        table.overwrite(NEW, "n > 3 AND day IS NULL")
    assert (numbers(store), table.version) == ([1, 2, 3, 4, 5], 1)


def test_a_condition_may_name_columns_that_the_new_rows_lack(
    store: MemoryStore, table: Table
) -> None:
    table.append(pa.table({"day": [4], "n": [6], "word": ["x"]}))
    table.overwrite(NEW, "word IS NULL")
    assert numbers(store) == [7, 8, 9, 6]


def test_a_condition_on_no_column_is_refused_before_rows_are_read(table: Table) -> None:
    def never() -> Any:
        raise AssertionError
        yield

    rows = pa.RecordBatchReader.from_batches(NEW.schema, never())
    with refuses(UsageError, "'weekday'"):
        table.overwrite(rows, "weekday = 2")


def test_a_condition_needs_a_table(store: MemoryStore, tmp_path: Path) -> None:
    path = str(tmp_path / "rows.parquet")
    pq.write_table(NEW, path)
    sort, options = parse_sort_schema("day"), IngestOptions()
    log = CommitLog(store)
    with (
        FilesIngest(store, log, sort, options, adding=Overwrite("day = 2")) as ingest,
        refuses(TableNotFoundError),
    ):
        list(ingest.add([path]))
    with FilesIngest(store, log, sort, options, adding=Overwrite(None)) as ingest:
        list(ingest.add([path]))
    assert numbers(store) == [7, 8, 9]


def test_several_files_take_the_place_of_rows_in_one_commit(
    store: MemoryStore, table: Table, tmp_path: Path
) -> None:
    paths = [str(tmp_path / f"{n}.parquet") for n in range(3)]
    for number, path in enumerate(paths):
        pq.write_table(pa.table({"day": [2], "n": [number + 10], f"c{number}": [1]}), path)
    adding = Overwrite("day = 2")
    with FilesIngest(store, CommitLog(store), None, IngestOptions(), adding=adding) as ingest:
        list(ingest.add(paths))
    assert numbers(store) == [1, 2, 10, 11, 12, 5]
    assert (adding.replaced_rows, operations(store)[1:]) == (2, [Operation.OVERWRITE])
    pq.write_table(pa.table({"day": [3], "n": [20]}), paths[2])
    with (
        FilesIngest(
            store, CommitLog(store), None, IngestOptions(), adding=Overwrite("day = 2")
        ) as ingest,
        refuses(InputError, "2.parquet, row 1"),
    ):
        list(ingest.add(paths))
    assert numbers(store) == [1, 2, 10, 11, 12, 5]


def test_of_a_table_that_merges_rows_whole_keys_are_replaced(store: MemoryStore) -> None:
    table = open_table(store)
    options = IngestOptions(rows=RowPolicy(RowKind.LAST, sequence="v"))
    for version, mail in ((1, "a"), (3, "c"), (2, "b")):
        rows = pa.table({"id": [1, 2], "v": [version, version], "mail": [mail, "x"]})
        table._ingest(rows, "id" if version == 1 else None, options)
    report = table.overwrite(pa.table({"id": [1], "v": [1], "mail": ["c"]}), "mail = 'c'")
    assert report.replaced_rows == 3  # stored rows of the key
    assert [(r["id"], r["v"], r["mail"]) for r in table_rows(store)] == [(1, 1, "c"), (2, 3, "x")]


# --- beside others ---


def test_rows_that_others_add_meanwhile_are_replaced_too(store: MemoryStore, table: Table) -> None:
    def meanwhile() -> None:
        open_table(store).append(pa.table({"day": [2, 4], "n": [100, 200]}))

    store.faults.add(Stall(meanwhile, answered=True), at=BITS.first())
    assert table.overwrite(NEW, "day = 2").replaced_rows == 3
    assert numbers(store) == [1, 2, 7, 8, 9, 5, 200]


@pytest.mark.parametrize("where", [None, "day = 2"])
def test_columns_that_change_meanwhile_are_bound_again(
    store: MemoryStore, table: Table, where: str | None
) -> None:
    def meanwhile() -> None:
        open_table(store).alter(order=["n"])
        open_table(store).append(pa.table({"day": [2], "n": [100], "word": ["x"]}))

    store.faults.add(Stall(meanwhile), at=COMMITS.first())
    table.overwrite(NEW, where)
    assert numbers(store) == ([7, 8, 9] if where is None else [1, 2, 7, 8, 9, 5])


@pytest.mark.parametrize("where", [None, "day = 2"])
def test_a_compaction_that_runs_meanwhile_brings_nothing_back(
    store: MemoryStore, table: Table, where: str | None
) -> None:
    table.append(pa.table({"day": [2], "n": [6]}))

    def meanwhile() -> None:
        compact_table(store, strategy=Strategy.FULL)

    store.faults.add(Stall(meanwhile), at=COMMITS.first())
    assert table.overwrite(NEW, where).replaced_rows == (6 if where is None else 3)
    compact_table(store, strategy=Strategy.FULL)
    assert numbers(store) == ([7, 8, 9] if where is None else [1, 2, 7, 8, 9, 5])
    assert verify(store, CommitLog(store).current()).faults == []


# --- faults ---

FAULTS: dict[str, Callable[[], Any]] = {
    "killed before": Kill,
    "killed after": lambda: Kill(after=True),
    "answer lost, landed": LoseAnswer,
    "answer lost, not landed": lambda: LoseAnswer(landed=False),
}


@pytest.mark.parametrize("where", [None, "day = 2"])
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_call_fails_readers_see_the_rows_before_or_after(
    fault: str, where: str | None
) -> None:
    before, after = [1, 2, 3, 4, 5], [7, 8, 9] if where is None else [1, 2, 7, 8, 9, 5]
    seen, nth = set(), 0
    while True:
        nth += 1
        store = MemoryStore()
        open_table(store)._ingest(DAYS, "day,n", None)
        writing = calls("create", "write", "complete", "read_range").nth(nth)
        hit = store.faults.add(FAULTS[fault](), at=writing)
        with contextlib.suppress(Crash, CompactorError):
            open_table(store).overwrite(NEW, where, threads=1)
        store = MemoryStore(store.objects)
        if not hit.hits:
            break
        assert numbers(store) in (before, after)
        seen.add(tuple(numbers(store)))
        assert verify(store, CommitLog(store).current()).faults == []
        open_table(store).overwrite(NEW, where)  # doing it again does no harm
        assert numbers(store) == after
    if fault == "killed after":
        assert seen == {tuple(before), tuple(after)}
    assert nth > 5
