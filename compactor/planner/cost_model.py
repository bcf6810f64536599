"""Models what a merge costs, from what the log knows of its inputs. Pure.

The model knows no machine and no table: its constants were fitted to compactions of unlike tables
(`bench.bench_predictions`). What a table's own compactions measured corrects it (`experience`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from compactor.planner.shape import merge_shape
from compactor.resources.merge_plan import output_count
from compactor.settings.compaction import CompactionSettings
from compactor.settings.fragments import level_of_compression
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata

_MIB: Final = 1 << 20
_FRAGMENT_SECONDS: Final = 0.0018
"""CPU time of an input, whatever it has: requesting, opening, checking."""
_CHUNK_SECONDS: Final = 0.000_06
"""CPU time of a chunk of an input, whatever it has: decoding, gathering, encoding."""
_CELL_SECONDS: Final = 7.5e-9
"""CPU time of a value, whatever its size: ordering, gathering, hashing, encoding."""
_RAW_BYTE_SECONDS: Final = 4.2e-9
"""CPU time of a decoded byte."""
_GROWN_BYTE_SECONDS: Final = 0.4e-9
"""CPU time of the system for a byte by which the resident set grows: it clears each page."""
_STORED_BYTE_SECONDS: Final = 1.2e-9
"""CPU time of the system for a stored byte of the inputs: it reads it, and writes one like it."""
BASE_BYTES: Final = 92 * _MIB
"""Resident memory of a process with its libraries when a compaction begins."""
_START_BYTES: Final = 12 * _MIB
"""Resident memory of a merge, whatever it merges."""
_ROW_BYTES: Final = 23
"""Resident memory of a row: its hashes, its place in the order, its share of a batch."""
_CHUNK_COPIES: Final = 2.2
"""How often the heaviest chunk of each sorted run is resident: decoded, gathered, encoded, compressed."""
_AHEAD_SHARE: Final = 0.3
"""How much of two decoded chunks of each sorted run is resident beside these."""


class ModelledCost(Struct, frozen=True, kw_only=True):
    """The cost of a merge by the model alone, and the sizes that predictions need besides."""

    cpu_seconds: float
    """Without the system's, `system_seconds`."""
    grown_bytes: int
    """How far the resident set of the process grows until its peak."""
    live_rows: int
    bytes_in: int
    """Stored bytes of the inputs."""
    fresh_bytes: int
    """Stored bytes of the live rows of inputs that no compaction has written yet; they change their size."""
    settled_bytes: int
    """Stored bytes that stay as many, by and large: live rows of other inputs, headers and footers."""
    compression_level: int
    """zstd's level of the outputs."""


def modelled_cost(
    inputs: Sequence[FragmentEntry],
    output_level: int,
    metadata: TableMetadata,
    settings: CompactionSettings,
) -> ModelledCost:
    """Returns the cost of a merge of these fragments into a level of the table."""
    fresh = [entry for entry in inputs if entry.run == entry.key]
    live_bytes = sum(map(_live_bytes, inputs))
    fresh_bytes = sum(map(_live_bytes, fresh))
    size_bytes = sum(entry.size_bytes for entry in inputs)
    around_bytes = (size_bytes - sum(map(_column_bytes, inputs))) // max(1, len(inputs))
    rows = sum(entry.rows for entry in inputs)
    outputs = output_count(rows, size_bytes, settings.target_fragment_bytes)
    return ModelledCost(
        cpu_seconds=_cpu_seconds(inputs),
        grown_bytes=_grown_bytes(inputs, metadata, settings),
        live_rows=sum(entry.live_rows for entry in inputs),
        bytes_in=size_bytes,
        fresh_bytes=fresh_bytes,
        settled_bytes=live_bytes - fresh_bytes + outputs * around_bytes,
        compression_level=level_of_compression(settings, output_level),
    )


def system_seconds(grown_bytes: float, bytes_in: int) -> float:
    """Returns the CPU time of the system where the resident set grows that far."""
    return _GROWN_BYTE_SECONDS * max(0.0, grown_bytes) + _STORED_BYTE_SECONDS * bytes_in


def _cpu_seconds(inputs: Sequence[FragmentEntry]) -> float:
    chunks = sum(entry.row_groups * len(entry.columns) for entry in inputs)
    cells = sum(entry.rows * len(entry.columns) for entry in inputs)
    raw_bytes = sum(entry.raw_bytes for entry in inputs)
    return (
        _FRAGMENT_SECONDS * len(inputs)
        + _CHUNK_SECONDS * chunks
        + _CELL_SECONDS * cells
        + _RAW_BYTE_SECONDS * raw_bytes
    )


def _grown_bytes(
    inputs: Sequence[FragmentEntry], metadata: TableMetadata, settings: CompactionSettings
) -> int:
    shape = merge_shape(inputs, metadata, settings)
    ahead = min(shape.heaviest_column_bytes, 2 * shape.run_chunk_bytes)
    grows = (
        _START_BYTES
        + _ROW_BYTES * shape.rows
        + _CHUNK_COPIES * shape.run_chunk_bytes
        + _AHEAD_SHARE * ahead
    )
    return min(settings.memory_limit_bytes, round(grows))


def _column_bytes(entry: FragmentEntry) -> int:
    """Returns the stored bytes of a fragment without its header and footer."""
    return sum(column.stored for column in entry.columns.values())


def _live_bytes(entry: FragmentEntry) -> int:
    return round(_column_bytes(entry) * entry.live_rows / max(1, entry.rows))
