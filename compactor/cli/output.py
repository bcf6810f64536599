"""Prints for commands: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from compactor.common import logs
from compactor.common.lines import indented, one_line
from compactor.common.redact import redacted

log = logging.getLogger("compactor.cli")
stderr = Console(stderr=True, highlight=False)


def echo_json(document: Any) -> None:
    """Prints one JSON object on stdout."""
    click.echo(json.dumps(document, ensure_ascii=False))


def echo_line(text: str) -> None:
    """Prints a line on stdout that quotes foreign text, such as a failure's reason: redacted, in one line."""
    click.echo(one_line(redacted(text)))


def warn(message: str) -> None:
    """Prints a line on stderr, in the log's format."""
    _say(logging.WARNING, "warning", message)


def fail(message: str, *, shows_where: bool = False) -> None:
    """Prints the error that ends the command; with shows_where, also the current traceback."""
    _say(logging.ERROR, "error", message, shows_where=shows_where)


def _say(level: int, word: str, message: str, *, shows_where: bool = False) -> None:
    if logs.is_json():
        log.log(level, word, extra={"reason": message}, exc_info=shows_where)
        return
    click.echo(f"compactor: {word}: {one_line(redacted(message))}", err=True)
    if shows_where:
        click.echo(indented(redacted(traceback.format_exc())), err=True)


def human_bytes(count: int) -> str:
    return decimal(count)


def print_table(title: str | None, columns: list[tuple[str, bool]], rows: list[list[str]]) -> None:
    """Prints a table on stdout. columns: each name, and whether it holds numbers (right-aligned)."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name, is_number in columns:
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(one_line, row))
    # Files and pipes get whole lines, since only a terminal has a width to fold to.
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 1000)
    with console.capture() as capture:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


@contextmanager
def progress(description: str, total: int | None) -> Iterator[Any]:
    """Shows a bar on stderr while the block runs, on terminals only. Yields `advance(to, total=None)`."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )
    with bar:
        task = bar.add_task(description, total=total)

        def advance(to: int, total: int | None = None) -> None:
            bar.update(task, completed=to, total=total)

        yield advance
