"""Settings of an ingest as users write them: names, units, bounds, defaults and help.

The command line and the Spark data source share them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, model_validator

from compactor.common.setting_keys import (
    AGGREGATE,
    DELETE_MARKER,
    KEEP_TOMBSTONES,
    RETENTION,
    ROW_POLICY,
    SEQUENCE,
    SORT_BY,
    TIME_COLUMN,
    TIME_WINDOW,
    TTL,
    TTL_COLUMN,
)
from compactor.errors import UsageError
from compactor.predicate.skipping.spec import NONE as NO_SKIPS
from compactor.predicate.skipping.spec import SkipKind, SkipSpec
from compactor.rows.policy import RowFunction, RowKind, RowPolicy, Ttl
from compactor.settings.column_kinds import column_kinds
from compactor.settings.fields import Bytes, Name, Seconds, WindowSeconds, Written, listed, names
from compactor.settings.fragments import (
    DEFAULT_ROWS_PER_FRAGMENT,
    DEFAULT_ROWS_PER_ROW_GROUP,
    RowsPerFragment,
    RowsPerRowGroup,
)
from compactor.settings.model import Settings
from compactor.settings.properties import pairs
from compactor.settings.writers import BackPressureReaction, Reaction
from compactor.table.metadata import TimeWindows
from compactor.write.file_schema import OnConflict
from compactor.write.ingest.options import IngestOptions
from lsm_fragment.errors import SchemaError
from lsm_fragment.keys.sort_schema import SortSchema, parse_sort_schema

_DEFAULTS: Final = IngestOptions()


def _pairs(kinds: type[StrEnum], word: str) -> BeforeValidator:
    """Returns a validator for `COLUMN:KIND` pairs: a comma-separated text, or a sequence of such texts."""
    by_name = {str(kind): kind for kind in kinds}
    return BeforeValidator(lambda given: tuple(column_kinds(listed(given), by_name, word).items()))


class IngestSettings(Settings):
    """Settings of an ingest, from texts or values.

    `on_conflict` applies to the ingest, and so do the sizes of fragments and row groups and the reaction to
    debt, which a new table keeps as properties. The others apply only to a new table.
    """

    sort_by: str | None = Field(default=None, description="Sort schema of a new table.")
    rows_per_fragment: RowsPerFragment = DEFAULT_ROWS_PER_FRAGMENT
    max_rows_per_row_group: RowsPerRowGroup = DEFAULT_ROWS_PER_ROW_GROUP
    back_pressure: BackPressureReaction = Reaction.WARN
    properties: Annotated[
        tuple[tuple[str, str], ...], BeforeValidator(pairs), Written("NAME=VALUE")
    ] = Field(
        default=(),
        description="Property that a new table keeps. For another it counts for this ingest only.",
    )
    time_column: Name | None = Field(
        default=None, description="Sort column that divides a new table into time windows."
    )
    time_window: WindowSeconds = Field(
        default=86_400.0, description="Length of a time window, if a time column is given."
    )
    retention: Seconds | None = Field(
        default=None,
        description="Time windows that ended longer ago are dropped. By default all are kept.",
    )
    row_policy: RowKind | None = Field(
        default=None,
        description="How a new table merges rows of equal sort columns. By default it appends all rows.",
    )
    sequence: Name | None = Field(
        default=None, description="Column whose greater values are newer, for last and first."
    )
    delete_marker: Name | None = Field(
        default=None, description="Boolean column: rows where it is true are tombstones."
    )
    keep_tombstones: bool | None = Field(
        default=None,
        description="Whether compactions keep or drop tombstones. By default they keep them if there is a "
        "sequence.",
    )
    aggregate: Annotated[
        tuple[tuple[str, RowFunction], ...],
        _pairs(RowFunction, "function"),
        Written("COLUMN:FUNCTION"),
    ] = Field(
        default=(), description="Function that aggregates a column, for row policy aggregate."
    )
    ttl: Seconds | None = Field(
        default=None, description="Compactions of a new table drop rows older than this."
    )
    ttl_column: Name | None = Field(
        default=None, description="Time column from which the age of rows is measured."
    )
    on_conflict: OnConflict = Field(
        default=_DEFAULTS.on_conflict,
        description="If a column's values do not fit the table's type: refuse the rows, make the table's "
        "column text, or add the values as another column. With the last two, a JSON field with values of "
        "several kinds is text.",
    )
    skip_index: Annotated[
        tuple[tuple[str, SkipKind], ...], _pairs(SkipKind, "kind"), Written("COLUMN:KIND")
    ] = Field(
        default=(),
        description="Skip index of a new table's column, to skip row groups: bloom or values.",
    )
    skip_index_bytes: Bytes = Field(
        default=NO_SKIPS.bytes_per_row_group,
        ge=32,
        description="Maximum bytes of a skip index for a column and row group.",
    )
    not_null: Annotated[tuple[str, ...], BeforeValidator(names), Written("PATH")] = Field(
        default=(),
        description="A new table refuses rows with a null there: COLUMN, or a path into it such as "
        "tags.element, attributes.value or request.id.",
    )

    @model_validator(mode="after")
    def _together(self) -> IngestSettings:
        of_policy = {
            SEQUENCE: self.sequence,
            DELETE_MARKER: self.delete_marker,
            KEEP_TOMBSTONES: self.keep_tombstones,
            AGGREGATE: self.aggregate or None,
        }
        given = [key for key, value in of_policy.items() if value is not None]
        if self.row_policy is None and given:
            raise UsageError(given[0], ": name the ", ROW_POLICY, " too")
        if self.retention is not None and self.time_column is None:
            raise UsageError(RETENTION, ": name the ", TIME_COLUMN, " that it applies to")
        if "time_window" in self.model_fields_set and self.time_column is None:
            raise UsageError(TIME_WINDOW, ": name the ", TIME_COLUMN, " that it divides")
        if (self.ttl is None) != (self.ttl_column is None):
            raise UsageError(TTL, " and ", TTL_COLUMN, ": give both, or neither")
        return self

    @property
    def sort(self) -> SortSchema | None:
        """The sort schema, if given. Raises `UsageError` if it cannot be parsed."""
        try:
            return None if self.sort_by is None else parse_sort_schema(self.sort_by)
        except SchemaError as error:
            raise UsageError(SORT_BY, f": {error}") from error

    @property
    def options(self) -> IngestOptions:
        return IngestOptions(
            rows_per_fragment=self._if_given("rows_per_fragment"),
            max_rows_per_row_group=self._if_given("max_rows_per_row_group"),
            back_pressure=self._if_given("back_pressure"),
            properties=dict(self.properties),
            windows=self._windows,
            rows=self._rows,
            ttl=self._ttl,
            skips=SkipSpec(self.skip_index, self.skip_index_bytes) if self.skip_index else NO_SKIPS,
            not_null=self.not_null,
            on_conflict=self.on_conflict,
        )

    def _if_given(self, name: str) -> Any:
        """Returns a setting that was given explicitly; None leaves it to the table's properties."""
        return getattr(self, name) if name in self.model_fields_set else None

    @property
    def _windows(self) -> TimeWindows | None:
        if self.time_column is None:
            return None
        retention = None if self.retention is None else int(self.retention)
        return TimeWindows(self.time_column, int(self.time_window), retention)

    @property
    def _rows(self) -> RowPolicy | None:
        if self.row_policy is None:
            return None
        return RowPolicy(
            self.row_policy, self.sequence, self.delete_marker, self.keep_tombstones, self.aggregate
        )

    @property
    def _ttl(self) -> Ttl | None:
        if self.ttl is None or self.ttl_column is None:
            return None
        return Ttl(self.ttl_column, int(self.ttl))
