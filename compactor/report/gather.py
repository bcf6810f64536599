"""Gathers a report from the log, a few footers and a few templates. Only reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from compactor.common.setting_keys import SINCE
from compactor.compaction.driver import Driver, DriverSettings
from compactor.compaction.owner import shown_owner
from compactor.entities.state import State
from compactor.errors import CompactorError, DataError, OvertakenError, UsageError
from compactor.planner.debt import debt_of
from compactor.planner.estimate import estimate
from compactor.planner.held import HeldStep, held_up
from compactor.planner.tree import forest, overlapping_pairs
from compactor.report.columns import Advance, columns_of
from compactor.report.data import (
    Headline,
    HeldRow,
    KeySpace,
    Panel,
    Pending,
    PlannedRow,
    QuarantineRow,
    Report,
    RunningRow,
    TableHistory,
    WaitingFragment,
)
from compactor.report.history import (
    before_last_compactions,
    committers_of,
    compactions_without_figures,
    points_of,
    records_of,
)
from compactor.report.keyspace import KeyAxis, ReadCost, panel, read_cost
from compactor.report.templates import templates_of
from compactor.report.text import window_text
from compactor.report.verdict import verdict
from compactor.settings.compaction import Policy
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot, replay
from compactor.table.tags import NEWEST, Moment
from compactor.table.version import Version

MAX_FOOTERS: Final = 64
MAX_VERSIONS: Final = 1000
MAX_TEMPLATE_CHUNKS: Final = 16


class ReportOptions(Struct, frozen=True, kw_only=True):
    """Which versions to report, and limits on what to read."""

    moment: Moment = NEWEST
    """Version to report."""
    since_version: int | None = None
    """Version to compare with; None for the one before the last compactions."""
    since_unix_ms: int | None = None
    """Compare with the version at this time instead."""
    max_versions: int = MAX_VERSIONS
    """Maximum versions to read for the history."""
    max_footers: int = MAX_FOOTERS
    """Maximum fragments whose footers to read."""
    max_template_chunks: int = MAX_TEMPLATE_CHUNKS
    """Maximum row groups per column from which to read templates; 0 reads none."""


def gather(
    log: CommitLog, options: ReportOptions, advance: Advance = lambda _done, _all: None
) -> Report:
    """Gathers the report of one version, within the limits of the options.

    Raises `TableNotFoundError`, `VersionNotFoundError`, `UsageError` for a version to compare with that is
    not older, `StoreError`, and `DataError` if the table is unreadable. Everything else that is unreadable
    goes into the notes.
    """
    return _Gathering(log, options).report(advance)


class _Gathering:
    def __init__(self, log: CommitLog, options: ReportOptions) -> None:
        self._log = log
        self._options = options
        self._notes: list[str] = []
        self._snapshot = log.at(*options.moment)
        self._newest = log.latest

    def report(self, advance: Advance) -> Report:
        start, versions = self._versions()
        before = self._before(start, versions)
        columns = columns_of(self._log.store, self._snapshot, self._options.max_footers, advance)
        templates, notes = templates_of(
            self._log.store, self._snapshot, columns, self._options.max_template_chunks
        )
        self._notes += notes
        axis = self._axis(before)
        now = panel(self._snapshot, axis)
        past = None if before is None else panel(before, axis)
        headline, pending = self._headline(now, axis), self._pending()
        return Report(
            table=self._log.store.url,
            verdict=verdict(self._log.store.url, headline, pending),
            headline=headline,
            key_space=KeySpace(_shown_sort(self._snapshot), len(axis), axis.ticks(), past, now),
            history=self._history(start, versions),
            columns=columns,
            templates=templates,
            pending=pending,
            entity_merge=State.report_in(self._snapshot.metadata),
            notes=tuple(self._notes),
        )

    def _versions(self) -> tuple[Snapshot, list[Version]]:
        """Returns the requested versions that are still kept, and the snapshot before them."""
        last, oldest = self._snapshot.version, self._newest.oldest
        first = max(oldest, last - self._options.max_versions)
        try:
            start = self._log.history.at(first, self._newest)
            if first == 1:
                # An empty start also shows the changes of the first version.
                start = Snapshot.empty()
            versions = self._log.history.versions_after(start, last)
            replay(start, versions)  # checkpoint readers may have skipped inconsistent versions
        except (DataError, OvertakenError) as error:
            self._notes.append(f"The history before version {last} could not be read: {error}")
            return self._snapshot, []
        if first > oldest:
            self._notes.append(
                f"Versions {oldest:,} to {first - 1:,} are also kept, but were not read "
                f"(--history {self._options.max_versions})."
            )
        return start, versions

    def _before(self, start: Snapshot, versions: Sequence[Version]) -> Snapshot | None:
        chosen = self._since()
        number = before_last_compactions(start, versions) if chosen is None else chosen
        if number is None:
            return None
        if number >= self._snapshot.version:
            raise UsageError(
                SINCE,
                f": version {number} is not before version {self._snapshot.version}, which is "
                "reported",
            )
        try:
            return self._log.history.at(number, self._newest)
        except (DataError, OvertakenError) as error:
            if chosen is not None:
                raise
            self._notes.append(f"Version {number} could not be read to compare with: {error}")
            return None

    def _since(self) -> int | None:
        options = self._options
        if options.since_unix_ms is None:
            return options.since_version
        # If the time precedes all kept versions, use the oldest.
        found = self._log.history.newest_not_after(options.since_unix_ms, self._newest)
        return found or self._newest.oldest

    def _axis(self, before: Snapshot | None) -> KeyAxis:
        entries = self._snapshot.fragments.all()
        earlier = [] if before is None else before.fragments.all()
        return KeyAxis(self._snapshot.table, [*entries, *earlier])

    def _headline(self, now: Panel, axis: KeyAxis) -> Headline:
        snapshot = self._snapshot
        entries = snapshot.fragments.all()
        debt = debt_of(snapshot, Policy())
        cost = _cost(snapshot, axis)
        return Headline(
            version=snapshot.version,
            committed_unix_ms=snapshot.committed_unix_ms,
            oldest_version=self._newest.oldest,
            made_unix_ms=self._log.clock.now_unix_ms(),
            fragments=len(entries),
            levels=len(now.levels),
            windows=len({e.window for e in entries}) if snapshot.table.windows else None,
            rows=sum(entry.live_rows for entry in entries),
            deleted_rows=sum(entry.deleted_rows for entry in entries),
            size_bytes=sum(entry.size_bytes for entry in entries),
            raw_bytes=sum(entry.raw_bytes for entry in entries),
            overlapping_pairs=overlapping_pairs(forest(snapshot).values()),
            debt_score=round(debt.score, 4),
            pressure=str(debt.pressure),
            level0_runs=debt.level0_runs,
            pending_bytes=debt.pending_bytes,
            write_amplification=round(snapshot.totals.write_amplification, 4),
            sorted_runs=cost.sorted_runs,
            worst_point_runs=cost.worst_point_runs,
        )

    def _history(self, start: Snapshot, versions: Sequence[Version]) -> TableHistory:
        return TableHistory(
            first_version=start.version or 1,
            last_version=self._snapshot.version,
            points=points_of(start, versions, self._snapshot.table),
            runs=records_of(versions),
            compactions_without_figures=compactions_without_figures(versions),
            committers=committers_of(versions),
        )

    def _pending(self) -> Pending:
        snapshot = self._snapshot
        driver = Driver(self._log, DriverSettings())
        settings = driver.settings_for(snapshot)
        try:
            plan = driver.plan(snapshot)
            unhindered = (
                driver.plan(replace(snapshot, quarantine={})) if snapshot.quarantine else plan
            )
        except CompactorError as error:
            self._notes.append(f"Due compactions could not be planned: {error}")
            return Pending((), (), (), (), self._quarantine(()))
        quarantined = [snapshot.fragments[key] for key in snapshot.quarantine]
        held = held_up(plan, unhindered, quarantined)
        specs = [
            PlannedRow(
                what="compact",
                reason=spec.reason,
                fragments=len(spec.inputs),
                size_bytes=spec.size_bytes,
                output_level=spec.output_level,
                predicted_seconds=estimate(
                    spec.inputs, spec.output_level, settings, snapshot
                ).task_seconds.rounded(3),
            )
            for spec in plan.specs
        ]
        moves = [
            PlannedRow(
                what="trivial move",
                reason=move.reason,
                fragments=len(move.entries),
                size_bytes=_bytes(move.entries),
                output_level=move.output_level,
                predicted_seconds=None,
            )
            for move in plan.trivial_moves
        ]
        gone = plan.expiry.entries
        expiry = [
            PlannedRow(
                what="drop",
                reason="time windows past retention",
                fragments=len(gone),
                size_bytes=_bytes(gone),
                output_level=None,
                predicted_seconds=None,
            )
        ]
        return Pending(
            (*(expiry if gone else ()), *moves, *specs),
            tuple(dict.fromkeys((*unhindered.blocked, *unhindered.refused, *plan.refused))),
            tuple(map(self._held, held)),
            tuple(
                RunningRow(
                    lease.compaction_id,
                    shown_owner(lease.owner),
                    len(lease.inputs),
                    lease.output_level,
                    lease.expires_unix_ms,
                )
                for lease in snapshot.leases.values()
            ),
            self._quarantine(held),
        )

    def _held(self, step: HeldStep) -> HeldRow:
        windows = self._snapshot.table.windows
        return HeldRow(
            what=step.what,
            reason=step.reason,
            output_level=step.output_level,
            window=None if windows is None else window_text(step.window, windows.window_seconds),
            quarantined=tuple(entry.key for entry in step.quarantined),
            waiting=tuple(
                WaitingFragment(e.key, e.level, e.live_rows, e.size_bytes) for e in step.waiting
            ),
        )

    def _quarantine(self, held: Sequence[HeldStep]) -> tuple[QuarantineRow, ...]:
        waiting: dict[str, list[FragmentEntry]] = defaultdict(list)
        for step in held:
            for entry in step.quarantined:
                waiting[entry.key] += step.waiting
        return tuple(
            QuarantineRow(
                key=item.key,
                level=entry.level,
                reason=item.reason,
                since_unix_ms=item.since_unix_ms,
                size_bytes=entry.size_bytes,
                rows=entry.live_rows,
                held_fragments=len(waiting[item.key]),
                held_bytes=_bytes(waiting[item.key]),
            )
            for item in self._snapshot.quarantine.values()
            for entry in [self._snapshot.fragments[item.key]]
        )


def _cost(snapshot: Snapshot, axis: KeyAxis) -> ReadCost:
    entries = [entry for entry in snapshot.fragments.all() if entry.rows]
    intervals = np.array([axis.interval(e) for e in entries], np.int64).reshape(-1, 2)
    rows = np.array([entry.rows for entry in entries], np.int64)
    runs = len({entry.sorted_run for entry in entries})
    return read_cost(intervals[:, 0], intervals[:, 1], rows, runs)


def _bytes(entries: Sequence[FragmentEntry]) -> int:
    return sum(entry.size_bytes for entry in entries)


def _shown_sort(snapshot: Snapshot) -> tuple[str, ...]:
    table = snapshot.table
    return tuple(str(replace(c, column=table.shown_name(c.column))) for c in table.sort)
