"""Versions: a file of the commit log each, with the changes of one commit. Pure values and their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Self

import msgspec
import xxhash
from msgspec import Struct

from compactor.errors import DataError
from compactor.table.compaction_record import CompactionRecord, records_from_json, records_to_json
from compactor.table.entry import FragmentEntry
from compactor.table.json_text import from_json_text, to_json_text
from compactor.table.metadata import TableMetadata
from compactor.table.numbers import (
    Level,
    UnixMs,
    check_number,
    check_sum,
    unix_ms,
)
from compactor.table.object_names import is_memo_key
from compactor.table.protocol import PROTOCOL
from compactor.table.stored import (
    Converted,
    Form,
    ObjectName,
    Parsed,
    RelatedNumber,
    Several,
    Stored,
)
from compactor.table.tags import Tag
from lsm_fragment.errors import SchemaError, cause_of

SEE_REPAIR: Final = ", or look at the log with `compactor repair`"
"""Ends the advice about a damaged log. The repair itself leaves it out."""


class Operation(StrEnum):
    INGEST = "ingest"
    COMPACT = "compact"
    TRIVIAL_MOVE = "trivial_move"
    """Fragments only change their level: no object is written."""
    LEASE = "lease"
    """Compactions are leased, prolonged or given up."""
    ALTER = "alter"
    """Columns are renamed, dropped or reordered."""
    DELETE = "delete"
    """Rows of live fragments are deleted: the same fragments are added again with their deletions."""
    OVERWRITE = "overwrite"
    """Rows are deleted, or all fragments removed, and new fragments added."""
    UPDATE = "update"
    """Rows are deleted, and their changed copies added as new fragments."""
    QUARANTINE = "quarantine"
    """Fragments are kept from compactions, or released."""
    DROP = "drop"
    """Fragments that are damaged or gone are given up with their rows."""
    RESTORE = "restore"
    """The fragments and metadata of an earlier version take the place of the latest ones."""
    UNDO = "undo"
    """The inputs of a compaction take the place of its outputs."""
    EXPIRE = "expire"
    """Whole time windows are dropped."""
    TAG = "tag"
    """Tags are set or ended."""
    VACUUM = "vacuum"
    """The minimum base version is raised before unreferenced objects are removed."""


class Lease(Struct, frozen=True, kw_only=True):
    """A decided compaction. Its outputs can be committed only while the lease stands.

    Until it expires, no other driver plans a compaction that would conflict with it; afterwards a driver that
    does ends the lease in the same commit. So two drivers never work on one fragment, and clocks decide only
    about waste.
    """

    compaction_id: str
    owner: str
    inputs: tuple[str, ...]
    output_level: Level
    expires_unix_ms: UnixMs
    began_unix_ms: UnixMs
    """When it was decided, by the time that leases expire by; a renewal keeps it."""


class Quarantine(Struct, frozen=True):
    """A fragment that is kept from compactions, and the reason."""

    key: str
    reason: str
    since_unix_ms: UnixMs


class Records(Form):
    """Compaction records: those that cannot be read are left out, since no decision depends on them."""

    def to_json(self, value: Iterable[CompactionRecord]) -> list[dict[str, Any]]:
        return records_to_json(value)

    def from_json(self, value: Any) -> tuple[CompactionRecord, ...]:
        return records_from_json(value)


_TEXTS: Final = Converted(tuple[str, ...])


class Changes(Struct, frozen=True, kw_only=True):
    """The changes of a commit to the snapshot for which it was prepared, by the names of a log file."""

    operation: Annotated[Operation, Converted(Operation)]
    metadata: Annotated[TableMetadata | None, Parsed(TableMetadata.from_json)] = None
    """Set by the first version and by those that change it."""
    removes: Annotated[tuple[str, ...], _TEXTS] = ()
    """Keys of fragments that are no longer live, or that come back changed in `adds`."""
    adds: Annotated[tuple[FragmentEntry, ...], Several(Parsed(FragmentEntry.from_json))] = ()
    leases: Annotated[tuple[Lease, ...], Converted(tuple[Lease, ...])] = ()
    """New and prolonged leases."""
    ended_leases: Annotated[tuple[str, ...], _TEXTS] = ()
    """Ids of compactions that are over."""
    abandoned_leases: Annotated[tuple[str, ...], _TEXTS] = ()
    """Ids of compactions whose owners ended without committing that."""
    quarantines: Annotated[tuple[Quarantine, ...], Converted(tuple[Quarantine, ...])] = ()
    released_fragments: Annotated[tuple[str, ...], _TEXTS] = ()
    """Keys of fragments released from quarantine, and no longer suspected."""
    min_base_version: Annotated[int | None, RelatedNumber()] = None
    """Fragments of attempts based on an earlier version may not be added any more."""
    oldest: Annotated[int | None, RelatedNumber()] = None
    """The first version that can still be read."""
    returns_to: Annotated[int | None, RelatedNumber()] = None
    """The kept version from which fragments come back that attempts of any age have written."""
    tags: Annotated[tuple[Tag, ...], Converted(tuple[Tag, ...])] = ()
    """Tags that are set; one of the same name moves."""
    ended_tags: Annotated[tuple[str, ...], _TEXTS] = ()
    """Names of tags that are over."""
    lost_fragments: Annotated[
        tuple[FragmentEntry, ...], Several(Parsed(FragmentEntry.from_json))
    ] = ()
    """Fragments of `removes` that were damaged or gone, so that the log tells which rows are lost."""
    records: Annotated[tuple[CompactionRecord, ...], Records()] = ()
    """Figures of the compactions that this commit ends; for reports only."""
    memo: Annotated[str | None, ObjectName(is_memo_key, "a memo")] = None
    """Key of the object in which the writer of these rows remembers how they came about."""

    def to_json(self) -> dict[str, Any]:
        return _CHANGES.to_json(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Changes:
        """Raises KeyError, TypeError, ValueError or `SchemaError` for what `to_json` does not make."""
        changes = _CHANGES.from_json(value)
        # A version yet to come is neither too old nor gone.
        for name, number in (
            ("min_base_version", changes.min_base_version),
            ("oldest", changes.oldest),
            ("returns_to", changes.returns_to),
        ):
            if number is not None:
                check_number(name, number, value["version"])
        for tag in changes.tags:
            check_number("version of a tag", tag.version, value["version"])
        if changes.memo is not None and not is_memo_key(changes.memo):
            raise ValueError(f"{changes.memo!r} is not the name of a memo")
        check_sum("rows of adds", (entry.rows for entry in changes.adds))
        check_sum("size_bytes of adds", (entry.size_bytes for entry in changes.adds))
        return changes


_CHANGES: Final = Stored(
    Changes,
    leaves_out=False,
    rare=("returns_to", "tags", "ended_tags", "lost_fragments", "memo"),
)


class Version(Struct, frozen=True, kw_only=True):
    """One file of the commit log."""

    number: int
    commit_id: str
    """Unique to one commit, however often it is tried: distinguishes our own success from a conflict."""
    committed_unix_ms: int
    """The time of the commit by the committer's clock.

    It is before that of the previous version only if that one lies in the future; then it counts for both.
    """
    changes: Changes
    table_id: str = ""
    """The commit id of the table's first version, which distinguishes its log files from other tables'."""
    committer: str = ""
    """The process that committed it, as `host:pid`; empty if it did not say. Nothing depends on it."""

    def to_bytes(self) -> bytes:
        document = {
            "protocol": PROTOCOL,
            "version": self.number,
            "commit_id": self.commit_id,
            "committed_unix_ms": self.committed_unix_ms,
            "table_id": self.table_id,
            "committer": self.committer,
            **self.changes.to_json(),
        }
        text = to_json_text(document).encode()
        return text + b"\n" + xxhash.xxh3_64_hexdigest(text).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str) -> Self:
        """Parses a log file. Raises `DataError` naming it if it is damaged, or newer than this program."""
        text, _, checksum = data.partition(b"\n")
        try:
            document = from_json_text(text)
            if document["protocol"] > PROTOCOL:
                raise DataError(
                    f"{name}: the table's log is of protocol {document['protocol']}, this program "
                    f"knows {PROTOCOL}: upgrade the program"
                )
            if checksum != xxhash.xxh3_64_hexdigest(text).encode() + b"\n":
                raise ValueError("its checksum does not match")
            check_number("version", document["version"])
            return cls(
                number=document["version"],
                commit_id=msgspec.convert(document["commit_id"], str),
                committed_unix_ms=unix_ms("committed_unix_ms", document["committed_unix_ms"]),
                changes=Changes.from_json(document),
                table_id=msgspec.convert(document["table_id"], str),
                committer=msgspec.convert(document.get("committer", ""), str),
            )
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
            SchemaError,
        ) as error:
            raise DataError(
                f"{name}: the log file is damaged ({cause_of(error)}); restore it from a backup"
                f"{SEE_REPAIR}"
            ) from error
