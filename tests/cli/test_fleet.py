"""`watch --config` and `vacuum --config` as a user meets them: the check of a file, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from compactor import Table
from compactor.cli.fleet import Opening
from compactor.cli.output import human_bytes
from compactor.cli.telemetry import Telemetry
from compactor.cli.watch import _check_tables
from compactor.fleet.config import load_fleet
from compactor.fleet.finding import found, patterns_of
from compactor.fleet.member import Member
from compactor.settings.compaction import CompactionSettings
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
    ("at", "to"),
    [("lake/a", "lake"), ("lake/*", "lake/{table}/copy"), ("lake/[b]", "./lake/{table}")],
)
def test_a_dry_run_refuses_copies_in_or_over_their_table(
    cli: Cli, file: Path, at: str, to: str
) -> None:
    file.write_text(f"tables:\n  - at: {at}\n    publish: {{to: '{to}', as: parquet}}\n")
    cli.fails(2, "watch", "--config", file, "--dry-run")
    assert "fleet.yaml, line 2: tables[0]: " in cli.err
    assert ": overlaps the table at " in cli.err


@pytest.mark.parametrize(
    ("to", "other_to", "cause"),
    [
        ("copy", "copy", "overlaps the copy of {lake}/a: "),
        ("copy", "copy/{table}", "overlaps the copy of {lake}/a: "),
        ("copy/a/b", "copy/a", "overlaps the copy of {lake}/a: "),
        ("copy", "lake/a/copy", "overlaps the table at {lake}/a, "),
        ("copy", "lake", "overlaps the table at {lake}/a, "),
    ],
)
def test_a_dry_run_refuses_copies_in_each_other_or_in_other_tables(
    cli: Cli, file: Path, to: str, other_to: str, cause: str
) -> None:
    entries = [("lake/a", to), ("lake/b", other_to)]
    lines = [f"  - at: {at}\n    publish: {{to: '{to}', as: parquet}}\n" for at, to in entries]
    file.write_text("".join(["tables:\n", *lines]))
    cli.fails(2, "watch", "--config", file, "--dry-run")
    assert "fleet.yaml, line 4: tables[1]: " in cli.err
    assert cause.format(lake=file.parent / "lake") in cli.err


def test_a_dry_run_takes_copies_beside_the_tables_that_a_pattern_matches(
    cli: Cli, file: Path
) -> None:
    to = file.parent / "lake/no table/{table}"
    file.write_text(f"tables:\n  - at: lake/*\n    publish: {{to: '{to}', as: parquet}}\n")
    assert "2 tables; nothing was changed" in cli("watch", "--config", file, "--dry-run")


def test_a_dry_run_says_which_entries_have_the_tables_of_one_that_has_none(
    cli: Cli, file: Path
) -> None:
    lake = file.parent / "lake"
    entries = ["lake/a", "lake/*", "lake/b", "lake/[ab]", "nothing/*"]
    file.write_text("".join(["tables:\n", *(f"  - at: {at}\n" for at in entries)]))
    said = cli("watch", "--config", file, "--dry-run").splitlines()
    assert [line for line in said if line.startswith("  no table")] == [
        f"  no table of its own: the one that matches belongs to {lake}/*",
        f"  no table of its own: the 2 that match belong to {lake}/a, {lake}/*",
        "  no table yet",
    ]


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


def test_a_vacuum_of_a_fleet_does_each_table_by_its_settings(cli: Cli, file: Path) -> None:
    lake = file.parent / "lake"
    for name in ("a", "b"):
        Table.open(str(lake / name)).overwrite(pa.table({"k": [2]}))
    file.write_text(
        f"tables:\n  - at: lake/a\n    settings: {{retain_seconds: 0, grace_seconds: 0}}\n  - at: {lake}/*\n"
        "  - at: not-there-yet\n"
    )
    said = sorted(cli("vacuum", "--config", file, "--dry-run").splitlines())
    assert said == [
        f"{lake}/a: 1 fragment of {_bytes_of(lake / 'a', 1)}, 0 log files, 0 checkpoints, "
        "0 unfinished uploads would be removed; versions from 2 to 2 can be read",
        f"{lake}/b: 0 fragments of 0 bytes, 0 log files, 0 checkpoints, 0 unfinished uploads would be "
        "removed; versions from 1 to 3 can be read",
    ]
    done = json.loads(cli("vacuum", "--config", file, "--json"))
    assert [(table["table"], table["fragments"]) for table in done["tables"]] == [
        (f"{lake}/a", 1),
        (f"{lake}/b", 0),
    ]
    assert done["failures"] == []
    assert pa.table(Table.open(str(lake / "a"))).column("k").to_pylist() == [2]


def _bytes_of(table: Path, version: int) -> str:
    [entry] = Table.open(str(table), version=version).fragments().to_pylist()
    return human_bytes(entry["size_bytes"])


def test_a_table_that_cannot_be_vacuumed_keeps_no_other_from_it(cli: Cli, file: Path) -> None:
    [first, *_] = sorted((file.parent / "lake" / "a" / "_log").glob("0*.json"))
    first.write_bytes(b"{")
    metrics = file.parent / "metrics.prom"
    said = cli("vacuum", "--config", file, "--metrics-textfile", metrics, code=1)
    assert said.startswith(f"{file.parent}/lake/b: ")
    warning, error = cli.err.splitlines()
    assert f"{first}: " in warning
    assert error.endswith(f"1 vacuum of 2 failed, for the reasons above: {file.parent}/lake/a")
    runs = [line for line in metrics.read_text().splitlines() if "_run_success{" in line]
    said_of = sorted(line.rpartition("lake/")[2] for line in runs if "lake/" in line)
    assert said_of == ['a"} 0.0', 'b"} 1.0']


@pytest.mark.parametrize("words", [[], ["t"], ["--retain", "1d"]])
def test_a_vacuum_takes_a_table_or_a_file_that_says_all_of_its_settings(
    cli: Cli, file: Path, words: list[str]
) -> None:
    cli.fails(2, "vacuum", *words, *(["--config", file] if words else []))


def test_settings_of_the_process_count_for_all_tables_of_a_fleet(file: Path) -> None:
    places = found(patterns_of(load_fleet(str(file)))).places
    place, entry = places[str(file.parent / "lake" / "b")]
    of_process = CompactionSettings(spool_limit_bytes=1 << 30, spool_directory=str(file.parent))
    opening = Opening(Telemetry(None, None), 60.0, of_process)
    driver = opening.driver(Member(place=place, url=place.url, entry=entry, changed_ms=0))
    settings = driver.settings_for(driver.log.current())
    assert (settings.spool_limit_bytes, settings.spool_directory) == (1 << 30, str(file.parent))
    assert driver.plan(driver.log.latest).specs, "the entry's level0_trigger_runs count"


@pytest.mark.parametrize("pattern", ["lake/*", "s3://bucket/*/logs", "lake/[ab]/logs"])
def test_a_pattern_as_a_table_to_watch_is_refused(cli: Cli, file: Path, pattern: str) -> None:
    address = pattern if pattern.startswith("s3:") else file.parent / pattern
    cli.fails(2, "watch", address, "--master", "in-process")


def test_a_folder_may_be_called_like_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "logs[1]").mkdir()
    for table in (tmp_path / "logs[1]", f"file://{tmp_path}/logs[1]/new", "s3://bucket/logs[1]"):
        _check_tables([str(table)])
