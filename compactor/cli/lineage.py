"""Implements `restore`."""

from __future__ import annotations

from dataclasses import asdict

import click

from compactor.cli.output import echo_json, echo_line
from compactor.cli.shared_options import check_one_moment, snapshot_options
from compactor.cli.tables import open_log
from compactor.cli.telemetry import log_options
from compactor.common.counts import counted
from compactor.errors import UsageError
from compactor.write.restore import RestoreReport, restore_version

_RESTORE_EPILOG = """\b
Examples:
  compactor restore ./logs --version 41 --dry-run
  compactor restore ./logs --version 41
  compactor restore s3://bucket/logs --as-of 15m      as it was a quarter of an hour ago

Nothing is rewritten, and the versions in between stay readable: to undo a restore, restore the version before
it. A version is refused if one of its columns was redacted since, or if objects of it are gone. Versions that
a vacuum has given up can't be restored."""


@click.command("restore", epilog=_RESTORE_EPILOG)
@click.argument("table")
@snapshot_options
@click.option("--dry-run", is_flag=True, help="Say what would change, and commit nothing.")
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def restore_command(
    table: str, version: int | None, as_of: int | None, dry_run: bool, as_json: bool
) -> None:
    """Make TABLE what it was at an earlier version, in one commit.

    Rows, deleted rows, columns and settings are those of that version again. If others add, delete or alter
    meanwhile, nothing is changed. Compactions that run are void.
    """
    check_one_moment(version, as_of)
    if version is None and as_of is None:
        raise UsageError("name the version to restore by --version or --as-of")
    log = open_log(table)
    report = restore_version(log, log.at(version, as_of), dry_run=dry_run)
    if as_json:
        echo_json({**asdict(report), "dry_run": dry_run})
    else:
        _print_restore(report, dry_run=dry_run)


def _print_restore(report: RestoreReport, *, dry_run: bool) -> None:
    if not (report.fragments_added or report.fragments_removed or report.columns_changed):
        echo_line(f"version {report.version} is what version {report.restored} was")
        return
    done = "would be restored" if dry_run else "restored"
    echo_line(
        f"version {report.restored} {done}: {counted(report.rows_before, 'row')} before, "
        f"{counted(report.rows, 'row')} after; {counted(report.fragments_added, 'fragment')} added, "
        f"{report.fragments_removed:,} removed; version {report.version}"
    )
