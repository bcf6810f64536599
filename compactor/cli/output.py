"""Prints for commands: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import click
from rich.filesize import decimal

from compactor.common import logs
from compactor.common.escaping import indented, one_line
from compactor.common.foreign import shown_traceback
from compactor.common.message import Message
from compactor.settings.names import as_flag

log = logging.getLogger("compactor.cli")


def echo_json(document: Any, *, err: bool = False) -> None:
    """Prints one JSON object on stdout, or on stderr if something else is printed there."""
    click.echo(json.dumps(document, ensure_ascii=False), err=err)


def echo_line(text: str) -> None:
    """Prints a line on stdout that quotes foreign text, such as a failure's reason, in one line."""
    click.echo(one_line(_by_flags(text)))


def warn(message: str) -> None:
    """Prints a line on stderr, in the log's format."""
    _say(logging.WARNING, "warning", message)


def tell(text: str) -> None:
    """Prints a line of a result on stderr, in the log's format, because stdout has rows."""
    if logs.is_json():
        log.info(text)
    else:
        click.echo(text, err=True)


def fail(message: str, *, shows_where: bool = False) -> None:
    """Prints the error that ends the command. shows_where: adds the current traceback."""
    _say(logging.ERROR, "error", message, shows_where=shows_where)


def _by_flags(text: str) -> str:
    """Replaces settings in a message by their flags; returns other texts unchanged."""
    return text.named(as_flag) if isinstance(text, Message) else text


def _say(level: int, word: str, text: str, *, shows_where: bool = False) -> None:
    message = _by_flags(text)
    if logs.is_json():
        log.log(level, word, extra={"reason": message}, exc_info=shows_where)
        return
    click.echo(f"compactor: {word}: {one_line(message)}", err=True)
    error = sys.exception()
    if shows_where and error is not None:
        click.echo(indented(shown_traceback(error)), err=True)


def human_bytes(count: int) -> str:
    return decimal(count)
