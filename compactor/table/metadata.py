"""What all fragments of a table share: schema, sort schema, time windows, what rows mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import pyarrow as pa

from compactor.rows.policy import APPEND, RowPolicy, Ttl
from format.keys import KeyComparator
from format.schema import SortColumn, SortSchema
from format.types import schema_from_json, schema_to_json


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Fragments hold rows of one window of time each: never merged across, dropped as a whole."""

    column: str
    """A sort column, so that rows of equal keys are of one window."""
    window_seconds: int
    retention_seconds: int | None = None
    """Windows that ended longer ago are dropped; None keeps all."""

    def is_expired(self, window: int | None, now_unix_ms: int) -> bool:
        """Whether all rows of the window are past retention. Rows without a time (None) never are."""
        if window is None or self.retention_seconds is None:
            return False
        return (window + 1) * self.window_seconds + self.retention_seconds <= now_unix_ms / 1000


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """What all fragments of the table share."""

    schema: pa.Schema
    sort: SortSchema
    windows: TimeWindows | None = None
    rows: RowPolicy = APPEND
    ttl: Ttl | None = None

    def comparator(self) -> KeyComparator:
        """Orders rows."""
        return KeyComparator(self.schema, self.sort)

    def key_comparator(self) -> KeyComparator:
        """Tells rows of one key from others: by it ranges overlap."""
        return KeyComparator(self.schema, self.rows.key_columns(self.sort))

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": schema_to_json(self.schema),
            "sort": [column.to_json() for column in self.sort],
            "windows": None if self.windows is None else asdict(self.windows),
            **({"rows": self.rows.to_json()} if self.rows != APPEND else {}),
            **({"ttl": asdict(self.ttl)} if self.ttl else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        windows, rows, ttl = value.get("windows"), value.get("rows"), value.get("ttl")
        return cls(
            schema_from_json(value["schema"]),
            tuple(SortColumn.from_json(column) for column in value["sort"]),
            None if windows is None else TimeWindows(**windows),
            APPEND if rows is None else RowPolicy.from_json(rows),
            None if ttl is None else Ttl(**ttl),
        )
