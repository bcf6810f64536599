"""Writes of the Spark data source: one commit, each batch once, nothing of what failed. Without Spark."""

from __future__ import annotations

import itertools
import math
import pickle
import shutil
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
from pyspark.sql import types as st
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from compactor import Table
from compactor.errors import (
    CommitConflictError,
    CompactorError,
    DataError,
    InputError,
    TableNotFoundError,
    UsageError,
)
from compactor.rows.policy import RowKind
from compactor.settings.vacuum import VacuumSettings
from compactor.spark.source.batches import Batch, is_taken
from compactor.spark.source.source import FragmentsDataSource
from compactor.spark.source.types import from_spark
from compactor.stores.local import LocalStore
from compactor.table.clocks import TRUST_VARIABLE
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TableMetadata
from compactor.table.vacuum import vacuum
from compactor.table.version import Operation
from tests.support.clocks import Tomorrow
from tests.support.samples import SAMPLES
from tests.support.tables import compact_table
from tests.support.wording import refuses


class Job:
    """A write as Spark goes about it."""

    def __init__(
        self,
        url: str,
        rows: pa.Table,
        *,
        stream: bool = False,
        overwrite: bool = False,
        schema: StructType | None = None,
        **options: str,
    ) -> None:
        self.rows, self.schema = rows, schema
        self.source = FragmentsDataSource({"path": url, **options})
        self.is_stream, self.overwrite = stream, overwrite
        self.messages: list[Any] = []
        self.writer = pickle.loads(pickle.dumps(self._writer()))

    def _writer(self) -> Any:
        make = self.source.streamWriter if self.is_stream else self.source.writer
        return make(self.schema or from_arrow_schema(self.rows.schema), self.overwrite)

    def write(self, tasks: int = 2) -> Self:
        step = max(1, -(-self.rows.num_rows // tasks))
        for start in range(0, self.rows.num_rows, step):
            batches = iter(self.rows.slice(start, step).to_batches())
            self.messages.append(pickle.loads(pickle.dumps(self.writer.write(batches))))
        return self

    def commit(self, batch: int | None = None) -> None:
        if self.is_stream:
            self._writer().commit(self.messages, batch)
        else:
            pickle.loads(pickle.dumps(self.writer)).commit(self.messages)

    @property
    def keys(self) -> set[str]:
        return {entry.key for message in self.messages for entry in message.entries}


def numbers(first: int, count: int = 6) -> pa.Table:
    return pa.table({"n": pa.array(range(first, first + count), pa.int64())})


def found(url: str) -> list[int]:
    return sorted(Table.open(url).scan().to_table().column("n").to_pylist())


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def test_nothing_is_visible_before_the_commit_nor_after_an_abort(url: str) -> None:
    Job(url, numbers(0), sort_by="n").write().commit()
    job = Job(url, numbers(6)).write()
    assert found(url) == list(range(6))
    job.writer.abort([*job.messages, None])
    assert (Table.open(url).version, found(url)) == (1, list(range(6)))


def test_a_task_that_ran_twice_is_in_the_table_once(url: str) -> None:
    job = Job(url, numbers(0), sort_by="n").write(tasks=3)
    twin = Job(url, numbers(0), sort_by="n").write(tasks=3)
    assert job.keys.isdisjoint(twin.keys)
    job.messages[1] = twin.messages[1]
    job.commit()
    assert (Table.open(url).version, found(url)) == (1, list(range(6)))


def test_many_tasks_of_few_rows_make_one_fragment_with_equal_keys_in_order(url: str) -> None:
    rows = pa.table({"k": pa.array([0] * 1_000), "id": pa.array(range(1_000))})
    job = Job(url, rows, sort_by="k").write(tasks=200)
    assert len(job.messages) == 200
    assert list(Path(url).rglob("*.frag")) == []
    job.commit()
    table = Table.open(url)
    assert len(table.fragments()) == 1
    assert table.scan().to_table().column("id").to_pylist() == list(range(1_000))
    job = Job(url, rows).write(tasks=200)
    job.commit()
    assert len(Table.open(url).fragments()) == 2


def test_what_tasks_send_stays_between_the_fragments_of_their_neighbours(url: str) -> None:
    sizes = [5, 5, 5_000, 5, 0, 5, 5_000, 5_000, 5]
    ends = list(itertools.accumulate(sizes))
    rows = pa.table({"k": pa.array([0] * ends[-1]), "id": pa.array(range(ends[-1]))})
    job = Job(url, rows, sort_by="k")
    for end, size in zip(ends, sizes, strict=True):
        batches = iter(rows.slice(end - size, size).to_batches(max_chunksize=100))
        job.messages.append(pickle.loads(pickle.dumps(job.writer.write(batches))))
    assert [len(message.entries) for message in job.messages] == [0, 0, 1, 0, 0, 0, 1, 1, 0]
    job.commit()
    table = Table.open(url)
    assert len(table.fragments()) == 6
    assert table.scan().to_table().column("id").to_pylist() == list(range(ends[-1]))


def test_jobs_that_create_a_table_at_once_both_add_their_rows(url: str) -> None:
    jobs = [Job(url, numbers(first), sort_by="n").write() for first in (0, 6)]
    other = Job(url, numbers(12), sort_by="n:desc").write()
    for job in jobs:
        job.commit()
    assert found(url) == list(range(12))
    with refuses(CompactorError):
        other.commit()


def test_an_overwrite_is_refused_if_rows_have_changed_since_it_began(url: str) -> None:
    Job(url, numbers(0), sort_by="n").write().commit()
    for change in (
        lambda: Job(url, numbers(6)).write().commit(),
        lambda: Table.open(url).delete("n = 1"),
    ):
        job = Job(url, numbers(100), overwrite=True).write()
        change()
        before = found(url)
        with refuses(CommitConflictError):
            job.commit()
        assert found(url) == before
    job = Job(url, numbers(100), overwrite=True).write()
    compact_table(LocalStore(url))
    job.commit()
    assert found(url) == list(range(100, 106))


def without_its_first_versions(url: str) -> None:
    log = CommitLog(LocalStore(url), Tomorrow())
    assert log.write_checkpoint(log.current())
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(TRUST_VARIABLE, "1")
        assert vacuum(log, VacuumSettings(grace_seconds=0, retain_seconds=0)).log_files > 0


def loaded(url: str, **options: str) -> StructType:
    """The schema that what is loaded has, through Spark and back."""
    return StructType.fromJson(FragmentsDataSource({"path": url, **options}).schema().jsonValue())


def test_rows_that_were_loaded_do_not_replace_those_that_came_after(url: str) -> None:
    Job(url, numbers(0), sort_by="n").write().commit()
    at_1 = loaded(url)
    compact_table(LocalStore(url))
    Job(url, numbers(0), overwrite=True, schema=at_1).write().commit()
    now = loaded(url)
    late = Job(url, numbers(50), overwrite=True, schema=now).write()
    Job(url, numbers(6)).write().commit()
    before = Table.open(url).version
    with refuses(CommitConflictError):
        Job(url, numbers(50), overwrite=True, schema=now)
    with refuses(CommitConflictError):
        late.commit()
    assert (Table.open(url).version, found(url)) == (before, list(range(12)))
    Job(url, numbers(12), schema=at_1).write().commit()
    newest: Any = {"base_version": str(Table.open(url).version)}
    Job(url, numbers(50), overwrite=True, schema=at_1, **newest).write().commit()
    assert found(url) == list(range(50, 56))


def test_rows_of_another_table_or_of_a_version_that_was_named_may_replace_any(
    url: str, tmp_path: Path
) -> None:
    other = str(tmp_path / "other")
    for place in (url, other):
        Job(place, numbers(0), sort_by="n").write().commit()
    elsewhere, named = loaded(other), loaded(url, version="1")
    for schema in (elsewhere, named):
        Job(url, numbers(6)).write().commit()
        Job(url, numbers(20), overwrite=True, schema=schema).write().commit()
        assert found(url) == list(range(20, 26))


def test_rows_that_were_loaded_before_a_vacuum_of_the_log_do_not_replace_what_may_have_come(
    url: str,
) -> None:
    Job(url, numbers(0), sort_by="n").write().commit()
    schema = loaded(url)
    for first in (6, 12):
        Job(url, numbers(first)).write().commit()
    without_its_first_versions(url)
    with refuses(CommitConflictError):
        Job(url, numbers(50), overwrite=True, schema=schema)


def test_a_table_is_known_by_any_of_its_addresses(tmp_path: Path) -> None:
    url, link = str(tmp_path / "t"), tmp_path / "link"
    Job(url, numbers(0), sort_by="n").write().commit()
    link.symlink_to("t")
    schemas = [
        loaded(address)
        for address in (str(link), f"{tmp_path}/../{tmp_path.name}/t", f"file://{url}", f"{url}/.")
    ]
    Job(url, numbers(6)).write().commit()
    for schema in schemas:
        with refuses(CommitConflictError):
            Job(url, numbers(50), overwrite=True, schema=schema)
        with refuses(CommitConflictError):
            Job(str(link), numbers(50), overwrite=True, schema=schema)


def test_a_table_is_known_by_any_of_its_addresses_though_the_log_has_gone(tmp_path: Path) -> None:
    url, link, other = (str(tmp_path / name) for name in ("t", "link", "other"))
    for place in (url, other):
        Job(place, numbers(0), sort_by="n").write().commit()
    Path(link).symlink_to("t")
    by_link, elsewhere = loaded(link), loaded(other)
    for first in (6, 12):
        Job(url, numbers(first)).write().commit()
    without_its_first_versions(url)
    with refuses(CommitConflictError):
        Job(url, numbers(50), overwrite=True, schema=by_link)
    Path(link).unlink()
    with refuses(CommitConflictError):
        Job(url, numbers(50), overwrite=True, schema=by_link)
    Job(url, numbers(50), overwrite=True, schema=elsewhere).write().commit()
    assert found(url) == list(range(50, 56))


def test_rows_of_a_table_that_was_removed_do_not_replace_those_of_one_in_its_place(
    url: str,
) -> None:
    Job(url, numbers(0), sort_by="n").write().commit()
    schema = loaded(url)
    shutil.rmtree(url)
    Job(url, numbers(6), sort_by="n").write().commit()
    with refuses(CommitConflictError):
        Job(url, numbers(50), overwrite=True, schema=schema)


PEOPLE = pa.table({"n": [1, 2], "email": ["a@x", "b@x"], "size": [3, 4]})


@pytest.mark.parametrize(
    "change",
    [{"redacts": ["email"]}, {"drops": ["email"]}, {"renames": {"email": "mail"}}],
    ids=str,
)
def test_an_overwrite_brings_back_no_column_as_it_was(url: str, change: Any) -> None:
    Job(url, PEOPLE, sort_by="n").write().commit()
    schema = loaded(url)
    late = Job(url, PEOPLE, overwrite=True, schema=schema).write()
    Table.open(url).alter(**change)
    shown = Table.open(url).scan().to_table()
    with refuses(CommitConflictError):
        Job(url, PEOPLE, overwrite=True, schema=schema)
    with refuses(CommitConflictError):
        late.commit()
    assert Table.open(url).scan().to_table().equals(shown)


@pytest.mark.parametrize("change", [{"redacts": ["email"]}, {"drops": ["email"]}], ids=str)
def test_values_that_were_dropped_or_redacted_are_not_written_again(url: str, change: Any) -> None:
    Job(url, PEOPLE, sort_by="n").write().commit()
    schema = loaded(url)
    Table.open(url).alter(**change)
    renamed = StructType([schema["n"], st.StructField("mail", st.StringType()), schema["size"]])
    renamed["mail"].metadata = schema["email"].metadata
    newest: Any = {"overwrite": True, "base_version": str(Table.open(url).version)}
    for asked, options in (
        (schema, {}),
        (renamed, {}),
        (schema, newest),
        (schema, {"stream": True}),
    ):
        name = asked.fieldNames()[1]
        with refuses(CommitConflictError, name):
            Job(url, PEOPLE.rename_columns(asked.fieldNames()), schema=asked, **options)
    rest = StructType([schema["n"], schema["size"]])
    Job(url, PEOPLE.drop_columns("email"), schema=rest).write().commit()
    Job(url, PEOPLE, schema=loaded(url, version="1")).write().commit()
    rows = Table.open(url).scan().to_table().to_pylist()
    assert [row.get("email") for row in rows].count("a@x") == 1


def test_an_overwrite_is_not_kept_back_by_what_no_reader_sees(url: str) -> None:
    Job(url, PEOPLE, sort_by="n").write().commit()
    schema, table = loaded(url), Table.open(url)
    table.alter(order=["size"])
    table.alter(renames={"email": "mail"})
    table.alter(renames={"mail": "email"})
    compact_table(LocalStore(url))
    Job(url, PEOPLE, overwrite=True, schema=schema).write().commit()
    assert Table.open(url).rows == 2


def test_an_overwrite_brings_back_no_rows_past_their_retention(url: str) -> None:
    at = pa.array([1, 90_000_000], pa.timestamp("ms", "UTC"))
    windows: Any = {"time_column": "at", "time_window": "1d", "retention": "1d", "sort_by": "at"}
    Job(url, pa.table({"at": at}), **windows).write().commit()
    schema = loaded(url)
    compact_table(LocalStore(url))
    assert Operation.EXPIRE in {
        CommitLog(LocalStore(url)).history.read(number).changes.operation
        for number in range(1, Table.open(url).version + 1)
    }
    with refuses(CommitConflictError):
        Job(url, pa.table({"at": at}), overwrite=True, schema=schema)


def test_of_several_versions_that_were_loaded_the_oldest_counts(url: str) -> None:
    Job(url, pa.table({"n": [1], "m": [1]}), sort_by="n").write().commit()
    old = loaded(url)
    Job(url, numbers(6)).write().commit()
    mixed = StructType([loaded(url)["n"], old["m"]])
    with refuses(CommitConflictError):
        Job(url, pa.table({"n": [1], "m": [1]}), overwrite=True, schema=mixed)


def test_an_overwrite_names_the_version_whose_rows_it_may_replace(url: str) -> None:
    Job(url, numbers(0), overwrite=True, base_version="0", sort_by="n").write().commit()
    with refuses(CommitConflictError):
        Job(url, numbers(0), overwrite=True, base_version="0")
    with refuses(UsageError):
        Job(url, numbers(0), overwrite=True, base_version="9")
    job = Job(url, numbers(6), overwrite=True, base_version="1").write()
    Table.open(url).delete("n = 1")
    with refuses(CommitConflictError):
        job.commit()
    with refuses(UsageError):
        Job(url, numbers(0), stream=True, overwrite=True, base_version="1")


def test_a_batch_that_was_taken_is_passed_over_though_its_rows_are_stale(url: str) -> None:
    Job(url, numbers(0), sort_by="n").write().commit()
    schema, once = loaded(url), {"app_id": "nightly", "batch_id": "0"}
    for first in (20, 40):
        Job(url, numbers(first), overwrite=True, schema=schema, **once).write().commit()  # type: ignore[arg-type]
    assert found(url) == list(range(20, 26))


def test_columns_of_types_that_tables_have_not_are_named(url: str) -> None:
    for dtype, shown in (
        (st.VariantType(), "variant"),
        (st.YearMonthIntervalType(), "interval year to month"),
        (st.ArrayType(st.StructType([st.StructField("v", st.VariantType())])), "variant"),
        (st.MapType(st.StringType(), st.CalendarIntervalType()), "interval"),
    ):
        schema = StructType([st.StructField("n", st.LongType()), st.StructField("p", dtype)])
        with refuses(InputError, shown):
            Job(url, numbers(0), schema=schema, sort_by="n")


def test_a_write_of_no_rows_makes_an_empty_table_or_empties_it(url: str) -> None:
    Job(url, numbers(0, 0), sort_by="n").write().commit()
    assert (Table.open(url).schema, found(url)) == (numbers(0).schema, [])
    Job(url, numbers(0)).write().commit()
    Job(url, numbers(0, 0)).write().commit()
    assert found(url) == list(range(6))
    Job(url, numbers(0, 0), overwrite=True).write().commit()
    assert found(url) == []


def test_a_column_that_differs_in_case_only_is_refused(url: str) -> None:
    Job(url, numbers(0), sort_by="n").write().commit()
    with refuses(InputError):
        Job(url, pa.table({"n": [1], "N": [1]}))


def test_a_numbered_batch_is_in_the_table_once(url: str) -> None:
    for number, first in ((3, 0), (3, 0), (2, 50), (4, 6)):
        options: Any = {"sort_by": "n", "app_id": "nightly", "batch_id": str(number)}
        Job(url, numbers(first), **options).write().commit()
    assert (found(url), Table.open(url).version) == (list(range(12)), 2)
    Job(url, numbers(12), app_id="other", batch_id="0").write().commit()
    assert found(url) == list(range(18))


def test_a_batch_of_a_stream_is_taken_once_whatever_happened_to_the_table(url: str) -> None:
    first = Job(url, numbers(0), stream=True, app_id="q", sort_by="n").write()
    again = Job(url, numbers(0), stream=True, app_id="q", sort_by="n").write()
    assert first.keys.isdisjoint(again.keys)
    first.commit(0)
    again.commit(0)
    assert found(url) == list(range(6))
    Table.open(url).alter(renames={"n": "m"})
    Table.open(url).append(pa.table({"m": [6], "more": ["x"]}))
    Table.open(url).alter(renames={"m": "n"})
    Table.open(url).delete("n = 6")
    compact_table(LocalStore(url))
    log = CommitLog(LocalStore(url))
    assert log.write_checkpoint(log.current())
    version = Table.open(url).version
    again.commit(0)
    assert (Table.open(url).version, found(url)) == (version, list(range(6)))
    Job(url, numbers(6), stream=True, app_id="q").write().commit(1)
    Job(url, numbers(12), stream=True, app_id="another").write().commit(0)
    assert found(url) == list(range(18))


def test_a_stream_that_is_complete_anew_replaces_what_it_wrote(url: str) -> None:
    for batch, first in enumerate((0, 20)):
        job = Job(url, numbers(first), stream=True, overwrite=True, app_id="q", sort_by="n")
        job.write().commit(batch)
    assert found(url) == list(range(20, 26))
    assert Table.open(url).version == 2


def test_a_memory_of_batches_that_is_damaged_is_an_error() -> None:
    table = TableMetadata(schema=pa.schema([]), sort=(), remembered=(("batches", "[1]"),))
    with refuses(DataError):
        is_taken(Batch("q", 0), table, "somewhere")


def test_rows_that_were_read_can_be_written_again_and_change_no_type(url: str) -> None:
    columns = {name: s for name, s in SAMPLES.items() if name not in ("decimal256", "interval")}
    rows = max(len(values) for _, values in columns.values())
    arrays = {
        name: pa.array([*values, *[None] * (rows - len(values))], dtype)
        for name, (dtype, values) in columns.items()
    }
    before = Table.create(url, pa.table({"n": range(rows), **arrays}), sort_by="n,timestamp_zone")
    source = FragmentsDataSource({"path": url})
    reader = source.reader(source.schema())
    [partition] = reader.partitions()
    read = pa.Table.from_batches(list(reader.read(partition)))
    Job(url, read, overwrite=True).write().commit()
    after = Table.open(url)
    assert after.schema == before.schema
    assert after.scan().to_table().to_pylist() == before.scan().to_table().to_pylist()


def test_a_value_that_has_no_place_is_told_by_the_commit_and_nothing_is_added(url: str) -> None:
    at = pa.array([1], pa.timestamp("ms"))
    Table.create(url, pa.table({"n": [0], "at": at}), sort_by="at,n")
    finer = pa.table({"n": [1, 2], "at": pa.array([2_000, 2_001], pa.timestamp("us"))})
    job = Job(url, finer).write()
    with refuses(InputError):
        job.commit()
    assert found(url) == [0]
    Job(url, finer.slice(0, 1)).write().commit()
    assert found(url) == [0, 1]


HALVES: dict[str, tuple[pa.DataType, Any]] = {
    "plain": (pa.float16(), lambda x: x),
    "list": (pa.list_(pa.float16()), lambda x: [0.5, x]),
    "vector": (pa.list_(pa.float16(), 2), lambda x: [0.5, x]),
    "struct": (pa.struct([("a", pa.int8()), ("h", pa.float16())]), lambda x: {"a": 1, "h": x}),
    "map": (pa.map_(pa.string(), pa.float16()), lambda x: [("k", x)]),
    "dictionary": (pa.dictionary(pa.int32(), pa.float16()), lambda x: x),
}


@pytest.mark.parametrize("name", HALVES)
def test_half_floats_stay_so_and_what_they_cannot_be_is_an_error(url: str, name: str) -> None:
    dtype, made = HALVES[name]
    values = [made(x) for x in (1.5, -0.0, 65504.0, -math.inf, math.nan, None)] + [None]
    if pa.types.is_dictionary(dtype):
        halves = pa.array(values, dtype.value_type)
        column = pa.DictionaryArray.from_arrays(pa.array(range(7), pa.int32()), halves)
    else:
        column = pa.array(values, dtype)
    before = Table.create(url, pa.table({"n": range(7), "h": column}), sort_by="n")
    source = FragmentsDataSource({"path": url})
    reader = source.reader(source.schema())
    [partition] = reader.partitions()
    read = pa.Table.from_batches(list(reader.read(partition)))
    Job(url, read, overwrite=True).write(tasks=3).commit()
    after = Table.open(url)
    assert after.schema == before.schema
    assert str(after.scan().to_table().to_pylist()) == str(before.scan().to_table().to_pylist())
    for lost in (0.1, 65536.0, 1e-9):
        column = pa.array([made(1.5), made(lost)], read.schema.field("h").type)
        job = Job(url, pa.table({"n": [8, 9], "h": column})).write(tasks=1)
        with refuses(InputError):
            job.commit()
    assert Table.open(url).rows == 7
    wider = pa.table({"n": [8], "h": pa.array([0.1], pa.float64())})
    if name == "plain":
        Job(url, wider).write().commit()
        assert Table.open(url).schema.field("h").type == pa.float64()


MISTAKES: list[tuple[type[CompactorError], Any]] = [
    (TableNotFoundError, {}),
    (UsageError, {"sort_by": ":desc"}),
    (UsageError, {"sortby": "n"}),
    (UsageError, {"sequence": "n"}),
    (UsageError, {"retention": "1d"}),
    (UsageError, {"ttl": "1d"}),
    (UsageError, {"batch_id": "1"}),
    (UsageError, {"app_id": "x", "sort_by": "n"}),
    (
        UsageError,
        {"row_policy": "newest"},
    ),
    (
        UsageError,
        {"memory_limit": "1MiB"},
    ),
    (
        UsageError,
        {"aggregate": "n:mean"},
    ),
    (
        UsageError,
        {"rows_per_fragment": "3000000000"},
    ),
    (UsageError, {"app_id": ""}),
    (UsageError, {"base_version": "1"}),
    (UsageError, {"version": "1"}),
    (UsageError, {"aggregate": "n:max,n:min"}),
    (
        UsageError,
        {"skip_index": "n"},
    ),
    (UsageError, {"sort_by": "n", "properties": "stop_runs"}),
    (UsageError, {"sort_by": "n", "properties": "warp=9"}),
    (UsageError, {"sort_by": "n", "properties": "slow_runs=3"}),
    (UsageError, {"sort_by": "nix"}),
    (UsageError, {"sort_by": "n", "delete_marker": "n", "row_policy": "append"}),
]


@pytest.mark.parametrize(("kind", "options"), MISTAKES)
def test_mistakes_in_options_of_writes_are_one_line(
    kind: type[CompactorError], options: Any, url: str
) -> None:
    with refuses(kind) as caught:
        Job(url, numbers(0), **options)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)


def test_a_new_table_keeps_properties_and_another_obeys_them_for_a_write(url: str) -> None:
    Job(
        url, numbers(10), sort_by="n", properties="stop_runs=90, retain_seconds=7d"
    ).write().commit()
    kept = (("retain_seconds", 604_800.0), ("stop_runs", 90))
    assert CommitLog(LocalStore(url)).current().properties == kept
    Job(url, numbers(10), properties="stop_runs=95,level0_trigger_runs=8").write().commit()
    after = CommitLog(LocalStore(url)).current()
    assert (after.version, after.properties) == (2, kept)


def test_tables_are_made_as_an_ingest_makes_them(url: str) -> None:
    rows = pa.table(
        {
            "id": ["a", "b", "a"],
            "day": pa.array([0, 0, 0], pa.timestamp("s", "UTC")),
            "seq": [1, 1, 2],
            "gone": [False, False, False],
        }
    )
    Job(
        url,
        rows,
        sort_by="id,day",
        row_policy="last",
        sequence="seq",
        delete_marker="gone",
        time_column="day",
        time_window="7d",
        retention="700000d",
    ).write(tasks=1).commit()
    table = Table.open(url)
    assert sorted(table.scan(["id", "seq"]).to_table().column("seq").to_pylist()) == [1, 2]
    metadata = CommitLog(LocalStore(url)).current().table
    assert metadata.rows.kind is RowKind.LAST
    assert metadata.windows is not None
    assert metadata.windows.window_seconds == 7 * 86_400


@pytest.mark.parametrize(
    "dtype",
    [pa.list_(pa.int8(), 2), pa.list_(pa.string_view(), 0), pa.list_(pa.list_(pa.int8(), 1), 2)],
    ids=str,
)
def test_arrays_of_spark_have_a_place_in_lists_of_fixed_size(dtype: pa.DataType) -> None:
    item = pa.array([None], pa.list_(pa.int32()) if dtype.list_size == 2 else pa.string())
    if dtype == pa.list_(pa.int8(), 2):
        item = pa.array([7], pa.int32())
    given = [[], item.to_pylist() * dtype.list_size, None, [None] * dtype.list_size]
    column = pa.array(given, pa.list_(item.type)).slice(1)
    found = from_spark(column, dtype)
    found.validate(full=True)
    assert found.type == dtype
    assert found.to_pylist() == column.to_pylist()


def test_an_array_of_spark_of_another_length_than_the_lists_of_a_table_is_refused() -> None:
    column = pa.array([[1, 2], None, [1]], pa.list_(pa.int32()))
    with pytest.raises(pa.ArrowInvalid, match="a list of 1 elements has no place in"):
        from_spark(column, pa.list_(pa.int8(), 2))
