"""The rounds of a worker over a fleet: asks for news, looks at tables that have some, chooses what begins.

A **look** opens a table and plans it; it also commits what takes no work, and drops what is past retention.
Snapshots of tables at rest are given up when there are many, so memory is bounded by the tables with work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from compactor.common.clock import Clock, SystemClock
from compactor.common.second_tries import backoff_seconds
from compactor.compaction.compaction import Compaction
from compactor.compaction.driver import Driver, FinishedCompaction
from compactor.compaction.listener import Listener
from compactor.compaction.worker import Turn
from compactor.errors import CompactorError, ConfigError
from compactor.fleet.agenda import Agenda, OpenJob, retention_ms
from compactor.fleet.chores import Runner, ThreadRunner
from compactor.fleet.finding import newest_etag
from compactor.fleet.member import Member
from compactor.fleet.pacing import poll_seconds
from compactor.fleet.roster import Roster, Source
from compactor.fleet.scheduler import Shares, Waiting
from compactor.fleet.state import TableState
from compactor.fleet.times import is_within
from compactor.fleet.told import Told
from compactor.planner.debt import SLOW_SCORE, debt_of
from lsm_fragment.threads import ThreadPool

_POLLS: Final = 256
"""Ask this many logs for news in one round, so that leases are renewed in between."""
_POLLERS: Final = 16
_LOOKS: Final = 16
"""Look at this many tables in one round."""
_MAX_OPEN_TABLES: Final = 64
_MAX_OPEN_FRAGMENTS: Final = 200_000
"""Keep the snapshots of this many fragments of tables at rest, some 200 MB, and of so many tables."""
_FIRST_POLL_BACKOFF_SECONDS: Final = 2.0
_MAX_POLL_BACKOFF_SECONDS: Final = 300.0
_MAX_PAUSE_SECONDS: Final = 10.0
"""Read the file this often, however seldom tables are asked. Long pauses would look like a stalled loop."""

OpenDriver: TypeAlias = Callable[[Member], Driver]


class Fleet(Listener):
    """The rounds of one worker, and a listener that learns from them. Used from the worker's thread."""

    def __init__(
        self,
        source: Source,
        open_driver: OpenDriver,
        open_job: OpenJob,
        told: Told,
        *,
        clock: Clock | None = None,
        runner: Runner | None = None,
        pollers: int = _POLLERS,
    ) -> None:
        """Raises what `Roster` raises. pollers: requests for news at a time; 1 starts no threads."""
        self._clock = clock or SystemClock()
        self._roster = Roster(source, told, self._clock)
        self._open_driver = open_driver
        self._told = told
        self._shares = Shares()
        self._charged: dict[str, list[Waiting]] = {}
        """Merges that were chosen, by table, and of which the worker has not told that they began."""
        self._agenda = Agenda(runner or ThreadRunner(), open_job, told)
        self._just_finished: set[str] = set()
        self._has_new_work = False
        """Whether merges became due in the last round, and could begin in the next."""
        self._pool = ThreadPool(pollers) if pollers > 1 else None
        self._open: dict[str, Member] = {}
        """Members with drivers, the one used last at the end."""
        self._closed: list[Driver] = []
        self._report_ms = 0

    # --- rounds ---

    def turns(self, free_slots: int) -> Sequence[Turn]:
        self._roster.refresh()
        self._has_new_work = False
        now = self._now()
        self._agenda.take_ended(self._roster.members, now)
        self._ask(now)
        self._close_idle()
        looks = self._looks(now)
        chosen = self._chosen(now, free_slots)
        self._agenda.start_next(self._roster.members, now, self._roster.config.zone)
        if now >= self._report_ms:
            self._report_ms = now + round(self._roster.config.report_seconds * 1000)
            self._told.reported(self.states())
        most = {member.url: 0 for member in looks}
        for member in chosen:
            most[member.url] = most.get(member.url, 0) + 1
        return [Turn(self._driver(self._roster.members[url]), n) for url, n in most.items()]

    def closed(self) -> Sequence[Driver]:
        closed, self._closed = self._closed, []
        return closed

    def pause_seconds(self) -> float:
        now, members = self._now(), self._roster.members.values()
        if self._has_new_work or any(m.is_to_look and _is_ready(m, now) for m in members):
            return 0.0
        due = [self._roster.find_ms, self._report_ms, *(member.poll_ms for member in members)]
        due += [member.look_ms for member in members if member.look_ms is not None]
        longest = min(self._roster.config.poll_seconds, _MAX_PAUSE_SECONDS)
        # What is due within a second is done in one round, but for chores, of which a round starts one.
        pause = max(1.0, min(longest, (min(due) - now) / 1000))
        chore_ms = self._agenda.next_ms(self._roster.members, now, self._roster.config.zone)
        return pause if chore_ms is None else min(pause, max(0, chore_ms - now) / 1000)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def states(self) -> list[TableState]:
        """Returns how each table is, those that wait longest first."""
        now = self._now()
        quiet = self._quiet(now)
        states = [
            member.state(now, is_quiet=member.entry.at in quiet)
            for member in self._roster.members.values()
            if not member.has_left
        ]
        return sorted(states, key=lambda state: (-state.waiting_seconds, state.table))

    # --- news ---

    def _ask(self, now: int) -> None:
        """Asks the logs that are due for news, longest due first."""
        due = [m for m in self._roster.members.values() if m.poll_ms <= now and not m.has_left]
        due = sorted(due, key=lambda member: member.poll_ms)[:_POLLS]
        answers: Iterable[bool | CompactorError] = (
            map(_news_of, due) if self._pool is None else self._pool.each(_news_of, due)
        )
        for member, answer in zip(due, list(answers), strict=True):
            if isinstance(answer, CompactorError):
                member.failures += 1
                seconds = backoff_seconds(
                    member.failures, _FIRST_POLL_BACKOFF_SECONDS, _MAX_POLL_BACKOFF_SECONDS
                )
                self._told.warned(member.url, answer, seconds)
            else:
                member.failures = 0
                if answer:
                    member.changed_ms, member.is_to_look = now, True
                config = self._roster.config
                seconds = poll_seconds(
                    (now - member.changed_ms) / 1000,
                    config.poll_seconds,
                    config.slowest_poll_seconds,
                )
            member.poll_ms = now + round(seconds * 1000)

    def _looks(self, now: int) -> list[Member]:
        looks: list[Member] = []
        for member in self._roster.members.values():
            if member.look_ms is not None and member.look_ms <= now:
                member.look_ms, member.is_to_look = None, True
            if member.is_to_look and _is_ready(member, now) and len(looks) < _LOOKS:
                looks.append(member)
        return looks

    def _driver(self, member: Member) -> Driver:
        self._open.pop(member.url, None)
        self._open[member.url] = member
        if member.driver is None:
            member.driver = self._open_driver(member)
            member.has_new_rules = False
        return member.driver

    def _close_idle(self) -> None:
        """Closes the drivers that are at rest: those used longest ago beyond what may stay open."""
        fragments = sum(_fragments(member) for member in self._open.values())
        for url, member in list(self._open.items()):
            is_many = len(self._open) > _MAX_OPEN_TABLES or fragments > _MAX_OPEN_FRAGMENTS
            has_to = member.has_left or member.has_new_rules
            if not (is_many or has_to) or not member.can_close:
                continue
            # The last look may have been by the old rules.
            member.is_to_look = member.is_to_look or member.has_new_rules
            fragments -= _fragments(member)
            assert member.driver is not None
            self._closed.append(member.driver)
            self._told.closed(url)
            member.driver = None
            del self._open[url]
        for url, member in list(self._roster.members.items()):
            if member.has_left and member.driver is None:
                self._roster.drop(url)

    # --- the choice ---

    def _quiet(self, now: int) -> frozenset[str]:
        """Returns the entries that are in their quiet hours."""
        config = self._roster.config
        quiet = (e.at for e in config.entries if is_within(e.quiet, now, config.zone))
        return frozenset(quiet)

    def _chosen(self, now: int, free_slots: int) -> list[Member]:
        for not_begun in (each for several in self._charged.values() for each in several):
            self._shares.take_back(not_begun)
        self._charged.clear()
        quiet = self._quiet(now)
        for member in self._open.values():
            if member.driver is not None and not member.may_begin(quiet):
                member.driver.waits_for_quiet = False  # or it would hold up all others for hours
        waiting = {
            member.url: list(member.left_bytes)
            for member in self._roster.members.values()
            if member.left_bytes and member.may_begin(quiet) and _is_ready(member, now)
        }
        chosen: list[Member] = []
        for _ in range(free_slots):
            several = [
                _waiting(self._roster.members[url], sizes[0], now)
                for url, sizes in waiting.items()
                if sizes
            ]
            choice = self._shares.choose(several, now)
            if choice is None:
                break
            waiting[choice.table].pop(0)
            self._charged.setdefault(choice.table, []).append(choice)
            chosen.append(self._roster.members[choice.table])
        return chosen

    # --- what the worker tells ---

    def decided(self, driver: Driver, compactions: Sequence[Compaction]) -> None:
        member = self._roster.members.get(driver.url)
        del self._charged.get(driver.url, [])[: len(compactions)]
        if member is not None and compactions:
            member.since_ms = None  # the rest waits from now on

    def finished(self, driver: Driver, finished: FinishedCompaction) -> None:  # noqa: ARG002
        self._just_finished.add(driver.url)

    def failed(self, driver: Driver, error: Exception, retry_seconds: float) -> None:  # noqa: ARG002
        member = self._roster.members.get(driver.url)
        if member is not None:
            member.retry_ms = self._now() + round(retry_seconds * 1000)
            member.is_to_look = True

    def looked(self, driver: Driver) -> None:
        member, latest = self._roster.members.get(driver.url), driver.log.latest
        if member is None:
            return
        now = self._now()
        if not member.is_read and latest.version and member.entry.is_pattern:
            self._told.joined(member.url, member.entry.at)
        if latest.version != member.version:
            member.changed_ms = now if member.is_read else min(now, latest.committed_unix_ms)
            if latest.version < member.version:
                member.published = -1  # another table has taken its place
            member.version, member.etag = latest.version, None
            try:
                member.debt = debt_of(latest, driver.policy_for(latest)).score
            except ConfigError:
                member.debt = 0.0  # the next decision on this table says so
        member.is_read, member.retry_ms = True, None
        # After a commit of outcomes, the table has not been planned anew.
        member.is_to_look = driver.url in self._just_finished
        self._just_finished.discard(driver.url)
        member.left_bytes = driver.left_bytes
        if not driver.left_bytes:
            member.since_ms = None
        elif member.since_ms is None:
            member.since_ms, self._has_new_work = now, True
        member.look_ms = self._next_look(member, driver, now)

    def _next_look(self, member: Member, driver: Driver, now: int) -> int:
        """Returns when something may be due although the log has no news."""
        times = [retention_ms(member, now, self._roster.config.zone)]
        if driver.retry_unix_ms is not None:
            times.append(driver.retry_unix_ms)
        others = driver.log.latest.leases.values()
        times += [lease.expires_unix_ms for lease in others if not driver.owns(lease.compaction_id)]
        return max(now + 1000, min(times))

    def _now(self) -> int:
        return self._clock.now_unix_ms()


def _news_of(member: Member) -> bool | CompactorError:
    try:
        etag = newest_etag(member.place, member.version)
    except CompactorError as error:
        return error
    known, member.etag = member.etag, etag
    return etag is None or known not in (None, etag)


def _is_ready(member: Member, now: int) -> bool:
    return not member.has_left and (member.retry_ms is None or member.retry_ms <= now)


def _fragments(member: Member) -> int:
    return 0 if member.driver is None else len(member.driver.log.latest.fragments)


def _waiting(member: Member, next_bytes: int, now: int) -> Waiting:
    entry = member.entry
    return Waiting(
        table=member.url,
        entry=entry.at,
        priority=entry.priority,
        share=entry.share,
        since_unix_ms=now if member.since_ms is None else member.since_ms,
        longest_wait_seconds=entry.longest_wait_seconds,
        next_bytes=next_bytes,
        holds_up_writers=member.debt >= SLOW_SCORE,
    )
