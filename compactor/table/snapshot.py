"""Snapshots: the table at one version. Pure: no store, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Self

from msgspec import Struct, field
from msgspec.structs import fields, replace

from compactor.errors import DataError
from compactor.settings.properties import Properties
from compactor.table.compaction_record import MAX_MEASURED, CompactionRecord, measured_by
from compactor.table.entry import FragmentEntry
from compactor.table.fragments import FragmentMap
from compactor.table.metadata import TableMetadata
from compactor.table.numbers import LAST_UNIX_MS, MAX_INT64, Natural, check_number
from compactor.table.object_names import is_memo_key
from compactor.table.stored import (
    Converted,
    Keyed,
    Number,
    ObjectName,
    Parsed,
    RelatedNumber,
    Stored,
)
from compactor.table.suspects import Suspect, abandoned, rewritten
from compactor.table.tags import Tag
from compactor.table.version import Changes, Lease, Operation, Quarantine, Records, Version


class Totals(Struct, frozen=True, kw_only=True):
    """Sums over all versions so far."""

    ingested_rows: Natural = 0
    ingested_bytes: Natural = 0
    compactions_bytes: Natural = 0
    """Bytes that compactions wrote."""
    expired_bytes: Natural = 0
    """Bytes dropped with whole time windows."""
    lost_rows: Natural = 0
    """Rows of fragments that were given up because they were damaged or gone."""

    @property
    def write_amplification(self) -> float:
        """Bytes written per byte ingested; 1 without any compaction."""
        written = self.ingested_bytes + self.compactions_bytes
        return written / self.ingested_bytes if self.ingested_bytes else 1.0

    def after(self, changes: Changes, removed: Iterable[FragmentEntry]) -> Totals:
        removed_keys = set(changes.removes)
        added = sum(entry.size_bytes for entry in changes.adds if entry.key not in removed_keys)
        match changes.operation:
            case Operation.INGEST | Operation.OVERWRITE | Operation.UPDATE:
                rows = sum(entry.rows for entry in changes.adds if entry.key not in removed_keys)
                return replace(
                    self,
                    ingested_rows=self.ingested_rows + rows,
                    ingested_bytes=self.ingested_bytes + added,
                )
            case Operation.COMPACT:
                return replace(self, compactions_bytes=self.compactions_bytes + added)
            case Operation.EXPIRE:
                dropped = sum(entry.size_bytes for entry in removed)
                return replace(self, expired_bytes=self.expired_bytes + dropped)
            case Operation.DROP:
                lost = sum(entry.live_rows for entry in removed)
                return replace(self, lost_rows=self.lost_rows + lost)
            case _:
                return self


KEEPS_ROWS: Final = frozenset(
    {
        Operation.COMPACT,
        Operation.TRIVIAL_MOVE,
        Operation.LEASE,
        Operation.ALTER,
        Operation.QUARANTINE,
        Operation.TAG,
        Operation.VACUUM,
    }
)
"""Operations after which readers see the same rows of each key, so that a memo stays true."""
_TOTALS: Final = tuple(field.name for field in fields(Totals))


class Snapshot(Struct, frozen=True, kw_only=True):
    """The table at one version. Version 0 is a table that does not exist yet.

    The fields with a form are those of a checkpoint's header.
    """

    version: Annotated[int, Number()]
    committed_unix_ms: Annotated[int, Number(LAST_UNIX_MS)] = 0
    commit_id: Annotated[str, Converted(str)] = ""
    """The commit id of the version; it distinguishes a log file from one created again in its place."""
    table_id: Annotated[str, Converted(str)] = ""
    """The commit id of the first version, which all log files of the table name."""
    metadata: Annotated[TableMetadata | None, Parsed(TableMetadata.from_json)]
    leases: Annotated[Mapping[str, Lease], Keyed(Lease, "compaction_id")] = field(
        default_factory=dict
    )
    """Leases that stand, by compaction id, including expired ones that no process has ended."""
    quarantine: Annotated[Mapping[str, Quarantine], Keyed(Quarantine, "key")] = field(
        default_factory=dict
    )
    """Quarantined live fragments, by key."""
    suspects: Annotated[Mapping[str, Suspect], Keyed(Suspect, "key")] = field(default_factory=dict)
    """Live fragments whose compactions were abandoned, by key."""
    totals: Annotated[Totals, Converted(Totals)] = field(default_factory=Totals)
    min_base_version: Annotated[int, RelatedNumber()] = 0
    """Fragments of attempts based on an earlier version may not be added any more."""
    oldest: Annotated[int, RelatedNumber()] = 1
    """The first version that can still be read."""
    ordered_from: Annotated[int, RelatedNumber()] = 0
    """The last version stamped with an earlier time than the one before it, because a clock was ahead."""
    tags: Annotated[tuple[Tag, ...], Converted(tuple[Tag, ...])] = ()
    """Names of versions that vacuums keep, in the order of their names."""
    memo: Annotated[str | None, ObjectName(is_memo_key, "a memo")] = None
    """Key of what the writer of the rows remembers of them; None if others have changed rows since."""
    measured: Annotated[tuple[CompactionRecord, ...], Records()] = ()
    """What the newest compactions measured, oldest first, by which the cost of the next is predicted."""
    fragments: FragmentMap
    """The live fragments by key; a checkpoint holds them as columns."""

    @classmethod
    def empty(cls) -> Self:
        return cls(version=0, metadata=None, fragments=FragmentMap())

    @property
    def table(self) -> TableMetadata:
        """The metadata; the table must exist."""
        assert self.metadata is not None, "version 0 has no metadata"
        return self.metadata

    @property
    def live_rows(self) -> int:
        """Number of stored rows that are not deleted, before the row policy merges rows of equal key."""
        return sum(entry.live_rows for entry in self.fragments.all())

    @property
    def properties(self) -> Properties:
        """The table's properties; none without a table."""
        return () if self.metadata is None else self.metadata.properties

    def keeps(self, version: int) -> bool:
        """Says whether vacuums have left the objects of a version alone."""
        return self.oldest <= version <= self.version or version in self.tagged

    @property
    def tagged(self) -> set[int]:
        """The versions that tags name."""
        return {tag.version for tag in self.tags}

    def tag(self, name: str) -> Tag | None:
        return next((tag for tag in self.tags if tag.name == name), None)

    def by_age(self) -> list[FragmentEntry]:
        """Returns all live fragments, oldest first: the order among equal keys."""
        return sorted(self.fragments.all(), key=lambda entry: entry.age)

    def without(self, fragments: Iterable[str]) -> Snapshot:
        """Returns the snapshot as if those fragments had never been in the table, nor compactions of them."""
        left = self.fragments.copy()
        for key in fragments:
            left.pop(key)
        quarantine = {key: item for key, item in self.quarantine.items() if key in left}
        suspects = {key: item for key, item in self.suspects.items() if key in left}
        leases = {
            number: lease
            for number, lease in self.leases.items()
            if all(key in left for key in lease.inputs)
        }
        return replace(
            self, fragments=left, quarantine=quarantine, suspects=suspects, leases=leases
        )

    def without_leases(self, compaction_ids: Iterable[str]) -> Snapshot:
        """Returns the snapshot as if those compactions had been given up."""
        gone = set(compaction_ids)
        return replace(self, leases={i: c for i, c in self.leases.items() if i not in gone})

    def apply(self, version: Version) -> Snapshot:
        """Returns the snapshot after `version`. Raises `DataError` if the log contradicts itself."""
        return replay(self, [version])


HEADER: Final = Stored(Snapshot, leaves_out=False, rare=("tags", "memo", "measured"))
"""The stored form of a snapshot without its fragments: the header of a checkpoint."""


def check_header(snapshot: Snapshot) -> None:
    """Raises ValueError, naming the field, for a number that no writer makes."""
    HEADER.check(snapshot)
    for name in ("min_base_version", "oldest", "ordered_from"):
        check_number(name, getattr(snapshot, name), snapshot.version)
    for tag in snapshot.tags:
        check_number("version of a tag", tag.version, snapshot.version)


def replay(snapshot: Snapshot, versions: Iterable[Version]) -> Snapshot:
    """Returns the snapshot after all `versions`. Raises `DataError` if the log contradicts itself."""
    state = _Replay(snapshot)
    for version in versions:
        state.apply(version)
    return state.snapshot()


class _Replay:
    """Mutable state, so that many versions cost what they change, and not what the table holds."""

    def __init__(self, start: Snapshot) -> None:
        self._version = start.version
        self._fragments = start.fragments.copy()
        self._values: dict[str, Any] = {
            "metadata": start.metadata,
            "totals": start.totals,
            "min_base_version": start.min_base_version,
            "oldest": start.oldest,
            "committed_unix_ms": start.committed_unix_ms,
            "ordered_from": start.ordered_from,
            "commit_id": start.commit_id,
            "table_id": start.table_id,
            "memo": start.memo,
            "measured": start.measured,
        }
        self._leases = dict(start.leases)
        self._lease_of = {key: c.compaction_id for c in start.leases.values() for key in c.inputs}
        self._quarantine = dict(start.quarantine)
        self._suspects = dict(start.suspects)
        self._tags = {tag.name: tag for tag in start.tags}

    def apply(self, version: Version) -> None:
        if version.number != self._version + 1:
            raise DataError(f"version {version.number} follows version {self._version} in the log")
        if self._version and version.table_id != self._values["table_id"]:
            raise DataError(
                f"version {version.number} belongs to another table than those before it"
            )
        self._version = version.number
        self._values["table_id"] = version.table_id
        changes = version.changes
        came_through = self._compacted_alone(changes)
        self._swap(changes)
        self._clear(came_through, changes)
        self._decide(changes)
        self._name(changes)
        values = self._values
        values["metadata"] = changes.metadata or values["metadata"]
        if values["metadata"] is None:
            raise DataError(f"version {version.number} comes before any table metadata")
        self._check_totals()
        values["min_base_version"] = max(values["min_base_version"], changes.min_base_version or 0)
        values["oldest"] = max(values["oldest"], changes.oldest or 0)
        if changes.memo is not None or changes.operation not in KEEPS_ROWS:
            values["memo"] = changes.memo
        if changes.records and changes.operation is Operation.COMPACT:
            values["measured"] = (*values["measured"], *measured_by(changes.records))[
                -MAX_MEASURED:
            ]
        values["commit_id"] = version.commit_id
        if version.committed_unix_ms < values["committed_unix_ms"]:
            values["ordered_from"] = version.number
        values["committed_unix_ms"] = version.committed_unix_ms

    def _swap(self, changes: Changes) -> None:
        removed = []
        for key in changes.removes:
            entry = self._fragments.pop(key)
            if entry is None:
                raise DataError(f"version {self._version} removes {key}, which is not live")
            removed.append(entry)
        for entry in changes.adds:
            if entry.key in self._fragments:
                raise DataError(f"version {self._version} adds {entry.key}, which is live already")
            self._fragments.set(entry)
        gone = set(changes.removes).difference(entry.key for entry in changes.adds)
        for key in gone:
            self._quarantine.pop(key, None)
            self._suspects.pop(key, None)
            # An input of the lease is gone, so the lease is over, whichever process made it.
            self._release(self._lease_of.get(key))
        self._values["totals"] = self._values["totals"].after(changes, removed)

    def _check_totals(self) -> None:
        """Raises `DataError` for sums that only a forged log makes, and that checkpoints can't hold."""
        totals = self._values["totals"]
        for name in _TOTALS:
            total = getattr(totals, name)
            if total > MAX_INT64:
                raise DataError(f"version {self._version}: {name} come to {total} by the log")

    def _compacted_alone(self, changes: Changes) -> dict[str, Suspect]:
        """Returns the suspects that the version compacted alone, by the compaction's id."""
        if not self._suspects or not changes.adds:
            return {}
        leases = [self._leases[i] for i in changes.ended_leases if i in self._leases]
        return {
            lease.compaction_id: self._suspects[lease.inputs[0]]
            for lease in leases
            if len(lease.inputs) == 1 and lease.inputs[0] in self._suspects
        }

    def _clear(self, came_through: Mapping[str, Suspect], changes: Changes) -> None:
        for entry in changes.adds if came_through else ():
            before = came_through.get(entry.run)
            after = None if before is None else rewritten(before, entry.key)
            if after is not None:
                self._suspects[entry.key] = after

    def _abandon(self, compaction_id: str) -> None:
        lease = self._leases.get(compaction_id)
        if lease is not None:
            for key in lease.inputs:
                before = self._suspects.get(key)
                self._suspects[key] = abandoned(before, key, len(lease.inputs))
            self._release(compaction_id)

    def _decide(self, changes: Changes) -> None:
        for compaction_id in changes.ended_leases:
            self._release(compaction_id)
        for compaction_id in changes.abandoned_leases:
            self._abandon(compaction_id)
        for lease in changes.leases:
            self._leases[lease.compaction_id] = lease
            for key in lease.inputs:
                self._lease_of[key] = lease.compaction_id
        for quarantine in changes.quarantines:
            if quarantine.key in self._fragments:
                self._quarantine[quarantine.key] = quarantine
        for key in changes.released_fragments:
            self._quarantine.pop(key, None)
            self._suspects.pop(key, None)

    def _name(self, changes: Changes) -> None:
        for name in changes.ended_tags:
            self._tags.pop(name, None)
        for tag in changes.tags:
            self._tags[tag.name] = tag

    def _release(self, compaction_id: str | None) -> None:
        lease = self._leases.pop(compaction_id, None) if compaction_id else None
        for key in lease.inputs if lease else ():
            if self._lease_of.get(key) == compaction_id:
                del self._lease_of[key]

    def snapshot(self) -> Snapshot:
        return Snapshot(
            version=self._version,
            fragments=self._fragments,
            leases=self._leases,
            quarantine=self._quarantine,
            suspects=self._suspects,
            tags=tuple(sorted(self._tags.values(), key=lambda tag: tag.name)),
            **self._values,
        )
