"""What quarantine holds up: the plan as it is, beside the plan as it would be without. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from compactor.planner.spec import CompactionPlan
from compactor.table.entry import FragmentEntry


@dataclass(frozen=True, slots=True)
class HeldStep:
    """A step that would be due if nothing were in quarantine."""

    what: str
    reason: str
    output_level: int
    quarantined: tuple[FragmentEntry, ...]
    """Inputs of it that are in quarantine; or, if none is, those of its time window: what is younger than
    they must not go deeper before them."""
    waiting: tuple[FragmentEntry, ...]
    """Inputs that nothing else will merge or move meanwhile."""
    window: int | None


@dataclass(frozen=True, slots=True)
class _Step:
    what: str
    reason: str
    output_level: int
    inputs: tuple[FragmentEntry, ...]


def held_up(
    plan: CompactionPlan, unhindered: CompactionPlan, quarantined: Collection[FragmentEntry]
) -> tuple[HeldStep, ...]:
    """unhindered: of the same snapshot, were nothing in quarantine. quarantined: what is."""
    keys = {entry.key for entry in quarantined}
    served = {entry.key for step in _steps(plan) for entry in step.inputs}
    held = []
    for step in _steps(unhindered):
        window = step.inputs[0].window
        inside = [entry for entry in step.inputs if entry.key in keys]
        waiting = [e for e in step.inputs if e.key not in keys and e.key not in served]
        if inside or waiting:
            causes = inside or [entry for entry in quarantined if entry.window == window]
            held.append(
                HeldStep(
                    step.what, step.reason, step.output_level, tuple(causes), tuple(waiting), window
                )
            )
    return tuple(held)


def _steps(plan: CompactionPlan) -> Iterator[_Step]:
    for spec in plan.specs:
        yield _Step("compact", spec.reason, spec.output_level, spec.inputs)
    for move in plan.trivial_moves:
        yield _Step("trivial move", move.reason, move.output_level, move.entries)
