"""Reads and writes the footer: offsets and statistics (SPEC section 7)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple, Self, TypeVar

import msgspec

from format.errors import SchemaError
from format.hashing import combine
from format.keys import Bound, Value


@dataclass(frozen=True, slots=True)
class RowGroupStats:
    rows: int
    row_hash: int
    first_key: Bound
    last_key: Bound


@dataclass(frozen=True, slots=True)
class ChunkStats:
    offset: int
    """Offset of the chunk's block from the start of the fragment."""
    stored_bytes: int
    """Length of the whole block."""
    raw_bytes: int
    decoded_bytes: int
    """Bytes of the values in memory, with a dictionary at the root kept; 0 if the footer does not say."""
    encoding: str
    null_count: int
    min: Value
    max: Value

    @property
    def held_bytes(self) -> int:
        """Bytes that a reader holds for the chunk: constants and runs take far more than their payload."""
        return max(self.raw_bytes, self.decoded_bytes)


class ColumnBytes(NamedTuple):
    """Bytes of one column of a fragment."""

    raw: int
    stored: int


@dataclass(slots=True)
class FragmentSummary:
    """What callers need to know of a fragment without opening it; small, however large the fragment is."""

    rows: int = 0
    row_hash: int = 0
    row_groups: int = 0
    first_key: Bound = ()
    """The whole key of the first row; empty if unknown."""
    last_key: Bound = ()
    """The whole key of the last row; empty if unknown."""
    peak_chunk_bytes: int = 0
    """Bytes of the heaviest chunk, raw or decoded, whichever is more."""
    peak_row_bytes: int = 0
    """The most raw bytes per row of any chunk."""
    columns: dict[str, ColumnBytes] = field(default_factory=dict)

    def add_column(self, name: str, chunks: Sequence[ChunkStats], rows: Sequence[int]) -> None:
        """Adds a column's statistics. rows: the number of rows of each row group."""
        raw = [chunk.raw_bytes for chunk in chunks]
        self.columns[name] = ColumnBytes(sum(raw), sum(chunk.stored_bytes for chunk in chunks))
        held = (chunk.held_bytes for chunk in chunks)
        self.peak_chunk_bytes = max(self.peak_chunk_bytes, *held, 0)
        by_row = (-(-size // count) for size, count in zip(raw, rows, strict=True))
        self.peak_row_bytes = max(self.peak_row_bytes, *by_row, 0)


@dataclass(slots=True)
class Footer:
    """Statistics of a fragment; `columns` maps names to one `ChunkStats` per row group."""

    row_groups: list[RowGroupStats] = field(default_factory=list)
    columns: dict[str, list[ChunkStats]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.row_groups)

    @property
    def row_hash(self) -> int:
        return combine(*(group.row_hash for group in self.row_groups))

    @property
    def group_rows(self) -> list[int]:
        return [group.rows for group in self.row_groups]

    def summary(self) -> FragmentSummary:
        """Returns the fragment's summary without its first and last key, for which a footer has only
        bounds."""
        groups = self.row_groups
        summary = FragmentSummary(self.rows, self.row_hash, len(groups))
        for name, chunks in self.columns.items():
            summary.add_column(name, chunks, [group.rows for group in groups])
        return summary

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises `SchemaError` for anything that is not a footer, or contradicts itself."""
        document = _decoded(data, _DOCUMENT)
        groups = document.row_groups
        try:
            footer = cls(
                [
                    RowGroupStats(rows, int(row_hash, 16), tuple(first), tuple(last))
                    for rows, row_hash, first, last in zip(
                        groups.rows,
                        groups.row_hash,
                        groups.first_key,
                        groups.last_key,
                        strict=True,
                    )
                ],
                {column.name: column.chunks() for column in document.columns},
            )
        except ValueError as error:
            raise SchemaError(f"the footer is not a fragment footer: {error}") from error
        count = len(footer.row_groups)
        is_consistent = (
            footer.rows == document.rows
            and footer.row_hash == int(document.row_hash, 16)
            and len(footer.columns) == len(document.columns)
            and all(len(chunks) == count for chunks in footer.columns.values())
        )
        if not is_consistent:
            raise SchemaError("the footer contradicts itself")
        return footer


_Rows = Annotated[int, msgspec.Meta(ge=1, lt=1 << 32)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{16}$")]
_Value = bool | int | float | str | None


class _Groups(msgspec.Struct):
    rows: list[_Rows]
    row_hash: list[_Hash]
    first_key: list[list[_Value]]
    last_key: list[list[_Value]]


class _Column(msgspec.Struct):
    """A column's statistics as `pack_column` writes them."""

    name: str
    offset: list[_Count]
    stored_bytes: list[_Count]
    raw_bytes: list[_Count]
    encoding: list[str]
    null_count: list[_Count]
    min: list[_Value]
    max: list[_Value]
    decoded_bytes: list[_Count] | None = None

    def chunks(self) -> list[ChunkStats]:
        decoded = self.decoded_bytes
        values = zip(
            self.offset, self.stored_bytes, self.raw_bytes,
            [0] * len(self.offset) if decoded is None else decoded,
            self.encoding, self.null_count, self.min, self.max, strict=True,
        )  # fmt: skip
        return [ChunkStats(*chunk) for chunk in values]


class _Document(msgspec.Struct):
    rows: _Count
    row_hash: _Hash
    row_groups: _Groups
    columns: list[_Column]


_Json = TypeVar("_Json")


def _decoded(data: bytes, decoder: msgspec.json.Decoder[_Json]) -> _Json:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchemaError(f"the footer is not a fragment footer: {error}") from error


class _GroupsHead(msgspec.Struct):
    rows: list[_Rows]


class FooterHead(msgspec.Struct):
    """A footer without its columns, of which there may be ten thousand: decoding makes no objects for
    them."""

    rows: _Count
    row_hash_hex: _Hash = msgspec.field(name="row_hash")
    row_groups: _GroupsHead

    @property
    def row_hash(self) -> int:
        return int(self.row_hash_hex, 16)

    @property
    def group_rows(self) -> list[int]:
        return self.row_groups.rows

    @classmethod
    def from_bytes(cls, data: bytes) -> FooterHead:
        """Raises `SchemaError` for anything that is not a footer, or contradicts itself."""
        head = _decoded(data, _HEAD)
        if sum(head.group_rows) != head.rows:
            raise SchemaError("the footer contradicts itself")
        return head


# Made at import, by one thread, because msgspec inspects types without a lock.
_DOCUMENT: Final = msgspec.json.Decoder(_Document)
_HEAD: Final = msgspec.json.Decoder(FooterHead)


def pack_footer(groups: Sequence[RowGroupStats], columns: Iterable[bytes]) -> bytes:
    """Returns the footer's payload. columns: results of `pack_column`, in the order of the file."""
    head = {
        "rows": sum(group.rows for group in groups),
        "row_hash": _hex(combine(*(group.row_hash for group in groups))),
        "row_groups": {
            "rows": [group.rows for group in groups],
            "row_hash": [_hex(group.row_hash) for group in groups],
            "first_key": [list(group.first_key) for group in groups],
            "last_key": [list(group.last_key) for group in groups],
        },
    }
    return b"".join((_json(head)[:-1], b',"columns":[', b",".join(columns), b"]}"))


def pack_column(name: str, chunks: Sequence[ChunkStats]) -> bytes:
    """Returns one column's statistics as the footer has them."""
    return _json(
        {
            "name": name,
            "offset": [chunk.offset for chunk in chunks],
            "stored_bytes": [chunk.stored_bytes for chunk in chunks],
            "raw_bytes": [chunk.raw_bytes for chunk in chunks],
            "decoded_bytes": [chunk.decoded_bytes for chunk in chunks],
            "encoding": [chunk.encoding for chunk in chunks],
            "null_count": [chunk.null_count for chunk in chunks],
            "min": [chunk.min for chunk in chunks],
            "max": [chunk.max for chunk in chunks],
        }
    )


class ValueStats(NamedTuple):
    """Statistics of a chunk's values that only a footer has."""

    min: Value
    max: Value
    decoded_bytes: int


def with_values(column: bytes, known: Callable[[str, int], ValueStats | None]) -> bytes:
    """Returns a column's statistics with those that `known` gives for the values of its chunks.

    known: called with column and row group; returns None to keep the present statistics.
    """
    document = json.loads(column)
    for group in range(len(document["min"])):
        if (values := known(document["name"], group)) is not None:
            for name, value in values._asdict().items():
                document[name][group] = value
    return _json(document)


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _hex(value: int) -> str:
    return f"{value:016x}"
