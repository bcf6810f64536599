"""Implements `delete`."""

from __future__ import annotations

import click

from compactor.cli.display import progress
from compactor.cli.output import echo_json, warn
from compactor.cli.shared_options import check_condition, skip_missing_option, threads_option
from compactor.cli.tables import open_table
from compactor.cli.telemetry import log_options
from compactor.common.counts import counted
from compactor.common.plain_values import plain_dict
from compactor.read.read_reports import left_out
from compactor.write.delete import DeleteReport

_EPILOG = """\b
Examples:
  compactor delete ./logs --where "user_id = 4711" --dry-run
  compactor delete s3://bucket/logs --where "service = 'test' AND timestamp < '2026-11-01'"

\b
To remove rows from storage for good (in this order, and only if earlier versions are no longer needed):
  compactor delete ./logs --where "user_id = 4711"
  compactor compact ./logs --strategy full            rewrites their fragments without them
  compactor vacuum ./logs --retain 0 --grace 0        removes the old fragments irrevocably
  compactor delete ./logs --where "user_id = 4711" --json   0 rows, 0 fragments waiting
First and last keys of removed fragments stay in the log until a later vacuum: docs/how-to/operations.md.

Conditions are those of `compactor query`. If a condition is unknown, as in a comparison with null, the row
stays."""


@click.command("delete", epilog=_EPILOG)
@click.argument("table")
@click.option(
    "--where",
    required=True,
    metavar="CONDITION",
    help='Delete these rows, such as "user_id = 4711".',
)
@click.option("--dry-run", is_flag=True, help="Count the rows, and delete nothing.")
@threads_option
@skip_missing_option
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def delete_command(
    table: str,
    where: str,
    dry_run: bool,
    threads: int | None,
    skip_missing: bool,
    as_json: bool,
) -> None:
    """Delete the rows of TABLE that match a condition, in one commit.

    Readers of the new version no longer see the rows. The rows stay in storage until their fragments have
    been compacted and the old ones vacuumed; a fragment with many deleted rows does not wait for a merge.
    Earlier versions still have the rows.
    """
    check_condition(where, "name the rows to delete")
    opened = open_table(table)
    with progress(f"delete from {table}", opened.fragments().num_rows) as advance:
        report = opened.delete(
            where,
            dry_run=dry_run,
            threads=threads,
            skip_missing=skip_missing,
            on_progress=advance,
        )
    if words := left_out(report.fragments_left_out, report.rows_left_out):
        warn(f"{words}: those that match the condition come back when a fragment is released")
    if as_json:
        echo_json({**plain_dict(report), "dry_run": dry_run})
        return
    _print(report, dry_run=dry_run)


def _print(report: DeleteReport, *, dry_run: bool) -> None:
    done = "would be deleted" if dry_run else "deleted"
    click.echo(
        f"{counted(report.rows, 'row')} of {counted(report.fragments, 'fragment')} {done}, "
        f"{counted(report.fragments_read, 'fragment')} read; version {report.version}"
    )
    if report.waiting:
        click.echo(
            f"{counted(len(report.waiting), 'fragment holds', 'fragments hold')} deleted rows "
            "until compacted "
            "(`compactor compact --strategy full` does it at once) and vacuumed"
        )
