"""A fleet in memory: folders of tables, a clock that tests move, and a record of what a fleet tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from compactor.compaction.attempt import run_compaction
from compactor.compaction.compaction import Compaction, Outcome
from compactor.compaction.driver import Driver, DriverSettings, FinishedCompaction
from compactor.compaction.engine import InProcessEngine
from compactor.compaction.listener import Listener, Listeners
from compactor.compaction.worker import Worker
from compactor.errors import StoreUnreachableError
from compactor.fleet.chores import Chore, Ended, Job, Report, Runner, done
from compactor.fleet.config import Entry, FleetConfig
from compactor.fleet.fleet import Fleet
from compactor.fleet.member import Member
from compactor.fleet.state import TableState
from compactor.lakes.publish_report import PublishReport
from compactor.stores.base import ObjectInfo, Store
from compactor.table.commit_log import CommitLog
from compactor.table.vacuum import VacuumReport
from tests.support.clocks import Time
from tests.support.memory_store import PlainMemoryStore
from tests.support.tables import append_table


class TableStore(PlainMemoryStore):
    def __init__(self, url: str, time: Time) -> None:
        super().__init__({}, {}, lambda: time.seconds)
        self.url = url


class MemoryFolder(PlainMemoryStore):
    """A folder of tables; counts the listings, and answers none while it is unreachable."""

    url = "memory://lake"

    def __init__(self, time: Time) -> None:
        super().__init__({}, {}, lambda: time.seconds)
        self.clock = time
        self.tables: dict[str, TableStore] = {}
        self.asked: Counter[str] = Counter()
        self.listed = 0
        self.is_reachable = True

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._check()
        path, _, rest = prefix.partition("/_log/")
        self.asked[path] += 1
        base = f"{path}/"
        store = self.within(path)
        after = None if start_after is None else start_after.removeprefix(base)
        for info in store.list(f"_log/{rest}", start_after=after):
            yield ObjectInfo(
                base + info.key, info.size_bytes, info.etag, info.modified_unix_seconds
            )

    def folders(self, prefix: str) -> Iterator[str]:
        self._check()
        self.listed += 1
        below = (path.removeprefix(prefix) for path in self.tables if path.startswith(prefix))
        yield from sorted({path.partition("/")[0] for path in below})

    def within(self, path: str) -> Store:
        return self.tables.get(path) or TableStore(f"{self.url}/{path}", self.clock)

    def append(self, path: str, key: int) -> None:
        """Adds one small fragment to a table, which the first creates."""
        is_new = path not in self.tables
        store = self.tables.setdefault(path, TableStore(f"{self.url}/{path}", self.clock))
        append_table(store, pa.table({"k": [key, key + 1]}), "k" if is_new else None)

    def copy(self, path: str, to: str) -> None:
        """Makes another table of the same rows, sooner than by writing them."""
        self.tables[to] = TableStore(f"{self.url}/{to}", self.clock)
        self.tables[to].objects |= self.tables[path].objects

    def fragments(self, path: str) -> int:
        return len(CommitLog(self.tables[path]).current().fragments)

    def _check(self) -> None:
        if not self.is_reachable:
            raise StoreUnreachableError(f"{self.url}: no answer")


class Settled:
    """A source of what the file says, which tests change."""

    def __init__(self, *entries: Entry, **settings: Any) -> None:
        self._settings = {
            "zone": ZoneInfo("UTC"), "poll_seconds": 5.0, "slowest_poll_seconds": 60.0,
            "find_seconds": 60.0, "report_seconds": 60.0, **settings,
        }  # fmt: skip
        self._news: FleetConfig | Exception | None = None
        self.change(*entries)

    def change(self, *entries: Entry) -> None:
        self._news = FleetConfig(entries=entries, **self._settings)

    def spoil(self, error: Exception) -> None:
        self._news = error

    def news(self) -> FleetConfig | None:
        news, self._news = self._news, None
        if isinstance(news, Exception):
            raise news
        return news


class Heard(Listener):
    """What a fleet and its worker tell, in order."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.begun: list[str] = []
        self.events: list[tuple[str, ...]] = []
        self.states: list[TableState] = []
        self.chores: list[tuple[str, Chore, int]] = []
        self.retry_seconds: dict[str, float] = {}
        """The pause before the next try that was told last, by subject."""
        self.longest_wait = 0.0

    def decided(self, driver: Driver, compactions: Sequence[Compaction]) -> None:
        self.begun += [driver.url] * len(compactions)

    def finished(self, driver: Driver, finished: FinishedCompaction) -> None:
        assert finished.outcome.failure is None

    def failed(self, driver: Driver, error: Exception, retry_seconds: float) -> None:
        self.events.append(("failed", driver.url, str(error)))

    def joined(self, table: str, entry: str) -> None:
        self.events.append(("joined", table, entry))

    def awaited(self, pattern: str, *, is_awaited: bool) -> None:
        self.events.append(("awaited" if is_awaited else "found", pattern))

    def forgotten(self, pattern: str) -> None:
        self.events.append(("forgotten", pattern))

    def left(self, table: str) -> None:
        self.events.append(("left", table))

    def closed(self, table: str) -> None: ...

    def reloaded(self, entries: int) -> None:
        self.events.append(("reloaded", str(entries)))

    def warned(self, subject: str, error: Exception, retry_seconds: float) -> None:
        self.events.append(("warned", subject, str(error)))
        self.retry_seconds[subject] = retry_seconds

    def ended(self, ended: Ended) -> None:
        self.chores.append((ended.job.table, ended.job.chore, self._time.now_unix_ms()))

    def reported(self, states: Sequence[TableState]) -> None:
        self.states = list(states)
        self.longest_wait = max([self.longest_wait, *(s.waiting_seconds for s in states)])


class AtOnce:
    """Runs chores at once, in the caller's thread."""

    is_free = True

    def __init__(self) -> None:
        self._over: list[Ended] = []

    def start(self, job: Job) -> None:
        self._over.append(done(job))

    def ended(self) -> Sequence[Ended]:
        over, self._over = self._over, []
        return over


class Slowly:
    """Runs chores beside the caller: each is over once it has lasted `seconds`."""

    def __init__(self, time: Time, seconds: float) -> None:
        self._time, self._seconds = time, seconds
        self._running: tuple[Job, float] | None = None
        self.asked = 0
        """Calls of `ended`, of which each round makes one."""

    @property
    def is_free(self) -> bool:
        return self._running is None

    def start(self, job: Job) -> None:
        self._running = job, self._time.seconds + self._seconds

    def ended(self) -> Sequence[Ended]:
        self.asked += 1
        if self._running is None or self._time.seconds < self._running[1]:
            return ()
        job, self._running = self._running[0], None
        return (done(job),)


class SlowEngine(InProcessEngine):
    """Runs one compaction beside the worker: its outcome is there once it has lasted `seconds`."""

    def __init__(self, time: Time, seconds: float, run: Callable[[Compaction], Outcome]) -> None:
        super().__init__(run)
        self._time, self._seconds, self._end = time, seconds, 0.0

    def submit(self, compaction: Compaction) -> None:
        self._end = self._time.seconds + self._seconds
        super().submit(compaction)

    def wait(self, timeout_seconds: float) -> Sequence[Outcome]:
        left = self._end - self._time.seconds
        if left > 0:
            self._time.sleep(min(left, max(timeout_seconds, 0.001)))
        return () if left > timeout_seconds else super().wait(timeout_seconds)


class MemoryFleet:
    """A fleet over tables in memory, whose merges take `merge_seconds` each.

    is_beside: whether the worker goes on meanwhile, as it does with Spark.
    """

    def __init__(
        self,
        folder: MemoryFolder,
        source: Settled,
        *,
        merge_seconds: float = 1.0,
        slots: int = 1,
        runner: Runner | None = None,
        is_beside: bool = False,
    ) -> None:
        self.folder, self.source, self.time = folder, source, folder.clock
        self.heard = Heard(self.time)
        self.most_open = 0
        self.open: set[str] = set()
        self.failing_chores: set[str] = set()
        self.fleet = Fleet(
            source, self._driver, self._job, self.heard,
            clock=self.time, runner=runner or AtOnce(), pollers=1,
        )  # fmt: skip

        def run(compaction: Compaction) -> Outcome:
            if not is_beside:
                self.time.sleep(merge_seconds)
            path = compaction.table_url.removeprefix(f"{folder.url}/")
            return run_compaction(compaction, folder.tables[path])

        engine = SlowEngine(self.time, merge_seconds, run) if is_beside else InProcessEngine(run)
        engine.slots = slots
        listener = Listeners([self.heard, self.fleet])
        self.worker = Worker([], engine, clock=self.time, listener=listener)

    def run(self, seconds: float) -> None:
        self.time.end = self.time.seconds + seconds
        self.worker.run(
            self.time,  # type: ignore[arg-type]
            poll_seconds=0, drain_seconds=0, rounds=self.fleet,
        )  # fmt: skip

    def _driver(self, member: Member) -> Driver:
        log = CommitLog(member.place.root.within(member.place.path), self.time)
        settings = DriverSettings(policy=member.entry.policy, compaction=member.entry.compaction)
        return Driver(log, settings)

    def _job(self, member: Member, chore: Chore) -> Job:
        def run() -> Report:
            if member.url in self.failing_chores:
                raise StoreUnreachableError(f"{member.url}: no answer")
            if chore is Chore.PUBLISH:
                version = self._driver(member).log.refresh().version
                return PublishReport(
                    version=version, files=1, rows=1, added=0, removed=0, bytes_added=0
                )
            return VacuumReport(version=member.version, oldest_version=1)

        return Job(member.url, chore, run)
