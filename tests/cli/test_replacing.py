"""`update`, `ingest --overwrite` and `ingest --upsert` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compactor import Table
from tests.cli.test_cli import Cli, cli

__all__ = ["cli"]


@pytest.fixture
def path(tmp_path: Path, cli: Cli) -> Path:
    file = tmp_path / "rows.csv"
    file.write_text("day,n,word\n1,1,a\n1,2,b\n2,3,c\n")
    cli("ingest", tmp_path / "t", file, "--sort-by", "day,n")
    return tmp_path / "t"


def numbers(path: Path) -> list[int]:
    found: list[int] = Table.open(path).scan(["n"]).to_table()["n"].to_pylist()
    return found


def new_rows(path: Path, name: str = "new.csv", text: str = "day,n\n1,7\n1,8\n") -> Path:
    file = path.parent / name
    file.write_text(text)
    return file


def test_an_update_says_how_many_rows_it_changes(cli: Cli, path: Path) -> None:
    where, setting = ["--where", "day = 1"], ["--set", "n = n * 10", "--set", '"word"=upper(word)']
    out = cli("update", path, *where, *setting, "--dry-run")
    assert out == "2 rows would be updated; version 1\n"
    assert cli("update", path, *where, *setting) == (
        "2 rows updated, written to 1 fragment; version 2\n"
    )
    assert cli("query", path, "--where", "word = 'B'") == '{"day":1,"n":20,"word":"B"}\n'
    report = json.loads(cli("update", path, "--where", "day > 5", "--set", "n=0", "--json"))
    assert (report["rows"], report["version"], report["dry_run"]) == (0, 2, False)


def test_what_cannot_be_updated_is_said_in_one_line(cli: Cli, path: Path) -> None:
    where = ["--where", "day = 1"]
    for wrong in ("n", "n =", "= 1", "n == 1", 'n" = 1', "q = 1", "n = 'x'", "n = n +"):
        cli.fails(2, "update", path, *where, "--set", wrong)
    cli.fails(2, "update", path, *where, "--set", "n=1", "--set", "n=2")
    cli.fails(2, "update", path, "--where", " ", "--set", "n=1")
    cli.fails(2, "update", path, *where)
    cli.fails(3, "update", path, *where, "--set", "n = CAST(word AS BIGINT)")
    cli.fails(5, "update", path.parent / "none", *where, "--set", "n=1")
    assert numbers(path) == [1, 2, 3]


def test_an_overwrite_replaces_rows_by_those_of_files_in_one_commit(cli: Cli, path: Path) -> None:
    files = [new_rows(path), new_rows(path, "more.csv", "day,n,extra\n1,9,x\n")]
    out = cli("ingest", path, *files, "--overwrite", "--where", "day = 1")
    assert out.endswith("2 rows replaced\n") and "version 2" in out
    assert (numbers(path), Table.open(path).version) == ([7, 8, 9, 3], 2)
    report = json.loads(cli("ingest", path, files[0], "--overwrite", "--json"))
    assert (report["replaced_rows"], report["rows"], report["version"]) == (4, 2, 3)
    assert numbers(path) == [7, 8]


def test_what_cannot_be_overwritten_is_said_in_one_line(cli: Cli, path: Path) -> None:
    file = new_rows(path)
    cli.fails(3, "ingest", path, file, "--overwrite", "--where", "day = 2")
    cli.fails(2, "ingest", path, file, "--overwrite", "--where", "q = 2")
    cli.fails(2, "ingest", path, file, "--overwrite", "--where", " ")
    cli.fails(2, "ingest", path, file, "--where", "day = 1")
    cli.fails(2, "ingest", path, file, "--overwrite", "--upsert")
    none = path.parent / "none"
    cli.fails(5, "ingest", none, file, "--sort-by", "n", "--overwrite", "--where", "day = 1")
    assert numbers(path) == [1, 2, 3]
    cli("ingest", none, file, "--sort-by", "n", "--overwrite")
    assert numbers(none) == [7, 8]


def test_an_upsert_needs_a_row_policy_that_replaces_rows(cli: Cli, path: Path) -> None:
    file = new_rows(path)
    cli.fails(2, "ingest", path, file, "--upsert")
    last = path.parent / "last"
    cli("ingest", last, path.parent / "rows.csv", "--sort-by", "day", "--row-policy", "last")
    cli("ingest", last, file, "--upsert")
    assert numbers(last) == [8, 3]
