"""Tables as streams: each row once, whatever was compacted and whenever the query died. Without Spark."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from compactor import CompactorError, Policy, RowKind, RowPolicy, Strategy, Table
from compactor.errors import DataError, UsageError, VersionNotFoundError
from compactor.rows.policy import APPEND
from compactor.spark.source.source import FragmentsDataSource
from compactor.write.ingest import IngestOptions
from lsm_fragment.container.writer import WriterOptions
from tests.support.wording import refuses

FULL: Final = Policy(strategy=Strategy.FULL)
Rows = list[dict[str, Any]]


class KilledError(Exception):
    """The process of the query has died."""


class Query:
    """A query as Spark runs it: the checkpoint outlives it, and the sink keeps one result of each batch."""

    def __init__(self, url: str, **options: str) -> None:
        self.given = {"path": url, **options}
        self.schema: StructType | None = None
        self.offsets: list[str] = []
        self.committed = 0
        self.sink: dict[int, Rows] = {}
        self.tasks: list[int] = []
        """The number of tasks of each run of a batch."""

    def run(self, survives: Callable[[], bool] = lambda: True, *, now: bool = False) -> Rows:
        """Runs until there is nothing to read, and returns all rows of the sink.

        survives: asked at every step. now: reads up to the version that is the newest at first.
        """
        source = FragmentsDataSource(dict(self.given))
        schema = self.schema or source.schema()
        source = pickle.loads(pickle.dumps(source))
        reader: Any = source.streamReader(schema)
        in_tasks: Any = pickle.loads(cloudpickle.dumps(source.streamReader(schema)))
        if now:
            reader.prepareForTriggerAvailableNow()
        while True:
            number = self.committed
            start = self.offsets[number - 1] if number else json.dumps(reader.initialOffset())
            if number == len(self.offsets):
                limit = reader.getDefaultReadLimit()
                end = json.dumps(reader.latestOffset(json.loads(start), limit))
                if end == start:
                    return self.rows
                self._step(survives)
                self.offsets.append(end)
                if number:
                    self._step(survives)
                    reader.commit(json.loads(start))
            self._step(survives)
            partitions = reader.partitions(json.loads(start), json.loads(self.offsets[number]))
            self.tasks.append(len(partitions))
            rows: Rows = []
            for partition in partitions:
                sent = pickle.loads(pickle.dumps(partition))
                rows += [row for batch in in_tasks.read(sent) for row in batch.to_pylist()]
                self._step(survives)
            assert self.sink.setdefault(number, rows) == rows, "a batch is the same again"
            self._step(survives)
            self.committed += 1

    @staticmethod
    def _step(survives: Callable[[], bool]) -> None:
        if not survives():
            raise KilledError

    @property
    def rows(self) -> Rows:
        return [row for number in sorted(self.sink) for row in self.sink[number]]


def numbers(first: int, count: int = 4) -> pa.Table:
    return pa.table({"k": pa.array(range(first, first + count), pa.int64())})


def keys(rows: Rows) -> list[int]:
    return sorted(row["k"] for row in rows)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def created(url: str, rows: pa.Table, policy: RowPolicy = APPEND) -> Table:
    options = IngestOptions(rows=policy, rows_per_fragment=20, writer=WriterOptions(4))
    return Table.create(url, rows, "k", options)


def test_a_stream_begins_with_all_rows_and_goes_on_with_those_that_are_appended(url: str) -> None:
    table, query = created(url, numbers(0)), Query(url)
    table.append(numbers(4))
    table.compact(policy=FULL)
    assert keys(query.run()) == list(range(8))
    table.append(numbers(8))
    table.compact(policy=FULL)
    assert keys(query.run()) == list(range(12))
    assert query.sink[1] == [{"k": k} for k in range(8, 12)]


def test_compactions_and_tags_give_no_rows(url: str) -> None:
    table, query = created(url, numbers(0)), Query(url)
    table.append(numbers(4))
    query.run()
    batches = len(query.offsets)
    table.tag("here")
    query.run()
    assert len(query.offsets) == batches
    table.compact(policy=FULL)
    assert keys(query.run()) == list(range(8))


def test_a_stream_begins_after_a_version_a_tag_or_a_time(url: str) -> None:
    table = created(url, numbers(0))
    table.tag("start")
    table.append(numbers(4))
    for since in ("1", "start"):
        assert keys(Query(url, since=since).run()) == list(range(4, 8))
    assert keys(Query(url, since="0").run()) == list(range(8))
    late = Query(url, since="0s")
    assert late.run() == []
    table.append(numbers(8))
    assert keys(late.run()) == list(range(8, 12)), "it begins where it first began"


def test_a_first_batch_that_is_repeated_begins_where_it_began(url: str) -> None:
    table = created(url, numbers(0))
    table.tag("start")
    table.append(numbers(4))
    for options in ({"since": "start"}, {}):
        query = Query(url, **options)
        alive = iter([True])
        with pytest.raises(KilledError):
            query.run(lambda alive=alive: next(alive, False))  # type: ignore[misc]
        assert (len(query.offsets), query.sink) == (1, {})
        table.append(numbers(8))
        table.tag("start", move=True)
        query.run()
        assert keys(query.sink[0]) == list(range(4 if options else 0, 8 if options else 12))


def test_changes_have_their_kinds_and_versions(url: str) -> None:
    table, query = created(url, numbers(0, 2)), Query(url, changes="true")
    query.run()
    table.delete("k = 1")
    table.append(numbers(5, 1))
    assert query.run() == [
        {"k": 0, "_change": "insert", "_version": 1},
        {"k": 1, "_change": "insert", "_version": 1},
        {"k": 1, "_change": "delete", "_version": 2},
        {"k": 5, "_change": "insert", "_version": 3},
    ]


def test_merged_rows_come_as_updates_and_only_as_changes(url: str) -> None:
    rows = pa.table({"k": [1, 2], "v": ["a", "b"]})
    table = created(url, rows, RowPolicy(RowKind.LAST))
    query = Query(url, changes="true")
    query.run()
    table.append(pa.table({"k": [2, 3], "v": ["x", "c"]}))
    query.run()
    found = [(row["k"], row["v"], row["_change"]) for row in query.sink[1]]
    assert found == [(2, "b", "update_before"), (2, "x", "update_after"), (3, "c", "insert")]
    with refuses(UsageError, "changes=true"):
        Query(url).run()


# --- the oracle ---


class History:
    """Random commits to a table, and the appended rows of each."""

    def __init__(self, url: str, seed: int, policy: RowPolicy, *, only_appends: bool) -> None:
        self.random = Random(seed)
        self.only_appends = only_appends
        self.next_id = 0
        self.appended: list[int] = []
        self.table = created(url, self.rows(), policy)

    def rows(self) -> pa.Table:
        count = self.random.randrange(1, 40)
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        self.appended += ids
        return pa.table({"k": [self.random.randrange(50) for _ in ids], "id": ids})

    def step(self) -> None:
        names = ["append"] * 4 + ["compact", "full", "tag"]
        if not self.only_appends:
            names += ["delete", "delete", "restore", "overwrite"]
        getattr(self, self.random.choice(names))()

    def append(self) -> None:
        self.table.append(self.rows())

    def compact(self) -> None:
        self.table.compact(policy=Policy(level0_trigger_runs=2))

    def full(self) -> None:
        self.table.compact(policy=FULL)

    def tag(self) -> None:
        self.table.tag("mark", move=True)

    def delete(self) -> None:
        low = self.random.randrange(50)
        self.table.delete(f"k BETWEEN {low} AND {low + 5}")

    def overwrite(self) -> None:
        low = self.random.randrange(50)
        rows = pa.table({"k": [low], "id": [self.next_id]})
        self.next_id += 1
        self.table.overwrite(rows, f"k = {low}")

    def restore(self) -> None:
        self.table.restore(version=self.random.randrange(1, self.table.version + 1))


def run_with_deaths(history: History, query: Query) -> None:
    """Commits and runs the query in turn; it dies often, and is started again."""
    for _ in range(10):
        history.step()
        steps = iter(history.random.randrange(1, 9) for _ in range(2))
        for left in steps:
            alive = iter([True] * left)
            try:
                query.run(lambda alive=alive: next(alive, False), now=left % 2 == 0)  # type: ignore[misc]
            except KilledError:
                continue
    query.run()


def applied(rows: Rows) -> Counter[tuple[int, int]]:
    """The rows that are there once all changes are applied in the order of versions."""
    there: Counter[tuple[int, int]] = Counter()
    for row in rows:
        there[row["k"], row["id"]] += 1 if row["_change"] in ("insert", "update_after") else -1
    return +there


def rows_now(table: Table) -> Counter[tuple[int, int]]:
    return Counter((row["k"], row["id"]) for row in table.scan().to_table().to_pylist())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("since", [{}, {"since": "0"}], ids=["all rows first", "changes only"])
@pytest.mark.parametrize("policy", [APPEND, RowPolicy(RowKind.LAST)], ids=["append", "last"])
def test_changes_of_a_query_that_dies_often_give_the_rows_of_the_table(
    url: str, seed: int, since: dict[str, str], policy: RowPolicy
) -> None:
    history = History(url, seed, policy, only_appends=False)
    limits = [{}, {"max_bytes_per_trigger": "300"}, {"task_bytes": "100", "reader": "me"}]
    query = Query(url, changes="true", **since, **limits[seed % 3])
    run_with_deaths(history, query)
    assert applied(query.rows) == rows_now(history.table)
    first = query.rows[0]["_version"] if not since else 0
    expected = history.table.changes(first).to_table().to_pylist()
    if first:
        rows = Table.open(url, version=first).scan().to_table().to_pylist()
        expected += [{**row, "_change": "insert", "_version": first} for row in rows]
    assert as_counts(query.rows) == as_counts(expected), "nothing came and went in between"


def as_counts(rows: Rows) -> Counter[Any]:
    return Counter(tuple(sorted(row.items())) for row in rows)


def test_a_table_is_copied_by_its_changes_in_any_order(url: str) -> None:
    history = History(url, 7, RowPolicy(RowKind.LAST), only_appends=False)
    query = Query(url, changes="true")
    run_with_deaths(history, query)
    rows = [row for row in query.rows if row["_change"] != "update_before"]
    history.random.shuffle(rows)
    policy = RowPolicy(RowKind.LAST, sequence="_version", delete_marker="gone")
    sent = [{**row, "gone": row["_change"] == "delete"} for row in rows]
    copy = created(f"{url}-copy", pa.Table.from_pylist(sent), policy)
    assert rows_now(copy) == rows_now(history.table)
    assert any(row["gone"] for row in sent)


@pytest.mark.parametrize("seed", range(4))
def test_each_appended_row_comes_once_though_the_query_dies_often(url: str, seed: int) -> None:
    history = History(url, seed, APPEND, only_appends=True)
    query = Query(url, **({"max_bytes_per_trigger": "300"} if seed % 2 else {}))
    run_with_deaths(history, query)
    assert sorted(row["id"] for row in query.rows) == history.appended


# --- versions that delete or replace rows ---


def test_a_stream_of_appended_rows_ends_at_a_version_that_deletes_once_it_has_read_all_before(
    url: str,
) -> None:
    table, query = created(url, numbers(0)), Query(url)
    query.run()
    table.append(numbers(4))
    table.delete("k = 1")
    table.append(numbers(8))
    with refuses(UsageError, "version 3", "skip_change_commits=true"):
        query.run()
    assert keys(query.rows) == list(range(8))
    query.given["skip_change_commits"] = "true"
    assert keys(query.run()) == list(range(12))


def test_versions_that_replace_rows_are_passed_over_whole(url: str) -> None:
    table, query = created(url, numbers(0)), Query(url, skip_change_commits="true")
    query.run()
    table.overwrite(numbers(20))
    table.restore(version=1)
    table.append(numbers(30, 1))
    assert keys(query.run()) == [0, 1, 2, 3, 30]


def test_a_restore_takes_rows_and_brings_others(url: str) -> None:
    table, query = created(url, numbers(0, 1)), Query(url, changes="true", since="1")
    table.append(numbers(1, 1))
    query.run()
    table.restore(version=1)
    assert query.run()[1:] == [{"k": 1, "_change": "delete", "_version": 3}]


# --- batches and tasks ---


def test_a_batch_has_as_many_versions_as_its_bytes_allow_and_one_at_least(url: str) -> None:
    table = created(url, numbers(0))
    for first in (4, 8, 12):
        table.append(numbers(first))
    query = Query(url, since="0", max_bytes_per_trigger="1")
    query.run()
    assert [keys(query.sink[batch])[0] for batch in range(4)] == [0, 4, 8, 12]
    sizes = [entry.raw_bytes for entry in table._snapshot.fragments.all()]
    pairs = Query(url, since="0", max_bytes_per_trigger=str(2 * max(sizes)))
    pairs.run()
    assert [len(pairs.sink[batch]) for batch in sorted(pairs.sink)] == [8, 8]


def test_the_first_rows_come_in_batches_too_and_commits_between_them_come_after(url: str) -> None:
    table = created(url, numbers(0, 100))
    query = Query(url, max_bytes_per_trigger="1")
    left = iter([True] * 6)
    with pytest.raises(KilledError):
        query.run(lambda: next(left, False))
    table.append(numbers(100))
    table.compact(policy=FULL)
    assert keys(query.run()) == list(range(104))
    assert keys(query.sink[5]) == list(range(100, 104))


def test_small_fragments_share_a_task_and_others_have_tasks_of_their_own(url: str) -> None:
    table = created(url, numbers(0))
    for first in (4, 8, 12):
        table.append(numbers(first))
    for size, tasks in (("1GiB", 1), ("1", 4)):
        query = Query(url, since="0", task_bytes=size)
        query.run()
        assert query.tasks == [tasks]


def test_changes_of_merged_rows_are_divided_by_keys(url: str) -> None:
    far = pa.table({"k": [*range(20), *range(1000, 1020)]})
    table = created(url, far, RowPolicy(RowKind.LAST))
    table.append(pa.table({"k": [5, 1005], "v": ["a", "b"]}))
    query = Query(url, since="1", changes="true", task_bytes="1")
    found = Counter((row["k"], row["_change"]) for row in query.run())
    assert found == Counter((k, c) for k in (5, 1005) for c in ("update_before", "update_after"))
    assert query.tasks == [1], "the new fragment spans both"
    table.compact(policy=FULL)
    table.append(pa.table({"k": [6], "v": ["a"]}))
    table.append(pa.table({"k": [1006], "v": ["a"]}))
    query.run()
    assert query.tasks[-1] == 2


def test_a_plan_reads_no_more_than_so_many_versions_of_the_log_at_a_time(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compactor.spark.source.versions_ahead._MAX_VERSIONS", 2)
    table, query = created(url, numbers(0)), Query(url, since="0")
    for first in (4, 8, 12):
        table.append(numbers(first))
    for name in "abc":
        table.tag(name)
    table.append(numbers(16))
    assert keys(query.run()) == list(range(20))
    assert [json.loads(text)["version"] for text in query.offsets] == [2, 4, 6, 8]


# --- vacuums ---


def test_a_vacuum_that_took_what_a_stream_needs_is_told(url: str) -> None:
    table, query = created(url, numbers(0)), Query(url)
    query.run()
    table.append(numbers(4))
    table.append(numbers(8))
    table.compact(policy=FULL)
    table.vacuum(grace_seconds=0, retain_seconds=0)
    with refuses(VersionNotFoundError, "option reader of a stream"):
        query.run()
    assert keys(query.rows) == list(range(4))


def test_a_readers_tag_keeps_what_a_stream_has_yet_to_read_and_moves_on_with_it(url: str) -> None:
    table, query = created(url, numbers(0)), Query(url, reader="loader")
    query.run()
    for first in (4, 8):
        table.append(numbers(first))
        table.compact(policy=FULL)
        table.vacuum(grace_seconds=0, retain_seconds=0)
        query.run()
    assert keys(query.rows) == list(range(12))
    table.refresh()
    [tag] = table.tags().to_pylist()
    assert tag["name"] == "loader"
    assert tag["version"] == json.loads(query.offsets[-2])["version"]
    versions = table.version
    query.run()
    table.refresh()
    assert table.version == versions, "a tag that moved is nothing to read"


def test_a_reader_whose_tag_was_ended_gets_it_back(url: str) -> None:
    table, query = created(url, numbers(0)), Query(url, reader="loader")
    query.run()
    table.refresh()
    table.untag("loader")
    table.append(numbers(4))
    query.run()
    table.refresh()
    assert table.tags()["name"].to_pylist() == ["loader"]


def test_a_reader_that_begins_again_takes_its_tag_back(url: str) -> None:
    table = created(url, numbers(0))
    Query(url, reader="loader").run()
    table.append(numbers(4))
    assert keys(Query(url, reader="loader", since="1").run()) == list(range(4, 8))
    table.refresh()
    assert table.tags()["version"].to_pylist() == [1]


# --- columns ---


def widened(table: Table) -> None:
    table.append(pa.table({"k": [90], "v": [1 << 40]}))


ALTERED: Final[dict[str, Callable[[Table], Any]]] = {
    "added": lambda table: table.append(pa.table({"k": [9], "new": ["x"]})),
    "dropped": lambda table: table.alter(drops=["v"]),
    "renamed": lambda table: table.alter(renames={"v": "w"}),
    "widened": widened,
}


@pytest.mark.parametrize("how", ALTERED)
def test_a_stream_whose_columns_change_ends_and_reads_on_once_it_is_loaded_again(
    url: str, how: str
) -> None:
    table = created(url, pa.table({"k": [1], "v": pa.array([1], pa.int32())}))
    query = Query(url)
    query.schema = FragmentsDataSource({"path": url}).schema()
    query.run()
    ids = FragmentsDataSource({"path": url})
    ALTERED[how](table)
    table.append(pa.table({"k": [10]}))
    reader: Any = ids.streamReader(query.schema)
    with refuses(UsageError, "load the stream again"):
        reader.latestOffset(json.loads(query.offsets[-1]), reader.getDefaultReadLimit())
    query.schema = None
    assert keys(query.run())[-1] >= 10
    assert set(query.sink[1][-1]) == set(Table.open(url).schema.names)


def test_a_stream_of_named_columns_reads_on_when_others_come(url: str) -> None:
    table, query = created(url, numbers(0)), Query(url, columns="k")
    query.run()
    table.append(pa.table({"k": [9], "new": ["x"]}))
    assert query.run()[-1] == {"k": 9}


def test_a_condition_chooses_rows(url: str) -> None:
    table, query = created(url, numbers(0)), Query(url, where="k > 2", changes="true")
    query.run()
    table.append(numbers(2))
    table.delete("k < 4")
    found = [(row["k"], row["_change"]) for row in query.run()]
    assert found[0] == (3, "insert")
    assert Counter(found[1:]) == Counter(
        [*((k, "insert") for k in (3, 4, 5)), (3, "delete"), (3, "delete")]
    )


# --- mistakes ---

MISTAKES: Final[Sequence[dict[str, str]]] = [
    {"since": "soon"},
    {"since": "9"},
    {"version": "1"},
    {"skip_missing": "true"},
    {"single_use": "true"},
    {"startingVersion": "1"},
    {"changes": "true", "skip_change_commits": "true"},
    {"max_bytes_per_trigger": "0"},
    {"reader": "7"},
    {"columns": "nix"},
    {"where": "nix = 1"},
    {"columns": "k", "where": "k = 'a'"},
]


@pytest.mark.parametrize("options", MISTAKES, ids=str)
def test_mistakes_in_options_of_streams_are_one_line(url: str, options: dict[str, str]) -> None:
    created(url, numbers(0))
    with refuses(CompactorError) as caught:
        Query(url, **{name.lower(): text for name, text in options.items()}).run()
    assert "\n" not in str(caught.value)


def test_options_of_streams_are_refused_by_other_reads(url: str) -> None:
    created(url, numbers(0))
    source = FragmentsDataSource({"path": url, "since": "0"})
    with refuses(UsageError, "since"):
        source.reader(source.schema())


def test_a_table_in_the_place_of_another_is_no_continuation(url: str, tmp_path: Path) -> None:
    table, query = created(url, numbers(0)), Query(url)
    table.append(numbers(4))
    query.run()
    (tmp_path / "t").rename(tmp_path / "old")
    created(url, numbers(0))
    with refuses(UsageError, "another table"):
        query.run()
    (tmp_path / "t").rename(tmp_path / "new")
    with refuses(CompactorError, "no table here"):
        query.run()
    (tmp_path / "old").rename(tmp_path / "t")
    assert keys(query.run()) == list(range(8))


def test_an_offset_that_is_damaged_is_an_error(url: str) -> None:
    created(url, numbers(0))
    query = Query(url)
    query.run()
    table = json.loads(query.offsets[0])["table"]
    for text in ('{"version": 1}', f'{{"version": -1, "table": "{table}"}}'):
        query.offsets[0] = text
        with refuses(DataError, "checkpoint"):
            query.run()
    query.offsets[0] = json.dumps({"version": 9, "table": table})
    with refuses(UsageError, "version 9"):
        query.run()
