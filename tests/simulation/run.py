"""One run by one seed, and what must hold in the end."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from compactor.config import CompactionSettings, Policy, Strategy
from compactor.driver import Driver, DriverSettings
from compactor.table import commit_log
from compactor.table import vacuum as vacuuming
from compactor.table.vacuum import VacuumSettings, vacuum
from tests.simulation.actors import (
    POLICIES,
    World,
    cleaner,
    compactor,
    execute,
    ingest,
    pardon_all,
    reader,
    restarting,
    writer,
)
from tests.simulation.scheduler import Scheduler
from tests.simulation.store import Faults

_MOST_STEPS = 200_000
_MOST_ROUNDS = 60


class FoundError(AssertionError):
    """The finding of a run, with what led to it."""

    def __init__(self, seed: int, cause: str, trace: list[str]) -> None:
        super().__init__(f"seed {seed}: {cause}")
        self.seed, self.cause, self.trace = seed, cause, trace

    def __reduce__(self):
        return FoundError, (self.seed, self.cause, self.trace)


def simulate(seed: int) -> Scheduler:
    """Raises `FoundError`. Its trace says what happened."""
    random.seed(seed)  # the jitter of retries
    world = World(seed)
    with _small_constants(world):
        try:
            _spawn(world)
            world.scheduler.run(_MOST_STEPS)
            _come_to_rest(world)
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            raise FoundError(seed, cause, world.scheduler.trace) from error
    return world.scheduler


def finding(seed: int) -> FoundError | None:
    """Of one seed, for pools of processes. Warnings about checkpoints that failed are expected."""
    logging.disable(logging.CRITICAL)
    try:
        simulate(seed)
    except FoundError as found:
        return found
    return None


def _spawn(world: World) -> None:
    world.random.choice([_spawn_any, _spawn_any, _spawn_zombies, _spawn_vacuums])(world)


def _spawn_zombies(world: World) -> None:
    """Compactions that outlive their claims, on fragments with wide gaps between them."""
    world.shared.faults = Faults(slow=0.05)
    world.key_space, world.widths = 60, [1, 3]
    world.settings = CompactionSettings(target_fragment_bytes=100_000)
    world.policies = [POLICIES[3], POLICIES[4]]
    world.claim_seconds, world.dawdle_seconds = [5.0, 60.0], 40.0
    for number in range(2):
        world.scheduler.spawn(f"writer{number}", partial(writer, world, 8))
    for number in range(3):
        name = f"compactor{number}"
        world.scheduler.spawn(name, partial(compactor, world, name, 8))


def _spawn_vacuums(world: World) -> None:
    """Log files that go while others commit, everybody slow."""
    world.shared.faults = Faults(slow=0.1, hesitates=0.3)
    _set_log_constants(3, 0)
    for number in range(4):
        world.scheduler.spawn(f"writer{number}", partial(writer, world, 8))
    for number in range(2):
        world.scheduler.spawn(f"vacuum{number}", partial(cleaner, world, 8, [0]))


def _spawn_any(world: World) -> None:
    choose = world.random
    world.shared.faults = choose.choice(
        [
            Faults(),
            Faults(slow=0.05),
            Faults(refused=0.01, lost=0.02, slow=0.02),
            Faults(crash=0.003, slow=0.05, stalled=0.004),
            Faults(crash=0.002, refused=0.01, lost=0.02, slow=0.03, stalled=0.004),
            Faults(lost=0.1, stalled=0.002),
            Faults(lost=0.5, refused=0.05),
            Faults(slow=0.2, stalled=0.01),
        ]
    )
    for number in range(choose.randint(1, 3)):
        restarting(world, f"writer{number}", partial(writer, world, choose.randint(1, 5)))
    for number in range(choose.randint(1, 3)):
        name = f"compactor{number}"
        restarting(world, name, partial(compactor, world, name, choose.randint(1, 6)))
    for number in range(choose.randint(0, 2)):
        restarting(world, f"vacuum{number}", partial(cleaner, world, choose.randint(1, 4)))
    restarting(world, "reader", partial(reader, world, choose.randint(1, 6)))


def _come_to_rest(world: World) -> None:
    """No faults, nobody else: compactions end, a vacuum leaves what is live, all rows are there."""
    world.shared.faults = Faults()
    world.scheduler.note("faults end")
    log = world.log()
    ingest(world, log)
    world.scheduler.sleep(1_000)
    log.commit(pardon_all)
    world.failing = 0.03
    for strategy in (world.random.choice(list(Strategy)), Strategy.FULL):
        _compact(world, strategy)
    world.scheduler.sleep(1_000)
    for _ in range(2):
        vacuum(world.log(), VacuumSettings(grace_seconds=0, retain_seconds=0, deleters=1))
    fresh = world.log().current()
    world.auditor.seen(fresh, world.auditor.snapshot.version)
    world.auditor.check_end(world.shared.objects)
    assert not world.shared.uploads, "unfinished uploads stay"


def _compact(world: World, strategy: Strategy) -> None:
    policy = Policy(strategy=strategy, level1_target_bytes=2_000, level_multiplier=2)
    log = world.log()
    driver = Driver(
        log,
        DriverSettings(policy, world.settings, max_attempts=1_000, retry_seconds=0),
        ids=world.name,
        owner="last",
        owner_is_gone=lambda _: False,
    )
    for _ in range(_MOST_ROUNDS):
        compactions = driver.decide(99)
        if not compactions:
            break
        driver.settle([execute(world, log, compaction) for compaction in compactions])
    else:
        raise AssertionError(f"{strategy} comes to no end")
    version = log.current().version
    assert driver.decide(99) == []
    assert log.current().version == version, "commits although nothing is due"


_LOG_CONSTANTS = [
    (commit_log, "_CHECKPOINT_VERSIONS"),
    (commit_log, "_MAX_CHECKPOINT_VERSIONS"),
    (vacuuming, "LOG_GRACE_SECONDS"),
]


@contextmanager
def _small_constants(world: World) -> Iterator[None]:
    """Checkpoints after a few versions, log files removed after minutes: or none would see it."""
    before = [(module, name, getattr(module, name)) for module, name in _LOG_CONSTANTS]
    _set_log_constants(world.random.choice([3, 6, 64]), world.random.choice([0, 0, 200]))
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _set_log_constants(versions: int, grace_seconds: int) -> None:
    for (module, name), value in zip(
        _LOG_CONSTANTS, (versions, versions, grace_seconds), strict=True
    ):
        setattr(module, name, value)
