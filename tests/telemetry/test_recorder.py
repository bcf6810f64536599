"""What counters say is what happened: by reports, by the server's own log, by the table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from compactor.compaction.attempt import run_compaction
from compactor.compaction.compact_report import CompactReport
from compactor.compaction.compaction import Compaction, Outcome
from compactor.compaction.driver import Driver, DriverSettings
from compactor.compaction.engine import InProcessEngine
from compactor.compaction.listener import Listeners
from compactor.compaction.worker import compact
from compactor.errors import CommitConflictError, StoreUnreachableError
from compactor.planner.debt import debt_of
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.stores.base import REQUEST_KINDS, Store
from compactor.stores.local import LocalStore
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.observed_log import CommitEnd, CommitReport, ObservedCommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.telemetry.events import Event, Events
from compactor.telemetry.metrics import mapping
from compactor.telemetry.metrics.catalog import LEVEL_BYTES
from compactor.telemetry.metrics.recorder import Recorder
from tests.faults import Refuse, calls
from tests.support.clocks import StillClock
from tests.support.memory_store import MemoryStore
from tests.support.s3_server import answering
from tests.support.tables import append_table, ingest_tables, log_rows
from tests.telemetry.conftest import Value

POLICY = Policy(strategy=Strategy.OVERLAPPING)
SETTINGS = CompactionSettings(memory_limit_bytes=64 << 20)


def recorded(
    store: Store, recorder: Recorder, engine: InProcessEngine | None = None
) -> tuple[CompactReport, Driver]:
    """A compaction of the table until nothing is due, as a command line with metrics does it."""
    log = ObservedCommitLog(recorder.metered(store), recorder.committed, clock=StillClock())
    driver = Driver(log, DriverSettings(policy=POLICY, compaction=SETTINGS, retry_seconds=0.0))
    recorder.begin_compactions(driver.url, SETTINGS.memory_limit_bytes)
    report = compact(driver, engine or InProcessEngine(), clock=StillClock(), listener=recorder)
    recorder.count_requests()
    return report, driver


def test_counters_of_a_compaction_are_those_of_its_report_and_of_the_server(
    s3_server, s3_bucket: str, tmp_path: Path, recorder: Recorder, value: Value
) -> None:
    store = open_store(f"s3://{s3_bucket}/t")
    ingest_tables(store, [log_rows(300, seed) for seed in range(5)], tmp_path)
    s3_server.reset()
    report, driver = recorded(store, recorder)
    told, url = report.to_json(), store.url
    assert told["tasks"] == 1
    assert told["rows_in"] == 1_500 == value("input_rows_total", table=url)
    assert value("output_rows_total", table=url) == told["rows_out"]
    assert value("input_fragments_total", table=url) == told["input_fragments"] == 5
    assert value("output_fragments_total", table=url) == told["output_fragments"]
    assert value("read_bytes_total", table=url, role="task") == told["bytes_in"]
    assert value("written_bytes_total", table=url, role="task") == told["bytes_out"]
    assert value("compactions_total", table=url, outcome="done") == 1
    assert value("compactions_total", table=url, outcome="failed") == 0
    assert value("compaction_seconds_count", table=url) == 1
    assert value("compaction_seconds_sum", table=url) == pytest.approx(told["task_seconds"])
    assert value("memory_limit_bytes", table=url) == 64 << 20
    assert value("peak_charged_bytes", table=url) == told["peak_charged_bytes"]
    assert value("last_success_timestamp_seconds", table=url) == 1_700_000_000
    for stage, seconds in told["stage_seconds"].items():
        assert value("stage_seconds_total", table=url, stage=stage) == pytest.approx(seconds)
    # The server's own log: GETs and objects of both roles.
    gets = s3_server.requests("GET", "t/data/")
    assert value("store_gets_total", table=url, role="task") == len(gets) == 5
    commits = s3_server.requests("PUT", "t/_log/0")
    assert value("store_puts_total", table=url, role="driver") == len(commits)
    assert value("commits_total", table=url, operation="lease") == 1
    assert value("commits_total", table=url, operation="compact") == 1
    assert value("store_puts_total", table=url, role="task") == told["output_fragments"]
    sent = Counter(
        "list" if "list-type" in r.query else r.method.lower() for r in s3_server.requests()
    )
    told_by_kind = {
        kind: sum(
            value("store_requests_total", table=url, role=role, kind=kind) or 0
            for role in ("task", "driver")
        )
        for kind in REQUEST_KINDS
    }
    assert told_by_kind == {kind: sent[kind] for kind in REQUEST_KINDS}
    assert sent["list"] > 0
    # And the table afterwards.
    snapshot = CommitLog(store).current()
    assert value("table_version", table=url) == snapshot.version == report.version
    assert value("debt_score", table=url) == debt_of(snapshot, driver.policy_for(snapshot)).score
    sizes = [entry.size_bytes for entry in snapshot.fragments.values()]
    levels = {entry.level for entry in snapshot.fragments.values()}
    assert sum(value("level_bytes", table=url, level=str(n)) or 0 for n in levels) == sum(sizes)
    assert value("level_fragments", table=url, level="0") == (0 if levels == {1} else len(sizes))
    assert value("inflight_compactions", table=url) == 0


def test_failed_attempts_count_their_requests_their_retries_and_the_quarantine(
    tmp_path: Path, recorder: Recorder, value: Value
) -> None:
    store = LocalStore(tmp_path / "t")
    log = ingest_tables(store, [log_rows(300, seed) for seed in range(3)], tmp_path)
    damaged = log.latest.by_age()[0]
    file = tmp_path / "t" / damaged.key
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    report, _ = recorded(store, recorder)
    assert len(report.failed) == 3
    assert value("compactions_total", table=store.url, outcome="failed") == 3
    assert value("compactions_total", table=store.url, outcome="done") == 0
    assert value("compaction_retries_total", table=store.url) == 2
    assert value("quarantined_fragments", table=store.url) == 1
    assert value("store_gets_total", table=store.url, role="task") == 3 * 3
    assert value("input_rows_total", table=store.url) == 0


def test_a_compaction_that_others_overtook_is_void_and_adds_no_rows(
    tmp_path: Path, recorder: Recorder, value: Value
) -> None:
    store = LocalStore(tmp_path / "t")
    ingest_tables(store, [log_rows(100, seed) for seed in range(3)], tmp_path)

    def overtaken(compaction: Compaction) -> Outcome:
        outcome = run_compaction(compaction)
        changes = Changes(operation=Operation.LEASE, ended_leases=(compaction.compaction_id,))
        if CommitLog(store).current().version == 4:
            CommitLog(store).commit(lambda _: changes)
        return outcome

    recorded(store, recorder, InProcessEngine(overtaken))
    assert value("compactions_total", table=store.url, outcome="void") == 1
    assert value("compactions_total", table=store.url, outcome="done") == 1
    assert value("input_rows_total", table=store.url) == 300
    assert value("store_gets_total", table=store.url, role="task") == 6


def test_races_for_a_version_are_counted_won_or_lost(recorder: Recorder, value: Value) -> None:
    store = MemoryStore()
    append_table(store, log_rows(10, 1), "service,ts:desc")
    label = "memory://table"
    reports: list[CommitReport] = []

    def observe(report: CommitReport) -> None:
        reports.append(report)
        recorder.committed(report)

    log = ObservedCommitLog(store, observe, clock=StillClock())
    rival, changes = CommitLog(store), Changes(operation=Operation.VACUUM)
    wins = iter([True, True, False])

    def slow(snapshot: Snapshot) -> Changes:
        if next(wins, True):
            rival.commit(lambda _: changes)
        return changes

    log.commit(slow)
    assert (reports[-1].end, reports[-1].lost_races) == (CommitEnd.COMMITTED, 2)
    assert reports[-1].version == 4
    assert value("commit_conflicts_total", table=label) == 2
    with pytest.raises(CommitConflictError):
        log.commit(slow)
    assert value("commit_conflicts_total", table=label) == 2 + 64
    assert value("commit_failures_total", table=label, end="conflict") == 1
    assert value("commits_total", table=label, operation="vacuum") == 1
    assert value("commit_seconds_count", table=label) == 1


def test_a_commit_that_has_nothing_to_do_is_none(recorder: Recorder, value: Value) -> None:
    reports: list[CommitReport] = []
    log = ObservedCommitLog(MemoryStore(), reports.append)

    def nothing(_: Snapshot) -> Changes:
        raise LookupError

    with pytest.raises(LookupError):
        log.commit(nothing)
    (report,) = reports
    assert (report.end, report.changes, report.lost_races) == (CommitEnd.NOTHING, None, 0)
    recorder.committed(report)
    assert value("commit_conflicts_total", table="memory://table") == 0
    assert value("commit_failures_total", table="memory://table", end="failed") is None


def test_a_step_that_fails_is_counted_with_its_requests(recorder: Recorder, value: Value) -> None:
    store = MemoryStore()
    metered = recorder.metered(store)
    driver = Driver(CommitLog(metered), DriverSettings())
    metered.create("x", b"12345")
    assert metered.read("x") == b"12345"
    recorder.failed(driver, StoreUnreachableError("no answer"), 1.0)
    assert value("step_failures_total", table=store.url) == 1
    assert value("store_gets_total", table=store.url, role="driver") == 1
    assert value("read_bytes_total", table=store.url, role="driver") == 5
    recorder.looked(driver)  # no table yet
    assert value("store_gets_total", table=store.url, role="driver") == 1
    assert value("table_version", table=store.url) is None


def test_a_level_that_was_emptied_is_said_to_have_nothing() -> None:
    changes = mapping.of_snapshot("t", Snapshot.empty(), debt_of(Snapshot.empty(), POLICY), [2])
    sizes = {change.labels: change.value for change in changes if change.metric is LEVEL_BYTES}
    assert sizes == {("t", "0"): 0, ("t", "2"): 0}


def test_requests_that_the_sdk_sends_again_are_counted(s3_server, s3_bucket: str) -> None:
    store = open_store(f"s3://{s3_bucket}/t")
    store.create("x", b"1")
    recorder = Recorder(lambda _: None)
    metered = recorder.metered(store)
    slow_down = answering("503 Service Unavailable", b"<Error><Code>SlowDown</Code></Error>")
    s3_server.faults.add(Refuse(slow_down), at=calls().first())
    assert metered.read("x") == b"1"
    counts = metered.counts()
    assert (counts["gets"], counts["retries"]) == (1, 1)
    assert len(s3_server.requests("GET", "t/x")) == 2
    assert recorder.metered(store).counts()["retries"] == 0


def test_a_table_is_awaited_until_it_is_there_and_then_has_a_backlog(
    tmp_path: Path, recorder: Recorder, value: Value
) -> None:
    store = MemoryStore()
    driver = Driver(CommitLog(store), DriverSettings(policy=POLICY, compaction=SETTINGS))
    events: list[Event] = []
    both = Listeners([recorder, Events([events.append])])
    for _ in range(3):
        driver.log.refresh()
        both.looked(driver)
    assert value("table_awaited", table=store.url) == 1
    ingest_tables(store, [log_rows(300, seed) for seed in range(5)], tmp_path)
    for _ in range(3):
        driver.log.refresh()
        both.looked(driver)
    assert [event.name for event in events] == ["waiting", "found"]
    assert value("table_awaited", table=store.url) == 0
    version = driver.log.latest.version
    assert value("compacted_through_version", table=store.url) == 0
    assert value("waiting_compactions", table=store.url) == 1
    size = sum(entry.size_bytes for entry in driver.log.latest.fragments.values())
    assert value("due_bytes", table=store.url) == size
    compact(driver, InProcessEngine(lambda c: run_compaction(c, store)), listener=recorder)
    recorder.looked(driver)
    assert value("compacted_through_version", table=store.url) == driver.log.latest.version
    assert driver.log.latest.version > version
    assert value("due_bytes", table=store.url) == 0
