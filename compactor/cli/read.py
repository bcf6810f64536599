"""Implements `head` and `query`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final

import click
import pyarrow as pa

from compactor.cli.output import echo_json, warn
from compactor.cli.pipes import has_reader
from compactor.cli.shared_options import (
    skip_missing_option,
    snapshot_options,
    threads_option,
)
from compactor.cli.tables import open_view
from compactor.common.plain_values import plain_dict
from compactor.errors import UsageError
from compactor.files.jsontext import json_lines
from compactor.read.read_reports import ScanReport
from compactor.table.tags import Moment
from lsm_fragment.names import parse_names

columns_option = click.option(
    "--columns",
    metavar="COLUMN,...",
    help="Only these columns, in this order; put a name with a comma in double quotes.",
)
_FEW_ROWS: Final = 10_000
where_option = click.option(
    "--where", metavar="CONDITION", help="Only rows that match it, such as \"level = 'ERROR'\"."
)


@click.command(
    "head",
    epilog="""\b
Examples:
  compactor head ./logs
  compactor head ./logs -n 3 --columns timestamp,message
  compactor head ./logs --as-of 15m                   as it was a quarter of an hour ago""",
)
@click.argument("table")
@click.option(
    "-n", "--rows", type=click.IntRange(min=0, max=2**63 - 1), default=10, show_default=True
)
@columns_option
@skip_missing_option
@snapshot_options
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object with the version and the rows."
)
def head_command(
    table: str,
    rows: int,
    columns: str | None,
    skip_missing: bool,
    moment: Moment,
    as_json: bool,
) -> None:
    """Print the first rows of TABLE in sort order, one JSON object per line."""
    # A single thread reads no row group ahead.
    view = open_view(table, moment)
    scan = view.scan(split_columns(columns), limit=rows, threads=1, skip_missing=skip_missing)
    lines = []
    for batch in first_rows(scan, rows):
        text = json_lines(batch).decode()
        if as_json:
            lines += text.splitlines()
        else:
            click.echo(text, nl=False)
    warn_of_left_out(scan.report)
    if as_json:
        click.echo(f'{{"version": {view.version}, "rows": [{", ".join(lines)}]}}')


def first_rows(scan: Iterable[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    """Yields the first rows of a stream (None for all), as long as somebody reads them."""
    left = sys.maxsize if rows is None else rows
    for batch in scan if left else ():
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if left == 0 or not has_reader():
            break


@click.command(
    "query",
    epilog="""\b
Examples:
  compactor query ./logs --where "level = 'ERROR'" --columns timestamp,message
  compactor query ./logs --where "service LIKE 'api%' AND timestamp >= '2026-11-21 08:00'" -n 5
  compactor query s3://bucket/logs --where "status BETWEEN 500 AND 599" --count
  compactor query ./logs --where "lower(level) = 'error' AND length(message) > 200"

\b
Conditions are SQL: comparisons, BETWEEN, IN, LIKE, ILIKE, IS NULL, AND, OR, NOT, of columns, values and
expressions such as upper(service), n % 10, CAST(x AS INT), CASE and now() - INTERVAL '1 hour':
docs/reference/expressions.md lists all. What compares a column with a value skips fragments. Write texts and
times in 'single' quotes, and column names that are not plain identifiers in "double" ones. Times without a
zone are UTC. In LIKE, % matches any text and _ any character, unless a backslash (or the character of an
ESCAPE clause) comes first. Every comparison with NaN is false, even <>; its NOT is true.""",
)
@click.argument("table")
@where_option
@columns_option
@click.option(
    "-n", "--rows", type=click.IntRange(min=0, max=2**63 - 1), help="Maximum rows to print."
)
@click.option("--count", "counts", is_flag=True, help="Print only the number of rows.")
@threads_option
@skip_missing_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="With --count: print one JSON object, with counts of what was skipped.",
)
@snapshot_options
def query_command(
    table: str,
    where: str | None,
    columns: str | None,
    rows: int | None,
    counts: bool,
    threads: int | None,
    skip_missing: bool,
    as_json: bool,
    moment: Moment,
) -> None:
    """Print the rows of TABLE that match a condition, one JSON object per line, in sort order.

    Skips fragments and row groups that key ranges, statistics or templates of strings rule out, and prints
    their number on stderr.
    """
    if counts and (columns is not None or rows is not None):
        raise UsageError("--count: leave out --columns and --rows")
    if as_json and not counts:
        raise UsageError("--json: rows are JSON already; give it with --count")
    view = open_view(table, moment)
    if threads is None and where is None and rows is not None and rows <= _FEW_ROWS:
        threads = 1  # It reads no row group ahead.
    scan = view.scan(
        [] if counts else split_columns(columns),
        where,
        limit=rows,
        threads=threads,
        skip_missing=skip_missing,
    )
    if counts:
        for _ in scan:
            pass
    else:
        for batch in first_rows(scan, rows):
            click.echo(json_lines(batch).decode(), nl=False)
    warn_of_left_out(scan.report)
    if as_json:
        echo_json(plain_dict(scan.report))
        return
    if counts:
        click.echo(scan.report.rows)
    click.echo(f"{scan.report}", err=True)


def warn_of_left_out(report: ScanReport) -> None:
    """Warns on stderr about rows that a scan left out, if any."""
    if report.left_out:
        warn(report.left_out)


def split_columns(columns: str | None) -> list[str] | None:
    if columns is None:
        return None
    try:
        names = parse_names(columns)
    except ValueError as error:
        raise UsageError(f"--columns: {error}") from None
    if len(set(names)) != len(names):
        raise UsageError(f"--columns: {columns!r}: name each column once")
    return list(names)
