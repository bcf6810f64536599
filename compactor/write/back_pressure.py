"""Back-pressure: slows down or stops writers according to compaction debt."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from compactor.common.counts import counted
from compactor.common.setting_keys import BACK_PRESSURE
from compactor.errors import BackPressureError
from compactor.planner.debt import SLOW_SCORE, Debt, Pressure, debt_of
from compactor.planner.plan import plan_compactions
from compactor.settings.compaction import CompactionSettings, Policy
from compactor.settings.model import Settings
from compactor.settings.properties import Properties, beside, tuned
from compactor.settings.writers import Reaction, WriterSettings
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot

_SLOW_SECONDS: Final = 5.0
"""Maximum pause before a commit while writers should slow down; less debt means a shorter pause."""
_POLL_SECONDS: Final = 2.0
OnDebt = Callable[[CommitLog, Debt], None]
"""Called with each debt that a writer meets."""

_Model = TypeVar("_Model", bound=Settings)
_log = logging.getLogger(__name__)


class DebtWarning:
    """Logs a warning when the debt of a table gets worse or better, and while it is healthy none."""

    def __init__(self) -> None:
        self._said = Pressure.HEALTHY

    def __call__(self, log: CommitLog, debt: Debt) -> None:
        before, self._said = self._said, debt.pressure
        if debt.pressure in (before, Pressure.HEALTHY):
            return
        _log.warning(
            "%s: compaction debt %.2f (writers should %s): %s at level 0; run `compactor compact`, or keep "
            "`compactor watch` running",
            log.store.url,
            debt.score,
            "stop" if debt.pressure is Pressure.STOP else "slow down",
            counted(debt.level0_runs, "sorted run"),
        )


class BackPressure:
    """A gate that a writer passes before it writes what one commit will add.

    It judges as compactions do: by the properties of the table, unless the writer was told otherwise. A
    writer never waits for compactions that are not due: they would wait for each other.
    """

    def __init__(
        self,
        told: Properties = (),
        *,
        on_debt: OnDebt | None = None,
        max_wait_seconds: float = 600.0,
    ) -> None:
        """told: properties that count for this writer, whatever the table has."""
        self._told = told
        self._on_debt = on_debt or DebtWarning()
        self._max_wait_seconds = max_wait_seconds

    def admit(self, log: CommitLog) -> Snapshot:
        """Returns the newest snapshot once the writer may begin.

        Raises `BackPressureError` if compaction does not catch up within the maximum wait; `ConfigError` for
        properties that this program does not take.
        """
        snapshot = log.refresh()
        reaction = self._settings(WriterSettings, snapshot).back_pressure
        if reaction is Reaction.OFF:
            return snapshot
        debt = self._debt(snapshot)
        self._on_debt(log, debt)
        if reaction is Reaction.WAIT:
            self._wait(log, debt)
        return log.latest

    def _wait(self, log: CommitLog, debt: Debt) -> None:
        waited = 0.0
        while debt.pressure is Pressure.STOP and self._is_any_due(log):
            if waited >= self._max_wait_seconds:
                raise BackPressureError(
                    f"{log.store.url}: waited {waited:.0f} s for compaction to catch up: "
                    f"{counted(debt.level0_runs, 'sorted run')} at level 0, {debt.pending_bytes:,} "
                    "bytes to compact. "
                    "Run `compactor watch` or `compactor compact` beside the writer, or write with ",
                    BACK_PRESSURE,
                    " warn",
                )
            log.clock.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
            debt = self._debt(log.refresh())
        if debt.pressure is not Pressure.HEALTHY:
            share = min(1.0, (debt.score - SLOW_SCORE) / (1 - SLOW_SCORE))
            log.clock.sleep(_SLOW_SECONDS * share)
            log.refresh()

    def _settings(self, model: type[_Model], snapshot: Snapshot) -> _Model:
        return tuned(model(), beside(snapshot.properties, self._told))

    def _debt(self, snapshot: Snapshot) -> Debt:
        return debt_of(snapshot, self._settings(Policy, snapshot))

    def _is_any_due(self, log: CommitLog) -> bool:
        """Says whether compactions run, or are due, or would be if they were not held up."""
        snapshot = log.latest
        plan = plan_compactions(
            snapshot,
            self._settings(Policy, snapshot),
            self._settings(CompactionSettings, snapshot),
            log.clock.now_unix_ms(),
        )
        held_up = plan.blocked or plan.refused or snapshot.quarantine
        return bool(plan or snapshot.leases or held_up)
