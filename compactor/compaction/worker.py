"""The loop: decide, run, settle, over one table or several, until nothing is due or until told to stop."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from compactor.common.clock import Clock, SystemClock
from compactor.compaction.attempt import Compaction, Outcome, total_report
from compactor.compaction.driver import Driver, Settled, backoff_seconds
from compactor.compaction.engine import Engine
from compactor.errors import CompactorError, ConfigError, JobError, TableNotFoundError
from compactor.planner.debt import debt_of
from compactor.planner.estimate import Estimate, total
from compactor.planner.spec import CompactionPlan
from compactor.settings.compaction import Policy
from compactor.table.snapshot import Snapshot
from format.errors import FormatError

_MAX_BACKOFF_SECONDS: Final = 60.0
_ALL: Final = 1 << 30
_DRAIN_POLL_SECONDS: Final = 0.5
_SETTLE_SECONDS: Final = 5.0
"""How long one wait for outcomes may last: claims are renewed in between."""


class Listener(Protocol):
    """Told what happens, for people and logs."""

    def decided(self, driver: Driver, compactions: Sequence[Compaction]) -> None: ...

    def settled(self, driver: Driver, settled: Settled) -> None: ...

    def failed(self, driver: Driver, error: Exception, retry_seconds: float) -> None:
        """A step of a table failed as a whole, such as when its store is unreachable."""
        ...

    def looked(self, driver: Driver) -> None:
        """The log was read or written: `driver.log.latest` is the newest known; version 0: no table yet."""
        ...

    def turned(self) -> None:
        """The loop has gone round once more: it is alive."""
        ...


class Silent:
    """A listener that does nothing."""

    def decided(self, driver: Driver, compactions: Sequence[Compaction]) -> None: ...

    def settled(self, driver: Driver, settled: Settled) -> None: ...

    def failed(self, driver: Driver, error: Exception, retry_seconds: float) -> None: ...

    def looked(self, driver: Driver) -> None: ...

    def turned(self) -> None: ...


class Listeners:
    """Several as one, told in that order."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        self._all = tuple(listeners)

    def decided(self, driver: Driver, compactions: Sequence[Compaction]) -> None:
        for each in self._all:
            each.decided(driver, compactions)

    def settled(self, driver: Driver, settled: Settled) -> None:
        for each in self._all:
            each.settled(driver, settled)

    def failed(self, driver: Driver, error: Exception, retry_seconds: float) -> None:
        for each in self._all:
            each.failed(driver, error, retry_seconds)

    def looked(self, driver: Driver) -> None:
        for each in self._all:
            each.looked(driver)

    def turned(self) -> None:
        for each in self._all:
            each.turned()


@dataclass(slots=True)
class CompactReport:
    """What became of the compactions of one table; `to_json` is the CLI's `--json` object."""

    version: int
    settled: list[Settled] = field(default_factory=list, repr=False)
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"version {self.version}: {len(self.done):,} compactions done, {len(self.void):,} void, "
            f"{len(self.failed):,} attempts failed"
        )

    @property
    def done(self) -> list[Settled]:
        return [s for s in self.settled if s.outcome.failure is None and not s.is_void]

    @property
    def void(self) -> list[Settled]:
        return [s for s in self.settled if s.is_void]

    @property
    def failed(self) -> list[Settled]:
        """Attempts that failed, of which a later one may have succeeded."""
        return [s for s in self.settled if s.outcome.failure is not None and not s.is_void]

    @property
    def lost(self) -> list[Settled]:
        """The last failed attempt of each compaction that never succeeded."""
        done = {key for s in self.done for key in _inputs(s)}
        last = {_inputs(s): s for s in self.failed if not done.issuperset(_inputs(s))}
        return list(last.values())

    @property
    def predicted(self) -> Estimate:
        return total(s.predicted for s in self.done)

    def to_json(self) -> dict[str, Any]:
        reports = [s.outcome.report for s in self.done if s.outcome.report is not None]
        return {
            "version": self.version,
            "tasks": len(self.done),
            "input_fragments": sum(len(s.compaction.spec.inputs) for s in self.done),
            "output_fragments": sum(len(s.outcome.outputs) for s in self.done),
            **total_report(reports),
            "seconds": round(self.seconds, 3),
            "predicted": self.predicted.to_json(),
            "void": len(self.void),
            "failures": [_failure_json(s) for s in self.failed],
        }


def _inputs(settled: Settled) -> tuple[str, ...]:
    return tuple(entry.key for entry in settled.compaction.spec.inputs)


def _failure_json(settled: Settled) -> dict[str, Any]:
    return {
        "compaction_id": settled.compaction.compaction_id,
        "inputs": list(_inputs(settled)),
        "reason": settled.outcome.failure,
        "quarantined": list(settled.quarantined),
    }


@dataclass(slots=True)
class _Table:
    """A driver and how its table fares."""

    driver: Driver
    unsettled: list[Outcome] = field(default_factory=list)
    """Ended, but the log could not be reached since."""
    failures: int = 0
    """In a row."""
    not_before_ms: int = 0
    debt_at: tuple[int, float] = (-1, 0.0)

    @property
    def ended(self) -> int:
        """Compactions of which the log has not been told yet."""
        return len({outcome.compaction_id for outcome in self.unsettled})

    @property
    def in_engine(self) -> int:
        return self.driver.running - self.ended

    def take(self, outcomes: Sequence[Outcome]) -> None:
        """Keeps those of this table until they are settled."""
        self.unsettled += [o for o in outcomes if self.driver.owns(o.compaction_id)]

    def debt_score(self, policy: Policy) -> float:
        """Worked out once a version."""
        snapshot = self.driver.log.latest
        if self.debt_at[0] != snapshot.version:
            self.debt_at = snapshot.version, debt_of(snapshot, policy).score
        return self.debt_at[1]


class Worker:
    """Runs what is due in some tables, those with most debt first. Used from one thread."""

    def __init__(
        self,
        drivers: Sequence[Driver],
        engine: Engine,
        *,
        policy: Policy,
        clock: Clock | None = None,
        listener: Listener | None = None,
    ) -> None:
        self._tables = [_Table(driver) for driver in drivers]
        self._engine = engine
        self._policy = policy
        self._clock = clock or SystemClock()
        self._listener = listener or Silent()

    def run_until_idle(self) -> list[Settled]:
        """Until nothing is due, and nothing that has failed is to be tried again.

        Raises the errors of a table's log; what was claimed is freed then.
        """
        settled: list[Settled] = []
        try:
            while True:
                for table in self._tables:
                    # All at once: what one plan merges side by side, later plans would merge in a row.
                    self._decide(table, _ALL)
                if not self._running:
                    if not self._wait_for_retry():
                        return settled
                    continue
                outcomes = self._engine.wait(_SETTLE_SECONDS)
                for table in self._tables:
                    table.take(outcomes)
                    settled += self._settle(table)
                self._listener.turned()
        finally:
            self._free()

    def run(self, stop: threading.Event, *, poll_seconds: float, drain_seconds: float) -> None:
        """Until `stop` is set: then what runs may end within the time given, the rest is given up."""
        try:
            while not stop.is_set():
                is_idle = not self._step(self._ready()) and not self._in_engine
                self._listener.turned()
                if is_idle:
                    stop.wait(poll_seconds)
            deadline = self._clock.now_unix_ms() + drain_seconds * 1000
            while self._running and self._clock.now_unix_ms() < deadline:
                if not self._step([]) and not self._in_engine:
                    self._clock.sleep(_DRAIN_POLL_SECONDS)
                self._listener.turned()
        finally:
            self._free()

    @property
    def _running(self) -> int:
        return sum(table.driver.running for table in self._tables)

    @property
    def _in_engine(self) -> int:
        """Compactions that have not ended: what has, and waits for the log, is not waited for."""
        return sum(table.in_engine for table in self._tables)

    def _ready(self) -> list[_Table]:
        ready = [table for table in self._tables if self._is_ready(table)]
        if len(ready) == 1:
            return ready
        return sorted(ready, key=lambda table: -table.debt_score(self._policy))

    def _is_ready(self, table: _Table) -> bool:
        # No pause is longer than the longest: a clock went back then.
        left_ms = table.not_before_ms - self._clock.now_unix_ms()
        return not 0 < left_ms <= _MAX_BACKOFF_SECONDS * 1000

    def _step(self, ready: Sequence[_Table]) -> bool:
        """Whether anything happened. What fails in one table does not stop the others."""
        started = sum(self._guarded(table, self._decide_some) for table in ready)
        # Without anything to wait for, it is asked all the same whether it still can run something.
        outcomes = self._engine.wait(_SETTLE_SECONDS if self._in_engine else 0.0)
        for table in self._tables:
            table.take(outcomes)
            if self._is_ready(table):
                self._guarded(table, lambda table: len(self._settle(table)))
        return bool(started or outcomes)

    def _guarded(self, table: _Table, act: Callable[[_Table], int]) -> int:
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

    def _decide_some(self, table: _Table) -> int:
        return self._decide(table, self._engine.slots - self._running)

    def _decide(self, table: _Table, most: int) -> int:
        others = [each for each in self._tables if each is not table]
        beside = sum(each.in_engine for each in others)
        if self._quiet_for() not in (None, table):
            most = 0
        compactions = table.driver.decide(most, beside=beside)
        table.failures = (
            0  # not after a settlement: with nothing to settle, that asks nothing of the store
        )
        for compaction in compactions:
            self._engine.submit(compaction)
        if compactions:
            self._listener.decided(table.driver, compactions)
        self._listener.looked(table.driver)
        return len(compactions)

    def _quiet_for(self) -> _Table | None:
        """Returns the table for which the others begin nothing: one that runs what may end the worker, or the
        first that waits for that."""
        running = (t for t in self._tables if t.in_engine and t.driver.needs_quiet)
        waiting = (t for t in self._tables if t.driver.waits_for_quiet and self._is_ready(t))
        return next(running, None) or next(waiting, None)

    def _settle(self, table: _Table) -> list[Settled]:
        # One commit for all results, one for each failure: what is committed is told, though the next fails.
        done = [o for o in table.unsettled if o.failure is None]
        failures = ([o] for o in table.unsettled if o.failure is not None)
        settled: list[Settled] = []
        for outcomes in (done, *failures):
            for item in table.driver.settle(outcomes):
                settled.append(item)
                self._listener.settled(table.driver, item)
            table.unsettled = [o for o in table.unsettled if table.driver.owns(o.compaction_id)]
        if settled:
            self._listener.looked(table.driver)
        table.driver.prolong()
        return settled

    def _wait_for_retry(self) -> bool:
        """Sleeps until what has failed may be tried again; whether there is such."""
        times = [table.driver.retry_unix_ms for table in self._tables]
        known = [time for time in times if time is not None]
        if known:
            self._clock.sleep(max(1, min(known) - self._clock.now_unix_ms()) / 1000)
        return bool(known)

    def _free(self) -> None:
        self._engine.cancel()
        for table in self._tables:
            # The claims expire by themselves, if the log can't be reached now.
            with contextlib.suppress(CompactorError):
                table.driver.give_up()


def compact(
    driver: Driver, engine: Engine, *, clock: Clock | None = None, listener: Listener | None = None
) -> CompactReport:
    """Compacts one table until nothing is due; every compaction is committed as it ends.

    Failed ones are tried again, at last given up: they are in the report, the others are not lost.
    Raises `StoreError` and `TableError` of the log itself.
    """
    started = time.monotonic()
    worker = Worker([driver], engine, policy=driver.policy, clock=clock, listener=listener)
    report = CompactReport(driver.log.current().version)
    report.settled = worker.run_until_idle()
    report.version = driver.log.latest.version
    report.seconds = time.monotonic() - started
    return report


def refuse(plan: CompactionPlan) -> None:
    """Raises `ConfigError` for what the memory limit does not allow."""
    if plan.refused:
        others = f" ({len(plan.refused) - 1} more like it)" if len(plan.refused) > 1 else ""
        raise ConfigError(
            f"{plan.refused[0]}{others}; nothing of it was begun, its inputs stay live"
        )


def check_quarantine(snapshot: Snapshot) -> None:
    """Raises `JobError` if fragments are in quarantine: nobody is to take the table for compacted."""
    if snapshot.quarantine:
        first = next(iter(snapshot.quarantine.values()))
        raise JobError(
            f"{len(snapshot.quarantine)} of {len(snapshot.fragments)} fragments are in quarantine, and no "
            "compaction takes them: `compactor inspect` shows why; mend that (restore the objects, or give "
            f"workers more memory), then `compactor release TABLE --all`. {first.key}: {first.reason}"
        )


def explain_lost(report: CompactReport) -> str:
    """What became of compactions that failed for good, for the error that says so."""
    first = report.lost[0]
    quarantined = sum(len(s.quarantined) for s in report.failed)
    state = (
        f"{quarantined} fragments are in quarantine now"
        if quarantined
        else "its inputs stay live, for the next run to try again"
    )
    attempts = "1 attempt" if first.attempt == 1 else f"{first.attempt} attempts"
    return (
        f"{len(report.lost)} of {len(report.done) + len(report.lost)} compactions failed for good after "
        f"{attempts}, {state}, the other {len(report.done)} are committed. "
        f"{first.outcome.failure}"
    )


def _backoff_seconds(failures: int) -> float:
    """Doubling from half a second, with jitter, so that several workers do not come back together."""
    return backoff_seconds(failures, 0.5, _MAX_BACKOFF_SECONDS) * random.uniform(0.5, 1)
