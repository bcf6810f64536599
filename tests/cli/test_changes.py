"""`changes` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor import Policy, Strategy, Table
from tests.cli.test_cli import Cli, cli

__all__ = ["cli"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table of two versions with two rows each, and a third that deletes one."""
    table = Table.create(tmp_path / "t", pa.table({"k": [1, 2]}), "k")
    table.append(pa.table({"k": [3, 4]}))
    table.delete("k = 2")
    return tmp_path / "t"


def test_changes_are_printed_by_version_and_counted(cli: Cli, path: Path) -> None:
    lines = [json.loads(line) for line in cli("changes", path, "--since", 1).splitlines()]
    assert lines == [
        {"k": 3, "_change": "insert", "_version": 2},
        {"k": 4, "_change": "insert", "_version": 2},
        {"k": 2, "_change": "delete", "_version": 3},
    ]
    assert cli("changes", path, "--since", 0, "--summary") == (
        "version 1: 2 insert\nversion 2: 2 insert\nversion 3: 1 delete\n"
    )
    out = cli("changes", path, "--since", 0, "--until", 2, "--where", "k > 1", "-n", 1)
    assert json.loads(out) == {"k": 2, "_change": "insert", "_version": 1}


def test_a_reader_reads_on_where_it_ended_whatever_was_compacted_and_vacuumed(
    cli: Cli, path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "first.parquet"
    cli("changes", path, "--reader", "loader", "--since", 0, "-o", out)
    assert pq.read_table(out)["_version"].to_pylist() == [1, 1, 2, 2, 3]
    table = Table.open(path)
    table.append(pa.table({"k": [5]}))
    appended = table.version
    table.compact(policy=Policy(strategy=Strategy.FULL))
    table.vacuum(grace_seconds=0, retain_seconds=0)
    line = json.loads(cli("changes", path, "--reader", "loader"))
    assert line == {"k": 5, "_change": "insert", "_version": appended}
    assert cli("changes", path, "--reader", "loader") == ""
    before = Table.open(path).version
    assert cli("changes", path, "--reader", "loader") == ""
    assert Table.open(path).version == before
    assert Table.open(path).vacuum(grace_seconds=0, retain_seconds=0).fragments > 0


def test_a_reader_that_goes_version_by_version_reads_each_once(cli: Cli, path: Path) -> None:
    newest = Table.open(path).version
    cli("changes", path, "--reader", "loader", "--since", 0, "--until", 1)
    for version in range(2, newest + 1):
        cli("changes", path, "--reader", "loader", "--until", version)
    assert cli("changes", path, "--reader", "loader") == ""
    still = Table.open(path).version
    cli("changes", path, "--reader", "loader")
    assert Table.open(path).version == still


def test_a_summary_moves_no_reader(cli: Cli, path: Path) -> None:
    """Its rows were only counted."""
    cli("changes", path, "--reader", "loader", "--since", 1)
    Table.open(path).append(pa.table({"k": [5]}))
    for _ in range(2):
        assert "1 insert" in cli("changes", path, "--reader", "loader", "--summary")
    assert json.loads(cli("changes", path, "--reader", "loader"))["k"] == 5
    cli("changes", path, "--reader", "other", "--since", 0, "--summary")
    assert "other" not in cli("tags", path)


def test_a_reader_stays_where_it_is_if_the_output_fails(cli: Cli, path: Path) -> None:
    cli("changes", path, "--reader", "loader", "--since", 1)
    before = cli("tags", path)
    Table.open(path).append(pa.table({"k": [5]}))
    cli.fails(2, "changes", path, "--reader", "loader", "-o", path / "none" / "x.parquet")
    cli.fails(2, "changes", path, "--reader", "loader", "--columns", "none")
    assert cli("tags", path) == before


def test_mistakes_are_one_line(cli: Cli, path: Path) -> None:
    cli.fails(2, "changes", path)
    cli.fails(2, "changes", path, "--since", "soon")
    cli.fails(2, "changes", path, "--reader", "loader")
    cli.fails(2, "changes", path, "--since", 1, "-n", 1, "--summary")
    cli.fails(2, "changes", path, "--since", 1, "-n", 1, "--reader", "loader")
    cli.fails(2, "changes", path, "--since", 3, "--until", 1)
    cli("changes", path, "--reader", "loader", "--since", 1)
    cli.fails(2, "changes", path, "--reader", "loader", "--since", 1)
    Table.open(path).untag("loader")
    Table.open(path).compact(policy=Policy(strategy=Strategy.FULL))
    Table.open(path).vacuum(grace_seconds=0, retain_seconds=0)
    cli.fails(5, "changes", path, "--since", 0)


def test_a_tag_that_keeps_one_version_for_others_is_no_reader(cli: Cli, path: Path) -> None:
    cli("tag", path, "release", "--version", 1)
    cli.fails(2, "changes", path, "--reader", "release", "--summary")
    assert Table.open(path, tag="release").version == 1
    cli("changes", path, "--reader", "loader", "--since", "release")
    assert "keeps later versions for a reader" in cli("tags", path).splitlines()[0]
    assert [tag["keeps_later"] for tag in json.loads(cli("tags", path, "--json"))["tags"]] == [
        True,
        False,
    ]


def test_a_reader_of_no_valid_name_is_refused_before_any_output(cli: Cli, path: Path) -> None:
    cli.fails(2, "changes", path, "--reader", "my loader", "--since", 0, "--summary")
    assert cli.out == ""


def test_changes_since_a_time_before_the_table_are_all(cli: Cli, path: Path) -> None:
    every = cli("changes", path, "--since", 0)
    assert cli("changes", path, "--since", "1h") == every != ""
    Table.open(path).compact(policy=Policy(strategy=Strategy.FULL))
    Table.open(path).vacuum(grace_seconds=0, retain_seconds=0)
    cli.fails(5, "changes", path, "--since", "1h")
