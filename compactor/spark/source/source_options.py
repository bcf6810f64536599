"""Parses the options of the Spark data source `fragments`, with one-line errors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Annotated, Final, Literal, TypeVar

from msgspec import Struct
from pydantic import BeforeValidator, Field, model_validator

from compactor.common.clock import SystemClock
from compactor.errors import UsageError
from compactor.read.scan_tasks import TASK_BYTES
from compactor.settings import units
from compactor.settings.fields import TASK_MEMORY_BYTES, Bytes, names
from compactor.settings.model import Settings
from compactor.settings.names import as_option, settings_named
from compactor.table.object_names import LAST_VERSION
from compactor.table.tags import Moment
from compactor.write.ingest import IngestOptions
from compactor.write.ingest.settings import IngestSettings
from lsm_fragment.container.spool import SPOOL_MEMORY_BYTES

_OF_SPARK: Final = frozenset(("path", "checkpointlocation", "queryname"))
"""Options that Spark adds or reads itself."""
_OF_BATCHES: Final = ("version", "as_of", "tag", "min_tasks", "skip_missing", "single_use")
_OF_STREAMS: Final = (
    "since",
    "changes",
    "skip_change_commits",
    "max_bytes_per_trigger",
    "reader",
)
_FIXED_BYTES: Final = 24 << 20
"""Fixed memory of a task for reading, encoding and allocators; measured."""
_SORTING: Final = 5
"""Memory for sorting and writing, as a multiple of the rows read; measured."""
_ROW_GROUP_DIVISOR: Final = 64
"""Row groups take at most 1/64 of the memory limit, as in a compaction: encoding holds a few copies of a row
group's largest column."""
_SPOOL_DIVISOR: Final = 8
_MIN_MEMORY_BYTES: Final = 64 << 20
_Options = TypeVar("_Options", bound=Settings)


def _moment(text: str) -> int:
    return units.moment_unix_ms(text, SystemClock())


class ReadOptions(Settings):
    """Options of a read. Spark asks for the schema before it says whether the read is a stream."""

    version: int | None = Field(default=None, ge=1, le=LAST_VERSION)
    as_of: Annotated[int | None, BeforeValidator(_moment)] = None
    """Unix time in milliseconds."""
    tag: str | None = None
    columns: Annotated[tuple[str, ...] | None, BeforeValidator(names)] = Field(
        default=None, min_length=1
    )
    where: str | None = None
    nanoseconds: Literal["error", "cut"] = "error"
    task_bytes: Bytes = Field(default=TASK_BYTES, ge=1)
    """Approximate decoded input of a task, where fragments can be split."""
    min_tasks: int = Field(default=1, ge=1, le=100_000)
    """Divides rows among so many tasks, or rounds of so many, if they can be divided."""
    skip_missing: bool = False
    """Skips quarantined fragments, with a warning on the driver of the rows left out."""
    single_use: bool = False
    """Promises that one query scans each loaded DataFrame once, so that filters can be pushed down."""

    since: str | None = None
    """The version, tag or time after which a stream begins; None for the rows of the newest version first."""
    changes: bool = False
    """Streams all changes of rows, with their kind and version, instead of appended rows only."""
    skip_change_commits: bool = False
    """Passes over versions that delete or replace rows, if `changes` is not set."""
    max_bytes_per_trigger: Bytes | None = Field(default=None, ge=1)
    """Approximate decoded bytes of a stream's batch of more than one version."""
    reader: str | None = Field(default=None, min_length=1)
    """Name of the tag by which a stream keeps vacuums from taking what it has yet to read."""

    @model_validator(mode="after")
    def _once(self) -> ReadOptions:
        if self.moment.is_ambiguous:
            raise ValueError("version, as_of and tag: give one of them")
        if self.changes and self.skip_change_commits:
            raise ValueError(
                "skip_change_commits: leave it out with changes=true, which shows them"
            )
        return self

    def check_used_by(self, *, is_stream: bool) -> None:
        """Raises `UsageError` for an option that this kind of read does not have."""
        others, how = (_OF_BATCHES, "read") if is_stream else (_OF_STREAMS, "readStream")
        for name in others:
            if name in self.model_fields_set:
                instead = ": name where a stream begins by since" if name in Moment._fields else ""
                raise UsageError(f"fragments: {name}: goes with {how} only{instead}")

    @property
    def moment(self) -> Moment:
        return Moment(self.version, self.as_of, self.tag)


class WriteOptions(IngestSettings):
    """Options of a write."""

    memory_limit: Bytes = Field(default=TASK_MEMORY_BYTES, ge=_MIN_MEMORY_BYTES)
    """Memory limit of a task."""
    app_id: str | None = Field(default=None, min_length=1)
    """Application that numbers batches; default: the stream's query id."""
    batch_id: int | None = Field(default=None, ge=0)
    base_version: int | None = Field(default=None, ge=0, le=LAST_VERSION)
    """Base version of an overwrite, which is refused if rows were added or deleted since."""

    @model_validator(mode="after")
    def _numbered(self) -> WriteOptions:
        if self.batch_id is not None and self.app_id is None:
            raise ValueError("batch_id: name the app_id whose batch it is")
        return self

    @property
    def ingest(self) -> IngestOptions:
        """Ingest options within the memory limit. Raises as `options`."""
        limit, options = self.memory_limit, self.options
        row_group_bytes = min(options.writer.target_row_group_bytes, limit // _ROW_GROUP_DIVISOR)
        return replace(
            options,
            writer=replace(options.writer, target_row_group_bytes=row_group_bytes),
            buffer_bytes=(limit - _FIXED_BYTES) // _SORTING,
            spool_memory_bytes=min(SPOOL_MEMORY_BYTES, limit // _SPOOL_DIVISOR),
            threads=1,
        )


class CallOptions(Struct, frozen=True):
    """The options of one read or write."""

    given: Mapping[str, str]
    """Values by lower-case option name."""

    @property
    def path(self) -> str:
        """Address of the table. Raises `UsageError` if it is missing."""
        if "path" not in self.given:
            raise UsageError(
                "fragments: name the table, a folder or s3://bucket/prefix, as in .load(path), .save(path) "
                "or option path. Spark does not pass the path of a catalog table: use CREATE TEMPORARY VIEW "
                "name USING fragments OPTIONS (path '...'), or name WITH (path = '...') in the query"
            )
        return self.given["path"]

    def read(self) -> ReadOptions:
        return _checked(ReadOptions, self.given)

    def write(self) -> WriteOptions:
        return _checked(WriteOptions, self.given)


def _checked(model: type[_Options], given: Mapping[str, str]) -> _Options:
    if "paths" in given:
        raise UsageError(
            "fragments: several addresses: load one table at a time and combine them by union"
        )
    if "owner" in given:
        raise UsageError(
            "fragments: Spark's catalog does not tell a source where its tables are: instead of CREATE "
            "TABLE use CREATE TEMPORARY VIEW name USING fragments OPTIONS (path '...')"
        )
    said = {name: text for name, text in given.items() if name not in _OF_SPARK}
    for other, of_other in ((ReadOptions, "reads"), (WriteOptions, "writes")):
        for name in said:
            if name in other.model_fields and name not in model.model_fields:
                raise UsageError(
                    f"fragments: {name}: goes with {of_other} only; leave it out here (if a view has it, "
                    "create another view without it)"
                )
    try:
        with named_as_options():
            return model(**said)
    except UsageError as error:
        raise UsageError(f"fragments: {error}") from None


def named_as_options() -> AbstractContextManager[None]:
    """Makes errors name settings as options instead of flags."""
    return settings_named(as_option)
