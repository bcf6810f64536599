"""Turns the fields of `compactor.write.ingest.settings` into options of a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar, get_args

import click
from pydantic.fields import FieldInfo

from compactor.settings.messages import validated
from compactor.settings.names import as_flag
from compactor.write.ingest.settings import IngestSettings

_Command = TypeVar("_Command", bound=Callable[..., Any])
_METAVARS: Final = {
    "time_window": "DURATION",
    "retention": "DURATION",
    "ttl": "DURATION",
    "skip_index_bytes": "SIZE",
    "aggregate": "COLUMN:FUNCTION",
    "skip_index": "COLUMN:KIND",
    "not_null": "PATH",
}


def ingest_settings_options(command: _Command) -> _Command:
    """Adds one option for each setting, with its default and help; `chosen_settings` reads their values."""
    for name, field in reversed(IngestSettings.model_fields.items()):
        command = _option(name, field)(command)
    return command


def chosen_settings(given: Mapping[str, Any]) -> IngestSettings:
    """Returns the checked settings. Raises `UsageError`."""
    said = {name: value for name, value in given.items() if value is not None}
    return validated(IngestSettings, said)


def _option(name: str, field: FieldInfo) -> Callable[[_Command], _Command]:
    flag, text = as_flag(name), field.description
    kinds = {kind for kind in (field.annotation, *get_args(field.annotation)) if kind is not None}
    default, shown = field.default, field.default is not None and field.default != ()
    if bool in kinds:
        return click.option(f"{flag}/{flag.replace('keep', 'drop')}", name, default=None, help=text)
    if isinstance(default, tuple):
        return click.option(
            flag,
            name,
            multiple=True,
            metavar=_METAVARS[name],
            help=f"{text} May be given several times.",
        )
    return click.option(
        flag,
        name,
        type=_type(kinds, field),
        metavar=_METAVARS.get(name),
        default=str(default) if isinstance(default, StrEnum) else default,
        show_default=shown,
        help=text,
    )


def _type(kinds: set[Any], field: FieldInfo) -> click.ParamType[Any]:
    """Returns the type that click can check and show itself; the model checks the rest."""
    choices = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, StrEnum)]
    if choices:
        return click.Choice([str(value) for value in choices[0]])
    if int in kinds and isinstance(field.default, int):
        least = next(part.ge for part in field.metadata if hasattr(part, "ge"))
        above = next(part.lt for part in field.metadata if hasattr(part, "lt"))
        return click.IntRange(min=least, max=above - 1)
    return click.STRING
