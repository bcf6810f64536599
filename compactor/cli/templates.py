"""Implements `templates`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from compactor.cli.display import print_table, progress
from compactor.cli.output import echo_json, echo_line, warn
from compactor.cli.read import where_option
from compactor.cli.shared_options import (
    column_name,
    skip_missing_option,
    snapshot_options,
    threads_option,
)
from compactor.cli.tables import open_view
from compactor.common.counts import counted
from compactor.read.read_reports import StoredTemplates, TemplateCount, left_out
from compactor.table.tags import Moment


@click.command(
    "templates",
    epilog="""\b
Examples:
  compactor templates ./logs message
  compactor templates ./logs message --where "level = 'ERROR'" --limit 5
  compactor templates s3://bucket/logs message --as-of 1d --json

\b
A template is a text with placeholders for words that have a digit and for other words that vary: <n> stands
for a number, <*> for any other such word. Words end at every character that is no letter or digit. To see the
rows of a template, query its words: compactor query ./logs --where "message LIKE '%took % ms'\".""",
)
@click.argument("table")
@click.argument("column", type=column_name)
@where_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Show this many of the most frequent templates.",
)
@threads_option
@skip_missing_option
@snapshot_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def templates_command(
    table: str,
    column: str,
    where: str | None,
    limit: int,
    threads: int | None,
    skip_missing: bool,
    moment: Moment,
    as_json: bool,
) -> None:
    """Count the templates of the texts in COLUMN of TABLE, most frequent first, with an example of each."""
    view = open_view(table, moment)
    with progress(f"templates of {column}", view.rows) as advance:
        report = view.templates(
            column,
            where,
            threads=threads,
            skip_missing=skip_missing,
            on_progress=advance,
        )
    if words := left_out(report.fragments_left_out, report.rows_left_out):
        warn(words)
    shown, rest = report.templates[:limit], report.templates[limit:]
    if as_json:
        document = report.to_json()
        echo_json(
            {**document, "templates": document["templates"][:limit], "all": len(report.templates)}
        )
        return
    _print_counts(shown)
    if rest:
        rows = sum(found.rows for found in rest)
        click.echo(f"and {counted(len(rest), 'template')} more, of {counted(rows, 'row')}")
    if report.other_rows:
        click.echo(
            f"and {counted(report.other_rows, 'row')} of templates that were too rare to be counted apart, "
            "perhaps some of those above"
        )
    nulls = f", {report.nulls:,} without a text" if report.nulls else ""
    click.echo(f"{counted(report.rows + report.nulls, 'row')}{nulls} at version {report.version}")


def print_stored_templates(found: StoredTemplates) -> None:
    """Prints the templates of a sample of row groups, and its size."""
    if found.templates:
        _print_counts(found.templates)
    left = found.all - len(found.templates)
    if left:
        click.echo(f"and {counted(left, 'template')} more")
    if found.chunks:
        echo_line(
            f"{counted(found.rows, 'row')} with a text in {found.chunks_read:,} of "
            f"{counted(found.chunks, 'row group')} that store {found.column} as templates"
        )
    else:
        echo_line(f"no row group stores {found.column} as templates")


def _print_counts(templates: Sequence[TemplateCount]) -> None:
    columns = [("rows", True), ("share", True), ("template", False), ("example", False)]
    print_table(
        None, columns, [[f"{t.rows:,}", f"{t.share:.1%}", t.template, t.example] for t in templates]
    )
