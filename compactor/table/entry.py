"""Entries: live fragments, as the log knows them. Pure values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Self

from compactor.errors import DataError
from compactor.rows.flags import NONE_SEEN, RowStatistics
from compactor.table.numbers import (
    MAX_GROUP_ROWS,
    MAX_INT64,
    MAX_KEY_BYTES,
    MAX_LEVEL,
    MAX_OBJECT_BYTES,
    MIN_ROW_GROUP_BYTES,
    check_number,
    check_sum,
)
from compactor.table.object_names import is_deletions_key, is_fragment_key, is_skip_index_key
from lsm_fragment.container.footer import ColumnBytes, FragmentSummary
from lsm_fragment.errors import cause_of
from lsm_fragment.keys.bounds import Bound
from lsm_fragment.keys.comparator import ComparableKey, KeyComparator

_MAX_KEY_CHARACTERS: Final = 2 * MAX_KEY_BYTES
"""The most characters of a key: binary values are base64 in the log, and so longer than in rows."""


class LazyColumns(Mapping[str, ColumnBytes]):
    """The columns of an entry read from a checkpoint: parsed only when asked for, since few ever are."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _columns(self) -> dict[str, ColumnBytes]:
        try:
            columns = {name: ColumnBytes(*sizes) for name, sizes in json.loads(self.text).items()}
            _check_columns(columns)
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            raise DataError(
                f"a checkpoint's entry has damaged columns ({cause_of(error)})"
            ) from error
        return columns

    def __getitem__(self, name: str) -> ColumnBytes:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return repr(self._columns)


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deleted rows of a fragment, and where their positions are stored."""

    key: str
    """Key of the object."""
    offset: int
    length: int
    rows: int

    def to_json(self) -> list[Any]:
        return [self.key, self.offset, self.length, self.rows]

    @classmethod
    def from_json(cls, value: list[Any]) -> Self:
        """Raises TypeError or ValueError for a value that `to_json` does not make."""
        key, offset, length, rows = value
        check_number("deletion offset", offset, MAX_OBJECT_BYTES)
        check_number("deletion length", length, MAX_OBJECT_BYTES)
        check_number("deletion rows", rows)
        if not is_deletions_key(key):
            raise ValueError(f"{key!r} is not the name of a deletions object")
        return cls(key, offset, length, rows)


@dataclass(frozen=True, slots=True)
class SkipIndex:
    """The place of a fragment's skip index on storage."""

    key: str
    """Key of the object."""
    columns: Mapping[str, tuple[int, int]]
    """Offset and length of each column's block, by stored name; length 0 if nothing was worth keeping."""

    def to_json(self) -> list[Any]:
        return [self.key, {name: list(place) for name, place in self.columns.items()}]

    @classmethod
    def from_json(cls, value: list[Any]) -> Self:
        """Raises TypeError or ValueError for a value that `to_json` does not make."""
        key, columns = value
        if not is_skip_index_key(key):
            raise ValueError(f"{key!r} is not the name of a skip index object")
        for offset, length in columns.values():
            check_number("skip_index offset", offset, MAX_OBJECT_BYTES)
            check_number("skip_index length", length, MAX_OBJECT_BYTES)
        return cls(key, {name: (offset, length) for name, (offset, length) in columns.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentEntry:
    """A live fragment, as the log knows it without opening it."""

    key: str
    level: int
    run: str
    """What wrote it: the id of its compaction, or its own key."""
    sequence: tuple[int, int]
    """The version and position at which its oldest rows came in; on level 0, this names its sorted run."""
    rows: int
    size_bytes: int
    row_hash: int
    first_key: Bound
    """The whole key of its first row, never truncated: the order of fragments rests on it."""
    last_key: Bound
    row_groups: int
    peak_chunk_bytes: int
    """Bytes of its largest chunk, raw or decoded, whichever is more: what a merge holds of it at a time."""
    peak_row_bytes: int
    """Raw bytes per row of the chunk where that is greatest."""
    columns: Mapping[str, ColumnBytes] = field(default_factory=dict)
    window: int | None = None
    """The time window of all its rows; None in a table without windows, and for rows without a time."""
    deletion: Deletion | None = None
    """Rows that readers leave out and the next compaction does not write."""
    tombstones: int = 0
    """Number of rows that delete older rows of their key."""
    oldest_unix_ms: int | None = None
    """The least time of its rows, in a table with a time to live; None if no row has a time."""
    skip_index: SkipIndex | None = None

    @property
    def deleted_rows(self) -> int:
        return self.deletion.rows if self.deletion else 0

    @property
    def live_rows(self) -> int:
        """Rows that are not deleted."""
        return self.rows - self.deleted_rows

    @property
    def age(self) -> tuple[int, tuple[int, int], str]:
        """Sorts fragments that share keys from oldest to newest.

        The LSM invariant: deeper levels are older; level 0 is ordered by ingestion.
        """
        return -self.level, self.sequence, self.key

    @property
    def sorted_run(self) -> str:
        """The fragment's sorted run: a run of level 0, or a deeper level of one window.

        Fragments of one run are disjoint. On level 0, fragments of equal sequence are one run, whichever
        process wrote them. They are what is left of one oldest run that was merged piece by piece. If they
        counted as several runs, one piece could get rows that are newer than another's without having a
        younger sequence.
        """
        if self.level:
            return f"{self.window}/{self.level}"
        return f"{self.window}/0/{self.sequence[0]}/{self.sequence[1]}"

    @property
    def raw_bytes(self) -> int:
        """Decoded size in bytes, which a merge has to process."""
        return sum(column.raw for column in self.columns.values())

    @classmethod
    def from_summary(
        cls,
        key: str,
        summary: FragmentSummary,
        *,
        size_bytes: int,
        level: int,
        run: str,
        window: int | None = None,
        row_statistics: RowStatistics = NONE_SEEN,
        skip_index: SkipIndex | None = None,
    ) -> Self:
        """Returns the entry of a fragment just written; its sequence is set when it is committed."""
        return cls(
            key=key,
            level=level,
            run=run,
            sequence=(0, 0),
            rows=summary.rows,
            size_bytes=size_bytes,
            row_hash=summary.row_hash,
            first_key=summary.first_key,
            last_key=summary.last_key,
            row_groups=summary.row_groups,
            peak_chunk_bytes=summary.peak_chunk_bytes,
            peak_row_bytes=summary.peak_row_bytes,
            columns=summary.columns,
            window=window,
            tombstones=row_statistics.tombstones,
            oldest_unix_ms=row_statistics.oldest_unix_ms,
            skip_index=skip_index,
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
            "window": self.window,
            **({"deletion": self.deletion.to_json()} if self.deletion else {}),
            **({"tombstones": self.tombstones} if self.tombstones else {}),
            **({} if self.oldest_unix_ms is None else {"oldest_unix_ms": self.oldest_unix_ms}),
            **({"skip_index": self.skip_index.to_json()} if self.skip_index else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError for a value that `to_json` does not make."""
        _check_types(value)
        entry = cls(
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
            window=value.get("window"),
            deletion=Deletion.from_json(value["deletion"]) if value.get("deletion") else None,
            tombstones=value.get("tombstones", 0),
            oldest_unix_ms=value.get("oldest_unix_ms"),
            skip_index=SkipIndex.from_json(value["skip_index"])
            if value.get("skip_index")
            else None,
        )
        check_entry(entry)
        return entry


def key_range(entry: FragmentEntry, compare: KeyComparator) -> tuple[ComparableKey, ComparableKey]:
    """Returns the first and the last key in the form that compares.

    Raises `DataError` if they are not keys of the table.
    """
    try:
        compare.check(entry.first_key)
        compare.check(entry.last_key)
    except ValueError as error:
        raise DataError(
            f"{entry.key}: its key range in the log is damaged ({error}); restore the log from a backup"
        ) from error
    return compare.key(entry.first_key), compare.key(entry.last_key)


def check_entry(entry: FragmentEntry) -> None:
    """Raises TypeError or ValueError, naming the field, unless name and numbers can be a fragment's.

    Columns that are still text are checked when they are asked for.
    """
    if not is_fragment_key(entry.key):
        raise ValueError(f"{entry.key!r} is not the name of a fragment")
    check_number("level", entry.level, MAX_LEVEL)
    for place, number in enumerate(entry.sequence):
        check_number(f"sequence[{place}]", number)
    check_number("size_bytes", entry.size_bytes, MAX_OBJECT_BYTES)
    # The size is a bound that holds: readers compare it with the object.
    check_number("row_groups", entry.row_groups, entry.size_bytes // MIN_ROW_GROUP_BYTES)
    check_number(
        "rows",
        entry.rows,
        min(MAX_INT64, entry.row_groups * MAX_GROUP_ROWS),
        least=entry.row_groups,
    )
    check_number("row_hash", entry.row_hash, 2**64 - 1)
    check_number("peak_chunk_bytes", entry.peak_chunk_bytes)
    check_number("peak_row_bytes", entry.peak_row_bytes)
    for name, key in (("first_key", entry.first_key), ("last_key", entry.last_key)):
        texts = sum(len(value) for value in key if isinstance(value, str))
        check_number(f"length of {name}", texts, _MAX_KEY_CHARACTERS)
    if entry.deletion:
        check_number("deletion rows", entry.deletion.rows, entry.rows)
    check_number("tombstones", entry.tombstones, entry.rows)
    for name, signed in (("oldest_unix_ms", entry.oldest_unix_ms), ("window", entry.window)):
        if signed is not None:
            check_number(name, signed, least=-MAX_INT64 - 1)
    if not isinstance(entry.columns, LazyColumns):
        _check_columns(entry.columns)


def _check_columns(columns: Mapping[str, ColumnBytes]) -> None:
    for name, sizes in columns.items():
        check_number(f"columns[{name!r}] raw bytes", sizes.raw)
        check_number(f"columns[{name!r}] stored bytes", sizes.stored)
    check_sum("raw bytes of columns", (sizes.raw for sizes in columns.values()))


def _check_types(value: Mapping[str, Any]) -> None:
    if not isinstance(value["run"], str):
        raise ValueError("run is not a text")
    if not isinstance(value["first_key"], list) or not isinstance(value["last_key"], list):
        raise ValueError("a key bound is not a list")


def with_sequence(
    entries: Iterable[FragmentEntry], sequence: tuple[int, int]
) -> list[FragmentEntry]:
    """Returns the entries with one common sequence, for rewrites of older rows."""
    return [replace(entry, sequence=sequence) for entry in entries]
