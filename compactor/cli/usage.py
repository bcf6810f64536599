"""Rewrites click's usage errors in our style: one line with the command, the cause and the advice."""

from __future__ import annotations

from collections.abc import Sequence

import click

from compactor.cli.commands import COMMANDS


def usage_line(error: click.ClickException, arguments: Sequence[str]) -> str:
    """Returns the line for an error. arguments: without the program's name."""
    command = _command(error, arguments)
    place = f"{command}: " if command else ""
    return f"{place}{_cause(error)}; {_advice(error, command)}"


def _command(error: click.ClickException, arguments: Sequence[str]) -> str | None:
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:  # some of click's errors have no context
        return next((name for name in arguments if name in COMMANDS), None)
    return context.info_name if context.parent else None


def _cause(error: click.ClickException) -> str:
    match error:
        case click.MissingParameter(param=click.Parameter() as parameter):
            return f"{_name(parameter)} is missing"
        case click.BadParameter(param=click.Parameter() as parameter):
            message = error.message.replace("a valid integer range", "a whole number")
            return f"{_name(parameter)}: {_as_ours(message)}"
        case click.NoSuchOption():
            return f"there is no option {error.option_name}"
        case click.exceptions.NoSuchCommand():
            return f"there is no command {error.command_name!r}"
        case _:
            return _as_ours(error.format_message())


def _as_ours(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:].removesuffix('.')}"


def _advice(error: click.ClickException, command: str | None) -> str:
    if (
        isinstance(error, (click.NoSuchOption, click.exceptions.NoSuchCommand))
        and error.possibilities
    ):
        return f"did you mean {' or '.join(error.possibilities)}?"
    return f"see `compactor {f'{command} ' if command else ''}--help`"


def _name(parameter: click.Parameter) -> str:
    """Returns the name of a parameter in help: an option's longest name, an argument's placeholder."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.human_readable_name.removesuffix("...")
