"""Queries over streams of rows: their memory, their files, and what goes wrong while they read."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from compactor.errors import InputError
from compactor.pipelines import database
from compactor.pipelines.batch_size import BatchSize
from compactor.pipelines.database import DATABASE, Database, Rows, database_stage
from compactor.pipelines.provenance import Batches
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.errors import MemoryLimitError
from compactor.resources.reservation import Reservation
from compactor.resources.stage import Buffer, MemoryStage, StagePlan
from tests.support.wording import refuses

MIB = 1 << 20
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
SORTED = "SELECT * FROM given ORDER BY text, n"


def database_of(limit: int = 256 * MIB) -> Database:
    return Database(MemoryBudget(StagePlan(limit, 0, (database_stage(limit),))), LocalDisk())


def numbers(count: int, batch_rows: int = 1000) -> Batches:
    for start in range(0, count, batch_rows):
        values = np.arange(start, min(count, start + batch_rows))
        texts = pa.array([f"{(n * 7919) % count:09d}" for n in values.tolist()])
        yield pa.RecordBatch.from_arrays([pa.array(values), texts], schema=SCHEMA)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def test_a_query_takes_its_part_of_the_memory_while_it_is_open(folder: Path) -> None:
    with closing(database_of()) as held:
        budget = held._budget
        found = held.query("n", SORTED, Rows(SCHEMA, numbers(5000)), BatchSize(100, MIB))
        assert budget.used_bytes == 0
        assert next(found).num_rows <= 100
        assert budget.held_bytes(DATABASE) == 128 * MIB
        inner = held.query("n", SORTED, Rows(SCHEMA, numbers(10)), BatchSize(100, MIB))
        assert next(inner).num_rows == 10
        assert budget.held_bytes(DATABASE) == 128 * MIB
        inner.close()  # type: ignore[attr-defined]
        assert sum(batch.num_rows for batch in found) >= 4900
        assert budget.used_bytes == 0 and held.spills == 0


@pytest.mark.parametrize(("limit", "given"), [(8, 64), (256, 128)])
def test_a_query_gets_its_part_of_the_memory_and_64_mib_at_least(
    folder: Path, limit: int, given: int
) -> None:
    sql = "SELECT current_setting('memory_limit') AS m FROM given"
    with closing(database_of(limit * MIB)) as held:
        [row] = held.query("n", sql, Rows(SCHEMA, numbers(1)), BatchSize(10, MIB))
        assert row["m"].to_pylist() == [f"{given}.0 MiB"]


def test_a_query_takes_what_other_stages_leave(folder: Path) -> None:
    limit = 100 * MIB
    stages = (
        database_stage(limit),
        MemoryStage(name="build", holds="", buffer=Buffer.STREAMING, memory_bytes=limit),
    )
    budget = MemoryBudget(StagePlan(limit, 0, stages))
    with closing(Database(budget, LocalDisk())) as held, Reservation(budget, "build", 70 * MIB):
        found = held.query("n", SORTED, Rows(SCHEMA, numbers(5000)), BatchSize(100, MIB))
        assert next(found).num_rows and budget.held_bytes(DATABASE) == 10 * MIB
        with Reservation(budget, "build", 15 * MIB):
            found.close()  # type: ignore[attr-defined]
            rest = held.query("n", SORTED, Rows(SCHEMA, numbers(5000)), BatchSize(100, MIB))
            assert next(rest).num_rows and budget.held_bytes(DATABASE) == 0


def test_more_rows_than_memory_go_to_a_folder_that_ends_with_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_MIN_BYTES", 24 * MIB)
    with closing(database_of(MIB)) as held:
        rows = 600_000
        found = held.query("n", SORTED, Rows(SCHEMA, numbers(rows, 20_000)), BatchSize(2048, MIB))
        texts = [text for batch in found for text in batch["text"].to_pylist()]
        assert texts == sorted(texts) and len(texts) == rows
        assert held.spills == 1
        [scratch] = folder.iterdir()
    assert not scratch.exists()


def test_what_reading_the_rows_raises_comes_out_as_it_is(folder: Path) -> None:
    problem = InputError("app.csv, row 17: it is bad")

    def failing(after: int) -> Batches:
        yield from numbers(after)
        raise problem

    for sql in (SORTED, "SELECT * FROM given"):
        for after in (0, 400_000):
            with closing(database_of()) as held, pytest.raises(InputError) as raised:
                list(held.query("n", sql, Rows(SCHEMA, failing(after)), BatchSize(1000, MIB)))
            assert raised.value is problem


def test_too_little_memory_is_an_error_that_names_the_node(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_MIN_BYTES", 4 * MIB)
    with closing(database_of(MIB)) as held, refuses(MemoryLimitError, "'sorted'"):
        list(held.query("sorted", SORTED, Rows(SCHEMA, numbers(200_000)), BatchSize(1000, MIB)))


def test_queries_that_nobody_reads_to_the_end_end_with_the_database(folder: Path) -> None:
    held = database_of()
    outer = held.query(
        "n", "SELECT * FROM given", Rows(SCHEMA, numbers(400_000)), BatchSize(1000, MIB)
    )
    inner = held.query("n", SORTED, Rows(SCHEMA, outer), BatchSize(1000, MIB))
    assert next(inner).num_rows == 1000
    rest = held.query(
        "n", "SELECT * FROM given", Rows(SCHEMA, numbers(400_000)), BatchSize(1000, MIB)
    )
    next(rest)
    held.close()
    held.close()
    assert held._budget.used_bytes == 0


_ENDS = """
import pyarrow as pa
from tests.pipelines.test_database import SCHEMA, SORTED, database_of, numbers
from compactor.pipelines.batch_size import BatchSize
from compactor.pipelines.database import Rows
def failing():
    yield from numbers(5000)
    raise ValueError("bad")
held = database_of()
left = held.query("n", "SELECT * FROM given", Rows(SCHEMA, numbers(400_000)), BatchSize(1000, 1 << 20))
next(left)
try:
    list(held.query("n", SORTED, Rows(SCHEMA, failing()), BatchSize(1000, 1 << 20)))
except ValueError:
    held.close()
"""


def test_a_process_ends_in_silence_whatever_its_queries_were_doing() -> None:
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", _ENDS], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
