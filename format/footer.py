"""The footer: offsets and statistics (SPEC section 7)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Self

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
    """Of the chunk's block, from the start of the fragment."""
    stored_bytes: int
    """Length of the whole block."""
    raw_bytes: int
    encoding: str
    null_count: int
    min: Value
    max: Value


@dataclass(slots=True)
class Footer:
    """Statistics of a fragment; `columns` maps names to one `ChunkStats` a row group."""

    row_groups: list[RowGroupStats] = field(default_factory=list)
    columns: dict[str, list[ChunkStats]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.row_groups)

    @property
    def row_hash(self) -> int:
        return combine(*(group.row_hash for group in self.row_groups))

    def to_bytes(self) -> bytes:
        groups = self.row_groups
        document = {
            "rows": self.rows,
            "row_hash": _hex(self.row_hash),
            "row_groups": {
                "rows": [group.rows for group in groups],
                "row_hash": [_hex(group.row_hash) for group in groups],
                "first_key": [list(group.first_key) for group in groups],
                "last_key": [list(group.last_key) for group in groups],
            },
            "columns": [
                {
                    "name": name,
                    "offset": [chunk.offset for chunk in chunks],
                    "stored_bytes": [chunk.stored_bytes for chunk in chunks],
                    "raw_bytes": [chunk.raw_bytes for chunk in chunks],
                    "encoding": [chunk.encoding for chunk in chunks],
                    "null_count": [chunk.null_count for chunk in chunks],
                    "min": [chunk.min for chunk in chunks],
                    "max": [chunk.max for chunk in chunks],
                }
                for name, chunks in self.columns.items()
            ],
        }
        return json.dumps(
            document, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises `SchemaError` for anything that is not a footer, or contradicts itself."""
        try:
            document = json.loads(data)
            groups = document["row_groups"]
            footer = cls(
                [
                    RowGroupStats(rows, int(row_hash, 16), tuple(first), tuple(last))
                    for rows, row_hash, first, last in zip(
                        groups["rows"],
                        groups["row_hash"],
                        groups["first_key"],
                        groups["last_key"],
                        strict=True,
                    )
                ],
                {column["name"]: _chunks(column) for column in document["columns"]},
            )
            consistent = (
                footer.rows == document["rows"]
                and footer.row_hash == int(document["row_hash"], 16)
                and all(len(c) == len(footer.row_groups) for c in footer.columns.values())
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SchemaError(f"the footer is not a fragment footer: {error!r}") from error
        if not consistent:
            raise SchemaError("the footer contradicts itself")
        return footer


def _chunks(column: dict[str, list[Value]]) -> list[ChunkStats]:
    names = ("offset", "stored_bytes", "raw_bytes", "encoding", "null_count", "min", "max")
    return [ChunkStats(*values) for values in zip(*(column[name] for name in names), strict=True)]


def _hex(value: int) -> str:
    return f"{value:016x}"
