"""Files that are ingested one after the other, the next one read while the last one is written."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor import Policy, RowKind, RowPolicy, Strategy, Table
from compactor.errors import InputError, PermissionDeniedError, StoreUnreachableError, UsageError
from compactor.files.columnar import ParquetBatches
from compactor.predicate.skipping.spec import SkipKind, SkipSpec
from compactor.rows.fold import FoldError
from compactor.rows.policy import RowFunction
from compactor.stores.local import LocalStore, LocalUpload
from compactor.table.commit_log import CommitLog
from compactor.write.file_schema import OnConflict
from compactor.write.ingest import ByteProgress, FilesIngest, IngestOptions, IngestReport, files
from compactor.write.ingest.rejects import Rejects
from lsm_fragment.container.open import open_fragment
from lsm_fragment.container.writer import FragmentWriter, WriterOptions
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.faults import Refuse, calls
from tests.support.memory_store import MemoryStore
from tests.support.oracle import stable_sorted
from tests.support.tables import log_rows, table_rows
from tests.support.wording import refuses

SORT = parse_sort_schema("service,ts")
AHEAD = IngestOptions(threads=2)


class Ingested:
    """A table that files were ingested into."""

    def __init__(self, paths: list[Path], options: IngestOptions, sort: str = "service,ts") -> None:
        self.store = MemoryStore()
        self.log = CommitLog(self.store)
        self.failure: Exception | None = None
        ids = iter(f"{number:032x}" for number in range(100))
        given = list(map(str, paths))
        with FilesIngest(
            self.store, self.log, parse_sort_schema(sort), options, ids=lambda: next(ids)
        ) as ingest:
            try:
                self.versions = [report.version for report in ingest.add(given)]
            except InputError as error:
                self.failure = error

    @property
    def fragments(self) -> dict[str, bytes]:
        return {key: self.store.read(key) for key in sorted(self.log.refresh().fragments)}

    @property
    def rows(self) -> list[dict[str, Any]]:
        return table_rows(self.store)


def write(folder: Path, *tables: pa.Table, row_group_size: int = 50) -> list[Path]:
    paths = [folder / f"{number}.parquet" for number in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path, row_group_size=row_group_size)
    return paths


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[ParquetBatches]:
    """All files that were opened."""
    files: list[ParquetBatches] = []
    init = ParquetBatches.__init__

    def noted(self: ParquetBatches, *given: Any, **named: Any) -> None:
        init(self, *given, **named)
        files.append(self)

    monkeypatch.setattr(ParquetBatches, "__init__", noted)
    return files


def test_files_read_ahead_make_the_same_fragments(tmp_path: Path) -> None:
    paths = write(tmp_path, *(log_rows(170, seed) for seed in range(5)))
    one_by_one = Ingested(paths, IngestOptions(threads=1, rows_per_fragment=170))
    ahead = Ingested(paths, IngestOptions(threads=2, rows_per_fragment=170))
    assert len(ahead.fragments) == 5
    assert list(ahead.fragments.values()) == list(one_by_one.fragments.values())
    assert ahead.rows == one_by_one.rows


def test_encodings_of_earlier_files_hold_for_later_ones_with_any_number_of_threads(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(3)
    words = ["".join(rng.choice(list("abcdefgh"), 5)) for _ in range(2000)]
    tables = [
        pa.table(
            {
                "k": np.arange(9000),
                "text": [" ".join(rng.choice(words, 9)) for _ in range(9000)],
                "log": [f"user {rng.choice(words)} took {n} ms" for n in range(9000)],
            }
        )
        for _ in range(3)
    ]
    paths = write(tmp_path, *tables, row_group_size=9000)
    one, two = (Ingested(paths, IngestOptions(threads=threads), "k") for threads in (1, 2))
    assert list(one.fragments.values()) == list(two.fragments.values())
    assert (
        pa.Table.from_pylist(one.rows)
        .sort_by("text")
        .equals(pa.concat_tables(tables).sort_by("text"))
    )


def test_a_file_that_has_its_types_is_opened_once(
    tmp_path: Path, opened: list[ParquetBatches]
) -> None:
    paths = write(tmp_path, *(log_rows(70, seed) for seed in range(4)))
    Ingested(paths, AHEAD)
    assert [Path(file.path) for file in opened] == paths


@pytest.mark.parametrize(
    ("threads", "expected"),
    [(1, ["encoded", "begun", "complete"]), (2, ["begun", "encoded", "complete"])],
)
def test_the_file_that_follows_is_begun_when_nobody_else_needs_the_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, expected: list[str]
) -> None:
    events: list[str] = []

    def note(owner: type, name: str, event: str, *, is_after: bool = False) -> None:
        call = getattr(owner, name)

        def noted(*given: Any, **named: Any) -> Any:
            if not is_after:
                events.append(event)
            found = call(*given, **named)
            if is_after:
                events.append(event)
            return found

        monkeypatch.setattr(owner, name, noted)

    note(FragmentWriter, "finish", "encoded", is_after=True)
    note(FilesIngest, "_begin", "begun")
    note(LocalUpload, "complete", "complete")
    store = LocalStore(tmp_path / "table")
    paths = list(map(str, write(tmp_path, log_rows(120, 1), log_rows(120, 2))))
    options = IngestOptions(threads=threads, writer=WriterOptions(max_rows=200))
    with FilesIngest(store, CommitLog(store), SORT, options) as ingest:
        list(ingest.add(paths))
    assert events[:3] == expected
    assert events.count("begun") == 1
    assert len(table_rows(store)) == 240


def test_a_file_read_ahead_follows_a_schema_that_changed_meanwhile(tmp_path: Path) -> None:
    tables = [
        pa.table({"k": [1], "a": [10]}),
        pa.table({"k": [2], "a": [20], "b": ["new"]}),
        pa.table({"k": [3], "a": ["text"]}),
        pa.table({"k": [4], "a": [40]}),
    ]
    options = IngestOptions(threads=2, on_conflict=OnConflict.STRING)
    table = Ingested(write(tmp_path, *tables), options, "k")
    assert table.failure is None
    assert table.rows == [
        {"k": 1, "a": "10", "b": None},
        {"k": 2, "a": "20", "b": "new"},
        {"k": 3, "a": "text", "b": None},
        {"k": 4, "a": "40", "b": None},
    ]


@pytest.mark.parametrize("content", [None, b"PAR1 and nothing else PAR1"])
def test_a_bad_file_fails_in_its_turn(tmp_path: Path, content: bytes | None) -> None:
    paths = write(tmp_path, *(log_rows(120, seed) for seed in range(3)))
    paths[1].unlink()
    if content is not None:
        paths[1].write_bytes(content)
    table = Ingested(paths, AHEAD)
    assert str(paths[1]) in str(table.failure)
    assert len(table.rows) == 120


def test_rows_that_fail_ahead_fail_in_their_turn(tmp_path: Path) -> None:
    paths = write(tmp_path, *(log_rows(120, seed) for seed in range(2)))
    damaged = bytearray(paths[1].read_bytes())
    damaged[200:400] = bytes(200)
    paths[1].write_bytes(damaged)
    table = Ingested(paths, AHEAD)
    assert str(paths[1]) in str(table.failure)
    assert len(table.rows) == 120


def test_leaving_early_closes_the_file_that_follows(
    tmp_path: Path, opened: list[ParquetBatches]
) -> None:
    paths = list(map(str, write(tmp_path, *(log_rows(500, seed) for seed in range(3)))))
    store = MemoryStore()

    @contextmanager
    def on_file(path: str) -> Iterator[ByteProgress]:
        if path == paths[2]:
            raise KeyboardInterrupt
        yield lambda _done, _total: None

    with (
        FilesIngest(store, CommitLog(store), SORT, AHEAD) as ingest,
        pytest.raises(KeyboardInterrupt),
    ):
        list(ingest.add(paths, on_file))
    assert all(file._file.closed for file in opened)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pool")]


def test_small_files_share_a_fragment_and_a_commit(tmp_path: Path) -> None:
    tables = [log_rows(50, seed) for seed in range(5)]
    table = Ingested(write(tmp_path, *tables), AHEAD)
    assert table.versions == [1]
    assert len(table.fragments) == 1
    assert table.rows == stable_sorted(pa.concat_tables(tables), SORT).to_pylist()


@pytest.mark.parametrize("threads", [1, 2])
def test_files_of_other_columns_are_opened_once(
    tmp_path: Path, opened: list[ParquetBatches], threads: int
) -> None:
    tables = [log_rows(50, 0), log_rows(50, 1).drop_columns("value"), log_rows(50, 2)]
    paths = write(tmp_path, *tables)
    table = Ingested(paths, IngestOptions(threads=threads))
    assert len(table.rows) == 150
    assert [batches.path for batches in opened] == list(map(str, paths))


@pytest.mark.parametrize(
    ("rows", "fragments"),
    [
        ([30, 30, 40, 9], [60, 49]),  # half a row group is enough
        ([30, 230, 10], [30, 100, 100, 40]),  # a file of several fragments shares only its last one
        ([49, 50, 1], [49, 50, 1]),  # a file that is enough by itself stays alone
        ([0, 3, 0], [3]),
        ([0, 0], []),
    ],
)
def test_a_fragment_has_whole_files_or_a_part_of_one(
    tmp_path: Path, rows: list[int], fragments: list[int]
) -> None:
    tables = [log_rows(300, seed).slice(0, count) for seed, count in enumerate(rows)]
    table = Ingested(
        write(tmp_path, *tables),
        IngestOptions(threads=1, rows_per_fragment=100, writer=WriterOptions(max_rows=100)),
    )
    written = sorted(table.log.refresh().fragments.all(), key=lambda entry: entry.age)
    assert [entry.rows for entry in written] == fragments
    assert table.rows == stable_sorted(pa.concat_tables(tables), SORT).to_pylist()


def test_heavy_files_share_no_fragment(tmp_path: Path) -> None:
    options = IngestOptions(writer=WriterOptions(target_row_group_bytes=2000))
    table = Ingested(write(tmp_path, *(log_rows(50, seed) for seed in range(3))), options)
    assert len(table.fragments) == 3


def test_many_tiny_files_fill_the_buffer_by_their_columns_in_memory(tmp_path: Path) -> None:
    tables = [log_rows(1, seed) for seed in range(6)]
    options = IngestOptions(buffer_bytes=20_000)  # two files of four columns
    assert len(Ingested(write(tmp_path, *tables), options).fragments) == 3


def test_a_file_that_fails_behind_others_leaves_no_row(tmp_path: Path) -> None:
    """Its first rows were already in fragments of their own."""
    tables = [log_rows(30, 0), log_rows(400, 1)]
    paths = write(tmp_path, *tables, row_group_size=100)
    damaged = bytearray(paths[1].read_bytes())
    last = pq.ParquetFile(paths[1]).metadata.row_group(3).column(0)
    start = last.dictionary_page_offset or last.data_page_offset
    damaged[start : start + last.total_compressed_size] = bytes(last.total_compressed_size)
    paths[1].write_bytes(damaged)
    table = Ingested(paths, IngestOptions(threads=1, rows_per_fragment=100, buffer_bytes=6000))
    assert str(paths[1]) in str(table.failure)
    assert table.rows == stable_sorted(tables[0], SORT).to_pylist()


@pytest.mark.parametrize("kind", [RowKind.LAST, RowKind.FIRST])
def test_the_order_of_files_decides_among_rows_of_a_key_in_one_fragment(
    tmp_path: Path, kind: RowKind
) -> None:
    tables = [pa.table({"k": [2, 1], "v": [10 * n, 10 * n + 1]}) for n in range(4)]
    table = Ingested(write(tmp_path, *tables), IngestOptions(rows=RowPolicy(kind)), "k")
    assert len(table.fragments) == 1
    n = 3 if kind is RowKind.LAST else 0
    assert table.rows == [{"k": 1, "v": 10 * n + 1}, {"k": 2, "v": 10 * n}]


def test_a_sum_that_overflows_in_a_shared_fragment_adds_the_files_before_it(tmp_path: Path) -> None:
    most = 2**63 - 1
    tables = [
        pa.table({"k": [0], "v": [7], "w": ["a column that no other file has"]}),
        pa.table({"k": [1], "v": [most]}),
        pa.table({"k": [1], "v": [1]}),
    ]
    paths = list(map(str, write(tmp_path, *tables)))
    store = MemoryStore()
    policy = RowPolicy(
        RowKind.AGGREGATE, aggregates=(("v", RowFunction.SUM), ("w", RowFunction.MIN))
    )
    sort = parse_sort_schema("k")
    with (
        FilesIngest(store, CommitLog(store), sort, IngestOptions(rows=policy)) as ingest,
        refuses(FoldError, "one of 2 files", paths[1], paths[2]),
    ):
        list(ingest.add(paths))
    assert [row["k"] for row in table_rows(store)] == [0]


@pytest.mark.parametrize(
    ("rows_before", "added"),
    [
        ([130], 0),  # the last 30 rows share the fragment that fails
        ([150], 1),
        ([130, 20], 2),
        ([130, 0, 20, 100], 4),
    ],
)
def test_files_with_rows_in_a_fragment_that_fails_are_left_out_whole(
    tmp_path: Path, rows_before: list[int], added: int
) -> None:
    before = [
        pa.table({"k": range(n * 1000, n * 1000 + rows), "v": [1] * rows, "id": [n] * rows})
        for n, rows in enumerate(rows_before, 1)
    ]
    overflowing = [pa.table({"k": [1], "v": [value], "id": [0]}) for value in (2**63 - 1, 1)]
    behind = pa.table(
        {"k": range(90), "v": [1] * 90, "id": [0] * 90}
    )  # enough for the files before to be written
    paths = list(map(str, write(tmp_path, *before, *overflowing, behind)))
    options = IngestOptions(
        rows=RowPolicy(
            RowKind.AGGREGATE, aggregates=(("v", RowFunction.SUM), ("id", RowFunction.MAX))
        ),
        skips=SkipSpec((("id", SkipKind.BLOOM),)),
        rows_per_fragment=100,
        writer=WriterOptions(max_rows=90),
    )
    store, reports = MemoryStore(), list[IngestReport]()
    with (
        FilesIngest(store, CommitLog(store), parse_sort_schema("k"), options) as ingest,
        pytest.raises(FoldError, match="does not fit into int64"),
    ):
        reports.extend(ingest.add(paths))
    _check_added(store, reports, paths, before[:added])


@pytest.mark.parametrize("threads", [1, 2])
def test_files_whose_fragment_cannot_be_stored_are_not_reported(
    tmp_path: Path, threads: int
) -> None:
    tables = [log_rows(rows, rows).sort_by("id") for rows in (50, 20, 21, 22)]
    store = MemoryStore()
    store.faults.add(Refuse(PermissionDeniedError), at=calls("complete").nth(2))
    options = IngestOptions(writer=WriterOptions(max_rows=100), threads=threads)
    _check_failing(store, tmp_path, tables, options, tables[:1])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_fragment_that_fails_while_the_next_file_is_read_leaves_its_file_out(
    tmp_path: Path, threads: int, failing: int
) -> None:
    tables = [log_rows(60, seed).sort_by("id") for seed in range(4)]
    store = MemoryStore()
    store.faults.add(Refuse(PermissionDeniedError), at=calls("complete").nth(failing))
    options = IngestOptions(writer=WriterOptions(max_rows=100), threads=threads)
    _check_failing(store, tmp_path, tables, options, tables[: failing - 1])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("rows", "failing", "added"), [((60, 60, 0, 0), 2, 1), ((250, 0), 1, 0), ((250, 0), 3, 0)]
)
def test_empty_files_behind_a_fragment_that_fails_are_left_out(
    tmp_path: Path, threads: int, rows: Sequence[int], failing: int, added: int
) -> None:
    tables = [log_rows(count, seed).sort_by("id") for seed, count in enumerate(rows)]
    store = MemoryStore()
    store.faults.add(Refuse(PermissionDeniedError), at=calls("complete").nth(failing))
    options = IngestOptions(
        writer=WriterOptions(max_rows=100), rows_per_fragment=100, threads=threads
    )
    _check_failing(store, tmp_path, tables, options, tables[:added])


@pytest.mark.parametrize("threads", [1, 2])
def test_two_fragments_that_fail_one_after_the_other_keep_no_earlier_file_out(
    tmp_path: Path, threads: int
) -> None:
    tables = [log_rows(rows, rows).sort_by("id") for rows in (61, 62, 20)]
    store = MemoryStore()
    store.faults.add(Refuse(PermissionDeniedError), at=calls("complete").nth(2))
    store.faults.add(Refuse(StoreUnreachableError), at=calls("start_upload").nth(3))
    options = IngestOptions(writer=WriterOptions(max_rows=100), threads=threads)
    _check_failing(store, tmp_path, tables, options, tables[:1])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_rejects_are_those_of_the_files_that_were_added(
    tmp_path: Path, threads: int, failing: int
) -> None:
    paths = [tmp_path / f"{number}.csv" for number in range(4)]
    for path in paths:
        path.write_text("k,v\n" + "".join(f"{row},1\n" for row in range(60)) + f"{path.stem},bad\n")
    store = MemoryStore()
    first = pa.table({"k": pa.array([0]), "v": pa.array([0])})
    with FilesIngest(store, CommitLog(store), parse_sort_schema("k"), IngestOptions()) as ingest:
        list(ingest.add(list(map(str, write(tmp_path, first)))))
    store.faults.add(Refuse(PermissionDeniedError), at=calls("complete").nth(failing))
    rejects = Rejects(str(tmp_path / "rejects.ndjson"))
    options = IngestOptions(writer=WriterOptions(max_rows=100), threads=threads)
    with (
        FilesIngest(store, CommitLog(store), None, options, rejects=rejects) as ingest,
        pytest.raises(PermissionDeniedError),
    ):
        list(ingest.add(list(map(str, paths))))
    assert CommitLog(store).refresh().live_rows == 1 + 60 * (failing - 1)
    lines = (tmp_path / "rejects.ndjson").read_text().splitlines()
    assert [Path(json.loads(line)["file"]).stem for line in lines] == [
        path.stem for path in paths[: failing - 1]
    ]


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("together", [False, True])
def test_what_an_ingest_that_ends_early_was_storing_is_whole_or_gone(
    tmp_path: Path, threads: int, together: bool
) -> None:
    *good, bad = write(tmp_path, *(log_rows(60, seed) for seed in range(4)))
    bad.write_bytes(b"no Parquet")
    store = LocalStore(tmp_path / "table")
    options = IngestOptions(writer=WriterOptions(max_rows=100), threads=threads)
    with (
        FilesIngest(store, CommitLog(store), parse_sort_schema("id"), options) as ingest,
        pytest.raises(InputError),
    ):
        list(ingest.add(list(map(str, [*good, bad])), in_one_commit=together))
    data = list((tmp_path / "table" / "data").iterdir())
    for path in data:
        with open_fragment(path) as fragment:
            assert pa.table(fragment).num_rows == 60
    live = CommitLog(store).refresh().fragments
    assert len(live) == (0 if together else 3)


def _check_failing(
    store: MemoryStore,
    folder: Path,
    tables: list[pa.Table],
    options: IngestOptions,
    added: list[pa.Table],
) -> None:
    """Checks that an ingest of files is refused, and which of them it adds."""
    paths, reports = list(map(str, write(folder, *tables))), list[IngestReport]()
    with (
        FilesIngest(store, CommitLog(store), parse_sort_schema("id"), options) as ingest,
        pytest.raises(PermissionDeniedError),
    ):
        reports.extend(ingest.add(paths))
    _check_added(store, reports, paths, added)


def _check_added(
    store: MemoryStore, reports: list[IngestReport], paths: list[str], tables: list[pa.Table]
) -> None:
    """Checks that the first files are in the table, that the others are not, and that reports say so."""
    assert [path for report in reports for path in report.paths] == paths[: len(tables)]
    rows = [row for table in tables for row in table.to_pylist()]
    assert sum(report.rows for report in reports) == len(rows)
    assert not any(report.superseded_rows for report in reports)
    snapshot = CommitLog(store).refresh()
    assert snapshot.version == (1 if rows else 0)
    if rows:
        assert sorted(map(str, table_rows(store))) == sorted(map(str, rows))
    for entry in snapshot.fragments.all():
        assert entry.skip_index is None or store.read(entry.skip_index.key)


@pytest.mark.parametrize(
    ("bound", "value", "expected"),
    [("_COMMIT_FILES", 2, [1, 2, 3]), ("_COMMIT_BYTES", 1, [1, 2, 3, 4, 5])],
)
def test_a_commit_is_bounded_by_files_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int, expected: list[int]
) -> None:
    monkeypatch.setattr(f"compactor.write.ingest.next_commit.{bound}", value)
    paths = write(tmp_path, *(log_rows(50, seed) for seed in range(5)))
    assert Ingested(paths, IngestOptions(rows_per_fragment=50)).versions == expected
    assert together(tmp_path, *(log_rows(50, seed) for seed in range(5)), sort="ts").version == 1


def test_a_report_is_given_once_the_rows_are_visible(tmp_path: Path) -> None:
    tables = [log_rows(50, 0), log_rows(50, 1).drop_columns("value"), log_rows(50, 2)]
    paths = list(map(str, write(tmp_path, *tables)))
    Path(paths[2]).write_bytes(b"PAR1")
    store = MemoryStore()
    with FilesIngest(store, CommitLog(store), SORT, AHEAD) as ingest:
        reports = ingest.add(paths)
        assert next(reports).paths == (paths[0],)
        assert len(table_rows(store)) == 100
        assert next(reports).paths == (paths[1],)
        with pytest.raises(InputError, match=r"2\.parquet"):
            next(reports)
    assert CommitLog(store).refresh().version == 1


def together(folder: Path, *tables: pa.Table, sort: str = "k", **options: Any) -> Table:
    """Returns a new table to which the files were added in one commit."""
    store = LocalStore(folder / "table")
    paths = list(map(str, write(folder, *tables)))
    ids = iter(f"{number:032x}" for number in range(100))
    with FilesIngest(
        store,
        CommitLog(store),
        parse_sort_schema(sort),
        IngestOptions(**options),
        ids=lambda: next(ids),
    ) as ingest:
        reports = list(ingest.add(paths, in_one_commit=True))
    assert [path for report in reports for path in report.paths] == paths
    assert {report.version for report in reports} == {1}
    assert sum(report.rows for report in reports) == sum(table.num_rows for table in tables)
    return Table.open(store.url)


@pytest.mark.parametrize("threads", [1, 2])
def test_files_of_one_commit_make_the_same_fragments(tmp_path: Path, threads: int) -> None:
    tables = [log_rows(170, seed) for seed in range(4)]
    found = together(tmp_path, *tables, sort="service,ts", threads=threads, rows_per_fragment=170)
    assert found.version == 1
    store = LocalStore(found.url)
    alone = Ingested(write(tmp_path, *tables), IngestOptions(threads=1, rows_per_fragment=170))
    keys = sorted(CommitLog(store).refresh().fragments)
    assert [store.read(key) for key in keys] == list(alone.fragments.values())
    assert table_rows(store) == alone.rows


def test_a_later_file_of_one_commit_has_the_newer_rows(tmp_path: Path) -> None:
    tables = [pa.table({"k": [1, 2], "v": [n, 10 + n]}) for n in range(3)]
    found = together(tmp_path, *tables, rows=RowPolicy(RowKind.LAST))
    assert found.scan().to_table().to_pylist() == [{"k": 1, "v": 2}, {"k": 2, "v": 12}]
    found.compact(policy=Policy(strategy=Strategy.FULL))
    assert found.scan().to_table().to_pylist() == [{"k": 1, "v": 2}, {"k": 2, "v": 12}]


def test_columns_come_and_widen_between_files_of_one_commit(tmp_path: Path) -> None:
    tables = [
        pa.table({"k": [1], "v": pa.array([7], pa.int8())}),
        pa.table({"k": [2], "v": pa.array([2**30], pa.int32()), "w": ["x"]}),
        pa.table({"k": [3], "v": pa.array([0.5], pa.float64())}),
    ]
    found = together(tmp_path, *tables).scan().to_table()
    assert found.to_pylist() == [
        {"k": 1, "v": 7.0, "w": None},
        {"k": 2, "v": float(2**30), "w": "x"},
        {"k": 3, "v": 0.5, "w": None},
    ]


def test_a_value_that_a_later_file_widens_wrongly_adds_no_file(tmp_path: Path) -> None:
    tables = [
        pa.table({"k": [1], "v": pa.array([2**60], pa.timestamp("ms"))}),
        pa.table({"k": [2], "v": pa.array([1], pa.timestamp("us"))}),
    ]
    with refuses(InputError):
        together(tmp_path, *tables)
    assert CommitLog(LocalStore(tmp_path / "table")).refresh().version == 0


def test_a_bad_file_of_one_commit_adds_none(tmp_path: Path) -> None:
    with refuses(InputError):
        together(tmp_path, pa.table({"k": [1]}), pa.table({"other": [2]}), pa.table({"k": [3]}))
    assert CommitLog(LocalStore(tmp_path / "table")).refresh().version == 0


def test_a_column_that_is_dropped_meanwhile_stays_dropped_for_all_files_of_one_commit(
    tmp_path: Path,
) -> None:
    first = together(tmp_path, pa.table({"k": [0], "v": [0]}))
    store = LocalStore(first.url)
    paths = list(map(str, write(tmp_path, *(pa.table({"k": [n], "v": [n]}) for n in (1, 2)))))

    @contextmanager
    def on_file(path: str) -> Iterator[ByteProgress]:
        if path == paths[1]:
            Table.open(store.url).alter(drops=["v"])
        yield lambda _done, _total: None

    with FilesIngest(store, CommitLog(store), None, IngestOptions()) as ingest:
        list(ingest.add(paths, on_file, in_one_commit=True))
    assert Table.open(store.url).scan().to_table().to_pylist() == [{"k": n} for n in range(3)]


def test_a_conflict_of_one_commit_names_all_of_its_files(tmp_path: Path) -> None:
    store = LocalStore(together(tmp_path, pa.table({"k": [0], "v": [0]})).url)
    tables = [pa.table({"k": [1], "v": [1]}), pa.table({"k": [2]})]
    paths = list(map(str, write(tmp_path, *tables)))

    @contextmanager
    def on_file(path: str) -> Iterator[ByteProgress]:
        if path == paths[1]:
            rows = pa.table({"k": [9], "v": ["text"]})
            Table.open(store.url).append(rows, IngestOptions(on_conflict=OnConflict.STRING))
        yield lambda _done, _total: None

    with FilesIngest(store, CommitLog(store), None, IngestOptions()) as ingest:
        with refuses(InputError, "one of 2 files", paths[0], paths[1]):
            list(ingest.add(paths, on_file, in_one_commit=True))
        assert list(ingest.add([], in_one_commit=True)) == []
    assert Table.open(store.url).scan().to_table().num_rows == 2


@pytest.mark.parametrize("together", [False, True])
def test_files_without_rows_add_nothing_beside_others(tmp_path: Path, together: bool) -> None:
    texts = {"1.csv": "", "2.csv": "service,ts\n", "3.csv": "service,ts\na,1\n", "4.json": "[]"}
    paths = []
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        paths.append(str(tmp_path / name))
    store = MemoryStore()
    with FilesIngest(store, CommitLog(store), SORT, AHEAD, skips_empty=True) as ingest:
        reports = list(ingest.add(paths, in_one_commit=together))
    assert [(report.path, report.rows) for report in reports] == list(
        zip(paths, [0, 0, 1, 0], strict=True)
    )
    assert table_rows(store) == [{"service": "a", "ts": 1}]
    assert reports[-1].version == 1


def ingest_all(folder: Path, texts: dict[str, str], *, together: bool) -> Table:
    """Ingests files of these texts as one call of the command does."""
    paths = [str(folder / name) for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        Path(path).write_text(text)
    store = LocalStore(str(folder / "table"))
    with FilesIngest(
        store, CommitLog(store), parse_sort_schema("k"), IngestOptions(), skips_empty=True
    ) as ingest:
        reports = list(ingest.add(paths, in_one_commit=together))
    assert [path for report in reports for path in report.paths] == paths
    fragments = [path for path in (folder / "table" / "data").iterdir() if path.suffix == ".frag"]
    assert len(fragments) == sum(
        report.fragments for report in reports
    )  # none is left of a first try
    return Table.open(store.url)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    ("texts", "values"),
    [
        ({"1.csv": "k,v\n1,1\n", "2.csv": "k,v\n2,1.5\n"}, [1.0, 1.5]),
        ({"1.csv": "k,v\n1,\n", "2.csv": "k,v\n2,1\n", "3.csv": "k,v\n3,0.5\n"}, [None, 1.0, 0.5]),
        ({"1.csv": "k\n1\n", "2.csv": "k,v\n2,1\n", "3.csv": "k,v\n3,0.5\n"}, [None, 1.0, 0.5]),
        ({"1.csv": "k,v\n", "2.json": '{"k":2,"v":7}', "3.csv": "k,v\n3,0.5\n"}, [7.0, 0.5]),
        ({"1.ndjson": '{"k":1,"v":1}', "2.ndjson": '{"k":2,"v":1.5}'}, [1.0, 1.5]),
        (
            {"1.csv": "k,v\n1,2024-01-31\n", "2.csv": "k,v\n2,2024-01-31T10:00:00\n"},
            [dt.datetime(2024, 1, 31), dt.datetime(2024, 1, 31, 10)],
        ),
    ],
)
def test_a_new_table_has_the_types_that_all_text_files_of_a_call_share(
    tmp_path: Path, texts: dict[str, str], values: list[Any], together: bool
) -> None:
    rows = ingest_all(tmp_path, texts, together=together).scan().to_table().to_pylist()
    assert [(row["v"], type(row["v"])) for row in rows] == [(v, type(v)) for v in values]


@pytest.mark.parametrize("together", [False, True])
def test_an_integer_that_the_shared_type_does_not_hold_is_refused(
    tmp_path: Path, together: bool
) -> None:
    texts = {"1.csv": "k,v\n1,9007199254740993\n", "2.csv": "k,v\n2,1.5\n"}
    with refuses(InputError, "1.csv, row 1", "'v'", "9007199254740993", "because of", "2.csv"):
        ingest_all(tmp_path, texts, together=together)
    assert CommitLog(LocalStore(str(tmp_path / "table"))).refresh().version == 0


@pytest.mark.parametrize("last", ["k,v\n3,2\n", "k,v\n3\n"], ids=["sound", "bad"])
def test_types_that_differ_follow_the_policy_of_conflicts_whatever_file_is_bad(
    tmp_path: Path, last: str
) -> None:
    paths = [tmp_path / f"{number}.csv" for number in range(3)]
    for path, text in zip(paths, ("k,v\n1,1\n", "k,v\n2,1.5\n", last), strict=True):
        path.write_text(text)
    store = LocalStore(str(tmp_path / "table"))
    options = IngestOptions(on_conflict=OnConflict.STRING)
    with (
        suppress(InputError),
        FilesIngest(store, CommitLog(store), parse_sort_schema("k"), options) as ingest,
    ):
        list(ingest.add([str(path) for path in paths]))
    rows = Table.open(store.url).scan().to_table().to_pylist()
    assert [row["v"] for row in rows][:2] == ["1", "1.5"]


@pytest.mark.parametrize("threads", [1, 2])
def test_what_was_written_with_other_types_is_removed(tmp_path: Path, threads: int) -> None:
    paths = [tmp_path / f"{number}.csv" for number in range(4)]
    for path in paths:
        value = "1.5" if path == paths[-1] else "1"
        path.write_text("k,v\n" + "".join(f"{row},{value}\n" for row in range(60)))
    store = MemoryStore()
    options = IngestOptions(writer=WriterOptions(max_rows=100), threads=threads)
    with FilesIngest(store, CommitLog(store), parse_sort_schema("k"), options) as ingest:
        reports = list(ingest.add([str(path) for path in paths]))
    assert sum(report.rows for report in reports) == 240
    stored = {key for key in store.objects if key.endswith(".frag")}
    assert stored == set(CommitLog(store).refresh().fragments)


@pytest.mark.parametrize("together", [False, True])
def test_a_table_that_exists_keeps_its_types(tmp_path: Path, together: bool) -> None:
    ingest_all(tmp_path, {"0.csv": "k,v\n0,0\n"}, together=False)
    texts = {"1.csv": "k,v\n1,1\n", "2.csv": "k,v\n2,1.5\n"}
    with refuses(InputError, "2.csv, row 1", "'v'", "'1.5'", "int64"):
        ingest_all(tmp_path, texts, together=together)


def test_a_file_with_a_mistake_is_reported_when_its_turn_comes(tmp_path: Path) -> None:
    texts = {"1.csv": "k,v\n1,1\n", "2.csv": "k,v\n2\n", "3.csv": "k,v\n3,1.5\n"}
    with refuses(InputError, "2.csv, row 1"):
        ingest_all(tmp_path, texts, together=False)
    rows = Table.open(str(tmp_path / "table")).scan().to_table().to_pylist()
    assert rows == [{"k": 1, "v": 1.0}]
    assert isinstance(rows[0]["v"], float)


@pytest.mark.parametrize("together", [False, True])
def test_a_first_file_with_a_mistake_has_no_other_read(
    tmp_path: Path, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "agreed_types", None)
    texts = {"1.csv": "k,v\n1\n", "2.csv": "k,v\n2,1\n", "3.csv": "k,v\n3,1.5\n"}
    with refuses(InputError, "1.csv, row 1"):
        ingest_all(tmp_path, texts, together=together)


@pytest.mark.parametrize("place", ["t/data", "t/_log", "t/sub/new", "link/sub"])
def test_a_new_table_is_not_made_inside_another(tmp_path: Path, place: str) -> None:
    rows = pa.table({"k": [1]})
    Table.create(tmp_path / "t", rows, "k")
    (tmp_path / "link").symlink_to("t")
    before = sorted(tmp_path.rglob("*"))
    with refuses(UsageError, str(tmp_path / "t"), "outside of it"):
        Table.create(tmp_path / place, rows, "k")
    assert sorted(tmp_path.rglob("*")) == before
    assert Table.create(tmp_path / "beside", rows, "k").rows == 1
