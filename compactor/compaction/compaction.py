"""Compactions as values: the decided compaction, an attempt's report, and the outcome."""

from __future__ import annotations

import json
from typing import Final, Self

import msgspec.structs
from msgspec import Struct

from compactor.common.message import Message
from compactor.common.plain_values import plain_dict
from compactor.common.shortage import shortage
from compactor.errors import CompactorError, DamagedInputError, FragmentMissingError, message_of
from compactor.planner.spec import CompactionSpec
from compactor.resources.errors import MemoryLimitError
from compactor.rows.fold import FoldError
from compactor.settings.compaction import CompactionSettings
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from lsm_fragment.errors import CorruptFragmentError, LimitError, NotAFragmentError, OrderError


class Compaction(Struct, frozen=True, kw_only=True):
    """A decided compaction with everything that a task needs to run it."""

    compaction_id: str
    """Also the id of the sorted run that the outputs form."""
    base_version: int
    """The table's version when the compaction was decided."""
    table_url: str
    metadata: TableMetadata
    spec: CompactionSpec
    settings: CompactionSettings
    now_unix_ms: int = 0
    """The time of the decision: rows expire by it, whenever and however often the compaction is attempted."""

    def with_cores(self, cores: int) -> Self:
        """Returns the compaction for a task of that many cores, unless the settings say how many threads."""
        if self.settings.threads is not None:
            return self
        settings = self.settings.model_copy(update={"threads": cores})
        return msgspec.structs.replace(self, settings=settings)

    def to_json(self) -> str:
        return json.dumps(
            {
                "compaction_id": self.compaction_id,
                "base_version": self.base_version,
                "table_url": self.table_url,
                "metadata": self.metadata.to_json(),
                "inputs": [entry.to_json() for entry in self.spec.inputs],
                "output_level": self.spec.output_level,
                "cut_keys": [list(key) for key in self.spec.cut_keys],
                "is_bottom": self.spec.is_bottom,
                "now_unix_ms": self.now_unix_ms,
                "settings": self.settings.model_dump(),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        document = json.loads(text)
        inputs = tuple(FragmentEntry.from_json(entry) for entry in document["inputs"])
        return cls(
            compaction_id=document["compaction_id"],
            base_version=document["base_version"],
            table_url=document["table_url"],
            metadata=TableMetadata.from_json(document["metadata"]),
            spec=CompactionSpec(
                inputs=inputs,
                output_level=document["output_level"],
                cut_keys=tuple(tuple(key) for key in document["cut_keys"]),
                is_bottom=document["is_bottom"],
            ),
            settings=CompactionSettings(**document["settings"]),
            now_unix_ms=document["now_unix_ms"],
        )


class AttemptReport(Struct, frozen=True, kw_only=True):
    """Figures of a finished attempt, with its restarts."""

    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int
    gets: int
    puts: int
    """Objects written, with skip indexes."""
    resumed_gets: int
    restarts: int
    """Second passes, made because row groups had to be divided."""
    replayed_inputs: int
    """Inputs that a second pass read from local disk instead of by a second GET."""
    start_rss_bytes: int
    """The resident set of the process when the attempt began; 0 where the system tells none."""
    peak_rss_bytes: int
    """The largest resident set of the process meanwhile; since it began where the system tells no other."""
    peak_charged_bytes: int
    """Peak of the bytes charged to the memory limit."""
    spilled_bytes: int
    """Bytes put on local disk, including inputs kept for a second pass."""
    fetch_wait_seconds: float
    cpu_busy_ratio: float
    """CPU share of the merging thread and its encoding thread since the merge began."""
    copied_rows: int
    """Rows of copied row groups, which were neither decompressed nor read."""
    dropped: dict[str, int]
    """Rows that were not written again, by reason; rows_in is rows_out plus these."""
    stage_seconds: dict[str, float]
    """Seconds of the merging thread by stage; see `compactor.resources.stopwatch`."""
    cpu_seconds: float
    """CPU time of all threads of the process meanwhile."""
    system_cpu_seconds: float
    """The kernel's part of it."""
    seconds: float


class AttemptRecord(Struct, frozen=True):
    """The figures that every attempt reports when it ends, even a failed one."""

    attempt_id: str
    host: str
    """The name of the machine that ran it."""
    started_unix_ms: int
    """The start, by that host's clock."""
    seconds: float
    requests: dict[str, int]
    """Requests to its store by name; see `compactor.stores.metered.COUNTERS`."""


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of a compaction: outputs and a report, or the reason of its failure."""

    compaction_id: str
    outputs: tuple[FragmentEntry, ...] = ()
    report: AttemptReport | None = None
    failure: str | None = None
    """A `Message` if it names settings."""
    culprit: str | None = None
    """Key of the input that the failure is about, if it names one."""
    is_damage: bool = False
    """Whether that input's own bytes are at fault, as they were read, or proven to be gone.

    Any other failure, of a store, a disk or an engine, says nothing about the inputs.
    """
    is_final: bool = False
    """Whether every other attempt would fail alike: for want of memory, or because a sum does not fit."""
    is_of_machine: bool = False
    """Whether the machine had no memory or no thread for the attempt."""
    record: AttemptRecord | None = None
    """None if the attempt could not report, as when its executor was lost."""

    def to_json(self) -> str:
        return json.dumps(
            {
                "compaction_id": self.compaction_id,
                "outputs": [entry.to_json() for entry in self.outputs],
                "report": None if self.report is None else plain_dict(self.report),
                "failure": None if self.failure is None else Message(self.failure).to_json(),
                "culprit": self.culprit,
                "is_damage": self.is_damage,
                "is_final": self.is_final,
                "is_of_machine": self.is_of_machine,
                "record": None if self.record is None else plain_dict(self.record),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        document = json.loads(text)
        report, record = document["report"], document["record"]
        failure = document["failure"]
        return cls(
            compaction_id=document["compaction_id"],
            outputs=tuple(FragmentEntry.from_json(entry) for entry in document["outputs"]),
            report=None if report is None else AttemptReport(**report),
            failure=None if failure is None else Message.from_json(failure),
            culprit=document["culprit"],
            is_damage=document["is_damage"],
            is_final=document["is_final"],
            is_of_machine=document["is_of_machine"],
            record=None if record is None else AttemptRecord(**record),
        )


def failed(compaction: Compaction, error: Exception) -> Outcome:
    """Returns the outcome of an attempt that ended in `error`."""
    if (lacks := shortage(error)) is not None:
        return Outcome(
            compaction_id=compaction.compaction_id, failure=Message(lacks), is_of_machine=True
        )
    name = f"{type(error).__name__}: " if isinstance(error, CompactorError) else ""
    message = Message(name, message_of(error))
    keys = [entry.key for entry in compaction.spec.inputs]
    damaged = error.name if isinstance(error, _DAMAGE) else ""
    culprit = next((key for key in keys if damaged.endswith(f"/{key}")), None)
    if culprit is not None:
        return Outcome(
            compaction_id=compaction.compaction_id, failure=message, culprit=culprit, is_damage=True
        )
    named = [key for key in keys if key in message]
    return Outcome(
        compaction_id=compaction.compaction_id,
        failure=message,
        culprit=named[0] if len(named) == 1 else None,
        is_final=isinstance(error, _FINAL),
    )


_FINAL: Final = (MemoryLimitError, FoldError, LimitError)
"""Exceptions of what another attempt on the same inputs would meet again."""
_DAMAGE: Final = (
    DamagedInputError,
    FragmentMissingError,
    CorruptFragmentError,
    NotAFragmentError,
    OrderError,
)
"""Exceptions that prove that the object they name is damaged or gone."""
