"""Parses properties of tables from options, and says where a run overrides them."""

from __future__ import annotations

from collections.abc import Sequence

from compactor.cli.output import warn
from compactor.errors import UsageError
from compactor.settings.model import Settings
from compactor.settings.names import as_flag
from compactor.settings.properties import Properties, overrides


def property_values(flag: str, texts: Sequence[str]) -> dict[str, str]:
    """Returns the values by name of options `NAME=VALUE`. Raises `UsageError` with the option."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise UsageError(f"{flag}: {text!r} is not of the form NAME=VALUE")
        if name in values:
            raise UsageError(f"{flag}: {name!r} is given twice; give it once")
        values[name] = value
    return values


def say_overrides(properties: Properties, *given: Settings, table: str | None = None) -> None:
    """Says on stderr which properties of the table this run overrides. table: where there are several."""
    whose = "the table's" if table is None else f"{table}'s"
    for settings in given:
        for name, here, stored in overrides(settings, properties):
            warn(f"{as_flag(name)} {here} overrides {whose} {stored} for this run")
