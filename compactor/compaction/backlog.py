"""Tells how far the compactions of a table are: up to where all is done, what is due, what runs, what waits.

Only the log is asked. Nothing in it says how far a running compaction has come, so that is estimated by its
age and what the table's compactions have taken so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compactor.common.counts import counted
from compactor.common.plain_values import plain_dict
from compactor.compaction.driver import Driver
from compactor.compaction.owner import is_gone, shown_owner
from compactor.planner.estimate import estimate
from compactor.planner.held import held_up
from compactor.planner.plan import plan_compactions
from compactor.planner.spec import CompactionPlan
from compactor.planner.spread import Spread, sum_of
from compactor.settings.compaction import CompactionSettings, Policy
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot
from compactor.table.version import Lease


class RunningCompaction(Struct, frozen=True, kw_only=True):
    """A compaction that a worker has leased."""

    compaction_id: str
    owner: str
    """`host:pid` of the worker."""
    has_ended: bool
    """Whether this worker has ended, as far as this machine can tell: the next one takes over."""
    fragments: int
    output_level: int
    bytes: int
    """Stored bytes of its inputs."""
    seconds: float
    """Since it was decided."""
    done_bytes: int
    """Estimated."""
    seconds_left: Spread
    """Estimated; 0 for one that takes longer than estimated."""


class Backlog(Struct, frozen=True, kw_only=True):
    """How far the compactions of a table are at one version."""

    version: int
    compacted_through: int
    """The last version up to which no rows that came in are in a fragment that is due to be compacted."""
    due_fragments: int
    """Fragments to be merged or moved now, those of running compactions included."""
    due_bytes: int
    waiting_compactions: int
    """Compactions that are due and that no worker has begun."""
    running: tuple[RunningCompaction, ...]
    held_up: tuple[str, ...]
    """Why compactions wait: one line for each that waits for another, for a fragment in quarantine, or for
    more memory."""
    seconds_left: Spread
    """Estimated, by as many compactions at a time as run now, one at least, and without what comes in."""

    @property
    def is_caught_up(self) -> bool:
        return self.compacted_through == self.version

    def reaches(self, version: int) -> bool:
        """Returns whether the table has this version, and all that came in up to it is compacted."""
        return self.version >= version and self.compacted_through >= version

    def to_json(self) -> dict[str, Any]:
        return plain_dict(self)


def backlog_of(driver: Driver, snapshot: Snapshot) -> Backlog:
    """Returns the backlog by the policy and the settings of a driver, and of the table.

    Makes no request but for the time.
    """
    return backlog(
        snapshot,
        driver.policy_for(snapshot),
        driver.settings_for(snapshot),
        driver.plan(snapshot),
        driver.log.lease_unix_ms(),
        is_plan_whole=not driver.holds_back(snapshot),
    )


def backlog(
    snapshot: Snapshot,
    policy: Policy,
    settings: CompactionSettings,
    plan: CompactionPlan,
    now_unix_ms: int,
    *,
    is_plan_whole: bool = False,
) -> Backlog:
    """plan: what a worker would do on this snapshot now. now_unix_ms: the time by which leases expire.
    is_plan_whole: whether the plan is what would be done if nothing were held back.
    """
    everything = plan
    if not is_plan_whole:
        free = replace(snapshot, quarantine={}).without_leases(snapshot.leases)
        everything = plan_compactions(free, policy, settings, now_unix_ms)
    due = _due(snapshot, everything)
    running = tuple(
        _running(lease, due, settings, snapshot, now_unix_ms) for lease in snapshot.leases.values()
    )
    leased = {key for lease in snapshot.leases.values() for key in lease.inputs}
    waiting = [spec for spec in everything.specs if not any(e.key in leased for e in spec.inputs)]
    left = [
        *(
            estimate(spec.inputs, spec.output_level, settings, snapshot).task_seconds
            for spec in waiting
        ),
        *(each.seconds_left for each in running),
    ]
    return Backlog(
        version=snapshot.version,
        compacted_through=min(
            (entry.sequence[0] - 1 for entry in due.values()), default=snapshot.version
        ),
        due_fragments=len(due),
        due_bytes=sum(entry.size_bytes for entry in due.values()),
        waiting_compactions=len(waiting),
        running=running,
        held_up=(
            *map(str, (*plan.blocked, *plan.refused)),
            *_quarantined(snapshot, policy, settings, plan, now_unix_ms),
        ),
        seconds_left=sum_of(left).scaled(1 / max(1, len(running))),
    )


def _due(snapshot: Snapshot, plan: CompactionPlan) -> Mapping[str, FragmentEntry]:
    """plan: what would be done if no compaction ran and nothing were in quarantine."""
    keys = {entry.key for spec in plan.specs for entry in spec.inputs}
    keys |= {entry.key for move in plan.trivial_moves for entry in move.entries}
    keys |= {key for lease in snapshot.leases.values() for key in lease.inputs}
    keys |= plan.held | set(snapshot.quarantine)
    return {key: snapshot.fragments[key] for key in sorted(keys) if key in snapshot.fragments}


def _quarantined(
    snapshot: Snapshot,
    policy: Policy,
    settings: CompactionSettings,
    plan: CompactionPlan,
    now_unix_ms: int,
) -> list[str]:
    """Returns a line for each step that the plan lacks, since fragments in quarantine belong to it."""
    if not snapshot.quarantine or plan.blocked:
        return []
    unhindered = plan_compactions(replace(snapshot, quarantine={}), policy, settings, now_unix_ms)
    held = held_up(plan, unhindered, [snapshot.fragments[key] for key in snapshot.quarantine])
    return [
        f"{step.reason}: {counted(len(step.quarantined), 'fragment is', 'fragments are')} in quarantine; "
        "restore and `release` what is damaged or lost, or `drop-fragment` it"
        for step in held
    ]


def _running(
    lease: Lease,
    due: Mapping[str, FragmentEntry],
    settings: CompactionSettings,
    snapshot: Snapshot,
    now_unix_ms: int,
) -> RunningCompaction:
    inputs: Sequence[FragmentEntry] = [due[key] for key in lease.inputs if key in due]
    size_bytes = sum(entry.size_bytes for entry in inputs)
    whole = estimate(inputs, lease.output_level, settings, snapshot).task_seconds
    seconds = max(0, now_unix_ms - lease.began_unix_ms) / 1000
    share = min(1.0, seconds / whole.likely) if whole.likely else 1.0
    return RunningCompaction(
        compaction_id=lease.compaction_id,
        owner=shown_owner(lease.owner),
        has_ended=is_gone(lease.owner),
        fragments=len(lease.inputs),
        output_level=lease.output_level,
        bytes=size_bytes,
        seconds=seconds,
        done_bytes=round(size_bytes * share),
        seconds_left=whole.less(seconds),
    )
