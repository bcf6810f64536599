"""Settings of compactions, with units and bounds. Every default works as it is."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from compactor.common.message import Setting
from compactor.errors import ConfigError
from compactor.resources.merge_plan import MemorySettings
from compactor.settings.messages import cause
from format.writer import WriterOptions

MIB = 1 << 20
_MAX_ROW_GROUP_BYTES = 8 * MIB
_ROW_GROUP_SHARE = 64


class _Settings(BaseModel):
    """A settings model; its constructor raises `ConfigError`, which names the wrong field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise ConfigError(Setting(problem["loc"][0]), f": {cause(problem)}") from None


class CompactionSettings(_Settings):
    """Settings of one compaction: its output sizes and its task's resources. Travels to tasks as JSON."""

    target_fragment_bytes: int = Field(default=512 * MIB, ge=1)
    """Stored bytes of an output fragment. Larger gives fewer objects, smaller gives finer picks later."""
    target_row_group_bytes: int | None = Field(default=None, ge=1)
    """Raw bytes of a row group's largest column; see `format.writer.WriterOptions`.

    The default is a 64th of the memory limit, 8 MiB at most. Larger row groups merge faster and compress
    better, but a merge holds more bytes of them.
    """
    max_rows_per_row_group: int = Field(default=65_536, ge=1, le=2**31 - 1)
    compression_level: int = Field(default=1, ge=0, le=22)
    """zstd level of outputs; 0 stores them uncompressed."""
    max_fan_in: int = Field(default=1_000, ge=2, le=60_000)
    """The most sorted runs that one task merges; more are merged in passes. A level-0 fragment is a run."""
    memory_limit_bytes: int = Field(default=512 * MIB, ge=16 * MIB)
    """Bytes that one task's buffers may take; above four fifths of it, they spill to local disk."""
    batch_size: int = Field(default=262_144, ge=1)
    """The most rows that are ordered at a time. Changes memory use, never the output."""
    encode_thread: bool | None = None
    """Whether a task encodes chunks in a thread of its own while it gathers the next.

    By default it does where it may use more than one core. Changes the time, never the output.
    """
    spool_after_seconds: float = Field(default=10.0, ge=0)
    """Seconds that a paused connection waits before its input goes on to local disk."""
    spool_limit_bytes: int = Field(default=64 << 30, ge=0)
    """Inputs of up to this many bytes together stay on local disk, for a second pass. 0 keeps none."""
    spool_directory: str | None = Field(default=None)
    """The folder for data that memory does not hold; by default the system's folder for temporary files."""

    def memory(self) -> MemorySettings:
        return MemorySettings(
            self.memory_limit_bytes,
            self.batch_size,
            self.spool_after_seconds,
            self.spool_limit_bytes,
            self.spool_directory,
        )

    @property
    def row_group_bytes(self) -> int:
        """Raw bytes of a row group's largest column, with the default filled in."""
        by_memory = min(_MAX_ROW_GROUP_BYTES, self.memory_limit_bytes // _ROW_GROUP_SHARE)
        return self.target_row_group_bytes or by_memory

    def writer_options(self, max_rows: int) -> WriterOptions:
        return WriterOptions(max_rows, self.row_group_bytes, self.compression_level)


class Strategy(StrEnum):
    LEVELED = "leveled"
    """Lazy: size-tiered while data is young, leveled by key range when it is older."""
    TIERED = "tiered"
    """Size-tiered only: rewrites least and leaves most runs to read."""
    OVERLAPPING = "overlapping"
    """Eager: merges whatever overlaps, and nothing else."""
    FULL = "full"
    """Merges everything into one sorted run."""


class Policy(_Settings):
    """When to compact what. `compactor simulate` has shown the defaults (docs/explanation/simulations.md)."""

    strategy: Strategy = Strategy.LEVELED
    level0_trigger_runs: int = Field(default=4, ge=2)
    """Sorted runs of similar size at level 0 that start a compaction. More: fewer rewrites, slower reads."""
    max_merge_runs: int = Field(default=32, ge=2)
    """The most level-0 runs that one size-tiered merge takes; a backlog is merged by several in parallel."""
    push_ratio: float = Field(default=0.5, gt=0)
    """The most bytes of level 1 that a merge of level 0 into it rewrites per byte of level 0.

    Smaller is lazier.
    """
    level1_target_bytes: int = Field(default=16_384 * MIB, ge=1)
    """Bytes of level 1 above which fragments move on to level 2."""
    level_multiplier: int = Field(default=4, ge=2)
    """How many times the bytes of the level above each level may hold."""
    max_rewrite_ratio: float = Field(default=25.0, ge=1)
    """Cap on write amplification: the most bytes that a compaction rewrites for each byte that it moves."""
    max_deleted_share: float = Field(default=0.1, ge=0, le=1)
    """Share of deleted rows above which a fragment is rewritten without waiting for a merge.

    The same share holds for tombstones, where they may be dropped.
    """
    ttl_slack: float = Field(default=0.25, ge=0)
    """A fragment is rewritten when its oldest row is older than the time to live by this share of it."""
    slow_runs: int = Field(default=20, ge=1)
    """Level-0 runs of one window from which writers should slow down."""
    stop_runs: int = Field(default=40, ge=2)
    """Level-0 runs of one window at which writers should stop."""
    stop_pending_bytes: int = Field(default=256 << 30, ge=1)
    """Bytes waiting for compaction at which writers should stop; from half of that they should slow down."""

    def level_target_bytes(self, level: int) -> int:
        return int(self.level1_target_bytes * self.level_multiplier ** (level - 1))


def compaction_settings(**values: Any) -> CompactionSettings:
    """Makes settings from keywords; None stands for the default. Raises `ConfigError`."""
    return CompactionSettings(**_given(values))


def policy(**values: Any) -> Policy:
    """Makes a policy from keywords; None stands for the default. Raises `ConfigError`."""
    return Policy(**_given(values))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
