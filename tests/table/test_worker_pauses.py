"""How often a worker asks a store that does not answer."""

from __future__ import annotations

import pyarrow as pa

from compactor.config import Policy, Strategy
from compactor.driver import Driver, DriverSettings
from compactor.engine import InProcessEngine
from compactor.errors import StoreUnreachableError
from compactor.job import Compaction, Outcome, run_compaction
from compactor.table.commit_log import CommitLog
from compactor.worker import Worker
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table

DAY = 86_400


class Time:
    """A clock, and the event that stops a worker after a day of it."""

    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0
        self._end = self.seconds + DAY

    def now_unix_ms(self) -> int:
        return round(self.seconds * 1000)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def is_set(self) -> bool:
        return self.seconds >= self._end

    def wait(self, seconds: float) -> bool:
        self.sleep(seconds)
        return self.is_set()


def test_a_result_that_a_store_does_not_take_for_a_day_is_offered_now_and_then() -> None:
    time = Time()
    store = MemoryStore(now=lambda: time.seconds)
    for number in range(2):
        append_table(store, pa.table({"k": [number]}), "k" if number == 0 else None)

    def refuse(operation: str, key: str) -> None:
        raise StoreUnreachableError(f"{operation} {key}: no answer")

    def run(compaction: Compaction) -> Outcome:
        outcome = run_compaction(compaction, store)
        store.fault = refuse
        store.calls.clear()
        return outcome

    log = CommitLog(store, time)
    driver = Driver(log, DriverSettings(Policy(strategy=Strategy.FULL)))
    worker = Worker([driver], InProcessEngine(run), policy=driver.policy, clock=time)
    worker.run(time, poll_seconds=5, drain_seconds=30)  # type: ignore[arg-type]
    # Every 30 to 60 seconds, after a few quick tries, and when it is told to stop.
    assert DAY / 60 < len(store.calls) < DAY / 30 + 100
