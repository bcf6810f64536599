"""Settings of compactions. The defaults suit most tables."""

from __future__ import annotations

from collections.abc import Set
from enum import StrEnum
from typing import Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from compactor.common.setting_keys import (
    LEVEL0_TRIGGER_RUNS,
    LEVEL1_TARGET_BYTES,
    SLOW_RUNS,
    STOP_PENDING_BYTES,
    STOP_RUNS,
)
from compactor.errors import ConfigError
from compactor.resources.cores import usable_cores
from compactor.resources.merge_plan import MemorySettings
from compactor.settings.fields import TASK_MEMORY_BYTES, Bytes, Duration, Folder, Threads
from compactor.settings.fragments import (
    DEFAULT_COMPRESSION_LEVEL,
    DEFAULT_ROWS_PER_ROW_GROUP,
    CompressionLevel,
    Level0CompressionLevel,
    RowsPerRowGroup,
    level_of_compression,
)
from compactor.settings.model import Settings
from compactor.settings.units import size_text
from lsm_fragment.container.writer import WriterOptions

MIB = 1 << 20
_MAX_ROW_GROUP_BYTES = 12 * MIB
_ROW_GROUP_DIVISOR = 32
_LITTLE_MEMORY_BYTES = 128 * MIB
_LITTLE_MEMORY_DIVISOR = 64


class CompactionSettings(Settings):
    """Settings of one compaction: output sizes and resources of its task. Serialised as JSON for tasks."""

    of_run: ClassVar[frozenset[str]] = frozenset(
        {"batch_size", "threads", "spool_after_seconds", "spool_limit_bytes", "spool_directory"}
    )

    target_fragment_bytes: Bytes = Field(
        default=512 * MIB,
        ge=1,
        description="Stored bytes of an output fragment. Larger gives fewer objects, smaller gives finer "
        "picks later.",
    )
    target_row_group_bytes: Bytes | None = Field(
        default=None,
        ge=1,
        description="Raw bytes of a row group's largest column. Larger row groups merge faster and compress "
        "better, but a merge holds more bytes of them. By default it is the memory limit divided by "
        f"{_ROW_GROUP_DIVISOR}, {size_text(_MAX_ROW_GROUP_BYTES)} at most; with less than "
        f"{size_text(_LITTLE_MEMORY_BYTES)} of memory, the limit divided by {_LITTLE_MEMORY_DIVISOR}.",
    )
    max_rows_per_row_group: RowsPerRowGroup = DEFAULT_ROWS_PER_ROW_GROUP
    compression_level: CompressionLevel = DEFAULT_COMPRESSION_LEVEL
    level0_compression_level: Level0CompressionLevel = None
    max_fan_in: int = Field(
        default=1_000,
        ge=2,
        le=60_000,
        description="Maximum sorted runs of one task; more are merged in rounds. A level-0 fragment is "
        "a run.",
    )
    memory_limit_bytes: Bytes = Field(
        default=TASK_MEMORY_BYTES,
        ge=16 * MIB,
        description="Memory for one task's data. Above four fifths of it, data goes to local disk; a "
        "compaction that needs more in memory is refused. The process itself takes some 150 MiB more.",
    )
    batch_size: int = Field(
        default=262_144,
        ge=1,
        description="Maximum rows that are ordered at a time. Changes memory use, never the output.",
    )
    threads: Threads | None = Field(
        default=None,
        description="Threads of a task that gather, hash and encode. Changes the time, never the output. By "
        "default one per core of the task: those of `spark.task.cpus`, or of this process.",
    )
    spool_after_seconds: Duration = Field(
        default=10.0,
        description="Time that a paused connection waits before its data goes to local disk.",
    )
    spool_limit_bytes: Bytes = Field(
        default=64 << 30,
        ge=0,
        description="Inputs up to this total size stay on local disk, so that a second pass needs no second "
        "GET. 0 keeps none.",
    )
    spool_directory: Folder | None = Field(
        default=None,
        description="Folder for data spilled from memory. By default it is the system's folder for "
        "temporary files.",
    )

    def memory(self) -> MemorySettings:
        return MemorySettings(
            memory_limit_bytes=self.memory_limit_bytes,
            batch_size=self.batch_size,
            spool_after_seconds=self.spool_after_seconds,
            spool_limit_bytes=self.spool_limit_bytes,
            spool_directory=self.spool_directory,
            threads=self.threads or usable_cores(),
        )

    @property
    def row_group_bytes(self) -> int:
        """Raw bytes of a row group's largest column, with the default filled in."""
        limit = self.memory_limit_bytes
        divisor = _ROW_GROUP_DIVISOR if limit >= _LITTLE_MEMORY_BYTES else _LITTLE_MEMORY_DIVISOR
        return self.target_row_group_bytes or min(_MAX_ROW_GROUP_BYTES, limit // divisor)

    def writer_options(self, max_rows: int, level: int) -> WriterOptions:
        """level: that of the table on which the fragments will be."""
        compression = level_of_compression(self, level)
        return WriterOptions(max_rows, self.row_group_bytes, compression)


class Strategy(StrEnum):
    LEVELED = "leveled"
    """Lazy: size-tiered at level 0, leveled by key range below."""
    TIERED = "tiered"
    """Size-tiered only: lowest write amplification, highest read amplification."""
    OVERLAPPING = "overlapping"
    """Eager: merges overlapping fragments, and only these."""
    FULL = "full"
    """Merges everything into one sorted run."""


OF_WRITERS: Final = ("slow_runs", "stop_runs", "stop_pending_bytes")
"""Back-pressure settings. Tables and simulations have them, but no run: all writers of a table must agree."""


_SLOW_RUNS: Final = 20
_SLOW_TRIGGERS: Final = 5
_STOP_RUNS: Final = 40
_STOP_TRIGGERS: Final = 10
_STOP_PENDING_BYTES: Final = 256 << 30
_STOP_TARGETS: Final = 16


def _in_proportion(given: dict[str, Any], least: int, triggers: int) -> int:
    """Returns a threshold of writers that grows with the runs for which compactions wait."""
    runs: int = given.get("level0_trigger_runs", 0)
    return max(least, triggers * runs)


class Policy(Settings):
    """When to compact what. `compactor simulate` has shown the defaults (docs/explanation/simulations.md)."""

    strategy: Strategy = Field(
        default=Strategy.LEVELED,
        description="leveled: lazy, size-tiered then leveled. tiered: level 0 only. overlapping: all that "
        "overlaps. full: one sorted run.",
    )
    level0_trigger_runs: int = Field(
        default=4,
        ge=2,
        description="Sorted runs of similar size at level 0 that start a compaction. More: fewer rewrites, "
        "slower reads.",
    )
    max_merge_runs: int = Field(
        default=32,
        ge=2,
        description="Maximum level-0 runs of one size-tiered merge; a backlog is merged by several in "
        "parallel.",
    )
    push_ratio: float = Field(
        default=0.5,
        gt=0,
        description="Level 0 merges into level 1 only if that rewrites at most this many bytes of level 1 "
        "for each byte of level 0. Smaller is lazier.",
    )
    level1_target_bytes: Bytes = Field(
        default=16_384 * MIB,
        ge=1,
        description="Bytes of level 1 above which fragments move on to level 2.",
    )
    level_multiplier: int = Field(
        default=4,
        ge=2,
        description="Size of a level relative to the level above it.",
    )
    max_rewrite_ratio: float = Field(
        default=25.0,
        ge=1,
        description="Cap on write amplification: maximum bytes that a compaction rewrites for each "
        "byte that it moves.",
    )
    max_deleted_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Fraction of deleted rows above which a fragment is rewritten without waiting for a "
        "merge. The same limit applies to tombstones, where they may be dropped.",
    )
    ttl_slack: float = Field(
        default=0.25,
        ge=0,
        description="A fragment is rewritten once its oldest row exceeds the time to live by this fraction "
        "(0.25: a quarter late).",
    )
    slow_runs: int = Field(
        default_factory=lambda given: _in_proportion(given, _SLOW_RUNS, _SLOW_TRIGGERS),
        ge=2,
        description="Level-0 runs of one time window from which writers should slow down. By default "
        f"{_SLOW_TRIGGERS} times the runs that start a compaction, {_SLOW_RUNS} at least.",
    )
    stop_runs: int = Field(
        default_factory=lambda given: _in_proportion(given, _STOP_RUNS, _STOP_TRIGGERS),
        ge=3,
        description="Level-0 runs of one time window at which writers should stop. By default "
        f"{_STOP_TRIGGERS} times the runs that start a compaction, {_STOP_RUNS} at least.",
    )
    stop_pending_bytes: Bytes = Field(
        default_factory=lambda given: max(
            _STOP_PENDING_BYTES, _STOP_TARGETS * given.get("level1_target_bytes", 0)
        ),
        ge=1,
        description="Bytes waiting for compaction at which writers should stop; from half of that they "
        f"should slow down. By default {_STOP_TARGETS} times the target of level 1, "
        f"{size_text(_STOP_PENDING_BYTES)} at least.",
    )

    def check_together(self) -> None:
        self._check(set(type(self).model_fields))

    @model_validator(mode="after")
    def _check_told(self) -> Self:
        self._check(self.model_fields_set)
        return self

    def _check(self, names: Set[str]) -> None:
        """Raises `ConfigError` if two of these fields contradict each other."""
        if {"slow_runs", "level0_trigger_runs"} <= names:
            self._check_slow_runs()
        if {"stop_runs", "slow_runs"} <= names and self.stop_runs <= self.slow_runs:
            raise ConfigError(
                STOP_RUNS,
                f": {self.stop_runs} is not more than the {self.slow_runs} runs of ",
                SLOW_RUNS,
                "; raise it, or lower the other",
            )
        if {"stop_pending_bytes", "level1_target_bytes"} <= names:
            self._check_pending_bytes()

    def _check_slow_runs(self) -> None:
        if self.slow_runs < self.level0_trigger_runs:
            raise ConfigError(
                SLOW_RUNS,
                f": {self.slow_runs} is less than the {self.level0_trigger_runs} runs of ",
                LEVEL0_TRIGGER_RUNS,
                ", so writers would wait for compactions that are not due; raise it, or lower the other",
            )

    def _check_pending_bytes(self) -> None:
        if self.stop_pending_bytes < self.level1_target_bytes:
            raise ConfigError(
                STOP_PENDING_BYTES,
                f": {size_text(self.stop_pending_bytes)} is less than the "
                f"{size_text(self.level1_target_bytes)} of ",
                LEVEL1_TARGET_BYTES,
                ", up to which nothing has to be compacted; raise it, or lower the other",
            )

    def level_target_bytes(self, level: int) -> int:
        return int(self.level1_target_bytes * self.level_multiplier ** (level - 1))
