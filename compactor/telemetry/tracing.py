"""OpenTelemetry spans of compactions, attempts and commits. Only this module imports OpenTelemetry.

The driver makes the spans of ended attempts from their reports, so tasks need neither SDK nor context; an
attempt's start is by its host's clock. Tracing is off, and the SDK not imported, unless the environment
enables it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from compactor.common.foreign import kind_of
from compactor.compaction.listener import Listener

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

    from compactor.compaction.compaction import AttemptReport, Compaction
    from compactor.compaction.driver import Driver, FinishedCompaction
    from compactor.table.observed_log import CommitReport

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_EXPORTERS: Final = "opentelemetry_traces_exporter"
"""Entry point group in which OpenTelemetry looks up exporters."""
_PROTOCOLS: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
_NS_PER_MS: Final = 1_000_000


class TracingUnavailableError(Exception):
    """The environment requests traces, but something is missing, which the message names."""


def is_wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether `OTEL_*` names an exporter."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    return exporter != "none" and bool(exporter or any(map(environment.get, _ENDPOINTS)))


def provider_of(environment: Mapping[str, str] = os.environ) -> TracerProvider:
    """Returns a provider of its own, not the global one, with the exporters named by `OTEL_*`.

    Raises `TracingUnavailableError`.
    """
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracingUnavailableError(
            f"OTEL_* asks for traces, but OpenTelemetry is not installed ({error}): "
            "pip install 'lsm-compactor[otel]'"
        ) from error
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override this name.
    name = {} if "OTEL_SERVICE_NAME" in environment else {"service.name": "compactor"}
    named = "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if named else name))
    for exporter in _exporters(environment):
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporters(environment: Mapping[str, str]) -> list[SpanExporter]:
    names = environment.get("OTEL_TRACES_EXPORTER", "otlp").split(",")
    return [_exporter(name.strip(), environment) for name in names if name.strip()]


def _exporter(name: str, environment: Mapping[str, str]) -> SpanExporter:
    from importlib.metadata import entry_points

    if name == "otlp":
        protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
        )
        name = _PROTOCOLS.get(protocol, protocol)
    found: list[EntryPoint] = list(entry_points(group=_EXPORTERS, name=name))
    if not found:
        raise TracingUnavailableError(
            f"OTEL_* asks for traces by the exporter {name!r}, which is not installed: "
            "pip install 'lsm-compactor[otel]' has otlp over HTTP"
        )
    try:
        entry_point = found[0]
        exporter: SpanExporter = entry_point.load()()
    except Exception as error:
        raise TracingUnavailableError(
            f"the exporter {name!r} of OTEL_*: {kind_of(error)}"
        ) from error
    return exporter


class Tracing(Listener):
    """A `Listener` that makes spans; pass `committed` to an `ObservedCommitLog`."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("compactor")
        self._open: dict[str, Span] = {}
        """Spans of running compactions, by id."""

    def decided(self, driver: Driver, compactions: Sequence[Compaction]) -> None:
        for compaction in compactions:
            spec = compaction.spec
            self._open[compaction.compaction_id] = self._tracer.start_span(
                "compaction",
                start_time=compaction.now_unix_ms * _NS_PER_MS,
                attributes={
                    "compactor.compaction_id": compaction.compaction_id,
                    "compactor.table": driver.url,
                    "compactor.base_version": compaction.base_version,
                    "compactor.inputs": len(spec.inputs),
                    "compactor.input_bytes": spec.size_bytes,
                    "compactor.input_rows": spec.rows,
                    "compactor.output_level": spec.output_level,
                    "compactor.reason": spec.reason,
                },
            )

    def finished(self, driver: Driver, finished: FinishedCompaction) -> None:
        from opentelemetry.trace import StatusCode

        span = self._open.pop(finished.compaction.compaction_id, None)
        if span is None:
            return
        outcome = finished.outcome
        self._attempt(span, finished)
        span.set_attribute("compactor.attempt", finished.attempt)
        if finished.is_void:
            span.set_attribute("compactor.outcome", "void")
        elif outcome.failure is not None:
            span.set_attribute("compactor.outcome", "failed")
            span.set_attribute("compactor.quarantined", len(finished.quarantined))
            span.set_status(StatusCode.ERROR, outcome.failure)
        else:
            span.set_attribute("compactor.outcome", "done")
            span.set_attribute("compactor.version", driver.log.latest.version)
            span.set_attribute("compactor.outputs", len(outcome.outputs))
        span.end()

    def _attempt(self, compaction: Span, finished: FinishedCompaction) -> None:
        from opentelemetry.trace import StatusCode, set_span_in_context

        outcome = finished.outcome
        if outcome.record is None:
            return
        record = outcome.record
        attributes: dict[str, Any] = {
            "compactor.attempt_id": record.attempt_id,
            "host.name": record.host,
            **{f"compactor.requests.{name}": count for name, count in record.requests.items()},
        }
        if outcome.report is not None:
            attributes |= _figures(outcome.report)
        started = record.started_unix_ms * _NS_PER_MS
        span = self._tracer.start_span(
            "attempt", set_span_in_context(compaction), start_time=started, attributes=attributes
        )
        if outcome.failure is not None:
            span.set_status(StatusCode.ERROR, outcome.failure)
        span.end(started + round(record.seconds * 1e9))

    def committed(self, commit: CommitReport) -> None:
        """Makes a commit's span: a child of the first compaction that it ends, linked to the others."""
        from opentelemetry.trace import Link, StatusCode, set_span_in_context

        from compactor.table.observed_log import CommitEnd

        if commit.end is CommitEnd.NOTHING:
            return
        changes = commit.changes
        ended = [
            self._open[i] for i in (changes.ended_leases if changes else ()) if i in self._open
        ]
        started = commit.started_unix_ms * _NS_PER_MS
        span = self._tracer.start_span(
            "commit",
            set_span_in_context(ended[0]) if ended else None,
            links=[Link(other.get_span_context()) for other in ended[1:]],
            start_time=started,
            attributes={
                "compactor.table": commit.table_url,
                "compactor.operation": str(changes.operation) if changes else "none",
                "compactor.version": commit.version,
                "compactor.lost_races": commit.lost_races,
                "compactor.outcome": str(commit.end),
            },
        )
        if commit.end is not CommitEnd.COMMITTED:
            span.set_status(StatusCode.ERROR, str(commit.end))
        span.end(started + round(commit.seconds * 1e9))

    def close(self) -> None:
        """Ends open spans and flushes."""
        for span in self._open.values():
            span.set_attribute("compactor.outcome", "given up")
            span.end()
        self._open.clear()
        self._provider.shutdown()


def _figures(report: AttemptReport) -> dict[str, Any]:
    stages = {
        f"compactor.stage.{stage.replace(' ', '_')}_seconds": seconds
        for stage, seconds in report.stage_seconds.items()
    }
    return {
        "compactor.rows_in": report.rows_in,
        "compactor.rows_out": report.rows_out,
        "compactor.bytes_in": report.bytes_in,
        "compactor.bytes_out": report.bytes_out,
        "compactor.restarts": report.restarts,
        "compactor.spilled_bytes": report.spilled_bytes,
        "compactor.peak_charged_bytes": report.peak_charged_bytes,
        "compactor.peak_rss_bytes": report.peak_rss_bytes,
        **stages,
    }
