"""The rules of the protocol, each broken once on purpose: what the simulation must find."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from msgspec import Struct
from msgspec.structs import replace

from compactor.compaction import carrying
from compactor.compaction import compaction as compactions
from compactor.compaction.carrying import Carrying
from compactor.compaction.driver import Driver
from compactor.errors import FragmentMissingError, ObjectExistsError, UnknownOutcomeError
from compactor.merge.order import places
from compactor.planner import tree as trees
from compactor.planner.leveled import _Leveled
from compactor.planner.limits import Limits
from compactor.planner.tree import SortedRun, Tree
from compactor.read import change_plan
from compactor.table import clocks, lost_versions
from compactor.table import snapshot as snapshots
from compactor.table.commit_log import CommitLog, _LostRaceError
from compactor.table.entry import FragmentEntry
from compactor.table.fragments import FragmentMap
from compactor.table.history import History, LoadedSnapshot, _ForeignError
from compactor.table.object_names import base_version, parse_version, version_key
from compactor.table.proof import Proof
from compactor.table.suspects import Suspect
from compactor.table.vacuum import _Proved, _Vacuum
from compactor.table.version import Changes, Operation
from compactor.write import restore as restoring
from compactor.write.alter import Alteration, altered
from tests.simulation import lives
from tests.simulation.hazards import BY_NAME
from tests.simulation.run import (
    Scene,
    simulate,
    spawn_alterations,
    spawn_deletes,
    spawn_deletes_of_keys,
    spawn_few,
    spawn_lives,
    spawn_many,
    spawn_tags,
)
from tests.simulation.store import SimulatedStore

Patch = Callable[[pytest.MonkeyPatch], None]


class Mutation(Struct, frozen=True):
    rule: str
    """What is no longer kept."""
    apply: Patch
    start: int = 0
    """The seed to begin with: rare interleavings take hundreds to come up."""
    scene: Scene = spawn_few
    hazards: tuple[str, ...] = ()

    def simulate(self, seed: int) -> None:
        """Raises `FoundError`."""
        simulate(seed, self.scene, *(BY_NAME[name] for name in self.hazards))

    def __str__(self) -> str:
        return self.rule


def _versions_are_overwritten(patch: pytest.MonkeyPatch) -> None:
    original = SimulatedStore.create

    def create(self: SimulatedStore, key: str, data: bytes) -> Any:
        if parse_version(key) is not None:
            self._shared.remove(key)
        return original(self, key, data)

    patch.setattr(SimulatedStore, "create", create)


def _unknown_counts_as(answer: bool) -> Patch:
    def apply(patch: pytest.MonkeyPatch) -> None:
        def publish(self: CommitLog, version: Any) -> bool:
            try:
                self._store.create(version_key(version.number), version.to_bytes())
            except UnknownOutcomeError:
                return answer
            except ObjectExistsError:
                return False
            return True

        patch.setattr(CommitLog, "_publish", publish)
        # Reading a commit back would find out.
        patch.setattr(CommitLog, "_check_in_place", lambda self, version: None)

    return apply


def _what_exists_is_not_ours(patch: pytest.MonkeyPatch) -> None:
    original = CommitLog._publish

    def publish(self: CommitLog, version: Any) -> bool:
        create = self._store.create

        def lost(key: str, data: bytes) -> Any:
            try:
                return create(key, data)
            except ObjectExistsError:
                raise _LostRaceError from None

        with pytest.MonkeyPatch.context() as within:
            within.setattr(self._store, "create", lost)
            return original(self, version)

    patch.setattr(CommitLog, "_publish", publish)


def _changes_are_prepared_once(patch: pytest.MonkeyPatch) -> None:
    original = CommitLog.commit

    def commit(self: CommitLog, prepare: Any) -> Any:
        prepared: list[Changes] = []

        def once(snapshot: Any) -> Changes:
            if not prepared:
                prepared.append(prepare(snapshot))
            return prepared[0]

        return original(self, once)

    patch.setattr(CommitLog, "commit", commit)


def _a_void_compaction_is_committed(patch: pytest.MonkeyPatch) -> None:
    def stands(self: Driver, outcome: Any, snapshot: Any) -> bool:
        compaction, _ = self._running[outcome.compaction_id]
        return all(entry.key in snapshot.fragments for entry in compaction.spec.inputs)

    patch.setattr(Driver, "_stands", stands)


def _deleted_rows_are_not_carried(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Carrying, "is_done", lambda self, snapshot: True)


def _deleted_rows_are_carried_once(patch: pytest.MonkeyPatch) -> None:
    original = Carrying._changed

    def changed(self: Carrying, snapshot: Any) -> Any:
        return {} if self._order is not None else original(self, snapshot)

    patch.setattr(Carrying, "_changed", changed)


def _places_are_those_of_the_inputs(patch: pytest.MonkeyPatch) -> None:
    """Bits go to the outputs in the order of the inputs, not of the rows."""

    def places(orders: Any, deleted: Any, output_rows: Any) -> Iterator[Any]:
        rows: dict[int, int] = {}
        for order in orders:
            for number, count in zip(order.inputs.tolist(), order.counts.tolist(), strict=True):
                rows[number] = rows.get(number, 0) + count
        bits = [b for n in sorted(rows) for b in deleted.get(n, pa.repeat(False, rows[n]))]
        bits = [bool(b) if isinstance(b, bool) else b.as_py() for b in bits]
        for count in output_rows:
            yield pa.array(bits[:count], pa.bool_())
            bits = bits[count:]

    patch.setattr(carrying, "places_of_deleted", places)


def _the_base_version_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLog, "_check_base_version", lambda self, snapshot, changes: None)


def _garbage_is_removed_unannounced(patch: pytest.MonkeyPatch) -> None:
    def move(self: _Vacuum, snapshot: Any, proved: Any) -> Changes:
        return Changes(
            operation=Operation.VACUUM, oldest=max(snapshot.oldest, proved.boundaries.oldest)
        )

    surveyed = _Vacuum._survey

    def remove(self: _Vacuum, proved: Any) -> None:
        for info in list(self._store.list("data/")):
            base = base_version(info.key) or 0
            if info.key not in proved.needed and base < minimums[id(proved)]:
                self._store.delete(info.key)

    minimums: dict[int, int] = {}

    def survey(self: _Vacuum, snapshot: Any, proved: Any) -> Any:
        if id(proved) not in minimums:
            minimums.clear()
            minimums[id(proved)] = proved.boundaries.min_base_version
        return surveyed(self, snapshot, proved)

    patch.setattr(_Vacuum, "_move_boundaries", move)
    patch.setattr(_Vacuum, "_survey", survey)
    patch.setattr(_Vacuum, "_remove_fragments", remove)


def _needed(by: Callable[[Any], set[str]]) -> Patch:
    def apply(patch: pytest.MonkeyPatch) -> None:
        original = _Vacuum._prove

        def prove(self: _Vacuum, snapshot: Any, listing: Any) -> Any:
            proved = original(self, snapshot, listing)
            proved.needed = by(snapshot)
            return proved

        patch.setattr(_Vacuum, "_prove", prove)

    return apply


_retained_versions_lose_their_fragments = _needed(lambda snapshot: set(snapshot.fragments))


def _what_is_needed_is_looked_up_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Vacuum, "_needed_since", lambda self, proved, snapshot: set())


def _log_files_go_newest_first(patch: pytest.MonkeyPatch) -> None:
    def newest_first(self: _Proved) -> list[int]:
        return [number for number in self.listing.files if number < self.floor][::-1]

    patch.setattr(_Proved, "old_log_files", property(newest_first))


def _the_predecessor_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLog, "_check_log_not_truncated", lambda self, before, version: None)


def _log_files_go_past_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        _Proved,
        "old_log_files",
        property(lambda self: [n for n in self.listing.files if self.floor and n < self.floor + 2]),
    )


def _a_checkpoint_misses_a_fragment(patch: pytest.MonkeyPatch) -> None:
    original = FragmentMap.table
    patch.setattr(FragmentMap, "table", lambda self: original(self).slice(1))


def _a_reader_stops_at_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    def loaded(self: History, version: int, files: Any, damaged: Any) -> LoadedSnapshot:
        return LoadedSnapshot(self.checkpoint(version), version)

    patch.setattr(History, "_from_checkpoint", loaded)


def _runs_that_are_no_neighbours_are_merged(patch: pytest.MonkeyPatch) -> None:
    def chunks(self: Limits, runs: Any, max_runs: int) -> Iterator[list[SortedRun]]:
        runs = list(runs)
        yield runs[::2]
        yield runs[1::2]

    patch.setattr(Limits, "chunks", chunks)


def _newer_runs_are_pushed_past_older_ones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        _Leveled, "_old_runs", lambda self: [run for run in self._runs[1:] if self._is_free(run)]
    )


def _ranges_in_flight_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tree, "may_output", lambda self, keys, level: True)


def _leases_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trees, "_mark_leases", lambda snapshot, found: None)


def _depth_does_not_count_as_age(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FragmentEntry, "age", property(lambda self: (self.sequence, self.key)))


def _bases_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Attempts are named as if they had begun just now, however long they took."""
    from tests.simulation import actors

    numbers = itertools.count(1_000_000)
    patch.setattr(
        actors,
        "fragment_key",
        lambda base, attempt, part: f"data/{next(numbers):020d}-{attempt}-{part:05d}.frag",
    )
    assert base_version("data/00000000000001000000-a-00000.frag") == 1_000_000


def _garbage_is_told_by_age(patch: pytest.MonkeyPatch) -> None:
    """What began before the minimum base version goes, whether or not it is live."""
    _needed(lambda snapshot: set())(patch)
    patch.setattr(_Vacuum, "_needed_since", lambda self, proved, snapshot: set())


def _attempts_share_names(patch: pytest.MonkeyPatch) -> None:
    from tests.simulation import actors

    patch.setattr(actors, "attempt_id", lambda world, compaction: compaction.compaction_id)


def _what_follows_a_gap_is_believed(patch: pytest.MonkeyPatch) -> None:
    def follow(self: History, known: Any) -> LoadedSnapshot:
        files = self._files_from(known.version + 1)
        if files.end == known.version:
            return LoadedSnapshot(known)
        with pytest.MonkeyPatch.context() as within:
            within.setattr(self, "still_has", lambda snapshot: True)
            loaded = self._followed(known, files, [])
            assert loaded is not None, "what is believed is followed"
            return loaded

    patch.setattr(History, "_follow", follow)


def _stores_prove_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLog, "_prove_writes", lambda self: None)


def _clocks_are_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clocks, "_check_skew", lambda now, store_time, url: None)


def _a_checkpoint_is_kept_unread(patch: pytest.MonkeyPatch) -> None:
    def newest(self: Proof, last: int) -> Any:
        for version in self.listing.marks.checkpoints:
            if self.listing.first < version <= last:
                return self._history.at(version, self._newest)
        return None

    patch.setattr(Proof, "newest_checkpoint", newest)


def _all_failures_are_damage(patch: pytest.MonkeyPatch) -> None:
    original = Driver._backoff
    patch.setattr(
        Driver,
        "_backoff",
        lambda self, key, outcome: original(self, key, replace(outcome, is_damage=True)),
    )


def _nobody_counts_the_dead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshots, "abandoned", lambda before, key, inputs: Suspect(key, 0, inputs))


def _strays_count_as_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(History, "own", lambda self, number, table_id: number)


def _what_is_foreign_is_a_stray(patch: pytest.MonkeyPatch) -> None:
    original = History._read_own

    def read_own(self: History, numbers: Any, table_id: Any) -> Iterator[Any]:
        try:
            yield from original(self, numbers, table_id)
        except _ForeignError:
            if not isinstance(numbers, range):
                raise

    patch.setattr(History, "_read_own", read_own)


def _what_is_gone_is_tried_for_ever(patch: pytest.MonkeyPatch) -> None:
    kinds = tuple(kind for kind in compactions._DAMAGE if kind is not FragmentMissingError)
    patch.setattr(compactions, "_DAMAGE", kinds)


def _a_lost_version_leaves_no_trace(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lost_versions, "last_base", lambda store, end: None)


def _versions_that_came_meanwhile_count_as_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        lost_versions,
        "lost_version",
        lambda store, history, newest: lost_versions.last_base(store, newest.version),
    )


def _what_comes_back_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    original = CommitLog._check_base_version

    def check(self: CommitLog, snapshot: Any, changes: Changes) -> None:
        if changes.returns_to is None:
            original(self, snapshot, changes)

    patch.setattr(CommitLog, "_check_base_version", check)


def _restored(amend: Callable[[Changes], Changes]) -> Patch:
    def apply(patch: pytest.MonkeyPatch) -> None:
        original = restoring.restored
        patch.setattr(restoring, "restored", lambda *versions: amend(original(*versions)))

    return apply


def _only_fragments_come_and_go(changes: Changes) -> Changes:
    """Those that stay keep the rows deleted since."""
    added = {entry.key for entry in changes.adds}
    return replace(
        changes,
        adds=tuple(entry for entry in changes.adds if entry.key not in changes.removes),
        removes=tuple(key for key in changes.removes if key not in added),
    )


def _tags_keep_nothing(patch: pytest.MonkeyPatch) -> None:
    original = _Vacuum._prove

    def prove(self: _Vacuum, snapshot: Any, listing: Any) -> Any:
        proved = original(self, replace(snapshot, tags=()), listing)
        proved.snapshot = snapshot
        return proved

    patch.setattr(_Vacuum, "_prove", prove)
    patch.setattr(Proof, "check_newest", lambda self, rebuilt: None)


def _tags_that_come_meanwhile_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    original = _Vacuum._move_boundaries

    def move(self: _Vacuum, snapshot: Any, proved: Any) -> Changes:
        return original(self, replace(snapshot, tags=proved.snapshot.tags), proved)

    patch.setattr(_Vacuum, "_move_boundaries", move)


def _a_restore_brings_properties_back(patch: pytest.MonkeyPatch) -> None:
    original = restoring._metadata_again
    patch.setattr(
        restoring,
        "_metadata_again",
        lambda target, latest: replace(original(target, latest), properties=target.properties),
    )


def _alterations_are_stale(patch: pytest.MonkeyPatch) -> None:
    def alter(log: CommitLog, alteration: Alteration) -> Any:
        seen = altered(log.current().table, alteration)
        return log.commit(lambda _: Changes(operation=Operation.ALTER, metadata=seen))

    patch.setattr(lives, "alter_table", alter)


def _new_properties_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    original = _Vacuum._move_boundaries

    def move(self: _Vacuum, snapshot: Any, proved: Any) -> Changes:
        return original(self, replace(snapshot, metadata=proved.snapshot.metadata), proved)

    patch.setattr(_Vacuum, "_move_boundaries", move)


def _readers_keep_one_version(patch: pytest.MonkeyPatch) -> None:
    original = _Vacuum._boundaries

    def boundaries(self: _Vacuum, snapshot: Any, listing: Any, tagged: Any, read_on: Any) -> Any:
        return original(self, snapshot, listing, tagged, read_on=())

    patch.setattr(_Vacuum, "_boundaries", boundaries)


def _rows_that_came_meanwhile_stay(patch: pytest.MonkeyPatch) -> None:
    from tests.simulation import actors

    patch.setattr(actors.Search, "knows", lambda self, snapshot: True)


def _untold(operation: Operation) -> Patch:
    """Changes take it for an operation that keeps all rows."""
    return lambda patch: patch.setattr(
        change_plan, "KEEPS_ROWS", snapshots.KEEPS_ROWS | {operation}
    )


def _deleted_rows_are_not_told(patch: pytest.MonkeyPatch) -> None:
    original = change_plan._only_in

    def only_in(some: Any, others: Any) -> Any:
        return original({key: some[key] for key in some if key not in others}, others)

    patch.setattr(change_plan, "_only_in", only_in)


def _rows_that_stay_are_told(patch: pytest.MonkeyPatch) -> None:
    original = change_plan._only_in
    patch.setattr(change_plan, "_only_in", lambda some, _others: original(some, {}))


def _merged_rows_are_told_by_what_came(patch: pytest.MonkeyPatch) -> None:
    original = change_plan._merged

    def merged(version: int, table: Any, before: Any, after: Any) -> Any:
        came = {entry.key: entry for entry in after[0]}
        return original(version, table, before, (after[0], came))

    patch.setattr(change_plan, "_merged", merged)


def _deleted_keys_are_not_carried(patch: pytest.MonkeyPatch) -> None:
    """Only rows that are written count as rows of the order."""
    original = places._written

    def written(order: Any, deleted: Any, taken: Any) -> Any:
        bits = original(order, deleted, taken)
        return bits if order.flags is None else bits & False

    patch.setattr(places, "_written", written)


_TWICE = "requests delivered twice"
_NO_CONDITIONS = "a store without conditions"
_FUTURE = "log files of the future"
_REPLACED = "older log files in the newest one's place"
_LOST = "fragments lost"
_LOST_VERSIONS = "newest log files lost"
MUTATIONS = [
    Mutation("a version is created only if absent", _versions_are_overwritten),
    Mutation("an unknown outcome is no conflict", _unknown_counts_as(False)),
    Mutation("an unknown outcome is no success", _unknown_counts_as(True)),
    Mutation("whose a version is, its commit id says", _what_exists_is_not_ours, hazards=(_TWICE,)),
    Mutation("changes are prepared afresh for every try", _changes_are_prepared_once, 0, spawn_many),
    Mutation("a compaction stands as long as its lease", _a_void_compaction_is_committed, 689, spawn_many),
    Mutation("rows deleted meanwhile are carried", _deleted_rows_are_not_carried, 0, spawn_deletes),
    Mutation("each delete until the commit is carried", _deleted_rows_are_carried_once, 0, spawn_deletes),
    Mutation("rows are carried by the row order", _places_are_those_of_the_inputs, 0, spawn_deletes),
    Mutation("two drivers never work on one fragment", _leases_are_not_looked_at),
    Mutation("attempts too old can't commit", _the_base_version_is_not_looked_at, 0, spawn_many),
    Mutation("garbage goes once the minimum has risen", _garbage_is_removed_unannounced, 0, spawn_many),
    Mutation("retained versions keep their fragments", _retained_versions_lose_their_fragments),
    Mutation("what is needed is looked up after that", _what_is_needed_is_looked_up_first, 855),
    Mutation("log files go oldest first", _log_files_go_newest_first, 0, spawn_many),
    Mutation("a commit's predecessor must still be there", _the_predecessor_is_not_looked_at, 0, spawn_many),
    Mutation("log files after the checkpoint stay", _log_files_go_past_the_checkpoint),
    Mutation("a checkpoint holds all fragments", _a_checkpoint_misses_a_fragment),
    Mutation("the log after a checkpoint counts", _a_reader_stops_at_the_checkpoint),
    Mutation("only neighbours in age are merged", _runs_that_are_no_neighbours_are_merged),
    Mutation("only the oldest runs go deeper", _newer_runs_are_pushed_past_older_ones),
    Mutation("outputs in flight keep their range free", _ranges_in_flight_are_forgotten, 204, spawn_many),
    Mutation("what lies deeper is older", _depth_does_not_count_as_age, 0, spawn_many),
    Mutation("an attempt's names tell when it began", _bases_are_forgotten),
    Mutation("what is live stays, however old", _garbage_is_told_by_age),
    Mutation("attempts have names of their own", _attempts_share_names, 0, spawn_many),
    Mutation("what follows a removed log file is void", _what_follows_a_gap_is_believed, 43, spawn_many),
    Mutation("a store proves its conditional writes", _stores_prove_nothing, hazards=(_NO_CONDITIONS,)),
    Mutation("clocks are held against the store's", _clocks_are_believed, hazards=("clocks wrong",)),
    Mutation("a vacuum reads what it keeps", _a_checkpoint_is_kept_unread, hazards=("checkpoints damaged",)),
    Mutation("only damage is put in quarantine", _all_failures_are_damage, hazards=("a full disk",)),
    Mutation("abandoned leases are counted", _nobody_counts_the_dead, hazards=("too little memory",)),
    Mutation("what is none of the table's is a stray", _strays_count_as_lost, hazards=(_FUTURE,)),
    Mutation("in a version's place is that version", _what_is_foreign_is_a_stray, hazards=(_REPLACED,)),
    Mutation("what is gone is put in quarantine", _what_is_gone_is_tried_for_ever, hazards=(_LOST,)),
    Mutation("names prove lost versions", _a_lost_version_leaves_no_trace, hazards=(_LOST_VERSIONS,)),
    Mutation("what comes meanwhile is no loss", _versions_that_came_meanwhile_count_as_lost, 57, spawn_many),
    Mutation("only kept versions come back", _what_comes_back_is_not_looked_at, 128, spawn_many),
    Mutation("deleted rows are those of the version again", _restored(_only_fragments_come_and_go)),
    Mutation("tags keep versions", _tags_keep_nothing),
    Mutation("a vacuum looks for new tags", _tags_that_come_meanwhile_are_not_seen, 0, spawn_tags),
    Mutation("a restore ends compactions", _restored(lambda changes: replace(changes, ended_leases=())), 219),
    Mutation("a restore leaves properties alone", _a_restore_brings_properties_back, 0, spawn_lives),
    Mutation("an alteration is of the newest version", _alterations_are_stale, 0, spawn_alterations),
    Mutation("a vacuum looks for new properties", _new_properties_are_not_looked_at, 0, spawn_alterations),
    Mutation("a reader's tag keeps what comes after it", _readers_keep_one_version, 0, spawn_lives),
    Mutation("what came meanwhile is replaced, too", _rows_that_came_meanwhile_stay, 0, spawn_lives),
    Mutation("changes tell what an overwrite did", _untold(Operation.OVERWRITE), 0, spawn_lives),
    Mutation("changes tell what an update did", _untold(Operation.UPDATE), 0, spawn_lives),
    Mutation("changes tell what a restore did", _untold(Operation.RESTORE), 0, spawn_lives),
    Mutation("changes tell deleted rows", _deleted_rows_are_not_told, 0, spawn_lives),
    Mutation("changes tell no rows that stay", _rows_that_stay_are_told, 0, spawn_lives),
    Mutation("merged rows are told by all of their rows", _merged_rows_are_told_by_what_came, 0, spawn_lives),
    Mutation("deleted keys are carried, too", _deleted_keys_are_not_carried, 0, spawn_deletes_of_keys),
]  # fmt: skip
