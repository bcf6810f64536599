"""Finds what quarantine holds up, by planning with and without it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import Struct

from compactor.planner.spec import CompactionPlan
from compactor.table.entry import FragmentEntry


class HeldStep(Struct, frozen=True, kw_only=True):
    """A step that would be due without quarantine."""

    what: str
    reason: str
    output_level: int
    quarantined: tuple[FragmentEntry, ...]
    """Its quarantined inputs; if it has none, the quarantined fragments of its time window: younger fragments
    must not go deeper before them."""
    waiting: tuple[FragmentEntry, ...]
    """Its other inputs, except those that the current plan merges or moves."""
    window: int | None


class _Step(Struct, frozen=True):
    what: str
    reason: str
    output_level: int
    inputs: tuple[FragmentEntry, ...]


def held_up(
    plan: CompactionPlan, unhindered: CompactionPlan, quarantined: Collection[FragmentEntry]
) -> tuple[HeldStep, ...]:
    """Returns the steps that quarantine holds up.

    unhindered: the plan without quarantine. quarantined: the quarantined fragments.
    """
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
                    what=step.what,
                    reason=step.reason,
                    output_level=step.output_level,
                    quarantined=tuple(causes),
                    waiting=tuple(waiting),
                    window=window,
                )
            )
    return tuple(held)


def _steps(plan: CompactionPlan) -> Iterator[_Step]:
    for spec in plan.specs:
        yield _Step("compact", spec.reason, spec.output_level, spec.inputs)
    for move in plan.trivial_moves:
        yield _Step("trivial move", move.reason, move.output_level, move.entries)
