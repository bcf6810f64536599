"""The command `templates`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from compactor import Table
from tests.cli.test_cli import Cli, cli

__all__ = ["cli"]


def table_at(tmp_path: Path) -> str:
    logs = [None if n == 5 else f"disk {n} of u{n}" if n % 4 else "idle" for n in range(100)]
    Table.create(tmp_path / "t", pa.table({"k": range(100), "m": logs}), "k")
    return str(tmp_path / "t")


def test_templates_are_listed_with_rows_and_an_example(tmp_path: Path, cli: Cli) -> None:
    lines = cli("templates", table_at(tmp_path), "m").splitlines()
    assert lines[0].split() == ["rows", "share", "template", "example"]
    assert lines[1].split() == ["74", "74.7%", "disk", "<n>", "of", "<*>", "disk", "1", "of", "u1"]
    assert lines[2].split() == ["25", "25.3%", "idle", "idle"]
    assert lines[3] == "100 rows, 1 without a text at version 1"


def test_only_the_most_frequent_ones_are_shown(tmp_path: Path, cli: Cli) -> None:
    lines = cli(
        "templates", table_at(tmp_path), "m", "--limit", "1", "--where", "k < 9"
    ).splitlines()
    assert lines[2:] == ["and 1 template more, of 3 rows", "9 rows, 1 without a text at version 1"]


def test_json_has_all_figures(tmp_path: Path, cli: Cli) -> None:
    document = json.loads(cli("templates", table_at(tmp_path), "m", "--json", "--limit", "1"))
    assert document == {
        "column": "m",
        "version": 1,
        "rows": 99,
        "nulls": 1,
        "other_rows": 0,
        "fragments_left_out": 0,
        "rows_left_out": 0,
        "all": 2,
        "templates": [
            {
                "template": "disk <n> of <*>",
                "rows": 74,
                "share": 74 / 99,
                "example": "disk 1 of u1",
            }
        ],
    }


def test_columns_without_strings_are_refused(tmp_path: Path, cli: Cli) -> None:
    cli("templates", table_at(tmp_path), "k", code=2)
    assert "only strings have templates" in cli.err


def test_a_fragment_shows_how_many_templates_it_has_and_which(tmp_path: Path, cli: Cli) -> None:
    logs = [f"disk {n * n} took {n * 7919 % 1009} ms" if n % 4 else "idle" for n in range(2000)]
    table = str(tmp_path / "t")
    Table.create(table, pa.table({"k": range(2000), "m": [None, *logs[1:]]}), "k")
    [fragment] = (str(path) for path in (tmp_path / "t" / "data").glob("*.frag"))
    document = json.loads(cli("inspect", fragment, "--json"))
    [sizes] = document["templates"]
    assert sizes.pop("head_bytes") > 0 < sizes.pop("variables_bytes")
    assert sizes == {"column": "m", "row_group": 0, "rows": 2000, "templates": 2}
    assert document["chunks_of_templates"] == 1
    shown = cli("inspect", fragment)
    assert "templates, by chunk\ncolumn" in shown
    for target in (table, fragment):
        lines = cli("inspect", target, "--column", "m").splitlines()
        assert lines[1].split()[:6] == ["1,500", "75.0%", "disk", "<n>", "took", "<n>"]
        assert lines[1].endswith("disk 1 took 856 ms")
        assert lines[3] == "1,999 rows with a text in 1 of 1 row group that store m as templates"
        found = json.loads(cli("inspect", target, "--column", "m", "--json"))
        assert (found["rows"], found["all"], found["chunks"]) == (1999, 2, 1)
        assert [t["rows"] for t in found["templates"]] == [1500, 499]
        cli("inspect", target, "--column", "nope", code=2 if target == table else 3)
        assert "'nope'" in cli.err


def test_columns_that_are_stored_otherwise_have_no_templates_to_show(
    tmp_path: Path, cli: Cli
) -> None:
    table = table_at(tmp_path)
    [fragment] = (str(path) for path in (tmp_path / "t" / "data").glob("*.frag"))
    for target in (table, fragment):
        for column in ("m", "k"):
            found = cli("inspect", target, "--column", column)
            assert found == f"no row group stores {column} as templates\n"
    document = json.loads(cli("inspect", fragment, "--json"))
    assert (document["templates"], document["chunks_of_templates"]) == ([], 0)
    assert "templates" not in cli("inspect", fragment)
