"""Charges: bounded, spilled in order, waited for, and named when they do not fit."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import pytest

from compactor.resources import trimmer
from compactor.resources.budget import MemoryBudget
from compactor.resources.errors import MemoryLimitError
from compactor.resources.stage import Buffer, MemoryStage, StagePlan
from tests.support.wording import refuses


def budget_of(**priorities: int | None) -> MemoryBudget:
    stages = tuple(
        MemoryStage(
            name=name, holds="", buffer=Buffer.STREAMING, memory_bytes=0, spill_priority=priority
        )
        for name, priority in priorities.items()
    )
    return MemoryBudget(StagePlan(1000, 0, stages))


def spills_all(budget: MemoryBudget, stage: str, log: list[str]) -> None:
    def spill(_: int) -> int:
        log.append(stage)
        freed = budget.held_bytes(stage)
        budget.discharge(stage, freed)
        return freed

    budget.spill_by(stage, spill)


def test_nothing_is_spilled_below_the_soft_threshold() -> None:
    log: list[str] = []
    budget = budget_of(a=0)
    spills_all(budget, "a", log)
    budget.charge("a", 800)
    assert log == []


def test_stages_spill_by_priority_and_only_as_many_as_needed() -> None:
    log: list[str] = []
    budget = budget_of(late=2, first=0, second=1, busy=None)
    for stage in ("late", "second", "first"):
        spills_all(budget, stage, log)
        budget.charge(stage, 200)
    budget.charge("busy", 500)
    assert log == ["first", "second"]
    assert budget.held_bytes("late") == 200
    assert budget.peaks["first"] == 200


def test_a_charge_past_the_limit_names_stage_need_and_what_holds_memory() -> None:
    budget = budget_of(decode=None, gather=None)
    budget.charge("gather", 900)
    with refuses(MemoryLimitError):
        budget.charge("decode", 200)
    assert budget.used_bytes == 900


def test_a_charge_waits_for_what_others_are_about_to_give_back() -> None:
    budget = budget_of(upload=None, encode=None)
    budget.drains_by_itself("upload")
    budget.charge("upload", 900)
    charged = threading.Event()

    def charge() -> None:
        budget.charge("encode", 500)
        charged.set()

    thread = threading.Thread(target=charge)
    thread.start()
    assert not charged.wait(0.1)
    budget.discharge("upload", 300)
    assert not charged.wait(0.1)
    budget.discharge("upload", 200)
    thread.join(5)
    assert charged.is_set()


def test_what_is_being_sent_is_bounded_but_a_single_large_part_passes() -> None:
    budget = budget_of(parts=None, upload=None)
    budget.charge("parts", 900)
    budget.move_when_below("parts", "upload", 500, 100)
    moved = threading.Event()

    def move() -> None:
        budget.move_when_below("parts", "upload", 60, 100)
        moved.set()

    thread = threading.Thread(target=move)
    thread.start()
    assert not moved.wait(0.1)
    budget.discharge("upload", 500)
    thread.join(5)
    assert moved.is_set()
    assert (budget.held_bytes("parts"), budget.held_bytes("upload")) == (340, 60)


def test_charges_of_many_threads_never_pass_their_thresholds() -> None:
    budget = budget_of(fetch=None)
    worst = []

    def work() -> None:
        for _ in range(300):
            if budget.try_charge("fetch", 90):
                worst.append(budget.used_bytes)
                time.sleep(0)
                budget.discharge("fetch", 90)

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(worst) <= 800
    assert budget.used_bytes == 0


@pytest.mark.parametrize("charge", [MemoryBudget.charge, MemoryBudget.force])
def test_heaps_are_trimmed_once_much_was_charged_and_more_is_resident_than_that(
    monkeypatch: pytest.MonkeyPatch, charge: Callable[[MemoryBudget, str, int], None]
) -> None:
    resident, returned = [5000], [100]
    trimmed: list[int] = []

    def trim() -> None:
        trimmed.append(resident[0])
        resident[0] -= returned[0]

    monkeypatch.setattr(trimmer, "trim", trim)
    monkeypatch.setattr(trimmer, "_LOOK_SECONDS", math.inf)
    monkeypatch.setattr(trimmer, "resident_bytes", lambda: resident[0])
    budget = budget_of(a=None)
    resident[0] = 5900
    charge(budget, "a", 1)  # the first look
    assert trimmed == [5900]
    resident[0] = 5900
    charge(budget, "a", 199)
    assert trimmed == [5900]
    charge(budget, "a", 1)
    assert trimmed == [5900, 5900]
    charge(budget, "a", 200)
    assert trimmed == [5900, 5900], "5800 is not beyond the soft limit"
    resident[0], returned[0] = 6000, 0
    charge(budget, "a", 200)
    charge(budget, "a", 200)
    assert trimmed == [5900, 5900, 6000], "what a trim does not return is not asked for again"
