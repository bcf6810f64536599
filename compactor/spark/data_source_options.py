"""Options of the Spark data source `fragments`, checked: one line for what is wrong."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from compactor import units
from compactor.clock import SystemClock
from compactor.conform import OnConflict
from compactor.errors import UsageError
from compactor.ingest import IngestOptions
from compactor.rows.policy import Function, Kind, RowPolicy, Ttl
from compactor.skipping.spec import DEFAULT_BYTES, SkipSpec
from compactor.skipping.spec import NONE as NO_SKIPS
from compactor.skipping.spec import Kind as SkipKind
from compactor.table.metadata import TimeWindows
from format.errors import SchemaError
from format.schema import SortSchema, parse_sort_schema
from format.writer import WriterOptions

_OF_SPARK: Final = frozenset(("path", "checkpointlocation", "queryname"))
"""What Spark itself puts among the options, or takes from them."""
_FLAG: Final = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
_SORTING: Final = 5
"""Rows that are sorted and written take so many times the memory of what was read."""
_MIN_MEMORY_BYTES: Final = 64 << 20


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_Options = TypeVar("_Options", bound=_Model)


class ReadOptions(_Model):
    version: int | None = Field(None, ge=1)
    as_of: int | None = None
    """Unix time in milliseconds."""
    columns: tuple[str, ...] | None = Field(None, min_length=1)
    where: str | None = None
    nanoseconds: Literal["error", "cut"] = "error"
    task_bytes: int = Field(128 << 20, ge=1)
    """Decoded: tasks get about so much, where fragments can be divided."""
    single_use: bool = False
    """Each DataFrame that is loaded is scanned by one query, once, so that Spark's filters can be taken."""

    @field_validator("as_of", mode="before")
    @classmethod
    def _moment(cls, text: str) -> int:
        return units.moment_unix_ms(text, SystemClock())

    @field_validator("task_bytes", mode="before")
    @classmethod
    def _size(cls, text: str) -> int:
        return units.size_bytes(text)

    @field_validator("columns", mode="before")
    @classmethod
    def _names(cls, text: str) -> tuple[str, ...]:
        return _list(text)

    @model_validator(mode="after")
    def _once(self) -> ReadOptions:
        if self.version is not None and self.as_of is not None:
            raise ValueError("version and as_of: give one of the two")
        return self


class WriteOptions(_Model):
    sort_by: str | None = None
    row_policy: Kind | None = None
    sequence: str | None = None
    delete_marker: str | None = None
    keep_tombstones: bool | None = None
    aggregate: tuple[tuple[str, Function], ...] = ()
    time_column: str | None = None
    time_window: float = Field(86_400.0, ge=1)
    retention: float | None = Field(None, ge=1)
    ttl: float | None = Field(None, ge=1)
    ttl_column: str | None = None
    skip_index: tuple[tuple[str, SkipKind], ...] = ()
    skip_index_bytes: int = Field(DEFAULT_BYTES, ge=32)
    on_conflict: OnConflict = OnConflict.ERROR
    rows_per_fragment: int = Field(1_000_000, ge=1, lt=2**31)
    max_rows_per_row_group: int = Field(65_536, ge=1, lt=2**31)
    memory_limit: int = Field(512 << 20, ge=_MIN_MEMORY_BYTES)
    """Bytes of a task."""
    app_id: str | None = Field(None, min_length=1)
    """Who numbers the batches; of a stream, its query."""
    batch_id: int | None = Field(None, ge=0)
    base_version: int | None = Field(None, ge=0)
    """Of an overwrite: refused if rows were added or deleted since."""

    @field_validator("time_window", "retention", "ttl", mode="before")
    @classmethod
    def _duration(cls, text: str) -> float:
        return units.duration_seconds(text)

    @field_validator("memory_limit", "skip_index_bytes", mode="before")
    @classmethod
    def _size(cls, text: str) -> int:
        return units.size_bytes(text)

    @field_validator("aggregate", "skip_index", mode="before")
    @classmethod
    def _pairs(cls, text: str) -> tuple[tuple[str, str], ...]:
        pairs = [part.rpartition(":") for part in _list(text)]
        if any(not column for column, _, _ in pairs):
            raise ValueError(f"{text!r}: write COLUMN:KIND, several apart by commas")
        return tuple((column, kind) for column, _, kind in pairs)

    @model_validator(mode="after")
    def _together(self) -> WriteOptions:
        of_policy = (
            self.sequence,
            self.delete_marker,
            self.keep_tombstones,
            self.aggregate or None,
        )
        if self.row_policy is None and any(value is not None for value in of_policy):
            raise ValueError(
                "sequence, delete_marker, keep_tombstones and aggregate go with row_policy: name it too"
            )
        if self.retention is not None and self.time_column is None:
            raise ValueError("retention: name the time_column it goes by")
        if (self.ttl is None) != (self.ttl_column is None):
            raise ValueError("ttl and ttl_column: give both, or neither")
        if self.batch_id is not None and self.app_id is None:
            raise ValueError("batch_id: name the app_id whose batch it is")
        return self

    @property
    def sort(self) -> SortSchema | None:
        try:
            return None if self.sort_by is None else parse_sort_schema(self.sort_by)
        except SchemaError as error:
            raise UsageError(f"sort_by: {error}") from error

    @property
    def ingest(self) -> IngestOptions:
        rows = windows = ttl = None
        if self.row_policy is not None:
            rows = RowPolicy(
                self.row_policy,
                self.sequence,
                self.delete_marker,
                self.keep_tombstones,
                self.aggregate,
            )
        if self.time_column is not None:
            retention = None if self.retention is None else int(self.retention)
            windows = TimeWindows(self.time_column, int(self.time_window), retention)
        if self.ttl is not None and self.ttl_column is not None:
            ttl = Ttl(self.ttl_column, int(self.ttl))
        return IngestOptions(
            rows_per_fragment=self.rows_per_fragment,
            writer=WriterOptions(self.max_rows_per_row_group),
            windows=windows,
            rows=rows,
            ttl=ttl,
            skips=SkipSpec(self.skip_index, self.skip_index_bytes) if self.skip_index else NO_SKIPS,
            on_conflict=self.on_conflict,
            buffer_bytes=self.memory_limit // _SORTING,
        )


@dataclass(frozen=True, slots=True)
class Call:
    """The options of one read or write."""

    given: Mapping[str, str]
    """By names in lower case."""

    @property
    def path(self) -> str:
        """Raises `UsageError` if there is none."""
        if "path" not in self.given:
            raise UsageError(
                "fragments: name the table, a folder or s3://bucket/prefix, as in .load(path), .save(path) "
                "or option path; tables of Spark's catalog are not told theirs: use a temporary view"
            )
        return self.given["path"]

    def read(self) -> ReadOptions:
        return _checked(ReadOptions, self.given)

    def write(self) -> WriteOptions:
        return _checked(WriteOptions, self.given)


def _checked(model: type[_Options], given: Mapping[str, str]) -> _Options:
    if "paths" in given:
        raise UsageError(
            "fragments: several addresses: load one table at a time, and put the rows together by union"
        )
    if "owner" in given:
        raise UsageError(
            "fragments: Spark's catalog does not tell a source where its tables are: in place of CREATE "
            "TABLE, CREATE TEMPORARY VIEW name USING fragments OPTIONS (path '...')"
        )
    try:
        return model.model_validate({n: text for n, text in given.items() if n not in _OF_SPARK})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"][:1])
        if first["type"] == "extra_forbidden":
            known = ", ".join(model.model_fields)
            raise UsageError(f"fragments: no option {name!r}; there are: {known}") from None
        cause = _cause(first["type"], first.get("ctx", {}), given.get(name, "")[:100])
        raise UsageError(f"fragments: {name + ': ' if name else ''}{cause}") from None


def _cause(kind: str, context: Mapping[str, Any], text: str) -> str:
    """In our words: what is wrong with the text of an option. kind: pydantic's, of an error."""
    match kind:
        case "value_error":
            return str(context["error"])
        case "enum" | "literal_error":
            known = str(context["expected"]).replace("'", "").replace(" or ", ", ")
            return f"{text!r} is none of: {known}"
        case "bool_parsing" | "bool_type":
            return f"{text!r} is neither true nor false"
        case "greater_than_equal":
            least = int(context["ge"])
            shown = least if least % (1 << 20) or not least else f"{least >> 20}MiB"
            return f"{text!r} is too small: {shown} at least"
        case "less_than":
            return f"{text!r} is too large: less than {context['lt']}"
        case "too_short" | "string_too_short":
            return f"{text!r} names nothing"
        case _:
            return f"{text!r} is no whole number"


@contextlib.contextmanager
def named_as_options() -> Iterator[None]:
    """Mistakes that are told in terms of the command line are told in those of options."""
    try:
        yield
    except UsageError as error:
        raise UsageError(_FLAG.sub(lambda flag: flag[1].replace("-", "_"), str(error))) from None


def _list(text: str) -> tuple[str, ...]:
    """Names apart by commas."""
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)
