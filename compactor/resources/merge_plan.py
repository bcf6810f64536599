"""Plans the memory of one merge from its inputs' statistics, before anything is read. Pure.

The executor, `compact --explain`, the planner's limits and the estimates all use this plan.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from msgspec import Struct

from compactor.resources.merge_stages import (
    CHUNKS,
    DECODE,
    ENCODE,
    FETCH,
    FOOTER,
    ORDER,
    PARTS,
    ROW_HASHES,
    ROW_ORDER,
    UPLOAD,
)
from compactor.resources.stage import Buffer, MemoryStage, StagePlan

OVERSHOOT_FACTOR: Final = 4
"""Divide a row group with a column heavier than this many target sizes, in a second pass."""

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
_MIN_PIECE_BYTES: Final = 16 * _KIB
_MAX_PIECE_BYTES: Final = 256 * _KIB
_MIN_AHEAD_BYTES: Final = 2 * _MIN_PIECE_BYTES
_MAX_AHEAD_BYTES: Final = 8 * _MIB
_MIN_SLICE_BYTES: Final = 16 * _KIB
_MAX_SLICE_BYTES: Final = 1 * _MIB
MIN_OPEN_BYTES: Final = 96 * _KIB
"""Memory of each open fragment after spilling: two fetched pieces, a slice of keys and one of a column for an
input; the write buffer and row group metadata for an output."""
MAX_INPUTS: Final = 60_000
"""Merge at most this many inputs at a time, since they are numbered in 16 bits."""
_MIN_ORDER_BYTES: Final = 4 * _MIB
ORDER_ROW_BYTES: Final = 32
"""Memory of a row being ordered, besides its keys: where they begin, its input, its weight."""
WAITING_ROW_BYTES: Final = 12
"""Memory of a row in order until its row group is cut, besides its key: its input, its weight, flags."""
WORK_ROW_BYTES: Final = 96
"""Memory of a row while its chunk is made, besides its value: its input, hashes, encoders' trials."""
WORK_COPIES: Final = 3
"""How often a chunk is in memory while it is made: as gathered, encoded and compressed."""
WORK_AHEAD: Final = 2
"""Let this many chunks wait to be made, or to be taken, beside those that threads make."""
_RECORD_BYTES: Final = 16
_FOOTER_BYTES: Final = 256
"""Size of a chunk's statistics; its minimum and maximum take most of it."""
_VALUE_BYTES: Final = 16
"""Memory of a decoded value beyond its raw size: integers stored in a byte or none, offsets of strings."""
_DECODING_BYTES: Final = 16
"""Memory of a value while it is decoded: codes and lengths are combined in 64 bits."""
_COPIES: Final = 4
"""Copies at a time of the heaviest chunk, or of the sort columns of a row group that is written: decoded,
gathered, encoded and compressed."""
_KEY_COPIES: Final = 3
"""Copies at a time of the sort columns of a row group that is read: as read, decoded, put beside others."""
_AHEAD_DIVISOR: Final = 4
"""Decode chunks before they are needed only while one part in this many of the limit is free, and as much as
the merge needs."""
_DIVISOR: Final = 8
"""Give fetching ahead, ordering, slices and uploads one part in this many of the limit each."""
_WAITING_GROUPS: Final = 3
"""Let rows of at most this many row groups, and a batch, wait until another full one is in sight."""
NUMBERED_STRINGS: Final = 1 << 14
"""Remember at most this many strings of a column from chunk to chunk."""
NUMBERED_BYTES: Final = 1 * _MIB
"""Remember at most this many bytes of them."""
_NUMBERED_STRING_BYTES: Final = 32
"""Memory of a remembered string beside its bytes."""
WORD_TABLE_BYTES: Final = (1 << 16) * 17 + (4 << 17)
"""Memory of the words of a column's chunks (`lsm_fragment.native.gather.words.WordTable`)."""
PART_BYTES: Final = 8 * _MIB
"""Size of a part, which an upload to object storage buffers until it is full."""


class KeyGroups(NamedTuple):
    """The row groups with the most bytes of all sort columns, decoded."""

    read_bytes: int
    written_bytes: int
    written_rows: int


class MergeShape(Struct, frozen=True, kw_only=True):
    """Statistics of a merge's inputs, known before they are read."""

    inputs: int
    """Fragments, each read by one GET."""
    rows: int
    stored_bytes: int
    peak_chunk_bytes: int
    """Size of the heaviest chunk of any input, raw or decoded, whichever is larger."""
    run_chunk_bytes: int
    """Sum of the heaviest chunk of each sorted run: what a merge holds decoded if nothing spills."""
    heaviest_column_bytes: int
    """Upper bound of the raw bytes of the heaviest column, over all inputs."""
    sort_columns: int
    key_row_bytes: int
    """Decoded size of the sort columns of one row."""
    key_groups: KeyGroups
    columns: int
    dropped_rows: int = 0
    """Deleted rows, which are not written again."""
    dropped_bytes: int = 0
    """Size of the bitmaps of deleted rows."""
    may_overshoot: bool = True
    """Whether rows can differ in weight at all."""


class MemorySettings(Struct, frozen=True, kw_only=True):
    """Limits of one task; `compactor.settings.compaction` has defaults and bounds."""

    memory_limit_bytes: int
    batch_size: int
    spool_after_seconds: float
    spool_limit_bytes: int
    spool_directory: str | None
    threads: int
    """Threads that make chunks; with 1 the merging thread does it."""


class MergePlan(Struct, frozen=True, kw_only=True):
    """The stages of a merge and their sizes."""

    stages: StagePlan
    ahead_bytes: int
    """Bytes fetched ahead for each input."""
    piece_bytes: int
    payload_bytes: int
    """The most that a chunk of any input takes as it is read, stored and decompressed."""
    slice_bytes: int
    """Size of a slice of decoded rows that is read back from disk."""
    batch_rows: int
    """Number of keys ordered at a time, over all inputs."""
    batch_bytes: int
    """Size of the keys ordered at a time, counting dictionary values in full."""
    order_bytes: int
    """Memory for ordering a batch."""
    reserve_bytes: int
    """Part of the limit for what cannot be spilled, which decoded rows must leave free."""
    upload_bytes: int
    """Limit of the parts being sent at a time, over all outputs."""
    keeps_inputs: bool
    """Whether inputs are kept on local disk, so that a second pass needs no second GET."""

    def to_json(self) -> dict[str, Any]:
        return {
            "memory_limit_bytes": self.stages.limit_bytes,
            "need_bytes": self.stages.need_bytes,
            "batch_rows": self.batch_rows,
            "ahead_bytes": self.ahead_bytes,
            "keeps_inputs": self.keeps_inputs,
            "stages": [stage.to_json() for stage in self.stages],
        }


def heaviest_chunk_bytes(
    peak_chunk_bytes: int, column_bytes: int, target_row_group_bytes: int
) -> int:
    """Returns the most bytes of any chunk: the heaviest one read, or a target with its overshoot.

    column_bytes: upper bound of the heaviest column, over all inputs.
    """
    return max(peak_chunk_bytes, min(OVERSHOOT_FACTOR * target_row_group_bytes, column_bytes))


def need_bytes(open_fragments: int, heaviest_chunk_bytes: int, keys: KeyGroups) -> int:
    """Returns the least limit for a merge that spills all it can.

    open_fragments: inputs and outputs. keys: the sort columns of a row group are in memory together.
    """
    parts = min(3 * PART_BYTES, 3 * heaviest_chunk_bytes + 2 * _MIB)
    row_bytes = WORK_ROW_BYTES + _WAITING_GROUPS * WAITING_ROW_BYTES
    written = _COPIES * keys.written_bytes + row_bytes * keys.written_rows
    copied_keys = max(_KEY_COPIES * keys.read_bytes, written)
    copied = max(_COPIES * heaviest_chunk_bytes, copied_keys)
    # While keys are copied there are no parts, but what the limit gives to fetching and to ordering.
    besides = max(parts + _MIN_ORDER_BYTES, 2 * copied_keys // (_DIVISOR - 2))
    return copied + besides + open_fragments * MIN_OPEN_BYTES


def decode_reserve_bytes(limit_bytes: int, need_bytes: int) -> int:
    """Returns what chunks that are decoded ahead leave free of the limit: they can't be spilled, so all that
    a merge needs has to fit beside them."""
    return max(need_bytes, limit_bytes // _AHEAD_DIVISOR)


def output_count(rows: int, stored_bytes: int, target_fragment_bytes: int) -> int:
    """Returns the number of fragments that a merge writes."""
    return max(1, min(rows, round(stored_bytes / target_fragment_bytes)))


class _Formulas(Struct, frozen=True):
    """Formulas for the most that each stage of one merge holds, in bytes unless the name says otherwise."""

    shape: MergeShape
    settings: MemorySettings
    target_row_group_bytes: int
    target_fragment_bytes: int
    max_rows_per_row_group: int

    # --- sizes that several stages use ---

    @property
    def share(self) -> int:
        return self.settings.memory_limit_bytes // _DIVISOR

    @property
    def inputs(self) -> int:
        return max(1, self.shape.inputs)

    @property
    def outputs(self) -> int:
        return output_count(self.shape.rows, self.shape.stored_bytes, self.target_fragment_bytes)

    @property
    def heaviest(self) -> int:
        return heaviest_chunk_bytes(
            self.shape.peak_chunk_bytes,
            self.shape.heaviest_column_bytes,
            self.target_row_group_bytes,
        )

    @property
    def ahead(self) -> int:
        return _clamp(self.share // self.inputs, _MIN_AHEAD_BYTES, _MAX_AHEAD_BYTES)

    @property
    def piece(self) -> int:
        return _clamp(_power_of_two(self.ahead // 4), _MIN_PIECE_BYTES, _MAX_PIECE_BYTES)

    @property
    def slice(self) -> int:
        return _clamp(self.share // self.inputs, _MIN_SLICE_BYTES, _MAX_SLICE_BYTES)

    @property
    def order_row(self) -> int:
        """Memory of a row while it is ordered: its normalised key, what a rule gathers of its sort columns,
        and as much again of `ORDER_ROW_BYTES` for each."""
        return 2 * (self.shape.key_row_bytes + ORDER_ROW_BYTES)

    @property
    def batch_rows(self) -> int:
        return max(1, min(self.settings.batch_size, self.share // self.order_row))

    @property
    def batch(self) -> int:
        """Size of the keys that are ordered at a time, and of the pages of normalised keys of all inputs."""
        return self.share // 4

    @property
    def ordering(self) -> int:
        """Memory of one batch while it is ordered."""
        rows = min(self.batch_rows, self.shape.rows)
        return min(self.share, self.order_row * rows + self.batch)

    @property
    def group_rows(self) -> int:
        return min(self.shape.rows, self.max_rows_per_row_group)

    @property
    def output_groups(self) -> int:
        """Number of row groups of all outputs: those full by rows, and more for the heaviest column."""
        by_weight = -(-self.shape.heaviest_column_bytes // self.target_row_group_bytes)
        return -(-self.shape.rows // max(1, self.group_rows)) + by_weight

    @property
    def decoded(self) -> int:
        """Size of the heaviest chunk, decoded."""
        return self.heaviest + _VALUE_BYTES * self.group_rows

    @property
    def other_keys(self) -> int:
        """Size of the sort columns of one row group besides the heaviest one, decoded."""
        shape = self.shape
        return min((shape.sort_columns - 1) * self.decoded, shape.key_row_bytes * self.group_rows)

    # --- stages ---

    @property
    def fetch(self) -> int:
        return self.inputs * (max(self.ahead, self.piece) + self.piece)

    @property
    def spool_disk(self) -> int:
        return min(self.shape.stored_bytes, self.settings.spool_limit_bytes)

    @property
    def decode(self) -> int:
        one = 3 * (self.heaviest + self.other_keys) + _DECODING_BYTES * self.group_rows + _MIB
        if self.settings.threads == 1:
            return one
        ahead = 3 * self.run_chunks + _DECODING_BYTES * self.inputs * self.group_rows
        limit = self.settings.memory_limit_bytes
        return one + min(ahead, max(0, limit - decode_reserve_bytes(limit, self.need)))

    @property
    def in_work(self) -> int:
        """Most chunks that are made at a time."""
        threads = self.settings.threads
        return threads + WORK_AHEAD if threads > 1 else 1

    @property
    def run_chunks(self) -> int:
        """Size of two decoded chunks of each sorted run."""
        values = self.inputs * _VALUE_BYTES * self.group_rows
        return 2 * (self.shape.run_chunk_bytes + values)

    @property
    def chunks(self) -> int:
        """Memory of decoded chunks. An output row group may begin in one chunk of a run and end in the next;
        the keys of each input are loaded ahead for its share of a batch and one row group more, and stay
        until the row groups that they are in are made."""
        shape = self.shape
        strings = max(NUMBERED_BYTES + _NUMBERED_STRING_BYTES * NUMBERED_STRINGS, WORD_TABLE_BYTES)
        columns = self.run_chunks + (self.in_work - 1) * self.decoded + strings
        loaded = self.batch_rows + 2 * self.inputs * self.group_rows
        rows_ahead = min(shape.rows, loaded + (_WAITING_GROUPS + self.in_work) * self.group_rows)
        return max(columns, rows_ahead * (shape.key_row_bytes + _VALUE_BYTES))

    @property
    def order(self) -> int:
        waiting = WAITING_ROW_BYTES * (_WAITING_GROUPS * self.group_rows + self.batch_rows)
        return self.ordering + self.inputs * self.order_row + self.batch + waiting

    @property
    def row_order(self) -> int:
        return self.shape.rows * 2 + self.output_groups * (_RECORD_BYTES + 6 * self.inputs)

    @property
    def row_hashes(self) -> int:
        return 8 * (self.shape.rows + self.shape.dropped_rows) + self.shape.dropped_bytes

    @property
    def encode(self) -> int:
        key_group = self.other_keys + self.shape.sort_columns * self.target_row_group_bytes
        one = WORK_COPIES * max(self.decoded, key_group) + WORK_ROW_BYTES * self.group_rows
        return self.in_work * one

    @property
    def footer(self) -> int:
        return self.shape.columns * (_FOOTER_BYTES + self.output_groups * _FOOTER_BYTES)

    @property
    def parts(self) -> int:
        return min((self.outputs + 1) * PART_BYTES, 2 * self.shape.stored_bytes + _MIB)

    @property
    def upload(self) -> int:
        return _clamp(self.share, PART_BYTES, 4 * PART_BYTES)

    # --- the whole ---

    @property
    def unspilled(self) -> int:
        """Memory that cannot be spilled, without open fragments."""
        return self._need(0)

    @property
    def need(self) -> int:
        return self._need(self.inputs + self.outputs)

    def _need(self, open_fragments: int) -> int:
        need = need_bytes(open_fragments, self.heaviest, self.shape.key_groups)
        return need + self.shape.dropped_bytes

    @property
    def keeps_inputs(self) -> bool:
        stored_bytes = self.shape.stored_bytes
        return self.shape.may_overshoot and 0 < stored_bytes <= self.settings.spool_limit_bytes


def plan_merge(
    shape: MergeShape,
    settings: MemorySettings,
    *,
    target_row_group_bytes: int,
    target_fragment_bytes: int,
    max_rows_per_row_group: int,
) -> MergePlan:
    """Returns the plan of a merge. The caller checks that its need is within its limit."""
    f = _Formulas(
        shape, settings, target_row_group_bytes, target_fragment_bytes, max_rows_per_row_group
    )
    return MergePlan(
        stages=StagePlan(settings.memory_limit_bytes, f.need, _stages(f)),
        ahead_bytes=f.ahead,
        piece_bytes=f.piece,
        payload_bytes=2 * shape.peak_chunk_bytes,
        slice_bytes=f.slice,
        batch_rows=f.batch_rows,
        batch_bytes=f.batch,
        order_bytes=f.ordering,
        reserve_bytes=f.unspilled,
        upload_bytes=f.upload,
        keeps_inputs=f.keeps_inputs,
    )


def _stages(f: _Formulas) -> tuple[MemoryStage, ...]:
    streaming, materialized = Buffer.STREAMING, Buffer.MATERIALIZED

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
        most = min(memory, f.settings.memory_limit_bytes)
        return MemoryStage(
            name=name,
            holds=holds,
            buffer=buffer,
            memory_bytes=most,
            disk_bytes=disk,
            spill_priority=spills,
            applies_back_pressure=waits,
        )

    return (
        stage(FETCH, "bytes fetched ahead, a buffer for each input", streaming, f.fetch, waits=True),
        stage("spool", "inputs kept for a second pass, and fetched during long pauses", materialized,
              0, f.spool_disk),
        stage(DECODE, "a chunk as stored, as decompressed and as decoded; with threads, those needed next",
              streaming, f.decode),
        stage(CHUNKS, "decoded rows, a chunk or two for each sorted run", streaming,
              f.chunks, f.chunks, 3, waits=True),
        stage(ORDER, "keys being put in order, a batch at a time", streaming, f.order),
        stage(ROW_ORDER, "the order of all rows, as runs", materialized, f.row_order, f.row_order, 0),
        stage(ROW_HASHES, "eight bytes a row, to show that none was lost", materialized,
              f.row_hashes, 8 * f.shape.rows, 1),
        stage(ENCODE, "a chunk for each thread, as gathered, encoded and compressed", streaming,
              f.encode, waits=True),
        stage(FOOTER, "offsets and statistics of the chunks written", materialized,
              f.footer, f.footer, 2),
        stage(PARTS, "the begun part of every output's upload", streaming,
              f.parts, f.outputs * PART_BYTES, 4),
        stage(UPLOAD, "parts being sent", streaming, f.upload, waits=True),
    )  # fmt: skip


def _clamp(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def _power_of_two(value: int) -> int:
    return 1 << max(0, value.bit_length() - 1)
