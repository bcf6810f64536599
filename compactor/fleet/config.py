"""Reads the file of a fleet. Errors name line, key and correction. Pure, except for reading the file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Final, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from compactor.errors import ConfigError, UsageError
from compactor.fleet.times import Window
from compactor.lakes.lake import LakeKind, check_names, parse_levels
from compactor.settings.compaction import OF_WRITERS, CompactionSettings, Policy
from compactor.settings.document import Document
from compactor.settings.fields import Duration, Seconds
from compactor.settings.mistakes import Place, instead_of
from compactor.settings.paths import from_folder
from compactor.settings.properties import Properties, changed, tuned
from compactor.settings.vacuum import VacuumSettings
from compactor.stores.user_files import WILDCARDS

_TABLE: Final = "{table}"
_LAST_SLASHES: Final = re.compile("(?<=[^:/])/+$")
"""Not those of / and s3://, which are no end of a name."""
_MODELS: Final = (Policy, CompactionSettings, VacuumSettings)
_NAMES: Final = tuple(
    name
    for model in _MODELS
    for name in model.model_fields
    if name not in model.of_run and name not in OF_WRITERS
)


def _windows(given: Any) -> Any:
    parts = [given] if isinstance(given, str) else given
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError(
            "a window of time is a text such as 22:00-06:00, in quotes, or a list of them"
        )
    return tuple(map(Window.parse, parts))


def _level(given: Any) -> Any:
    return parse_levels(str(given))


def _zone(given: Any) -> ZoneInfo:
    if isinstance(given, str):
        with suppress(ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo(given)
    shown = "nothing" if given is None else repr(str(given))
    raise ValueError(f"{shown} is no time zone; write UTC or Europe/Berlin")


Windows = Annotated[tuple[Window, ...], BeforeValidator(_windows)]
"""Written as `mon-fri 22:00-06:00`, or a list of such texts."""


class _Model(BaseModel):
    """A group of keys. Unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True
    )


class VacuumRules(_Model):
    """When a table is vacuumed."""

    every: Seconds = 86_400.0
    between: Windows = ()


class RetentionRules(_Model):
    """How often what is past its retention is looked for, in tables without news."""

    every: Seconds = 3_600.0
    between: Windows = ()


class PublishRules(_Model):
    """Where copies for other engines are, and when they are brought up to date."""

    to: str = Field(min_length=1)
    kind: LakeKind = Field(alias="as")
    levels: Annotated[int, BeforeValidator(_level)] = 0
    catalog: str | None = None
    name: str | None = None
    every: Seconds | None = None
    """None: whenever there is a new version."""
    between: Windows = ()

    def of_table(self, name: str) -> Self:
        """Returns the rules of one table. name: takes the place of `{table}`."""
        named = None if self.name is None else self.name.replace(_TABLE, name.replace("/", "_"))
        return self.model_copy(update={"to": self.to.replace(_TABLE, name), "name": named})


class _Rules(_Model):
    """Keys that entries and `defaults` have."""

    priority: int = Field(default=0, ge=-1000, le=1000)
    share: float = Field(default=1.0, ge=0.01, le=1000)
    longest_wait: Duration = 900.0
    quiet: Windows = ()
    settings: Mapping[str, Any] = Field(default_factory=dict)
    vacuum: VacuumRules | None = None
    retention: RetentionRules = RetentionRules()
    publish: PublishRules | None = None


_DEFAULTS: Final = _Rules()


class _Entry(_Rules):
    at: str = Field(min_length=1)
    but_not: tuple[str, ...] = Field(default=(), alias="except")


class _File(_Model):
    poll: Seconds = 5.0
    slowest_poll: Seconds = 60.0
    find_every: Seconds = 60.0
    report_every: Seconds = 60.0
    zone: Annotated[ZoneInfo, BeforeValidator(_zone)] = ZoneInfo("UTC")
    defaults: _Rules = _DEFAULTS
    tables: tuple[_Entry, ...] = Field(min_length=1)


class Entry(Struct, frozen=True, kw_only=True):
    """An entry of `tables`, with the defaults filled in: which tables, and how they are kept."""

    at: str
    """An address, or a pattern of addresses, as seen from the working directory."""
    folder_length: int = 0
    """How much of `at` is the folder of the file, in which no character is a wildcard."""
    but_not: tuple[str, ...] = ()
    """Patterns of names below the first folder of `at` that has a wildcard."""
    priority: int = _DEFAULTS.priority
    share: float = _DEFAULTS.share
    longest_wait_seconds: float = _DEFAULTS.longest_wait
    quiet: tuple[Window, ...] = ()
    """When no merge begins."""
    properties: Properties = ()
    """Settings that override the properties of the tables, by name."""
    vacuum: VacuumRules | None = None
    retention: RetentionRules = field(default_factory=RetentionRules)
    publish: PublishRules | None = None

    @property
    def policy(self) -> Policy:
        return tuned(Policy(), self.properties)

    @property
    def compaction(self) -> CompactionSettings:
        return tuned(CompactionSettings(), self.properties)

    @property
    def vacuum_settings(self) -> VacuumSettings:
        return tuned(VacuumSettings(), self.properties)

    @property
    def is_pattern(self) -> bool:
        return not WILDCARDS.isdisjoint(self.at[self.folder_length :])


class FleetConfig(Struct, frozen=True, kw_only=True):
    """What the file of a fleet says."""

    entries: tuple[Entry, ...]
    """A table belongs to the first entry that matches it."""
    places: tuple[str, ...] = ()
    """Where the file has each entry, for errors that are found later."""
    zone: ZoneInfo
    poll_seconds: float
    """How often a table that changes is asked for news."""
    slowest_poll_seconds: float
    """How often a table at rest is asked."""
    find_seconds: float
    """How often new tables are looked for."""
    report_seconds: float
    """How often a line tells how the fleet is."""

    def mistake_in(self, number: int, error: Exception) -> ConfigError:
        """Returns the error of an entry that is found later, with its place."""
        place = f"{self.places[number]}: " if self.places else ""
        return ConfigError(f"{place}tables[{number}]: {error}")


def load_fleet(path: str | os.PathLike[str]) -> FleetConfig:
    """Reads a file. Raises `ConfigError` naming file, line and key."""
    return _fleet_of(Document.read(path))


def parse_fleet(text: str, name: str) -> FleetConfig:
    """Parses JSON if the name ends in .json, else YAML. Raises what `load_fleet` raises."""
    return _fleet_of(Document.parse(text, name))


def _fleet_of(document: Document) -> FleetConfig:
    file = document.as_model(_File)
    if file.slowest_poll < file.poll:
        raise document.fail_at(
            ("slowest_poll",),
            "is shorter than `poll`; tables at rest are asked less often, not more",
        )
    folder = os.path.dirname(document.name)  # noqa: PTH120 - "" for here
    defaults = _properties(document, ("defaults",), file.defaults, ())
    entries = [
        _entry(document, number, entry, file.defaults, defaults, folder)
        for number, entry in enumerate(file.tables)
    ]
    seen: dict[str, int] = {}
    for number, entry in enumerate(entries):
        if entry.at in seen:
            raise document.fail_at(
                ("tables", number, "at"),
                f"tables[{seen[entry.at]}] names the same: leave one entry out",
            )
        seen[entry.at] = number
    return FleetConfig(
        entries=tuple(entries),
        places=tuple(document.place_of(("tables", number)) for number in range(len(entries))),
        zone=file.zone,
        poll_seconds=file.poll,
        slowest_poll_seconds=file.slowest_poll,
        find_seconds=file.find_every,
        report_seconds=file.report_every,
    )


def _entry(
    document: Document,
    number: int,
    given: _Entry,
    defaults: _Rules,
    properties: Properties,
    folder: str,
) -> Entry:
    place: Place = ("tables", number)

    def rule(name: str) -> Any:
        return getattr(given if name in given.model_fields_set else defaults, name)

    at = from_folder(given.at, folder)
    entry = Entry(
        at=_LAST_SLASHES.sub("", at),
        folder_length=len(at) - len(given.at),
        but_not=given.but_not,
        priority=rule("priority"),
        share=rule("share"),
        longest_wait_seconds=rule("longest_wait"),
        quiet=rule("quiet"),
        properties=_properties(document, place, given, properties),
        vacuum=rule("vacuum"),
        retention=rule("retention"),
        publish=rule("publish"),
    )
    if "**" in entry.at:
        raise document.fail_at(
            (*place, "at"),
            "`**` is not a pattern here: write one `*` for each folder, as in logs/*/*",
        )
    if entry.but_not and not entry.is_pattern:
        raise document.fail_at((*place, "except"), "`at` names one table: leave it out")
    if entry.publish is None:
        return entry
    try:
        _check_publish(entry, entry.publish)
    except UsageError as error:
        raise document.fail_at((*place, "publish"), str(error)) from None
    to = from_folder(entry.publish.to, folder)
    return replace(entry, publish=entry.publish.model_copy(update={"to": to}))


def _check_publish(entry: Entry, rules: PublishRules) -> None:
    """Raises `UsageError` for what no copy could be made by."""
    check_names(rules.kind, rules.catalog, rules.name)
    for key, value in (("to", rules.to), ("name", rules.name)):
        if entry.is_pattern and value is not None and _TABLE not in value:
            raise UsageError(
                f"`at` may match several tables: put {{table}} into `{key}`, where the name of each goes"
            )


def _properties(
    document: Document, place: Place, given: _Rules, defaults: Properties
) -> Properties:
    """Returns the settings of an entry over those of `defaults`, checked against each other."""
    place = (*place, "settings")
    for name, value in given.settings.items():
        if name not in _NAMES:
            raise document.fail_at((*place, name), f"no setting of a fleet; {_instead_of(name)}")
        if value is None:
            raise document.fail_at((*place, name), "nothing is given: write a value")
    try:
        return changed(defaults, given.settings)
    except ConfigError as error:
        raise document.fail_at(place, str(error)) from None


def _instead_of(name: str) -> str:
    if name in OF_WRITERS:
        return "all writers of a table have to agree on it: `compactor alter --set` sets it"
    if any(name in model.of_run for model in _MODELS):
        return "it is of a process or a run, the same for all tables: leave it out"
    return instead_of(name, _NAMES)
