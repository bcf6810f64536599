"""Properties of a table on the command line: set, shown, obeyed, and overridden for one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compactor.cli.watch import _Overriding
from compactor.compaction.driver import Driver, DriverSettings
from compactor.settings.compaction import Policy
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from tests.cli.test_cli import SORT_BY, Cli, cli, write_parquet
from tests.support.tables import log_rows
from tests.support.wording import says

__all__ = ["cli"]


@pytest.fixture
def path(cli: Cli, tmp_path: Path) -> Path:
    """A table of three overlapping fragments."""
    for number in range(3):
        file = write_parquet(tmp_path, f"{number}.parquet", log_rows(100, number))
        cli("ingest", tmp_path / "t", file, *SORT_BY)
    return tmp_path / "t"


def test_alter_sets_and_unsets_properties_and_inspect_shows_them(cli: Cli, path: Path) -> None:
    said = cli("alter", path, "--set", "level0_trigger_runs=8", "--set", "memory-limit=1GiB")
    assert said.splitlines()[1] == "properties: level0_trigger_runs=8, memory_limit_bytes=1GiB"
    assert "properties level0_trigger_runs=8, memory_limit_bytes=1GiB" in cli("inspect", path)
    shown = json.loads(cli("inspect", path, "--json"))["properties"]
    assert shown["level0_trigger_runs"] == {"value": 8, "source": "table"}
    assert shown["stop_runs"] == {"value": 80, "source": "default"}
    assert shown["strategy"] == {"value": "leveled", "source": "default"}
    cli("alter", path, "--unset", "memory_limit_bytes", "--unset", "level0_trigger_runs")
    assert cli.out.splitlines()[1] == "properties: none is set"
    assert "properties" not in cli("inspect", path)


def test_settings_that_are_no_properties_are_altered_or_refused_with_the_way(
    cli: Cli, path: Path, tmp_path: Path
) -> None:
    cli.fails(2, "alter", path, "--set", "sort_by=ts")
    cli.fails(2, "alter", path, "--set", "skip-index=ts:bloom")
    cli.fails(2, "alter", path, "--set", "retention=7d")
    file = write_parquet(tmp_path, "w.parquet", log_rows(9, 1))
    windows = ["--time-column", "ts", "--retention", "30d"]
    cli.fails(2, "ingest", tmp_path / "w", file, *SORT_BY, "--set", "retention=7d")
    cli("ingest", tmp_path / "w", file, *SORT_BY, *windows)
    cli.fails(2, "ingest", tmp_path / "v", file, *SORT_BY, "--time-window", "1h")
    cli.fails(2, "alter", tmp_path / "w", "--set", "retention=forever")
    assert "\ntime windows of 24h by ts, dropped after 30d\n" in cli("inspect", tmp_path / "w")
    said = cli("alter", tmp_path / "w", "--set", "retention=7d")
    assert said.splitlines()[1:] == ["properties: none is set", "retention: 7d"]
    said = cli("alter", tmp_path / "w", "--unset", "retention")
    assert said.splitlines()[2] == "retention: all time windows are kept"
    assert "\ntime windows of 24h by ts, kept for good\n" in cli("inspect", tmp_path / "w")


def test_compactions_obey_the_table_and_say_what_overrides_it(cli: Cli, path: Path) -> None:
    assert "nothing to compact" in cli("compact", path, "--dry-run")
    cli("alter", path, "--set", "level0_trigger_runs=2", "--set", "strategy=tiered")
    assert "1 compaction of 3 fragments" in cli("compact", path, "--dry-run")
    assert cli.err == ""
    assert "nothing to compact" in cli("compact", path, "--dry-run", "--level0-trigger-runs", 4)
    overridden = (
        "compactor: warning: --level0-trigger-runs 4 overrides the table's 2 for this run\n"
    )
    assert cli.err == overridden
    for command in (["compact", "--master", "in-process"], ["wait", "--timeout", 0]):
        cli(command[0], path, *command[1:], "--level0-trigger-runs", 4)
        assert cli.err == overridden
    cli("compact", path, "--master", "in-process", "--level0-trigger-runs", 2)
    assert "3 fragments compacted into 1" in cli.out
    assert cli.err == ""


def test_a_vacuum_obeys_the_table_and_says_what_overrides_it(cli: Cli, path: Path) -> None:
    assert "versions from 1 to" in cli("vacuum", path, "--dry-run")
    cli("compact", path, "--strategy", "full", "--master", "in-process")
    cli("alter", path, "--set", "retain=0", "--set", "grace=0")
    assert "versions from 6 to 6" in cli("vacuum", path, "--dry-run")
    assert "versions from 1 to" in cli("vacuum", path, "--dry-run", "--retain", "1h")
    assert cli.err == "compactor: warning: --retain 60m overrides the table's 0s for this run\n"


@pytest.mark.parametrize(
    "options",
    [
        ["--set", "level0_triger_runs=8"],
        ["--set", "level0_trigger_runs"],
        ["--set", "level0_trigger_runs=1"],
        ["--set", "slow_runs=20", "--set", "level0_trigger_runs=100"],
        ["--set", "stop_runs=50", "--set", "stop_runs=60"],
        ["--set", "stop_runs=50", "--unset", "stop_runs"],
        ["--unset", "warp"],
        ["--set", "memory-limit=1GiB", "--set", "memory_limit_bytes=2GiB"],
        ["--set", "memory-limit=1GiB", "--unset", "memory_limit_bytes"],
        ["--set", "push_ratio=inf"],
    ],
)
def test_a_property_that_is_refused_changes_nothing(
    cli: Cli, path: Path, options: list[str]
) -> None:
    cli.fails(2, "alter", path, *options)
    assert json.loads(cli("inspect", path, "--json"))["version"] == 3


def test_a_run_that_contradicts_the_table_is_refused_with_what_the_table_has(
    cli: Cli, path: Path
) -> None:
    cli("alter", path, "--set", "slow_runs=30")
    cli.fails(2, "compact", path, "--dry-run", "--level0-trigger-runs", 100)


def test_a_new_table_keeps_what_it_was_told_and_an_old_one_does_not(
    cli: Cli, tmp_path: Path
) -> None:
    file = write_parquet(tmp_path, "rows.parquet", log_rows(100, 1))
    told = ["--set", "stop_runs=90", "--set", "memory-limit=1GiB", "--rows-per-fragment", 40]
    cli("ingest", tmp_path / "t", file, *SORT_BY, *told)
    assert "3 fragments" in cli.out
    properties = {"memory_limit_bytes": 1 << 30, "rows_per_fragment": 40, "stop_runs": 90}
    assert set_in(cli, tmp_path / "t") == properties
    cli("ingest", tmp_path / "t", file)
    assert "3 fragments" in cli.out
    cli("ingest", tmp_path / "t", file, "--rows-per-fragment", 50, "--set", "stop_runs=95")
    assert "2 fragments" in cli.out
    assert cli.err.splitlines() == [
        "compactor: warning: stop_runs 95 overrides the table's 90 for this run",
        "compactor: warning: rows_per_fragment 50 overrides the table's 40 for this run",
    ]
    assert set_in(cli, tmp_path / "t") == properties


def test_a_writer_waits_by_a_threshold_of_this_run(cli: Cli, path: Path, tmp_path: Path) -> None:
    file = tmp_path / "0.parquet"
    thresholds = ["--set", "level0_trigger_runs=2", "--set", "slow_runs=2", "--set", "stop_runs=3"]
    cli("ingest", path, file)
    assert cli.err == ""
    cli("ingest", path, file, *thresholds)
    assert "writers should stop" in cli.err
    cli("alter", path, *thresholds)
    cli("ingest", path, file)
    assert "writers should stop" in cli.err


def test_a_threshold_of_one_ingest_is_judged_beside_those_of_the_table(
    cli: Cli, path: Path, tmp_path: Path
) -> None:
    file = tmp_path / "0.parquet"
    cli("alter", path, "--set", "slow_runs=300", "--set", "stop_runs=600")
    cli("ingest", path, file, "--set", "slow_runs=400")
    assert cli.err == "compactor: warning: slow_runs 400 overrides the table's 300 for this run\n"
    version = set_in(cli, path)
    cli("ingest", path, file, "--set", "slow_runs=700", code=2)
    says(cli.err.splitlines()[-1])
    assert set_in(cli, path) == version


def test_a_property_that_an_ingest_is_refused_creates_no_table(cli: Cli, tmp_path: Path) -> None:
    file = write_parquet(tmp_path, "rows.parquet", log_rows(100, 1))
    for wrong in ("stop_runs", "stop_runs=3", "warp=9"):
        cli.fails(2, "ingest", tmp_path / "t", file, *SORT_BY, "--set", wrong)
    assert not (tmp_path / "t").exists()


def test_a_worker_says_what_it_overrides_once_for_each_change(
    cli: Cli, path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    policy = Policy(level0_trigger_runs=8)
    driver = Driver(CommitLog(LocalStore(path)), DriverSettings(policy=policy))
    listener = _Overriding(policy)
    said = []
    for runs in (None, 5, 5, 8, 6):
        if runs is not None:
            cli("alter", path, "--set", f"level0_trigger_runs={runs}")
        driver.log.refresh()
        listener.looked(driver)
        listener.looked(driver)
        said.append(capfd.readouterr().err.replace(driver.url, "TABLE"))
    line = "compactor: warning: --level0-trigger-runs 8 overrides TABLE's {} for this run\n"
    assert said == ["", line.format(5), "", "", line.format(6)]


def set_in(cli: Cli, path: Path) -> dict[str, object]:
    """Returns the properties that a table has stored."""
    shown = json.loads(cli("inspect", path, "--json"))["properties"]
    return {name: p["value"] for name, p in shown.items() if p["source"] == "table"}
