"""When a worker waits: for stores that do not answer, for clocks, and for what may end it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor.compaction.attempt import run_compaction
from compactor.compaction.compaction import Compaction, Outcome
from compactor.compaction.driver import Driver, DriverSettings, FinishedCompaction
from compactor.compaction.engine import InProcessEngine
from compactor.compaction.listener import Listener
from compactor.compaction.worker import Worker
from compactor.settings.compaction import Policy, Strategy
from compactor.table.commit_log import CommitLog
from tests.faults import Drop, Stall, calls
from tests.support.clocks import Time
from tests.support.memory_store import MemoryStore
from tests.support.tables import COMMITS, append_table

DAY = 86_400


def test_a_result_that_a_store_does_not_take_for_a_day_is_offered_now_and_then() -> None:
    time = Time(DAY)
    store = MemoryStore(now=lambda: time.seconds)
    for number in range(2):
        append_table(store, pa.table({"k": [number]}), "k" if number == 0 else None)

    def run(compaction: Compaction) -> Outcome:
        outcome = run_compaction(compaction, store)
        store.faults.add(Drop())
        store.calls.clear()
        return outcome

    log = CommitLog(store, time)
    driver = Driver(log, DriverSettings(policy=Policy(strategy=Strategy.FULL)))
    worker = Worker([driver], InProcessEngine(run), clock=time)
    worker.run(time, poll_seconds=5, drain_seconds=30)  # type: ignore[arg-type]
    # Every 30 to 60 seconds, after a few quick tries, and when it is told to stop.
    assert DAY / 60 < len(store.calls) < DAY / 30 + 100


class Both(InProcessEngine):
    """Tells of two compactions at once, the second of which has failed."""

    slots = 2

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(lambda compaction: run_compaction(compaction, store))
        self.waits = 0

    def wait(self, timeout_seconds: float) -> list[Outcome]:
        self.waits += 1
        outcomes = [*super().wait(timeout_seconds), *super().wait(timeout_seconds)]
        return [*outcomes[:1], *(replace(o, outputs=(), failure="no") for o in outcomes[1:])]


class Told(Listener):
    def __init__(self) -> None:
        self.failures: list[str | None] = []

    def finished(self, _driver: Driver, finished: FinishedCompaction) -> None:
        self.failures.append(finished.outcome.failure)


def test_what_is_committed_is_told_although_the_next_commit_fails_and_nobody_waits_in_a_circle() -> (
    None
):
    time = Time(DAY)
    store = MemoryStore(now=lambda: time.seconds)
    for number in range(4):
        table = pa.table({"k": [10 * (number // 2), 10 * (number // 2) + 1]})
        append_table(store, table, "k" if number == 0 else None)
    # The leases and the first result pass.
    third = store.faults.add(Drop(), at=COMMITS.from_nth(3))
    store.faults.add(Drop(), at=calls(where=lambda _: bool(third.hits)))
    driver = Driver(
        CommitLog(store, time), DriverSettings(policy=Policy(strategy=Strategy.OVERLAPPING))
    )
    engine, told = Both(store), Told()
    worker = Worker([driver], engine, clock=time, listener=told)
    worker.run(time, poll_seconds=5, drain_seconds=30)  # type: ignore[arg-type]
    assert told.failures == [None]
    # As often as it looks at an idle table.
    assert engine.waits < DAY / 5 + 100


@pytest.mark.long
def test_a_clock_that_goes_back_keeps_no_table_waiting() -> None:
    time = Time(DAY)
    store = MemoryStore(now=lambda: time.seconds)
    store.faults.add(Stall(lambda: time.sleep(-10_000_000)), at=calls().first())
    store.faults.add(Drop())
    driver = Driver(CommitLog(store, time), DriverSettings())
    worker = Worker([driver], InProcessEngine(), clock=time)
    worker.run(time, poll_seconds=5, drain_seconds=30)  # type: ignore[arg-type]
    assert len(store.calls) > DAY / 60


class Slots(InProcessEngine):
    """Four at a time, of which the oldest ends at each turn; keeps which inputs ran together."""

    slots = 4

    def __init__(self, stores: Mapping[str, MemoryStore]) -> None:
        super().__init__(
            lambda compaction: run_compaction(compaction, stores[compaction.table_url])
        )
        self.together: list[list[tuple[str, str]]] = []

    def wait(self, timeout_seconds: float) -> Sequence[Outcome]:
        running = [(c.table_url, entry.key) for c in self._queue for entry in c.spec.inputs]
        self.together.append(running)
        return super().wait(timeout_seconds)


class NamedStore(MemoryStore):
    def __init__(self, time: Time, url: str) -> None:
        super().__init__(now=lambda: time.seconds)
        self._url = url

    @property
    def url(self) -> str:
        return self._url


@pytest.mark.long
def test_what_may_end_a_worker_runs_while_no_other_table_has_anything_to_lose() -> None:
    time = Time(DAY)
    stores = {url: NamedStore(time, url) for url in ("memory://busy", "memory://other")}
    for store in stores.values():
        for number in range(12):
            table = pa.table({"k": [10 * (number // 2), 10 * (number // 2) + 1]})
            append_table(store, table, "k" if number == 0 else None)
    settings = DriverSettings(policy=Policy(strategy=Strategy.OVERLAPPING))
    died = Driver(CommitLog(stores["memory://other"], time), settings, owner="dead")
    suspects = {e.key for c in died.decide(1) for e in c.spec.inputs}
    drivers = [
        Driver(CommitLog(store, time), settings, owner_is_gone=lambda owner: owner == "dead")
        for store in stores.values()
    ]
    engine = Slots(stores)
    worker = Worker(drivers, engine, clock=time)
    worker.run(time, poll_seconds=5, drain_seconds=30)  # type: ignore[arg-type]
    with_suspects = [
        running for running in engine.together if suspects & {key for _, key in running}
    ]
    assert with_suspects
    assert all({key for _, key in running} == suspects for running in with_suspects)
    assert max(len(running) for running in engine.together) > 2
    assert all(len(driver.log.current().fragments) == 6 for driver in drivers)
