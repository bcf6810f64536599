"""Liveness and readiness of a worker, for probes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from compactor.common.counts import counted
from compactor.compaction.driver import Driver
from compactor.compaction.listener import Listener


class Health(Listener):
    """A `Listener` that other threads query. Each answer is a verdict with a one-line reason."""

    def __init__(
        self,
        table_urls: Iterable[str],
        *,
        stall_seconds: float,
        is_draining: Callable[[], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """table_urls: the tables without which it is not ready. stall_seconds: treat the worker as hung after
        this long without a loop iteration."""
        self._stall_seconds = stall_seconds
        self._is_draining = is_draining
        self._monotonic = monotonic
        self._has_started = False
        self._turned_at = monotonic()
        self._tables = frozenset(table_urls)
        self._missing = set(self._tables)
        """Tables that are unreachable or not read yet."""

    def started(self) -> None:
        """Records that the engine runs."""
        self._has_started = True
        self.turned()

    def looked(self, driver: Driver) -> None:
        self._missing.discard(driver.url)

    def failed(self, driver: Driver, error: Exception, retry_seconds: float) -> None:  # noqa: ARG002
        self._missing |= self._tables & {driver.url}

    def turned(self) -> None:
        self._turned_at = self._monotonic()

    def live(self) -> tuple[bool, str]:
        """Returns whether the loop makes progress, and the reason if not."""
        idle = self._monotonic() - self._turned_at
        if idle > self._stall_seconds:
            return (
                False,
                f"no turn of the loop for {idle:.0f} s (limit {self._stall_seconds:.0f} s)",
            )
        return True, "ok"

    def ready(self) -> tuple[bool, str]:
        """Returns whether the worker can work on all tables, and the reason if not."""
        if self._is_draining():
            return False, "draining: no new compaction begins"
        if not self._has_started:
            return False, "starting: the engine does not run yet"
        if missing := len(self._missing):
            # Do not show table addresses to probes.
            return (
                False,
                f"{missing} of {counted(len(self._tables), 'table is', 'tables are')} not reached: the log "
                "says which and why",
            )
        return True, "ok"
