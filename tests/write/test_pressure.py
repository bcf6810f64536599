"""Writers slow down, wait and go on by the compaction debt."""

from __future__ import annotations

from compactor.errors import BackPressureError
from compactor.planner.debt import Debt
from compactor.settings.compaction import Policy
from compactor.write.back_pressure import BackPressure, Reaction
from tests.compaction.test_driver import World, outcome
from tests.support.wording import refuses

POLICY = Policy(level0_trigger_runs=2, slow_runs=2, stop_runs=4)


def pressure(world: World, reaction: Reaction = Reaction.WAIT) -> BackPressure:
    return BackPressure(reaction, policy=POLICY, max_wait_seconds=60, clock=world.clock)


def test_a_healthy_table_takes_writes_at_once() -> None:
    world = World()
    before = world.clock.now_ms
    world.ingest(0, 9)
    pressure(world).admit(world.log())
    assert world.clock.now_ms == before


def test_the_more_debt_the_longer_the_pause() -> None:
    world = World()
    pauses = []
    for _ in range(3):
        world.ingest(0, 9)
        before = world.clock.now_ms
        pressure(world).admit(world.log())
        pauses.append(world.clock.now_ms - before)
    assert pauses == [0, 0, 2500]


def test_a_writer_waits_until_compactions_have_caught_up() -> None:
    world = World()
    for _ in range(5):
        world.ingest(0, 9)
    log = world.log()
    sleep, naps = world.clock.sleep, []

    def compact_after_three(seconds: float) -> None:
        sleep(seconds)
        naps.append(seconds)
        if len(naps) == 3:
            driver = world.driver("one")

            driver.commit_outcomes([outcome(c) for c in driver.decide(1)])

    world.clock.sleep = compact_after_three  # type: ignore[method-assign]
    said: list[Debt] = []
    pressure(world).admit(log, said.append)
    assert naps == [2.0, 2.0, 2.0]
    assert [debt.level0_runs for debt in said] == [5]


def test_a_writer_does_not_wait_for_ever() -> None:
    world = World()
    for _ in range(5):
        world.ingest(0, 9)
    with refuses(BackPressureError):
        pressure(world).admit(world.log())


def test_who_only_wants_a_warning_goes_on() -> None:
    world = World()
    for _ in range(5):
        world.ingest(0, 9)
    before = world.clock.now_ms
    said: list[Debt] = []
    pressure(world, Reaction.WARN).admit(world.log(), said.append)
    pressure(world, Reaction.OFF).admit(world.log(), said.append)
    assert world.clock.now_ms == before
    assert len(said) == 1
