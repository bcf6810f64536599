"""Back-pressure: slows down or stops writers according to compaction debt."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from compactor.common.clock import Clock, SystemClock
from compactor.common.counts import counted
from compactor.common.setting_keys import BACK_PRESSURE
from compactor.errors import BackPressureError
from compactor.planner.debt import SLOW_SCORE, Debt, Pressure, debt_of
from compactor.planner.plan import plan_compactions
from compactor.settings.compaction import CompactionSettings, Policy
from compactor.settings.properties import tuned
from compactor.table.commit_log import CommitLog

_SLOW_SECONDS: Final = 5.0
"""Maximum pause before a commit while writers should slow down; less debt means a shorter pause."""
_POLL_SECONDS: Final = 2.0


class Reaction(StrEnum):
    """A writer's reaction to compaction debt."""

    WARN = "warn"
    """Report it and continue."""
    WAIT = "wait"
    """Pause while writers should slow down, wait while they should stop."""
    OFF = "off"


class BackPressure:
    """A gate that a writer passes before each file.

    It judges as compactions do: by the properties of the table, unless it is told otherwise. A writer never
    waits for compactions that are not due: they would wait for each other.
    """

    def __init__(
        self,
        reaction: Reaction,
        *,
        policy: Policy | None = None,
        settings: CompactionSettings | None = None,
        max_wait_seconds: float = 600.0,
        clock: Clock | None = None,
    ) -> None:
        self._reaction = reaction
        self._policy = policy or Policy()
        self._settings = settings or CompactionSettings()
        self._max_wait_seconds = max_wait_seconds
        self._clock = clock or SystemClock()

    def admit(self, log: CommitLog, say: Callable[[Debt], None] = lambda _: None) -> None:
        """Returns when the next file may be written. say: called with debt that is not healthy.

        Raises `BackPressureError` if compaction does not catch up within the maximum wait.
        """
        if self._reaction is Reaction.OFF:
            return
        debt = self._look(log)
        if debt.pressure is not Pressure.HEALTHY:
            say(debt)
        if self._reaction is Reaction.WAIT:
            self._wait(log, debt)

    def _wait(self, log: CommitLog, debt: Debt) -> None:
        waited = 0.0
        while debt.pressure is Pressure.STOP and self._is_any_due(log):
            if waited >= self._max_wait_seconds:
                raise BackPressureError(
                    f"{log.store.url}: waited {waited:.0f} s for compaction to catch up: "
                    f"{counted(debt.level0_runs, 'sorted run')} at level 0, {debt.pending_bytes:,} "
                    "bytes to compact. "
                    "Run `compactor watch` or `compactor compact` beside the ingest, or ingest with ",
                    BACK_PRESSURE,
                    " warn",
                )
            self._clock.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
            debt = self._look(log)
        if debt.pressure is not Pressure.HEALTHY:
            share = min(1.0, (debt.score - SLOW_SCORE) / (1 - SLOW_SCORE))
            self._clock.sleep(_SLOW_SECONDS * share)

    def _look(self, log: CommitLog) -> Debt:
        return debt_of(log.refresh(), self._policy)

    def _is_any_due(self, log: CommitLog) -> bool:
        """Says whether compactions run, or are due, or would be if they were not held up."""
        snapshot = log.latest
        plan = plan_compactions(
            snapshot,
            tuned(self._policy, snapshot.properties),
            tuned(self._settings, snapshot.properties),
            self._clock.now_unix_ms(),
        )
        held_up = plan.blocked or plan.refused or snapshot.quarantine
        return bool(plan or snapshot.leases or held_up)
