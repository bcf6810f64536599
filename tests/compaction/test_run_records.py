"""What the log keeps of compactions: figures as they were, and logs with and without them read alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from compactor.compaction.attempt import run_compaction
from compactor.compaction.compaction import Compaction, Outcome
from compactor.compaction.engine import InProcessEngine
from compactor.settings.compaction import CompactionSettings
from compactor.table.commit_log import CommitLog
from compactor.table.object_names import version_key
from compactor.table.run_record import MAX_TEXT, RunRecord, runs_from_json, runs_to_json
from compactor.table.version import PROTOCOL, Changes, Operation, Version
from tests.support.memory_store import MemoryStore
from tests.support.tables import compact_table, ingest_tables, log_rows
from tests.table.test_commit_log import METADATA

OLD_LOG = Path(__file__).with_name("log_without_runs.json")
"""A version that a program wrote which knew no records."""


def with_checksum(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b"\n" + xxhash.xxh3_64_hexdigest(text).encode() + b"\n"


def runs_of(store: MemoryStore) -> list[tuple[Operation, RunRecord]]:
    log = CommitLog(store)
    newest = log.current()
    versions = [log.history.read(n) for n in range(1, newest.version + 1)]
    return [(v.changes.operation, run) for v in versions for run in v.changes.runs]


def test_a_compaction_leaves_its_figures_in_the_version_that_commits_it(tmp_path: Path) -> None:
    store = MemoryStore()
    ingest_tables(store, [log_rows(200, seed) for seed in range(3)], tmp_path)
    report = compact_table(store, CompactionSettings(memory_limit_bytes=64 << 20))
    (settled,) = report.done
    actual = settled.outcome.report
    ((operation, run),) = runs_of(store)
    assert operation is Operation.COMPACT
    assert actual is not None
    assert (run.compaction_id, run.attempt, run.failure) == (settled.outcome.compaction_id, 1, "")
    assert (run.inputs, run.outputs, run.gets) == (3, len(settled.outcome.outputs), 3)
    assert (run.rows_in, run.rows_out) == (600, 600)
    assert (run.bytes_in, run.bytes_out) == (actual.bytes_in, actual.bytes_out)
    assert (run.seconds, run.peak_charged_bytes) == (actual.seconds, actual.peak_charged_bytes)
    assert run.memory_limit_bytes == 64 << 20
    assert run.predicted_memory_bytes == settled.predicted.memory_bytes
    assert run.reason == settled.compaction.spec.reason
    kept = {s: round(t, 3) for s, t in actual.stage_seconds.items() if round(t, 3)}
    assert run.stage_seconds == kept


def test_failed_attempts_are_kept_with_the_reason_and_those_after_count_on(tmp_path: Path) -> None:
    store = MemoryStore()
    ingest_tables(store, [log_rows(20, seed) for seed in range(2)], tmp_path)
    left = ["first " * 100, "second"]

    def flaky(compaction: Compaction) -> Outcome:
        if left:
            return Outcome(compaction.compaction_id, failure=left.pop(0))
        return run_compaction(compaction, store)

    compact_table(store, engine=InProcessEngine(flaky))
    runs = runs_of(store)
    assert [op for op, _ in runs] == [Operation.LEASE, Operation.LEASE, Operation.COMPACT]
    assert [run.attempt for _, run in runs] == [1, 2, 3]
    assert [run.failure[:6] for _, run in runs] == ["first ", "second", ""]
    assert len(runs[0][1].failure) == MAX_TEXT


def test_the_commit_that_puts_inputs_in_quarantine_keeps_why(tmp_path: Path) -> None:
    store = MemoryStore()
    ingest_tables(store, [log_rows(20, seed) for seed in range(2)], tmp_path)
    engine = InProcessEngine(
        lambda c: Outcome(
            c.compaction_id,
            failure="rows are lost",
            culprit=c.spec.inputs[0].key,
            is_damage=True,
        )
    )
    compact_table(store, engine=engine, max_attempts=1)
    ((operation, run),) = runs_of(store)
    assert (operation, run.failure) == (Operation.QUARANTINE, "rows are lost")


def test_a_log_file_of_earlier_programs_reads_and_is_written_byte_for_byte_as_it_was() -> None:
    version = Version.from_bytes(OLD_LOG.read_bytes(), name="old")
    assert version.changes.operation is Operation.COMPACT
    assert version.changes.runs == ()
    assert version.to_bytes() == OLD_LOG.read_bytes()


def test_records_are_one_field_that_changes_no_other_and_no_protocol() -> None:
    old = Version.from_bytes(OLD_LOG.read_bytes(), name="old")
    run = RunRecord(compaction_id="c", rows_in=3, stage_seconds={"decode": 0.5})
    changes = Changes.from_json({**old.changes.to_json(), "runs": runs_to_json([run])})
    new = Version(old.number, old.commit_id, old.committed_unix_ms, changes)
    document = json.loads(new.to_bytes().split(b"\n")[0])
    assert document.pop("runs") == [
        {"compaction_id": "c", "rows_in": 3, "stage_seconds": {"decode": 0.5}}
    ]
    assert document == json.loads(OLD_LOG.read_bytes().split(b"\n")[0])
    assert document["protocol"] < PROTOCOL


def test_fields_of_later_programs_are_passed_over_and_what_cannot_be_read_is_left_out() -> None:
    later = {"compaction_id": "a", "gets": 4, "watts": 7}
    values = [later, {"compaction_id": 7}, {"gets": 1}, "text", {"compaction_id": "b", "gets": "x"}]
    document = {
        "protocol": 1, "version": 1, "commit_id": "i", "committed_unix_ms": 5,
        **Changes(Operation.COMPACT, metadata=METADATA).to_json(), "runs": values,
    }  # fmt: skip
    version = Version.from_bytes(with_checksum(document), name="later")
    assert version.changes.runs == (RunRecord(compaction_id="a", gets=4),)


@pytest.mark.parametrize("value", [None, {}, "runs", 7])
def test_records_that_are_no_list_are_none(value: object) -> None:
    assert runs_from_json(value) == ()


@given(
    st.builds(
        RunRecord,
        compaction_id=st.text(),
        reason=st.text(),
        failure=st.text(),
        rows_in=st.integers(0, 1 << 60),
        seconds=st.floats(0, 1e9),
        stage_seconds=st.dictionaries(st.text(), st.floats(0, 1e9)),
    )
)
def test_records_come_back_as_they_were(run: RunRecord) -> None:
    assert runs_from_json(json.loads(json.dumps(runs_to_json([run])))) == (run,)


def test_a_record_is_small(tmp_path: Path) -> None:
    store = MemoryStore()
    ingest_tables(store, [log_rows(200, seed) for seed in range(2)], tmp_path)
    compact_table(store)
    newest = CommitLog(store).current().version
    document = json.loads(store.objects[version_key(newest)].split(b"\n")[0])
    assert len(json.dumps(document["runs"])) < 1000
