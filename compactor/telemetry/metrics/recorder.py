"""Records table metrics during a command, by listening to the worker and the commit log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from compactor.common.clock import Clock, SystemClock
from compactor.compaction.backlog import backlog_of
from compactor.compaction.listener import Listener
from compactor.planner.debt import debt_of
from compactor.stores.base import Store
from compactor.stores.metered import COUNTERS, MeteredStore, StoreMetrics
from compactor.table.observed_log import CommitReport
from compactor.telemetry.metrics import catalog as c
from compactor.telemetry.metrics import mapping
from compactor.telemetry.metrics.catalog import Change
from compactor.telemetry.metrics.mapping import DRIVER

if TYPE_CHECKING:
    from compactor.compaction.compaction import Compaction
    from compactor.compaction.driver import Driver, FinishedCompaction

Apply = Callable[[Iterable[Change]], None]


class _Known(Struct):
    """The last recorded state of a table."""

    version: int = -1
    levels: set[int] = field(default_factory=set)
    store: MeteredStore | None = None
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))


class Recorder(Listener):
    """A `Listener` that records task metrics from outcomes, and process metrics from stores."""

    def __init__(
        self, apply: Apply, *, is_of_run: bool = False, clock: Clock | None = None
    ) -> None:
        """is_of_run: count only the whole run as a success, not each committed compaction."""
        self.apply = apply
        self._is_of_run = is_of_run
        self._clock = clock or SystemClock()
        self._tables: dict[str, _Known] = {}

    def metered(self, store: Store) -> MeteredStore:
        """Wraps the store to count its requests for this process."""
        known = self._of(store.url)
        known.store = MeteredStore(store, StoreMetrics())
        self.apply(mapping.of_log_start(store.url))
        return known.store

    def begin_compactions(self, table_url: str, memory_limit_bytes: int) -> None:
        """Records a table's initial metrics, before its first read."""
        self.apply(mapping.of_start(table_url))
        self.apply(
            [
                Change(c.MEMORY_LIMIT_BYTES, memory_limit_bytes, (table_url,)),
                Change(c.INFLIGHT, 0, (table_url,)),
            ]
        )

    def committed(self, commit: CommitReport) -> None:
        """Records a commit reported by an `ObservedCommitLog`."""
        self.apply(mapping.of_commit(commit.table_url, commit))
        self._count_requests(commit.table_url)

    def decided(self, driver: Driver, compactions: Sequence[Compaction]) -> None:  # noqa: ARG002
        self._count_running(driver)

    def finished(self, driver: Driver, finished: FinishedCompaction) -> None:
        self.apply(mapping.of_finished(driver.url, finished))
        is_done = finished.outcome.failure is None and not finished.is_void
        if is_done and not self._is_of_run:
            now = self._clock.now_unix_ms() / 1000
            self.apply([Change(c.LAST_SUCCESS, now, (driver.url,))])
        self._count_running(driver)

    def failed(self, driver: Driver, error: Exception, retry_seconds: float) -> None:  # noqa: ARG002
        self.apply([Change(c.STEP_FAILURES, 1, (driver.url,))])
        self._count_requests(driver.url)

    def looked(self, driver: Driver) -> None:
        snapshot, known = driver.log.latest, self._of(driver.url)
        self._count_requests(driver.url)
        if snapshot.version == known.version:
            return
        known.version = snapshot.version
        self.apply(mapping.of_awaited(driver.url, is_awaited=not snapshot.version))
        if snapshot.version:  # version 0: no table
            self.apply(mapping.of_backlog(driver.url, backlog_of(driver, snapshot)))
            debt = debt_of(snapshot, driver.policy_for(snapshot))
            changes = mapping.of_snapshot(driver.url, snapshot, debt, known.levels)
            limit_bytes = driver.settings_for(snapshot).memory_limit_bytes
            self.apply([*changes, Change(c.MEMORY_LIMIT_BYTES, limit_bytes, (driver.url,))])
            known.levels |= {
                int(each.labels[1]) for each in changes if each.metric is c.LEVEL_FRAGMENTS
            }

    def turned(self) -> None:
        self.apply([Change(c.LAST_TURN, self._clock.now_unix_ms() / 1000, ())])

    def count_requests(self) -> None:
        """Records the store requests of all tables since the last call."""
        for url in self._tables:
            self._count_requests(url)

    def closed(self, table_url: str) -> None:
        """Counts the last requests of a table's store, and keeps it no longer."""
        self._count_requests(table_url)
        known = self._of(table_url)
        known.store, known.counts = None, dict.fromkeys(COUNTERS, 0)

    def _count_requests(self, table_url: str) -> None:
        known = self._of(table_url)
        if known.store is not None:
            counts = known.store.counts()
            since = {name: counts[name] - known.counts[name] for name in counts}
            known.counts = counts
            self.apply(mapping.of_requests(table_url, DRIVER, since))

    def _count_running(self, driver: Driver) -> None:
        self.apply([Change(c.INFLIGHT, driver.running, (driver.url,))])

    def _of(self, url: str) -> _Known:
        return self._tables.setdefault(url, _Known())
