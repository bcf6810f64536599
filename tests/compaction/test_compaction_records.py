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
from compactor.compaction.compaction import AttemptReport, Compaction, Outcome
from compactor.compaction.engine import InProcessEngine
from compactor.compaction.record import MEASURED
from compactor.settings.compaction import CompactionSettings
from compactor.table.commit_log import CommitLog
from compactor.table.compaction_record import (
    MAX_TEXT,
    CompactionRecord,
    records_from_json,
    records_to_json,
)
from compactor.table.object_names import version_key
from compactor.table.version import Changes, Operation, Version
from tests.support.memory_store import MemoryStore
from tests.support.tables import compact_table, ingest_tables, log_rows
from tests.table.test_commit_log import METADATA


def with_checksum(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b"\n" + xxhash.xxh3_64_hexdigest(text).encode() + b"\n"


def records_of(store: MemoryStore) -> list[tuple[Operation, CompactionRecord]]:
    log = CommitLog(store)
    newest = log.current()
    versions = [log.history.read(n) for n in range(1, newest.version + 1)]
    return [(v.changes.operation, record) for v in versions for record in v.changes.records]


def test_a_compaction_leaves_its_figures_in_the_version_that_commits_it(tmp_path: Path) -> None:
    store = MemoryStore()
    ingest_tables(store, [log_rows(200, seed) for seed in range(3)], tmp_path)
    report = compact_table(store, CompactionSettings(memory_limit_bytes=64 << 20))
    (finished,) = report.done
    actual = finished.outcome.report
    ((operation, record),) = records_of(store)
    assert operation is Operation.COMPACT
    assert actual is not None
    assert (record.compaction_id, record.attempt, record.failure) == (
        finished.outcome.compaction_id,
        1,
        "",
    )
    assert (record.inputs, record.outputs, record.gets) == (3, len(finished.outcome.outputs), 3)
    assert (record.rows_in, record.rows_out) == (600, 600)
    for name in MEASURED - {"stage_seconds"}:
        assert getattr(record, name) == getattr(actual, name)
    assert record.memory_limit_bytes == 64 << 20
    assert record.predicted_memory_bytes == round(finished.predicted.resident_bytes.likely)
    assert (record.puts, record.live_rows) == (1, 600)
    assert 0 < record.settled_bytes < record.fresh_bytes < record.bytes_in
    assert record.reason == finished.compaction.spec.reason
    kept = {s: round(t, 3) for s, t in actual.stage_seconds.items() if round(t, 3)}
    assert record.stage_seconds == kept


def test_a_record_keeps_all_figures_of_an_attempt_but_these() -> None:
    left_out = {"replayed_inputs", "fetch_wait_seconds", "cpu_busy_ratio", "dropped"}
    assert {*AttemptReport.__struct_fields__} == MEASURED | left_out


def test_failed_attempts_are_kept_with_the_reason_and_those_after_count_on(tmp_path: Path) -> None:
    store = MemoryStore()
    ingest_tables(store, [log_rows(20, seed) for seed in range(2)], tmp_path)
    left = ["first " * 100, "second"]

    def flaky(compaction: Compaction) -> Outcome:
        if left:
            return Outcome(compaction_id=compaction.compaction_id, failure=left.pop(0))
        return run_compaction(compaction, store)

    compact_table(store, engine=InProcessEngine(flaky))
    records = records_of(store)
    assert [op for op, _ in records] == [Operation.LEASE, Operation.LEASE, Operation.COMPACT]
    assert [record.attempt for _, record in records] == [1, 2, 3]
    assert [record.failure[:6] for _, record in records] == ["first ", "second", ""]
    assert len(records[0][1].failure) == MAX_TEXT


def test_the_commit_that_puts_inputs_in_quarantine_keeps_why(tmp_path: Path) -> None:
    store = MemoryStore()
    ingest_tables(store, [log_rows(20, seed) for seed in range(2)], tmp_path)
    engine = InProcessEngine(
        lambda c: Outcome(
            compaction_id=c.compaction_id,
            failure="rows are lost",
            culprit=c.spec.inputs[0].key,
            is_damage=True,
        )
    )
    compact_table(store, engine=engine, max_attempts=1)
    ((operation, record),) = records_of(store)
    assert (operation, record.failure) == (Operation.QUARANTINE, "rows are lost")


def test_fields_of_later_programs_are_passed_over_and_what_cannot_be_read_is_left_out() -> None:
    later = {"compaction_id": "a", "gets": 4, "watts": 7}
    values = [later, {"compaction_id": 7}, {"gets": 1}, "text", {"compaction_id": "b", "gets": "x"}]
    document = {
        "protocol": 1, "version": 1, "commit_id": "i", "committed_unix_ms": 5, "table_id": "i",
        **Changes(operation=Operation.COMPACT, metadata=METADATA).to_json(), "records": values,
    }  # fmt: skip
    version = Version.from_bytes(with_checksum(document), name="later")
    assert version.changes.records == (CompactionRecord(compaction_id="a", gets=4),)


@pytest.mark.parametrize("value", [None, {}, "records", 7])
def test_records_that_are_no_list_are_none(value: object) -> None:
    assert records_from_json(value) == ()


@given(
    st.builds(
        CompactionRecord,
        compaction_id=st.text(),
        reason=st.text(),
        failure=st.text(),
        rows_in=st.integers(0, 1 << 60),
        seconds=st.floats(0, 1e9),
        stage_seconds=st.dictionaries(st.text(), st.floats(0, 1e9)),
    )
)
def test_records_come_back_as_they_were(record: CompactionRecord) -> None:
    assert records_from_json(json.loads(json.dumps(records_to_json([record])))) == (record,)


def test_a_record_is_small(tmp_path: Path) -> None:
    store = MemoryStore()
    ingest_tables(store, [log_rows(200, seed) for seed in range(2)], tmp_path)
    compact_table(store)
    newest = CommitLog(store).current().version
    document = json.loads(store.objects[version_key(newest)].split(b"\n")[0])
    assert len(json.dumps(document["records"])) < 1000
