"""Values of the table: fragments, versions, snapshots. Pure: no store, no clock.

A version is one file of the commit log: what was added and removed. A snapshot is the set of live
fragments after replaying versions 1..n.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Self

import pyarrow as pa

from compactor.errors import DataError
from compactor.names import is_fragment_key
from format.errors import SchemaError
from format.footer import Footer
from format.keys import Bound, KeyComparator
from format.schema import SortColumn, SortSchema
from format.types import schema_from_json, schema_to_json

PROTOCOL: Final = 1


class Operation(StrEnum):
    INGEST = "ingest"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class ColumnBytes:
    """Bytes of one column of a fragment."""

    raw: int
    stored: int


@dataclass(frozen=True, slots=True)
class FragmentEntry:
    """A live fragment, as the log knows it without opening it."""

    key: str
    level: int
    run: str
    """The sorted run it belongs to: fragments of one run are disjoint."""
    sequence: tuple[int, int]
    """Age: the version and position at which its oldest rows came in. Orders equal keys."""
    rows: int
    size_bytes: int
    row_hash: int
    first_key: Bound
    last_key: Bound
    row_groups: int
    peak_chunk_bytes: int
    """Raw bytes of its heaviest chunk: what a merge holds of it at a time."""
    peak_row_bytes: int
    """Raw bytes a row in the chunk where that is greatest."""
    columns: Mapping[str, ColumnBytes] = field(default_factory=dict)

    @classmethod
    def from_footer(
        cls, key: str, footer: Footer, *, size_bytes: int, level: int, run: str
    ) -> Self:
        """The entry of a fragment just written; its age is set when it is committed."""
        chunks = [
            (chunk.raw_bytes, group.rows)
            for column in footer.columns.values()
            for chunk, group in zip(column, footer.row_groups, strict=True)
        ]
        groups = footer.row_groups
        return cls(
            key=key,
            level=level,
            run=run,
            sequence=(0, 0),
            rows=footer.rows,
            size_bytes=size_bytes,
            row_hash=footer.row_hash,
            first_key=groups[0].first_key if groups else (),
            last_key=groups[-1].last_key if groups else (),
            row_groups=len(groups),
            peak_chunk_bytes=max((raw for raw, _ in chunks), default=0),
            peak_row_bytes=max((-(-raw // rows) for raw, rows in chunks), default=0),
            columns={
                name: ColumnBytes(
                    sum(chunk.raw_bytes for chunk in column),
                    sum(chunk.stored_bytes for chunk in column),
                )
                for name, column in footer.columns.items()
            },
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "level": self.level,
            "run": self.run,
            "sequence": list(self.sequence),
            "rows": self.rows,
            "size_bytes": self.size_bytes,
            "row_hash": f"{self.row_hash:016x}",
            "first_key": list(self.first_key),
            "last_key": list(self.last_key),
            "row_groups": self.row_groups,
            "peak_chunk_bytes": self.peak_chunk_bytes,
            "peak_row_bytes": self.peak_row_bytes,
            "columns": {name: [c.raw, c.stored] for name, c in self.columns.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError for what `to_json` does not make."""
        _check_types(value)
        return cls(
            key=value["key"],
            level=value["level"],
            run=value["run"],
            sequence=(value["sequence"][0], value["sequence"][1]),
            rows=value["rows"],
            size_bytes=value["size_bytes"],
            row_hash=int(value["row_hash"], 16),
            first_key=tuple(value["first_key"]),
            last_key=tuple(value["last_key"]),
            row_groups=value["row_groups"],
            peak_chunk_bytes=value["peak_chunk_bytes"],
            peak_row_bytes=value["peak_row_bytes"],
            columns={name: ColumnBytes(*sizes) for name, sizes in value["columns"].items()},
        )


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """What all fragments of the table share."""

    schema: pa.Schema
    sort: SortSchema

    def comparator(self) -> KeyComparator:
        return KeyComparator(self.schema, self.sort)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": schema_to_json(self.schema),
            "sort": [column.to_json() for column in self.sort],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            schema_from_json(value["schema"]),
            tuple(SortColumn.from_json(column) for column in value["sort"]),
        )


@dataclass(frozen=True, slots=True)
class Version:
    """One file of the commit log."""

    number: int
    commit_id: str
    """Unique to one commit, whatever the number of tries: tells our own success from a conflict."""
    committed_unix_ms: int
    operation: Operation
    adds: tuple[FragmentEntry, ...] = ()
    removes: tuple[str, ...] = ()
    """Keys of fragments that are live no more."""
    metadata: TableMetadata | None = None
    """Set by the first version and by those that change it."""

    def to_bytes(self) -> bytes:
        document = {
            "protocol": PROTOCOL,
            "version": self.number,
            "commit_id": self.commit_id,
            "committed_unix_ms": self.committed_unix_ms,
            "operation": str(self.operation),
            "metadata": None if self.metadata is None else self.metadata.to_json(),
            "removes": list(self.removes),
            "adds": [entry.to_json() for entry in self.adds],
        }
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str) -> Self:
        """Raises `DataError` naming the log file if it is damaged, or newer than this program."""
        try:
            document = json.loads(data)
            if document["protocol"] > PROTOCOL:
                raise DataError(
                    f"{name}: the table's log is of protocol {document['protocol']}, this program "
                    f"knows {PROTOCOL}: upgrade it"
                )
            metadata = document["metadata"]
            return cls(
                number=document["version"],
                commit_id=document["commit_id"],
                committed_unix_ms=document["committed_unix_ms"],
                operation=Operation(document["operation"]),
                adds=tuple(FragmentEntry.from_json(entry) for entry in document["adds"]),
                removes=tuple(document["removes"]),
                metadata=None if metadata is None else TableMetadata.from_json(metadata),
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
            raise DataError(f"{name}: the log file is damaged ({error!r})") from error


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The live fragments at one version, by key. Version 0 is a table that does not exist yet."""

    version: int
    metadata: TableMetadata | None
    fragments: Mapping[str, FragmentEntry]

    @classmethod
    def empty(cls) -> Self:
        return cls(0, None, {})

    @property
    def table(self) -> TableMetadata:
        """The metadata of a table that exists."""
        assert self.metadata is not None, "version 0 has no metadata"
        return self.metadata

    def by_age(self, keys: Iterable[str] | None = None) -> list[FragmentEntry]:
        """All live fragments, or those named, oldest first: the order among equal keys."""
        entries = self.fragments.values() if keys is None else [self.fragments[k] for k in keys]
        return sorted(entries, key=lambda entry: (entry.sequence, entry.key))

    def apply(self, version: Version) -> Snapshot:
        """The snapshot after `version`. Raises `DataError` if the log contradicts itself."""
        if version.number != self.version + 1:
            raise DataError(f"version {version.number} follows version {self.version} in the log")
        fragments = dict(self.fragments)
        for key in version.removes:
            if fragments.pop(key, None) is None:
                raise DataError(f"version {version.number} removes {key}, which is not live")
        for entry in version.adds:
            if entry.key in fragments:
                raise DataError(f"version {version.number} adds {entry.key}, which is live already")
            fragments[entry.key] = entry
        metadata = version.metadata or self.metadata
        if metadata is None:
            raise DataError(f"version {version.number} comes before any table metadata")
        return Snapshot(version.number, metadata, fragments)


_INTEGERS: Final = (
    "level",
    "rows",
    "size_bytes",
    "row_groups",
    "peak_chunk_bytes",
    "peak_row_bytes",
)


def _check_types(value: Mapping[str, Any]) -> None:
    integers = [*(value[name] for name in _INTEGERS), *value["sequence"]]
    integers += [size for sizes in value["columns"].values() for size in sizes]
    if not all(type(number) is int and number >= 0 for number in integers):
        raise TypeError("a number of a fragment entry is not one")
    if not isinstance(value["run"], str) or not is_fragment_key(value["key"]):
        raise ValueError(f"{value['key']!r} is no fragment's name")
    if not isinstance(value["first_key"], list) or not isinstance(value["last_key"], list):
        raise TypeError("a key bound is not a list")


def with_age(entries: Iterable[FragmentEntry], sequence: tuple[int, int]) -> list[FragmentEntry]:
    """The entries as of one age, for rewrites of older rows."""
    return [replace(entry, sequence=sequence) for entry in entries]
