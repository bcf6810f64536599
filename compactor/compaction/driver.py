"""Drives the compactions of one table: decides, leases and commits them. Knows no engine, starts no thread.

Every step is one commit, prepared on the newest snapshot:
- decide: expired windows are dropped and fragments moved; specs become compactions by a *lease*.
- commit: outcomes of compactions that still stand are committed as soon as they come. Failed compactions are
  tried again, less and less often. Fragments are quarantined if they are proven to be damaged or gone, or end
  workers all by themselves.
- prolong: leases are renewed while their compactions run.

Several drivers may work on one table. A lease holds the inputs and the key range that the outputs will fill,
and a compaction whose lease has gone is void, however late it ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct, field, structs
from msgspec.structs import replace

from compactor.common.clock import Ids, random_id
from compactor.common.second_tries import backoff_seconds
from compactor.compaction.carrying import (
    CannotCarryError,
    Carrying,
    OrderOf,
    has_only_more_deleted,
    order_of_keys,
)
from compactor.compaction.compaction import Compaction, Outcome
from compactor.compaction.owner import is_gone, this_owner
from compactor.compaction.record import compaction_record
from compactor.errors import CompactorError, StoreUnreachableError, UnknownOutcomeError
from compactor.planner.cost_model import BASE_BYTES
from compactor.planner.estimate import Estimate, estimate
from compactor.planner.plan import plan_compactions
from compactor.planner.spec import CompactionPlan, CompactionSpec, TrivialMove
from compactor.settings.compaction import CompactionSettings, Policy
from compactor.settings.properties import tuned
from compactor.table.commit_log import CommitLog
from compactor.table.compaction_record import CompactionRecord
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot
from compactor.table.suspects import Suspect
from compactor.table.version import Changes, Lease, Operation, Quarantine
from lsm_fragment.errors import FormatError

LEASE_SECONDS: Final = 120.0
IN_PROCESS_LEASE_SECONDS: Final = 3600.0
"""Leases last longer in process, since they can't be renewed while a compaction runs.

Other processes on the same host see at once that this one has died.
"""
RETRY_SECONDS: Final = 0.5
MAX_RETRY_SECONDS: Final = 300.0
_MAX_CARRIES: Final = 100
"""Give a compaction up when deletes came between this many attempts to commit it."""


class DriverSettings(Struct, frozen=True, kw_only=True):
    """Settings of the driver of one table."""

    policy: Policy = field(default_factory=Policy)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    """Of policy and compaction, what was set explicitly overrides the properties of the table."""
    max_attempts: int = 3
    """An input is put in quarantine when it was found damaged or gone this many times."""
    gives_up: bool = False
    """Whether what failed `max_attempts` times for other reasons, or can't but fail again, is left out, not
    tried for ever."""
    retry_seconds: float = RETRY_SECONDS
    """Seconds from a first failure to the next attempt; doubled by each more, to `MAX_RETRY_SECONDS`."""
    lease_seconds: float = LEASE_SECONDS
    """Seconds without a sign of life after which a driver's leases are free for others."""
    takes_over: bool = False
    """Whether leases of others are given up although they have not expired."""


class FinishedCompaction(Struct, frozen=True, kw_only=True):
    """One compaction that is over."""

    compaction: Compaction
    predicted: Estimate
    outcome: Outcome
    attempt: int = 1
    """How many times this driver has tried to merge these inputs."""
    is_void: bool = False
    """Whether another process took its inputs meanwhile, or rows deleted meanwhile could not be carried: the
    outputs are garbage."""
    void_reason: str = ""
    """Why deleted rows could not be carried; empty if that was not tried or did succeed."""
    quarantined: tuple[str, ...] = ()
    retry_seconds: float | None = None
    """After a failure, the seconds until its inputs may be tried again; None if this driver does not try."""


class _Backoff(Struct, frozen=True):
    """The reason why a fragment is not compacted for now, and until when."""

    failures: int
    """Attempts that failed in a row, whatever was merged with the fragment."""
    damages: int
    """How many of these attempts found the fragment damaged or gone."""
    reason: str
    until_unix_ms: int | None
    """When it may be tried again; None if this driver has given it up."""

    def waits(self, now_unix_ms: int) -> bool:
        """Says whether it is tried later. A wait above the maximum is ignored: a clock went back."""
        until = self.until_unix_ms
        return until is not None and 0 < until - now_unix_ms <= MAX_RETRY_SECONDS * 1000


_MAX_LEASE_MS: Final = 24 * 3_600_000
"""The longest lease; one that seems to last longer was made by a clock that was ahead."""


class _JudgedLeases(Struct, frozen=True):
    """Which leases of others in a snapshot no longer hold."""

    now_unix_ms: int | None = None
    """The time by which they were judged; None if there are none."""
    abandoned: tuple[str, ...] = ()
    """Leases whose owners ended, or let them expire, without a commit."""
    void: tuple[str, ...] = ()
    """These, and others that are unanswered, impossibly long, or to be taken over."""

    def freed_by(self, changes: Changes) -> Changes:
        """Adds the end of these leases to the changes."""
        others = tuple(lease for lease in self.void if lease not in self.abandoned)
        return replace(changes, abandoned_leases=self.abandoned, ended_leases=others)


class _NothingToDoError(Exception):
    """There is nothing to commit."""


class _RowsDeletedError(Exception):
    """Rows of inputs were deleted that are not carried to the outputs yet."""


class Driver:
    """The driver of one table's compactions: decides and commits them. Used from one thread."""

    def __init__(
        self,
        log: CommitLog,
        settings: DriverSettings,
        *,
        ids: Ids = random_id,
        owner: str | None = None,
        owner_is_gone: Callable[[str], bool] = is_gone,
        order_of: OrderOf = order_of_keys,
    ) -> None:
        """order_of: makes the row order of a compaction during which rows were deleted."""
        self._log = log
        self._settings = settings
        self._ids = ids
        self._owner = owner or this_owner()
        self._owner_is_gone = owner_is_gone
        self._running: dict[str, tuple[Compaction, Estimate]] = {}
        self._backoffs: dict[str, _Backoff] = {}
        """Backoffs by the fragment's key."""
        self.retry_unix_ms: int | None = None
        """When the first backoff that the last decision left out may be tried again; None without one."""
        self.waits_for_quiet = False
        """Whether the last decision left out a compaction that must run alone."""
        self.left_bytes: tuple[int, ...] = ()
        """Stored bytes of each compaction that was due and that the last decision did not begin, in order."""
        self._order_of = order_of
        self._carryings: dict[str, Carrying] = {}
        """What is carried to the outputs of outcomes that wait for their commit, by compaction id."""
        self._not_carried: dict[str, str] = {}
        """Why rows deleted meanwhile could not be carried, by compaction id."""
        self._unanswered: set[str] = set()
        """Ids of compactions that may be leased: the commit's answer was lost, and no engine has them."""

    @property
    def url(self) -> str:
        return self._log.store.url

    @property
    def log(self) -> CommitLog:
        return self._log

    def policy_for(self, snapshot: Snapshot) -> Policy:
        """Returns when to compact what: as this driver was told, else by the table's properties."""
        return tuned(self._settings.policy, snapshot.properties)

    def settings_for(self, snapshot: Snapshot) -> CompactionSettings:
        """Returns how to compact, as `policy_for` does."""
        return tuned(self._settings.compaction, snapshot.properties)

    def owns(self, compaction_id: str) -> bool:
        """Says whether this driver has decided on the compaction and not finished it yet."""
        return compaction_id in self._running

    @property
    def running(self) -> int:
        return len(self._running)

    def plan(self, snapshot: Snapshot) -> CompactionPlan:
        """Returns what this driver would decide on that snapshot."""
        return self._plan(snapshot, self._judged(snapshot))

    def holds_back(self, snapshot: Snapshot) -> bool:
        """Says whether `plan` may leave fragments out, for a lease, a quarantine or a backoff."""
        return bool(snapshot.leases or snapshot.quarantine or self._backoffs)

    def _plan(self, snapshot: Snapshot, judged: _JudgedLeases) -> CompactionPlan:
        now = self._log.clock.now_unix_ms()
        snapshot = snapshot.without_leases(judged.void)
        avoided = {
            key: Quarantine(key, backoff.reason, now)
            for key, backoff in self._backoffs.items()
            if key in snapshot.fragments and (backoff.until_unix_ms is None or backoff.waits(now))
        }
        snapshot = replace(snapshot, quarantine={**avoided, **snapshot.quarantine})
        policy, settings = self.policy_for(snapshot), self.settings_for(snapshot)
        return plan_compactions(snapshot, policy, settings, now)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing runs or failed that a driver opened anew would not know of."""
        return not (self._running or self._backoffs or self._unanswered)

    @property
    def needs_quiet(self) -> bool:
        """Whether a compaction runs that may end the worker, so that nothing else should run beside it."""
        return _are_suspected(self._log.latest, (c.spec for c, _ in self._running.values()))

    # --- decide ---

    def decide(
        self,
        most: int,
        *,
        beside: int = 0,
        start_rss_bytes: Callable[[], int] = lambda: BASE_BYTES,
    ) -> list[Compaction]:
        """Commits what takes no work, and leases compactions. Returns those leased; [] if none is due.

        most: the most compactions to lease. beside: compactions of other tables that the same worker runs.
        start_rss_bytes: returns the resident set with which a compaction begins, for predictions.
        """
        self.waits_for_quiet, self.left_bytes = False, ()
        snapshot = self._log.current()
        if snapshot.table.expires:
            self._log.check_expiry(snapshot)
        self._forget_gone(snapshot)
        # This comes before planning: what may be tried by then is planned now, or is looked at once more.
        self.retry_unix_ms = self._next_retry()
        while self._is_bad_news(self._log.latest) and self._commit_unless_nothing(self._tell):
            pass
        plan = self.plan(self._log.latest)
        if plan.expiry.entries and self._commit_unless_nothing(self._expire):
            plan = self.plan(self._log.latest)
        while plan.trivial_moves and self._commit_unless_nothing(self._move):
            plan = self.plan(self._log.latest)
        self.left_bytes = tuple(spec.size_bytes for spec in plan.specs)
        decided: list[Compaction] = []
        is_quiet = not beside and not self._running
        self.waits_for_quiet = not is_quiet and _are_suspected(self._log.latest, plan.specs)
        if plan.specs and most > 0 and not self.waits_for_quiet:
            try:
                self._commit_unless_nothing(lambda snapshot: self._lease(snapshot, most, decided))
            except UnknownOutcomeError:
                self._unanswered.update(compaction.compaction_id for compaction in decided)
                raise
        base_bytes = start_rss_bytes() if decided else 0
        for compaction in decided:
            spec, settings = compaction.spec, compaction.settings
            predicted = estimate(
                spec.inputs, spec.output_level, settings, self._log.latest, base_bytes
            )
            self._running[compaction.compaction_id] = compaction, predicted
        if decided:
            begun = {entry.key for compaction in decided for entry in compaction.spec.inputs}
            left = (s for s in plan.specs if begun.isdisjoint(entry.key for entry in s.inputs))
            self.left_bytes = tuple(spec.size_bytes for spec in left)
        return decided

    def _expire(self, snapshot: Snapshot) -> Changes:
        entries = self.plan(snapshot).expiry.entries
        if not entries:
            raise _NothingToDoError
        return Changes(operation=Operation.EXPIRE, removes=tuple(entry.key for entry in entries))

    def _move(self, snapshot: Snapshot) -> Changes:
        judged = self._judged(snapshot)
        moves = self._plan(snapshot, judged).trivial_moves
        if not moves:
            raise _NothingToDoError
        adds = tuple(e for move in moves for e in _moved(move))
        removes = tuple(entry.key for entry in adds)
        return judged.freed_by(
            Changes(operation=Operation.TRIVIAL_MOVE, adds=adds, removes=removes)
        )

    def _lease(self, snapshot: Snapshot, most: int, decided: list[Compaction]) -> Changes:
        decided.clear()  # removes those of a try that lost the race
        judged = self._judged(snapshot)
        specs = self._affordable(snapshot, self._plan(snapshot, judged).specs)[:most]
        if not specs:
            raise _NothingToDoError
        decided[:] = [
            Compaction(
                compaction_id=self._ids(),
                base_version=snapshot.version,
                table_url=self.url,
                metadata=snapshot.table,
                spec=spec,
                settings=self.settings_for(snapshot),
                now_unix_ms=self._log.clock.now_unix_ms(),
            )
            for spec in specs
        ]
        now = self._log.lease_unix_ms() if judged.now_unix_ms is None else judged.now_unix_ms
        leases = tuple(self._as_lease(compaction, now, now) for compaction in decided)
        return judged.freed_by(Changes(operation=Operation.LEASE, leases=leases))

    def _affordable(
        self, snapshot: Snapshot, specs: Sequence[CompactionSpec]
    ) -> Sequence[CompactionSpec]:
        """Returns the specs that may run beside each other and beside what runs already.

        A compaction that may end the worker runs alone: others would go down with it and come under
        suspicion.
        """

        def suspicion(inputs: Sequence[FragmentEntry]) -> int:
            found = (snapshot.suspects.get(entry.key) for entry in inputs)
            return max((suspect.abandoned for suspect in found if suspect), default=0)

        suspected = [spec for spec in specs if suspicion(spec.inputs)]
        if self._running and (suspected or self.needs_quiet):
            return ()
        if not suspected:
            return specs
        return (min(suspected, key=lambda spec: suspicion(spec.inputs)),)

    def _as_lease(self, compaction: Compaction, now_unix_ms: int, began_unix_ms: int) -> Lease:
        lease_ms = round(self._settings.lease_seconds * 1000)
        return Lease(
            compaction_id=compaction.compaction_id,
            owner=self._owner,
            inputs=tuple(entry.key for entry in compaction.spec.inputs),
            output_level=compaction.spec.output_level,
            expires_unix_ms=now_unix_ms + lease_ms,
            began_unix_ms=began_unix_ms,
        )

    def _judged(self, snapshot: Snapshot) -> _JudgedLeases:
        """Judges the leases of others. Asks for the time once at most, and only if there are any."""
        others = [lease for i, lease in snapshot.leases.items() if i not in self._running]
        if not others:
            return _JudgedLeases()
        now = self._log.lease_unix_ms()
        abandoned = [
            lease.compaction_id
            for lease in others
            if lease.compaction_id not in self._unanswered
            and (lease.expires_unix_ms <= now or self._owner_is_gone(lease.owner))
        ]
        void = [
            lease.compaction_id
            for lease in others
            if self._settings.takes_over
            or lease.compaction_id in self._unanswered
            or lease.expires_unix_ms > now + _MAX_LEASE_MS
        ]
        return _JudgedLeases(now, tuple(abandoned), tuple(dict.fromkeys(abandoned + void)))

    def _is_bad_news(self, snapshot: Snapshot) -> bool:
        return bool(self._judged(snapshot).abandoned or self._deadly(snapshot))

    def _tell(self, snapshot: Snapshot) -> Changes:
        """Lets the log count abandoned leases, before anything is planned by that count."""
        dead = self._judged(snapshot).abandoned
        if dead:
            return Changes(operation=Operation.LEASE, abandoned_leases=dead)
        deadly = self._deadly(snapshot)
        if not deadly:
            raise _NothingToDoError
        now = self._log.clock.now_unix_ms()
        return Changes(
            operation=Operation.QUARANTINE,
            quarantines=tuple(Quarantine(s.key, s.reason, now) for s in deadly),
        )

    def _deadly(self, snapshot: Snapshot) -> list[Suspect]:
        return [
            s
            for s in snapshot.suspects.values()
            if s.is_deadly and s.key not in snapshot.quarantine
        ]

    def _forget_gone(self, snapshot: Snapshot) -> None:
        """Forgets the failures of fragments that are no longer live."""
        for key in [key for key in self._backoffs if key not in snapshot.fragments]:
            del self._backoffs[key]

    def _next_retry(self) -> int | None:
        now = self._log.clock.now_unix_ms()
        waiting = [s for s in self._backoffs.values() if s.waits(now)]
        return min((s.until_unix_ms for s in waiting if s.until_unix_ms is not None), default=None)

    # --- commit outcomes ---

    def commit_outcomes(self, outcomes: Iterable[Outcome]) -> list[FinishedCompaction]:
        """Commits together the outcomes that succeeded and still stand; counts and judges the failures."""
        # A speculative twin may report too: one outcome of a compaction counts, and its objects are its own.
        known = {o.compaction_id: o for o in outcomes if o.compaction_id in self._running}
        done = [outcome for outcome in known.values() if outcome.failure is None]
        installed = self._install(done) if done else set()
        return [
            self._commit_failure(outcome)
            if outcome.failure is not None
            else self._finished(outcome, is_void=outcome.compaction_id not in installed)
            for outcome in known.values()
        ]

    def _install(self, outcomes: Sequence[Outcome]) -> set[str]:
        """Returns the ids of the compactions whose outputs are live now."""
        standing: list[Outcome] = []
        installed: set[str] = set()
        behind: list[Outcome] = []

        def prepare(snapshot: Snapshot) -> Changes:
            # These include compactions that are finished again after a commit whose outcome was unknown.
            installed.update(o.compaction_id for o in outcomes if self._is_installed(o))
            standing[:] = [o for o in outcomes if self._stands(o, snapshot)]
            behind[:] = [o for o in standing if not self._carrying_of(o).is_done(snapshot)]
            if behind:
                raise _RowsDeletedError
            if not standing:
                raise _NothingToDoError
            compactions = [self._running[o.compaction_id][0] for o in standing]
            inputs = [entry for c in compactions for entry in c.spec.inputs]
            return Changes(
                operation=Operation.COMPACT,
                adds=tuple(entry for o in standing for entry in self._carrying_of(o).outputs),
                removes=tuple(entry.key for entry in inputs),
                ended_leases=tuple(o.compaction_id for o in standing),
                records=tuple(map(self._record, standing)),
            )

        for tries in itertools.count(1):
            try:
                self._commit_unless_nothing(prepare)
                break
            except _RowsDeletedError:
                self.prolong()
                for outcome in behind:
                    self._carry(outcome, is_last=tries >= _MAX_CARRIES)
        if self._not_carried:
            self._release(list(self._not_carried), (), "")
        return installed.union(outcome.compaction_id for outcome in standing)

    def _carrying_of(self, outcome: Outcome) -> Carrying:
        carrying = self._carryings.get(outcome.compaction_id)
        if carrying is None or carrying.attempted is not outcome.outputs:
            self._end_carrying(outcome.compaction_id)
            compaction, _ = self._running[outcome.compaction_id]
            carrying = self._carryings[outcome.compaction_id] = Carrying(
                self._log.store,
                compaction,
                outcome.outputs,
                ids=self._ids,
                order_of=self._order_of,
                on_sign_of_life=self.prolong,
            )
        return carrying

    def _carry(self, outcome: Outcome, *, is_last: bool) -> None:
        """Carries the rows deleted since to the outputs, or notes why that can't be done.

        Raises `StoreError` if the store can't be reached: the outcome is committed later.
        """
        if not self._stands(outcome, self._log.latest):
            return
        try:
            if is_last:
                raise CannotCarryError(f"rows were deleted {_MAX_CARRIES} times during the commit")
            self._carrying_of(outcome).carry(self._log.latest)
        except (StoreUnreachableError, UnknownOutcomeError):
            raise
        except (CannotCarryError, CompactorError, FormatError) as error:
            # What is wrong with an input is found, counted and told by the next attempt.
            self._not_carried[outcome.compaction_id] = str(error)

    def _is_installed(self, outcome: Outcome) -> bool:
        return self._log.landed(
            lambda changes: (
                changes.operation is Operation.COMPACT
                and outcome.compaction_id in changes.ended_leases
            )
        )

    def _stands(self, outcome: Outcome, snapshot: Snapshot) -> bool:
        compaction, _ = self._running[outcome.compaction_id]
        return (
            outcome.compaction_id in snapshot.leases
            and compaction.base_version >= snapshot.min_base_version
            and outcome.compaction_id not in self._not_carried
            and all(
                has_only_more_deleted(snapshot.fragments.get(e.key), e)
                for e in compaction.spec.inputs
            )
        )

    def _commit_failure(self, outcome: Outcome) -> FinishedCompaction:
        compaction, _ = self._running[outcome.compaction_id]
        inputs = [entry.key for entry in compaction.spec.inputs]
        latest = self._log.latest.fragments
        if any(latest.get(entry.key) != entry for entry in compaction.spec.inputs):
            # What could not be read may be deletions that a later delete replaced and a vacuum removed.
            outcome = replace(outcome, is_damage=False)
        # If the failure names one input, it holds up no others.
        about = [outcome.culprit] if outcome.culprit in inputs else inputs
        backoffs = {key: self._backoff(key, outcome) for key in about}
        most = self._settings.max_attempts
        quarantined = tuple(key for key, backoff in backoffs.items() if backoff.damages >= most)
        runs = (self._record(outcome),)
        is_void = not self._release(
            [outcome.compaction_id], quarantined, str(outcome.failure or ""), runs
        )
        finished = self._finished(
            outcome, is_void=is_void, quarantined=() if is_void else quarantined
        )
        if is_void:
            return finished
        # This comes last: an outcome that could not be committed is finished again.
        self._backoffs.update(backoffs)
        until = max((s.until_unix_ms or 0 for s in backoffs.values()), default=0)
        left = (until - self._log.clock.now_unix_ms()) / 1000
        return replace(
            finished, retry_seconds=max(0.0, left) if until and not quarantined else None
        )

    def _backoff(self, key: str, outcome: Outcome) -> _Backoff:
        """Returns what stands against a fragment after one more failure."""
        before = self._backoffs.get(key)
        failures = 1 + (before.failures if before else 0)
        damages = int(outcome.is_damage) + (before.damages if before else 0)
        wait = backoff_seconds(failures, self._settings.retry_seconds, MAX_RETRY_SECONDS)
        if outcome.is_final:
            wait = MAX_RETRY_SECONDS  # by then the rows or the settings may be others
        until = self._log.clock.now_unix_ms() + round(wait * 1000)
        is_hopeless = outcome.is_final or failures >= self._settings.max_attempts
        is_given_up = self._settings.gives_up and (is_hopeless or outcome.is_of_machine)
        return _Backoff(failures, damages, outcome.failure or "", None if is_given_up else until)

    def _release(
        self,
        ids: Sequence[str],
        quarantined: Sequence[str],
        reason: str,
        records: tuple[CompactionRecord, ...] = (),
    ) -> bool:
        """Ends leases. Returns whether any of them still stood."""

        def prepare(snapshot: Snapshot) -> Changes:
            standing = tuple(i for i in ids if i in snapshot.leases)
            if not standing:
                raise _NothingToDoError
            now = self._log.clock.now_unix_ms()
            return Changes(
                operation=Operation.QUARANTINE if quarantined else Operation.LEASE,
                ended_leases=standing,
                quarantines=tuple(
                    Quarantine(key, reason, now) for key in quarantined if key in snapshot.fragments
                ),
                records=records,
            )

        return self._commit_unless_nothing(prepare)

    def _finished(
        self, outcome: Outcome, *, is_void: bool, quarantined: tuple[str, ...] = ()
    ) -> FinishedCompaction:
        attempt = self._attempt(outcome)
        compaction, predicted = self._running.pop(outcome.compaction_id)
        self._end_carrying(outcome.compaction_id)
        return FinishedCompaction(
            compaction=compaction,
            predicted=predicted,
            outcome=outcome,
            attempt=attempt,
            is_void=is_void,
            void_reason=self._not_carried.pop(outcome.compaction_id, ""),
            quarantined=quarantined,
        )

    def _end_carrying(self, compaction_id: str) -> None:
        carrying = self._carryings.pop(compaction_id, None)
        if carrying is not None:
            carrying.close()

    def _record(self, outcome: Outcome) -> CompactionRecord:
        compaction, predicted = self._running[outcome.compaction_id]
        return compaction_record(compaction, predicted, outcome, self._attempt(outcome))

    def _attempt(self, outcome: Outcome) -> int:
        """Returns how often this driver has tried to merge any of those inputs, this attempt included."""
        compaction, _ = self._running[outcome.compaction_id]
        found = (self._backoffs.get(entry.key) for entry in compaction.spec.inputs)
        return 1 + max((backoff.failures for backoff in found if backoff), default=0)

    # --- leases ---

    def prolong(self) -> None:
        """Renews the leases of running compactions once half of one's time is over. Lost ones stay lost."""
        leases = self._log.latest.leases
        expiries = [leases[i].expires_unix_ms for i in self._running if i in leases]
        if not expiries:
            return
        now = self._log.lease_unix_ms()
        if (min(expiries) - now) * 2 < self._settings.lease_seconds * 1000:

            def prepare(snapshot: Snapshot) -> Changes:
                known = snapshot.leases
                leases = tuple(
                    self._as_lease(c, now, known[c.compaction_id].began_unix_ms)
                    for c, _ in self._running.values()
                    if c.compaction_id in known
                )
                if not leases:
                    raise _NothingToDoError
                return Changes(operation=Operation.LEASE, leases=leases)

            self._commit_unless_nothing(prepare)

    def give_up(self) -> None:
        """Frees all leases of unfinished compactions, so that others can take over at once."""
        ids = [*self._running, *self._unanswered]
        for compaction_id in list(self._carryings):
            self._end_carrying(compaction_id)
        self._running.clear()
        self._unanswered.clear()
        if ids:
            self._release(ids, (), "")

    def _commit_unless_nothing(self, prepare: Callable[[Snapshot], Changes]) -> bool:
        try:
            self._log.commit(prepare)
        except _NothingToDoError:
            return False
        return True


def _moved(move: TrivialMove) -> list[FragmentEntry]:
    return [structs.replace(entry, level=move.output_level) for entry in move.entries]


def _are_suspected(snapshot: Snapshot, specs: Iterable[CompactionSpec]) -> bool:
    return bool(snapshot.suspects) and any(
        entry.key in snapshot.suspects for spec in specs for entry in spec.inputs
    )
