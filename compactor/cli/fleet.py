"""Runs `watch --config`: opens what a fleet asks for, and tells of it by events, metrics and `/tables`."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from compactor.cli.telemetry import Telemetry
from compactor.common.plain_values import plain_dict
from compactor.compaction.driver import Driver, DriverSettings
from compactor.fleet.chores import Chore, Ended, Job
from compactor.fleet.fleet import Fleet
from compactor.fleet.member import Member
from compactor.fleet.roster import ConfigFile
from compactor.fleet.state import TableState
from compactor.lakes.open import open_publisher
from compactor.lakes.publish_report import PublishReport
from compactor.resources.cores import usable_cores
from compactor.settings.compaction import CompactionSettings
from compactor.settings.properties import tuned
from compactor.table.commit_log import CommitLog
from compactor.table.vacuum import VacuumReport, vacuum
from compactor.telemetry.events import Event, Events
from compactor.telemetry.metrics import mapping

_ENDED = {Chore.VACUUM: "vacuumed", Chore.PUBLISH: "published"}


class Opening:
    """Opens the tables of a fleet for the worker, and for chores."""

    def __init__(self, told: Telemetry, lease_seconds: float, settings: CompactionSettings) -> None:
        """settings: those of this process, which count for all tables."""
        self._told = told
        self._lease_seconds = lease_seconds
        self._settings = settings

    def driver(self, member: Member) -> Driver:
        entry = member.entry
        settings = DriverSettings(
            policy=entry.policy,
            compaction=tuned(self._settings, entry.properties),
            lease_seconds=self._lease_seconds,
        )
        driver = Driver(self._told.log_of(member.place.root.within(member.place.path)), settings)
        if not member.is_read:
            self._told.begin_compactions(driver)
        return driver

    def job(self, member: Member, chore: Chore) -> Job:
        """Returns a chore, which opens a log of its own in its thread."""
        entry, place = member.entry, member.place

        def log() -> CommitLog:
            return CommitLog(place.root.within(place.path))

        def run_vacuum() -> VacuumReport:
            return vacuum(log(), entry.vacuum_settings)

        def run_publish() -> PublishReport:
            assert entry.publish is not None, "only entries that publish have this chore"
            rules = entry.publish.of_table(place.name)
            return open_publisher(
                log(), rules.to, rules.kind, catalog=rules.catalog, name=rules.name,
                min_level=rules.levels, threads=usable_cores(),
            ).publish()  # fmt: skip

        return Job(member.url, chore, run_vacuum if chore is Chore.VACUUM else run_publish)


def open_fleet(path: str, opening: Opening, teller: FleetTeller) -> Fleet:
    """Opens the fleet of a file. Raises `ConfigError` for the file, `UsageError` for an address in it."""
    return Fleet(ConfigFile(path), opening.driver, opening.job, teller)


class FleetTeller:
    """Tells what a fleet does: lines of `watch`, metrics, and the states that `/tables` serves."""

    def __init__(self, events: Events, told: Telemetry) -> None:
        self._events, self._told = events, told
        self._states: Sequence[TableState] = ()
        self._said: dict[str, Any] = {}

    def joined(self, table: str, entry: str) -> None:
        self._events.say("joined", table=table, entry=entry)

    def awaited(self, pattern: str, *, is_awaited: bool) -> None:
        if is_awaited:
            why = "no folder matches this pattern yet: tables are looked for, or stop this and correct it"
            values = {"pattern": pattern, "reason": why}
            self._events.tell(Event("waiting", values, level=logging.WARNING))
        else:
            self._events.say("found", pattern=pattern)
        self._count_awaited(pattern, is_awaited=is_awaited)

    def forgotten(self, pattern: str) -> None:
        self._count_awaited(pattern, is_awaited=False)

    def _count_awaited(self, pattern: str, *, is_awaited: bool) -> None:
        self._told.record(partial(mapping.of_awaited, is_awaited=is_awaited), pattern)

    def left(self, table: str) -> None:
        self._events.say("left", table=table)

    def closed(self, table: str) -> None:
        if (recorder := self._told.recorder) is not None:
            recorder.closed(table)

    def reloaded(self, entries: int) -> None:
        self._events.say("reloaded", entries=entries)

    def warned(self, subject: str, error: Exception, retry_seconds: float) -> None:
        values: dict[str, Any] = {"subject": subject, "reason": str(error)}
        if retry_seconds:
            values["retry_seconds"] = round(retry_seconds, 1)
        self._events.tell(Event("error", values, level=logging.WARNING))

    def ended(self, ended: Ended) -> None:
        table, chore = ended.job.table, ended.job.chore
        made = partial(
            mapping.of_chore,
            command=str(chore),
            succeeded=ended.error is None,
            seconds=round(ended.seconds, 3),
            now_unix_seconds=time.time(),
        )
        self._told.record(made, table)
        if isinstance(ended.report, VacuumReport):
            self._told.record(partial(mapping.of_vacuum, report=ended.report), table)
        if ended.report is not None:  # comes last: who reads this finds it in the metrics
            self._events.say(_ENDED[chore], table=table, **plain_dict(ended.report))

    def reported(self, states: Sequence[TableState]) -> None:
        """Says how the fleet is, if that has changed since the last time."""
        self._states = states
        self._told.record(lambda _: mapping.of_fleet(states), "")
        counts = Counter(str(each.state).replace(" ", "_") for each in states)
        said: dict[str, Any] = {"tables": len(states), **dict(sorted(counts.items()))}
        if states and states[0].waiting_seconds:
            said |= {"longest_wait": states[0].table, "waiting_seconds": states[0].waiting_seconds}
        if said != self._said:
            self._said = said
            self._events.say("fleet", **said)

    def tables(self) -> list[dict[str, Any]]:
        """Returns how each table is, as last reported, those that wait longest first."""
        return [plain_dict(state) for state in self._states]
