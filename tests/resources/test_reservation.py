"""Reservations: what they hold is what the budget has charged, until they are freed or dropped."""

from __future__ import annotations

import gc
import random
import threading

import pytest

from compactor.resources.budget import MemoryBudget
from compactor.resources.errors import MemoryLimitError
from compactor.resources.reservation import Pins, Reservation
from tests.resources.test_budget import budget_of
from tests.support.wording import refuses


@pytest.fixture
def budget() -> MemoryBudget:
    return budget_of(a=0, b=None)


@pytest.mark.parametrize("seed", range(30))
def test_the_budget_has_charged_what_the_reservations_hold(seed: int, budget: MemoryBudget) -> None:
    rng = random.Random(seed)
    held = [Reservation(budget, stage) for stage in "ab"]

    def change(one: Reservation) -> None:
        size = rng.randrange(60)
        match rng.randrange(8):
            case 0:
                one.grow(size)
            case 1:
                one.try_grow(size, is_urgent=rng.random() < 0.5)
            case 2:
                one.grow_beyond(size)
            case 3:
                one.shrink(min(size, one.size))
            case 4:
                one.resize(size)
            case 5:
                held.append(one.split(min(size, one.size)))
            case 6:
                held.append(one.take())
            case _:
                other = rng.choice([some for some in held if some.stage == one.stage])
                if other is not one:
                    one.absorb(other)

    for _ in range(200):
        try:
            change(rng.choice(held))
        except MemoryLimitError:
            held[rng.randrange(2)].free()
        if len(held) > 8:
            del held[rng.randrange(2, len(held))]
        for stage in "ab":
            assert budget.held_bytes(stage) == sum(one.size for one in held if one.stage == stage)
        assert budget.used_bytes == sum(one.size for one in held)
    held.clear()
    assert budget.used_bytes == 0


def test_a_dropped_reservation_is_freed_at_once(budget: MemoryBudget) -> None:
    gc.disable()
    try:
        data = {"rows": b"x" * 100, "memory": Reservation(budget, "a", 100)}
        assert budget.held_bytes("a") == 100
        del data
        assert budget.used_bytes == 0
    finally:
        gc.enable()


def test_a_block_frees_its_reservation_on_an_error(budget: MemoryBudget) -> None:
    kept = []
    with pytest.raises(ZeroDivisionError), Reservation(budget, "a", 100) as memory:
        kept.append(memory)
        memory.grow(50)
        raise ZeroDivisionError
    assert (kept[0].size, budget.used_bytes) == (0, 0)


def test_a_refused_reservation_holds_nothing_and_a_refused_growth_changes_nothing(
    budget: MemoryBudget,
) -> None:
    memory = Reservation(budget, "a", 600)
    with refuses(MemoryLimitError):
        Reservation(budget, "b", 500)
    assert not memory.try_grow(201)
    assert not memory.try_grow(401, is_urgent=True)
    assert memory.try_grow(400, is_urgent=True)
    assert (memory.size, budget.used_bytes) == (1000, 1000)


def test_what_a_spill_frees_while_its_stage_grows_is_not_freed_again(budget: MemoryBudget) -> None:
    memory = Reservation(budget, "a", 700)
    budget.spill_by("a", lambda _: memory.free())
    memory.grow(300)
    assert (memory.size, budget.held_bytes("a")) == (300, 300)


def test_a_part_can_be_freed_in_another_thread_while_its_owner_goes_on(
    budget: MemoryBudget,
) -> None:
    memory = Reservation(budget, "a")
    budget.drains_by_itself("a")
    threads = []
    for _ in range(200):
        memory.grow(90)
        threads.append(threading.Thread(target=memory.split(80).free))
        threads[-1].start()
        memory.shrink(10)
    for thread in threads:
        thread.join()
    assert (memory.size, budget.used_bytes) == (0, 0)


def test_a_transfer_waits_until_other_threads_have_drained_the_stage(budget: MemoryBudget) -> None:
    parts = Reservation(budget, "a", 200)
    sending = parts.split(100)
    sending.transfer("b", 100)
    assert (budget.held_bytes("a"), budget.held_bytes("b")) == (100, 100)
    drained = threading.Timer(0.01, sending.free)
    drained.start()
    parts.transfer("b", 100)
    drained.join()
    assert (parts.stage, budget.held_bytes("a"), budget.held_bytes("b")) == ("b", 0, 100)


def test_pinned_data_stays_charged_until_its_owner_and_all_pins_have_let_it_go(
    budget: MemoryBudget,
) -> None:
    memory, first, second = Reservation(budget, "a", 100), Pins(), Pins()
    for pins in (first, second, second):
        pins.add(memory)
    assert memory.is_pinned
    first.free()
    assert memory.is_pinned
    del memory
    assert budget.held_bytes("a") == 100
    second.free()
    second.free()
    assert budget.used_bytes == 0


def test_data_without_a_pin_left_may_spill_again(budget: MemoryBudget) -> None:
    memory = Reservation(budget, "a", 100)
    with Pins() as pins:
        pins.add(memory)
        assert memory.is_pinned
    assert not memory.is_pinned
    assert memory.size == 100
