"""Defines the settings and the result of a merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from msgspec import Struct, field

from compactor.merge.outputs.sinks import OpenOutput, OutputSink
from compactor.predicate.skipping.packed import BlockPlace
from compactor.predicate.skipping.spec import NONE as NO_SKIPS
from compactor.predicate.skipping.spec import SkipSpec
from compactor.resources.merge_plan import MemorySettings
from compactor.rows.flags import NONE_SEEN, RowRule, RowStatistics
from lsm_fragment.container.footer import FragmentSummary
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.keys.bounds import Bound
from lsm_fragment.keys.sort_schema import SortSchema


class MergeSettings(Struct, frozen=True, kw_only=True):
    """What a merge needs to know beside its inputs."""

    schema: pa.Schema
    sort: SortSchema
    options: WriterOptions
    """`max_rows` and `target_row_group_bytes` bound every output row group."""
    target_fragment_bytes: int
    memory: MemorySettings
    cut_keys: Sequence[Bound] = ()
    """Ascending keys before which outputs end if they are large enough."""
    skips: SkipSpec = NO_SKIPS
    """The columns of outputs that get a skip index."""
    open_skips: OpenOutput | None = None
    """Begins the object of the skip indexes; needed with `skips`."""
    rule: RowRule | None = None
    """Merges rows of one key, and leaves old rows out; None if all stay."""


class MergedFragment(Struct, frozen=True, kw_only=True):
    """A completed output."""

    sink: OutputSink
    schema: pa.Schema
    size_bytes: int
    summary: FragmentSummary
    row_statistics: RowStatistics = NONE_SEEN
    skips: Mapping[str, BlockPlace] = field(default_factory=dict)
    """Places of its skip indexes in their object, by column."""


class MergeResult(Struct, frozen=True, kw_only=True):
    """The outputs and figures of a whole merge."""

    outputs: list[MergedFragment]
    rows_in: int
    rows_out: int
    restarts: int
    """Number of second passes: 0 or 1."""
    replayed_inputs: int
    """Number of inputs that the second pass read from local disk."""
    spilled_bytes: int
    """All bytes written to local disk, including kept inputs."""
    fetch_wait_seconds: float
    cpu_busy_ratio: float
    """The share of the time, from the first keys in order to the last chunk encoded, in which the merging
    thread works or waits for the encoding thread."""
    peak_bytes: int
    """The most bytes that were reserved at a time."""
    stage_peak_bytes: dict[str, int]
    copied_rows: int
    """Number of rows in copied row groups."""
    dropped: dict[str, int]
    """Number of rows that were not written again, by reason. Rows in equal rows out and these."""
    stage_seconds: dict[str, float]
    """Seconds of the merging thread, by stage; see `compactor.resources.stopwatch`."""
