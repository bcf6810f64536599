"""When the vacuum, the publication and the look for retention of each table are due, and which runs next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import tzinfo
from typing import Final, TypeAlias

from compactor.common.second_tries import backoff_seconds
from compactor.fleet.chores import Chore, Job, Runner
from compactor.fleet.config import PublishRules, RetentionRules, VacuumRules
from compactor.fleet.member import Member
from compactor.fleet.times import first_within, next_run
from compactor.fleet.told import Told
from compactor.lakes.publish_report import PublishReport

_FIRST_RETRY_SECONDS: Final = 60.0
_MAX_RETRY_SECONDS: Final = 3600.0
_FIRST_CHECK_MS: Final = 50
_CHECK_DIVISOR: Final = 4
"""Check whether a chore is over after at most a quarter of its time, so short ones follow closely and long
ones cost few rounds."""

OpenJob: TypeAlias = Callable[[Member, Chore], Job]


class Agenda:
    """The chores of a fleet, which run one at a time, the longest due first."""

    def __init__(self, runner: Runner, open_job: OpenJob, told: Told) -> None:
        self._runner, self._open_job, self._told = runner, open_job, told
        self._failures: Counter[tuple[str, Chore]] = Counter()
        self._started_ms = self._started_version = 0

    def take_ended(self, members: Mapping[str, Member], now: int) -> None:
        """Tells of chores that are over, and plans what failed once more."""
        for ended in self._runner.ended():
            self._told.ended(ended)
            job, key = ended.job, (ended.job.table, ended.job.chore)
            member = members.get(job.table)
            if ended.error is not None:
                self._failures[key] += 1
                seconds = backoff_seconds(
                    self._failures[key], _FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS
                )
                if member is not None:
                    member.due_ms[job.chore] = now + round(seconds * 1000)
                self._told.warned(f"{job.chore} of {job.table}", ended.error, seconds)
                continue
            del self._failures[key]
            # A lower version is that of another table, which has taken its place meanwhile.
            is_same = member is not None and member.version >= self._started_version
            if member is not None and is_same and isinstance(ended.report, PublishReport):
                member.published = ended.report.version

    def start_next(self, members: Mapping[str, Member], now: int, zone: tzinfo) -> None:
        """Starts the chore that has been due for longest, if none runs."""
        if not self._runner.is_free:
            return
        due = [start for start in _starts(members, now, zone) if start[0] <= now]
        if due:
            _, url, chore = min(due)
            job = self._open_job(members[url], chore)
            members[url].due_ms[chore] = _planned(members[url], chore, now, zone)
            self._started_ms, self._started_version = now, members[url].version
            self._runner.start(job)

    def next_ms(self, members: Mapping[str, Member], now: int, zone: tzinfo) -> int | None:
        """Returns when the next chore starts, or the one that runs may be over; None without chores."""
        if not self._runner.is_free:
            return now + max(_FIRST_CHECK_MS, (now - self._started_ms) // _CHECK_DIVISOR)
        return min((when for when, _, _ in _starts(members, now, zone)), default=None)


def _starts(
    members: Mapping[str, Member], now: int, zone: tzinfo
) -> Iterator[tuple[int, str, Chore]]:
    """Yields when each chore may start: when it is due, or in the next of its windows.

    Others, or its failure, may have held it up until after the window in which it was due.
    """
    for member in members.values():
        if member.version and not member.has_left:
            for chore, when in due_of(member, now, zone):
                if when <= now:
                    open_ms = first_within(_rules(member, chore).between, now, zone)
                    when = when if open_ms == now else open_ms
                yield when, member.url, chore


def due_of(member: Member, now: int, zone: tzinfo) -> Iterator[tuple[Chore, int]]:
    """Yields when each chore of the thread is due for a table, by its rules and what was done."""
    entry = member.entry
    if entry.vacuum is not None:
        yield Chore.VACUUM, _remembered(member, Chore.VACUUM, now, zone)
    publish = entry.publish
    if publish is not None and member.version > member.published:
        planned = member.due_ms.get(Chore.PUBLISH, 0)
        if publish.every is not None:
            planned = _remembered(member, Chore.PUBLISH, now, zone)
        yield Chore.PUBLISH, first_within(publish.between, max(planned, member.changed_ms), zone)


def retention_ms(member: Member, now: int, zone: tzinfo) -> int:
    """Returns when a table without news is looked at, to drop what is past retention."""
    return _planned(member, Chore.RETENTION, now, zone)


def _remembered(member: Member, chore: Chore, now: int, zone: tzinfo) -> int:
    if chore not in member.due_ms:
        member.due_ms[chore] = _planned(member, chore, now, zone)
    return member.due_ms[chore]


def _planned(member: Member, chore: Chore, now: int, zone: tzinfo) -> int:
    rules = _rules(member, chore)
    if rules.every is None:
        return now
    return next_run(f"{chore} {member.url}", rules.every, rules.between, now, zone)


def _rules(member: Member, chore: Chore) -> VacuumRules | PublishRules | RetentionRules:
    rules = {
        Chore.VACUUM: member.entry.vacuum,
        Chore.PUBLISH: member.entry.publish,
        Chore.RETENTION: member.entry.retention,
    }[chore]
    assert rules is not None, "asked only for chores that the entry has"
    return rules
