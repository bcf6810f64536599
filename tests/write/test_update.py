"""Updates: rows that match a condition get new values, in one commit."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from compactor.api.table import Table
from compactor.errors import CompactorError, DataError, InputError, UsageError
from compactor.read.verify import verify
from compactor.rows.policy import RowFunction, RowKind, RowPolicy
from compactor.settings.compaction import Strategy
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TimeWindows
from compactor.write.ingest import IngestOptions
from lsm_fragment.container.writer import WriterOptions
from tests.faults import Crash, Kill, LoseAnswer, Stall, calls
from tests.support.memory_store import MemoryStore
from tests.support.tables import COMMITS, compact_table, open_table, table_rows
from tests.support.wording import refuses

ROWS = pa.table(
    {
        "day": pa.array([1, 1, 2, 2, 3], pa.int32()),
        "n": [1, 2, 3, 4, 5],
        "word": ["a", "b", "c", None, "e"],
    }
)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def made(
    store: MemoryStore, given: pa.Table = ROWS, sort_by: str = "day,n", **options: Any
) -> Table:
    table = open_table(store)
    table._ingest(given, sort_by, IngestOptions(**options))
    return table


def values(store: MemoryStore) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table_rows(store)]


def test_rows_that_match_get_new_values_in_one_commit(store: MemoryStore) -> None:
    table = made(store)
    report = table.update("day = 2", {"word": "coalesce(upper(word), '?')", "n": "n * 10"})
    assert (report.rows, report.version, report.fragments, table.version) == (2, 2, 1, 2)
    assert values(store) == [(1, 1, "a"), (1, 2, "b"), (2, 30, "C"), (2, 40, "?"), (3, 5, "e")]
    history = table.history().to_pylist()[0]
    assert history["operation"] == "update"
    assert Table(CommitLog(store), CommitLog(store).at(1)).scan().to_table() == ROWS


def test_all_expressions_see_the_row_as_it_was(store: MemoryStore) -> None:
    made(store).update("n >= 4", {"n": "day", "day": "n"})
    assert values(store)[-2:] == [(4, 2, None), (5, 3, "e")]


def test_rows_may_move_to_another_place_and_time_window(store: MemoryStore) -> None:
    at = pa.array([1, 2, 90_000], pa.timestamp("s"))
    made(
        store,
        pa.table({"at": at, "id": [1, 2, 3]}),
        "at",
        windows=TimeWindows("at", 86_400, None),
    ).update("id = 1", {"at": "at + INTERVAL '2 days'"})
    assert [row["id"] for row in table_rows(store)] == [2, 3, 1]
    assert len({entry.window for entry in CommitLog(store).current().fragments.all()}) == 3


def test_values_that_are_no_texts_are_taken_as_they_are(store: MemoryStore) -> None:
    rows = pa.table(
        {
            "k": [1],
            "word": pa.array(["a"]).dictionary_encode(),
            "price": pa.array([1], pa.decimal128(10, 2)),
            "at": pa.array([0], pa.timestamp("ms", "UTC")),
            "tags": [["x"]],
            "half": pa.array([1], pa.float32()),
            "raw": pa.array([b"x"]),
        }
    )
    table = made(store, rows, "k")
    new = {
        "word": pa.scalar("b"),
        "price": Decimal("2.50"),
        "at": dt.datetime(2026, 11, 27, tzinfo=dt.UTC),
        "tags": ["y", None],
        "half": 0.1,
        "raw": b"\0\xff",
    }
    table.update("k = 1", new)
    (row,) = table_rows(store)
    assert row == {"k": 1, **new, "word": "b", "half": pytest.approx(0.1)}
    assert table.schema == made(MemoryStore(), rows, "k").schema
    table.update("true", dict.fromkeys(new))
    assert set(table_rows(store)[0].values()) == {1, None}


def test_what_does_not_fit_is_refused_before_anything_is_read(store: MemoryStore) -> None:
    rows = ROWS.append_column("at", pa.nulls(5, pa.timestamp("s")))
    table = made(store, rows)
    aware = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    store.faults.add(Kill(), at=calls("read_range"))
    for column, value in {
        "q": "1", "day": "'x'", "n": "word", "word": "n", "at": "now()",
    }.items():  # fmt: skip
        with refuses(UsageError, f"{column!r}"):
            table.update("n = 1", {column: value})
    for column, plain in {"n": 1.5, "day": 1 << 40, "word": 7, "at": aware}.items():
        with refuses(UsageError, f"{column!r}"):
            table.update("n = 1", {column: plain})
    with refuses(UsageError, "'word'"):
        table.update("n = 1", {"word": "'x' ||"})
    with refuses(UsageError):
        table.update("n = 1", {})
    with refuses(UsageError, "'k'"):
        table.update("k = 1", {"n": "1"})
    assert table.version == 1


def test_a_value_that_its_column_cannot_take_is_named_by_its_row(store: MemoryStore) -> None:
    table = made(store, not_null=("n",))
    with refuses(DataError, "'day'", '"day" = 3'):
        table.update("n >= 4", {"day": "CASE WHEN n = 5 THEN n * 1000000000000 ELSE 1 END"})
    with refuses(DataError, "'n'", '"n" = 2'):
        table.update("day = 1", {"n": "CASE WHEN n = 2 THEN CAST(word AS INT) ELSE 9 END"})
    with refuses(DataError, "'n' has a null", '"n" = 4', "nothing was updated"):
        table.update("n = 4", {"n": "length(word)"})
    with refuses(InputError, "sort columns"):
        wide = made(MemoryStore(), ROWS, "word")
        wide.update("n = 1", {"word": "rpad(word, 999999, 'x') || rpad(word, 999999, 'x')"})
    assert (table.version, values(store)) == (1, [tuple(row.values()) for row in ROWS.to_pylist()])


def test_a_dry_run_computes_everything_and_writes_nothing(store: MemoryStore) -> None:
    table = made(store)
    before = dict(store.objects)
    report = table.update("day <= 2", {"n": "n + 1"}, dry_run=True)
    assert (report.rows, report.version, report.fragments) == (4, 1, 0)
    with refuses(DataError):
        table.update("day <= 2", {"n": "CAST(word AS INT)"}, dry_run=True)
    assert table.update("day > 5", {"n": "n + 1"}).version == 1
    assert store.objects == before


def test_many_rows_are_changed_piece_by_piece(store: MemoryStore) -> None:
    rows = pa.table({"k": range(1000), "v": [f"value {n % 7}" for n in range(1000)]})
    table = made(store, rows, "k", rows_per_fragment=300, writer=WriterOptions(50))
    told: list[int] = []
    report = table.update("k % 3 = 0", {"v": "v || '!'"}, on_progress=told.append)
    assert (report.rows, told[-1]) == (334, 334)
    assert table.scan().to_table()["v"].to_pylist() == [
        f"value {n % 7}" + "!" * (n % 3 == 0) for n in range(1000)
    ]
    assert table.verify(against=1).faults == []


def test_columns_are_set_by_their_new_names(store: MemoryStore) -> None:
    table = made(store)
    table.alter(renames={"word": "n", "n": "word"})
    table.update("word = 1", {"n": "CAST(word AS TEXT)"})
    assert values(store)[0] == (1, 1, "1")


# --- rows of a key ---


def test_the_merged_row_is_changed_and_takes_the_place_of_all_rows_of_its_key(
    store: MemoryStore,
) -> None:
    first = pa.table({"id": [1, 2], "a": ["x", "y"], "b": [1, 2]})
    table = made(store, first, "id", rows=RowPolicy(RowKind.PARTIAL_UPDATE))
    table.append(pa.table({"id": [1], "a": pa.array([None], pa.string()), "b": [7]}))
    report = table.update("a = 'x'", {"a": None})
    assert (report.rows, report.replaced_rows) == (1, 2)
    assert values(store) == [(1, None, 7), (2, "y", 2)]
    compact_table(store, strategy=Strategy.FULL)
    assert values(store) == [(1, None, 7), (2, "y", 2)]


def test_sums_and_counts_go_on_from_what_was_set(store: MemoryStore) -> None:
    policy = RowPolicy(
        RowKind.AGGREGATE, aggregates=(("n", RowFunction.SUM), ("hits", RowFunction.COUNT))
    )
    rows = pa.table({"id": [1, 1, 2], "n": [5, 6, 7], "hits": [1, 1, 1], "word": ["a", "b", "c"]})
    table = made(store, rows, "id", rows=policy)
    table.update("id = 1", {"n": "n * 10", "word": "'z'"})
    assert values(store) == [(1, 110, 2, "z"), (2, 7, 1, "c")]
    table.append(rows)
    assert values(store) == [(1, 121, 4, "b"), (2, 14, 2, "c")]


def test_a_late_row_of_a_lower_sequence_stays_older_than_an_updated_one(
    store: MemoryStore,
) -> None:
    policy = RowPolicy(RowKind.LAST, sequence="v", delete_marker="gone")
    rows = pa.table({"id": [1, 2], "v": [5, 5], "mail": ["a", "b"], "gone": [False, False]})
    table = made(store, rows, "id", rows=policy)
    table.update("id = 1", {"mail": "'new'"})
    table.append(pa.table({"id": [1], "v": [4], "mail": ["late"], "gone": [False]}))
    assert [row["mail"] for row in table_rows(store)] == ["new", "b"]
    table.update("id = 2", {"gone": "true"})
    assert [row["mail"] for row in table_rows(store)] == ["new"]


def test_keys_are_not_set_where_rows_are_merged_by_them(store: MemoryStore) -> None:
    rows = pa.table({"id": [1], "v": [1], "mail": ["a"]})
    table = made(store, rows, "id", rows=RowPolicy(RowKind.LAST, sequence="v"))
    with refuses(UsageError, "'id'"):
        table.update("id = 1", {"id": "2"})
    table.update("id = 1", {"v": "v + 1"})
    assert values(store)[0][:2] == (1, 2)


# --- beside others ---


@pytest.mark.parametrize("compacts", [False, True])
def test_rows_that_others_add_meanwhile_are_updated_too(store: MemoryStore, compacts: bool) -> None:
    table = made(store)

    def meanwhile() -> None:
        open_table(store).append(pa.table({"day": pa.array([2, 9], pa.int32()), "n": [6, 7]}))
        if compacts:
            compact_table(store, strategy=Strategy.FULL)

    store.faults.add(Stall(meanwhile), at=COMMITS.first())
    assert table.update("day = 2", {"n": "n * 10"}).rows == 3
    assert [row["n"] for row in table_rows(store)] == [1, 2, 30, 40, 60, 5, 7]
    compact_table(store, strategy=Strategy.FULL)
    assert [row["n"] for row in table_rows(store)] == [1, 2, 30, 40, 60, 5, 7]
    written = {key for key in store.objects if key.endswith(".frag")}
    assert {e.key for e in CommitLog(store).current().fragments.all()} <= written


def test_columns_that_are_renamed_meanwhile_are_looked_up_again(store: MemoryStore) -> None:
    table = made(store)
    store.faults.add(
        Stall(lambda: open_table(store).alter(renames={"word": "w", "n": "word"})),
        at=COMMITS.first(),
    )
    with refuses(UsageError, "'n'"):
        table.update("day = 2", {"n": "n * 10"})
    assert [tuple(row.values())[:2] for row in table_rows(store)] == [
        (1, 1), (1, 2), (2, 3), (2, 4), (3, 5),
    ]  # fmt: skip


FAULTS: dict[str, Callable[[], Any]] = {
    "killed before": Kill,
    "killed after": lambda: Kill(after=True),
    "answer lost, landed": LoseAnswer,
    "answer lost, not landed": lambda: LoseAnswer(landed=False),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_call_fails_readers_see_all_rows_as_they_were_or_updated(fault: str) -> None:
    before, after = [1, 2, 3, 4, 5], [1, 2, 33, 34, 5]
    seen, nth = set(), 0
    while True:
        nth += 1
        store = MemoryStore()
        made(store)
        writing = calls("create", "write", "complete", "read_range").nth(nth)
        hit = store.faults.add(FAULTS[fault](), at=writing)
        with contextlib.suppress(Crash, CompactorError):
            open_table(store).update("n IN (3, 4)", {"n": "n + 30"}, threads=1)
        store = MemoryStore(store.objects)
        if not hit.hits:
            break
        found = [row["n"] for row in table_rows(store)]
        assert found in (before, after)
        seen.add(tuple(found))
        assert verify(store, CommitLog(store).current()).faults == []
        open_table(store).update("n IN (3, 4)", {"n": "n + 30"})
        assert [row["n"] for row in table_rows(store)] == after
    if fault == "killed after":
        assert seen == {tuple(before), tuple(after)}
    assert nth > 5


def test_unsigned_integers_of_64_bits_are_calculated_and_stay_exact(store: MemoryStore) -> None:
    high = 2**64 - 1
    table = made(store, pa.table({"k": [1, 2], "h": pa.array([high, 5], pa.uint64())}), "k")
    assert table.update("h % 5 = 0", {"h": "h - 1"}).rows == 2
    assert table.scan().to_table()["h"].to_pylist() == [high - 1, 4]
    with refuses(DataError, 'the row where "k" = 2'):
        table.update("k = 2", {"h": "h - 5"})


@pytest.mark.parametrize("given", ["v * 1e300", "1000000", "CAST(1000000 AS DECIMAL(9, 1))", 1e300])
def test_no_finite_value_becomes_infinite(store: MemoryStore, given: Any) -> None:
    table = made(store, pa.table({"k": [1], "v": pa.array([1], pa.float16())}), "k")
    with refuses(CompactorError, "column 'v'"):
        table.update("k = 1", {"v": given})
    assert table.scan().to_table()["v"].to_pylist() == [1.0]


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        (pa.list_(pa.float16()), [1e300]),
        (pa.struct([("x", pa.float32())]), {"x": 1e300}),
        (pa.dictionary(pa.int32(), pa.float32()), 1e300),
    ],
)
def test_no_finite_value_becomes_infinite_within_a_column(
    store: MemoryStore, dtype: pa.DataType, wide: Any
) -> None:
    table = made(store, pa.table({"k": [1], "v": pa.nulls(1, dtype), "w": pa.array([wide])}), "k")
    with refuses(DataError, "column 'v'", "1e+300"):
        table.update("k = 1", {"v": "w"})
    assert table.scan().to_table()["v"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("dtype", "given", "expected"),
    [
        (pa.list_(pa.float32()), [0.1, math.inf], [pa.scalar(0.1, pa.float32()).as_py(), math.inf]),
        (pa.map_(pa.string(), pa.int32()), {"a": 1}, [("a", 1)]),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], [("a", 1)]),
        (pa.struct([("x", pa.float64())]), {"x": 1}, {"x": 1.0}),
        (pa.float64(), np.uint64(5), 5.0),
        (pa.float32(), np.float64(0.1), pa.scalar(0.1, pa.float32()).as_py()),
        (pa.duration("us"), np.timedelta64(5, "us"), dt.timedelta(microseconds=5)),
        (pa.timestamp("us"), np.datetime64("2020-01-01", "us"), dt.datetime(2020, 1, 1)),
        (pa.float16(), 6e-8, pa.scalar(6e-8, pa.float16()).as_py()),
        (pa.float64(), -math.inf, -math.inf),
        (pa.timestamp("us"), np.datetime64("2020-01-01"), dt.datetime(2020, 1, 1)),
        (pa.timestamp("s"), np.datetime64("2020-01-01", "ms"), dt.datetime(2020, 1, 1)),
        (pa.date32(), np.datetime64("2020-01-01", "s"), dt.date(2020, 1, 1)),
        (pa.duration("us"), np.timedelta64(2, "D"), dt.timedelta(days=2)),
        (pa.bool8(), True, True),
        (pa.bool8(), np.bool_(False), False),
        (pa.list_(pa.bool8()), (True, None), [True, None]),
        (pa.struct([("id", pa.uuid())]), {"id": UUID(int=7)}, {"id": UUID(int=7)}),
        (pa.list_(pa.uuid(), 1), (UUID(int=7),), [UUID(int=7)]),
        (pa.map_(pa.string(), pa.uuid()), {"a": UUID(int=7)}, [("a", UUID(int=7))]),
        (pa.list_(pa.list_(pa.int8())), ((1, 2), []), [[1, 2], []]),
        (pa.list_(pa.int64()), pa.array([1, None]), [1, None]),
        (pa.float64(), pd.NA, None),
        (pa.timestamp("us"), pd.NaT, None),
        (pa.timestamp("us"), np.datetime64("NaT"), None),
        (pa.struct([("at", pa.timestamp("us"))]), {"at": pd.NaT}, {"at": None}),
        (pa.list_(pa.int64()), [1, pd.NA], [1, None]),
        (pa.struct([("id", pa.uuid())]), None, None),
        (pa.list_(pa.uuid()), None, None),
    ],
)
def test_nested_columns_take_values_with_rounded_floats_and_nulls(
    store: MemoryStore, dtype: pa.DataType, given: Any, expected: Any
) -> None:
    table = made(store, pa.table({"k": [1, 2], "v": pa.nulls(2, dtype)}), "k")
    assert table.update("k = 1", {"v": given}).rows == 1
    assert table.scan().to_table()["v"].to_pylist() == [expected, None]


@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        (pa.list_(pa.float32()), [1e300]),
        (pa.list_(pa.float64()), [np.uint64(2**64 - 1)]),
        (pa.int64(), np.bool_(True)),
        (pa.int64(), np.datetime64("2020-01-01", "ns")),
        (pa.int64(), np.timedelta64(5, "ns")),
        (pa.list_(pa.int32()), [1.5]),
        (pa.bool8(), 2),
        (pa.timestamp("s"), np.datetime64("2020-01-01T00:00:00.5")),
        (pa.duration("us"), np.timedelta64(2, "M")),
        (pa.duration("us"), np.timedelta64(2)),
        (pa.timestamp("ns"), np.datetime64("9999-12-31")),
        (pa.struct([("x", pa.int64())]), (1,)),
        (pa.struct([("x", pa.int64())]), [("x", 1)]),
        (pa.struct([("id", pa.uuid())]), {"id": "7"}),
        (pa.list_(pa.string()), {"a": 1}),
        (pa.struct([("x", pa.int64())]), {"x": 1, "y": 2}),
        (pa.struct([("x", pa.int64()), ("y", pa.int64())]), {"x": 1}),
    ],
)
def test_nested_values_that_would_change_are_refused(
    store: MemoryStore, dtype: pa.DataType, given: Any
) -> None:
    table = made(store, pa.table({"k": [1], "v": pa.nulls(1, dtype)}), "k")
    with refuses(UsageError, "which can't be"):
        table.update("k = 1", {"v": given})
