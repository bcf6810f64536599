"""Commands on stores and networks that do half of what they should, and with clocks that are wrong."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from compactor.common.clock import SystemClock
from compactor.table.object_names import PROBE_KEY
from tests.cli.test_cli import Cli, cli
from tests.faults import DeliverTwice, IgnoreConditions, calls
from tests.support.s3_server import S3Server
from tests.support.wording import says

__all__ = ["cli"]

YEAR_SECONDS = 365 * 86_400
CONDITIONAL_WRITES = calls("PUT", where=lambda r: "if-none-match" in r.headers)


def rows_file(tmp_path: Path, first: int = 0, time_text: str = "2026-11-01T00:00:00Z") -> Path:
    path = tmp_path / f"rows-{first}.ndjson"
    rows = [{"k": n, "v": f"v{n}", "ts": time_text} for n in range(first, first + 10)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def numbers(cli: Cli, table: str) -> list[int]:
    lines = cli("head", table, "-n", 1000).splitlines()
    return sorted(json.loads(line)["k"] for line in lines)


@pytest.mark.long
def test_commands_behind_a_network_that_delivers_twice_say_and_do_what_they_should(
    cli: Cli, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    s3_server.faults.add(DeliverTwice(), at=CONDITIONAL_WRITES)
    table = f"s3://{s3_bucket}/t"
    for first in (0, 10):
        said = cli("ingest", table, rows_file(tmp_path, first), "--sort-by", "k")
        assert "10 rows in 1 fragment" in said
    assert "10 rows of 1 fragment deleted" in cli("delete", table, "--where", "k >= 10")
    cli("alter", table, "--rename", "v:w")
    assert "2 fragments compacted into 1" in cli(
        "compact", table, "--strategy", "full", "--master", "in-process"
    )
    cli("vacuum", table, "--grace", "0", "--retain", "0")
    assert cli("verify", table).startswith("ok: 1 fragment, 10 rows")
    assert numbers(cli, table) == list(range(10))
    state = json.loads(cli("inspect", table, "--json"))
    assert not state.get("leases"), state


def test_a_store_without_conditional_writes_takes_no_table(
    cli: Cli, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    s3_server.faults.add(IgnoreConditions())
    table = f"s3://{s3_bucket}/t"
    cli.fails(4, "ingest", table, rows_file(tmp_path), "--sort-by", "k")
    assert not s3_server.requests("PUT", "t/_log/0")


def test_a_store_that_loses_its_conditional_writes_is_written_to_no_more(
    cli: Cli, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    table = f"s3://{s3_bucket}/t"
    cli("ingest", table, rows_file(tmp_path), "--sort-by", "k")
    s3_server.faults.add(IgnoreConditions())
    for command in (
        ["ingest", table, rows_file(tmp_path, 10)],
        ["delete", table, "--where", "k < 5"],
        ["alter", table, "--rename", "v:w"],
        ["compact", table, "--strategy", "full", "--master", "in-process"],
        ["vacuum", table, "--grace", "0", "--retain", "0"],
    ):
        cli(*command, code=None)
        says(cli.err.splitlines()[-1])
    assert numbers(cli, table) == list(range(10))


def test_writers_ask_once_a_command_and_readers_not_at_all(
    cli: Cli, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    table = f"s3://{s3_bucket}/t"
    probe = f"t/{PROBE_KEY}"
    files = [rows_file(tmp_path, first) for first in (0, 10, 20)]
    cli("ingest", table, *files, "--sort-by", "k")
    assert len(s3_server.requests("PUT", probe)) == 2
    cli("ingest", table, *files)
    assert len(s3_server.requests("PUT", probe)) == 3
    cli("verify", table)
    cli("inspect", table)
    assert len(s3_server.requests("PUT", probe)) == 3


@pytest.mark.parametrize("ahead", [YEAR_SECONDS, -YEAR_SECONDS])
def test_a_clock_that_is_not_the_stores_changes_nothing(
    cli: Cli, s3_server: S3Server, s3_bucket: str, tmp_path: Path, ahead: int
) -> None:
    table = f"s3://{s3_bucket}/t"
    cli("ingest", table, rows_file(tmp_path), "--sort-by", "k")
    s3_server.ahead_seconds = -ahead
    cli.fails(5, "ingest", table, rows_file(tmp_path, 10))
    cli.fails(5, "vacuum", table, "--grace", "0")
    assert numbers(cli, table) == list(range(10))


def ingest_rows_that_expire(cli: Cli, table: str, tmp_path: Path) -> None:
    """Rows 0 to 19 of now, in two fragments, which live for 30 days."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for first, create in (
        (0, ["--sort-by", "k,ts", "--ttl", "30d", "--ttl-column", "ts"]),
        (10, []),
    ):
        cli("ingest", table, rows_file(tmp_path, first, now), *create)


def test_a_clock_a_year_ahead_expires_nothing_on_a_store_with_the_right_time(
    cli: Cli, s3_server: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"s3://{s3_bucket}/t"
    ingest_rows_that_expire(cli, table, tmp_path)
    wrong_clock(monkeypatch, YEAR_SECONDS)
    cli("compact", table, "--strategy", "full", "--master", "in-process", code=None)
    says(cli.err.splitlines()[-1])
    assert numbers(cli, table) == list(range(20))


def test_a_clock_that_jumps_a_year_expires_nothing_in_a_folder_unless_it_is_trusted(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = str(tmp_path / "t")
    ingest_rows_that_expire(cli, table, tmp_path)
    wrong_clock(monkeypatch, YEAR_SECONDS)
    # The clock of the machine itself: what a folder on its own disk tells of the time is as wrong.
    monkeypatch.setattr("compactor.stores.local.LocalStore.time", lambda _: None)
    cli("compact", table, "--strategy", "full", "--master", "in-process", code=None)
    says(cli.err.splitlines()[-1])
    assert numbers(cli, table) == list(range(20))
    monkeypatch.setenv("COMPACTOR_TRUST_CLOCK", "1")
    cli("compact", table, "--strategy", "full", "--master", "in-process")
    assert numbers(cli, table) == []


def wrong_clock(monkeypatch: pytest.MonkeyPatch, ahead_seconds: int) -> None:
    right = SystemClock.now_unix_ms
    monkeypatch.setattr(
        SystemClock, "now_unix_ms", lambda clock: right(clock) + ahead_seconds * 1000
    )
