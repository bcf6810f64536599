"""Compaction records: the figures of a compaction, kept by the version that committed it.

Reports show them, and predictions learn from the newest ones. No decision depends on them. Zeros are not
written, unknown fields are ignored, and a record that can't be read is left out, so that older and newer
programs can read the same log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from compactor.common.conversion import convertible
from compactor.table.numbers import Natural, Seconds

MAX_MEASURED: Final = 16
"""Learn from at most this many compactions, since every checkpoint holds their records."""
MAX_TEXT: Final = 300
"""Cut reasons at this many characters, since every compaction's log file holds records."""


@convertible
class CompactionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt at a compaction; for a failed one, the figures that are known and the reason."""

    compaction_id: str
    output_level: Natural = 0
    attempt: Natural = 1
    """Counts the driver's attempts at these inputs, from 1."""
    reason: str = ""
    """Why the planner wanted the compaction."""
    failure: str = ""
    """Why it failed; empty if it was committed."""
    inputs: Natural = 0
    """Number of input fragments."""
    outputs: Natural = 0
    rows_in: Natural = 0
    rows_out: Natural = 0
    bytes_in: Natural = 0
    bytes_out: Natural = 0
    seconds: Seconds = 0.0
    cpu_seconds: Seconds = 0.0
    """CPU time of all threads of the process meanwhile."""
    system_cpu_seconds: Seconds = 0.0
    """The kernel's part of it: clearing pages, reading and writing files."""
    predicted_seconds: Seconds = 0.0
    stage_seconds: dict[str, Seconds] = {}
    """Seconds of the merging thread by stage; see `compactor.resources.stopwatch`."""
    memory_limit_bytes: Natural = 0
    compression_level: int = 0
    """zstd's level of the outputs."""
    peak_charged_bytes: Natural = 0
    """Peak of the bytes charged to the memory limit."""
    start_rss_bytes: Natural = 0
    """The resident set of the process when the attempt began."""
    peak_rss_bytes: Natural = 0
    """The largest resident set of the process meanwhile."""
    predicted_memory_bytes: Natural = 0
    """The prediction for the largest resident set."""
    model_cpu_seconds: Seconds = 0.0
    """CPU time by the model alone (`compactor.planner.cost_model`), without what the table had taught."""
    model_grown_bytes: Natural = 0
    """How far the resident set would grow by the model alone."""
    live_rows: Natural = 0
    """Rows of the inputs that were not deleted."""
    fresh_bytes: Natural = 0
    """Stored bytes of those in inputs that no compaction had written before; they changed their size."""
    settled_bytes: Natural = 0
    """Stored bytes that were expected to stay as many: other rows, headers and footers."""
    gets: Natural = 0
    puts: Natural = 0
    """Objects written, with skip indexes."""
    resumed_gets: Natural = 0
    restarts: Natural = 0
    """Number of second passes."""
    spilled_bytes: Natural = 0
    copied_rows: Natural = 0
    """Rows of copied row groups."""
    dropped_rows: Natural = 0


def measured_by(records: Iterable[CompactionRecord]) -> tuple[CompactionRecord, ...]:
    """Returns what predictions learn from: records of successful compactions, without texts and stages."""
    return tuple(
        msgspec.structs.replace(record, reason="", stage_seconds={})
        for record in records
        if not record.failure and record.seconds
    )


def records_to_json(records: Iterable[CompactionRecord]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(record) for record in records]


def records_from_json(values: Any) -> tuple[CompactionRecord, ...]:
    """Returns the records that can be read."""
    records = []
    for value in values if isinstance(values, list) else ():
        try:
            records.append(msgspec.convert(value, CompactionRecord))
        except msgspec.ValidationError:
            continue
    return tuple(records)
