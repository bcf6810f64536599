"""Keeps metrics in a Prometheus registry separate from the global one."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics_core import Metric as Family

from compactor import __version__
from compactor.telemetry.metrics.catalog import BUILD_INFO, Change, Metric, MetricKind


class _PlainRegistry(CollectorRegistry):
    """A registry without the `_created` series, which would double the output for nothing."""

    def collect(self) -> Iterator[Family]:
        for family in super().collect():
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family


class MetricsRegistry:
    """A thread-safe registry: changes may be applied during scrapes."""

    def __init__(self, *, of_process: bool = False) -> None:
        """of_process: add `process_*`, Prometheus's own metrics of memory, CPU and files."""
        self.prometheus: CollectorRegistry = _PlainRegistry()
        self._families: dict[str, Counter | Gauge | Histogram] = {}
        self._lock = threading.Lock()
        self.apply([Change(BUILD_INFO, 1, (__version__,))])
        if of_process:
            ProcessCollector(registry=self.prometheus)

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            family = self._family(change.metric)
            child = family.labels(*change.labels) if change.labels else family
            match child:
                case Counter():
                    child.inc(change.value)
                case Gauge():
                    child.set(change.value)
                case Histogram():
                    child.observe(change.value)

    def _family(self, metric: Metric) -> Counter | Gauge | Histogram:
        """Returns the metric, created on first change, so that a command exports only what it records."""
        with self._lock:
            if metric.name not in self._families:
                self._families[metric.name] = _made(metric, self.prometheus)
            return self._families[metric.name]


def _made(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    match metric.kind:
        case MetricKind.COUNTER:
            return Counter(metric.name, metric.help, metric.labels, registry=registry)
        case MetricKind.GAUGE:
            return Gauge(metric.name, metric.help, metric.labels, registry=registry)
        case MetricKind.HISTOGRAM:
            return Histogram(
                metric.name,
                metric.help,
                metric.labels,
                registry=registry,
                buckets=metric.buckets,
            )
