"""Implements `report`."""

from __future__ import annotations

import click

from compactor.cli.display import progress
from compactor.cli.output import echo_json, echo_line, human_bytes
from compactor.cli.shared_options import snapshot_options, version_or_time
from compactor.cli.tables import open_log
from compactor.errors import UsageError
from compactor.files.whole import check_target, write_whole
from compactor.report.charts import check_plotly
from compactor.report.gather import (
    MAX_FOOTERS,
    MAX_TEMPLATE_CHUNKS,
    MAX_VERSIONS,
    ReportOptions,
    gather,
)
from compactor.report.page import page
from compactor.table.tags import NEWEST, Moment


def _since(text: str) -> Moment:
    since = version_or_time(text)
    if since.version == 0:
        raise click.BadParameter("versions begin with 1")
    return since


@click.command(
    "report",
    epilog="""\b
Examples:
  compactor report ./logs -o report.html
  compactor report s3://bucket/logs -o report.html --since 1d
  compactor report ./logs --version 40 --since 12 -o -
  compactor report ./logs --json""",
)
@click.argument("table")
@click.option("-o", "--output", metavar="FILE", help="Page to write; - is stdout.")
@click.option(
    "--since",
    type=_since,
    metavar="VERSION|TIME",
    help="Compare with this version or time (1d: a day ago).  [default: before the last compactions]",
)
@snapshot_options
@click.option(
    "--history",
    type=click.IntRange(0, 1_000_000),
    default=MAX_VERSIONS,
    show_default=True,
    help="Maximum versions of the log to read, one GET each.",
)
@click.option(
    "--footers",
    type=click.IntRange(0, 1_000_000),
    default=MAX_FOOTERS,
    show_default=True,
    help="Maximum fragments whose footers are read for encodings and nulls, two or three GETs each.",
)
@click.option(
    "--templates",
    type=click.IntRange(0, 1_000_000),
    default=MAX_TEMPLATE_CHUNKS,
    show_default=True,
    help="Maximum row groups per column whose templates are read, if it is stored as templates; 0 shows no "
    "templates and no text of rows.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the content as one JSON object on stdout."
)
def report_command(
    table: str,
    output: str | None,
    since: Moment | None,
    moment: Moment,
    history: int,
    footers: int,
    templates: int,
    as_json: bool,
) -> None:
    """Write one HTML page about TABLE: fragments on the key axis before and after, sizes, amplification
    over time, compactions, columns, patterns of log messages, and due compactions.

    The page needs no network. The command changes nothing, and reads only footers and a few chunks of
    templates.
    """
    if as_json == (output is not None):
        raise UsageError("report: give -o FILE (- for stdout), or --json")
    if output is not None:
        check_plotly()
        if output != "-":
            check_target(output)
    before = since or NEWEST  # which names neither a version nor a time
    options = ReportOptions(
        moment=moment,
        since_version=before.version,
        since_unix_ms=before.as_of_unix_ms,
        max_versions=history,
        max_footers=footers,
        max_template_chunks=templates,
    )
    with progress("report", None) as advance:
        report = gather(open_log(table), options, advance)
    if output is None:
        echo_json(report.to_json())
        return
    data = page(report).encode()
    if output == "-":
        click.echo(data, nl=False)
        return
    write_whole(output, data)
    echo_line(f"{output}: {human_bytes(len(data))}, version {report.headline.version}")
