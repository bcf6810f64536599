"""What every kind of copy keeps: only what changed is written, and nothing that others do harms it."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from compactor import RowKind, RowPolicy, Table
from compactor.compaction.driver import Driver, DriverSettings
from compactor.errors import CommitConflictError, DataError, InputError, UsageError
from compactor.lakes.lake import LakeChangedError, LakeKind, LakeState
from compactor.lakes.parquet import ParquetFolder
from compactor.predicate.skipping.spec import SkipKind
from compactor.settings.compaction import CompactionSettings
from compactor.stores.local import LocalStore
from compactor.stores.s3 import S3Store
from compactor.write.ingest import IngestOptions
from tests.faults import Crash, Kill, LoseAnswer, calls
from tests.faults.store import FaultyStore
from tests.read.test_changes import FULL, created
from tests.support.lakes import KINDS, Copy, Meeting, rows_of, scanned
from tests.support.wording import refuses

TARGET_CALLS: Final = ("create", "start_upload", "complete", "delete")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> LakeKind:
    found: LakeKind = request.param
    return found


def numbers(*values: int) -> pa.Table:
    return pa.table({"k": list(values), "v": [f"v{value}" for value in values]})


def copy_of(table: Table, folder: Path, kind: LakeKind) -> Copy:
    return Copy(table._log, folder / "copy", kind)


def expected(table: Table) -> Any:
    return scanned(table._store, table._log.current())


def test_only_files_whose_fragment_or_deleted_rows_changed_are_written(
    kind: LakeKind, tmp_path: Path
) -> None:
    table = created(numbers(1, 2, 3))
    copy = copy_of(table, tmp_path, kind)
    table.append(numbers(4, 5))
    assert copy.publish().added == 2
    before = set(copy.files())
    table.append(numbers(6))
    added = copy.publish()
    assert (added.added, added.removed, added.files, added.rows) == (1, 0, 3, 6)
    assert before < set(copy.files())
    table.delete("k = 4")
    deleted = copy.publish()
    assert (deleted.added, deleted.removed, deleted.rows) == (1, 1, 5)
    table.tag("now")
    again = copy.publish()
    assert (again.added, again.removed, again.bytes_added) == (0, 0, 0)
    assert copy.rows() == expected(table)


def test_files_of_the_copy_that_are_gone_are_written_again(kind: LakeKind, tmp_path: Path) -> None:
    table = created(numbers(1, 2, 3))
    table.append(numbers(4, 5))
    copy = copy_of(table, tmp_path, kind)
    copy.publish()
    gone, _ = copy.files()
    gone.unlink()
    mended = copy.publish()
    assert (mended.added, mended.removed, mended.files, mended.rows) == (1, 1, 2, 5)
    assert copy.rows() == expected(table)
    assert gone not in copy.files()
    assert copy.publish().added == 0


def test_levels_leave_young_fragments_out(kind: LakeKind, tmp_path: Path) -> None:
    table = created(numbers(1, 2, 3))
    copy = copy_of(table, tmp_path, kind)
    assert copy.publish(min_level=1).files == 0
    table.compact(policy=FULL)
    merged = expected(table)
    table.append(numbers(4))
    assert copy.publish(min_level=1).files == 1
    assert copy.rows() == merged
    assert copy.publish().files == 2
    assert copy.rows() == expected(table)


def test_rows_that_a_policy_merges_are_merged_where_fragments_overlap(
    kind: LakeKind, tmp_path: Path
) -> None:
    table = created(numbers(1, 2, 3), IngestOptions(rows=RowPolicy(RowKind.LAST)))
    table.append(pa.table({"k": [3, 4], "v": ["new", "d"]}))
    table.append(numbers(8, 9))
    copy = copy_of(table, tmp_path, kind)
    assert copy.publish().files == 2
    assert copy.rows() == rows_of(
        pa.table({"k": [1, 2, 3, 4, 8, 9], "v": ["v1", "v2", "new", "d", "v8", "v9"]})
    )
    table.compact(policy=FULL)
    copy.publish()
    assert copy.rows() == expected(table)


@pytest.mark.parametrize(
    ("kind", "is_after"),
    [
        (LakeKind.PARQUET, False),
        (LakeKind.PARQUET, True),
        pytest.param(LakeKind.DELTA, False, marks=pytest.mark.long),
        pytest.param(LakeKind.DELTA, True, marks=pytest.mark.long),
        pytest.param(LakeKind.ICEBERG, False, marks=pytest.mark.long),
        pytest.param(LakeKind.ICEBERG, True, marks=pytest.mark.long),
    ],
)
def test_a_publisher_that_is_killed_anywhere_is_continued_by_the_next(
    kind: LakeKind, tmp_path: Path, is_after: bool
) -> None:
    table = created(numbers(0))
    copy = copy_of(table, tmp_path, kind)
    copy.publish()
    for number in itertools.count(1):
        before = copy.rows()
        table.append(numbers(number * 10))
        table.append(numbers(number * 10 + 1))
        table.compact(policy=FULL)
        table.append(numbers(number * 10 + 2))
        store = FaultyStore(LocalStore(tmp_path / "copy"))
        kill = store.faults.add(Kill(is_after), at=calls(*TARGET_CALLS).nth(number))
        with suppress(Crash):
            copy.publish(store=store)
        after = expected(table)
        assert copy.rows() in (before, after)
        finds = FaultyStore(LocalStore(tmp_path / "copy"))
        copy.publish(store=finds)
        assert copy.rows() == after
        if kind is LakeKind.PARQUET:  # Readers of the folder find no other files.
            assert sum((rows_of(pq.read_table(file)) for file in copy.files()), Counter()) == after
        if not kill.hits:
            break
    assert number > 4


@pytest.mark.parametrize("commit", [1, 2])
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("kind", [LakeKind.DELTA, LakeKind.ICEBERG])
def test_files_that_a_killed_publisher_wrote_are_found_by_the_next(
    kind: LakeKind, tmp_path: Path, commit: int, is_after: bool
) -> None:
    table = created(numbers(0))
    copy = copy_of(table, tmp_path, kind)
    copy.publish()
    table.append(numbers(1))
    table.compact(policy=FULL)

    def die(number: int) -> None:
        if number == commit:
            raise Crash

    meets = {"after": die} if is_after else {"before": die}
    with pytest.raises(Crash):
        copy.publish(lake=Meeting(copy.lake(), **meets))
    assert copy.rows() == (
        rows_of(numbers(0)) if (commit, is_after) == (1, False) else expected(table)
    )
    store = FaultyStore(LocalStore(tmp_path / "copy"))
    copy.publish(store=store)
    assert copy.rows() == expected(table)
    uploads = [key for operation, key in store.calls if operation == "start_upload"]
    is_found = commit == 1 and not is_after
    is_done = commit == 2 and is_after
    assert len(uploads) == (0 if is_found or is_done else 1)
    assert all(not keeps or rows == expected(table) for keeps, rows in copy.versions())


def test_of_two_publishers_one_wins_and_the_other_finds_it_done(
    kind: LakeKind, tmp_path: Path
) -> None:
    table = created(numbers(1, 2))
    copy = copy_of(table, tmp_path, kind)
    copy.publish()
    for step in range(3):
        table.append(numbers(10 + step))
        if step:
            table.delete(f"k = {9 + step}")

        def other_wins(number: int, moves_on: bool = step == 2) -> None:
            if number == 1:
                if moves_on:
                    table.append(numbers(77))
                copy.publish()

        report = copy.publish(lake=Meeting(copy.lake(), before=other_wins))
        assert copy.rows() == expected(table)
        assert report.version == table._log.latest.version
    for keeps, _ in copy.versions():
        assert not keeps


def test_a_publisher_that_always_loses_says_so(tmp_path: Path) -> None:
    table = created(numbers(1))
    copy = copy_of(table, tmp_path, LakeKind.PARQUET)

    def lose(_number: int) -> None:
        raise LakeChangedError

    with refuses(CommitConflictError, tmp_path):
        copy.publish(lake=Meeting(copy.lake(), before=lose))


def test_a_list_whose_answer_was_lost_is_known_again(tmp_path: Path) -> None:
    table = created(numbers(1))
    copy = copy_of(table, tmp_path, LakeKind.PARQUET)
    store = FaultyStore(LocalStore(tmp_path / "copy"))
    lost = store.faults.add(LoseAnswer(), at=calls("create", prefix="_published/"))
    assert copy.publish(store=store).files == 1
    assert len(lost.hits) == 2
    assert copy.rows() == expected(table)


def test_what_was_vacuumed_since_is_a_change_of_rows(tmp_path: Path) -> None:
    table = created(numbers(1, 2))
    copy = copy_of(table, tmp_path, LakeKind.DELTA)
    copy.publish()
    table.append(numbers(3))
    table.compact(policy=FULL)
    table.vacuum(grace_seconds=0, retain_seconds=0)
    copy.publish()
    assert copy.rows() == expected(table)
    [*_, (keeps, _)] = copy.versions()
    assert not keeps


@pytest.mark.parametrize("policy", [RowPolicy(RowKind.APPEND), RowPolicy(RowKind.LAST)])
def test_fragments_without_rows_have_no_file(
    kind: LakeKind, policy: RowPolicy, tmp_path: Path
) -> None:
    table = created(numbers(1, 2), IngestOptions(rows=policy))
    table.append(numbers(7))
    copy = copy_of(table, tmp_path, kind)
    copy.publish()
    table.delete("k = 7")
    for _ in range(2):
        assert copy.publish().files == 1
        assert copy.rows() == expected(table)


def test_fragments_that_lost_all_rows_before_a_compaction_leave_nothing(
    kind: LakeKind, tmp_path: Path
) -> None:
    table = created(numbers(1))
    table.append(numbers(2))
    copy = copy_of(table, tmp_path, kind)
    copy.publish()
    table.delete("k = 2")
    table.compact(policy=FULL)
    report = copy.publish()
    assert (report.files, report.rows) == (1, 1)
    assert copy.rows() == expected(table)
    assert {pq.read_metadata(file).num_rows for file in copy.files()} == {1}


def test_files_are_sorted_and_have_what_readers_skip_by(tmp_path: Path) -> None:
    rows = pa.table({"k": [3, 1, 2], "d": [1, 2, 3], "v": ["c", "a", "b"]})
    table = created(rows, sort="k:desc")
    table.alter(skips={"v": SkipKind.BLOOM})
    copy = copy_of(table, tmp_path, LakeKind.PARQUET)
    copy.publish()
    [file] = copy.files()
    assert pq.read_table(file)["k"].to_pylist() == [3, 2, 1]
    group = pq.read_metadata(file).row_group(0)
    [sorting] = group.sorting_columns
    assert (sorting.column_index, sorting.descending) == (0, True)
    columns = [group.column(place) for place in range(3)]
    assert all(column.has_column_index and column.has_offset_index for column in columns)
    blooms = [column.bloom_filter_offset is not None for column in columns]
    assert blooms == [False, False, True]


def test_delta_has_statistics_that_readers_skip_files_by(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "k": [1, 2, None],
            "f": [1.5, float("nan"), None],
            "at": pa.array([5, None, 7], pa.timestamp("s", "UTC")),
            "long": ["x" * 1000, "y", None],
        }
    )
    table = created(rows)
    copy = copy_of(table, tmp_path, LakeKind.DELTA)
    copy.publish()
    [stats] = [json.loads(a["add"]["stats"]) for a in copy.delta_actions(1) if "add" in a]
    assert stats == {
        "numRecords": 3,
        "minValues": {"k": 1, "at": "1970-01-01T00:00:05+00:00", "long": "x" * 256},
        "maxValues": {"k": 2, "at": "1970-01-01T00:00:07+00:00", "long": "y"},
        "nullCount": {"k": 1, "f": 1, "at": 1, "long": 1},
    }


def test_filters_of_delta_find_all_rows_of_columns_without_bounds(tmp_path: Path) -> None:
    """Such as floats, decimals, booleans, long texts, days that Python lacks, and columns that came later."""
    rows = pa.table(
        {
            "k": pa.array([1, None, 3], pa.int64()),
            "f": [1.5, float("nan"), None],
            "d": pa.array([Decimal(1), None, Decimal(3)], pa.decimal128(20, 2)),
            "b": [True, False, None],
            "late": pa.array([3_000_000, None, 1], pa.int32()).cast(pa.date32()),
            "none": pa.nulls(3, pa.int64()),
            "odd, name": ["x", "y", None],
            "text": ["x", "y", None],
        }
    )
    table = created(rows.slice(0, 2), sort="text")
    copy = copy_of(table, tmp_path, LakeKind.DELTA)
    copy.publish()
    table.append(rows.slice(2).set_column(7, "text", pa.array(["z" * 1000])))  # cut
    copy.publish()
    table.append(pa.table({"text": ["a"], "new": [1]}))
    copy.publish()
    assert _skippable_once_checked(copy) == "k,none,text"
    # Files of before a column came say nothing of it, so it counts only once all are written anew.
    table.alter(renames={"k": "key"})
    copy.publish()
    assert _skippable_once_checked(copy) == "key,new,none,text"
    table.append(pa.table({"text": ["\U0010ffff" * 300], "new": [2]}))
    copy.publish()
    assert _skippable_once_checked(copy) == "key,new,none"


def _skippable_once_checked(copy: Copy) -> str:
    """Checks filters of all columns at each version. Returns by which of them readers skip files."""
    newest = copy.delta().version()
    for version in range(newest + 1):
        found = DeltaTable(str(copy.folder), version=version)
        everything, dataset = found.to_pyarrow_table(), found.to_pyarrow_dataset()
        for name in everything.column_names:
            field = pc.field(name)
            conditions = [field.is_null(), field.is_valid()]
            values = everything[name].drop_null()
            conditions += [test for value in values for test in (field == value, field >= value)]
            for condition in conditions:
                rows_there = dataset.to_table(filter=condition).num_rows
                assert rows_there == everything.filter(condition).num_rows, (version, condition)
    return found.metadata().configuration["delta.dataSkippingStatsColumns"]


# --- columns that move ---


def records(key: int, *names: str) -> pa.Array:
    """A record whose field x is ten times the key, and whose field y is a hundred times it."""
    known = {"x": key * 10, "y": key * 100}
    values = pa.StructArray.from_arrays([pa.array([known[name]]) for name in names], list(names))
    return pa.ListArray.from_arrays([0, 1], values)


def row(key: int, **others: pa.Array) -> pa.Table:
    return pa.table({"k": [key], "a": [f"a{key}"], "b": [f"b{key}"], **others})


def by_name(rows: Counter[Any]) -> Counter[Any]:
    """The rows without the order of their columns, and without the order of fields in records."""
    found: Counter[Any] = Counter()
    for (names, values), count in rows.items():
        found[frozenset(zip(names, map(unordered, values), strict=True))] += count
    return found


def unordered(value: Any) -> Any:
    return tuple(frozenset(part) for part in value) if isinstance(value, tuple) else value


def moved(table: Table) -> None:
    table.alter(order=["b", "a", "k"])


def swapped(table: Table) -> None:
    table.alter(renames={"a": "b", "b": "a"})


def swapped_in_place(table: Table) -> None:
    swapped(table)
    table.alter(order=["k", "a", "b"])


def moved_beside_a_new_column(table: Table) -> None:
    moved(table)
    table.append(row(3, c=pa.array(["c3"])))


def renamed_beside_a_move(table: Table) -> None:
    moved(table)
    table.alter(renames={"b": "d"})


def renamed_beside_first_local_times(table: Table) -> None:
    """Delta asks readers for a feature of their own for times without a zone."""
    table.append(row(3, time=pa.array([datetime(2026, 1, 1)])))
    table.alter(renames={"b": "d"})


def made_anew(table: Table) -> None:
    table.alter(drops=["b"])
    table.append(row(3))


@pytest.mark.parametrize(
    "change",
    [
        moved, swapped, swapped_in_place, moved_beside_a_new_column, renamed_beside_a_move,
        renamed_beside_first_local_times, made_anew,
    ],
)  # fmt: skip
def test_columns_that_move_or_change_names_keep_their_values(
    change: Callable[[Table], None], kind: LakeKind, tmp_path: Path
) -> None:
    table = created(row(1))
    table.append(row(2))
    copy = copy_of(table, tmp_path, kind)
    copy.publish()
    change(table)
    copy.publish()
    assert by_name(copy.rows()) == by_name(expected(table))
    assert copy.publish().added == 0
    table.append(row(9))
    table.compact(policy=FULL)
    copy.publish()
    assert by_name(copy.rows()) == by_name(expected(table))
    before: Counter[Any] = Counter()
    for keeps, rows in copy.versions():
        assert not keeps or by_name(rows) == before
        before = by_name(rows)


def test_a_column_that_moves_changes_nothing_in_delta(tmp_path: Path) -> None:
    table = created(row(1))
    copy = copy_of(table, tmp_path, LakeKind.DELTA)
    copy.publish()
    before = copy.delta().version()
    moved(table)
    assert copy.publish().added == 0
    assert copy.delta().version() == before


class Reordering(Meeting):
    """A lake that says that it has the table's order, and keeps its own."""

    def arranged(self, base: LakeState, schema: pa.Schema) -> pa.Schema:
        return schema


def test_no_commit_takes_away_what_the_one_before_it_added(tmp_path: Path) -> None:
    table = created(row(1))
    copy = copy_of(table, tmp_path, LakeKind.DELTA)
    copy.publish()
    moved(table)
    copy.publish(lake=Reordering(copy.lake()))
    assert by_name(copy.rows()) == by_name(expected(table))


def test_fields_that_move_within_records_keep_their_values(kind: LakeKind, tmp_path: Path) -> None:
    table = created(row(1, r=records(1, "x", "y")))
    copy = copy_of(table, tmp_path, kind)
    copy.publish()
    table.alter(drops=["r"])
    table.append(row(2, r=records(2, "y", "x")))
    for _ in range(2):
        copy.publish()
        assert by_name(copy.rows()) == by_name(expected(table))
    assert copy.publish().added == 0


# --- what is refused ---


def test_a_place_that_holds_something_else_is_refused(kind: LakeKind, tmp_path: Path) -> None:
    table = created(numbers(1))
    copy = copy_of(table, tmp_path, kind)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "letter.txt").write_text("dear reader")
    with refuses(UsageError, tmp_path / "copy"):
        copy.publish()
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("name", ["a%20b", "a#b", "a?b", "a\\b", "a\nb"])
@pytest.mark.parametrize("kind", [LakeKind.DELTA, LakeKind.ICEBERG])
def test_addresses_that_readers_take_for_others_are_refused(
    kind: LakeKind, name: str, tmp_path: Path
) -> None:
    table = created(numbers(1))
    with refuses(UsageError, "name a folder without"):
        table.publish(tmp_path / name, kind.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["other", "other/sub", "other/data"])
def test_a_destination_in_another_table_is_refused(place: str, tmp_path: Path) -> None:
    Table.create(str(tmp_path / "other"), numbers(1), "k")
    before = sorted(tmp_path.rglob("*"))
    with refuses(UsageError, "overlaps the table"):
        created(numbers(1)).publish(tmp_path / place, "parquet")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("place", ["../t/sub", "../t/_log/sub", "link/sub"])
def test_a_destination_in_the_table_is_refused_however_it_is_spelled(
    place: str, tmp_path: Path
) -> None:
    table = Table.create(str(tmp_path / "t"), numbers(1), "k")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link").symlink_to(tmp_path / "t")
    with refuses(UsageError, "overlaps the table"):
        table.publish(f"{tmp_path}/other/{place}", "parquet")


def test_a_running_compaction_of_young_fragments_is_no_hindrance(
    kind: LakeKind, tmp_path: Path
) -> None:
    table = created(numbers(1))
    table.compact(policy=FULL)
    table.append(numbers(2))
    settings = DriverSettings(policy=FULL, compaction=CompactionSettings())
    assert Driver(table._log, settings).decide(1)
    copy = copy_of(table, tmp_path, kind)
    copy.publish(min_level=1)
    assert [row[1][0] for row in copy.rows()] == [1]


def test_the_copy_of_another_table_is_refused(kind: LakeKind, tmp_path: Path) -> None:
    copy_of(created(numbers(1)), tmp_path, kind).publish()
    other = copy_of(created(numbers(2)), tmp_path, kind)
    with refuses(UsageError, tmp_path / "copy"):
        other.publish()
    assert other.rows() == rows_of(numbers(1))


def test_a_copy_that_is_ahead_of_its_table_is_refused(tmp_path: Path) -> None:
    table = created(numbers(1))
    copy = copy_of(table, tmp_path, LakeKind.PARQUET)
    copy.publish()
    [*_, path] = sorted((tmp_path / "copy").glob("_published/*"))
    path.write_text(path.read_text().replace('"table_version": 1', '"table_version": 9'))
    with refuses(UsageError, "version 9"):
        copy.publish()


def cut(text: str) -> str:
    return text[:50]


def newer(text: str) -> str:
    return text.replace('"format": 1', '"format": 2')


@pytest.mark.parametrize("damage", [cut, newer])
def test_a_damaged_or_newer_list_is_refused(damage: Callable[[str], str], tmp_path: Path) -> None:
    copy = copy_of(created(numbers(1)), tmp_path, LakeKind.PARQUET)
    copy.publish()
    [*_, path] = sorted((tmp_path / "copy").glob("_published/*"))
    path.write_text(damage(path.read_text()))
    with refuses(DataError, tmp_path / "copy"):
        copy.publish()


def test_rows_that_another_program_wrote_are_never_removed(tmp_path: Path) -> None:
    table = created(numbers(1))
    copy = copy_of(table, tmp_path, LakeKind.DELTA)
    copy.publish()
    write_deltalake(tmp_path / "copy", numbers(50), mode="append")
    with refuses(UsageError, "another program"):
        copy.publish()
    assert DeltaTable(tmp_path / "copy").to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize("kind", [LakeKind.DELTA, LakeKind.ICEBERG])
@pytest.mark.parametrize(
    "dtype",
    [
        pa.duration("s"),
        pa.null(),
        pa.decimal256(60, 2),
        pa.list_(pa.duration("s")),
        pa.struct([]),
        pa.list_(pa.struct([("x", pa.int64()), ("x", pa.string())])),
    ],
)
def test_a_type_that_a_lake_lacks_is_named(
    kind: LakeKind, dtype: pa.DataType, tmp_path: Path
) -> None:
    table = created(pa.table({"k": [1], "odd": pa.nulls(1, dtype)}))
    with refuses(InputError, "'odd'"):
        copy_of(table, tmp_path, kind).publish()


@pytest.mark.parametrize(
    "dtype",
    [pa.decimal128(5, -2), pa.list_(pa.decimal256(50, -2)), pa.month_day_nano_interval()],
    ids=str,
)
def test_a_type_that_parquet_lacks_is_named_and_nothing_is_written(
    dtype: pa.DataType, tmp_path: Path
) -> None:
    table = created(pa.table({"k": [1], "odd": pa.nulls(1, dtype)}))
    with refuses(InputError, "'odd'"):
        copy_of(table, tmp_path, LakeKind.PARQUET).publish()
    assert not (tmp_path / "copy").exists()


def test_names_that_differ_only_by_case_are_refused_for_delta_alone(tmp_path: Path) -> None:
    fields = pa.array([[{"f": 1, "F": 2}]])
    of_columns = created(pa.table({"k": [1], "K": [2]}))
    of_fields = created(pa.table({"k": [1], "r": fields}))
    for table, names in ((of_columns, "'k' and 'K'"), (of_fields, "'r': its fields 'f' and 'F'")):
        with refuses(InputError, names):
            copy_of(table, tmp_path, LakeKind.DELTA).publish()
    assert not (tmp_path / "copy").exists()
    for kind in (LakeKind.PARQUET, LakeKind.ICEBERG):
        for name, table in (("columns", of_columns), ("fields", of_fields)):
            copy = copy_of(table, tmp_path / kind / name, kind)
            copy.publish()
            assert copy.rows() == expected(table)


@pytest.mark.parametrize(
    "columns",
    [
        {"a": pa.struct([("b", pa.int64())]), "a.b": pa.int64()},
        {"l.element": pa.int64(), "l": pa.list_(pa.int64())},
        {"m": pa.map_(pa.string(), pa.int64()), "m.value": pa.int64()},
        {"a": pa.struct([("b", pa.struct([("c", pa.int64())])), ("b.c", pa.int64())])},
    ],
    ids=lambda columns: " ".join(columns),
)
def test_names_that_iceberg_gives_to_two_columns_are_refused_for_it_alone(
    columns: dict[str, pa.DataType], tmp_path: Path
) -> None:
    table = created(
        pa.table({"k": [1]} | {name: pa.nulls(1, dtype) for name, dtype in columns.items()})
    )
    with refuses(InputError, "Iceberg calls"):
        copy_of(table, tmp_path / "iceberg", LakeKind.ICEBERG).publish()
    copy = copy_of(table, tmp_path / "delta", LakeKind.DELTA)
    copy.publish()
    assert copy.rows() == expected(table)


def test_a_time_of_day_is_for_iceberg_only(tmp_path: Path) -> None:
    times = pa.array([1], pa.time32("s"))
    table = created(pa.table({"k": [1], "at": times}))
    with refuses(InputError, "'at'"):
        copy_of(table, tmp_path / "delta", LakeKind.DELTA).publish()
    copy = copy_of(table, tmp_path / "iceberg", LakeKind.ICEBERG)
    copy.publish()
    assert copy.rows() == expected(table)


def test_a_value_that_would_change_is_named_and_nothing_is_published(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2], "at": pa.array([1000, 1001], pa.timestamp("ns"))})
    table = created(rows)
    copy = copy_of(table, tmp_path, LakeKind.DELTA)
    with refuses(InputError, "'at'"):
        copy.publish()
    assert copy.rows() == Counter()
    table.delete("k = 2")
    copy.publish()
    assert copy.rows().total() == 1


# --- on S3 ---


@pytest.mark.parametrize("kind", [LakeKind.PARQUET, LakeKind.DELTA])
def test_copies_are_kept_up_to_date_on_s3(kind: LakeKind, s3_bucket: str, tmp_path: Path) -> None:
    table = created(numbers(1, 2))
    copy = copy_of(table, tmp_path, kind)
    copy.store = S3Store(s3_bucket, "lake/copy")
    copy.publish()
    table.append(numbers(3))
    table.compact(policy=FULL)
    assert copy.publish().rows == 3
    if kind is LakeKind.DELTA:
        found = DeltaTable(copy.store.url, storage_options={"allow_http": "true"})
        assert rows_of(found.to_pyarrow_table()) == expected(table)
    else:
        state = ParquetFolder(copy.store, copy.log.current().table_id).state()
        assert state is not None
        [name] = state.files
        data = pa.BufferReader(copy.store.read(name))
        assert rows_of(pq.read_table(data)) == expected(table)


def test_programs_publish_by_a_method_of_the_table(kind: LakeKind, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", numbers(1, 2), "k")
    counts: list[int] = []
    done = table.publish(tmp_path / "copy", kind.value, on_progress=counts.append)
    assert (done.version, done.rows, done.added, counts[-1]) == (1, 2, 1, 2)
    other = Table.open(table.url)
    table.append(numbers(3))
    done = other.publish(tmp_path / "copy", kind, min_level=1)
    assert (done.version, done.rows, done.removed) == (2, 0, 1)
    assert other.version == 1, "publishing moves no view"
    with refuses(UsageError):
        table.publish(tmp_path / "t" / "copy", kind)
    with refuses(UsageError):
        table.publish(tmp_path / "elsewhere", "parquet", catalog="prod")
