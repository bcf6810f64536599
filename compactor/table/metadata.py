"""The metadata that all fragments of a table share: schema, sort schema, time windows, row policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.common.conversion import convertible
from compactor.common.plain_values import plain_dict
from compactor.common.setting_keys import SKIP_INDEX
from compactor.errors import UsageError
from compactor.predicate.skipping.spec import NONE as NO_SKIPS
from compactor.predicate.skipping.spec import SkipSpec, check_skip_column
from compactor.rows.policy import APPEND, RowPolicy, Ttl
from compactor.settings.properties import Properties, Value
from compactor.table.numbers import (
    MAX_SKIP_BYTES,
    MAX_TTL_SECONDS,
    Natural,
    WindowSeconds,
    check_number,
)
from lsm_fragment.arrays.type_json import schema_from_json, schema_to_json
from lsm_fragment.errors import SchemaError
from lsm_fragment.keys.comparator import KeyComparator
from lsm_fragment.keys.sort_schema import SortColumn, SortSchema, check_sort_schema
from lsm_fragment.names import names_text

COUNTER: Final = "counter:"
NEEDED_COLUMNS: Final = "needed_columns"
"""The name of what is remembered of the columns that later writers read, as a JSON list of stored names."""


@convertible
@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Time windows: a fragment has rows of one window, is never merged across windows, and expires whole."""

    column: str
    """A sort column, so that rows of equal keys are in one window."""
    window_seconds: WindowSeconds
    retention_seconds: Natural | None = None
    """Windows that ended longer ago are dropped; None keeps all."""

    def is_expired(self, window: int | None, now_unix_ms: int) -> bool:
        """Says whether all rows of the window are past retention. Rows without a time (None) never are."""
        if window is None or self.retention_seconds is None:
            return False
        return (window + 1) * self.window_seconds + self.retention_seconds <= now_unix_ms / 1000


class TableMetadata(Struct, frozen=True, kw_only=True):
    """The metadata that all fragments of the table share.

    A column is known by its stored name, which never changes and is never given to another column; `sort`,
    `windows`, `rows` and `ttl` use stored names. `names` has the names that users see.
    """

    schema: pa.Schema
    """Columns by stored name, in the order in which they are shown."""
    sort: SortSchema
    windows: TimeWindows | None = None
    rows: RowPolicy = APPEND
    ttl: Ttl | None = None
    names: tuple[tuple[str, str], ...] = ()
    """Pairs of stored and shown name, for columns where they differ."""
    retired: tuple[str, ...] = ()
    """Stored names of dropped columns, which fragments may still have."""
    redacted: tuple[str, ...] = ()
    """Those of them whose values must never show again, at whatever version the table is."""
    skips: SkipSpec = NO_SKIPS
    """The columns for which new fragments get a skip index."""
    remembered: tuple[tuple[str, str], ...] = ()
    """Texts by name that writers have to remember along with the rows. A restore brings earlier ones back,
    but for numbers that only grow, whose names begin with `COUNTER`."""
    properties: Properties = ()
    """The settings that were chosen for the table."""

    @property
    def needed_columns(self) -> frozenset[str]:
        """The stored names of columns that later writers read: their values may not go."""
        text = dict(self.remembered).get(NEEDED_COLUMNS)
        return frozenset() if text is None else frozenset(msgspec.json.decode(text, type=list[str]))

    @property
    def expires(self) -> bool:
        """Whether compactions drop rows by the clock."""
        retention = None if self.windows is None else self.windows.retention_seconds
        return self.ttl is not None or retention is not None

    @property
    def shown_schema(self) -> pa.Schema:
        """The schema with the names that users see."""
        if not self.names:
            return self.schema
        shown = dict(self.names)
        return pa.schema(
            [field.with_name(shown.get(field.name, field.name)) for field in self.schema],
            metadata=self.schema.metadata,
        )

    @property
    def stored_names(self) -> dict[str, str]:
        """The stored name of each column by the name that users see."""
        return dict(zip(self.shown_schema.names, self.schema.names, strict=True))

    def shown_name(self, stored: str) -> str:
        return dict(self.names).get(stored, stored)

    @property
    def shown_rows(self) -> RowPolicy:
        """The row policy with the names that users see."""
        return self.rows.renamed(self.shown_name)

    def stored_name(self, shown: str) -> str | None:
        """Returns the stored name of a column; None if no column has this shown name."""
        return self.stored_names.get(shown)

    def new_stored_name(self, shown: str, also_taken: Iterable[str] = ()) -> str:
        """Returns a stored name for a new column: one that no column of the table ever had."""
        taken = {*self.schema.names, *self.retired, *also_taken}
        name, count = shown, 1
        while name in taken:
            count += 1
            name = f"{shown}#{count}"
        return name

    def with_skips(self, skips: SkipSpec) -> Self:
        """Returns the metadata with these skip indexes. Raises `UsageError` for an unsuitable column.

        skips: columns by stored name.
        """
        in_sort = {column.column for column in self.sort}
        for name, kind in set(skips.columns).difference(self.skips.columns):
            if name not in self.schema.names:
                raise UsageError(
                    SKIP_INDEX,
                    f": no column {name!r}; columns are: {names_text(self.schema.names)}",
                )
            shown = self.shown_name(name)
            if name in in_sort:
                raise UsageError(
                    SKIP_INDEX,
                    f": {shown!r} is a sort column, which needs no skip index; leave it out",
                )
            check_skip_column(shown, kind, self.schema.field(name).type)
        return replace(self, skips=skips)

    def comparator(self) -> KeyComparator:
        """Returns the comparator that orders rows."""
        return KeyComparator(self.schema, self.sort)

    def key_comparator(self) -> KeyComparator:
        """Returns the comparator that tells rows of one key from others; ranges overlap by it."""
        return KeyComparator(self.schema, self.rows.key_columns(self.sort))

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": schema_to_json(self.schema),
            "sort": [column.to_json() for column in self.sort],
            "windows": None if self.windows is None else plain_dict(self.windows),
            **({"row_policy": self.rows.to_json()} if self.rows != APPEND else {}),
            **({"ttl": plain_dict(self.ttl)} if self.ttl else {}),
            **({"names": dict(self.names)} if self.names else {}),
            **({"retired": list(self.retired)} if self.retired else {}),
            **({"redacted": list(self.redacted)} if self.redacted else {}),
            **({"skip_index": self.skips.to_json()} if self.skips.columns else {}),
            **({"remembered": dict(self.remembered)} if self.remembered else {}),
            **({"properties": dict(self.properties)} if self.properties else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        windows, rows, ttl = value.get("windows"), value.get("row_policy"), value.get("ttl")
        table = cls(
            schema=schema_from_json(value["schema"]),
            sort=tuple(SortColumn.from_json(column) for column in value["sort"]),
            windows=None if windows is None else msgspec.convert(windows, TimeWindows),
            rows=APPEND if rows is None else RowPolicy.from_json(rows),
            ttl=None if ttl is None else msgspec.convert(ttl, Ttl),
            names=tuple(msgspec.convert(value.get("names", {}), dict[str, str]).items()),
            retired=msgspec.convert(value.get("retired", ()), tuple[str, ...]),
            redacted=msgspec.convert(value.get("redacted", ()), tuple[str, ...]),
            skips=SkipSpec.from_json(value["skip_index"]) if value.get("skip_index") else NO_SKIPS,
            remembered=tuple(msgspec.convert(value.get("remembered", {}), dict[str, str]).items()),
            properties=tuple(
                sorted(msgspec.convert(value.get("properties", {}), dict[str, Value]).items())
            ),
        )
        table._check_columns()
        if table.ttl is not None:
            check_number("ttl seconds", table.ttl.seconds, MAX_TTL_SECONDS, least=1)
        check_number("bytes_per_row_group", table.skips.bytes_per_row_group, MAX_SKIP_BYTES)
        return table

    def _check_columns(self) -> None:
        """Raises `SchemaError` if a column is missing that rows are told apart or dated by."""
        check_sort_schema(self.schema, self.sort)
        named = [self.rows.sequence, self.rows.delete_marker]
        named += [part.column for part in (self.windows, self.ttl) if part is not None]
        for name in named:
            if name is not None and name not in self.schema.names:
                raise SchemaError(
                    f"the table has no column {name!r}, by which its rows are decided"
                )
