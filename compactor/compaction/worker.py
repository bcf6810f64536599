"""Runs the loop over tables: decide, run, commit outcomes, until nothing is due or it is told to stop."""

from __future__ import annotations

import contextlib
import functools
import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import Struct, field

from compactor.common.clock import Clock, SystemClock
from compactor.common.counts import counted
from compactor.common.second_tries import backoff_seconds
from compactor.compaction.compact_report import CompactReport, explain_lost, refuse
from compactor.compaction.compaction import Outcome
from compactor.compaction.driver import Driver, FinishedCompaction
from compactor.compaction.engine import Engine
from compactor.compaction.listener import Listener
from compactor.errors import CompactorError, ConfigError, JobError, MachineError, TableNotFoundError
from compactor.planner.debt import debt_of
from compactor.table.snapshot import Snapshot
from lsm_fragment.errors import FormatError

_MAX_BACKOFF_SECONDS: Final = 60.0
_ALL: Final = 1 << 30
_DRAIN_POLL_SECONDS: Final = 0.5
_SETTLE_SECONDS: Final = 5.0
"""The longest wait for outcomes; leases are renewed in between."""


class _WatchedTable(Struct):
    """A driver, and how its table fares."""

    driver: Driver
    uncommitted: list[Outcome] = field(default_factory=list)
    """Outcomes that ended, but could not be committed since the log could not be reached."""
    failures: int = 0
    """Number of failures in a row."""
    not_before_ms: int = 0
    debt_at: tuple[int, float] = (-1, 0.0)

    @property
    def ended(self) -> int:
        """Number of ended compactions whose outcomes are not in the log yet."""
        return len({outcome.compaction_id for outcome in self.uncommitted})

    @property
    def in_engine(self) -> int:
        return self.driver.running - self.ended

    def take(self, outcomes: Sequence[Outcome]) -> None:
        """Keeps the outcomes of this table until they are committed."""
        self.uncommitted += [o for o in outcomes if self.driver.owns(o.compaction_id)]

    def debt_score(self) -> float:
        """Returns the debt score, computed once for each version."""
        snapshot = self.driver.log.latest
        if self.debt_at[0] != snapshot.version:
            self.debt_at = snapshot.version, 0.0
            # Where properties contradict the options, the next decision of this table says so.
            with contextlib.suppress(ConfigError):
                score = debt_of(snapshot, self.driver.policy_for(snapshot)).score
                self.debt_at = snapshot.version, score
        return self.debt_at[1]


class Turn(NamedTuple):
    """A table that is decided on in a round of the loop."""

    driver: Driver
    most: int
    """The most compactions to begin; 0 only commits what takes no work."""


class Rounds(Protocol):
    """Chooses the tables of each round of a worker that runs until it is stopped."""

    def turns(self, free_slots: int) -> Sequence[Turn]:
        """Returns the tables of a round, in order. Drivers not seen before are new to the worker."""
        ...

    def closed(self) -> Sequence[Driver]:
        """Returns drivers that the worker has to forget; they are at rest."""
        ...

    def pause_seconds(self) -> float:
        """Returns how long to wait for the next round if nothing happens, and no compaction ends."""
        ...


class Worker:
    """A worker, which runs what is due in tables, most debt first. Used from one thread."""

    def __init__(
        self,
        drivers: Sequence[Driver],
        engine: Engine,
        *,
        clock: Clock | None = None,
        listener: Listener | None = None,
    ) -> None:
        self._by_url = {driver.url: _WatchedTable(driver) for driver in drivers}
        self._engine = engine
        self._clock = clock or SystemClock()
        self._listener = listener or Listener()

    def run_until_idle(self) -> list[FinishedCompaction]:
        """Runs until nothing is due and no failed compaction is to be tried again.

        Raises the errors of a table's log, after freeing its leases.
        """
        finished: list[FinishedCompaction] = []
        try:
            while True:
                for table in self._tables:
                    # All at once: what one plan merges side by side, later plans would merge one after the
                    # other.
                    self._decide(table, _ALL)
                if not self._running:
                    if not self._wait_for_retry():
                        return finished
                    continue
                outcomes = self._engine.wait(_SETTLE_SECONDS)
                for table in self._tables:
                    table.take(outcomes)
                    finished += self._commit_outcomes(table)
                self._listener.turned()
        finally:
            self._free()

    def run(
        self,
        stop: threading.Event,
        *,
        poll_seconds: float,
        drain_seconds: float,
        rounds: Rounds | None = None,
    ) -> None:
        """Runs until `stop` is set; then compactions may end within `drain_seconds`, the rest is given up.

        rounds: chooses tables and pauses; by default all tables, most debt first, every `poll_seconds`.
        """
        try:
            while not stop.is_set():
                turns = self._all_ready() if rounds is None else self._turns(rounds)
                happened = self._step(turns, rounds)
                self._listener.turned()
                if not happened and not self._in_engine:
                    stop.wait(poll_seconds if rounds is None else rounds.pause_seconds())
            deadline = self._clock.now_unix_ms() + drain_seconds * 1000
            while self._running and self._clock.now_unix_ms() < deadline:
                if not self._step([]) and not self._in_engine:
                    self._clock.sleep(_DRAIN_POLL_SECONDS)
                self._listener.turned()
        finally:
            self._free()

    @property
    def _tables(self) -> Collection[_WatchedTable]:
        return self._by_url.values()

    @property
    def _running(self) -> int:
        return sum(table.driver.running for table in self._tables)

    @property
    def _in_engine(self) -> int:
        """Number of compactions that have not ended; those that only wait for the log do not count."""
        return sum(table.in_engine for table in self._tables)

    def _all_ready(self) -> list[tuple[_WatchedTable, int]]:
        ready = [table for table in self._tables if self._is_ready(table)]
        if len(ready) > 1:
            ready.sort(key=lambda table: -table.debt_score())
        return [(table, _ALL) for table in ready]

    def _turns(self, rounds: Rounds) -> list[tuple[_WatchedTable, int]]:
        turns = rounds.turns(max(0, self._engine.slots - self._running))
        for driver in rounds.closed():
            self._by_url.pop(driver.url, None)
        tables = [
            (self._by_url.setdefault(driver.url, _WatchedTable(driver)), most)
            for driver, most in turns
        ]
        return [(table, most) for table, most in tables if self._is_ready(table)]

    def _is_ready(self, table: _WatchedTable) -> bool:
        # No pause is longer than the maximum; if one seems to be, a clock went back.
        left_ms = table.not_before_ms - self._clock.now_unix_ms()
        return not 0 < left_ms <= _MAX_BACKOFF_SECONDS * 1000

    def _step(
        self, turns: Sequence[tuple[_WatchedTable, int]], rounds: Rounds | None = None
    ) -> bool:
        """Makes one round. Returns whether anything happened. A failing table does not stop the others.

        turns: tables, and the most compactions that each may begin. rounds: bounds the wait for compactions.
        """
        started = 0
        for table, most in turns:
            free = min(most, self._engine.slots - self._running)
            started += self._guarded(table, functools.partial(self._decide, most=free))
        # Even with nothing to wait for, the engine is asked whether it can still run compactions.
        seconds = _SETTLE_SECONDS if self._in_engine else 0.0
        if seconds and rounds is not None:
            seconds = min(seconds, rounds.pause_seconds())
        outcomes = self._engine.wait(seconds)
        for table in self._tables:
            table.take(outcomes)
            if self._is_ready(table):
                self._guarded(table, lambda table: len(self._commit_outcomes(table)))
        return bool(started or outcomes)

    def _guarded(self, table: _WatchedTable, act: Callable[[_WatchedTable], int]) -> int:
        try:
            return act(table)
        except TableNotFoundError:
            table.not_before_ms = self._clock.now_unix_ms() + 1000
            self._listener.looked(table.driver)
            return 0
        except (CompactorError, FormatError) as error:
            table.failures += 1
            seconds = _backoff_seconds(table.failures)
            table.not_before_ms = self._clock.now_unix_ms() + round(seconds * 1000)
            self._listener.failed(table.driver, error, seconds)
            return 0

    def _decide(self, table: _WatchedTable, most: int) -> int:
        others = [each for each in self._tables if each is not table]
        beside = sum(each.in_engine for each in others)
        if self._quiet_for() not in (None, table):
            most = 0
        compactions = table.driver.decide(
            most, beside=beside, start_rss_bytes=self._engine.start_rss_bytes
        )
        table.failures = 0  # reset here: a commit without outcomes makes no request
        for compaction in compactions:
            self._engine.submit(compaction)
        if compactions:
            self._listener.decided(table.driver, compactions)
        self._listener.looked(table.driver)
        return len(compactions)

    def _quiet_for(self) -> _WatchedTable | None:
        """Returns the table for which the others begin nothing; None if there is none.

        It is one that runs what may end the worker, or else the first that waits to do so.
        """
        running = (t for t in self._tables if t.in_engine and t.driver.needs_quiet)
        waiting = (t for t in self._tables if t.driver.waits_for_quiet and self._is_ready(t))
        return next(running, None) or next(waiting, None)

    def _commit_outcomes(self, table: _WatchedTable) -> list[FinishedCompaction]:
        # One commit for all results, one for each failure: what was committed is reported even if the next
        # fails.
        done = [o for o in table.uncommitted if o.failure is None]
        failures = ([o] for o in table.uncommitted if o.failure is not None)
        finished: list[FinishedCompaction] = []
        for outcomes in (done, *failures):
            for item in table.driver.commit_outcomes(outcomes):
                finished.append(item)
                self._listener.finished(table.driver, item)
            table.uncommitted = [o for o in table.uncommitted if table.driver.owns(o.compaction_id)]
        if finished:
            self._listener.looked(table.driver)
        table.driver.prolong()
        return finished

    def _wait_for_retry(self) -> bool:
        """Sleeps until a failed compaction may be tried again. Returns whether there is one."""
        times = [table.driver.retry_unix_ms for table in self._tables]
        known = [time for time in times if time is not None]
        if known:
            self._clock.sleep(max(1, min(known) - self._clock.now_unix_ms()) / 1000)
        return bool(known)

    def _free(self) -> None:
        self._engine.cancel()
        for table in self._tables:
            # If the log can't be reached now, the leases expire by themselves.
            with contextlib.suppress(CompactorError):
                table.driver.give_up()


def compact(
    driver: Driver, engine: Engine, *, clock: Clock | None = None, listener: Listener | None = None
) -> CompactReport:
    """Compacts one table until nothing is due; every compaction is committed as it ends.

    Failed compactions are tried again and at last given up: the report names them, and the others are not
    lost. Raises `StoreError` and `TableError` of the log itself.
    """
    started = time.monotonic()
    worker = Worker([driver], engine, clock=clock, listener=listener)
    report = CompactReport(driver.log.current().version)
    report.finished = worker.run_until_idle()
    report.version = driver.log.latest.version
    report.seconds = time.monotonic() - started
    return report


def check_done(driver: Driver, report: CompactReport) -> None:
    """Raises if compactions are left over: `JobError`, `MachineError` if the machine had too little for them,
    or `ConfigError` if the memory limit is too low."""
    if report.lost:
        is_of_machine = all(lost.outcome.is_of_machine for lost in report.lost)
        raise (MachineError if is_of_machine else JobError)(explain_lost(report))
    refuse(driver.plan(driver.log.latest))
    check_quarantine(driver.log.latest)


def check_quarantine(snapshot: Snapshot) -> None:
    """Raises `JobError` if fragments are in quarantine, lest the table be taken for compacted."""
    if snapshot.quarantine:
        first = next(iter(snapshot.quarantine.values()))
        fragments = counted(len(snapshot.fragments), "fragment is", "fragments are")
        raise JobError(
            f"{len(snapshot.quarantine):,} of {fragments} in quarantine, and no compaction takes them. "
            "`compactor inspect` shows why; repair that (restore the objects, or give workers more memory), "
            "then run `compactor release TABLE --all`; or give up the rows of what can't be restored "
            f"(`compactor drop-fragment`). {first.key}: {first.reason}"
        )


def _backoff_seconds(failures: int) -> float:
    """Returns a wait that doubles from 0.5 s, with jitter, so that workers do not come back together."""
    return backoff_seconds(failures, 0.5, _MAX_BACKOFF_SECONDS) * random.uniform(0.5, 1)
