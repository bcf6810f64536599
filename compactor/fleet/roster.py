"""The tables of a fleet, as its file and the folders name them now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from compactor.common.clock import Clock
from compactor.errors import CompactorError
from compactor.fleet.config import FleetConfig, load_fleet
from compactor.fleet.finding import Found, found, patterns_of
from compactor.fleet.member import Member
from compactor.fleet.told import Told


class Source(Protocol):
    """Where what the file says comes from."""

    def news(self) -> FleetConfig | None:
        """Returns what the file says if it has changed. Raises `ConfigError` once for each bad file."""
        ...


class ConfigFile:
    """The file of a fleet, which may change at any time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: bytes | None = None

    def news(self) -> FleetConfig | None:
        try:
            content = Path(self._path).read_bytes()
        except OSError:
            content = b""  # loading it says why, once
        if content == self._seen:
            return None
        self._seen = content
        return load_fleet(self._path)


class Roster:
    """The members of a fleet. Looks for tables now and then, and reads the file again when it changes."""

    def __init__(self, source: Source, told: Told, clock: Clock) -> None:
        """Reads the file. Raises `ConfigError`, also for an address that is none."""
        self._source, self._told, self._clock = source, told, clock
        config = source.news()
        assert config is not None, "the first reading is news"
        self._take(config)
        self._members: dict[str, Member] = {}
        self._awaited: set[str] = set()
        """Patterns that matched no folder."""
        self._find_ms = 0

    @property
    def config(self) -> FleetConfig:
        return self._config

    @property
    def members(self) -> Mapping[str, Member]:
        """The tables by address."""
        return self._members

    @property
    def find_ms(self) -> int:
        """When tables are looked for."""
        return self._find_ms

    def refresh(self) -> None:
        """Reads the file again if it has changed, and looks for tables if it is time."""
        now = self._clock.now_unix_ms()
        try:
            config = self._source.news()
            if config is not None:
                self._take(config)
                self._find_ms = now
                self._told.reloaded(len(config.entries))
        except CompactorError as error:
            self._told.warned("the file as it was still counts", error, 0.0)
        if now >= self._find_ms:
            self._find(now)

    def drop(self, url: str) -> None:
        """Forgets a table that has left, when nothing of it runs any more."""
        del self._members[url]
        self._told.left(url)

    def _take(self, config: FleetConfig) -> None:
        self._patterns = patterns_of(config)
        self._config = config

    def _await_tables(self, now_found: Found) -> None:
        """Tells of patterns that begin to match no folder, or a first one."""
        matched = {entry.at for _, entry in now_found.places.values()}
        unknown = {pattern.entry.at for pattern, _ in now_found.unanswered}
        patterns = {pattern.entry.at for pattern in self._patterns if pattern.entry.is_pattern}
        awaited = patterns - matched - (unknown - self._awaited)
        for pattern in sorted(awaited ^ (self._awaited & patterns)):
            self._told.awaited(pattern, is_awaited=pattern in awaited)
        for pattern in sorted(self._awaited - patterns):
            self._told.forgotten(pattern)
        self._awaited = awaited

    def _find(self, now: int) -> None:
        seconds = self._config.find_seconds
        self._find_ms = now + round(seconds * 1000)
        now_found = found(self._patterns)
        for pattern, error in now_found.unanswered:
            subject = f"tables of {pattern.entry.at} were not looked for"
            self._told.warned(subject, error, seconds)
        self._await_tables(now_found)
        places = now_found.places
        for url, (place, entry) in places.items():
            member = self._members.get(url)
            if member is None:
                self._members[url] = Member(
                    place=place,
                    url=url,
                    entry=entry,
                    is_to_look=not entry.is_pattern,
                    changed_ms=now,
                )
            elif member.entry != entry:
                member.entry, member.due_ms = entry, {}
                member.has_new_rules = True
                # A folder of a pattern that was no table is looked at when its log has news.
                if member.version or not entry.is_pattern:
                    member.is_to_look = True
        for url, member in self._members.items():
            if now_found.is_known(url):
                member.has_left = url not in places
