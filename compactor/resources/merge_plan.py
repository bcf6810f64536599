"""How one merge will use memory: worked out from the inputs' statistics, before anything is read.

Pure. The executor, `compact --explain`, the planner's limits and the estimates all read this plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from compactor.resources.stage import Buffer, MemoryStage, StagePlan

OVERSHOOT_FACTOR: Final = 4
"""A row group with a column heavier than this many targets is divided, which takes a second pass."""

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
_MIN_PIECE_BYTES: Final = 16 * _KIB
_MAX_PIECE_BYTES: Final = 256 * _KIB
_MIN_WINDOW_BYTES: Final = 2 * _MIN_PIECE_BYTES
_MAX_WINDOW_BYTES: Final = 8 * _MIB
_MIN_SLICE_BYTES: Final = 16 * _KIB
_MAX_SLICE_BYTES: Final = 1 * _MIB
MIN_OPEN_BYTES: Final = 96 * _KIB
"""Of each open fragment, everything spilled: of an input two pieces fetched, a slice of keys and one of a
column; of an output its write buffer and what it knows of its row groups."""
MAX_INPUTS: Final = 60_000
"""They are numbered in 16 bits."""
_MIN_ORDER_BYTES: Final = 4 * _MIB
ORDER_ROW_BYTES: Final = 32
"""Of a row being put in order beside its keys: words to sort by, positions, input, weight."""
GATHER_ROW_BYTES: Final = 96
"""Of a gathered row beside its value: positions, hashes, what encoders try."""
_RECORD_BYTES: Final = 16
_FOOTER_BYTES: Final = 256
"""Of a chunk's statistics; its least and greatest value take most."""
_VALUE_BYTES: Final = 16
"""Decoded, beyond what is counted as raw: integers stored in a byte or none, offsets of strings."""
_DECODING_BYTES: Final = 16
"""Of a value while it is decoded: what is put together of codes and lengths is 64 bits wide at first."""
_COPIES: Final = 4
"""Of the heaviest chunk at a time: as decoded, gathered, encoded and compressed."""
_SHARE: Final = 8
"""Fetching ahead, ordering, slices and uploads each get this part of the limit."""
PART_BYTES: Final = 8 * _MIB
"""What an upload to object storage holds back until it is a part."""


@dataclass(frozen=True, slots=True)
class MergeShape:
    """What is known of a merge's inputs before they are read."""

    inputs: int
    """Fragments, each read by one GET."""
    rows: int
    stored_bytes: int
    peak_chunk_bytes: int
    """Of the heaviest chunk of any input, raw or decoded, whichever is more."""
    run_chunk_bytes: int
    """The heaviest chunks of the sorted runs together: what a merge holds decoded if nothing spills."""
    heaviest_column_bytes: int
    """An upper bound of the raw bytes of the heaviest column, all inputs together."""
    sort_columns: int
    key_row_bytes: int
    """Of the sort columns of one row, decoded."""
    columns: int
    dropped_rows: int = 0
    """That are not to be written again."""
    dropped_bytes: int = 0
    """Of the bits that say which those are."""
    may_overshoot: bool = True
    """Whether rows can differ in weight at all."""


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What one task may use."""

    memory_limit_bytes: int = 512 * _MIB
    batch_size: int = 262_144
    spool_after_seconds: float = 10.0
    spool_limit_bytes: int = 64 << 30
    spool_directory: str | None = None


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A merge's stages and the sizes they work with."""

    stages: StagePlan
    window_bytes: int
    """Fetched ahead of each input."""
    piece_bytes: int
    slice_bytes: int
    """Of decoded rows, when they are read back from disk."""
    batch_rows: int
    """Keys ordered at a time, all inputs together."""
    batch_bytes: int
    """Of keys put in order at a time, as if none were dictionary-coded."""
    order_bytes: int
    """What that takes."""
    reserve_bytes: int
    """Of the limit, for what cannot be spilled: decoded rows must leave it."""
    upload_bytes: int
    """Parts being sent at a time, all outputs together."""
    keeps_inputs: bool
    """Whether inputs are kept on local disk, so that a second pass takes no second GET."""

    def to_json(self) -> dict[str, Any]:
        return {
            "memory_limit_bytes": self.stages.limit_bytes,
            "need_bytes": self.stages.need_bytes,
            "batch_rows": self.batch_rows,
            "window_bytes": self.window_bytes,
            "keeps_inputs": self.keeps_inputs,
            "stages": [stage.to_json() for stage in self.stages],
        }


def heaviest_chunk_bytes(
    peak_chunk_bytes: int, column_bytes: int, target_row_group_bytes: int
) -> int:
    """Most bytes a chunk has that is read or written: as heavy as any read, or a target and its overshoot.

    column_bytes: an upper bound of the heaviest column, all inputs together.
    """
    return max(peak_chunk_bytes, min(OVERSHOOT_FACTOR * target_row_group_bytes, column_bytes))


def need_bytes(open_fragments: int, heaviest_chunk_bytes: int) -> int:
    """The least memory limit for a merge with so many inputs and outputs, everything spilled that can be."""
    parts = min(3 * PART_BYTES, 3 * heaviest_chunk_bytes + 2 * _MIB)
    return (
        _COPIES * heaviest_chunk_bytes + parts + _MIN_ORDER_BYTES + open_fragments * MIN_OPEN_BYTES
    )


def output_count(rows: int, stored_bytes: int, target_fragment_bytes: int) -> int:
    """Fragments that a merge of so many rows and bytes makes."""
    return max(1, min(rows, round(stored_bytes / target_fragment_bytes)))


def plan_merge(
    shape: MergeShape,
    settings: MemorySettings,
    *,
    target_row_group_bytes: int,
    target_fragment_bytes: int,
    max_rows_per_row_group: int = 65_536,
) -> MergePlan:
    """The plan of a merge. That its need is within its limit is for the caller to check."""
    limit = settings.memory_limit_bytes
    share = limit // _SHARE
    inputs = max(1, shape.inputs)
    heaviest = heaviest_chunk_bytes(
        shape.peak_chunk_bytes, shape.heaviest_column_bytes, target_row_group_bytes
    )
    outputs = output_count(shape.rows, shape.stored_bytes, target_fragment_bytes)

    window = _clamp(share // inputs, _MIN_WINDOW_BYTES, _MAX_WINDOW_BYTES)
    piece = _clamp(_power_of_two(window // 4), _MIN_PIECE_BYTES, _MAX_PIECE_BYTES)
    slice_bytes = _clamp(share // inputs, _MIN_SLICE_BYTES, _MAX_SLICE_BYTES)
    order_row = 2 * (shape.key_row_bytes + ORDER_ROW_BYTES)
    batch = max(1, min(settings.batch_size, share // order_row))
    order_bytes = min(share, order_row * min(batch, shape.rows) + share // 4)
    upload = _clamp(share, PART_BYTES, 4 * PART_BYTES)
    keeps_inputs = shape.may_overshoot and 0 < shape.stored_bytes <= settings.spool_limit_bytes

    group_rows = min(shape.rows, max_rows_per_row_group)
    groups = -(-shape.rows // max(1, group_rows)) + -(
        -shape.heaviest_column_bytes // target_row_group_bytes
    )
    decoded = heaviest + _VALUE_BYTES * group_rows
    keys = min((shape.sort_columns - 1) * decoded, shape.key_row_bytes * group_rows)
    # A row group to be gathered may begin in one chunk of a run and end in the next. Keys of every input
    # are loaded for a share of a batch ahead, and a row group more.
    columns = 2 * (shape.run_chunk_bytes + inputs * _VALUE_BYTES * group_rows)
    ahead = min(shape.rows, batch + 2 * inputs * group_rows) * (shape.key_row_bytes + _VALUE_BYTES)
    chunks = max(columns, ahead)
    order = shape.rows * 4 + groups * (_RECORD_BYTES + 6 * inputs)
    footer = shape.columns * (_FOOTER_BYTES + groups * _FOOTER_BYTES)

    def stage(
        name: str,
        holds: str,
        buffer: Buffer,
        memory: int,
        disk: int = 0,
        spills: int | None = None,
        *,
        waits: bool = False,
    ) -> MemoryStage:
        return MemoryStage(name, holds, buffer, min(memory, limit), disk, spills, waits)

    streaming, materialized = Buffer.STREAMING, Buffer.MATERIALIZED
    stages = (
        stage("fetch", "bytes fetched ahead, a window for each input", streaming,
              inputs * (max(window, piece) + piece), waits=True),
        stage("spool", "inputs kept for a second pass, and fetched during long pauses", materialized,
              0, min(shape.stored_bytes, settings.spool_limit_bytes)),
        stage("decode", "one chunk as stored, as decompressed and as decoded", streaming,
              3 * (heaviest + keys) + _DECODING_BYTES * group_rows + _MIB),
        stage("chunks", "decoded rows, a chunk or two for each sorted run", streaming,
              chunks, chunks, 3, waits=True),
        stage("order", "keys being put in order, a batch at a time", streaming,
              order_bytes + inputs * order_row + share // 4
              + 3 * (shape.sort_columns * max(target_row_group_bytes, shape.peak_chunk_bytes) + _MIB)),
        stage("row order", "the order of all rows, as runs", materialized, order, order, 0),
        stage("row hashes", "eight bytes a row, to show that none was lost", materialized,
              8 * (shape.rows + shape.dropped_rows) + shape.dropped_bytes, 8 * shape.rows, 1),
        stage("gather", "one output row group of one column", streaming,
              2 * decoded + GATHER_ROW_BYTES * group_rows, waits=True),
        stage("encode", "a chunk or two as gathered, encoded and compressed", streaming,
              4 * decoded + GATHER_ROW_BYTES * group_rows
              + 2 * (keys + shape.sort_columns * target_row_group_bytes), waits=True),
        stage("footer", "offsets and statistics of the chunks written", materialized, footer, footer, 2),
        stage("parts", "the begun part of every output's upload", streaming,
              min((outputs + 1) * PART_BYTES, 2 * shape.stored_bytes + _MIB), outputs * PART_BYTES, 4),
        stage("upload", "parts being sent", streaming, upload, waits=True),
    )  # fmt: skip
    need = need_bytes(inputs + outputs, heaviest) + shape.dropped_bytes
    return MergePlan(
        StagePlan(limit, need, stages),
        window,
        piece,
        slice_bytes,
        batch,
        share // 4,
        order_bytes,
        need - (inputs + outputs) * MIN_OPEN_BYTES,
        upload,
        keeps_inputs,
    )


def _clamp(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def _power_of_two(value: int) -> int:
    return 1 << max(0, value.bit_length() - 1)
