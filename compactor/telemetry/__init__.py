"""Exports what happens to tables: events, metrics and traces.

All parts are listeners to the worker (`compactor.compaction.listener`). `events` makes the lines of `watch`
and the log, `tracing` OpenTelemetry spans, and `metrics` Prometheus metrics. None of them changes what the
worker does.
"""
