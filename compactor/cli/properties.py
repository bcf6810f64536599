"""Says where a run overrides properties of a table."""

from __future__ import annotations

from collections.abc import Callable

from compactor.cli.output import warn
from compactor.settings.model import Settings
from compactor.settings.names import as_flag
from compactor.settings.properties import Properties, overrides


def say_overrides(
    properties: Properties,
    *given: Settings,
    table: str | None = None,
    named: Callable[[str], str] = as_flag,
) -> None:
    """Says on stderr which properties of the table this run overrides.

    table: where there are several. named: maps a property to what the user wrote.
    """
    whose = "the table's" if table is None else f"{table}'s"
    for settings in given:
        for name, here, stored in overrides(settings, properties):
            warn(f"{named(name)} {here} overrides {whose} {stored} for this run")
