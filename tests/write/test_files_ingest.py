"""Files that are ingested one after the other, the next one read while the last one is written."""

from __future__ import annotations

import threading
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.errors import InputError
from compactor.files.columnar import ParquetBatches
from compactor.stores.local import LocalStore, LocalUpload
from compactor.table.commit_log import CommitLog
from compactor.write.ingest import FilesIngest, IngestOptions
from compactor.write.schema_union import OnConflict
from lsm_fragment.container.writer import FragmentWriter
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.support.memory_store import MemoryStore
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
            for path, following in zip_longest(given, given[1:]):
                try:
                    ingest.add(path, following=following)
                except InputError as error:
                    self.failure = error
                    break

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
    one_by_one = Ingested(paths, IngestOptions(threads=1))
    ahead = Ingested(paths, AHEAD)
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
    with FilesIngest(store, CommitLog(store), SORT, IngestOptions(threads=threads)) as ingest:
        ingest.add(paths[0], following=paths[1])
        assert events[:3] == expected
        ingest.add(paths[1])
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
    with FilesIngest(store, CommitLog(store), SORT, AHEAD) as ingest:
        ingest.add(paths[0], following=paths[1])
        ingest.add(paths[1], following=paths[2])
        with refuses(InputError):
            ingest.add("elsewhere.parquet")
    assert all(file._file.closed for file in opened)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pool")]
