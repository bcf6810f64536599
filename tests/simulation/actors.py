"""Writers, compactors, vacuums and readers: the product's protocol over a data plane of a few lines."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, structs
from msgspec.structs import replace

from compactor.compaction.compaction import Compaction, Outcome, failed
from compactor.compaction.driver import Driver, DriverSettings
from compactor.compaction.worker import Worker
from compactor.errors import (
    CompactorError,
    DataError,
    FragmentMissingError,
    JobError,
    ObjectNotFoundError,
    OvertakenError,
    StoreUnreachableError,
    UnknownOutcomeError,
    VersionNotFoundError,
)
from compactor.merge.order.places import STARTS
from compactor.merge.order.row_order import GroupOrder, RowOrder
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.merge_stages import ROW_HASHES, ROW_ORDER
from compactor.resources.reservation import Reservation
from compactor.resources.stage import Buffer, MemoryStage, StagePlan
from compactor.rows.flags import KEPT
from compactor.rows.policy import RowKind, RowPolicy
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.settings.vacuum import VacuumSettings
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.deletions import read_deletion, write_deletions
from compactor.table.entry import Deletion, FragmentEntry
from compactor.table.metadata import TableMetadata, TimeWindows
from compactor.table.missing import missing_explained
from compactor.table.object_names import deletions_key, fragment_key
from compactor.table.snapshot import Snapshot
from compactor.table.vacuum import vacuum
from compactor.table.version import Changes, Operation
from compactor.write.lost_fragments import drop_fragment
from compactor.write.restore import restore_version
from compactor.write.search import StaleSearchError, with_deletions
from compactor.write.tags import end_tag, set_tag
from compactor.write.undo import undo_compaction
from lsm_fragment.container.footer import ColumnBytes
from lsm_fragment.errors import CorruptFragmentError, FormatError
from lsm_fragment.gather.origins import Origins
from tests.faults import Crash
from tests.planner.model import METADATA
from tests.simulation.auditor import Auditor, Row
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.simulation.store import SharedObjects, SimulatedStore
from tests.simulation.vandal import Vandal
from tests.support.entries import made_up_entry

ROW_BYTES = 100
WINDOW_SECONDS = 600
POLICIES = [
    Policy(level1_target_bytes=2_000, level_multiplier=2, level0_trigger_runs=2),
    Policy(level1_target_bytes=4_000, level_multiplier=3, level0_trigger_runs=3, push_ratio=0.5),
    Policy(strategy=Strategy.TIERED, level0_trigger_runs=3, max_merge_runs=4),
    Policy(strategy=Strategy.OVERLAPPING),
    Policy(strategy=Strategy.FULL),
]
_ORDER, _BITS = (
    MemoryStage(name=name, holds="", buffer=Buffer.MATERIALIZED, memory_bytes=1 << 20)
    for name in (ROW_ORDER, ROW_HASHES)
)
STEP = "step: "
"""What the counts of steps begin with."""
_ADVICE = re.compile(r"restore|repair|try again|again|upgrade|check|--\w|Look at")


class World:
    """What all actors of one run share."""

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.random = self.scheduler.random
        self.clock = SimulatedClock(self.scheduler)
        self.shared = SharedObjects(lambda: self.scheduler.now_ms / 1000)
        self.vandal = Vandal(self.random, self.shared, self.note)
        self.windows: TimeWindows | None = None
        self.rows = RowPolicy()
        self.auditor = Auditor(self.scheduler, self.shared.objects, self.vandal)
        self.set_windows(0.2)
        self.shared.created = self.auditor.created
        self.shared.created_again = self.vandal.forget
        self.shared.deleted = self.auditor.deleted
        self.settings = CompactionSettings(
            target_fragment_bytes=self.random.choice([400, 1_000, 100_000]),
            max_fan_in=self.random.choice([2, 4, 1_000]),
        )
        self.key_space = self.random.choice([60, 60, 1_000])
        """In a wide one most fragments overlap nothing, and compactions reach over the gaps."""
        self.widths = [3, 40]
        self.policies = POLICIES
        self.lease_seconds = [5.0, 120.0]
        self.failing = self.random.choice([0.03, 0.03, 0.4])
        """Chance that an attempt at a compaction fails."""
        self.dawdle_seconds = 0.0
        """How long compactions take on the average, beyond their requests."""
        self.fatal: set[str] = set()
        """Fragments whose merge takes more memory than there is."""
        self.dead: set[str] = set()
        """Owners whose process has ended."""
        self.strikes: list[Callable[[], None]] = []
        self.deletes = 0
        """How many there are at least."""
        self.restores = 0
        """How many there are at least."""
        self.vacuums = 0
        """That run now."""
        self.lost_sessions = 0.0
        """Chance at every job that the engine's session is gone for good."""
        self._names = itertools.count()
        self._ingests = itertools.count(1)

    def next_ingest(self) -> int:
        return next(self._ingests)

    def name(self) -> str:
        return f"n{next(self._names)}"

    def store(self) -> SimulatedStore:
        return SimulatedStore(self.shared, self.scheduler)

    def log(self, store: SimulatedStore | None = None) -> CommitLog:
        return CommitLog(store or self.store(), self.clock, self.name, readers=1)

    def set_windows(self, chance: float) -> None:
        """With that chance the table has time windows and a retention."""
        if self.random.random() < chance:
            retention = self.random.choice([60, 3_600])
            self.windows = TimeWindows("k", WINDOW_SECONDS, retention_seconds=retention)
            self.auditor.windows = self.windows

    def merge_rows(self) -> None:
        """Lets the newest row of a key take the place of the others."""
        self.rows, self.auditor.merges = RowPolicy(RowKind.LAST), True
        self.windows = self.auditor.windows = None

    @property
    def metadata(self) -> TableMetadata:
        return replace(METADATA, windows=self.windows, rows=self.rows)

    def did(self, what: str) -> None:
        """Counts a step in the table's life, whatever becomes of it."""
        self.auditor.visits[f"{STEP}{what}"] += 1

    def strike(self) -> None:
        """Lets the run's hazards strike right before a vacuum."""
        for strike in self.strikes:
            if self.random.random() < 0.5:
                strike()

    def note(self, text: str) -> None:
        self.scheduler.note(text)

    @contextmanager
    def tolerant(self, what: str) -> Iterator[None]:
        """Errors that an actor may meet are noted."""
        removed = self.auditor.log_files_removed
        try:
            yield
        except CompactorError as error:
            self.met(what, error, removed)

    def met(self, what: str, error: CompactorError, removed: int) -> None:
        """Raises the error where it is none that an actor may meet.

        An actor may report damage only where something is damaged, or while it reads a log that is just being
        removed: `removed` log files had gone when it began. Where something is, the error says what to do.
        """
        if isinstance(error, FragmentMissingError):
            key = error.name.removeprefix(f"{SimulatedStore.url}/")
            assert key in self.vandal.once_lost, f"{error!r}, and it was never lost"
            assert _ADVICE.search(str(error)), f"{error!r} does not say what to do"
        if isinstance(error, VersionNotFoundError) and "which is gone" in str(error):
            assert self.vandal.once_lost, f"{error!r}, and nothing was ever lost"
        if isinstance(error, DataError):
            is_removed = removed != self.auditor.log_files_removed and "backup" not in str(error)
            if not is_removed and not self.vandal.hurts:
                raise error
            assert is_removed or _ADVICE.search(str(error)), f"{error!r} does not say what to do"
        self.noted(what, error)

    @contextmanager
    def corrupt_is_data_error(self) -> Iterator[None]:
        """As the command line has it: both end with one line and the same exit code."""
        try:
            yield
        except CorruptFragmentError as error:
            raise DataError(f"{error}: restore the object from a backup") from error

    def is_gone(self, owner: str) -> bool:
        return owner in self.dead

    def noted(self, what: str, error: Exception) -> None:
        self.auditor.visits[f"{what}: {type(error).__name__}"] += 1
        self.note(f"{what}: {error!r}")


# --- data plane ---


def write(world: World, log: CommitLog, key: str, rows: Sequence[Row], **values) -> FragmentEntry:
    with log.store.start_upload(key) as upload:
        upload.write(json.dumps(rows).encode())
        upload.complete()
    size = len(rows) * ROW_BYTES
    return made_up_entry(
        key,
        (rows[0][0],),
        (rows[-1][0],),
        rows=len(rows),
        size_bytes=size,
        peak_chunk_bytes=size,
        peak_row_bytes=ROW_BYTES,
        columns={"k": ColumnBytes(size, size)},
        **values,
    )


def read(world: World, log: CommitLog, key: str) -> list[Row]:
    """All rows of a fragment. Raises `CorruptFragmentError` as checksums do."""
    with missing_explained(log.store, key, key):
        data = log.store.read(key)
    if key in world.vandal.originals:
        raise CorruptFragmentError("its checksum does not match", name=f"{log.store.url}/{key}")
    return [tuple(row) for row in json.loads(data)]


def read_live(world: World, log: CommitLog, entry: FragmentEntry) -> list[Row]:
    """Rows that are not deleted."""
    rows = read(world, log, entry.key)
    bits = read_deletion(log.store, entry)
    return (
        rows if bits is None else [r for r, b in zip(rows, bits.to_pylist(), strict=True) if not b]
    )


def execute(world: World, log: CommitLog, compaction: Compaction) -> Outcome:
    """One attempt: names of its own, inputs by age, stable by key. What fails is judged by the product."""
    world.did("compact")
    spec = compaction.spec
    if world.fatal.issubset(entry.key for entry in spec.inputs) and world.fatal:
        world.note("out of memory")
        assert isinstance(log.store, SimulatedStore)
        log.store.die()
    if world.dawdle_seconds:
        world.scheduler.sleep(world.random.expovariate(1 / world.dawdle_seconds))
    try:
        if world.random.random() < world.failing:
            raise StoreUnreachableError("bad luck: try again")
        rows = [row for entry in spec.inputs for row in read_live(world, log, entry)]
        rows.sort(key=lambda row: row[0])
        if world.rows.merges:
            rows = list({row[0]: row for row in rows}.values())
        attempt = attempt_id(world, compaction)
        entries = [
            write(
                world, log, fragment_key(compaction.base_version, attempt, part), piece,
                level=spec.output_level, run=compaction.compaction_id, window=spec.window,
                sequence=min(entry.sequence for entry in spec.inputs),
            )
            for part, piece in enumerate(cut(world, rows))
        ]  # fmt: skip
    except (CompactorError, FormatError) as error:
        return failed(compaction, error)
    return Outcome(compaction_id=compaction.compaction_id, outputs=tuple(entries))


class Order:
    """The row order of a compaction: the input of each row, as `execute` has sorted them."""

    def __init__(self, rows: Sequence[tuple[int, int]], *, merges: bool) -> None:
        """rows: key and input of each row. merges: whether only the last row of a key is written."""
        keys, sources = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        plan = StagePlan(1 << 20, 0, (_ORDER, _BITS))
        self._budget = MemoryBudget(plan)
        self._order = RowOrder(self._budget, LocalDisk())
        if rows:
            present, places = np.unique(sources, return_inverse=True)
            origins = Origins.of(places.astype(np.uint16), len(present))
            starts = np.append(np.True_, keys[1:] != keys[:-1])
            flags = np.uint8(STARTS) * starts | np.uint8(KEPT) * np.append(starts[1:], np.True_)
            self._order.append(present, origins, flags if merges else None)

    def groups(self) -> Iterator[GroupOrder]:
        return self._order.groups()

    def reserve(self, size: int) -> Reservation:
        return Reservation(self._budget, ROW_HASHES, size)

    def close(self) -> None:
        self._order.close()


def order_of_rows(
    world: World, log: CommitLog, compaction: Compaction, _store: Store, _on_rows: object
) -> Order:
    """Reads the inputs once more, as the product does it with their keys."""
    world.auditor.visits["carried"] += 1
    if world.dawdle_seconds:
        world.scheduler.sleep(world.random.expovariate(1 / world.dawdle_seconds))
    with world.corrupt_is_data_error():
        rows = [
            (row[0], number)
            for number, entry in enumerate(compaction.spec.inputs)
            for row in read_live(world, log, entry)
        ]
    return Order(sorted(rows, key=lambda row: row[0]), merges=world.rows.merges)


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
    if piece:
        yield piece


# --- actors ---


def writer(world: World, files: int) -> None:
    log = world.log()
    for _ in range(files):
        ingest(world, log)
        world.scheduler.sleep(world.random.expovariate(1 / 60))


def ingest(world: World, log: CommitLog) -> CompactorError | None:
    """The error that its writer is told; None if the rows are committed."""
    world.did("upsert" if world.rows.merges else "ingest")
    number = world.next_ingest()
    removed = world.auditor.log_files_removed
    try:
        entries = ingest_fragments(world, log, number)
    except CompactorError as error:
        world.met("ingest", error, removed)
        world.auditor.refuse(number)
        return error

    def prepare(snapshot: Snapshot) -> Changes:
        age = snapshot.version + 1
        aged = tuple(structs.replace(e, sequence=(age, i)) for i, e in enumerate(entries))
        metadata = world.metadata if snapshot.version == 0 else None
        return Changes(operation=Operation.INGEST, adds=aged, metadata=metadata)

    try:
        log.commit(prepare)
    except CompactorError as error:
        world.met("ingest", error, removed)
        if not isinstance(error, UnknownOutcomeError):
            world.auditor.refuse(number)
        return error
    world.auditor.promise(number)
    return None


def ingest_fragments(world: World, log: CommitLog, number: int) -> list[FragmentEntry]:
    base = log.refresh().version
    low = world.random.randrange(world.key_space)
    width = world.random.choice(world.widths)
    keys = [low + world.random.randrange(width) for _ in range(9)]
    if world.rows.merges:
        keys = list(dict.fromkeys(keys))
    rows = [(key, number, position) for position, key in enumerate(sorted(keys))]
    world.auditor.ingest_rows[number] = rows
    window = None
    if world.windows is not None:
        window = world.clock.now_unix_ms() // 1000 // WINDOW_SECONDS
    pieces = [rows[:5], rows[5:]] if world.random.random() < 0.3 and rows[5:] else [rows]
    entries = []
    for part, piece in enumerate(pieces):
        key = fragment_key(base, f"i{number}", part)
        entries.append(
            write(world, log, key, piece, level=0, run=key, sequence=(0, 0), window=window)
        )
    return entries


def deleter(world: World, times: int) -> None:
    log = world.log()
    for _ in range(times):
        world.scheduler.sleep(world.random.expovariate(1 / 90))
        with world.tolerant("delete"):
            delete(world, log)


def delete(world: World, log: CommitLog) -> None:
    """All rows of some key, as `compactor.write.delete` does it."""
    world.did("delete")
    snapshot = log.current()
    key = some_key(world)
    found = find(world, log, snapshot, key)
    if not found:
        return
    name = deletions_key(snapshot.version, world.name())
    world.auditor.deletions[name] = key
    entries = write_deletions(log.store, name, found)
    try:
        log.commit(partial(deleting, Search.of(snapshot), entries))
    except UnknownOutcomeError:
        raise
    except (CompactorError, StaleSearchError) as error:
        world.note(f"delete: {error!r}")
        assert name not in world.auditor.deletions_committed, "a delete that failed is committed"
    else:
        assert name in world.auditor.deletions_committed, "a delete that is done is not committed"


def some_key(world: World) -> int:
    """A key that was ingested; any one as long as there is none."""
    keys = [row[0] for known in world.auditor.ingest_rows.values() for row in known]
    return world.random.choice(keys or range(world.key_space))


def find(
    world: World, log: CommitLog, snapshot: Snapshot, key: int | None
) -> list[tuple[FragmentEntry, pa.BooleanArray]]:
    """The fragments that have live rows of a key (None: any), each with all of its deleted rows then."""
    found = []
    for entry in sorted(snapshot.fragments.all(), key=lambda entry: entry.key):
        with world.corrupt_is_data_error():
            before = read_deletion(log.store, entry)
            matched = pa.array([key in (None, row[0]) for row in read(world, log, entry.key)])
        bits = matched if before is None else pc.or_(matched, before)
        if bits.true_count > entry.deleted_rows:
            found.append((entry, bits))
    return found


def deleting(search: Search, entries: list[FragmentEntry], latest: Snapshot) -> Changes:
    changes = Changes(operation=Operation.DELETE)
    return with_deletions(latest, search, entries, changes)  # type: ignore[arg-type]


class Search(Struct, frozen=True):
    """What a delete has looked at."""

    known: set[tuple[str, Deletion | None]]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Search:
        return cls({(entry.key, entry.deletion) for entry in snapshot.fragments.all()})

    def knows(self, snapshot: Snapshot) -> bool:
        return all((e.key, e.deletion) in self.known for e in snapshot.fragments.all())


def compactor(world: World, name: str, rounds: int) -> None:
    """Decides, executes and settles step by step, with twins and pauses that no worker makes."""
    log = world.log()
    driver = make_driver(world, log, name)
    uncommitted: list[Outcome] = []
    for _ in range(rounds):
        with world.tolerant("compactor"):
            for compaction in driver.decide(world.random.randint(1, 3)):
                uncommitted.append(execute(world, log, compaction))
                if world.random.random() < 0.1:
                    uncommitted.append(execute(world, log, compaction))  # a speculative twin
                driver.prolong()
            for finished in driver.commit_outcomes(uncommitted):
                world.auditor.visits["not carried"] += bool(finished.void_reason)
            uncommitted.clear()
        world.scheduler.sleep(world.random.expovariate(1 / 60))
    if world.random.random() < 0.5:
        with world.tolerant("compactor"):
            driver.give_up()
    if log.latest.version and world.random.random() < 0.3:
        with world.tolerant("release"):
            log.commit(release_all)


def worker(world: World, name: str, seconds: float, lives: int) -> None:
    """The product's loop; whenever its process dies, its supervisor starts another one."""
    for life in range(lives):
        owner = f"{name}.{life}"
        try:
            with world.tolerant("worker"):
                run_worker(world, owner, seconds)
            return
        except Crash:
            world.note(f"{owner} dies")
            world.dead.add(owner)
        world.scheduler.sleep(world.random.expovariate(1 / 30))


def run_worker(world: World, owner: str, seconds: float) -> None:
    """seconds: for which it watches; 0: until nothing is due."""
    log = world.log()
    driver = make_driver(world, log, owner)
    loop = Worker([driver], Engine(world, log), clock=world.clock)
    if seconds:
        loop.run(Stop(world.scheduler, seconds), poll_seconds=20, drain_seconds=30)  # type: ignore[arg-type]
    else:
        loop.run_until_idle()


class Engine:
    """An engine of one process; when its session is lost, every job fails from then on."""

    slots = 2

    def __init__(self, world: World, log: CommitLog) -> None:
        self._world, self._log = world, log
        self._waiting: list[Compaction] = []
        self._is_lost = False

    def start_rss_bytes(self) -> int:
        return 0

    def submit(self, compaction: Compaction) -> None:
        self._waiting.append(compaction)

    def wait(self, timeout_seconds: float) -> Sequence[Outcome]:
        if not self._waiting:
            return ()
        random = self._world.random
        compaction = self._waiting.pop(random.randrange(len(self._waiting)))
        if not self._is_lost and random.random() < self._world.lost_sessions:
            self._world.note("the engine loses its session")
            self._is_lost = True
        if self._is_lost:
            return (failed(compaction, JobError("Spark stopped during the task: refused")),)
        return (execute(self._world, self._log, compaction),)

    def cancel(self) -> None:
        self._waiting.clear()


class Stop:
    """The event that tells a worker to stop, set after some time."""

    def __init__(self, scheduler: Scheduler, seconds: float) -> None:
        self._scheduler = scheduler
        self._at_ms = scheduler.now_ms + seconds * 1000

    def is_set(self) -> bool:
        return self._scheduler.now_ms >= self._at_ms

    def wait(self, seconds: float) -> bool:
        self._scheduler.sleep(seconds)
        return self.is_set()


def release_all(snapshot: Snapshot) -> Changes:
    """Suspects, too: workers were killed by chance, and whoever knows that says so."""
    released_fragments = dict.fromkeys([*snapshot.quarantine, *snapshot.suspects])
    return Changes(operation=Operation.QUARANTINE, released_fragments=tuple(released_fragments))


def make_driver(world: World, log: CommitLog, name: str) -> Driver:
    settings = DriverSettings(
        policy=world.random.choice(world.policies),
        compaction=world.settings,
        max_attempts=world.random.choice([1, 3]),
        lease_seconds=world.random.choice(world.lease_seconds),
        takes_over=world.random.random() < 0.1,
    )
    return Driver(
        log,
        settings,
        ids=world.name,
        owner=name,
        owner_is_gone=world.is_gone,
        order_of=partial(order_of_rows, world, log),
    )


def cleaner(
    world: World, rounds: int, seconds: Sequence[int | None] = (0, 30, 600, 10_000)
) -> None:
    """seconds: of grace and of retention, to choose from; None leaves it to the table's properties."""
    store = world.store()
    log = world.log(store)
    for _ in range(rounds):
        world.scheduler.sleep(world.random.expovariate(1 / 100))
        told: dict[str, Any] = {
            "grace_seconds": world.random.choice(seconds),
            "retain_seconds": world.random.choice(seconds),
        }
        told = {name: value for name, value in told.items() if value is not None}
        settings = VacuumSettings(**told, deleters=1)
        world.strike()
        world.did("vacuum")
        world.vacuums += 1
        store.vacuum = settings
        try:
            with world.tolerant("vacuum"):
                world.note(f"vacuum: {vacuum(log, settings)}")
        finally:
            store.vacuum = None
            world.vacuums -= 1


def historian(world: World, times: int) -> None:
    """Goes back to earlier versions, whatever others do meanwhile."""
    log = world.log()
    for _ in range(times):
        world.scheduler.sleep(world.random.expovariate(1 / 60))
        with world.tolerant("go back"):
            newest = log.current()
            tagged = sorted(newest.tagged)
            if tagged and world.random.random() < 0.4:
                target = log.at(world.random.choice(tagged))
            else:
                target = log.at(world.random.randint(newest.oldest, newest.version))
            if world.random.random() < 0.3:
                world.scheduler.sleep(world.random.expovariate(1 / 60))
            what = world.random.random()
            world.did("go back or tag")
            runs = sorted({e.run for e in newest.fragments.all() if e.run != e.key})
            if what < 0.2 and runs:
                order_of = partial(order_of_rows, world, log)
                done = undo_compaction(log, world.random.choice(runs), order_of=order_of)
                world.note(f"undo: {done}")
            elif what < 0.5:
                world.note(f"restore: {restore_version(log, target)}")
            elif what < 0.9 or not newest.tags:
                keep = world.random.choice([None, 30, 600])
                name = world.random.choice("ab")
                world.note(f"{set_tag(log, name, target, keep_seconds=keep, move=True)}")
            else:
                names = [tag.name for tag in newest.tags if not tag.keeps_later]
                if names:
                    world.note(f"untag: {end_tag(log, world.random.choice(names))}")


def reader(world: World, rounds: int) -> None:
    log = world.log()
    for _ in range(rounds):
        world.scheduler.sleep(world.random.expovariate(1 / 90))
        if world.random.random() < 0.5:
            log = world.log()
        with world.tolerant("reader"):
            read_once(world, log)


def read_once(world: World, log: CommitLog) -> None:
    world.did("read")
    newest_before = world.auditor.snapshot.version
    snapshot = log.refresh()
    world.auditor.seen(snapshot, newest_before)
    if snapshot.version and world.random.random() < 0.4:
        version = world.random.randint(snapshot.oldest, snapshot.version)
        if snapshot.tags and world.random.random() < 0.5:
            version = world.random.choice(sorted(snapshot.tagged))
        try:
            snapshot = log.history.at(version, snapshot)
        except OvertakenError:
            # Its log files have been removed meanwhile.
            if not world.vandal.hurts:
                assert not world.auditor.snapshot.keeps(version)
            return
        world.auditor.seen(snapshot, 0)
    if world.random.random() < 0.5:
        snapshot = snapshot.without(snapshot.quarantine)
    for entry in snapshot.fragments.all():
        try:
            with world.corrupt_is_data_error():
                rows = read_live(world, log, entry)
        except (ObjectNotFoundError, OvertakenError):
            world.auditor.missing(entry.key, snapshot.version)
            return
        assert rows == world.auditor.live_rows(entry)


def settle_losses(world: World, log: CommitLog) -> None:
    """What an operator does about fragments that are gone: restores some, and gives the others up."""
    for key in [*world.vandal.lost]:
        if world.random.random() < 0.5:
            world.vandal.give_back(key)
        elif key in log.current().fragments:
            world.note(f"drop: {drop_fragment(log, key, lose_rows=True)}")


def restarting(world: World, name: str, run: Callable[[], None]) -> None:
    """An actor, and another of its kind some time after, whatever became of the first."""
    world.scheduler.spawn(name, run)

    def later() -> None:
        world.scheduler.sleep(world.random.expovariate(1 / 400))
        run()

    world.scheduler.spawn(f"{name}'", later)
