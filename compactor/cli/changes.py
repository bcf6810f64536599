"""Implements `changes`."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import datetime

import click

from compactor.api.changes import Changes
from compactor.api.table import Table
from compactor.cli.output import tell
from compactor.cli.pipes import has_reader
from compactor.cli.read import columns_option, first_rows, split_columns, where_option
from compactor.cli.shared_options import threads_option
from compactor.cli.tables import open_table
from compactor.common.clock import SystemClock
from compactor.common.counts import counted
from compactor.errors import UsageError
from compactor.files.jsontext import json_lines
from compactor.files.write import SinkOptions, check_sink_path, write_batches
from compactor.table.tags import named_in
from compactor.write.tags import check_tag_name

_EPILOG = """\b
Examples:
  compactor changes ./logs --since 41
  compactor changes ./logs --since 41 --until 50 --where "level = 'ERROR'" --columns timestamp,message
  compactor changes ./logs --since 1h --summary
  compactor changes ./logs --reader loader --since 0 -o first.parquet
  compactor changes ./logs --reader loader -o more.parquet       what came since the reader's last run

Each row has _change (insert, delete, update_before, update_after) and _version. Compactions change no rows.
--reader reads on from the tag of that name, and moves it once all rows are written (not by --summary);
vacuums keep the versions after it. If the command is killed in between, its next run writes the same changes
again: at least once.
`compactor untag` ends a reader."""


@click.command("changes", epilog=_EPILOG)
@click.argument("table")
@click.option(
    "--since", metavar="VERSION|TAG|TIME", help="Begin after this version; 0 is before the first."
)
@click.option(
    "--until", metavar="VERSION|TAG|TIME", help="End with this version.  [default: newest]"
)
@click.option("--reader", metavar="NAME",
              help="Begin where this reader ended, and move its tag. --since begins a new one.")  # fmt: skip
@columns_option
@where_option
@click.option(
    "-n", "--rows", type=click.IntRange(min=0, max=2**63 - 1), help="Maximum rows to print."
)
@click.option("-o", "--output", metavar="FILE",
              help="Write a file, as `export` does, instead of JSON lines on stdout.")  # fmt: skip
@click.option("--summary", is_flag=True, help="Print only the numbers of rows by version and kind.")
@threads_option
def changes_command(
    table: str,
    since: str | None,
    until: str | None,
    reader: str | None,
    columns: str | None,
    where: str | None,
    rows: int | None,
    output: str | None,
    summary: bool,
    threads: int | None,
) -> None:
    """Print the rows of TABLE that came, went and changed between two versions, as JSON lines.

    Versions ascend. Columns are those of the last version.
    """
    if sum((rows is not None, output is not None, summary)) > 1:
        raise UsageError("--rows, --output and --summary: give one of them")
    if reader is not None and rows is not None:
        raise UsageError("--rows: leave it out with --reader, which moves on by whole versions")
    if output is not None:
        check_sink_path(output)
    elif reader is not None and not summary and sys.stdout is None:
        raise UsageError("standard output is closed: name a file by --output")
    opened = open_table(table)
    names = set(opened.tags()["name"].to_pylist())
    if reader is not None:
        _check_reader(opened, reader)
    changes = opened.changes(
        _beginning(since, reader, names),
        None if until is None else _moment("--until", until, names),
        split_columns(columns),
        where,
        threads=threads,
    )
    if summary:
        _print_summary(changes)
    elif output is not None:
        _write(changes, output, threads)
    else:
        for batch in first_rows(changes, rows):
            click.echo(json_lines(batch).decode(), nl=False)
    if reader is not None and not summary and (output is not None or has_reader()):
        _move(opened, reader, changes, is_new=reader not in names)


def _check_reader(opened: Table, reader: str) -> None:
    """Raises `UsageError`, before anything is written, for a name that is no reader's."""
    check_tag_name(reader)
    for tag in opened.tags().to_pylist():
        if tag["name"] == reader and not tag["keeps_later"]:
            raise UsageError(
                f"--reader: tag {reader!r} names version {tag['version']} for others, and a reader would "
                f"move it; choose another name, and begin by --since {reader}"
            )


def _beginning(since: str | None, reader: str | None, names: set[str]) -> int | str | datetime:
    if reader in names:
        if since is not None:
            raise UsageError(f"--since: reader {reader!r} has a place already; leave it out")
        return str(reader)
    if since is None:
        begins = "" if reader is None else f"there is no reader {reader!r} yet; "
        raise UsageError(
            f"{begins}name the version after which changes begin by --since, such as 0"
        )
    return _moment("--since", since, names)


def _moment(option: str, text: str, names: set[str]) -> int | str | datetime:
    try:
        return named_in(text, names, SystemClock())
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _print_summary(changes: Changes) -> None:
    """Prints a line for each version and kind, once all are counted."""
    counts: Counter[tuple[int, str]] = Counter()
    for batch in changes:
        version = batch.column("_version")[0].as_py()
        for kind, number in Counter(batch.column("_change").to_pylist()).items():
            counts[version, kind] += number
    for (version, kind), number in counts.items():
        click.echo(f"version {version}: {number:,} {kind}")


def _write(changes: Changes, output: str, threads: int | None) -> None:
    write_batches(output, changes.schema, changes, SinkOptions(threads=threads or 1))
    tell(
        f"{output}: {counted(changes.report.rows, 'row')} read, since version {changes.since} until version "
        f"{changes.until}"
    )


def _move(opened: Table, reader: str, changes: Changes, *, is_new: bool) -> None:
    """Moves the tag of a reader, unless that would only make room for its own last move."""
    if is_new or not changes.are_of_tags:
        last = Table.open(opened.url, version=changes.until)
        last.tag(reader, move=not is_new, keep_later=True)
