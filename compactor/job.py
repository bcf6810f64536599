"""One compaction, executed: what runs inside a task.

spec -> compaction (has an id) -> attempt (one execution). An attempt writes objects under names of its
own and returns what it wrote; only the driver commits, so retried and speculative attempts are
harmless, and what they leave is garbage nobody sees.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from compactor.clock import Ids, random_id
from compactor.config import CompactionSettings
from compactor.errors import CompactorError, JobError, StoreUnreachableError, UnknownOutcomeError
from compactor.merge.errors import RowGroupOvershootError
from compactor.merge.merge import OVERSHOOT_FACTOR, MergeResult, MergeSettings, merge_fragments
from compactor.merge.merge_input import InputFragment
from compactor.names import fragment_key
from compactor.planner.spec import CompactionSpec, rows_per_group
from compactor.stores.base import Store, Upload
from compactor.stores.metered import MeteredStore, StoreMetrics
from compactor.stores.open import open_store
from compactor.stores.resume import ResumingStream
from compactor.table.entry import FragmentEntry, with_sequence
from compactor.table.metadata import TableMetadata
from format.errors import FormatError


@dataclass(frozen=True, slots=True)
class Compaction:
    """A decided compaction with all that a task needs to run it."""

    compaction_id: str
    """Also the id of the sorted run that the outputs are."""
    base_version: int
    """The table's when it was decided."""
    table_url: str
    metadata: TableMetadata
    spec: CompactionSpec
    settings: CompactionSettings

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
                "settings": self.settings.model_dump(),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        document = json.loads(text)
        inputs = tuple(FragmentEntry.from_json(entry) for entry in document["inputs"])
        return cls(
            document["compaction_id"],
            document["base_version"],
            document["table_url"],
            TableMetadata.from_json(document["metadata"]),
            CompactionSpec(
                inputs,
                document["output_level"],
                cut_keys=tuple(tuple(key) for key in document["cut_keys"]),
            ),
            CompactionSettings(**document["settings"]),
        )


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """Figures of a finished attempt, restarts included."""

    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int
    gets: int
    resumed_gets: int
    restarts: int
    peak_rss_bytes: int
    """Of the whole process, since it began."""
    spilled_bytes: int
    fetch_wait_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a compaction: outputs and a report, or the reason of its failure."""

    compaction_id: str
    outputs: tuple[FragmentEntry, ...] = ()
    report: AttemptReport | None = None
    failure: str | None = None
    is_transient: bool = False
    """Whether the failure says nothing about the inputs: the store or the engine was at fault."""
    culprit: str | None = None
    """Key of the input that is damaged, if the failure names one."""

    def to_json(self) -> str:
        return json.dumps(
            {
                "compaction_id": self.compaction_id,
                "outputs": [entry.to_json() for entry in self.outputs],
                "report": None if self.report is None else asdict(self.report),
                "failure": self.failure,
                "is_transient": self.is_transient,
                "culprit": self.culprit,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        document = json.loads(text)
        report = document["report"]
        return cls(
            document["compaction_id"],
            tuple(FragmentEntry.from_json(entry) for entry in document["outputs"]),
            None if report is None else AttemptReport(**report),
            document["failure"],
            document["is_transient"],
            document["culprit"],
        )


def run_compaction(compaction: Compaction, store: Store | None = None) -> Outcome:
    """One attempt at a compaction, on the store at its address or the one given.

    Every foreseen failure is an outcome; only what is unforeseen is raised.
    """
    try:
        return _Attempt(compaction, store or open_store(compaction.table_url)).run()
    except (CompactorError, FormatError) as error:
        return failed(compaction, error)


def failed(compaction: Compaction, error: Exception) -> Outcome:
    """The outcome of an attempt that ended in `error`."""
    message = f"{type(error).__name__}: {error}"
    culprits = [e.key for e in compaction.spec.inputs if e.key in message]
    return Outcome(
        compaction.compaction_id,
        failure=message,
        is_transient=isinstance(error, (StoreUnreachableError, UnknownOutcomeError)),
        culprit=culprits[0] if len(culprits) == 1 else None,
    )


class _Attempt:
    def __init__(self, compaction: Compaction, store: Store, ids: Ids = random_id) -> None:
        self._compaction = compaction
        self._store = MeteredStore(store, StoreMetrics())
        self._attempt_id = f"{compaction.compaction_id}-{ids()[:8]}"
        self._opened = 0
        self._keys: list[str] = []

    def run(self) -> Outcome:
        started = time.monotonic()
        result, restarts = self._merge_with_restarts()
        metrics = self._store.metrics
        report = AttemptReport(
            rows_in=result.rows_in,
            rows_out=result.rows_out,
            bytes_in=metrics.bytes_read,
            bytes_out=sum(output.size_bytes for output in result.outputs),
            gets=metrics.gets,
            resumed_gets=metrics.resumed_gets,
            restarts=restarts,
            peak_rss_bytes=peak_rss_bytes(),
            spilled_bytes=result.spilled_bytes,
            fetch_wait_seconds=round(result.fetch_wait_seconds, 3),
            seconds=round(time.monotonic() - started, 3),
        )
        return Outcome(self._compaction.compaction_id, self._entries(result), report)

    def _merge_with_restarts(self) -> tuple[MergeResult, int]:
        settings, inputs = self._compaction.settings, self._compaction.spec.inputs
        rows = rows_per_group(
            inputs,
            target_bytes=settings.target_row_group_bytes,
            target_fragment_bytes=settings.target_fragment_bytes,
            max_rows=settings.max_rows_per_row_group,
            overshoot_factor=OVERSHOOT_FACTOR,
        )
        for restarts in range(settings.max_restarts + 1):
            self._keys.clear()
            try:
                return merge_fragments(
                    [self._input(entry) for entry in inputs],
                    self._merge_settings(rows),
                    self._open_output,
                ), restarts
            except RowGroupOvershootError as overshoot:
                excess = overshoot.raw_bytes / settings.target_row_group_bytes
                rows = max(1, min(rows // 2, int(overshoot.rows / excess)))
        raise JobError(
            f"compaction {self._compaction.compaction_id}: row groups still too heavy after "
            f"{settings.max_restarts} restarts: raise target_row_group_bytes"
        )

    def _merge_settings(self, rows: int) -> MergeSettings:
        settings, metadata = self._compaction.settings, self._compaction.metadata
        return MergeSettings(
            schema=metadata.schema,
            sort=metadata.sort,
            options=settings.writer_options(rows),
            target_fragment_bytes=settings.target_fragment_bytes,
            cut_keys=self._compaction.spec.cut_keys,
            prefetch_bytes=settings.prefetch_bytes,
            scratch_bytes=settings.scratch_memory_bytes,
        )

    def _input(self, entry: FragmentEntry) -> InputFragment:
        return InputFragment(
            name=f"{self._store.url}/{entry.key}",
            source_id=entry.key,
            rows=entry.rows,
            size_bytes=entry.size_bytes,
            row_hash=entry.row_hash,
            open_source=lambda: ResumingStream(self._store, entry.key),
        )

    def _open_output(self) -> Upload:
        # Counted through all restarts, so that no two uploads of an attempt share a name.
        key = fragment_key(self._compaction.base_version, self._attempt_id, self._opened)
        self._opened += 1
        self._keys.append(key)
        return self._store.start_upload(key)

    def _entries(self, result: MergeResult) -> tuple[FragmentEntry, ...]:
        compaction = self._compaction
        entries = [
            FragmentEntry.from_footer(
                key,
                output.footer,
                size_bytes=output.size_bytes,
                level=compaction.spec.output_level,
                run=compaction.compaction_id,
                window=compaction.spec.window,
            )
            for key, output in zip(self._keys, result.outputs, strict=True)
        ]
        oldest = min(entry.sequence for entry in compaction.spec.inputs)
        return tuple(with_sequence(entries, oldest))


def peak_rss_bytes() -> int:
    """Largest resident set of this process so far (Linux counts in KiB, macOS in bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if os.uname().sysname == "Darwin" else peak * 1024)


def total_report(reports: Sequence[AttemptReport]) -> dict[str, Any]:
    """Sums over attempts; the peak is that of the largest."""
    fields = ("rows_in", "rows_out", "bytes_in", "bytes_out", "gets", "resumed_gets", "restarts")
    totals: dict[str, Any] = {name: sum(getattr(r, name) for r in reports) for name in fields}
    totals["task_seconds"] = round(sum(report.seconds for report in reports), 3)
    totals["peak_rss_bytes"] = max((r.peak_rss_bytes for r in reports), default=0)
    return totals
