"""Settings with units and bounds; every default works as it is."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from compactor.errors import ConfigError
from format.writer import WriterOptions

MIB = 1 << 20


class CompactionSettings(BaseModel):
    """How compactions are cut, and what one task may use. Travels to the tasks as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target_fragment_bytes: int = Field(default=512 * MIB, ge=1)
    """Stored bytes of an output fragment. Larger: fewer objects; smaller: finer later picks."""
    target_row_group_bytes: int = Field(default=4 * MIB, ge=1)
    """Raw bytes of a row group's heaviest column; see `format.writer.WriterOptions`."""
    max_rows_per_row_group: int = Field(default=65_536, ge=1, le=2**31 - 1)
    compression_level: int = Field(default=1, ge=0, le=22)
    """zstd level of outputs."""
    max_fan_in: int = Field(default=1_000, ge=2, le=60_000)
    """Sorted runs merged by one task; more are merged in passes. A level-0 fragment is a run."""
    merge_memory_bytes: int = Field(default=512 * MIB, ge=MIB)
    """Bound on the decoded chunks of a task's inputs together; limits the fan-in of heavy inputs."""
    prefetch_bytes: int = Field(default=64 * MIB, ge=MIB)
    """Fetched ahead by one task, all its inputs together."""
    scratch_memory_bytes: int = Field(default=64 * MIB, ge=0)
    """Row order and row hashes of one task held in memory; more goes to local disk."""
    max_restarts: int = Field(default=8, ge=0)
    """Fresh starts of an attempt with smaller row groups, after an overshoot."""

    def writer_options(self, max_rows: int) -> WriterOptions:
        return WriterOptions(max_rows, self.target_row_group_bytes, self.compression_level)


def compaction_settings(**values: Any) -> CompactionSettings:
    """Settings from keywords, None meaning the default. Raises `ConfigError` naming what is wrong."""
    try:
        return CompactionSettings(**{k: v for k, v in values.items() if v is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{name}: {first['msg'].lower()}, got {first['input']!r}") from None
