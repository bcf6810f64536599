"""Output of commands other than lines of text: tables on stdout, a progress bar on stderr.

rich is imported where something is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from compactor.common import logs
from compactor.common.escaping import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.status import Status


def print_table(title: str | None, columns: list[tuple[str, bool]], rows: list[list[str]]) -> None:
    """Prints a table on stdout. columns: the names, each with a flag for numbers (right-aligned)."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name, is_number in columns:
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(one_line, row))
    # Only a terminal has a width to wrap at; files and pipes get whole lines.
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console(highlight=False, markup=False, width=None if is_terminal else 1000)
    with console.capture() as capture:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


@contextmanager
def progress(description: str, total: int | None, begun: int = 0) -> Iterator[Any]:
    """Shows a progress bar on stderr while the block runs, on terminals only, and not among JSON log lines.

    begun: what was done before the block. Yields `advance(to, total=None, description=None)`.
    """
    if (console := terminal()) is None:
        yield _nothing
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with _shown(bar):
        task = bar.add_task(description, total=total, completed=begun)

        def advance(to: int, total: int | None = None, description: str | None = None) -> None:
            # Without a total or description the one before stays.
            bar.update(task, completed=to, total=total, description=description)

        yield advance


def _nothing(_to: int, _total: int | None = None, _description: str | None = None) -> None:
    """Stands for the progress bar where none is shown."""


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """Shows a text on stderr while the block runs, on terminals only. Yields a function that replaces it."""
    if (console := terminal()) is None:
        yield lambda _text: None
        return
    shown = console.status(text)
    with _shown(shown):
        yield shown.update


def terminal() -> Console | None:
    """Returns the console on stderr; None if stderr is no terminal, or has JSON log lines."""
    if logs.is_json() or sys.stderr is None or not sys.stderr.isatty():
        return None
    from rich.console import Console

    return Console(stderr=True, highlight=False)


@contextmanager
def _shown(display: Progress | Status) -> Iterator[None]:
    """Shows a display that a thread redraws, if a thread can start."""
    with suppress(RuntimeError, MemoryError):
        display.start()
    try:
        yield
    finally:
        display.stop()
