"""Implements `wait`."""

from __future__ import annotations

from typing import Any

import click

from compactor.cli.backlog_text import backlog_lines, backlog_text
from compactor.cli.display import status
from compactor.cli.output import echo_json, echo_line
from compactor.cli.properties import say_overrides
from compactor.cli.setting_options import chosen, setting_option, setting_options
from compactor.cli.shared_options import duration_seconds, version_or_time
from compactor.cli.tables import open_log
from compactor.cli.telemetry import log_options
from compactor.common.clock import SystemClock
from compactor.compaction.backlog import Backlog, backlog_of
from compactor.compaction.driver import Driver, DriverSettings
from compactor.errors import JobError, VersionNotFoundError
from compactor.settings.compaction import OF_WRITERS, CompactionSettings, Policy
from compactor.settings.units import duration_text
from compactor.table.commit_log import CommitLog
from compactor.table.tags import Moment

_EPILOG = """\b
Examples:
  compactor wait ./logs                                     all that is there now
  compactor wait ./logs --timeout 0                         ask, and do not wait
  compactor wait ./logs --compacted-through 41 --timeout 30m
  compactor wait ./logs --compacted-through 2026-11-27T06:00 --json

Something is compacted if no compaction that is due would take its fragments, by the policy of the table or of
these options. This command compacts nothing: `compact` or `watch` do, here or elsewhere. The exit code is 1
if the time is over."""


@click.command("wait", epilog=_EPILOG)
@click.argument("table")
@click.option(
    "--compacted-through",
    "through",
    type=version_or_time,
    metavar="VERSION|TIME",
    help="Wait for what came in up to then (15m: 15 minutes ago).  [default: the latest version]",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=duration_seconds,
    metavar="DURATION",
    help="Give up after this time; 0 asks once.  [default: never]",
)
@click.option(
    "--poll",
    "poll_seconds",
    type=duration_seconds,
    metavar="DURATION",
    default="2s",
    show_default=True,
    help="How often to look.",
)
@setting_options(Policy, without=OF_WRITERS)
@setting_option(CompactionSettings, "memory_limit_bytes")
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def wait_command(
    table: str,
    through: Moment | None,
    timeout_seconds: float | None,
    poll_seconds: float,
    as_json: bool,
    **options: Any,
) -> None:
    """Wait until what came into TABLE is compacted, and say what is due, runs and waits."""
    settings = DriverSettings(
        policy=chosen(Policy, options), compaction=chosen(CompactionSettings, options)
    )
    driver = Driver(open_log(table), settings)
    snapshot = driver.log.current()
    say_overrides(snapshot.properties, settings.policy, settings.compaction)
    wanted = snapshot.version if through is None else _version_of(through, driver.log)
    clock = SystemClock()
    began = clock.now_unix_ms()
    with status(f"wait: {driver.url}") as changed:
        while True:
            found = backlog_of(driver, snapshot)
            waited = (clock.now_unix_ms() - began) / 1000
            is_over = timeout_seconds is not None and waited >= timeout_seconds
            if found.reaches(wanted) or is_over:
                break
            changed(f"wait: {backlog_text(found)}")
            rest = poll_seconds if timeout_seconds is None else timeout_seconds - waited
            clock.sleep(max(0.01, min(poll_seconds, rest)))
            snapshot = driver.log.current()
    if as_json:
        reached = {"wanted_version": wanted, "reached": found.reaches(wanted)}
        echo_json({**reached, "waited_seconds": round(waited, 1), **found.to_json()})
    else:
        for line in backlog_lines(found):
            echo_line(line)
    if not found.reaches(wanted):
        after = "" if not timeout_seconds else f" after {duration_text(timeout_seconds)}"
        raise JobError(
            f"{driver.url}: not compacted through version {wanted}{after}: {_why_not(found, wanted)}"
        )


def _version_of(through: Moment, log: CommitLog) -> int:
    """Returns the version that is meant; 0 if the table is younger than the time."""
    if through.version is not None:
        return through.version
    try:
        return log.at(*through).version
    except VersionNotFoundError:
        return 0


def _why_not(found: Backlog, wanted: int) -> str:
    if found.version < wanted:
        return f"the table is at version {found.version}"
    if found.held_up:
        return found.held_up[0]
    if all(each.has_ended for each in found.running):
        return "no worker compacts it: run `compactor compact` or `compactor watch`"
    return backlog_text(found)
