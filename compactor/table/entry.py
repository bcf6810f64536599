"""Entries: live fragments, as the log knows them. Pure values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final, Self

import msgspec
import pyarrow as pa
from msgspec import Struct, structs

from compactor.errors import DataError
from compactor.predicate.skipping.packed import BlockPlace
from compactor.rows.flags import NONE_SEEN, RowStatistics
from compactor.table.json_text import to_json_text
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
from compactor.table.stored import (
    Form,
    Hash,
    Listed,
    Number,
    Numbers,
    ObjectName,
    RelatedNumber,
    Stored,
    Text,
)
from lsm_fragment.container.footer import ColumnBytes, FragmentSummary
from lsm_fragment.errors import cause_of
from lsm_fragment.keys.bounds import Bound
from lsm_fragment.keys.comparator import ComparableKey, KeyComparator

_MAX_KEY_CHARACTERS: Final = 2 * MAX_KEY_BYTES
"""Refuse a longer key. Binary values are base64 in the log, and so longer than in rows."""


class _Columns(Form):
    """Raw and stored bytes by column: a JSON object, parsed late if it comes from a checkpoint."""

    def check(self, name: str, value: Mapping[str, ColumnBytes]) -> None:
        if isinstance(value, LazyColumns):
            return
        for column, (raw, stored) in value.items():
            if not (type(raw) is type(stored) is int and 0 <= raw <= MAX_INT64 >= stored >= 0):
                check_number(f"{name}[{column!r}] raw bytes", raw)
                check_number(f"{name}[{column!r}] stored bytes", stored)
        check_sum(f"raw bytes of {name}", [sizes.raw for sizes in value.values()])

    def to_json(self, value: Mapping[str, ColumnBytes]) -> dict[str, list[int]]:
        return {name: [sizes.raw, sizes.stored] for name, sizes in value.items()}

    def from_json(self, value: Mapping[str, Any]) -> dict[str, ColumnBytes]:
        return {name: ColumnBytes(*sizes) for name, sizes in value.items()}

    def to_cells(self, values: Iterable[Mapping[str, ColumnBytes]]) -> list[str]:
        return [
            value.text if isinstance(value, LazyColumns) else to_json_text(self.to_json(value))
            for value in values
        ]

    def from_cells(self, cells: Sequence[str]) -> list[LazyColumns]:
        return list(map(LazyColumns, cells))


class LazyColumns(Mapping[str, ColumnBytes]):
    """The columns of an entry read from a checkpoint: parsed only when asked for, since few ever are."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _columns(self) -> dict[str, ColumnBytes]:
        try:
            columns = _COLUMNS.from_json(json.loads(self.text))
            _COLUMNS.check("columns", columns)
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


class _Key(Form):
    """The values of a row's sort columns: an array in JSON."""

    def check(self, name: str, value: Bound) -> None:
        texts = sum(len(part) for part in value if isinstance(part, str))
        check_number(f"length of {name}", texts, _MAX_KEY_CHARACTERS)

    def to_json(self, value: Bound) -> list[Any]:
        return list(value)

    def from_json(self, value: Any) -> Bound:
        if not isinstance(value, list):
            raise ValueError("a key bound is not a list")
        return tuple(value)


class _Places(Form):
    """Offset, length and hash of blocks by column: a JSON object."""

    def check(self, name: str, value: Mapping[str, BlockPlace]) -> None:  # noqa: ARG002
        for place in value.values():
            check_number("skip_index offset", place.offset, MAX_OBJECT_BYTES)
            check_number("skip_index length", place.length, MAX_OBJECT_BYTES)
            _HASH.check("skip_index hash", place.hash)

    def to_json(self, value: Mapping[str, BlockPlace]) -> dict[str, list[Any]]:
        return {
            name: [place.offset, place.length, _HASH.to_json(place.hash)]
            for name, place in value.items()
        }

    def from_json(self, value: Mapping[str, Any]) -> dict[str, BlockPlace]:
        return {
            name: BlockPlace(offset, length, _HASH.from_json(block_hash))
            for name, (offset, length, block_hash) in value.items()
        }


_MIN_INT64: Final = -MAX_INT64 - 1
_COLUMNS: Final = _Columns()
_KEY: Final = _Key()
_NUMBER: Final = Number()
_HASH: Final = Hash()
_OBJECT_BYTES: Final = Number(MAX_OBJECT_BYTES)


class Deletion(Struct, frozen=True):
    """The deleted rows of a fragment, and where their positions are stored."""

    key: Annotated[str, ObjectName(is_deletions_key, "a deletions object")]
    """Key of the object."""
    offset: Annotated[int, _OBJECT_BYTES]
    length: Annotated[int, _OBJECT_BYTES]
    rows: Annotated[int, _NUMBER]
    hash: Annotated[int, _HASH]
    """XXH3 of the block's bytes: another deletion's object may lie under the name."""


class SkipIndex(Struct, frozen=True):
    """The place of a fragment's skip index on storage."""

    key: Annotated[str, ObjectName(is_skip_index_key, "a skip index object")]
    """Key of the object."""
    columns: Annotated[Mapping[str, BlockPlace], _Places()]
    """Place of each column's block, by stored name; length 0 if nothing was worth keeping."""


class FragmentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A live fragment, as the log knows it without opening it.

    This is its only declaration: `STORED` derives the JSON of the log, the columns of checkpoints and the
    checks. To add a field, add it here, with a default.
    """

    key: Annotated[str, ObjectName(is_fragment_key, "a fragment")]
    level: Annotated[int, Number(MAX_LEVEL, arrow=pa.int32())]
    run: Annotated[str, Text()]
    """The id of the compaction that wrote it, or its own key."""
    sequence: Annotated[tuple[int, int], Numbers(("version", "position"))]
    """The version and position at which its oldest rows came in; on level 0, this names its sorted run."""
    rows: Annotated[int, RelatedNumber()]
    size_bytes: Annotated[int, _OBJECT_BYTES]
    row_hash: Annotated[int, _HASH]
    first_key: Annotated[Bound, _KEY]
    """The whole key of its first row, never truncated: the order of fragments rests on it."""
    last_key: Annotated[Bound, _KEY]
    row_groups: Annotated[int, RelatedNumber()]
    peak_chunk_bytes: Annotated[int, _NUMBER]
    """Bytes of its largest chunk, raw or decoded, whichever is more: what a merge holds of it at a time."""
    peak_row_bytes: Annotated[int, _NUMBER]
    """Raw bytes per row of the chunk where that is greatest."""
    columns: Annotated[Mapping[str, ColumnBytes], _COLUMNS]
    window: Annotated[int | None, Number(least=_MIN_INT64, is_always_there=True)] = None
    """The time window of all its rows; None in a table without windows, and for rows without a time."""
    deletion: Annotated[Deletion | None, Listed(Stored(Deletion))] = None
    """Rows that readers leave out and the next compaction does not write."""
    tombstones: Annotated[int, RelatedNumber()] = 0
    """Number of rows that delete older rows of their key."""
    oldest_unix_ms: Annotated[int | None, Number(least=_MIN_INT64)] = None
    """The earliest time of its rows without tombstones, in a table with a time to live; None if there is
    none."""
    skip_index: Annotated[SkipIndex | None, Listed(Stored(SkipIndex))] = None

    @property
    def deleted_rows(self) -> int:
        return self.deletion.rows if self.deletion else 0

    @property
    def needed_objects(self) -> tuple[str, ...]:
        """Keys of the objects without which it can't be read: the fragment and its deleted rows."""
        return (self.key, self.deletion.key) if self.deletion else (self.key,)

    @property
    def objects(self) -> tuple[str, ...]:
        """Keys of the fragment, of its deleted rows and of its skip indexes."""
        needed = self.needed_objects
        return (*needed, self.skip_index.key) if self.skip_index else needed

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
        return STORED.to_json(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FragmentEntry:
        """Raises KeyError, TypeError or ValueError for a value that `to_json` does not make."""
        entry = STORED.from_json(value)
        check_entry(entry)
        return entry


STORED: Final = Stored(FragmentEntry)
"""The stored forms of entries: JSON of the log, and columns of checkpoints."""


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
    STORED.check(entry)
    # The size is a bound that holds: readers compare it with the object.
    check_number("row_groups", entry.row_groups, entry.size_bytes // MIN_ROW_GROUP_BYTES)
    max_rows = min(MAX_INT64, entry.row_groups * MAX_GROUP_ROWS)
    check_number("rows", entry.rows, max_rows, least=entry.row_groups)
    if entry.deletion:
        check_number("deletion rows", entry.deletion.rows, entry.rows)
    check_number("tombstones", entry.tombstones, entry.rows)


def with_sequence(
    entries: Iterable[FragmentEntry], sequence: tuple[int, int]
) -> list[FragmentEntry]:
    """Returns the entries with one common sequence, for rewrites of older rows."""
    return [structs.replace(entry, sequence=sequence) for entry in entries]
