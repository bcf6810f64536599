"""One run by one seed, and what must hold in the end."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from msgspec.structs import replace

from compactor.compaction.driver import Driver, DriverSettings
from compactor.compaction.worker import Worker
from compactor.errors import DataError
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.settings.vacuum import VacuumSettings
from compactor.table import commit_log
from compactor.table import vacuum as vacuuming
from compactor.table.commit_log import CommitLog
from compactor.table.repair import repair
from compactor.table.vacuum import vacuum
from compactor.write.tags import end_tag
from tests.faults import Crash
from tests.faults.chances import Chances
from tests.simulation.actors import (
    POLICIES,
    Engine,
    World,
    cleaner,
    compactor,
    deleter,
    execute,
    historian,
    ingest,
    order_of_rows,
    reader,
    release_all,
    restarting,
    settle_losses,
    worker,
    writer,
)
from tests.simulation.decoded_once import decoded_once
from tests.simulation.hazards import BY_NAME, HAZARDS, Hazard
from tests.simulation.lives import alterer, replacer, subscriber
from tests.simulation.scheduler import Scheduler

_MAX_STEPS = 200_000
_MAX_ROUNDS = 60
_MAX_LIVES = 20

Scene = Callable[[World], None]


class FoundError(AssertionError):
    """The finding of a run, with what led to it."""

    def __init__(self, seed: int, cause: str, trace: list[str]) -> None:
        super().__init__(f"seed {seed}: {cause}")
        self.seed, self.cause, self.trace = seed, cause, trace

    def __reduce__(self):
        return FoundError, (self.seed, self.cause, self.trace)


def simulate(seed: int, scene: Scene | None = None, *hazards: Hazard) -> Scheduler:
    """Raises `FoundError`. Its trace says what happened. The seed decides on what is not given."""
    random.seed(seed)  # the jitter of retries
    world = World(seed)
    if scene is None:
        scene = world.random.choices(list(SCENES), list(SCENES.values()))[0]
        hazards = hazards or tuple(_draw(world)) if scene is spawn_few else hazards
    tokens = scene in (spawn_few, spawn_lives) and world.random.random() < 0.9
    with _small_constants(world), decoded_once(tokens=tokens):
        try:
            world.note(f"{scene.__name__} with {', '.join(map(str, hazards)) or 'nothing'}")
            for hazard in hazards:
                hazard.prepare(world)
            scene(world)
            world.scheduler.run(_MAX_STEPS)
            _come_to_rest(world)
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            raise FoundError(seed, cause, world.scheduler.trace) from error
    return world.scheduler


def finding(seed: int, hazard: str | None = None) -> FoundError | None:
    """Of one seed, for pools of processes. Warnings about checkpoints that failed are expected."""
    logging.disable(logging.CRITICAL)
    try:
        if hazard is None:
            simulate(seed)
        else:
            simulate(seed, spawn_few, BY_NAME[hazard])
    except FoundError as found:
        return found
    return None


def _draw(world: World) -> list[Hazard]:
    ready = [hazard for hazard in HAZARDS if not hazard.waits_for]
    return world.random.sample(ready, world.random.choice([0, 1, 1, 1, 2]))


def spawn_few(world: World) -> None:
    """Few actors for a short time: thousands of runs a minute."""
    choose = world.random
    _set_log_constants(choose.choice([2, 4]), choose.choice([0, 0, 200]))
    world.failing = choose.choice([0.0, 0.1])
    chances = choose.choice(
        [Chances(), Chances(), Chances(lose_answer=0.05), Chances(kill=0.004, slow=0.02)]
    )
    world.shared.chances = replace(chances, deliver_twice=world.shared.chances.deliver_twice)
    for number in range(choose.randint(1, 2)):
        world.scheduler.spawn(f"writer{number}", partial(writer, world, choose.randint(1, 3)))
    for number in range(choose.randint(1, 2)):
        name = f"worker{number}"
        if choose.random() < 0.3:
            world.scheduler.spawn(name, partial(compactor, world, name, 3))
        else:
            seconds = choose.choice([0, 60, 300])
            world.scheduler.spawn(name, partial(worker, world, name, seconds, 20))
    for number in range(choose.randint(0, 1)):
        rounds = choose.randint(1, 2)
        world.scheduler.spawn(f"vacuum{number}", partial(cleaner, world, rounds))
    deletes = max(world.deletes, choose.choice([0, 0, 0, 1, 2]))
    if deletes:
        world.scheduler.spawn("deleter", partial(deleter, world, deletes))
    if choose.random() < 0.3:
        world.scheduler.spawn("reader", partial(reader, world, 2))
    restores = max(world.restores, choose.choice([0, 0, 0, 0, 1, 3]))
    if restores:
        world.scheduler.spawn("historian", partial(historian, world, restores))


def spawn_zombies(world: World) -> None:
    """Compactions that outlive their leases, on fragments with wide gaps between them."""
    world.shared.chances = Chances(slow=0.05)
    world.key_space, world.widths = 60, [1, 3]
    world.settings = CompactionSettings(target_fragment_bytes=100_000)
    world.policies = [POLICIES[3], POLICIES[4]]
    world.lease_seconds, world.dawdle_seconds = [5.0, 60.0], 40.0
    for number in range(2):
        world.scheduler.spawn(f"writer{number}", partial(writer, world, 8))
    for number in range(3):
        name = f"compactor{number}"
        world.scheduler.spawn(name, partial(compactor, world, name, 8))


def spawn_deletes(world: World) -> None:
    """Deletes that come while compactions run and commit, one after the other."""
    world.settings = CompactionSettings(target_fragment_bytes=400)
    world.policies = [POLICIES[3], POLICIES[4]]
    world.lease_seconds, world.dawdle_seconds = [10_000.0], 60.0
    for number in range(2):
        world.scheduler.spawn(f"writer{number}", partial(writer, world, 6))
        name = f"compactor{number}"
        world.scheduler.spawn(name, partial(compactor, world, name, 8))
    for number in range(4):
        world.scheduler.spawn(f"deleter{number}", partial(deleter, world, 8))


def spawn_deletes_of_keys(world: World) -> None:
    """Deletes that come while compactions merge the rows of each key."""
    world.merge_rows()
    spawn_deletes(world)


def spawn_vacuums(world: World) -> None:
    """Log files that go while others commit, everybody slow."""
    world.shared.chances = Chances(slow=0.1, hesitate=0.3)
    _set_log_constants(3, 0)
    for number in range(4):
        world.scheduler.spawn(f"writer{number}", partial(writer, world, 8))
    for number in range(2):
        world.scheduler.spawn(f"vacuum{number}", partial(cleaner, world, 8, [0]))


def spawn_alterations(world: World) -> None:
    """Properties that are set while vacuums read the log which they obey, everybody slow."""
    _spawn_slow_vacuums(world, [None])
    for number in range(2):
        world.scheduler.spawn(f"alterer{number}", partial(alterer, world, 30, 20))


def spawn_tags(world: World) -> None:
    """Tags that are set while vacuums choose what they keep, everybody slow."""
    _spawn_slow_vacuums(world, [0, 60])
    for number in range(3):
        world.scheduler.spawn(f"historian{number}", partial(historian, world, 30))


def _spawn_slow_vacuums(world: World, retain_seconds: Sequence[int | None]) -> None:
    world.shared.chances = Chances(slow=0.1, hesitate=0.3)
    _set_log_constants(3, 0)
    for number in range(2):
        world.scheduler.spawn(f"writer{number}", partial(writer, world, 8))
        world.scheduler.spawn(f"vacuum{number}", partial(cleaner, world, 8, retain_seconds))


def spawn_any(world: World) -> None:
    choose = world.random
    world.shared.chances = choose.choice(
        [
            Chances(),
            Chances(slow=0.05),
            Chances(drop=0.01, lose_answer=0.02, slow=0.02),
            Chances(kill=0.003, slow=0.05, stall=0.004),
            Chances(kill=0.002, drop=0.01, lose_answer=0.02, slow=0.03, stall=0.004),
            Chances(lose_answer=0.1, stall=0.002),
            Chances(lose_answer=0.5, drop=0.05),
            Chances(slow=0.2, stall=0.01),
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
    restarting(world, "deleter", partial(deleter, world, choose.randint(0, 2)))
    restarting(world, "historian", partial(historian, world, choose.choice([0, 0, 1, 3])))


def spawn_lives(world: World) -> None:
    """All that happens to a table in its life, with faults of requests and processes."""
    choose = world.random
    _set_log_constants(choose.choice([3, 8]), choose.choice([0, 200]))
    world.failing = 0.1
    world.dawdle_seconds = choose.choice([0.0, 20.0])
    world.shared.chances = choose.choice(
        [Chances(), Chances(lose_answer=0.02, drop=0.01), Chances(kill=0.001, slow=0.03)]
    )
    if choose.random() < 0.4:
        world.merge_rows()
    for number in range(2):
        restarting(world, f"writer{number}", partial(writer, world, 5))
        restarting(world, f"deleter{number}", partial(deleter, world, 3))
        restarting(world, f"replacer{number}", partial(replacer, world, 3))
        restarting(world, f"historian{number}", partial(historian, world, 3))
        restarting(world, f"reader{number}", partial(subscriber, world, 4))
        world.scheduler.spawn(f"worker{number}", partial(worker, world, f"worker{number}", 900, 20))
        restarting(world, f"alterer{number}", partial(alterer, world, 3, choose.choice([5, 120])))
    restarting(world, "vacuum", partial(cleaner, world, 4, [0, 30, 10_000, None, None]))
    restarting(world, "compactor", partial(compactor, world, "compactor", 4))
    restarting(world, "onlooker", partial(reader, world, 3))


def spawn_many(world: World) -> None:
    """Many actors for long: what takes a history of some length to come up."""
    world.random.choice([spawn_any, spawn_any, spawn_zombies, spawn_vacuums])(world)


SCENES: dict[Scene, int] = {spawn_few: 92, spawn_many: 4, spawn_lives: 2, spawn_alterations: 2}
"""By how often a seed chooses them."""


def _come_to_rest(world: World) -> None:
    """Without faults and other actors, compactions end, a vacuum leaves what is live, all rows are there.

    What only one object held is restored from a backup. Where strays are refused, they are put aside.
    """
    world.shared.chances, world.shared.refusal = Chances(), None
    world.shared.has_conditions = True
    world.failing = world.lost_sessions = 0.0
    world.vandal.restore()
    world.scheduler.note("faults end")
    _mended(world, lambda: _ingest(world))
    world.scheduler.sleep(1_000)
    if world.vandal.lost:
        _mended(world, lambda: _live_with_losses(world))
    _mended(world, lambda: _release(world))
    for strategy in (world.random.choice(list(Strategy)), Strategy.FULL):
        _mended(world, partial(_compact, world, strategy))
    if not world.fatal:
        world.auditor.check_compacted()
    _mended(world, lambda: _untag(world))
    world.scheduler.sleep(1_000)
    for _ in range(3):
        world.strike()
        _mended(world, lambda: _vacuum(world))
    # The last vacuum's commit may have reached a stray, which now is where the next version belongs.
    _mended(world, lambda: world.log().current())
    fresh = world.log().current()
    world.auditor.seen(fresh, world.auditor.snapshot.version)
    world.auditor.check_end(world.shared.objects)
    assert not world.shared.uploads, "unfinished uploads stay"


def _mended(world: World, act: Callable[[], object]) -> None:
    """Does it; where the log is refused because of what the vandal did, after a repair."""
    try:
        act()
    except DataError as error:
        world.met("at rest", error, world.auditor.log_files_removed)
        assert world.vandal.hurts, "the log is refused, and all is well"
        with world.tolerant("repair"):
            repair(world.store(), apply=True, ids=world.name)
        try:
            act()
        except DataError as again:
            # Rows may be in what a repair leaves: an operator has to look at it.
            world.note(f"not repaired: {again}")
            world.vandal.take_strays_away()
            act()


def _ingest(world: World) -> None:
    refused = ingest(world, world.log())
    if refused is not None:
        raise refused


def _release(world: World) -> None:
    log = world.log()
    log.refresh()
    log.commit(release_all)


def _untag(world: World) -> None:
    log = world.log()
    for tag in log.current().tags:
        end_tag(log, tag.name)


def _live_with_losses(world: World) -> None:
    """Fragments that are gone stop adding versions, and then an operator restores them or gives them up."""
    if not world.fatal:
        for _ in range(2):
            _compact_as_command(world)
        version = world.log().current().version
        _compact_as_command(world)
        assert world.log().current().version == version, "what is gone adds versions in vain"
    settle_losses(world, world.log())


def _compact_as_command(world: World) -> None:
    log, owner = world.log(), world.name()
    settings = DriverSettings(
        policy=Policy(strategy=Strategy.FULL), compaction=world.settings, gives_up=True
    )
    driver = Driver(log, settings, ids=world.name, owner=owner, owner_is_gone=world.is_gone)
    Worker([driver], Engine(world, log), clock=world.clock).run_until_idle()


def _vacuum(world: World) -> None:
    vacuum(world.log(), VacuumSettings(grace_seconds=0, retain_seconds=0, deleters=1))


def _compact(world: World, strategy: Strategy) -> None:
    """Until nothing is due. Workers die of what takes too much memory, but not for ever."""
    policy = Policy(strategy=strategy, level1_target_bytes=2_000, level_multiplier=2)
    for life in range(_MAX_LIVES):
        owner = f"last{life}"
        log = world.log()
        driver = Driver(
            log,
            DriverSettings(policy=policy, compaction=world.settings),
            ids=world.name,
            owner=owner,
            owner_is_gone=world.is_gone,
            order_of=partial(order_of_rows, world, log),
        )
        try:
            _compact_with(world, log, driver)
        except Crash:
            world.dead.add(owner)
            world.scheduler.sleep(60)
            continue
        except DataError:
            world.dead.add(owner)
            raise
        break
    else:
        raise AssertionError(f"workers die of {sorted(world.fatal)} for ever")
    version = log.current().version
    assert driver.decide(99) == []
    assert log.current().version == version, "commits although nothing is due"


def _compact_with(world: World, log: CommitLog, driver: Driver) -> None:
    for _ in range(_MAX_ROUNDS):
        compactions = driver.decide(99)
        if not compactions:
            return
        driver.commit_outcomes([execute(world, log, compaction) for compaction in compactions])
    raise AssertionError("compactions come to no end")


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
