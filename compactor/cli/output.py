"""What commands print: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import json
import logging
import traceback
from typing import Any

import click
from rich.filesize import decimal

from compactor.common import logs
from compactor.common.lines import indented, one_line
from compactor.common.redact import redacted

log = logging.getLogger("compactor.cli")


def echo_json(document: Any) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(document, ensure_ascii=False))


def echo_line(text: str) -> None:
    """A line on stdout that has texts of others in it, such as the reason of a failure."""
    click.echo(one_line(redacted(text)))


def warn(message: str) -> None:
    """A line on stderr, in the log's format."""
    _say(logging.WARNING, "warning", message)


def fail(message: str, *, shows_where: bool = False) -> None:
    """The same for the error that ends the command; shows_where: with the traceback of what is handled."""
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
