"""Spans of compactions, and nothing at all where nobody asked for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from compactor.cli.main import run
from compactor.compaction.attempt import run_compaction
from compactor.compaction.compact_report import CompactReport
from compactor.compaction.compaction import Compaction, Outcome
from compactor.compaction.driver import Driver, DriverSettings
from compactor.compaction.engine import InProcessEngine
from compactor.compaction.worker import compact
from compactor.settings.compaction import Policy, Strategy
from compactor.stores.local import LocalStore
from compactor.table.observed_log import ObservedCommitLog
from compactor.telemetry import tracing
from compactor.telemetry.tracing import Tracing, TracingUnavailableError, is_wanted, provider_of
from tests.support.tables import ingest_tables, log_rows
from tests.support.wording import refuses, says


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traces(exporter: InMemorySpanExporter) -> Tracing:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracing(provider)


def traced(folder: Path, traces: Tracing, engine: InProcessEngine | None = None) -> CompactReport:
    """The report of a compaction of three fragments into one run."""
    store = LocalStore(folder / "t")
    ingest_tables(store, [log_rows(100, seed) for seed in range(3)], folder)
    log = ObservedCommitLog(store, traces.committed)
    driver = Driver(log, DriverSettings(policy=Policy(strategy=Strategy.FULL)))
    return compact(driver, engine or InProcessEngine(), listener=traces)


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def told_by(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def times_of(span: ReadableSpan) -> tuple[int, int]:
    """Start and end in ns."""
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


def test_a_compaction_is_a_span_with_its_attempt_and_its_commit_below(
    tmp_path: Path, traces: Tracing, exporter: InMemorySpanExporter
) -> None:
    (finished,) = traced(tmp_path, traces).finished
    report = finished.outcome.report
    assert report is not None
    (compaction,) = named(exporter, "compaction")
    (attempt,) = named(exporter, "attempt")
    commits = {told_by(span)["compactor.operation"]: span for span in named(exporter, "commit")}
    assert set(commits) == {"lease", "compact"}
    told = told_by(compaction)
    assert told["compactor.compaction_id"] == finished.compaction.compaction_id
    assert told["compactor.table"] == str(tmp_path / "t")
    assert (told["compactor.inputs"], told["compactor.input_rows"]) == (3, 300)
    assert told["compactor.input_bytes"] == finished.compaction.spec.size_bytes
    assert (told["compactor.outcome"], told["compactor.attempt"]) == ("done", 1)
    assert told["compactor.version"] == 5
    assert told_by(attempt)["compactor.rows_out"] == report.rows_out
    assert told_by(attempt)["compactor.requests.gets"] == 3
    stages = {k: v for k, v in told_by(attempt).items() if k.startswith("compactor.stage.")}
    assert sum(stages.values()) == pytest.approx(sum(report.stage_seconds.values()))
    assert attempt.parent == commits["compact"].parent == compaction.context
    assert commits["lease"].parent is None  # it is what makes it a compaction
    begin, end = times_of(attempt)
    assert times_of(compaction)[0] <= begin <= end <= times_of(compaction)[1]
    assert end - begin == pytest.approx(report.seconds * 1e9, abs=5e6)
    assert told_by(commits["compact"])["compactor.version"] == 5
    assert {span.status.status_code for span in exporter.get_finished_spans()} == {StatusCode.UNSET}


def test_a_failed_attempt_is_an_error_and_the_next_try_a_compaction_of_its_own(
    tmp_path: Path, traces: Tracing, exporter: InMemorySpanExporter
) -> None:
    failures = iter(["the host said no"])

    def fails_once(compaction: Compaction) -> Outcome:
        outcome = run_compaction(compaction)
        for failure in failures:
            return Outcome(
                compaction_id=outcome.compaction_id, failure=failure, record=outcome.record
            )
        return outcome

    traced(tmp_path, traces, InProcessEngine(fails_once))
    failed, done = named(exporter, "compaction")
    assert (failed.status.status_code, done.status.status_code) == (
        StatusCode.ERROR,
        StatusCode.UNSET,
    )
    assert failed.status.description == "the host said no"
    assert told_by(failed)["compactor.outcome"] == "failed"
    assert told_by(done)["compactor.attempt"] == 2
    assert [s.status.status_code for s in named(exporter, "attempt")] == [
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]
    assert failed.context.trace_id != done.context.trace_id


def test_what_is_given_up_is_ended_all_the_same(
    tmp_path: Path, traces: Tracing, exporter: InMemorySpanExporter
) -> None:
    def stopped(_: Compaction) -> Outcome:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        traced(tmp_path, traces, InProcessEngine(stopped))
    assert named(exporter, "compaction") == []
    traces.close()
    (span,) = named(exporter, "compaction")
    assert told_by(span)["compactor.outcome"] == "given up"


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, False),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_environment_says_whether_there_are_traces(
    environment: dict[str, str], wanted: bool
) -> None:
    assert is_wanted(environment) is wanted


def test_exporters_are_found_by_the_names_of_opentelemetry() -> None:
    provider = provider_of({"OTEL_TRACES_EXPORTER": "otlp,console"})
    assert provider.resource.attributes["service.name"] == "compactor"
    processors: Any = provider._active_span_processor._span_processors
    exporters = [type(each.span_exporter).__name__ for each in processors]
    provider.shutdown()
    assert exporters == ["OTLPSpanExporter", "ConsoleSpanExporter"]
    with refuses(TracingUnavailableError):
        provider_of({"OTEL_TRACES_EXPORTER": "zipkin"})


def test_traces_that_cannot_be_made_are_a_warning(
    tmp_path: Path, capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_tables(LocalStore(tmp_path / "t"), [log_rows(10, 1)], tmp_path)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert run(["compact", str(tmp_path / "t"), "--master", "in-process"]) == 0
    (line,) = capfd.readouterr().err.splitlines()
    says(line)


def test_a_command_exports_its_spans(
    tmp_path: Path, capfd, monkeypatch: pytest.MonkeyPatch, exporter: InMemorySpanExporter
) -> None:
    ingest_tables(LocalStore(tmp_path / "t"), [log_rows(10, seed) for seed in range(2)], tmp_path)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "memory")
    monkeypatch.setattr(tracing, "_exporter", lambda name, _: {"memory": exporter}[name])
    assert (
        run(["compact", str(tmp_path / "t"), "--strategy", "full", "--master", "in-process"]) == 0
    )
    assert len(named(exporter, "compaction")) == 1


def test_nothing_of_prometheus_or_opentelemetry_is_imported_unless_asked_for(
    tmp_path: Path,
) -> None:
    ingest_tables(LocalStore(tmp_path / "t"), [log_rows(10, 1)], tmp_path)
    code = (
        "import sys; from compactor.cli.main import run; "
        f"assert run(['compact', {str(tmp_path / 't')!r}, '--master', 'in-process']) == 0; "
        "print([m for m in sys.modules if m.startswith(('opentelemetry', 'prometheus_client'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2], env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"
