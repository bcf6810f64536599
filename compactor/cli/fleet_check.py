"""Prints `watch --config FILE --dry-run`: the tables that are found, and what would be next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct

from compactor.cli.output import echo_json, echo_line, human_bytes
from compactor.cli.tables import address_of
from compactor.common.clock import SystemClock
from compactor.common.counts import counted
from compactor.common.logs import utc_time
from compactor.common.plain_values import plain_dict
from compactor.compaction.driver import Driver, DriverSettings
from compactor.errors import CompactorError, JobError, UsageError
from compactor.fleet.agenda import due_of
from compactor.fleet.config import Entry, FleetConfig, load_fleet
from compactor.fleet.finding import Pattern, found, has_table, patterns_of
from compactor.fleet.member import Member
from compactor.fleet.times import is_within
from compactor.lakes.open import overlap
from compactor.settings.paths import identity
from compactor.settings.properties import properties_text
from compactor.table.commit_log import CommitLog
from lsm_fragment.errors import FormatError


class CheckedTable(Struct, frozen=True, kw_only=True):
    """What a fleet would do with a table now."""

    table: str
    version: int
    due: int
    """Merges that are due."""
    next_bytes: int
    chores: dict[str, str]
    """When each is due, as text."""
    error: str | None = None


def check_fleet(path: str, *, as_json: bool) -> None:
    """Reads the file and the tables, writes nothing to them, and prints what it found.

    Raises `ConfigError` for the file, also for copies that would overlap a table or each other, and
    `JobError` if tables can't be read.
    """
    config = load_fleet(path)
    now = SystemClock().now_unix_ms()
    patterns = patterns_of(config)
    places, unanswered = found(patterns)
    for _, error in unanswered:
        raise error
    members = [
        Member(place=place, url=url, entry=entry, changed_ms=now)
        for url, (place, entry) in sorted(places.items())
    ]
    checked = {
        entry.at: [
            table
            for member in members
            if member.entry is entry and (table := _checked(member, now, config.zone)) is not None
        ]
        for entry in config.entries
    }
    _check_copies(config, [m for m in members if m.version or not m.entry.is_pattern])
    if as_json:
        _print_json(config, checked, now)
    else:
        none = {pattern.entry.at: _none_text(pattern, checked) for pattern in patterns}
        _print(path, config, checked, none, now)
    failures = [t for tables in checked.values() for t in tables if t.error is not None]
    if failures:
        tables = counted(sum(map(len, checked.values())), "table")
        raise JobError(f"{len(failures)} of {tables} can't be read: {failures[0].error}")


def _checked(member: Member, now: int, zone: ZoneInfo) -> CheckedTable | None:
    """Returns None for a folder that a pattern matches and that is no table."""
    error = None
    left: tuple[int, ...] = ()
    try:
        if has_table(member.place):
            log = CommitLog(member.place.root.within(member.place.path))
            entry = member.entry
            driver = Driver(log, DriverSettings(policy=entry.policy, compaction=entry.compaction))
            plan = driver.plan(log.current())
            member.version = log.latest.version
            left = tuple(spec.size_bytes for spec in plan.specs)
        elif member.entry.is_pattern:
            return None
    except (CompactorError, FormatError) as caught:
        error = str(caught)
    return CheckedTable(
        table=member.url,
        version=member.version,
        due=len(left),
        next_bytes=next(iter(left), 0),
        chores={
            str(chore): utc_time(max(when, now) / 1000) for chore, when in due_of(member, now, zone)
        },
        error=error,
    )


class _Claim(NamedTuple):
    """A folder that a table has, or its copy."""

    address: str
    member: Member
    is_copy: bool


def _check_copies(config: FleetConfig, members: Sequence[Member]) -> None:
    """Raises `ConfigError` if a copy and a table, or two copies, would be in each other."""
    claims = [claim for member in members for claim in _claims(member)]
    at: dict[str, list[_Claim]] = {}
    for claim in claims:
        at.setdefault(claim.address, []).append(claim)

    def number(claim: _Claim) -> int:
        return config.entries.index(claim.member.entry)

    for claim in claims:
        for above in (a for folder in _and_above(claim.address) for a in at.get(folder, ())):
            if above is claim or not (above.is_copy or claim.is_copy):
                continue
            # The copy of the later entry is the one to move.
            other, copy = sorted((claim, above), key=lambda each: (each.is_copy, number(each)))
            raise config.mistake_in(number(copy), _overlap(copy, other))


def _claims(member: Member) -> Iterator[_Claim]:
    yield _Claim(member.url.rstrip("/"), member, is_copy=False)
    if (rules := member.entry.publish) is not None:
        to = address_of(rules.of_table(member.place.name).to)
        yield _Claim(to.rstrip("/"), member, is_copy=True)


def _and_above(address: str) -> Iterator[str]:
    """Yields an address and the folders above it."""
    while address:
        yield address
        address = address.rpartition("/")[0]


def _overlap(copy: _Claim, other: _Claim) -> UsageError:
    if not other.is_copy:
        return overlap(other.address, copy.address)
    return UsageError(
        f"{copy.address}: overlaps the copy of {other.member.url}: name a folder of its own"
    )


def _none_text(pattern: Pattern, checked: dict[str, list[CheckedTable]]) -> str:
    """Says why an entry has no table; empty for one that has some."""
    if checked[pattern.entry.at]:
        return ""
    owners = {identity(t.table): at for at, tables in checked.items() for t in tables}
    folders = [identity(place.url) for place in pattern.places()]
    theirs = [owners[folder] for folder in folders if folder in owners]
    if not theirs:
        return "no table yet"
    matching = "the one that matches belongs"
    if len(theirs) > 1:
        matching = f"the {len(theirs)} that match belong"
    return f"no table of its own: {matching} to {', '.join(dict.fromkeys(theirs))}"


def _print(
    path: str,
    config: FleetConfig,
    checked: dict[str, list[CheckedTable]],
    none: dict[str, str],
    now: int,
) -> None:
    tables = sum(map(len, checked.values()))
    entries = counted(len(config.entries), "entry", "entries")
    echo_line(f"{path}: {entries}, {counted(tables, 'table')}; nothing was changed")
    for entry in config.entries:
        echo_line(f"{entry.at}: {_rules_text(entry, config, now)}")
        if not checked[entry.at]:
            echo_line(f"  {none[entry.at]}")
        for table in checked[entry.at]:
            echo_line(f"  {table.table}: {_table_text(table)}")


def _rules_text(entry: Entry, config: FleetConfig, now: int) -> str:
    parts = [f"priority {entry.priority}", f"share {entry.share:g}"]
    if entry.quiet:
        windows = ", ".join(window.text for window in entry.quiet)
        is_now = " (now)" if is_within(entry.quiet, now, config.zone) else ""
        parts.append(f"quiet {windows} {config.zone.key}{is_now}")
    if entry.properties:
        parts.append(properties_text(entry.properties))
    return "; ".join(parts)


def _table_text(table: CheckedTable) -> str:
    if table.error is not None:
        return f"can't be read: {table.error}"
    if not table.version:
        return "no table here yet"
    due = "nothing due"
    if table.due:
        due = f"{counted(table.due, 'merge')} due, the next of {human_bytes(table.next_bytes)}"
    chores = [f"{chore} {when}" for chore, when in table.chores.items()]
    return "; ".join([f"version {table.version}", due, *chores])


def _print_json(config: FleetConfig, checked: dict[str, list[CheckedTable]], now: int) -> None:
    def document(entry: Entry, tables: Sequence[CheckedTable]) -> dict[str, Any]:
        return {
            "at": entry.at,
            "priority": entry.priority,
            "share": entry.share,
            "is_quiet": is_within(entry.quiet, now, config.zone),
            "settings": dict(entry.properties),
            "tables": [plain_dict(table) for table in tables],
        }

    echo_json({"entries": [document(entry, checked[entry.at]) for entry in config.entries]})
