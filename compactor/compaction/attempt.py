"""Runs one attempt at a compaction inside a task.

The names: a spec becomes a compaction (it gets an id), and each execution of it is an attempt. An attempt
writes objects under names of its own and returns what it wrote; only the driver commits. So retried and
speculative attempts are harmless, and what they leave is garbage that no version names.
"""

from __future__ import annotations

import logging
import resource
import socket
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from compactor.common.clock import random_id
from compactor.common.garbage import older_objects_left_alone
from compactor.common.heap import set_up_heap
from compactor.common.logs import bound
from compactor.common.plain_values import plain_dict
from compactor.compaction.compaction import (
    AttemptRecord,
    AttemptReport,
    Compaction,
    Outcome,
    failed,
)
from compactor.compaction.fold_key import with_key_of_input
from compactor.compaction.inputs import input_fragment
from compactor.compaction.prepared import prepare_merge
from compactor.errors import CompactorError
from compactor.merge.merge_pass import merge_fragments
from compactor.merge.outputs.contract import MergeResult
from compactor.resources.resident import peak_resident_bytes, reset_peak, resident_bytes
from compactor.resources.trimmer import trim
from compactor.resources.upload_memory import UploadMemory
from compactor.rows.fold import FoldError
from compactor.stores.base import Store, Upload
from compactor.stores.local import is_on_local_disk
from compactor.stores.metered import MeteredStore, StoreMetrics
from compactor.stores.open import open_store
from compactor.table.entry import FragmentEntry, SkipIndex, with_sequence
from compactor.table.object_names import fragment_key, skip_index_key
from lsm_fragment.errors import FormatError

log = logging.getLogger(__name__)


def run_compaction(
    compaction: Compaction,
    store: Store | None = None,
    on_read: Callable[[int], None] = lambda _bytes_read: None,
) -> Outcome:
    """Runs one attempt at a compaction, on the given store or on the one at its address.

    on_read: called by the threads that read, with the number of bytes of inputs read so far.
    Returns every foreseen failure as an outcome; raises only unforeseen exceptions.
    """
    try:
        attempt = _Attempt(compaction, store or open_store(compaction.table_url), on_read)
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
        except FoldError as error:
            outcome = failed(compaction, attempt.named(error))
        except (CompactorError, FormatError, MemoryError) as error:
            outcome = failed(compaction, error)
        outcome = replace(outcome, record=attempt.record())
        # The driver warns of a failure, since it knows how often the compaction was tried.
        log.info("attempt ended", extra=_figures(outcome))
    return outcome


def _figures(outcome: Outcome) -> dict[str, Any]:
    """Returns the fields of a log line."""
    if outcome.report is None:
        return {"reason": outcome.failure}
    report = plain_dict(outcome.report)
    return {name: value for name, value in report.items() if not isinstance(value, dict)}


class _Attempt:
    def __init__(
        self, compaction: Compaction, store: Store, on_read: Callable[[int], None]
    ) -> None:
        self._compaction = compaction
        self._plain_store = store
        self._are_local = is_on_local_disk(store)
        self._store = MeteredStore(store, StoreMetrics(on_read=on_read))
        self._started_unix_ms = time.time_ns() // 1_000_000
        self._started = time.monotonic()
        self._usage_before = _usage()
        # What earlier work has freed would hide how much this merge takes.
        trim()
        self._start_rss_bytes = resident_bytes()
        reset_peak()
        self.attempt_id = f"{compaction.compaction_id}-{random_id()[:8]}"
        self._opened = 0
        self._keys: dict[int, str] = {}
        """Object keys by the id of the upload; `_uploads` keeps the uploads alive, so ids stay unique."""
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
        set_up_heap()
        merge = prepare_merge(self._compaction, self._open_skips, are_local=self._are_local)
        _allow_open_files(merge.open_files)
        inputs = [
            input_fragment(entry, self._store, self._plain_store)
            for entry in self._compaction.spec.inputs
        ]
        with older_objects_left_alone():
            result = merge_fragments(inputs, merge.settings, merge.plan, self._open_output)
        return Outcome(
            compaction_id=self._compaction.compaction_id,
            outputs=self._entries(result),
            report=self._report(result),
        )

    def _report(self, result: MergeResult) -> AttemptReport:
        metrics = self._store.metrics
        began, now = self._usage_before, _usage()
        system_cpu_seconds = now.ru_stime - began.ru_stime
        return AttemptReport(
            rows_in=result.rows_in,
            rows_out=result.rows_out,
            bytes_in=metrics.bytes_read,
            bytes_out=sum(output.size_bytes for output in result.outputs),
            gets=metrics.gets,
            puts=metrics.puts,
            resumed_gets=metrics.resumed_gets,
            restarts=result.restarts,
            replayed_inputs=result.replayed_inputs,
            start_rss_bytes=self._start_rss_bytes,
            peak_rss_bytes=peak_resident_bytes(),
            peak_charged_bytes=result.peak_bytes,
            spilled_bytes=result.spilled_bytes,
            fetch_wait_seconds=round(result.fetch_wait_seconds, 3),
            cpu_busy_ratio=round(result.cpu_busy_ratio, 3),
            copied_rows=result.copied_rows,
            dropped=result.dropped,
            stage_seconds={name: round(s, 4) for name, s in result.stage_seconds.items()},
            cpu_seconds=round(now.ru_utime - began.ru_utime + system_cpu_seconds, 3),
            system_cpu_seconds=round(system_cpu_seconds, 3),
            seconds=round(time.monotonic() - self._started, 3),
        )

    def named(self, error: FoldError) -> Exception:
        """Returns the error with the key; as it is if the key can't be read."""
        spec, table = self._compaction.spec, self._compaction.metadata
        try:
            return with_key_of_input(self._plain_store, spec.inputs[error.input], table, error)
        except (CompactorError, FormatError):
            return error

    def _open_output(self, memory: UploadMemory) -> Upload:
        # The count goes on through both passes, so that no two uploads of an attempt share a name.
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
        # A second pass needs no other name: the first pass writes no skip index before it knows that it is
        # the last.
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
                row_statistics=output.row_statistics,
                skip_index=SkipIndex(self._skips_key, output.skips) if output.skips else None,
            )
            for output in result.outputs
        ]
        oldest = min(entry.sequence for entry in compaction.spec.inputs)
        return tuple(with_sequence(entries, oldest))


def _usage() -> resource.struct_rusage:
    return resource.getrusage(resource.RUSAGE_SELF)


def _allow_open_files(count: int) -> None:
    """Raises the soft limit of open files as far as needed and allowed; each input takes a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
