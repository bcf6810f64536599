"""Implements `update`."""

from __future__ import annotations

import re
from typing import Final

import click

from compactor.cli.display import progress
from compactor.cli.output import echo_json
from compactor.cli.shared_options import check_condition, threads_option
from compactor.cli.tables import open_log
from compactor.cli.telemetry import log_options
from compactor.common.counts import counted
from compactor.common.plain_values import plain_dict
from compactor.errors import UsageError
from compactor.resources.cores import usable_cores
from compactor.write.update import UpdateReport, update_rows
from lsm_fragment.names import parse_name

_ASSIGNMENT: Final = re.compile(r'\s*("(?:[^"]|"")+"|[^"=]*[^"=\s])\s*=(?!=)(.*\S.*)', re.DOTALL)
"""A column, in double quotes if it has a `=` or a quote, and its expression."""
_EPILOG = """\b
Examples:
  compactor update ./logs --where "service = 'api'" --set "service = 'gateway'" --dry-run
  compactor update ./stock --where "n < 0" --set "n = 0" --set "checked = now()"
  compactor update ./people --where "id = 7" --set "mail = lower(mail)" --set "phone = NULL"

\b
A new value is an expression of the row as it was: docs/reference/expressions.md. Write texts in 'single'
quotes, and column names that are not plain identifiers in "double" ones. A column takes numbers of its kind
and of narrower kinds; convert other values by CAST. Conditions are those of `compactor query`; if one is
unknown, as in a comparison with null, the row stays as it is."""


@click.command("update", epilog=_EPILOG)
@click.argument("table")
@click.option(
    "--where",
    required=True,
    metavar="CONDITION",
    help='Update these rows, such as "id = 7"; "true" is all.',
)
@click.option(
    "--set",
    "assigned",
    required=True,
    multiple=True,
    metavar="COLUMN=EXPRESSION",
    help='New value of a column, such as "n = n + 1"; may be given several times.',
)
@click.option(
    "--dry-run", is_flag=True, help="Compute the new rows, count them, and write nothing."
)
@threads_option
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def update_command(
    table: str,
    where: str,
    assigned: tuple[str, ...],
    dry_run: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Give columns of the rows of TABLE that match a condition new values, in one commit.

    Readers see the rows as they were, or all of them updated. If the table merges rows of a key, the merged
    row is updated. Earlier versions still have the old values.
    """
    check_condition(where, 'name the rows to update, or "true" for all')
    given = _assignments(assigned)
    log = open_log(table)
    with progress(f"search {table}", None) as advance:
        report = update_rows(
            log.store,
            log,
            where,
            given,
            dry_run=dry_run,
            threads=threads or usable_cores(),
            on_progress=lambda done, found: advance(done, found, f"update {table}"),
            on_search=advance,
        )
    if as_json:
        echo_json({**plain_dict(report), "dry_run": dry_run})
        return
    _print(report, dry_run=dry_run)


def _assignments(texts: tuple[str, ...]) -> dict[str, str]:
    """Returns expressions by column. Raises `UsageError`."""
    given: dict[str, str] = {}
    for text in texts:
        match = _ASSIGNMENT.fullmatch(text)
        if match is None:
            raise UsageError(f"--set: {text!r}: write COLUMN = EXPRESSION, such as 'n = n + 1'")
        try:
            column = parse_name(match[1].strip())
        except ValueError as error:
            raise UsageError(f"--set: {text!r}: {error}") from None
        if column in given:
            raise UsageError(f"--set: column {column!r} is set twice: give one value for it")
        given[column] = match[2].strip()
    return given


def _print(report: UpdateReport, *, dry_run: bool) -> None:
    if dry_run:
        click.echo(f"{counted(report.rows, 'row')} would be updated; version {report.version}")
        return
    click.echo(
        f"{counted(report.rows, 'row')} updated, written to {counted(report.fragments, 'fragment')}; "
        f"version {report.version}"
    )
