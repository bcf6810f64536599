"""Settings with units and bounds; every default works as it is."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from compactor.errors import ConfigError
from compactor.resources.merge_plan import MemorySettings
from compactor.settings.messages import explained
from format.writer import WriterOptions

MIB = 1 << 20
_MAX_ROW_GROUP_BYTES = 8 * MIB
_ROW_GROUP_SHARE = 64


class _Settings(BaseModel):
    """Raises `ConfigError` naming what is wrong when it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explained("", error.errors(include_url=False)[0])) from None


class CompactionSettings(_Settings):
    """How compactions are cut, and what one task may use. Travels to the tasks as JSON."""

    target_fragment_bytes: int = Field(default=512 * MIB, ge=1)
    """Stored bytes of an output fragment. Larger: fewer objects; smaller: finer later picks."""
    target_row_group_bytes: int | None = Field(default=None, ge=1)
    """Raw bytes of a row group's heaviest column; see `format.writer.WriterOptions`. By default a 64th of the
    memory limit, 8 MiB at most: larger ones merge faster and compress better, and more of them are held."""
    max_rows_per_row_group: int = Field(default=65_536, ge=1, le=2**31 - 1)
    compression_level: int = Field(default=1, ge=0, le=22)
    """zstd level of outputs."""
    max_fan_in: int = Field(default=1_000, ge=2, le=60_000)
    """Sorted runs merged by one task; more are merged in passes. A level-0 fragment is a run."""
    memory_limit_bytes: int = Field(default=512 * MIB, ge=16 * MIB)
    """What one task's buffers may take; above four fifths of it, what can be spilled goes to local disk."""
    batch_size: int = Field(default=262_144, ge=1)
    """Rows put in order at a time, at most. Changes the footprint, never the output."""
    encode_thread: bool | None = None
    """Whether a task encodes chunks in a thread of their own while it gathers the next; by default where it
    may use more than one core. Changes the time, never the output."""
    spool_after_seconds: float = Field(default=10.0, ge=0)
    """A paused connection is kept waiting so long; then its input goes on to local disk."""
    spool_limit_bytes: int = Field(default=64 << 30, ge=0)
    """Inputs up to this size are kept on local disk until the merge ends, so that a second pass reads them
    from there. 0: never."""
    spool_directory: str | None = Field(default=None)
    """Where to put what memory does not hold; by default the system's folder for temporary files."""

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
        """Raw bytes of a row group's heaviest column."""
        by_memory = min(_MAX_ROW_GROUP_BYTES, self.memory_limit_bytes // _ROW_GROUP_SHARE)
        return self.target_row_group_bytes or by_memory

    def writer_options(self, max_rows: int) -> WriterOptions:
        return WriterOptions(max_rows, self.row_group_bytes, self.compression_level)


class Strategy(StrEnum):
    LEVELED = "leveled"
    """Lazy: size-tiered while data is young, leveled by key range when it is older."""
    TIERED = "tiered"
    """Size-tiered only: least rewriting, most runs to read."""
    OVERLAPPING = "overlapping"
    """Eager: merges whatever overlaps, and nothing else."""
    FULL = "full"
    """One sorted run."""


class Policy(_Settings):
    """When to compact what. `compactor simulate` has shown the defaults (docs/explanation/simulations.md)."""

    strategy: Strategy = Strategy.LEVELED
    level0_trigger_runs: int = Field(default=4, ge=2)
    """Sorted runs of like size at level 0 that start a compaction. More: fewer rewrites, slower reads."""
    max_merge_runs: int = Field(default=32, ge=2)
    """Runs of level 0 that one size-tiered merge takes: with a backlog, several go in parallel."""
    push_ratio: float = Field(default=0.5, gt=0)
    """Level 0 is merged into level 1 when that rewrites at most this many bytes of level 1 for each of
    its own. Smaller: lazier."""
    level1_target_bytes: int = Field(default=16_384 * MIB, ge=1)
    """Level 1 above this is moved on to level 2."""
    level_multiplier: int = Field(default=4, ge=2)
    """Each level may hold this many times the one above."""
    max_rewrite_ratio: float = Field(default=25.0, ge=1)
    """Cap on write amplification: a compaction rewrites at most this many bytes for each it moves."""
    max_deleted_share: float = Field(default=0.1, ge=0, le=1)
    """A fragment with more deleted rows than this part is rewritten without waiting for a merge; or with more
    tombstones, where they may go."""
    ttl_slack: float = Field(default=0.25, ge=0)
    """A fragment is rewritten when its oldest row has outlived its time to live by this part of it."""
    slow_runs: int = Field(default=20, ge=1)
    """Level-0 runs of one window from which writers should slow down."""
    stop_runs: int = Field(default=40, ge=2)
    """Level-0 runs of one window at which writers should stop."""
    stop_pending_bytes: int = Field(default=256 << 30, ge=1)
    """Bytes waiting for compaction at which writers should stop; from half of them they should slow down."""

    def level_target_bytes(self, level: int) -> int:
        return int(self.level1_target_bytes * self.level_multiplier ** (level - 1))


def compaction_settings(**values: Any) -> CompactionSettings:
    """Settings from keywords, None meaning the default. Raises `ConfigError` naming what is wrong."""
    return CompactionSettings(**_given(values))


def policy(**values: Any) -> Policy:
    """A policy from keywords, None meaning the default. Raises `ConfigError` naming what is wrong."""
    return Policy(**_given(values))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
