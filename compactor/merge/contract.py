"""What a merge is asked for and what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from compactor.merge.outputs import OpenOutput, OutputSink
from compactor.predicate.skipping.spec import NONE as NO_SKIPS
from compactor.predicate.skipping.spec import SkipSpec
from compactor.resources.merge_plan import MemorySettings
from compactor.rows.flags import NONE_SEEN, RowRule, RowStatistics
from format.footer import FragmentSummary
from format.keys import Bound
from format.schema import SortSchema
from format.writer import WriterOptions


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """What a merge needs to know beyond its inputs."""

    schema: pa.Schema
    sort: SortSchema
    options: WriterOptions
    """`max_rows` and `target_row_group_bytes` bound every output row group."""
    target_fragment_bytes: int
    memory: MemorySettings
    cut_keys: Sequence[Bound] = ()
    """Ascending keys before which outputs end if they are large enough."""
    encode_thread: bool | None = None
    """Whether chunks are encoded in a thread of their own; None: where there is a core for it."""
    skips: SkipSpec = NO_SKIPS
    """Which columns of outputs get a skip index."""
    open_skips: OpenOutput | None = None
    """Starts the object that these go to; needed with `skips`."""
    rule: RowRule | None = None
    """What becomes of rows of one key, and of old ones; None: all stay."""


@dataclass(frozen=True, slots=True)
class MergedFragment:
    """A completed output."""

    sink: OutputSink
    schema: pa.Schema
    size_bytes: int
    summary: FragmentSummary
    row_statistics: RowStatistics = NONE_SEEN
    skips: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Where its skip indexes are in their object: offset and length, by column."""


@dataclass(frozen=True, slots=True)
class MergeResult:
    """Of a whole merge."""

    outputs: list[MergedFragment]
    rows_in: int
    rows_out: int
    restarts: int
    """Second passes: 0 or 1."""
    replayed_inputs: int
    """Inputs that the second pass read from local disk."""
    spilled_bytes: int
    """Put on local disk in all, inputs that were kept included."""
    fetch_wait_seconds: float
    cpu_busy_ratio: float
    """Seconds that the merging thread works, or waits for its encoding one, for a second of the clock, from
    the first keys in order to the last chunk encoded."""
    peak_bytes: int
    """Most that was charged at a time."""
    stage_peak_bytes: dict[str, int]
    copied_rows: int
    """Rows of row groups that went out as they came in, compressed and unread."""
    dropped: dict[str, int]
    """Rows that were not written again, by reason: rows in are rows out and these."""
    stage_seconds: dict[str, float]
    """Of the merging thread, by stage; see `compactor.resources.stopwatch`."""
