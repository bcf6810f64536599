"""Writers, compactors, vacuums and readers: the product's protocol over a data plane of a few lines."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from compactor.config import CompactionSettings, Policy, Strategy
from compactor.driver import Driver, DriverSettings
from compactor.errors import (
    CompactorError,
    DataError,
    ObjectNotFoundError,
    OvertakenError,
    StoreError,
    TableError,
    UnknownOutcomeError,
)
from compactor.job import Compaction, Outcome
from compactor.names import fragment_key
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TimeWindows
from compactor.table.snapshot import Snapshot
from compactor.table.vacuum import VacuumSettings, vacuum
from compactor.table.version import Changes, Operation
from format.footer import ColumnBytes
from tests.planner.model import METADATA
from tests.simulation.auditor import Auditor, Row
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.simulation.store import SharedObjects, SimulatedStore

ROW_BYTES = 100
WINDOW_SECONDS = 600
POLICIES = [
    Policy(level1_target_bytes=2_000, level_multiplier=2, level0_trigger_runs=2),
    Policy(level1_target_bytes=4_000, level_multiplier=3, level0_trigger_runs=3, push_ratio=0.5),
    Policy(strategy=Strategy.TIERED, level0_trigger_runs=3, max_merge_runs=4),
    Policy(strategy=Strategy.OVERLAPPING),
    Policy(strategy=Strategy.FULL),
]


class World:
    """What all actors of one run share."""

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.random = self.scheduler.random
        self.clock = SimulatedClock(self.scheduler)
        self.shared = SharedObjects(lambda: self.scheduler.now_ms / 1000)
        self.windows = None
        if self.random.random() < 0.2:
            retention = self.random.choice([60, 3_600])
            self.windows = TimeWindows("k", WINDOW_SECONDS, retention_seconds=retention)
        self.auditor = Auditor(self.scheduler, self.windows, self.shared.objects)
        self.shared.created = self.auditor.created
        self.shared.deleted = self.auditor.deleted
        self.settings = CompactionSettings(
            target_fragment_bytes=self.random.choice([400, 1_000, 100_000]),
            max_fan_in=self.random.choice([2, 4, 1_000]),
        )
        self.key_space = self.random.choice([60, 60, 1_000])
        """In a wide one most fragments overlap nothing, and compactions reach over the gaps."""
        self.widths = [3, 40]
        self.policies = POLICIES
        self.claim_seconds = [5.0, 120.0]
        self.failing = self.random.choice([0.03, 0.03, 0.4])
        """Chance that an attempt at a compaction fails."""
        self.dawdle_seconds = 0.0
        """How long compactions take on the average, beyond their requests."""
        self._names = itertools.count()
        self._ingests = itertools.count(1)

    def next_ingest(self) -> int:
        return next(self._ingests)

    def name(self) -> str:
        return f"n{next(self._names)}"

    def log(self) -> CommitLog:
        store = SimulatedStore(self.shared, self.scheduler)
        return CommitLog(store, self.clock, self.name, readers=1)

    def note(self, text: str) -> None:
        self.scheduler.note(text)

    @contextmanager
    def tolerant(self, what: str) -> Iterator[None]:
        """Errors that an actor may meet are noted. That data is damaged may nobody say, since none is."""
        try:
            yield
        except DataError:
            raise
        except CompactorError as error:
            self.noted(what, error)

    def noted(self, what: str, error: Exception) -> None:
        self.auditor.visits[f"{what}: {type(error).__name__}"] += 1
        self.note(f"{what}: {error!r}")


# --- data plane ---


def write(world: World, log: CommitLog, key: str, rows: Sequence[Row], **values) -> FragmentEntry:
    with log.store.start_upload(key) as upload:
        upload.write(json.dumps(rows).encode())
        upload.complete()
    size = len(rows) * ROW_BYTES
    return FragmentEntry(
        key=key,
        rows=len(rows),
        size_bytes=size,
        row_hash=0,
        first_key=(rows[0][0],),
        last_key=(rows[-1][0],),
        row_groups=1,
        peak_chunk_bytes=size,
        peak_row_bytes=ROW_BYTES,
        columns={"k": ColumnBytes(size, size)},
        **values,
    )


def read(log: CommitLog, key: str) -> list[Row]:
    return [tuple(row) for row in json.loads(log.store.read(key))]


def execute(world: World, log: CommitLog, compaction: Compaction) -> Outcome:
    """One attempt: names of its own, inputs by age, stable by key."""
    spec = compaction.spec
    if world.dawdle_seconds:
        world.scheduler.sleep(world.random.expovariate(1 / world.dawdle_seconds))
    if world.random.random() < world.failing:
        culprit = world.random.choice([None, world.random.choice(spec.inputs).key])
        return Outcome(
            compaction.compaction_id,
            failure="bad luck",
            culprit=culprit,
            is_damage=culprit is not None,
        )
    try:
        rows = [row for entry in spec.inputs for row in read(log, entry.key)]
        rows.sort(key=lambda row: row[0])
        attempt = attempt_id(world, compaction)
        entries = [
            write(
                world, log, fragment_key(compaction.base_version, attempt, part), piece,
                level=spec.output_level, run=compaction.compaction_id, window=spec.window,
                sequence=min(entry.sequence for entry in spec.inputs),
            )
            for part, piece in enumerate(cut(world, rows))
        ]  # fmt: skip
    except StoreError as error:
        return Outcome(compaction.compaction_id, failure=repr(error))
    return Outcome(compaction.compaction_id, tuple(entries))


def attempt_id(world: World, compaction: Compaction) -> str:
    """By its own name no attempt writes what another has written."""
    return f"{compaction.compaction_id}-{world.name()}"


def cut(world: World, rows: Sequence[Row]) -> Iterator[list[Row]]:
    target = max(1, world.settings.target_fragment_bytes // ROW_BYTES)
    piece: list[Row] = []
    for row in rows:
        if len(piece) >= target and piece[-1][0] != row[0]:
            yield piece
            piece = []
        piece.append(row)
    yield piece


# --- actors ---


def writer(world: World, files: int) -> None:
    log = world.log()
    for _ in range(files):
        ingest(world, log)
        world.scheduler.sleep(world.random.expovariate(1 / 60))


def ingest(world: World, log: CommitLog) -> None:
    number = world.next_ingest()
    try:
        entries = ingest_fragments(world, log, number)
    except StoreError:
        world.auditor.refuse(number)
        return

    def prepare(snapshot: Snapshot) -> Changes:
        age = snapshot.version + 1
        aged = tuple(replace(e, sequence=(age, i)) for i, e in enumerate(entries))
        metadata = replace(METADATA, windows=world.windows) if snapshot.version == 0 else None
        return Changes(Operation.INGEST, aged, metadata=metadata)

    try:
        log.commit(prepare)
    except UnknownOutcomeError as error:
        world.noted("ingest", error)
    except (StoreError, TableError) as error:
        world.noted("ingest", error)
        world.auditor.refuse(number)
    else:
        world.auditor.promise(number)


def ingest_fragments(world: World, log: CommitLog, number: int) -> list[FragmentEntry]:
    base = log.refresh().version
    low = world.random.randrange(world.key_space)
    width = world.random.choice(world.widths)
    keys = [low + world.random.randrange(width) for _ in range(9)]
    rows = [(key, number, position) for position, key in enumerate(sorted(keys))]
    world.auditor.ingest_rows[number] = rows
    window = None
    if world.windows is not None:
        window = world.clock.now_unix_ms() // 1000 // WINDOW_SECONDS
    pieces = [rows[:5], rows[5:]] if world.random.random() < 0.3 else [rows]
    entries = []
    for part, piece in enumerate(pieces):
        key = fragment_key(base, f"i{number}", part)
        entries.append(
            write(world, log, key, piece, level=0, run=key, sequence=(0, 0), window=window)
        )
    return entries


def compactor(world: World, name: str, rounds: int) -> None:
    log = world.log()
    driver = make_driver(world, log, name)
    unsettled: list[Outcome] = []
    for _ in range(rounds):
        with world.tolerant("compactor"):
            for compaction in driver.decide(world.random.randint(1, 3)):
                unsettled.append(execute(world, log, compaction))
                if world.random.random() < 0.1:
                    unsettled.append(execute(world, log, compaction))  # a speculative twin
                driver.prolong()
            driver.settle(unsettled)
            unsettled.clear()
        world.scheduler.sleep(world.random.expovariate(1 / 60))
    if world.random.random() < 0.5:
        with world.tolerant("compactor"):
            driver.give_up()
    if log.latest.version and world.random.random() < 0.3:
        with world.tolerant("pardon"):
            log.commit(pardon_all)


def pardon_all(snapshot: Snapshot) -> Changes:
    return Changes(Operation.QUARANTINE, pardons=tuple(snapshot.quarantine))


def make_driver(world: World, log: CommitLog, name: str) -> Driver:
    settings = DriverSettings(
        world.random.choice(world.policies),
        world.settings,
        max_attempts=world.random.choice([1, 3]),
        claim_seconds=world.random.choice(world.claim_seconds),
        takes_over=world.random.random() < 0.1,
    )
    return Driver(log, settings, ids=world.name, owner=name, owner_is_gone=lambda _: False)


def cleaner(world: World, rounds: int, seconds: Sequence[int] = (0, 30, 600, 10_000)) -> None:
    """seconds: of grace and of retention, to choose from."""
    log = world.log()
    for _ in range(rounds):
        world.scheduler.sleep(world.random.expovariate(1 / 100))
        settings = VacuumSettings(
            grace_seconds=world.random.choice(seconds),
            retain_seconds=world.random.choice(seconds),
            deleters=1,
        )
        with world.tolerant("vacuum"):
            world.note(f"vacuum: {vacuum(log, settings)}")


def reader(world: World, rounds: int) -> None:
    log = world.log()
    for _ in range(rounds):
        world.scheduler.sleep(world.random.expovariate(1 / 90))
        if world.random.random() < 0.5:
            log = world.log()
        with world.tolerant("reader"):
            read_once(world, log)


def read_once(world: World, log: CommitLog) -> None:
    newest_before = world.auditor.snapshot.version
    snapshot = log.refresh()
    world.auditor.seen(snapshot, newest_before)
    if snapshot.version and world.random.random() < 0.4:
        version = world.random.randint(snapshot.oldest, snapshot.version)
        try:
            snapshot = log.history.at(version, snapshot)
        except OvertakenError:
            # Its log files have been removed meanwhile.
            assert version < world.auditor.snapshot.oldest
            return
        world.auditor.seen(snapshot, 0)
    for key in snapshot.fragments:
        try:
            assert read(log, key) == world.auditor.rows[key]
        except ObjectNotFoundError:
            world.auditor.missing(key, snapshot.version)
            return


def restarting(world: World, name: str, run: Callable[[], None]) -> None:
    """An actor, and another of its kind some time after, whatever became of the first."""
    world.scheduler.spawn(name, run)

    def later() -> None:
        world.scheduler.sleep(world.random.expovariate(1 / 400))
        run()

    world.scheduler.spawn(f"{name}'", later)
