"""Knows everything: sees each object appear and go, and keeps the books of what must be in the table.

Rows are `(key, ingest, position)`. Books: which ingest was committed by which version, what each fragment
holds, and the live fragments of every version. Beside them is an oracle: the rows and the properties that
each version has to have, by what was done and not by its fragments. Every finding is an `AssertionError`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from compactor.errors import CompactorError, ObjectNotFoundError
from compactor.settings.properties import tuned
from compactor.settings.vacuum import VacuumSettings
from compactor.stores.base import ObjectInfo
from compactor.table.deletions import read_deletion
from compactor.table.entry import Deletion, FragmentEntry
from compactor.table.history import History
from compactor.table.metadata import TimeWindows
from compactor.table.object_names import (
    base_version,
    is_deletions_key,
    is_fragment_key,
    parse_checkpoint,
    parse_floor,
    parse_version,
    version_key,
)
from compactor.table.repair import diagnose
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation, Version
from tests.simulation.scheduler import Scheduler
from tests.simulation.vandal import Vandal

Row = tuple[int, int, int]
_FRESH_READER_EVERY = 5
_FAR = 1 << 20
_CLOCK_TOLERANCE_SECONDS = 900
_FIELDS = [
    "metadata",
    "leases",
    "quarantine",
    "totals",
    "min_base_version",
    "oldest",
    "commit_id",
    "table_id",
    "tags",
]


class Auditor:
    def __init__(
        self,
        scheduler: Scheduler,
        objects: Mapping[str, bytes],
        vandal: Vandal,
    ) -> None:
        self._scheduler = scheduler
        self.windows: TimeWindows | None = None
        self._objects = objects
        self.snapshot = Snapshot.empty()
        self.snapshots = {0: self.snapshot}
        """Of every version, as the log had it when it was committed."""
        self.live: dict[int, set[str]] = {0: set()}
        """Keys of the live fragments and of their deletions, by version."""
        self.visits = scheduler.visits
        self.log_files_removed = 0
        self._changes = 0
        self.rows: dict[str, list[Row]] = {}
        """Of every fragment ever written."""
        self.committed: dict[int, int] = {}
        """Ingest to the version that committed it."""
        self.promised: set[int] = set()
        """Ingests whose writers were told that they are committed."""
        self.refused: set[int] = set()
        """Ingests whose writers were told that nothing was changed."""
        self.merges = False
        """Whether the newest row of a key takes the place of the others."""
        self.models: dict[int, frozenset[Row]] = {0: frozenset()}
        """The rows that readers of each version must see."""
        self.replacements: dict[int, int | None] = {}
        """Ingests that replace rows, and the key whose rows they replace; None for all rows."""
        self.alterations: dict[float, dict[str, Any]] = {}
        """Properties that somebody was to set (None: unset), by the one that no two set alike."""
        self.deletions: dict[str, int] = {}
        """Names of deletions that were begun, and the key whose rows they delete."""
        self.deletions_committed: set[str] = set()
        self._deleted: dict[Deletion, list[bool]] = {}
        self.ingest_rows: dict[int, list[Row]] = {}
        self.clocks_lie = False
        """Whether some clocks are off by more than what vacuums may take for granted."""
        self._committed_ms = [0]
        """When each version was committed, by the clock that is right."""
        self.strays = 0
        self.vandal = vandal
        self.unhealthy: set[str] = set()
        """Fragments that may be put in quarantine."""

    # --- what happens in the store ---

    def created(
        self, key: str, data: bytes, before: bytes | None, vacuum: VacuumSettings | None
    ) -> None:
        """before: what it replaces. vacuum: that of the vacuum which creates it."""
        self.vandal.forget(key)
        if is_fragment_key(key):
            assert key not in self.rows, f"{key} is written twice"
            self.rows[key] = _rows(data)
            return
        if is_deletions_key(key):
            return
        number = parse_version(key)
        if number is not None:
            version = Version.from_bytes(data, name=key)
            assert before is None or before == data, f"version {number} is replaced by another"
            if before is None:
                self._version(version)
            if vacuum is not None:
                self._check_boundaries(version, vacuum)
        elif parse_checkpoint(key) is not None:
            self.visits["checkpoint"] += 1
        self._check_fresh_readers()

    def deleted(self, key: str, vacuum: VacuumSettings | None) -> None:
        """vacuum: that of the vacuum which removes it."""
        if self.vandal.forget(key):
            self.visits["damaged object removed"] += 1
        if is_fragment_key(key) or is_deletions_key(key):
            self.visits["fragment or deletions removed"] += 1
            for version in self._kept(self.snapshot):
                assert key not in self.live[version], f"{key} is gone, version {version} needs it"
            return
        if parse_version(key) is not None:
            self.log_files_removed += 1
        self.visits["log file or checkpoint removed"] += 1
        self._check_fresh_readers(always=self.vandal.was_here)

    def _kept(self, snapshot: Snapshot) -> Sequence[int]:
        """The versions that can be read, as seen by a snapshot."""
        return sorted({*range(snapshot.oldest, snapshot.version + 1), *snapshot.tagged})

    def _check_fresh_readers(self, *, always: bool = False) -> None:
        """Who opens the table now sees the newest version, and can see any that is retained.

        Looked at once in a few changes of the log, for speed. What was damaged that nothing else holds is
        read as it was: here the question is what the table's own programs have removed.
        """
        self._changes += 1
        if self.snapshot.version == 0 or (self._changes % _FRESH_READER_EVERY and not always):
            return
        self.check_fresh_reader()
        history = History(_Objects(self.vandal.restored(self._objects)), readers=1)
        retained = self._kept(self.snapshot)
        try:
            self.same(history.newest(Snapshot.empty()).snapshot)
            if self.visits["fresh readers"] % 4 == 0 or always:
                for version in {retained[0], self.snapshot.oldest, retained[len(retained) // 2]}:
                    self.same(history.at(version, self.snapshot))
        except CompactorError as error:
            raise AssertionError(f"a fresh reader is told {error!r}") from error
        self.visits["fresh readers"] += 1

    def check_fresh_reader(self) -> None:
        """Who opens the table as it is may be refused, and sees no other version than the newest."""
        try:
            loaded = History(_Objects(self._objects), readers=1).newest(Snapshot.empty())
        except CompactorError as error:
            assert self.vandal.hurts, f"a fresh reader is told {error!r}"
            return
        newest, read = self.snapshot.version, loaded.snapshot.version
        assert read == newest, f"version {read} is read where {newest} is the newest"
        self.same(loaded.snapshot)

    def check_loss_is_told(self) -> None:
        """Tries what is told if the newest log file is gone: exactly the loss that names of objects prove."""
        number = self.snapshot.version
        objects = {**self._objects}
        begins_here = any(parse_floor(key) == number for key in objects)
        if self.vandal.hurts or number < 2 or begins_here:
            return
        assert not self._told(objects, number), "a loss is told, and nothing is lost"
        del objects[version_key(number)]
        bases = [base_version(key) or 0 for key in objects]
        is_proven = any(number <= base <= number + _FAR for base in bases)
        assert self._told(objects, number) == is_proven, f"version {number} is lost: {is_proven}"
        self.visits["loss told" if is_proven else "loss not told"] += 1

    def _told(self, objects: Mapping[str, bytes], number: int) -> bool:
        findings = diagnose(_Objects(objects)).findings
        return any(found.key == version_key(number) for found in findings)

    def same(self, snapshot: Snapshot) -> None:
        """That it is its version in every respect."""
        assert snapshot.version in self.snapshots, (
            f"version {snapshot.version} never was, and is read"
        )
        true = self.snapshots[snapshot.version]
        assert dict(snapshot.fragments) == dict(true.fragments), (
            f"version {snapshot.version} is read as it never was"
        )
        for field in _FIELDS:
            read, expected = getattr(snapshot, field, None), getattr(true, field, None)
            assert read == expected, f"version {snapshot.version}: {field} {read}, not {expected}"

    def _version(self, version: Version) -> None:
        if version.number <= self.snapshot.version:
            # Where a log file was removed, a sleeper may create it anew: only it must not believe in it.
            self.strays += 1
            self.visits["stray"] += 1
            return
        before = self.snapshot
        assert version.number == before.version + 1, (
            f"version {version.number} is committed after {before.version}"
        )
        after = before.apply(version)
        changes = version.changes
        removed = [before.fragments[key] for key in changes.removes]
        model = self.models[before.version]
        self._scheduler.note(f"version {version.number}: {changes.operation} {len(removed)} -> "
                             f"{len(changes.adds)}")  # fmt: skip
        for entry in changes.adds:
            assert entry.key in self._objects or entry.key in self.vandal.lost, (
                f"version {version.number} adds {entry.key}, which is not there"
            )
            assert _describes(entry, self.rows[entry.key]), f"{entry} is not what it holds"
            self.visits[f"level {entry.level}"] += 1
        self.visits[str(changes.operation)] += 1
        self.visits["versions"] += 1
        match changes.operation:
            case Operation.INGEST:
                model = self._with_added(model, version)
            case Operation.OVERWRITE | Operation.UPDATE:
                model = self._replaced(model, before, version)
            case Operation.EXPIRE:
                model = model.difference(self._expired(removed))
            case Operation.DROP:
                model = model.difference(self._dropped(removed))
            case Operation.DELETE:
                model = self._without_deleted(model, changes)
            case Operation.RESTORE:
                self._check_restore(before, after, changes)
                model = self.models[changes.returns_to or 0]
            case Operation.UNDO:
                self._check_undo(before, after, changes)
            case Operation.ALTER:
                self._check_alteration(before, after)
            case Operation.VACUUM:
                self._check_ended_tags(before, changes)
        if changes.operation is not Operation.ALTER and before.version:
            assert after.properties == before.properties, f"{changes.operation} changes properties"
        if changes.adds or changes.removes:
            self._check_rows(after, model)
        self.models[version.number] = model
        self.snapshot = self.snapshots[version.number] = after
        entries = after.fragments.all()
        deletions = {entry.deletion.key for entry in entries if entry.deletion}
        self.live[version.number] = deletions.union(after.fragments)
        comes_back = self.snapshots[changes.returns_to or 0].quarantine
        for item in changes.quarantines:
            # What several workers left behind may be at fault, as far as the log can tell.
            is_suspect = item.key in before.suspects and before.suspects[item.key].is_deadly
            assert item.key in self.unhealthy or is_suspect or item.key in comes_back, (
                f"{item.key} is put in quarantine: {item.reason}"
            )
        self._check_levels()
        self._check_order()
        self._check_leases()
        self._committed_ms.append(self._scheduler.now_ms)

    def _check_boundaries(self, version: Version, vacuum: VacuumSettings) -> None:
        """No vacuum ends the time of what is younger than it, or else the table, was told to keep.

        Whatever its clock says.
        """
        changes = version.changes
        before = self.snapshots[version.number - 1]
        vacuum = tuned(vacuum, before.properties)
        for what, boundary, seconds in (
            ("min_base_version", changes.min_base_version, vacuum.grace_seconds),
            ("oldest", changes.oldest, vacuum.retain_seconds),
        ):
            known = getattr(before, what)
            if boundary is None or boundary <= known or not seconds:
                continue
            age = (self._scheduler.now_ms - self._committed_ms[boundary]) / 1000
            assert age >= seconds - _CLOCK_TOLERANCE_SECONDS, (
                f"{what} is {boundary}, which is {age:.0f} s old, where {seconds} were asked for"
            )

    # --- the rows of a version, by what was done ---

    def _committed(self, number: int, adds: Iterable[FragmentEntry]) -> set[Row]:
        """The rows of new fragments, which are those of ingests that now are committed."""
        rows = {row for entry in adds for row in self.rows[entry.key]}
        for ingest in {row[1] for row in rows}:
            assert ingest not in self.committed, f"ingest {ingest} is committed twice"
            self.committed[ingest] = number
        return rows

    def _with_added(self, model: frozenset[Row], version: Version) -> frozenset[Row]:
        return self.merged(model | self._committed(version.number, version.changes.adds))

    def _replaced(
        self, model: frozenset[Row], before: Snapshot, version: Version
    ) -> frozenset[Row]:
        """All rows of a key, or of all, give way to those of one ingest. An update changes each of them."""
        changes = version.changes
        news = [entry for entry in changes.adds if entry.key not in before.fragments]
        rows = self._committed(version.number, news)
        (ingest,) = {row[1] for row in rows}
        key = self.replacements[ingest]
        old = {row for row in model if key is None or row[0] == key}
        if changes.operation is Operation.UPDATE:
            assert len(rows) == len(old), f"{len(old)} rows are updated, and {len(rows)} added"
        self._note_deletions(entry for entry in changes.adds if entry.key in before.fragments)
        return self.merged((model - old) | rows)

    def _without_deleted(self, model: frozenset[Row], changes: Changes) -> frozenset[Row]:
        """All rows of a key go, wherever they are, and no others."""
        (name,) = self._note_deletions(changes.adds)
        return frozenset(row for row in model if row[0] != self.deletions[name])

    def _note_deletions(self, entries: Iterable[FragmentEntry]) -> set[str]:
        """Returns the names of the deletions that are committed with these fragments."""
        deleted = [entry for entry in entries if entry.deletion]
        names = {entry.deletion.key for entry in deleted if entry.deletion}
        self.deletions_committed.update(names)
        if any(name in self.vandal.originals for name in names):
            self.unhealthy.update(entry.key for entry in deleted)
        return names

    def _expired(self, removed: Iterable[FragmentEntry]) -> Iterator[Row]:
        for entry in removed:
            latest = self._scheduler.now_ms + 60_000  # clocks are off by less
            assert self.windows is not None
            assert self.windows.is_expired(entry.window, latest), f"{entry.key} is not expired"
            yield from self.live_rows(entry)

    def _dropped(self, removed: Iterable[FragmentEntry]) -> Iterator[Row]:
        assert not self.merges, "which older rows reappear, no model says"
        for entry in removed:
            assert entry.key in self.vandal.lost, f"{entry.key} is given up, and is there"
            yield from self.live_rows(entry)

    def merged(self, rows: Iterable[Row]) -> frozenset[Row]:
        """What readers see of stored rows: the newest of each key, if rows of a key are merged."""
        if not self.merges:
            return frozenset(rows)
        by_age = sorted(rows, key=lambda row: (self.committed[row[1]], row[2]))
        return frozenset({row[0]: row for row in by_age}.values())

    def _check_rows(self, after: Snapshot, model: frozenset[Row]) -> None:
        """What the fragments hold is what the model has."""
        rows = [row for entry in after.fragments.all() for row in self.live_rows(entry)]
        found = self.merged(rows)
        assert self.merges or len(found) == len(rows), f"version {after.version} doubles rows"
        lost, extra = model - found, found - model
        assert not lost, f"version {after.version} loses rows {sorted(lost)[:3]}"
        assert not extra, f"version {after.version} has rows {sorted(extra)[:3]} too many"

    # --- what else an operation has to keep ---

    def _check_restore(self, before: Snapshot, after: Snapshot, changes: Changes) -> None:
        """The fragments are those of a version that is kept, and no compaction goes on."""
        target = changes.returns_to or 0
        assert target in self._kept(before), f"version {target} is restored and no longer kept"
        assert dict(after.fragments) == dict(self.snapshots[target].fragments), (
            f"version {after.version} is not what version {target} was"
        )
        assert not after.leases, f"compactions go on in version {after.version}"

    def _check_undo(self, before: Snapshot, after: Snapshot, changes: Changes) -> None:
        """Only fragments of the version before the compaction come back, at most with more rows deleted;
        which ones, the model of rows says."""
        target = changes.returns_to or 0
        assert target in self._kept(before), (
            f"inputs of version {target} come back and are not kept"
        )
        known = self.snapshots[target].fragments
        for entry in changes.adds:
            was = known.get(entry.key)
            assert was is not None, "others come back"
            assert structs.replace(entry, deletion=was.deletion) == was, "others come back"
            assert entry.deletion == was.deletion or entry.deleted_rows > was.deleted_rows, (
                "deleted rows come back"
            )
        assert not after.leases, f"compactions go on in version {after.version}"

    def _check_alteration(self, before: Snapshot, after: Snapshot) -> None:
        """Exactly what somebody was to set is set, and all else stays as others have left it."""
        properties = dict(after.properties)
        wanted = self.alterations[float(properties["max_rewrite_ratio"])]
        expected = {**dict(before.properties), **wanted}
        expected = {name: value for name, value in expected.items() if value is not None}
        assert properties == expected, f"properties {properties}, not {expected}"
        same = replace(after.table, properties=before.properties)
        assert same == before.table, "columns change with properties"

    def _check_ended_tags(self, before: Snapshot, changes: Changes) -> None:
        """A vacuum ends no tag before its time, whatever its clock says."""
        latest = self._scheduler.now_ms + _CLOCK_TOLERANCE_SECONDS * 1000
        for name in changes.ended_tags:
            tag = before.tag(name)
            assert tag is not None, f"tag {name} is ended and was none"
            assert tag.is_expired(latest), f"{tag} is ended too early"
            self.visits["tag expired"] += 1

    def live_rows(self, entry: FragmentEntry) -> list[Row]:
        """Those that are not deleted."""
        rows = self.rows[entry.key]
        if entry.deletion is None:
            return rows
        if entry.deletion not in self._deleted:
            objects = _Objects(self.vandal.restored(self._objects))
            bits = read_deletion(objects, entry)  # type: ignore[arg-type]
            assert bits is not None
            self._deleted[entry.deletion] = bits.to_pylist()
        deleted = self._deleted[entry.deletion]
        return [row for row, bit in zip(rows, deleted, strict=True) if not bit]

    # --- invariants of a version ---

    def _check_levels(self) -> None:
        levels: dict[tuple[int | None, int], list[FragmentEntry]] = {}
        for entry in self.snapshot.fragments.values():
            if entry.level:
                levels.setdefault((entry.window, entry.level), []).append(entry)
        for (_, level), entries in levels.items():
            spans = sorted((self.rows[e.key][0][0], self.rows[e.key][-1][0]) for e in entries)
            for (_, last), (first, _) in itertools.pairwise(spans):
                assert last < first, f"fragments of level {level} overlap"

    def _check_order(self) -> None:
        last: dict[tuple[int | None, int], tuple[int, int]] = {}
        for entry in self.snapshot.by_age():
            for key, ingest, position in self.rows[entry.key]:
                age = (self.committed[ingest], position)
                known = last.get((entry.window, key), (0, 0))
                assert known <= age, f"rows of key {key} are out of order"
                last[entry.window, key] = age

    def _check_leases(self) -> None:
        leased = [key for lease in self.snapshot.leases.values() for key in lease.inputs]
        assert len(leased) == len(set(leased)), "two compactions lease one fragment"

    # --- what actors say and see ---

    def promise(self, ingest: int) -> None:
        assert ingest in self.committed, f"ingest {ingest} is said to be committed, and is not"
        self.promised.add(ingest)

    def refuse(self, ingest: int) -> None:
        assert ingest not in self.committed, (
            f"ingest {ingest} is said to be refused, and is committed"
        )
        self.refused.add(ingest)

    def seen(self, snapshot: Snapshot, not_before: int) -> None:
        """A reader's snapshot, taken after `not_before` was the newest version."""
        assert snapshot.version >= not_before, (
            f"version {snapshot.version} is read after {not_before}"
        )
        self.same(snapshot)

    def missing(self, key: str, version: int) -> None:
        """A reader did not find a fragment of its version."""
        is_known = not self.snapshot.keeps(version) or key in self.vandal.once_lost
        assert is_known, f"{key} of version {version} is missing"

    def check_end(self, objects: Iterable[str]) -> None:
        assert not self.refused & set(self.committed), "a refused ingest is in the table"
        assert self.promised <= set(self.committed), "a promised ingest is not in the table"
        live = self.live[self.snapshot.version]
        self._check_rows(self.snapshot, self.models[self.snapshot.version])
        stored = {key for key in objects if is_fragment_key(key) or is_deletions_key(key)}
        stored -= self.vandal.strays
        assert live <= stored, f"live {live - stored} is gone"
        assert stored <= live, f"garbage {stored - live} stays"

    def check_compacted(self) -> None:
        """All fragments of a window are one sorted run, and none is in quarantine."""
        assert not self.snapshot.quarantine
        runs: dict[int | None, set[str]] = {}
        for entry in self.snapshot.fragments.values():
            runs.setdefault(entry.window, set()).add(entry.sorted_run)
        assert all(len(names) == 1 for names in runs.values()), f"not compacted: {runs}"


class _Objects:
    """The objects as they are at this moment, for reading: no other actor runs meanwhile."""

    url = "memory://table"

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self._objects = objects

    def read(self, key: str) -> bytes:
        if key not in self._objects:
            raise ObjectNotFoundError(key)
        return self._objects[key]

    def read_range(self, key: str, start: int, length: int) -> bytes:
        return self.read(key)[start : start + length]

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for key in sorted(self._objects):
            if key.startswith(prefix) and key > (start_after or ""):
                yield ObjectInfo(key, len(self._objects[key]), "", 0.0)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"reading the log calls {name}")


def _describes(entry: FragmentEntry, rows: list[Row]) -> bool:
    bounds = (rows[0][0],), (rows[-1][0],)
    return entry.rows == len(rows) and (entry.first_key, entry.last_key) == bounds


def _rows(data: bytes) -> list[Row]:
    return [(key, ingest, position) for key, ingest, position in json.loads(data)]
