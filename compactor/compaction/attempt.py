"""One compaction, executed: what runs inside a task.

spec -> compaction (has an id) -> attempt (one execution). An attempt writes objects under names of its
own and returns what it wrote; only the driver commits, so retried and speculative attempts are
harmless, and what they leave is garbage nobody sees.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

from compactor.common.clock import Ids, random_id
from compactor.common.logs import bound
from compactor.common.redact import redacted
from compactor.errors import CompactorError, DamagedInputError
from compactor.merge.merge import MergeResult, MergeSettings, merge_fragments
from compactor.merge.merge_input import InputFragment
from compactor.planner.shape import memory_plan
from compactor.planner.spec import CompactionSpec, max_rows_per_group
from compactor.resources.allocator import give_freed_memory_back
from compactor.resources.merge_plan import output_count
from compactor.resources.stopwatch import STAGES
from compactor.resources.upload_memory import UploadMemory
from compactor.rows.flags import REASONS, RowRule, is_needed
from compactor.settings.compaction import CompactionSettings
from compactor.stores.base import Store, Upload
from compactor.stores.local import is_on_local_disk
from compactor.stores.metered import MeteredStore, StoreMetrics
from compactor.stores.open import open_store
from compactor.stores.resume import ResumingStream
from compactor.table.deletions import read_deletion
from compactor.table.entry import FragmentEntry, SkipIndex, with_sequence
from compactor.table.metadata import TableMetadata
from compactor.table.object_names import fragment_key, skip_index_key
from format.errors import CorruptFragmentError, FormatError, NotAFragmentError, OrderError

_OTHER_FILES: Final = 256
"""Open files beside inputs and outputs: libraries, Spark."""

_DAMAGE: Final = (DamagedInputError, CorruptFragmentError, NotAFragmentError, OrderError)
"""What proves that the object that they name is damaged."""

log = logging.getLogger(__name__)


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
    now_unix_ms: int = 0
    """When it was decided: by that time rows are expired, whenever and however often it is attempted."""

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
            document["compaction_id"],
            document["base_version"],
            document["table_url"],
            TableMetadata.from_json(document["metadata"]),
            CompactionSpec(
                inputs,
                document["output_level"],
                cut_keys=tuple(tuple(key) for key in document["cut_keys"]),
                is_bottom=document["is_bottom"],
            ),
            CompactionSettings(**document["settings"]),
            document["now_unix_ms"],
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
    """Second passes, because row groups had to be divided."""
    replayed_inputs: int
    """Inputs that a second pass read from local disk instead of by a second GET."""
    peak_rss_bytes: int
    """Of the whole process, since it began."""
    peak_charged_bytes: int
    """Of the memory limit."""
    spilled_bytes: int
    """Put on local disk, inputs kept for a second pass included."""
    fetch_wait_seconds: float
    cpu_busy_ratio: float
    """Of the merging thread, its encoding one included, once it has begun to merge."""
    passed_rows: int
    """Rows of row groups that went out as they came in, compressed and unread."""
    dropped: dict[str, int]
    """Rows that were not written again, by reason: rows in are rows out and these."""
    stage_seconds: dict[str, float]
    """Of the merging thread, by stage; see `compactor.resources.stopwatch`."""
    seconds: float


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """What every attempt that ends tells of itself, a failed one too."""

    attempt_id: str
    host: str
    """Where it ran."""
    started_unix_ms: int
    """By that host's clock."""
    seconds: float
    requests: dict[str, int]
    """Of its store, by name: see `compactor.stores.metered.COUNTERS`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a compaction: outputs and a report, or the reason of its failure."""

    compaction_id: str
    outputs: tuple[FragmentEntry, ...] = ()
    report: AttemptReport | None = None
    failure: str | None = None
    culprit: str | None = None
    """Key of the input that the failure is about, if it names one."""
    is_damage: bool = False
    """Whether that input's own bytes are at fault, as they were read. Whatever else fails, such as a store, a
    disk or an engine, says nothing about the inputs."""
    record: AttemptRecord | None = None
    """None if the attempt did not live to tell, as when its executor was lost."""

    def to_json(self) -> str:
        return json.dumps(
            {
                "compaction_id": self.compaction_id,
                "outputs": [entry.to_json() for entry in self.outputs],
                "report": None if self.report is None else asdict(self.report),
                "failure": self.failure,
                "culprit": self.culprit,
                "is_damage": self.is_damage,
                "record": None if self.record is None else asdict(self.record),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        document = json.loads(text)
        report, record = document["report"], document["record"]
        return cls(
            document["compaction_id"],
            tuple(FragmentEntry.from_json(entry) for entry in document["outputs"]),
            None if report is None else AttemptReport(**report),
            document["failure"],
            document["culprit"],
            document["is_damage"],
            None if record is None else AttemptRecord(**record),
        )


def run_compaction(compaction: Compaction, store: Store | None = None) -> Outcome:
    """One attempt at a compaction, on the store at its address or the one given.

    Every foreseen failure is an outcome; only what is unforeseen is raised.
    """
    try:
        attempt = _Attempt(compaction, store or open_store(compaction.table_url))
    except CompactorError as error:
        return failed(compaction, error)
    with bound(
        table=compaction.table_url,
        compaction_id=compaction.compaction_id,
        attempt_id=attempt.attempt_id,
    ):
        log.info("attempt started", extra={"inputs": len(compaction.spec.inputs)})
        try:
            outcome = attempt.run()
        except (CompactorError, FormatError) as error:
            outcome = failed(compaction, error)
        outcome = replace(outcome, record=attempt.record())
        # Of a failure the driver warns, which knows how often it was tried.
        log.info("attempt ended", extra=_figures(outcome))
    return outcome


def _figures(outcome: Outcome) -> dict[str, Any]:
    """For a line of the log."""
    if outcome.report is None:
        return {"reason": outcome.failure}
    report = asdict(outcome.report)
    return {name: value for name, value in report.items() if not isinstance(value, dict)}


def failed(compaction: Compaction, error: Exception) -> Outcome:
    """The outcome of an attempt that ended in `error`."""
    # It goes into the log, where it stays.
    message = redacted(f"{type(error).__name__}: {error}")
    keys = [entry.key for entry in compaction.spec.inputs]
    damaged = error.name if isinstance(error, _DAMAGE) else ""
    culprit = next((key for key in keys if damaged.endswith(f"/{key}")), None)
    if culprit is not None:
        return Outcome(compaction.compaction_id, failure=message, culprit=culprit, is_damage=True)
    named = [key for key in keys if key in message]
    return Outcome(
        compaction.compaction_id, failure=message, culprit=named[0] if len(named) == 1 else None
    )


class _Attempt:
    def __init__(self, compaction: Compaction, store: Store, ids: Ids = random_id) -> None:
        self._compaction = compaction
        self._plain_store = store
        self._are_local = is_on_local_disk(store)
        self._store = MeteredStore(store, StoreMetrics())
        self._started_unix_ms = time.time_ns() // 1_000_000
        self._started = time.monotonic()
        self.attempt_id = f"{compaction.compaction_id}-{ids()[:8]}"
        self._opened = 0
        self._keys: dict[int, str] = {}
        """Of the uploads, all of which are held as long as this is."""
        self._uploads: list[Upload] = []

    def record(self) -> AttemptRecord:
        return AttemptRecord(
            self.attempt_id,
            socket.gethostname(),
            self._started_unix_ms,
            round(time.monotonic() - self._started, 3),
            self._store.counts(),
        )

    def run(self) -> Outcome:
        give_freed_memory_back()
        spec, settings = self._compaction.spec, self._compaction.settings
        outputs = output_count(spec.rows, spec.size_bytes, settings.target_fragment_bytes)
        allow_open_files(len(spec.inputs) + 2 * outputs + _OTHER_FILES)
        result = self._merge()
        metrics = self._store.metrics
        report = AttemptReport(
            rows_in=result.rows_in,
            rows_out=result.rows_out,
            bytes_in=metrics.bytes_read,
            bytes_out=sum(output.size_bytes for output in result.outputs),
            gets=metrics.gets,
            resumed_gets=metrics.resumed_gets,
            restarts=result.restarts,
            replayed_inputs=result.replayed_inputs,
            peak_rss_bytes=peak_rss_bytes(),
            peak_charged_bytes=result.peak_bytes,
            spilled_bytes=result.spilled_bytes,
            fetch_wait_seconds=round(result.fetch_wait_seconds, 3),
            cpu_busy_ratio=round(result.cpu_busy_ratio, 3),
            passed_rows=result.passed_rows,
            dropped=result.dropped,
            stage_seconds={name: round(s, 4) for name, s in result.stage_seconds.items()},
            seconds=round(time.monotonic() - self._started, 3),
        )
        return Outcome(self._compaction.compaction_id, self._entries(result), report)

    def _merge(self) -> MergeResult:
        compaction = self._compaction
        settings, metadata, inputs = (
            compaction.settings, compaction.metadata, compaction.spec.inputs,
        )  # fmt: skip
        max_rows = max_rows_per_group(
            inputs,
            target_fragment_bytes=settings.target_fragment_bytes,
            max_rows=settings.max_rows_per_row_group,
        )
        return merge_fragments(
            [self._input(entry) for entry in inputs],
            MergeSettings(
                schema=metadata.schema,
                sort=metadata.sort,
                options=settings.writer_options(max_rows),
                target_fragment_bytes=settings.target_fragment_bytes,
                cut_keys=compaction.spec.cut_keys,
                memory=settings.memory(),
                encode_thread=settings.encode_thread,
                skips=metadata.skips,
                open_skips=self._open_skips,
                rule=self._rule(),
            ),
            memory_plan(inputs, metadata, settings, are_local=self._are_local),
            self._open_output,
        )

    def _rule(self) -> RowRule | None:
        compaction, table = self._compaction, self._compaction.metadata
        if not is_needed(table.rows, table.ttl):
            return None
        return RowRule(
            table.rows,
            table.ttl,
            table.schema,
            table.sort,
            is_bottom=compaction.spec.is_bottom,
            now_unix_ms=compaction.now_unix_ms,
        )

    def _input(self, entry: FragmentEntry) -> InputFragment:
        return InputFragment(
            name=f"{self._store.url}/{entry.key}",
            source_id=entry.key,
            rows=entry.rows,
            size_bytes=entry.size_bytes,
            row_hash=entry.row_hash,
            open_source=lambda: ResumingStream(self._store, entry.key),
            read_again=(lambda: ResumingStream(self._plain_store, entry.key))
            if self._are_local
            else None,
            mean_row_bytes=-(
                -max((c.raw for c in entry.columns.values()), default=0) // max(1, entry.rows)
            ),
            peak_row_bytes=entry.peak_row_bytes,
            read_dropped=lambda: read_deletion(self._plain_store, entry),
        )

    def _open_output(self, memory: UploadMemory) -> Upload:
        # Counted through both passes, so that no two uploads of an attempt share a name.
        key = fragment_key(self._compaction.base_version, self.attempt_id, self._opened)
        self._opened += 1
        upload = self._store.start_upload(key, memory)
        self._keys[id(upload)] = key
        self._uploads.append(upload)
        return upload

    def _open_skips(self, memory: UploadMemory) -> Upload:
        return self._store.start_upload(self._skips_key, memory)

    @property
    def _skips_key(self) -> str:
        # Of a second pass the only one: the first writes none before it knows that it is the last.
        return skip_index_key(self._compaction.base_version, self.attempt_id)

    def _entries(self, result: MergeResult) -> tuple[FragmentEntry, ...]:
        compaction = self._compaction
        entries = [
            FragmentEntry.from_summary(
                self._keys[id(output.sink)],
                output.summary,
                size_bytes=output.size_bytes,
                level=compaction.spec.output_level,
                run=compaction.compaction_id,
                window=compaction.spec.window,
                census=output.census,
                skip_index=SkipIndex(self._skips_key, output.skips) if output.skips else None,
            )
            for output in result.outputs
        ]
        oldest = min(entry.sequence for entry in compaction.spec.inputs)
        return tuple(with_sequence(entries, oldest))


def peak_rss_bytes() -> int:
    """Largest resident set of this process so far (Linux counts in KiB, macOS in bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if os.uname().sysname == "Darwin" else peak * 1024)


def allow_open_files(count: int) -> None:
    """Raises the soft limit of open files as far as needed and allowed: an input is a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def total_report(reports: Sequence[AttemptReport]) -> dict[str, Any]:
    """Sums over attempts; the peak is that of the largest."""
    fields = (
        "rows_in", "rows_out", "bytes_in", "bytes_out", "gets", "resumed_gets", "restarts",
        "replayed_inputs", "spilled_bytes", "passed_rows",
    )  # fmt: skip
    totals: dict[str, Any] = {name: sum(getattr(r, name) for r in reports) for name in fields}
    totals["dropped_rows"] = sum(sum(report.dropped.values()) for report in reports)
    totals["dropped_by_reason"] = {
        reason: sum(report.dropped.get(reason, 0) for report in reports) for reason in REASONS
    }
    totals["stage_seconds"] = {
        stage: round(sum(report.stage_seconds.get(stage, 0.0) for report in reports), 4)
        for stage in STAGES
    }
    totals["task_seconds"] = round(sum(report.seconds for report in reports), 3)
    for name in ("peak_rss_bytes", "peak_charged_bytes"):
        totals[name] = max((getattr(report, name) for report in reports), default=0)
    return totals
