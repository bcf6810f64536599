"""Finds the tables of a fleet by patterns of addresses, and asks their logs for news.

A pattern has wildcards (`*`, `?`, `[ab]`) in whole parts of its path, each of which costs a listing of the
folders there. What lies in a folder is not listed. Whether a folder is a table is told by its log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from compactor.errors import CompactorError, UsageError
from compactor.fleet.config import Entry, FleetConfig
from compactor.settings.paths import identity
from compactor.stores.base import Folder
from compactor.stores.open import open_store
from compactor.stores.user_files import WILDCARDS
from compactor.table.object_names import parse_version, version_key


class Place(NamedTuple):
    """Where a table is: a folder, and the path below it that an entry matched."""

    root: Folder
    path: str
    """Empty if the folder itself is the table."""

    @property
    def url(self) -> str:
        return f"{self.root.url.rstrip('/')}/{self.path}" if self.path else self.root.url

    @property
    def name(self) -> str:
        """The part of the address that the pattern matched; the last part of one without wildcards."""
        return self.path or self.root.url.rstrip("/").rpartition("/")[2]


class Pattern(Struct, frozen=True):
    """An entry's folder, opened once, and the parts of paths below it."""

    entry: Entry
    root: Folder
    parts: Sequence[str]

    @classmethod
    def of(cls, entry: Entry) -> Pattern:
        """Opens the folder; sends no request. Raises `UsageError` for an invalid address."""
        parts = entry.at.split("/")
        own = entry.at.count("/", 0, entry.folder_length)
        wild = (number for number in range(own, len(parts)) if WILDCARDS & set(parts[number]))
        first = next(wild, len(parts))
        root = "/".join(parts[:first]) or ("/" if first else ".")
        return cls(entry, open_store(root), parts[first:])

    def places(self) -> Iterator[Place]:
        """Yields the folders that match now, by a listing for each folder with a wildcard below it.

        Raises `StoreError`.
        """
        for path in self._below("", self.parts):
            if not any(fnmatchcase(path, unwanted) for unwanted in self.entry.but_not):
                yield Place(self.root, path)

    def may_match(self, url: str) -> bool:
        """Says whether a table could be one of this entry's, as far as its folder tells."""
        root = self.root.url.rstrip("/")
        return url == root or url.startswith(f"{root}/")

    def _below(self, path: str, parts: Sequence[str]) -> Iterator[str]:
        if not parts:
            yield path
            return
        first, *rest = parts
        base = f"{path}/" if path else ""
        if WILDCARDS & set(first):
            names = [name for name in self.root.folders(base) if fnmatchcase(name, first)]
        else:
            names = [first]
        for name in names:
            yield from self._below(f"{base}{name}", rest)


def patterns_of(config: FleetConfig) -> list[Pattern]:
    """Opens the folder of each entry; sends no request. Raises `ConfigError`, with its place, for an address
    of no store, also one to publish to.
    """
    patterns = []
    for number, entry in enumerate(config.entries):
        try:
            patterns.append(Pattern.of(entry))
            if entry.publish is not None:
                open_store(entry.publish.of_table("table").to)
        except UsageError as error:
            raise config.mistake_in(number, error) from None
    return patterns


class Found(NamedTuple):
    """The places that a fleet's entries match."""

    places: dict[str, tuple[Place, Entry]]
    """By address; each belongs to the first entry that matches it."""
    unanswered: list[tuple[Pattern, CompactorError]]
    """Entries that could not be asked for theirs."""

    def is_known(self, url: str) -> bool:
        """Says whether all entries that could match an address were asked."""
        return url in self.places or not _may_match(self.unanswered, url)


def found(patterns: Iterable[Pattern]) -> Found:
    """Looks for all places; of links to one folder the first counts. One entry's store that does not answer
    keeps no other from being asked."""
    result, folders = Found({}, []), set[str]()
    for pattern in patterns:
        try:
            places = list(pattern.places())
        except CompactorError as error:
            result.unanswered.append((pattern, error))
            continue
        for place in places:
            folder = identity(place.url)
            if folder not in folders and not _may_match(result.unanswered, place.url):
                folders.add(folder)
                result.places[place.url] = place, pattern.entry
    return result


def _may_match(unanswered: Sequence[tuple[Pattern, CompactorError]], url: str) -> bool:
    return any(pattern.may_match(url) for pattern, _ in unanswered)


def has_table(place: Place) -> bool:
    """Says whether the log has a version, by one listing. Raises `StoreError`."""
    return next(_versions(place, 0), None) is not None


def newest_etag(place: Place, known: int) -> str | None:
    """Returns the ETag of a known version's log file if that is the newest; None if there is news.

    A log without it is that of a table which was deleted, and perhaps made anew. Asks by one listing. Raises
    `StoreError`.
    """
    if known == 0:
        return None if has_table(place) else ""
    versions = list(islice(_versions(place, known - 1), 2))
    return versions[0][1] if [number for number, _ in versions] == [known] else None


def _versions(place: Place, after: int) -> Iterator[tuple[int, str]]:
    """Yields the versions in the log after one, with their files' ETags."""
    base = f"{place.path}/" if place.path else ""
    listed = place.root.list(f"{base}_log/", start_after=f"{base}{version_key(after)}")
    for info in listed:
        version = parse_version(info.key[len(base) :])
        if version is not None:
            yield version, info.etag
