"""Options of the Spark data source `fragments`, checked: one line for what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from compactor.common.clock import SystemClock
from compactor.errors import UsageError
from compactor.settings import units
from compactor.settings.fields import Bytes, names, written
from compactor.settings.messages import validated
from compactor.settings.names import as_option, settings_named
from compactor.table.object_names import LAST_VERSION
from compactor.write.ingest import IngestOptions
from compactor.write.ingest.settings import IngestSettings
from format.writer import SPOOL_MEMORY_BYTES

_OF_SPARK: Final = frozenset(("path", "checkpointlocation", "queryname"))
"""What Spark itself puts among the options, or takes from them."""
_FIXED_BYTES: Final = 24 << 20
"""Of a task's memory: what reading, encoding and the allocators take besides the rows, measured."""
_SORTING: Final = 5
"""Rows that are sorted and written take so many times the memory of what was read, measured."""
_ROW_GROUP_SHARE: Final = 64
"""As of a compaction: a row group's heaviest column, which is held a few times while it is encoded."""
_SPOOL_SHARE: Final = 8
_MIN_MEMORY_BYTES: Final = 64 << 20
_Options = TypeVar("_Options", bound=BaseModel)


def _moment(text: str) -> int:
    return units.moment_unix_ms(text, SystemClock())


class ReadOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    version: int | None = Field(None, ge=1, le=LAST_VERSION)
    as_of: Annotated[int | None, BeforeValidator(_moment)] = Field(None, validate_default=False)
    """Unix time in milliseconds."""
    columns: Annotated[tuple[str, ...] | None, BeforeValidator(names)] = Field(None, min_length=1)
    where: str | None = None
    nanoseconds: Literal["error", "cut"] = "error"
    task_bytes: Bytes = Field(written("128MiB"), ge=1)
    """Decoded: tasks get about so much, where fragments can be divided."""
    single_use: bool = False
    """Each DataFrame that is loaded is scanned by one query, once, so that Spark's filters can be taken."""

    @model_validator(mode="after")
    def _once(self) -> ReadOptions:
        if self.version is not None and self.as_of is not None:
            raise ValueError("version and as_of: give one of the two")
        return self


class WriteOptions(IngestSettings):
    memory_limit: Bytes = Field(written("512MiB"), ge=_MIN_MEMORY_BYTES)
    """Of a task."""
    app_id: str | None = Field(None, min_length=1)
    """Who numbers the batches; of a stream, its query."""
    batch_id: int | None = Field(None, ge=0)
    base_version: int | None = Field(None, ge=0, le=LAST_VERSION)
    """Of an overwrite: refused if rows were added or deleted since."""

    @model_validator(mode="after")
    def _numbered(self) -> WriteOptions:
        if self.batch_id is not None and self.app_id is None:
            raise ValueError("batch_id: name the app_id whose batch it is")
        return self

    @property
    def ingest(self) -> IngestOptions:
        """In bounds of memory. Raises as `options`."""
        limit, options = self.memory_limit, self.options
        row_group_bytes = min(options.writer.target_row_group_bytes, limit // _ROW_GROUP_SHARE)
        return replace(
            options,
            writer=replace(options.writer, target_row_group_bytes=row_group_bytes),
            buffer_bytes=(limit - _FIXED_BYTES) // _SORTING,
            spool_memory_bytes=min(SPOOL_MEMORY_BYTES, limit // _SPOOL_SHARE),
        )


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The options of one read or write."""

    given: Mapping[str, str]
    """By names in lower case."""

    @property
    def path(self) -> str:
        """Raises `UsageError` if there is none."""
        if "path" not in self.given:
            raise UsageError(
                "fragments: name the table, a folder or s3://bucket/prefix, as in .load(path), .save(path) "
                "or option path. For a name of Spark's catalog Spark does not tell it: CREATE TEMPORARY VIEW "
                "name USING fragments OPTIONS (path '...'), or say it in the query: name WITH (path = '...')"
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
    said = {name: text for name, text in given.items() if name not in _OF_SPARK}
    for other, of_other in ((ReadOptions, "reads"), (WriteOptions, "writes")):
        for name in said:
            if name in other.model_fields and name not in model.model_fields:
                raise UsageError(
                    f"fragments: {name}: goes with {of_other} only; leave it out here (of a view, make "
                    "another without it)"
                )
    try:
        with named_as_options():
            return validated(model, said, str)
    except UsageError as error:
        raise UsageError(f"fragments: {error}") from None


def named_as_options() -> AbstractContextManager[None]:
    """Mistakes that are told in terms of the command line are told in those of options."""
    return settings_named(as_option)
