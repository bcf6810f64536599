"""Knows everything: sees each object appear and go, and keeps the books of what must be in the table.

Rows are `(key, ingest, position)`. Books: which ingest was committed by which version, the live fragments
of every version, and what each fragment holds. Every finding is an `AssertionError`.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from compactor.errors import ObjectNotFoundError
from compactor.names import is_fragment_key, parse_version
from compactor.stores.base import ObjectInfo
from compactor.table.entry import FragmentEntry
from compactor.table.history import History
from compactor.table.metadata import TimeWindows
from compactor.table.snapshot import Snapshot
from compactor.table.version import Operation, Version
from tests.simulation.scheduler import Scheduler

Row = tuple[int, int, int]
_FRESH_READER_EVERY = 5
_FIELDS = ["metadata", "claims", "quarantine", "totals", "fence", "oldest", "commit_id", "table_id"]


class Auditor:
    def __init__(
        self, scheduler: Scheduler, windows: TimeWindows | None, objects: Mapping[str, bytes]
    ) -> None:
        self._scheduler = scheduler
        self._windows = windows
        self._objects = objects
        self.snapshot = Snapshot.empty()
        self.snapshots = {0: self.snapshot}
        """Of every version, as the log had it when it was committed."""
        self.live: dict[int, frozenset[str]] = {0: frozenset()}
        """Keys of the live fragments, by version."""
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
        self.dropped: set[Row] = set()
        """Rows of expired windows."""
        self.ingest_rows: dict[int, list[Row]] = {}
        self.strays = 0

    # --- what happens in the store ---

    def created(self, key: str, data: bytes) -> None:
        if is_fragment_key(key):
            assert key not in self.rows, f"{key} is written twice"
            self.rows[key] = _rows(data)
            return
        number = parse_version(key)
        if number is not None:
            self._version(Version.from_bytes(data, name=key))
        else:
            self.visits["checkpoint"] += 1
        self._check_fresh_readers()

    def deleted(self, key: str) -> None:
        if is_fragment_key(key):
            self.visits["fragment removed"] += 1
            for version in self._retained():
                assert key not in self.live[version], f"{key} is gone, version {version} needs it"
            return
        if parse_version(key) is not None:
            self.log_files_removed += 1
        self.visits["log file or checkpoint removed"] += 1
        self._check_fresh_readers()

    def _retained(self) -> range:
        return range(self.snapshot.oldest, self.snapshot.version + 1)

    def _check_fresh_readers(self) -> None:
        """Who opens the table now sees the newest version, and can see any that is retained.

        Looked at once in a few changes of the log, for speed.
        """
        self._changes += 1
        if self.snapshot.version == 0 or self._changes % _FRESH_READER_EVERY:
            return
        history = History(_Objects(self._objects), readers=1)
        self.same(history.newest(Snapshot.empty()).snapshot)
        if self.visits["fresh readers"] % 4 == 0:
            for version in {self.snapshot.oldest, sum(self._retained()) // len(self._retained())}:
                self.same(history.at(version, self.snapshot))
        self.visits["fresh readers"] += 1

    def same(self, snapshot: Snapshot) -> None:
        """That it is its version in every respect."""
        true = self.snapshots[snapshot.version]
        assert dict(snapshot.fragments) == dict(true.fragments), (
            f"version {snapshot.version} is read as it never was"
        )
        for field in (
            "metadata",
            "claims",
            "quarantine",
            "totals",
            "fence",
            "oldest",
            "commit_id",
            "table_id",
        ):
            read, expected = getattr(snapshot, field, None), getattr(true, field, None)
            assert read == expected, f"version {snapshot.version}: {field} {read}, not {expected}"

    def _version(self, version: Version) -> None:
        if version.number <= self.snapshot.version:
            # Where a log file was removed, a sleeper may create it anew: only it must not believe in it.
            self.strays += 1
            self.visits["stray"] += 1
            return
        before = self.snapshot
        after = before.apply(version)
        changes = version.changes
        removed = [before.fragments[key] for key in changes.removes]
        self._scheduler.note(f"version {version.number}: {changes.operation} {len(removed)} -> "
                             f"{len(changes.adds)}")  # fmt: skip
        for entry in changes.adds:
            assert entry.key in self._objects, (
                f"version {version.number} adds {entry.key}, which is not there"
            )
            assert _describes(entry, self.rows[entry.key]), f"{entry} is not what it holds"
            self.visits[f"level {entry.level}"] += 1
        self.visits[str(changes.operation)] += 1
        match changes.operation:
            case Operation.INGEST:
                self._ingest(version.number, changes.adds)
            case Operation.EXPIRE:
                self._expire(removed)
            case _:
                self._conserve(version.number, removed, changes.adds)
        self.snapshot = self.snapshots[version.number] = after
        self.live[version.number] = frozenset(after.fragments)
        self._check_levels()
        self._check_order()
        self._check_claims()

    def _ingest(self, number: int, adds: Iterable[FragmentEntry]) -> None:
        ingests = {row[1] for entry in adds for row in self.rows[entry.key]}
        for ingest in ingests:
            assert ingest not in self.committed, f"ingest {ingest} is committed twice"
            self.committed[ingest] = number

    def _expire(self, removed: Iterable[FragmentEntry]) -> None:
        for entry in removed:
            latest = self._scheduler.now_ms + 60_000  # clocks are off by less
            assert self._windows is not None
            assert self._windows.is_expired(entry.window, latest), f"{entry.key} is not expired"
            self.dropped.update(self.rows[entry.key])

    def _conserve(
        self, number: int, removed: Iterable[FragmentEntry], added: Iterable[FragmentEntry]
    ) -> None:
        before = Counter(row for entry in removed for row in self.rows[entry.key])
        after = Counter(row for entry in added for row in self.rows[entry.key])
        assert before == after, f"version {number} changes rows"

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

    def _check_claims(self) -> None:
        claimed = [key for claim in self.snapshot.claims.values() for key in claim.inputs]
        assert len(claimed) == len(set(claimed)), "two compactions claim one fragment"

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
        assert version < self.snapshot.oldest, f"{key} of version {version} is missing"

    def expected(self) -> Counter[Row]:
        return Counter(
            row
            for ingest in self.committed
            for row in self.ingest_rows[ingest]
            if row not in self.dropped
        )

    def check_end(self, objects: Iterable[str]) -> None:
        assert not self.refused & set(self.committed), "a refused ingest is in the table"
        assert self.promised <= set(self.committed), "a promised ingest is not in the table"
        live = set(self.snapshot.fragments)
        rows = Counter(row for key in live for row in self.rows[key])
        assert rows == self.expected(), "rows are lost or doubled"
        stored = {key for key in objects if is_fragment_key(key)}
        assert stored == live, f"garbage {stored - live} stays, or live {live - stored} is gone"


class _Objects:
    """The objects as they are at this moment, for reading: nobody else runs meanwhile."""

    url = "memory://table"

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self._objects = objects

    def read(self, key: str) -> bytes:
        if key not in self._objects:
            raise ObjectNotFoundError(key)
        return self._objects[key]

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
