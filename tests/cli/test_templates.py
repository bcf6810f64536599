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
