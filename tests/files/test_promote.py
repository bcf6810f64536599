"""Attributes that become columns: maps and structs, many keys, few of them in any row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.cli.main import run
from compactor.errors import UsageError
from compactor.files.promote import PromotedBatches
from compactor.files.read import open_table_file
from compactor.read.scan import scan
from compactor.read.verify import verify
from compactor.settings.compaction import CompactionSettings, Strategy
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.write.ingest import IngestOptions, ingest_file
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.support.tables import compact_table, table_rows
from tests.support.wording import refuses


def read(path: Path, *columns: str) -> pa.Table:
    with PromotedBatches(lambda: open_table_file(str(path), batch_bytes=2000), columns) as file:
        return pa.Table.from_batches(list(file), file.schema)


def test_every_key_of_a_map_is_a_column_and_the_last_of_equal_keys_counts(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows: list[list[tuple[str, int]] | None] = [
        None if rng.random() < 0.1 else
        [(f"k{rng.integers(40)}", int(rng.integers(9))) for _ in range(rng.integers(6))]
        for _ in range(3000)
    ]  # fmt: skip
    table = pa.table({"n": range(3000), "a": pa.array(rows, pa.map_(pa.string(), pa.int64()))})
    pq.write_table(table.slice(7), tmp_path / "x.parquet", row_group_size=500)
    found = read(tmp_path / "x.parquet", "a")
    assert found.column_names[1:] == sorted({f"a.{k}" for row in rows[7:] for k, _ in row or ()})
    for n, row in enumerate(found.to_pylist()):
        assert row.pop("n") == n + 7
        expected = {f"a.{key}": value for key, value in rows[n + 7] or ()}
        assert {key: value for key, value in row.items() if value is not None} == expected


def test_objects_of_json_become_columns_of_their_own_types(tmp_path: Path) -> None:
    path = tmp_path / "x.ndjson"
    lines: list[Any] = [
        {"n": 1, "a": {"x": 1, "y": "t"}},
        {"n": 2, "a": None},
        {"n": 3, "a": {"z": [1]}},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert read(path, "a", "not there").to_pylist() == [
        {"n": 1, "a.x": 1, "a.y": "t", "a.z": None},
        {"n": 2, "a.x": None, "a.y": None, "a.z": None},
        {"n": 3, "a.x": None, "a.y": None, "a.z": [1]},
    ]


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"a": [1]}),
        pa.table({"a": pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64()))}),
    ],
)
def test_what_has_no_keys_is_refused(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "x.parquet")
    with refuses(UsageError):
        read(tmp_path / "x.parquet", "a")


@pytest.mark.long
def test_two_thousand_sparse_columns_go_through_a_table(tmp_path: Path) -> None:
    """Each file knows some of the keys, each row a few of those."""
    rng = np.random.default_rng(7)
    store = LocalStore(tmp_path / "t")
    log = CommitLog(store)
    expected: dict[int, dict[str, int]] = {}
    for number in range(4):
        keys = [f"k{k:04d}" for k in rng.choice(2000, 700, replace=False)]
        rows = []
        for n in range(number * 100, number * 100 + 100):
            chosen = {str(k): int(rng.integers(99)) for k in rng.choice(keys, 8)}
            expected[n] = chosen
            rows.append(list(chosen.items()))
        columns = {
            "n": range(number * 100, number * 100 + 100),
            "s": rng.integers(0, 5, 100),
            "a": pa.array(rows, pa.map_(pa.string(), pa.int64())),
        }
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table(columns), path)
        ingest_file(store, log, str(path), parse_sort_schema("s,n"), IngestOptions(promotes=("a",)))
    assert len(log.current().table.schema) > 1000

    def check() -> None:
        for row in table_rows(store):
            present = {k: v for k, v in row.items() if v is not None and k not in "ns"}
            assert present == {f"a.{k}": v for k, v in expected[row["n"]].items()}

    check()
    settings = CompactionSettings(memory_limit_bytes=64 << 20)
    assert not compact_table(store, settings, strategy=Strategy.FULL).failed
    check()
    snapshot = log.current()
    assert verify(store, snapshot).faults == []
    key, value = next(iter(expected[42].items()))
    condition = condition_on(snapshot.table, f'"a.{key}" = {value}')
    batches = scan(store, snapshot, ["n"], condition)
    found = {row["n"] for batch in batches for row in batch.to_pylist()}
    assert found == {n for n, row in expected.items() if row.get(key) == value}


def test_a_column_that_is_not_there_to_promote_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.ndjson"
    path.write_text('{"n": 1, "a": {"x": 1}}')
    store = LocalStore(tmp_path / "t")
    options = IngestOptions(promotes=("a", "b", "c"))
    report = ingest_file(store, CommitLog(store), str(path), parse_sort_schema("n"), options)
    assert report.not_promoted == ("b", "c")
    assert run(["ingest", str(tmp_path / "t"), str(path), "--promote", "b", "--json"]) == 0
    assert "--promote" in (said := capsys.readouterr().err) and "'b'" in said
