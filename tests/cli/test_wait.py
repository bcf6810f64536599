"""`compactor wait`, and what `inspect` says of the same."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from compactor import Table
from compactor.cli import wait
from compactor.common.clock import SystemClock
from compactor.settings.compaction import Policy, Strategy
from tests.cli.test_cli import Cli, cli

__all__ = ["cli"]

FULL = Policy(strategy=Strategy.FULL)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "t", pa.table({"k": [1, 2]}), "k")
    made.append(pa.table({"k": [2, 3]}))
    return made


def test_it_ends_when_another_process_has_compacted(
    cli: Cli, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = []

    class Compacting(SystemClock):
        """Meanwhile others work: rows come in, then a worker takes all of them."""

        def sleep(self, seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 1:
                Table.open(table.url).append(pa.table({"k": [9]}))
            else:
                Table.open(table.url).compact(policy=FULL)

    monkeypatch.setattr(wait, "SystemClock", Compacting)
    said = cli("wait", table.url, "--strategy", "full", "--poll", "3s")
    assert slept == [3, 3]
    assert said.startswith("compacted through version 5, the latest: nothing is due")


def test_it_gives_up_after_its_time_and_says_what_is_due_and_why_that_waits(
    cli: Cli, table: Table
) -> None:
    call = ["wait", table.url, "--strategy", "full", "--timeout", "0"]
    said = cli(*call, code=1)
    first, second = said.splitlines()
    assert first == "compacted through version 0 of 2"
    assert second.startswith("  due: 2 fragments (")
    assert second.endswith("), 0 compactions running, 1 waiting")
    assert cli.err.count("\n") == 1
    assert "not compacted through version 2: no worker compacts it" in cli.err
    found = json.loads(cli(*call, "--json", code=1))
    assert (found["wanted_version"], found["reached"]) == (2, False)
    assert (found["compacted_through"], found["due_fragments"]) == (0, 2)


def test_it_says_what_does_not_fit_in_the_memory_of_the_workers(cli: Cli, tmp_path: Path) -> None:
    heavy = Table.create(tmp_path / "t", pa.table({"k": [1], "text": ["x" * 9_000_000]}), "k")
    heavy.append(pa.table({"k": [2], "text": ["y" * 9_000_000]}))
    call = ["wait", heavy.url, "--strategy", "full", "--timeout", "0"]
    cli(*call, code=1)
    assert "no worker compacts it" in cli.err
    said = cli(*call, "--memory-limit", "16MiB", code=1)
    assert "raise memory_limit_bytes to" in said


def test_a_fragment_in_quarantine_holds_it_up(cli: Cli, table: Table) -> None:
    key = table.fragments()["key"][0].as_py()
    Path(table.url, key).unlink()
    cli("quarantine", table.url, key)
    said = cli("wait", table.url, "--strategy", "full", "--timeout", "0", code=1)
    assert "held up: full: 2 fragments into one sorted run" in said
    assert "is in quarantine" in cli.err


def test_versions_and_times_before_what_is_due_are_reached_at_once(cli: Cli, table: Table) -> None:
    full = ["--strategy", "full", "--timeout", "0"]
    Table.open(table.url).compact(policy=FULL)
    Table.open(table.url).append(pa.table({"k": [1]}))
    assert cli("wait", table.url, "--compacted-through", "2", *full, code=1)
    # The rows of version 1 are in the fragment that has to be merged again.
    assert cli("wait", table.url, "--compacted-through", "0", *full)
    assert cli("wait", table.url, "--compacted-through", "9000d", *full)
    cli("wait", table.url, "--compacted-through", "99", *full, code=1)
    assert "the table is at version 5" in cli.err


def test_a_wrong_version_a_wrong_time_and_no_table_are_refused(cli: Cli, tmp_path: Path) -> None:
    cli.fails(2, "wait", tmp_path / "t", "--compacted-through", "3x")
    cli.fails(5, "wait", tmp_path / "t")


def test_inspect_says_the_same(cli: Cli, table: Table) -> None:
    for number in range(8):
        table.append(pa.table({"k": [number]}))
    said = cli("inspect", table.url)
    assert cli("wait", table.url, "--timeout", "0", code=1) in said
    assert json.loads(cli("inspect", table.url, "--json"))["backlog"]["due_fragments"] == 10
    assert json.loads(cli("inspect", table.url, "--json", "--version", 1))["backlog"] is None
