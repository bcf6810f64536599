"""What the commands do to tables, from Python."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from compactor import CompactionSettings, Policy, RowKind, RowPolicy, Strategy, Table
from compactor.cli.main import run
from compactor.errors import ConfigError, InputError, JobError, TableNotFoundError, UsageError
from compactor.write.ingest import IngestOptions
from tests.support.wording import refuses

ROWS = pa.table({"host": ["b", "a", "c"], "n": [3, 1, 2]})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "t", ROWS, "host,n:desc")
    for _ in range(3):
        made.append(ROWS)
    return made


def test_compaction_keeps_rows_and_moves_on_to_its_version(table: Table) -> None:
    before = table.scan().to_table()
    assert len(table.fragments()) == 4
    report = table.compact(policy=Policy(strategy=Strategy.FULL))
    assert (len(report.done), table.version) == (1, report.version)
    assert len(table.fragments()) == 1
    assert table.scan().to_table() == before
    assert table.compact(policy=Policy(strategy=Strategy.FULL)).done == []


def test_compaction_goes_by_the_policy_that_is_given(table: Table) -> None:
    assert table.compact(policy=Policy(level0_trigger_runs=5)).done == []
    settings = CompactionSettings(max_rows_per_row_group=5)
    table.compact(policy=Policy(strategy=Strategy.OVERLAPPING), settings=settings)
    assert table.fragments()["row_groups"].to_pylist() == [3]


def test_a_compaction_that_fails_for_good_says_why_and_what_is_in_quarantine(table: Table) -> None:
    key = table.fragments()["key"][0].as_py()
    path = Path(table.url.removeprefix("file://")) / key
    path.write_bytes(path.read_bytes()[:-40])
    with refuses(JobError, key):
        table.compact(policy=Policy(strategy=Strategy.FULL))
    reasons = dict(
        zip(
            *(table.fragments()[name].to_pylist() for name in ("key", "quarantine_reason")),
            strict=True,
        )
    )
    assert [k for k, reason in reasons.items() if reason] == [key]
    assert any(key in fault for fault in table.verify().faults)


def test_what_the_memory_limit_does_not_allow_is_refused(tmp_path: Path) -> None:
    heavy = pa.table({"k": [1, 2], "v": ["x" * 9_000_000] * 2})
    table = Table.create(tmp_path / "t", heavy, "k")
    table.append(heavy)
    version = table.version
    with refuses(ConfigError):
        table.compact(
            policy=Policy(strategy=Strategy.FULL),
            settings=CompactionSettings(memory_limit_bytes=16 << 20),
        )
    assert table.version == version


def test_vacuum_removes_what_was_compacted_away(table: Table) -> None:
    table.compact(policy=Policy(strategy=Strategy.FULL))
    assert table.vacuum(dry_run=True, grace_seconds=0, retain_seconds=0).fragments == 4
    kept = table.vacuum()
    assert kept.fragments == 0
    report = table.vacuum(grace_seconds=0, retain_seconds=0)
    assert (report.fragments, table.version) == (4, report.version)
    assert table.scan().to_table().num_rows == 12
    assert table.verify().to_json()["ok"]
    assert table.history()["version"].to_pylist() == [table.version]


def test_the_history_says_what_every_version_changed(table: Table) -> None:
    table.delete("host = 'c'")
    table.compact(policy=Policy(strategy=Strategy.FULL))
    history = table.history().to_pylist()
    assert [row["version"] for row in history] == list(range(table.version, 0, -1))
    assert {row["operation"] for row in history} == {"ingest", "delete", "lease", "compact"}
    newest, first = history[0], history[-1]
    assert (newest["operation"], newest["fragments_added"], newest["rows_added"]) == (
        "compact",
        1,
        8,
    )
    assert (first["operation"], first["fragments_added"], first["rows_added"]) == ("ingest", 1, 3)
    assert [row["version"] for row in table.history(2).to_pylist()] == [
        table.version,
        table.version - 1,
    ]
    assert table.history(0).num_rows == 0
    early = Table.open(table.url, version=2)
    assert early.history()["version"].to_pylist() == [2, 1]


def test_fragments_are_told_with_their_keys_and_sizes(table: Table) -> None:
    found = table.fragments()
    assert found["rows"].to_pylist() == [3] * 4
    assert found["first_key"].to_pylist() == ['["a", 1]'] * 4
    files = [Path(table.url.removeprefix("file://")) / key for key in found["key"].to_pylist()]
    assert [file.stat().st_size for file in files] == found["size_bytes"].to_pylist()


def test_files_can_be_appended_and_written(table: Table, tmp_path: Path) -> None:
    report = table.scan(["host", "n"], "n > 1").to_file(tmp_path / "out.ndjson")
    assert (report.rows, report.version) == (8, table.version)
    assert table.append(tmp_path / "out.ndjson").rows == 8
    assert len(table) == 20
    with refuses(InputError, "none.parquet"):
        table.append(tmp_path / "none.parquet")
    with refuses(UsageError):
        table.scan().to_file(tmp_path / "out.xyz")


def test_a_table_says_what_it_is(table: Table, tmp_path: Path) -> None:
    assert Table.exists(table.url)
    assert not Table.exists(tmp_path / "none")
    assert (table.sort_by, table.row_policy) == ("host,n:desc", RowPolicy())
    table.alter(renames={"n": "count"})
    assert table.sort_by == "host,count:desc"
    users = Table.create(
        tmp_path / "users", ROWS, "host", IngestOptions(rows=RowPolicy(RowKind.LAST, "n"))
    )
    assert users.row_policy == RowPolicy(RowKind.LAST, "n")
    with pytest.raises(TableNotFoundError):
        Table.open(tmp_path / "none").vacuum()


def test_python_and_the_command_line_do_the_same(table: Table) -> None:
    assert run(["compact", table.url, "--strategy", "full", "--master", "in-process"]) == 0
    table.refresh()
    assert len(table.fragments()) == 1
    assert table.compact(policy=Policy(strategy=Strategy.FULL)).done == []
