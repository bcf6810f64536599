"""Scans and fragments as Arrow streams: what they give and refuse, and what becomes of them half way."""

from __future__ import annotations

import gc
import io
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from compactor import IngestOptions, Scan, Table, WriterOptions
from compactor.resources.disk import LocalDisk
from lsm_fragment import OpenFragment, open_fragment
from lsm_fragment.errors import CorruptFragmentError, NotAFragmentError, SchemaError
from tests.support.arrow_pool import counting_pool
from tests.support.wording import refuses

ROWS = pa.table({"k": range(40_000), "text": [f"row {n}" for n in range(40_000)]})
SMALL_GROUPS = IngestOptions(writer=WriterOptions(max_rows=1_000))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of one fragment of forty row groups."""
    made = tmp_path_factory.mktemp("streams") / "t"
    Table.create(made, ROWS, "k", SMALL_GROUPS)
    return made


@pytest.fixture
def damaged(folder: Path, tmp_path: Path) -> Path:
    """The same table, with a flipped bit in the last chunk of `text`: the rows before it are well."""
    Table.create(copy := tmp_path / "damaged", ROWS, "k", SMALL_GROUPS)
    path = fragment_of(copy)
    with open_fragment(path) as fragment:
        chunk = fragment.footer.columns["text"][-1]
    data = bytearray(path.read_bytes())
    data[chunk.offset + chunk.stored_bytes - 3] ^= 0x10
    path.write_bytes(data)
    return copy


def fragment_of(folder: Path) -> Path:
    (key,) = Table.open(folder).fragments()["key"].to_pylist()
    return folder / str(key)


def test_a_fragment_is_a_stream_wherever_it_comes_from(folder: Path) -> None:
    path = fragment_of(folder)
    with path.open("rb") as file:
        for source in (path, str(path), path.read_bytes(), file, io.BytesIO(path.read_bytes())):
            with open_fragment(source) as fragment:
                assert pa.table(fragment) == ROWS
                assert pl.DataFrame(fragment).height == ROWS.num_rows
                assert pa.schema(fragment) == ROWS.schema
                assert fragment.to_reader(["text"]).read_next_batch().schema.names == ["text"]
        assert not file.closed


def test_what_is_no_fragment_is_said(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"no fragment at all")
    with refuses(NotAFragmentError):
        open_fragment(tmp_path / "f")
    with pytest.raises(FileNotFoundError):
        open_fragment(tmp_path / "none")
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe, pytest.raises(io.UnsupportedOperation):
        open_fragment(pipe)


def test_an_unknown_column_of_a_fragment_is_refused_at_once(folder: Path) -> None:
    with open_fragment(fragment_of(folder)) as fragment, refuses(SchemaError, "'kk'"):
        fragment.to_reader(["kk"])


Opened = Scan | OpenFragment


@pytest.fixture(params=["scan", "fragment"])
def rows(request: pytest.FixtureRequest, folder: Path) -> Iterator[Opened]:
    if request.param == "scan":
        yield Table.open(folder).scan()
    else:
        with open_fragment(fragment_of(folder)) as fragment:
            yield fragment


def test_a_schema_that_is_asked_for_is_given_or_refused(rows: Opened) -> None:
    wider = pa.schema([("k", pa.float64()), ("text", pa.large_string())])
    taken = pa.RecordBatchReader.from_stream(rows, wider)
    assert taken.schema == wider
    assert taken.read_all() == ROWS.cast(wider)
    for other in (
        pa.schema([("k", pa.int64())]),
        pa.schema([("a", pa.int64()), ("b", pa.string())]),
    ):
        with pytest.raises(ValueError, match="not matching"):
            pa.RecordBatchReader.from_stream(rows, other)
    unfit = pa.schema([("k", pa.int64()), ("text", pa.int64())])
    with pytest.raises(pa.ArrowInvalid, match="Failed to parse string"):
        pa.RecordBatchReader.from_stream(rows, unfit).read_all()


def test_a_stream_is_read_any_number_of_times_and_in_threads(rows: Opened) -> None:
    found: list[Any] = []

    def read() -> None:
        found.append(pa.table(rows))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(table == ROWS for table in found)
    interleaved = [rows.to_reader(), rows.to_reader()]
    assert [r.read_next_batch()["k"][0].as_py() for r in interleaved] == [0, 0]


def test_a_limit_reads_no_more_than_it_needs(folder: Path) -> None:
    scan = Table.open(folder).scan()
    with duckdb.connect() as connection:
        assert len(connection.execute("FROM scan LIMIT 5").fetchall()) == 5
    assert scan.report.rows_read < ROWS.num_rows


@pytest.mark.parametrize("end", ["close", "drop"])
def test_a_stream_that_is_left_half_way_lets_go_of_what_it_holds(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compactor.read.merged_rows.BATCH_ROWS", 1_000)
    gc.collect()  # what other tests have left closes now
    closed: list[LocalDisk] = []
    real = LocalDisk.close

    def close(disk: LocalDisk) -> None:
        closed.append(disk)
        real(disk)

    monkeypatch.setattr(LocalDisk, "close", close)
    # Overlapping fragments are merged, with a place on disk for what memory does not hold.
    table = Table.create(tmp_path / "t", ROWS, "k", SMALL_GROUPS)
    table.append(ROWS)
    reader = table.scan().to_reader()
    assert reader.read_next_batch().num_rows
    assert closed == []
    if end == "close":
        reader.close()
    del reader
    gc.collect()
    assert len(closed) == 1


def by_pyarrow(rows: Any) -> object:
    return pa.table(rows)


def by_polars(rows: Any) -> object:
    return pl.DataFrame(rows)


def by_duckdb(rows: Any) -> object:
    with duckdb.connect() as connection:
        return connection.execute("SELECT max(text) FROM rows").fetchall()


@pytest.mark.parametrize("read", [by_pyarrow, by_polars, by_duckdb])
def test_damage_half_way_is_raised_through_other_libraries_with_our_message(
    damaged: Path, read: Callable[[Any], object]
) -> None:
    with open_fragment(fragment_of(damaged)) as fragment:
        for rows in (Table.open(damaged).scan(), fragment):
            with pytest.raises(Exception, match=r"\.frag, column 'text', byte \d+: ") as caught:
                read(rows)
            assert "checksum" in str(caught.value)


def test_damage_half_way_is_our_error_to_who_iterates(damaged: Path) -> None:
    with refuses(CorruptFragmentError, "column 'text'"):
        list(Table.open(damaged).scan())
    with open_fragment(fragment_of(damaged)) as fragment, pytest.raises(CorruptFragmentError):
        list(fragment.scan())
    # What is not damaged can be read, since columns lie apart.
    assert Table.open(damaged).scan(["k"]).to_table()["k"] == ROWS["k"]


def test_a_fragment_is_read_a_window_at_a_time(tmp_path: Path) -> None:
    noise = np.random.default_rng(5).bytes(48 << 20).hex()
    texts = [noise[start : start + 65_536] for start in range(0, len(noise), 65_536)]
    rows = pa.table({"k": range(len(texts)), "v": texts})
    options = IngestOptions(writer=WriterOptions(max_rows=16))
    table = Table.create(tmp_path / "t", rows, "k", options)
    with open_fragment(fragment_of(Path(table.url))) as fragment, counting_pool() as pool:
        tracemalloc.start()
        try:
            for batch in fragment.to_reader():
                assert batch.num_rows <= 16
            most = tracemalloc.get_traced_memory()[1] + pool.max_memory()
        finally:
            tracemalloc.stop()
    assert 16 * 65_536 < most < len(noise) / 2
