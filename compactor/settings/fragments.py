"""Settings of fragments, whoever makes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final, Protocol

from pydantic import Field

from compactor.settings.model import Settings
from lsm_fragment.container.writer import WriterOptions

DEFAULT_ROWS_PER_FRAGMENT: Final = 1_000_000
DEFAULT_ROWS_PER_ROW_GROUP: Final = WriterOptions().max_rows
DEFAULT_COMPRESSION_LEVEL: Final = WriterOptions().compression_level
RowsPerFragment = Annotated[
    int, Field(ge=1, lt=2**31, description="Maximum rows of a level-0 fragment.")
]
RowsPerRowGroup = Annotated[int, Field(ge=1, lt=2**31, description="Maximum rows of a row group.")]

CompressionLevel = Annotated[
    int,
    Field(
        ge=0,
        le=22,
        description="zstd level of fragments on every level of the table; 0 stores them uncompressed.",
    ),
]
Level0CompressionLevel = Annotated[
    int | None,
    Field(
        ge=0,
        le=22,
        description="zstd level of fragments of level 0, which are soon compacted again: cheaper here, and "
        "`compression_level` stronger. By default it is the same.",
    ),
]


class FragmentSettings(Settings):
    """Settings of the level-0 fragments that writers make."""

    rows_per_fragment: RowsPerFragment = DEFAULT_ROWS_PER_FRAGMENT
    max_rows_per_row_group: RowsPerRowGroup = DEFAULT_ROWS_PER_ROW_GROUP
    compression_level: CompressionLevel = DEFAULT_COMPRESSION_LEVEL
    level0_compression_level: Level0CompressionLevel = None

    def writer_options(self, default: WriterOptions) -> WriterOptions:
        """Returns a writer's options: what was set, else those of `default`."""
        given = self.model_fields_set
        level = default.compression_level
        if given & {"compression_level", "level0_compression_level"}:
            level = level_of_compression(self, 0)
        max_rows = (
            self.max_rows_per_row_group if "max_rows_per_row_group" in given else default.max_rows
        )
        return replace(default, max_rows=max_rows, compression_level=level)


class _Compressed(Protocol):
    @property
    def compression_level(self) -> int: ...
    @property
    def level0_compression_level(self) -> int | None: ...


def level_of_compression(settings: _Compressed, level: int) -> int:
    """Returns the zstd level of fragments on a level of the table."""
    of_level0 = settings.level0_compression_level
    return settings.compression_level if level or of_level0 is None else of_level0
