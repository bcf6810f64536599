"""What became of a compaction, as the version that committed it keeps it: figures for people and reports.

Nothing is decided by them. Zeros are not written, fields that this program does not know are passed over
and a record that it can't read is left out, so neither older nor newer programs mind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from compactor.common.conversion import convertible
from compactor.table.numbers import Natural, Seconds

MAX_TEXT: Final = 300
"""Characters of a reason: records are in every compaction's log file."""


@convertible
class CompactionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt at a compaction: of a failed one the figures that are known, and why it failed."""

    compaction_id: str
    output_level: Natural = 0
    attempt: Natural = 1
    """Of the driver, at those inputs."""
    reason: str = ""
    """Why the planner wanted it."""
    failure: str = ""
    """Empty: it was committed."""
    inputs: Natural = 0
    """Fragments."""
    outputs: Natural = 0
    rows_in: Natural = 0
    rows_out: Natural = 0
    bytes_in: Natural = 0
    bytes_out: Natural = 0
    seconds: Seconds = 0.0
    predicted_seconds: Seconds = 0.0
    stage_seconds: dict[str, Seconds] = {}
    """Of the merging thread; see `compactor.resources.stopwatch`."""
    memory_limit_bytes: Natural = 0
    peak_charged_bytes: Natural = 0
    """Of the memory limit."""
    peak_rss_bytes: Natural = 0
    """Of the whole process, since it began."""
    predicted_memory_bytes: Natural = 0
    """Resident, of the whole process."""
    gets: Natural = 0
    resumed_gets: Natural = 0
    restarts: Natural = 0
    """Second passes."""
    spilled_bytes: Natural = 0
    copied_rows: Natural = 0
    """Of row groups that went out as they came in."""
    dropped_rows: Natural = 0


def records_to_json(records: Iterable[CompactionRecord]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(record) for record in records]


def records_from_json(values: Any) -> tuple[CompactionRecord, ...]:
    """Those that can be read."""
    records = []
    for value in values if isinstance(values, list) else ():
        try:
            records.append(msgspec.convert(value, CompactionRecord))
        except msgspec.ValidationError:
            continue
    return tuple(records)
