"""`watch --config` as a user meets it: the check of a file, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from compactor import Table
from tests.cli.test_cli import Cli, cli
from tests.support.wording import says

__all__ = ["cli"]

FLEET = """\
tables:
  - at: lake/*
    priority: 2
    quiet: "00:00-24:00"
    settings: {level0_trigger_runs: 2}
    vacuum:
  - at: other
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        table = Table.create(tmp_path / "lake" / name, pa.table({"k": [1]}), "k")
        if name == "b":
            table.append(pa.table({"k": [1]}))
    (tmp_path / "lake" / "no table").mkdir()
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    return path


def test_a_dry_run_shows_tables_settings_and_what_is_due_and_changes_nothing(
    cli: Cli, file: Path
) -> None:
    before = sorted(file.parent.rglob("*"))
    said = cli("watch", "--config", file, "--dry-run").splitlines()
    lake = file.parent / "lake"
    assert said[:3] == [
        f"{file}: 2 entries, 3 tables; nothing was changed",
        f"{lake}/*: priority 2; share 1; quiet 00:00-24:00 UTC (now); level0_trigger_runs=2",
        f"  {lake}/a: version 1; nothing due",
    ]
    assert said[3].startswith(f"  {lake}/b: version 2; 1 merge due, the next of ")
    assert said[4:] == [
        f"{file.parent}/other: priority 0; share 1",
        f"  {file.parent}/other: no table here yet",
    ]
    assert sorted(file.parent.rglob("*")) == before


def test_a_dry_run_as_json_has_the_same(cli: Cli, file: Path) -> None:
    lake, other = json.loads(cli("watch", "--config", file, "--dry-run", "--json"))["entries"]
    assert (lake["is_quiet"], lake["settings"]) == (True, {"level0_trigger_runs": 2})
    assert [(t["version"], t["due"]) for t in lake["tables"]] == [(1, 0), (2, 1)]
    assert [table["version"] for table in other["tables"]] == [0]


def test_a_table_that_cannot_be_read_is_shown_and_ends_the_check_with_an_error(
    cli: Cli, file: Path
) -> None:
    [first, *_] = sorted((file.parent / "lake" / "a" / "_log").glob("0*.json"))
    first.write_bytes(b"{")
    said = cli("watch", "--config", file, "--dry-run", code=1)
    assert f"{file.parent}/lake/a: can't be read: " in said
    says(cli.err.strip())


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--dry-run", "t"],
        ["t", "--config", "fleet.yaml"],
        ["--config", "fleet.yaml", "--memory-limit", "1GiB"],
        ["--config", "fleet.yaml", "--poll", "1s"],
        ["--config", "fleet.yaml", "--publish", "copy", "--as", "delta"],
        ["--config", "not-there.yaml", "--dry-run"],
    ],
)
def test_a_call_that_says_too_little_or_too_much_is_refused(cli: Cli, words: list[str]) -> None:
    cli.fails(2, "watch", *words)


def test_a_mistake_in_the_file_ends_the_command_before_anything_begins(
    cli: Cli, file: Path
) -> None:
    file.write_text(FLEET.replace("priority", "prio"))
    cli.fails(2, "watch", "--config", file, "--master", "in-process")
    assert "fleet.yaml, line 3: " in cli.err
